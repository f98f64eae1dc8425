//! Windows begin and end.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::{Window, key};
use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W};
use crate::communicator::Comm;
use crate::world::aside;
use mpi_windows::{Origin, Target};
use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;

/// Tells the context of a window's communicator from those of others of the same parent.
const CONTEXT: u64 = 4 << 40;

/// How a window came to be, as `MPI_WIN_CREATE_FLAVOR` tells it, in each ABI.
const CREATED: Int = 1;
const ALLOCATED: Int = 2;
const DYNAMIC: Int = 3;

/// A rank's part of a window, as its attributes tell it.
pub(super) struct Own {
    /// Where it begins; null where places are addresses.
    pub(super) base: *mut c_void,
    bytes: MPI_Aint,
    /// Bytes of a unit of displacement.
    unit: Int,
    flavor: Int,
}

/// Makes a window of ours on `comm`, if it is of several groups, or the native library has none for several threads at once:
/// so it is with Open MPI without a network.
fn ours(world: W, comm: MPI_Comm, make: impl FnOnce(&Rc<Comm>) -> Res) -> Option<Res> {
    if let Some(at) = world.find(comm) {
        return Some(make(&at));
    }
    let thin = world.find_any(comm).filter(|_| stands_in(world))?;
    collective::meet(world, comm);
    let engine = crate::collective::engine(comm);
    let at = Rc::new(Comm::new(world, (comm, engine), thin.next_context(CONTEXT), thin.members.clone(), None));
    let end = make(&at);
    aside(|| native().MPI_Comm_free(&mut { engine }));
    Some(end)
}

fn stands_in(world: W) -> bool {
    cfg!(not(any(feature = "mpich", feature = "standard"))) && world.has_threads.get()
}

/// This rank's own part of a window, natively: `call`, or what stands in for it where the native library has none such.
fn own_part(world: W, info: MPI_Info, win: *mut MPI_Win, call: impl FnOnce() -> Int) -> Int {
    if !stands_in(world) {
        return call();
    }
    let mut nothing: *mut c_void = std::ptr::null_mut();
    native().MPI_Win_allocate(0, 1, info, handles().own, (&raw mut nothing).cast(), win)
}

/// Makes a window of all ranks; `native` makes this rank's own part of it, as a window of its own, under `win`.
fn make(world: W, at: &Rc<Comm>, win: *mut MPI_Win, native_part: impl FnOnce() -> (Int, Own)) -> Res {
    if at.remote.is_some() {
        return fail(MPI_ERR_COMM);
    }
    // A lock goes to who asks first, and what a restored rank is asked again comes at another time.
    world.vary();
    world.carry_out(collective::gather(at.clone()))?;
    crate::create::settle(world);
    let handle = crate::collective::engine(at.handle);
    let engine = crate::collective::engine(handle);
    let comm = Comm::new(world, (handle, engine), at.next_context(CONTEXT), at.members.clone(), None);
    let comm = world.register(comm);
    let (code, own) = native_part();
    // A unit of none tells that places are addresses.
    let unit = if own.flavor == DYNAMIC { 0 } else { own.unit };
    #[allow(clippy::unnecessary_cast, reason = "MPI_Aint is another type in each ABI")]
    let bytes = own.bytes as i64;
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
        own,
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
fn end(world: W, comm: &Rc<Comm>) {
    world.forget(comm);
    aside(|| native().MPI_Comm_free(&mut { comm.engine }));
    aside(|| native().MPI_Comm_free(&mut { comm.handle }));
}

/// Makes a window of this group's ranks, which is native.
fn make_native(world: W, comm: MPI_Comm, win: *mut MPI_Win, call: impl FnOnce() -> Int) -> Res {
    world.windows.of_one.open(world, comm, || aside(call), || key(take(win)))
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
        let made = ours(w, comm, |at| check_size(size, disp_unit).and_then(|()| make(w, at, win, || {
            let code = own_part(w, info, win, || native().MPI_Win_create(base, size, disp_unit, info, handles().own, win));
            (code, Own { base, bytes: size, unit: disp_unit, flavor: CREATED })
        })));
        match made {
            Some(end) => told_by(comm, end),
            None => make_native(w, comm, win, || native().MPI_Win_create(base, size, disp_unit, info, comm, win)),
        }
    };
    fn MPI_Win_allocate(size: MPI_Aint, disp_unit: Int, info: MPI_Info, comm: MPI_Comm, baseptr: *mut c_void, win: *mut MPI_Win) => |w| {
        let Some(at) = w.find(comm) else {
            return make_native(w, comm, win, || native().MPI_Win_allocate(size, disp_unit, info, comm, baseptr, win));
        };
        told_by(comm, check_size(size, disp_unit).and_then(|()| make(w, &at, win, || {
            let code = native().MPI_Win_allocate(size, disp_unit, info, handles().own, baseptr, win);
            let base = if code == MPI_SUCCESS { take(baseptr.cast::<*mut c_void>()) } else { std::ptr::null_mut() };
            (code, Own { base, bytes: size, unit: disp_unit, flavor: ALLOCATED })
        })))
    };
    fn MPI_Win_allocate_shared(size: MPI_Aint, disp_unit: Int, info: MPI_Info, comm: MPI_Comm, baseptr: *mut c_void, win: *mut MPI_Win) => |w| {
        if w.find(comm).is_some() {
            return told_by(comm, refuse("MPI_Win_allocate_shared", "split by MPI_COMM_TYPE_SHARED first"));
        }
        make_native(w, comm, win, || native().MPI_Win_allocate_shared(size, disp_unit, info, comm, baseptr, win))
    };
    fn MPI_Win_create_dynamic(info: MPI_Info, comm: MPI_Comm, win: *mut MPI_Win) => |w| {
        let made = ours(w, comm, |at| make(w, at, win, || {
            let code = own_part(w, info, win, || native().MPI_Win_create_dynamic(info, handles().own, win));
            (code, Own { base: std::ptr::null_mut(), bytes: 0, unit: 1, flavor: DYNAMIC })
        }));
        match made {
            Some(end) => told_by(comm, end),
            None => make_native(w, comm, win, || native().MPI_Win_create_dynamic(info, comm, win)),
        }
    };
    fn MPI_Win_get_attr(win: MPI_Win, win_keyval: Int, attribute_val: *mut c_void, flag: *mut Int) window win => |_w, at| {
        let value: *const c_void = match win_keyval {
            _ if win_keyval == MPI_WIN_BASE as Int => at.own.base,
            _ if win_keyval == MPI_WIN_SIZE as Int => (&raw const at.own.bytes).cast(),
            _ if win_keyval == MPI_WIN_DISP_UNIT as Int => (&raw const at.own.unit).cast(),
            _ if win_keyval == MPI_WIN_CREATE_FLAVOR as Int => (&raw const at.own.flavor).cast(),
            _ => return check(native().MPI_Win_get_attr(win, win_keyval, attribute_val, flag)),
        };
        put(attribute_val.cast(), value);
        put(flag, 1);
        Ok(())
    };
    fn MPI_Win_free(win: *mut MPI_Win) => |w| {
        let Some(window) = w.windows.find(take(win)) else {
            w.windows.of_one.meet(w, key(take(win)));
            w.windows.of_one.close(key(take(win)));
            return check(aside(|| native().MPI_Win_free(win)));
        };
        window.complete_all(w)?;
        w.wait_until(|| window.going.borrow().is_empty());
        w.windows.of_several.borrow_mut().remove(&key(take(win)));
        end(w, &window.comm);
        check(aside(|| native().MPI_Win_free(win)))
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
