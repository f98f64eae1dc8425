//! Windows begin and end.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::{Window, Windows, key};
use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W};
use crate::communicator::Comm;
use crate::world;
use mpi_windows::{Origin, Target};
use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;

/// Tells the context of a window's communicator from those of others of the same parent.
const CONTEXT: u64 = 4 << 40;

/// A rank's part of a new window.
struct Own {
    base: *mut c_void,
    /// Bytes, and bytes of a unit of displacement; none where places are addresses.
    part: Option<(MPI_Aint, Int)>,
}

/// Makes a window of all ranks; `native` makes this rank's own part of it, as a window of its own, under `win`.
fn make(world: W, at: &Rc<Comm>, win: *mut MPI_Win, native_part: impl FnOnce() -> (Int, Own)) -> Res {
    if at.remote.is_some() {
        return fail(MPI_ERR_COMM);
    }
    // A lock goes to who asks first, and what a restored rank is asked again comes at another time.
    if let Err(error) = world.transport.varies() {
        world::lost("the relay cannot be told of a window", &error);
    }
    world.carry_out(collective::gather(at.clone()))?;
    crate::create::settle(world);
    let handle = crate::create::engine(at.handle);
    let engine = crate::create::engine(handle);
    let comm = Comm::new(world, (handle, engine), at.next_context(CONTEXT), at.members.clone(), None);
    let comm = world.register(comm);
    let (code, own) = native_part();
    let (bytes, unit) = own.part.unwrap_or((0, 0));
    #[allow(clippy::unnecessary_cast, reason = "MPI_Aint is another type in each ABI")]
    let bytes = bytes as i64;
    let told = collective::gather_words(world, at, &[code, unit, bytes as Int, (bytes >> 32) as Int])?;
    let of = |rank: usize, word: usize| told[4 * rank + word];
    if let Some(failed) = (0..at.size()).map(|rank| of(rank, 0)).find(|code| *code != MPI_SUCCESS) {
        if code == MPI_SUCCESS {
            native().MPI_Win_free(win);
        }
        end(world, &comm);
        return fail(failed);
    }
    let part = |rank| {
        let bytes = u64::from(of(rank, 2) as u32) | u64::from(of(rank, 3) as u32) << 32;
        (of(rank, 1) > 0).then_some((bytes, i64::from(of(rank, 1))))
    };
    let ranks = at.size();
    let window = Window {
        comm,
        base: own.base.cast(),
        parts: (0..ranks).map(part).collect(),
        target: RefCell::new(Target::new(ranks)),
        origin: RefCell::new(Origin::new(ranks)),
        answers: RefCell::default(),
        going: RefCell::default(),
    };
    world.windows.of_several.borrow_mut().insert(key(take(win)), Rc::new(window));
    Ok(())
}

/// Gives a window's communicator up.
fn end(world: W, comm: &Comm) {
    world.forget(comm.handle);
    native().MPI_Comm_free(&mut { comm.engine });
    native().MPI_Comm_free(&mut { comm.handle });
}

impl Windows {
    /// All ranks of a native window come, so that none of them waits in a native call for one who is kept up by another group.
    pub(super) fn meet(&self, world: W, win: MPI_Win) {
        let of = self.of_one.borrow().get(&key(win)).copied();
        of.into_iter().for_each(|comm| collective::meet(world, comm));
    }
}

/// Makes a window of this group's ranks, which is native.
fn make_native(world: W, comm: MPI_Comm, win: *mut MPI_Win, native_window: impl FnOnce() -> Int) -> Res {
    collective::meet(world, comm);
    // Before what may fail on some ranks only.
    let mut engine = (comm != handles().own).then(|| crate::create::engine(comm));
    let code = native_window();
    match &mut engine {
        Some(engine) if code == MPI_SUCCESS => drop(world.windows.of_one.borrow_mut().insert(key(take(win)), *engine)),
        Some(engine) => drop(check(native().MPI_Comm_free(engine))),
        None => {}
    }
    check(code)
}

fn check_size(size: MPI_Aint, unit: Int) -> Res {
    match (size, unit) {
        (..0, _) => fail(MPI_ERR_SIZE),
        (_, ..=0) => fail(MPI_ERR_DISP),
        _ => Ok(()),
    }
}

export! {
    fn MPI_Win_create(base: *mut c_void, size: MPI_Aint, disp_unit: Int, info: MPI_Info, comm: MPI_Comm, win: *mut MPI_Win) => |w| {
        let Some(at) = w.find(comm) else {
            return make_native(w, comm, win, || native().MPI_Win_create(base, size, disp_unit, info, comm, win));
        };
        told_by(comm, check_size(size, disp_unit).and_then(|()| make(w, &at, win, || {
            let code = native().MPI_Win_create(base, size, disp_unit, info, handles().own, win);
            (code, Own { base, part: Some((size, disp_unit)) })
        })))
    };
    fn MPI_Win_allocate(size: MPI_Aint, disp_unit: Int, info: MPI_Info, comm: MPI_Comm, baseptr: *mut c_void, win: *mut MPI_Win) => |w| {
        let Some(at) = w.find(comm) else {
            return make_native(w, comm, win, || native().MPI_Win_allocate(size, disp_unit, info, comm, baseptr, win));
        };
        told_by(comm, check_size(size, disp_unit).and_then(|()| make(w, &at, win, || {
            let code = native().MPI_Win_allocate(size, disp_unit, info, handles().own, baseptr, win);
            let base = if code == MPI_SUCCESS { take(baseptr.cast::<*mut c_void>()) } else { std::ptr::null_mut() };
            (code, Own { base, part: Some((size, disp_unit)) })
        })))
    };
    fn MPI_Win_allocate_shared(size: MPI_Aint, disp_unit: Int, info: MPI_Info, comm: MPI_Comm, baseptr: *mut c_void, win: *mut MPI_Win) => |w| {
        if w.find(comm).is_some() {
            return told_by(comm, refuse("MPI_Win_allocate_shared", "split by MPI_COMM_TYPE_SHARED first"));
        }
        make_native(w, comm, win, || native().MPI_Win_allocate_shared(size, disp_unit, info, comm, baseptr, win))
    };
    fn MPI_Win_create_dynamic(info: MPI_Info, comm: MPI_Comm, win: *mut MPI_Win) => |w| {
        let Some(at) = w.find(comm) else {
            return make_native(w, comm, win, || native().MPI_Win_create_dynamic(info, comm, win));
        };
        told_by(comm, make(w, &at, win, || {
            let code = native().MPI_Win_create_dynamic(info, handles().own, win);
            (code, Own { base: std::ptr::null_mut(), part: None })
        }))
    };
    fn MPI_Win_free(win: *mut MPI_Win) => |w| {
        let Some(window) = w.windows.find(take(win)) else {
            w.windows.meet(w, take(win));
            if let Some(mut engine) = w.windows.of_one.borrow_mut().remove(&key(take(win))) {
                native().MPI_Comm_free(&mut engine);
            }
            return check(native().MPI_Win_free(win));
        };
        window.flush(w, |_| true, true)?;
        w.carry_out(collective::barrier(w, window.comm.clone()))?;
        w.wait_until(|| window.going.borrow().is_empty());
        w.windows.of_several.borrow_mut().remove(&key(take(win)));
        end(w, &window.comm);
        check(native().MPI_Win_free(win))
    };
    // Places in a window of ours are addresses: it need not know them before.
    fn MPI_Win_attach(win: MPI_Win, base: *mut c_void, size: MPI_Aint) window win => |_w, _at| {
        let _ = (base, size);
        Ok(())
    };
    fn MPI_Win_detach(win: MPI_Win, base: *const c_void) window win => |_w, _at| {
        let _ = base;
        Ok(())
    };
    fn MPI_Win_get_group(win: MPI_Win, group: *mut MPI_Group) => |w| match w.windows.find(win) {
        Some(window) => {
            put(group, w.hold_group(window.comm.members.clone()));
            Ok(())
        }
        None => {
            check(native().MPI_Win_get_group(win, group))?;
            w.adopt_group(group);
            Ok(())
        }
    };
}
