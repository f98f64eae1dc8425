//! Puts, gets, and what combines values.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::Window;
use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W};
use crate::datatype::{self, Held, Part};
use mpi_windows::letter::Combine;
use mpi_windows::{Run, Word};
use std::cell::Cell;
use std::ffi::c_void;
use std::rc::Rc;
use std::task::Poll;

/// Most bytes that one access moves, and what a place takes of them beside its own.
const LONGEST_BYTES: u64 = (1 << 31) - 4096;
const RUN_BYTES: u64 = 20;

/// A part of another rank's memory.
struct Place {
    rank: Int,
    at: MPI_Aint,
    count: Int,
    datatype: MPI_Datatype,
}

/// What a call has begun: set when it is done; none if it is done already.
type Begun = Option<Rc<Cell<bool>>>;

fn check_part(part: &Part) -> Res {
    match part {
        Part { count, .. } if *count < 0 => fail(MPI_ERR_COUNT),
        Part { datatype, .. } if *datatype == handles().no_type => fail(MPI_ERR_TYPE),
        _ => Ok(()),
    }
}

impl Window {
    /// The rank and the bytes that are meant; none if there is nobody.
    fn place(&self, place: &Place) -> Res<Option<(usize, Vec<Run>)>> {
        let Place { rank, at, count, datatype } = *place;
        if rank == MPI_PROC_NULL {
            return Ok(None);
        }
        if !(0..self.comm.size() as Int).contains(&rank) {
            return fail(MPI_ERR_RANK);
        }
        check_part(&Part::new(std::ptr::null(), count, datatype))?;
        #[allow(clippy::unnecessary_cast, reason = "MPI_Aint is another type in each ABI")]
        let at = at as i64;
        let part = self.parts[rank as usize];
        let runs = datatype::runs(count, datatype, at.wrapping_mul(part.map_or(1, |(_, unit)| unit)))?;
        let is_within = |run: &Run| match part {
            Some((bytes, _)) => run.at >= 0 && (run.at as u64).checked_add(run.bytes).is_some_and(|end| end <= bytes),
            None => true,
        };
        match () {
            () if !self.origin.borrow().may_access(rank as usize) => fail(MPI_ERR_RMA_SYNC),
            // A message of so much cannot be sent natively.
            () if runs.iter().map(|run| run.bytes + RUN_BYTES).sum::<u64>() > LONGEST_BYTES => fail(MPI_ERR_COUNT),
            () if runs.iter().all(is_within) => Ok(Some((rank as usize, runs))),
            () => fail(MPI_ERR_RMA_RANGE),
        }
    }

    fn put(&self, world: W, from: Part, place: &Place) -> Res<Begun> {
        check_part(&from)?;
        if let Some((rank, runs)) = self.place(place)? {
            self.origin.borrow_mut().note_unanswered(rank);
            self.say(world, rank, Word::Put { runs }, &from.contents())?;
        }
        Ok(None)
    }

    /// How values of a part are combined.
    fn by(place: &Place, operation: MPI_Op) -> Res<Combine> {
        if operation == handles().no_op || !is_predefined(operation) {
            return fail(MPI_ERR_OP);
        }
        // What is only written over may be of any type.
        let leaf = if operation == handles().replace { Some(handles().byte) } else { datatype::leaf(place.datatype) };
        let leaf = leaf.map_or_else(|| fail(MPI_ERR_TYPE), Ok)?;
        Ok(Combine { operation: operation_number(operation), leaf: type_number(leaf) })
    }

    fn accumulate(&self, world: W, from: Part, place: &Place, operation: MPI_Op) -> Res<Begun> {
        check_part(&from)?;
        match self.place(place)? {
            Some((rank, runs)) if operation != handles().no_operation => {
                let by = Window::by(place, operation)?;
                self.origin.borrow_mut().note_unanswered(rank);
                self.say(world, rank, Word::Accumulate { runs, by }, &from.contents())?;
            }
            _ => {}
        }
        Ok(None)
    }

    /// Gets what is there, and combines values with it, if there are some.
    fn get(&self, world: W, into: Part, place: &Place, values: Option<(Part, MPI_Op)>) -> Res<Begun> {
        check_part(&into)?;
        let Some((rank, runs)) = self.place(place)? else { return Ok(None) };
        let values = values.filter(|(_, operation)| *operation != handles().no_operation);
        let by = values.map(|(_, operation)| Window::by(place, operation)).transpose()?;
        let from = values.map(|(from, _)| from);
        let bytes = from.as_ref().map(Part::contents).unwrap_or_default();
        let into = Some((into, Held::new(into.datatype)));
        self.ask(world, rank, into, |answer| Word::Get { runs, by, answer }, &bytes).map(Some)
    }

    fn compare(&self, world: W, wanted: Part, compared: Part, into: Part, place: &Place) -> Res<Begun> {
        let Some((rank, runs)) = self.place(place)? else { return Ok(None) };
        let [run] = runs[..] else { return fail(MPI_ERR_TYPE) };
        let bytes = [compared.contents(), wanted.contents()].concat();
        let into = Some((into, Held::new(into.datatype)));
        self.ask(world, rank, into, |answer| Word::Compare { run, answer }, &bytes).map(Some)
    }

    /// A request for what a call has begun.
    fn request(&self, world: W, begun: Begun, request: *mut MPI_Request) -> Res {
        let is_done = move || begun.as_ref().is_none_or(|done| done.get());
        let done = std::future::poll_fn(move |_| if is_done() { Poll::Ready(Ok(())) } else { Poll::Pending });
        put(request, collective::start(world, self.comm.clone(), done));
        Ok(())
    }
}

/// The calls that move values: each, and the one with a request.
macro_rules! accesses {
    ($($name:ident $with_request:ident($($arg:ident: $type:ty),*) |$w:ident, $at:ident| $body:expr;)*) => {
        export! {
            $(
                fn $name($($arg: $type,)* win: MPI_Win) window win => |$w, $at| $body.map(|_begun: Begun| ());
                fn $with_request($($arg: $type,)* win: MPI_Win, request: *mut MPI_Request) window win => |$w, $at| {
                    let begun: Begun = $body?;
                    $at.request($w, begun, request)
                };
            )*
            fn MPI_Fetch_and_op(origin_addr: *const c_void, result_addr: *mut c_void, datatype: MPI_Datatype, target_rank: Int, target_disp: MPI_Aint, op: MPI_Op, win: MPI_Win) window win => |w, at| {
                let place = Place { rank: target_rank, at: target_disp, count: 1, datatype };
                let values = Some((Part::new(origin_addr, 1, datatype), op));
                at.get(w, Part::new(result_addr, 1, datatype), &place, values).map(|_| ())
            };
            fn MPI_Compare_and_swap(origin_addr: *const c_void, compare_addr: *const c_void, result_addr: *mut c_void, datatype: MPI_Datatype, target_rank: Int, target_disp: MPI_Aint, win: MPI_Win) window win => |w, at| {
                let place = Place { rank: target_rank, at: target_disp, count: 1, datatype };
                let part = |at: *const c_void| Part::new(at, 1, datatype);
                at.compare(w, part(origin_addr), part(compare_addr), part(result_addr), &place).map(|_| ())
            };
        }
    };
}
accesses! {
    MPI_Put MPI_Rput(origin_addr: *const c_void, origin_count: Int, origin_datatype: MPI_Datatype, target_rank: Int, target_disp: MPI_Aint, target_count: Int, target_datatype: MPI_Datatype) |w, at| {
        let place = Place { rank: target_rank, at: target_disp, count: target_count, datatype: target_datatype };
        at.put(w, Part::new(origin_addr, origin_count, origin_datatype), &place)
    };
    MPI_Get MPI_Rget(origin_addr: *mut c_void, origin_count: Int, origin_datatype: MPI_Datatype, target_rank: Int, target_disp: MPI_Aint, target_count: Int, target_datatype: MPI_Datatype) |w, at| {
        let place = Place { rank: target_rank, at: target_disp, count: target_count, datatype: target_datatype };
        at.get(w, Part::new(origin_addr, origin_count, origin_datatype), &place, None)
    };
    MPI_Accumulate MPI_Raccumulate(origin_addr: *const c_void, origin_count: Int, origin_datatype: MPI_Datatype, target_rank: Int, target_disp: MPI_Aint, target_count: Int, target_datatype: MPI_Datatype, op: MPI_Op) |w, at| {
        let place = Place { rank: target_rank, at: target_disp, count: target_count, datatype: target_datatype };
        at.accumulate(w, Part::new(origin_addr, origin_count, origin_datatype), &place, op)
    };
    MPI_Get_accumulate MPI_Rget_accumulate(origin_addr: *const c_void, origin_count: Int, origin_datatype: MPI_Datatype, result_addr: *mut c_void, result_count: Int, result_datatype: MPI_Datatype,
        target_rank: Int, target_disp: MPI_Aint, target_count: Int, target_datatype: MPI_Datatype, op: MPI_Op) |w, at| {
        let place = Place { rank: target_rank, at: target_disp, count: target_count, datatype: target_datatype };
        let values = Some((Part::new(origin_addr, origin_count, origin_datatype), op));
        at.get(w, Part::new(result_addr, result_count, result_datatype), &place, values)
    };
}
