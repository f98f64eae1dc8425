//! The end of requests, native ones and ours together: wait, test, free, cancel.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::*;
use crate::operation::{Operation, empty_status};
use crate::outcome::{INDEX, SOME, TEST};
use crate::progress::Answer;
use crate::world::World;
use std::rc::Rc;

/// How a request stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is nothing to wait for.
    Inactive,
    Pending,
    Complete,
}

impl World {
    /// Gives the program a handle for an operation.
    pub fn hold(&self, operation: Rc<Operation>) -> MPI_Request {
        let index = self.requests.insert(operation.clone());
        operation.slot.set(Some(index));
        request_handle(index)
    }

    /// The operation under a handle, or `None` if it is native.
    fn held(&self, request: MPI_Request) -> Option<Rc<Operation>> {
        self.requests.get(request_index(request)?)
    }

    /// Hands out the end of an operation.
    pub fn finish(&self, operation: &Rc<Operation>, status: *mut MPI_Status) -> Res {
        put_status(status, operation.end().0);
        operation.rest();
        if let Some(index) = operation.slot.get().filter(|_| !operation.persistent) {
            self.requests.remove(index);
            operation.slot.set(None);
        }
        operation.fault()
    }

    fn state(&self, request: MPI_Request) -> State {
        if request == handles().no_request {
            return State::Inactive;
        }
        let complete = match self.held(request) {
            Some(operation) if !operation.active.get() => return State::Inactive,
            Some(operation) => operation.ready(self),
            // Persistent requests are ours, so that a native one is active.
            None => {
                let (mut flag, mut found) = (0, empty_status());
                native().MPI_Request_get_status(request, &mut flag, &mut found);
                flag != 0
            }
        };
        if complete { State::Complete } else { State::Pending }
    }

    /// Ends a request that is complete or inactive.
    fn end_request(&self, request: *mut MPI_Request, status: *mut MPI_Status) -> Res {
        let handle = take(request);
        match self.held(handle) {
            None if handle == handles().no_request => put_status(status, empty_status()),
            None => return check(native().MPI_Wait(request, status)),
            Some(operation) if !operation.active.get() => put_status(status, empty_status()),
            Some(operation) => {
                if !operation.persistent {
                    put(request, handles().no_request);
                }
                return self.finish(&operation, status);
            }
        }
        Ok(())
    }

    /// The same of a call on this request alone: the handler of its communicator hears of what failed.
    fn end_one(&self, request: *mut MPI_Request, status: *mut MPI_Status) -> Res {
        let comm = self.comm_of(take(request));
        told_by(comm, self.end_request(request, status))
    }

    /// The communicator of a request of ours; that of all ranks if it has none.
    fn comm_of(&self, request: MPI_Request) -> MPI_Comm {
        let comm = self.held(request).and_then(|operation| Some(operation.comm.as_ref()?.handle));
        comm.unwrap_or(handles().world)
    }

    fn wait_for(&self, request: MPI_Request) {
        if let Some(operation) = self.held(request).filter(|operation| operation.active.get()) {
            return self.wait_for_all(&[&operation]);
        }
        self.wait_natively(|| self.state(request) != State::Pending);
    }

    /// A yes or no that is kept, or repeated: if it was yes, all of `requests` are waited for.
    fn all_complete(&self, requests: &[MPI_Request]) -> bool {
        let states = || requests.iter().map(|request| self.state(*request));
        if states().all(|state| state == State::Inactive) {
            return true;
        }
        match self.outcomes.repeat(self, TEST) {
            Some(0) => false,
            Some(_) => {
                requests.iter().for_each(|request| self.wait_for(*request));
                true
            }
            None => {
                self.look();
                // Each is looked at: a native one is carried on by that.
                let complete = states().filter(|state| *state == State::Pending).count() == 0;
                self.outcomes.record(self, TEST, complete.into(), !complete);
                complete
            }
        }
    }

    /// What came of a look at requests: repeated, or seen now, when there is something if the caller waits.
    fn answer<T>(&self, call: u32, wait: bool, look: impl Fn() -> Option<T>) -> Answer<Option<T>> {
        if wait {
            return match self.wait_or_repeat(call, look) {
                Answer::New(found) => Answer::New(Some(found)),
                Answer::Repeated(value) => Answer::Repeated(value),
            };
        }
        match self.outcomes.repeat(self, call) {
            Some(value) => Answer::Repeated(value),
            None => {
                self.look();
                Answer::New(look())
            }
        }
    }

    /// Which request is complete, if one is; `None` inside if there is none to wait for.
    fn first_complete(&self, requests: &[MPI_Request], wait: bool) -> Option<Option<usize>> {
        if requests.iter().all(|request| self.state(*request) == State::Inactive) {
            return Some(None);
        }
        let look = || requests.iter().position(|request| self.state(*request) == State::Complete);
        match self.answer(INDEX, wait, look) {
            Answer::Repeated(-1) => None,
            Answer::Repeated(index) => {
                self.wait_for(requests[index as usize]);
                Some(Some(index as usize))
            }
            Answer::New(found) => {
                self.outcomes.record(self, INDEX, found.map_or(-1, |index| index as i64), found.is_none());
                found.map(Some)
            }
        }
    }

    /// Which requests are complete; `None` if there is none to wait for.
    fn some_complete(&self, requests: &[MPI_Request], wait: bool) -> Option<Vec<usize>> {
        if requests.iter().all(|request| self.state(*request) == State::Inactive) {
            return None;
        }
        let look = || {
            let complete = |index: &usize| self.state(requests[*index]) == State::Complete;
            let found: Vec<usize> = (0..requests.len()).filter(complete).collect();
            (!found.is_empty()).then_some(found)
        };
        let found = match self.answer(SOME, wait, look) {
            Answer::Repeated(count) => {
                let found: Vec<_> =
                    (0..count).filter_map(|_| self.outcomes.repeat(self, INDEX)).map(|index| index as usize).collect();
                found.iter().for_each(|index| self.wait_for(requests[*index]));
                return Some(found);
            }
            Answer::New(found) => found.unwrap_or_default(),
        };
        self.outcomes.record(self, SOME, found.len() as i64, found.is_empty());
        found.iter().for_each(|index| self.outcomes.record(self, INDEX, *index as i64, false));
        Some(found)
    }

    /// Ends all of `requests` at `indices`, and says in the statuses which failed.
    fn end_all(&self, requests: &mut [MPI_Request], indices: &[usize], statuses: *mut MPI_Status) -> Res {
        let mut failed = None;
        for (place, index) in indices.iter().enumerate() {
            let status = status_at(statuses, place);
            let comm = self.comm_of(requests[*index]);
            let end = self.end_request(&mut requests[*index], status);
            failed = failed.or(end.err().map(|fault| (comm, fault)));
            if !ignored(status) {
                let mut found = take(status);
                found.MPI_ERROR = end.err().map_or(MPI_SUCCESS, |fault| fault.code);
                put(status, found);
            }
        }
        // The handler hears of the first, and the caller reads the statuses.
        failed.map_or(Ok(()), |(comm, fault)| told_by(comm, Err(fault)).or_else(|_| check(MPI_ERR_IN_STATUS)))
    }
}

export! {
    fn MPI_Wait(request: *mut MPI_Request, status: *mut MPI_Status) => |w| {
        let handle = take(request);
        if request_index(handle).is_none() {
            return check(w.wait_native(&mut slice_mut(request, 1)[0], status));
        }
        w.wait_for(handle);
        w.end_one(request, status)
    };
    fn MPI_Waitall(count: Int, array_of_requests: *mut MPI_Request, array_of_statuses: *mut MPI_Status) => |w| {
        let requests = slice_mut(array_of_requests, count);
        requests.iter().for_each(|request| w.wait_for(*request));
        let all: Vec<_> = (0..requests.len()).collect();
        w.end_all(requests, &all, array_of_statuses)
    };
    fn MPI_Waitany(count: Int, array_of_requests: *mut MPI_Request, index: *mut Int, status: *mut MPI_Status) => |w| {
        let requests = slice_mut(array_of_requests, count);
        match w.first_complete(requests, true).flatten() {
            Some(found) => {
                put(index, found as Int);
                w.end_one(&mut requests[found], status)
            }
            None => {
                put(index, MPI_UNDEFINED);
                put_status(status, empty_status());
                Ok(())
            }
        }
    };
    fn MPI_Waitsome(incount: Int, array_of_requests: *mut MPI_Request, outcount: *mut Int, array_of_indices: *mut Int, array_of_statuses: *mut MPI_Status) => |w| {
        let requests = slice_mut(array_of_requests, incount);
        some(w, requests, true, outcount, array_of_indices, array_of_statuses)
    };
    fn MPI_Test(request: *mut MPI_Request, flag: *mut Int, status: *mut MPI_Status) => |w| {
        let complete = w.all_complete(&[take(request)]);
        put(flag, complete.into());
        if complete { w.end_one(request, status) } else { Ok(()) }
    };
    fn MPI_Testall(count: Int, array_of_requests: *mut MPI_Request, flag: *mut Int, array_of_statuses: *mut MPI_Status) => |w| {
        let requests = slice_mut(array_of_requests, count);
        let complete = w.all_complete(requests);
        put(flag, complete.into());
        let all: Vec<_> = (0..requests.len()).collect();
        if complete { w.end_all(requests, &all, array_of_statuses) } else { Ok(()) }
    };
    fn MPI_Testany(count: Int, array_of_requests: *mut MPI_Request, index: *mut Int, flag: *mut Int, status: *mut MPI_Status) => |w| {
        let requests = slice_mut(array_of_requests, count);
        let found = w.first_complete(requests, false);
        put(flag, found.is_some().into());
        put(index, found.flatten().map_or(MPI_UNDEFINED, |found| found as Int));
        match found {
            Some(Some(found)) => w.end_one(&mut requests[found], status),
            Some(None) => {
                put_status(status, empty_status());
                Ok(())
            }
            None => Ok(()),
        }
    };
    fn MPI_Testsome(incount: Int, array_of_requests: *mut MPI_Request, outcount: *mut Int, array_of_indices: *mut Int, array_of_statuses: *mut MPI_Status) => |w| {
        let requests = slice_mut(array_of_requests, incount);
        some(w, requests, false, outcount, array_of_indices, array_of_statuses)
    };
    fn MPI_Request_get_status(request: MPI_Request, flag: *mut Int, status: *mut MPI_Status) => |w| {
        let complete = w.all_complete(&[request]);
        put(flag, complete.into());
        match w.held(request).filter(|_| complete) {
            Some(operation) if operation.active.get() => put_status(status, operation.end().0),
            Some(_) => put_status(status, empty_status()),
            None if complete => return check(native().MPI_Request_get_status(request, flag, status)),
            None => {}
        }
        Ok(())
    };
    fn MPI_Request_free(request: *mut MPI_Request) => |w| {
        let Some(index) = request_index(take(request)) else {
            return check(native().MPI_Request_free(request));
        };
        put(request, handles().no_request);
        match w.requests.remove(index) {
            Some(operation) => {
                operation.release();
                Ok(())
            }
            None => fail(MPI_ERR_REQUEST),
        }
    };
    fn MPI_Cancel(request: *mut MPI_Request) => |w| match w.held(take(request)) {
        Some(operation) => {
            w.progress();
            operation.cancel(w);
            Ok(())
        }
        None => check(native().MPI_Cancel(request)),
    };
    fn MPI_Start(request: *mut MPI_Request) => |w| {
        w.outcomes.flush(w);
        start(w, request)
    };
    fn MPI_Startall(count: Int, array_of_requests: *mut MPI_Request) => |w| {
        w.outcomes.flush(w);
        slice_mut(array_of_requests, count).iter_mut().try_for_each(|request| start(w, request))
    };
}

fn start(world: &World, request: *mut MPI_Request) -> Res {
    match world.held(take(request)) {
        Some(operation) if operation.persistent && !operation.active.get() => operation.start(world),
        Some(_) => fail(MPI_ERR_REQUEST),
        None => check(native().MPI_Start(request)),
    }
}

fn some(
    world: &World,
    requests: &mut [MPI_Request],
    wait: bool,
    count: *mut Int,
    indices: *mut Int,
    statuses: *mut MPI_Status,
) -> Res {
    let Some(found) = world.some_complete(requests, wait) else {
        put(count, MPI_UNDEFINED);
        return Ok(());
    };
    put(count, found.len() as Int);
    for (place, index) in slice_mut(indices, found.len() as Int).iter_mut().zip(&found) {
        *place = *index as Int;
    }
    world.end_all(requests, &found, statuses)
}

#[cfg(not(feature = "mpich"))]
mod numbers {
    use super::*;
    #[cfg(not(feature = "standard"))]
    numbers! {
        MPI_Request request_index request_handle: MPI_Request_c2f MPI_Request_f2c;
        MPI_Message message_index message_handle: MPI_Message_c2f MPI_Message_f2c;
    }
    #[cfg(feature = "standard")]
    numbers! {
        MPI_Request request_index request_handle: MPI_Request_toint MPI_Request_fromint;
        MPI_Message message_index message_handle: MPI_Message_toint MPI_Message_fromint;
    }
}
#[cfg(not(feature = "mpich"))]
pub use numbers::EXPORTED as NUMBERS;
