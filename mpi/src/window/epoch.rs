//! When what was begun is done, and who may access whose memory: fences, post and start, locks, flushes.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::{Window, key, told};
use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W};
use crate::group::with_native;
use crate::outcome::TEST;
use crate::world::aside;
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

    /// All that all ranks have asked of each other is done.
    pub(super) fn complete_all(&self, world: W) -> Res {
        self.flush(world, |_| true, true)?;
        world.carry_out(collective::barrier(world, self.comm.clone()))
    }

    fn fence(&self, world: W, assert: Int) -> Res {
        self.complete_all(world)?;
        let asked = self.target.borrow_mut().fenced();
        self.carry_out_all(world, asked);
        self.origin.borrow_mut().fenced(assert & MPI_MODE_NOSUCCEED as Int == 0);
        Ok(())
    }

    fn post(&self, world: W, group: MPI_Group) -> Res {
        let origins = self.ranks(world, group)?;
        if self.check_exposed().is_ok() {
            return fail(MPI_ERR_RMA_SYNC);
        }
        let asked = self.target.borrow_mut().post(&origins);
        self.carry_out_all(world, asked);
        self.origin.borrow_mut().expose(origins.clone());
        origins.into_iter().try_for_each(|origin| self.say(world, origin, Word::Posted, &[]))
    }

    fn start(&self, world: W, group: MPI_Group) -> Res {
        let targets = self.ranks(world, group)?;
        world.wait_until(|| self.origin.borrow().may_start(&targets));
        self.origin.borrow_mut().start(targets);
        Ok(())
    }

    fn complete(&self, world: W) -> Res {
        let Some(targets) = self.origin.borrow_mut().complete() else { return fail(MPI_ERR_RMA_SYNC) };
        self.flush(world, |rank| targets.contains(&rank), false)?;
        targets.into_iter().try_for_each(|target| self.say(world, target, Word::Completed, &[]))
    }

    fn is_left(&self) -> bool {
        self.target.borrow().are_complete(self.origin.borrow().exposed().unwrap_or_default())
    }

    fn check_exposed(&self) -> Res {
        if self.origin.borrow().exposed().is_some() { Ok(()) } else { fail(MPI_ERR_RMA_SYNC) }
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
            self.origin.borrow_mut().close();
        }
        left
    }

    /// A rank of the window; none if there is nobody.
    fn rank(&self, rank: Int) -> Res<Option<usize>> {
        match rank {
            MPI_PROC_NULL => Ok(None),
            _ if (0..self.comm.size() as Int).contains(&rank) => Ok(Some(rank as usize)),
            _ => fail(MPI_ERR_RANK),
        }
    }

    /// Takes the lock of a rank, or those of all. Who says that nobody else wants it asks for none, as with the native libraries.
    fn lock(&self, world: W, alone: bool, rank: Option<usize>, assert: Int) -> Res {
        if !self.origin.borrow().may_lock(rank) {
            return fail(MPI_ERR_RMA_SYNC);
        }
        let asks = assert & MPI_MODE_NOCHECK as Int == 0;
        let ranks = rank.map_or(0..self.comm.size(), |rank| rank..rank + 1).filter(|_| asks);
        let asked = ranks.map(|rank| self.ask(world, rank, None, |answer| Word::Lock { alone, answer }, &[]));
        let asked = asked.collect::<Res<Vec<_>>>()?;
        world.wait_until(|| asked.iter().all(|done| done.get()));
        self.origin.borrow_mut().lock(rank, asks);
        Ok(())
    }

    fn unlock(&self, world: W, rank: Option<usize>) -> Res {
        if !self.origin.borrow().holds(rank) {
            return fail(MPI_ERR_RMA_SYNC);
        }
        let is_it = |other| rank.is_none_or(|rank| rank == other);
        self.flush(world, is_it, true)?;
        let has_asked = self.origin.borrow_mut().unlock(rank) == Some(true);
        (0..self.comm.size())
            .filter(|rank| has_asked && is_it(*rank))
            .try_for_each(|rank| self.say(world, rank, Word::Unlock, &[]))
    }

    /// Waits until all is done that was asked of a rank, or of all.
    fn flushed(&self, world: W, rank: Option<usize>, remotely: bool) -> Res {
        if !self.origin.borrow().may_flush(rank) {
            return fail(MPI_ERR_RMA_SYNC);
        }
        self.flush(world, |other| rank.is_none_or(|rank| rank == other), remotely)
    }
}

export! {
    fn MPI_Win_fence(assert: Int, win: MPI_Win) => |w| match w.windows.find(win) {
        Some(at) => told(win, at.fence(w, assert)),
        None => {
            w.windows.of_one.meet(w, key(win));
            check(aside(|| native().MPI_Win_fence(assert, win)))
        }
    };
    fn MPI_Win_post(group: MPI_Group, assert: Int, win: MPI_Win) => |w| match w.windows.find(win) {
        Some(at) => {
            let _ = assert;
            told(win, at.post(w, group))
        }
        None => with_native(w, &w.group(group)?, |group| native().MPI_Win_post(group, assert, win)),
    };
    fn MPI_Win_start(group: MPI_Group, assert: Int, win: MPI_Win) => |w| match w.windows.find(win) {
        Some(at) => {
            let _ = assert;
            told(win, at.start(w, group))
        }
        None => with_native(w, &w.group(group)?, |group| native().MPI_Win_start(group, assert, win)),
    };
    fn MPI_Win_complete(win: MPI_Win) window win => |w, at| at.complete(w);
    fn MPI_Win_wait(win: MPI_Win) => |w| match w.windows.find(win) {
        Some(at) => told(win, at.check_exposed().map(|()| {
            w.wait_until(|| at.is_left());
            at.origin.borrow_mut().close();
        })),
        None => {
            let (mut flag, mut code) = (0, MPI_SUCCESS);
            w.wait_natively(|| {
                code = native().MPI_Win_test(win, &mut flag);
                flag != 0 || code != MPI_SUCCESS
            });
            check(code)
        }
    };
    fn MPI_Win_test(win: MPI_Win, flag: *mut Int) window win => |w, at| {
        at.check_exposed()?;
        put(flag, at.test(w).into());
        Ok(())
    };
    fn MPI_Win_lock(lock_type: Int, rank: Int, assert: Int, win: MPI_Win) window win => |w, at| {
        if lock_type != MPI_LOCK_EXCLUSIVE as Int && lock_type != MPI_LOCK_SHARED as Int {
            return fail(MPI_ERR_LOCKTYPE);
        }
        at.rank(rank)?.map_or(Ok(()), |rank| at.lock(w, lock_type == MPI_LOCK_EXCLUSIVE as Int, Some(rank), assert))
    };
    fn MPI_Win_unlock(rank: Int, win: MPI_Win) window win => |w, at| {
        at.rank(rank)?.map_or(Ok(()), |rank| at.unlock(w, Some(rank)))
    };
    fn MPI_Win_lock_all(assert: Int, win: MPI_Win) window win => |w, at| at.lock(w, false, None, assert);
    fn MPI_Win_unlock_all(win: MPI_Win) window win => |w, at| at.unlock(w, None);
    fn MPI_Win_flush(rank: Int, win: MPI_Win) window win => |w, at| {
        at.rank(rank)?.map_or(Ok(()), |rank| at.flushed(w, Some(rank), true))
    };
    fn MPI_Win_flush_all(win: MPI_Win) window win => |w, at| at.flushed(w, None, true);
    fn MPI_Win_flush_local(rank: Int, win: MPI_Win) window win => |w, at| {
        at.rank(rank)?.map_or(Ok(()), |rank| at.flushed(w, Some(rank), false))
    };
    fn MPI_Win_flush_local_all(win: MPI_Win) window win => |w, at| at.flushed(w, None, false);
    fn MPI_Win_sync(win: MPI_Win) window win => |w, at| {
        let _ = at;
        w.progress();
        Ok(())
    };
}
