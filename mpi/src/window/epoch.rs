//! When what was begun is done, and who may access whose memory: fences, post and start, locks, flushes.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::{Window, told};
use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W};
use crate::outcome::TEST;
use mpi_windows::Word;
use mpi_windows::target::Asked;

impl Window {
    /// The ranks of the window that are of a group of the program's.
    fn ranks(&self, world: W, group: MPI_Group) -> Res<Vec<usize>> {
        let ranks = world.group(group)?;
        let place = |rank: &u32| self.comm.members.iter().position(|member| member == rank);
        ranks.iter().map(place).collect::<Option<Vec<usize>>>().map_or_else(|| fail(MPI_ERR_GROUP), Ok)
    }

    fn carry_out_all(&self, world: W, asked: Vec<Asked>) {
        asked.into_iter().for_each(|(from, word, bytes)| self.carry_out(world, from, word, &bytes));
    }

    fn fence(&self, world: W) -> Res {
        self.flush(world, |_| true, true)?;
        world.carry_out(collective::barrier(world, self.comm.clone()))?;
        let asked = self.target.borrow_mut().fenced();
        self.carry_out_all(world, asked);
        Ok(())
    }

    fn post(&self, world: W, group: MPI_Group) -> Res {
        let origins = self.ranks(world, group)?;
        let asked = self.target.borrow_mut().post(&origins);
        self.carry_out_all(world, asked);
        self.origin.borrow_mut().exposed.clone_from(&origins);
        origins.into_iter().try_for_each(|origin| self.say(world, origin, Word::Posted, &[]))
    }

    fn start(&self, world: W, group: MPI_Group) -> Res {
        let targets = self.ranks(world, group)?;
        world.wait_until(|| {
            let origin = self.origin.borrow();
            targets.iter().all(|target| origin.posted[*target] > origin.starts[*target])
        });
        let mut origin = self.origin.borrow_mut();
        targets.iter().for_each(|target| origin.starts[*target] += 1);
        origin.accessed = targets;
        Ok(())
    }

    fn complete(&self, world: W) -> Res {
        let targets = std::mem::take(&mut self.origin.borrow_mut().accessed);
        self.flush(world, |rank| targets.contains(&rank), false)?;
        targets.into_iter().try_for_each(|target| self.say(world, target, Word::Completed, &[]))
    }

    fn is_left(&self) -> bool {
        self.target.borrow().are_complete(&self.origin.borrow().exposed)
    }

    fn close(&self) {
        self.origin.borrow_mut().exposed.clear();
    }

    /// Whether all have completed: a yes or no that is kept, or repeated.
    fn test(&self, world: W) -> bool {
        let left = match world.outcomes.repeat(world, TEST) {
            Some(0) => false,
            Some(_) => {
                world.wait_until(|| self.is_left());
                true
            }
            None => {
                world.progress();
                let left = self.is_left();
                world.outcomes.record(world, TEST, left.into(), !left);
                left
            }
        };
        if left {
            self.close();
        }
        left
    }

    fn rank(&self, rank: Int) -> Res<usize> {
        if (0..self.size() as Int).contains(&rank) { Ok(rank as usize) } else { fail(MPI_ERR_RANK) }
    }

    fn lock(&self, world: W, alone: bool, ranks: impl Iterator<Item = usize>) -> Res {
        let asked: Res<Vec<_>> =
            ranks.map(|rank| self.ask(world, rank, None, |answer| Word::Lock { alone, answer }, &[])).collect();
        let asked = asked?;
        world.wait_until(|| asked.iter().all(|done| done.get()));
        Ok(())
    }

    fn unlock(&self, world: W, of: impl Fn(usize) -> bool) -> Res {
        self.flush(world, &of, true)?;
        (0..self.size()).filter(|rank| of(*rank)).try_for_each(|rank| self.say(world, rank, Word::Unlock, &[]))
    }
}

export! {
    fn MPI_Win_fence(assert: Int, win: MPI_Win) window win => |w, at| {
        let _ = assert;
        at.fence(w)
    };
    fn MPI_Win_post(group: MPI_Group, assert: Int, win: MPI_Win) => |w| match w.windows.find(win) {
        Some(at) => {
            let _ = assert;
            told(win, at.post(w, group))
        }
        None => natively(w, group, |group| native().MPI_Win_post(group, assert, win)),
    };
    fn MPI_Win_start(group: MPI_Group, assert: Int, win: MPI_Win) => |w| match w.windows.find(win) {
        Some(at) => {
            let _ = assert;
            told(win, at.start(w, group))
        }
        None => natively(w, group, |group| native().MPI_Win_start(group, assert, win)),
    };
    fn MPI_Win_complete(win: MPI_Win) window win => |w, at| at.complete(w);
    fn MPI_Win_wait(win: MPI_Win) window win => |w, at| {
        w.wait_until(|| at.is_left());
        at.close();
        Ok(())
    };
    fn MPI_Win_test(win: MPI_Win, flag: *mut Int) window win => |w, at| {
        put(flag, at.test(w).into());
        Ok(())
    };
    fn MPI_Win_lock(lock_type: Int, rank: Int, assert: Int, win: MPI_Win) window win => |w, at| {
        let _ = assert;
        let rank = match at.rank(rank) {
            Err(_) if rank == MPI_PROC_NULL => return Ok(()),
            rank => rank?,
        };
        at.lock(w, lock_type == MPI_LOCK_EXCLUSIVE as Int, [rank].into_iter())
    };
    fn MPI_Win_unlock(rank: Int, win: MPI_Win) window win => |w, at| {
        let rank = match at.rank(rank) {
            Err(_) if rank == MPI_PROC_NULL => return Ok(()),
            rank => rank?,
        };
        at.unlock(w, |other| other == rank)
    };
    fn MPI_Win_lock_all(assert: Int, win: MPI_Win) window win => |w, at| {
        let _ = assert;
        at.lock(w, false, 0..at.size())
    };
    fn MPI_Win_unlock_all(win: MPI_Win) window win => |w, at| at.unlock(w, |_| true);
    fn MPI_Win_flush(rank: Int, win: MPI_Win) window win => |w, at| {
        let rank = at.rank(rank)?;
        at.flush(w, |other| other == rank, true)
    };
    fn MPI_Win_flush_all(win: MPI_Win) window win => |w, at| at.flush(w, |_| true, true);
    fn MPI_Win_flush_local(rank: Int, win: MPI_Win) window win => |w, at| {
        let rank = at.rank(rank)?;
        at.flush(w, |other| other == rank, false)
    };
    fn MPI_Win_flush_local_all(win: MPI_Win) window win => |w, at| at.flush(w, |_| true, false);
    fn MPI_Win_sync(win: MPI_Win) window win => |w, at| {
        let _ = at;
        w.progress();
        Ok(())
    };
}

/// The call on a native window: groups of processes are ours, as those of all calls.
fn natively(world: W, group: MPI_Group, call: impl FnOnce(MPI_Group) -> Int) -> Res {
    let mut group = crate::group::native_group(world, &world.group(group)?);
    let code = call(group);
    native().MPI_Group_free(&mut group);
    check(code)
}
