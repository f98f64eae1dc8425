//! Windows over several groups: what a rank does to another's memory is asked of that rank, in a message.
//!
//! The target carries it out in its own memory when it takes messages in, which it does in all of its calls. A rank's own part of
//! the window is a native window of this rank alone, whose handle is the program's: attributes, names, handlers of errors and
//! information are native. Words to ranks of this group go natively, on a communicator of the window's own.
// SPDX-License-Identifier: GPL-2.0-or-later

pub mod access;
pub mod epoch;
pub mod make;

use crate::abi::*;
use crate::border::*;
use crate::collective::Within;
use crate::communicator::{Comm, Lane};
use crate::datatype::{Held, Part, Scratch};
use crate::world::{self, World};
use mpi_relay::Envelope;
use mpi_relay::transport::DATA;
use mpi_windows::letter::Combine;
use mpi_windows::lock::Asker;
use mpi_windows::{Letter, Origin, Run, Stage, Target, Word};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// The tag of all words within a group.
const TAG: Int = 0;

/// What an answer is for.
struct Wanted {
    rank: usize,
    into: Option<(Part, Held)>,
    done: Rc<Cell<bool>>,
}

/// Answers that this rank waits for.
#[derive(Default)]
struct Answers {
    wanted: HashMap<u32, Wanted>,
    last: u32,
}

/// A window of several groups.
pub struct Window {
    /// A communicator of its own.
    comm: Rc<Comm>,
    /// This rank's part.
    own: make::Own,
    /// Of each rank: bytes, and bytes of a unit of displacement. None where places are addresses.
    parts: Vec<Option<(u64, i64)>>,
    target: RefCell<Target>,
    origin: RefCell<Origin>,
    answers: RefCell<Answers>,
    /// Words to ranks of this group that are under way.
    going: RefCell<Vec<(MPI_Request, Vec<u8>)>>,
}

/// Windows, by their handle.
#[derive(Default)]
pub struct Windows {
    of_several: RefCell<HashMap<usize, Rc<Window>>>,
    /// Of ranks of this group alone.
    of_one: Within,
}

#[allow(clippy::unnecessary_cast, reason = "a handle is a number or an address")]
fn key(window: MPI_Win) -> usize {
    window as usize
}

/// The end of a call on a window; its handler of errors hears of what failed.
pub fn told(window: MPI_Win, end: Res) -> Res {
    tell(end, |code| native().MPI_Win_call_errhandler(window, code))
}

impl Windows {
    /// The window under a handle, if it is of several groups.
    pub fn find(&self, window: MPI_Win) -> Option<Rc<Window>> {
        self.of_several.borrow().get(&key(window)).cloned()
    }

    /// Whether there is a window of several groups.
    pub fn are_open(&self) -> bool {
        !self.of_several.borrow().is_empty()
    }

    /// Carries out what others have asked.
    pub fn serve(&self, world: &World) {
        if !self.are_open() {
            return;
        }
        let all: Vec<Rc<Window>> = self.of_several.borrow().values().cloned().collect();
        all.iter().for_each(|window| window.serve(world));
    }
}

impl Window {
    fn serve(&self, world: &World) {
        loop {
            let message = self.comm.lanes[Lane::Program as usize].unexpected.borrow_mut().pop_front();
            let Some(message) = message else { break };
            self.arrived(world, message.envelope.comm_source as usize, &message.body.to_vec());
        }
        while let Some((from, bytes)) = self.native_word() {
            self.arrived(world, from, &bytes);
        }
        self.going.borrow_mut().retain_mut(|(request, _)| {
            let mut flag = 0;
            native().MPI_Test(request, &mut flag, no_status()) == MPI_SUCCESS && flag == 0
        });
    }

    /// The next word of a rank of this group.
    fn native_word(&self) -> Option<(usize, Vec<u8>)> {
        let (mut flag, mut message, mut found) = (0, handles().no_message, crate::operation::empty_status());
        let native = native();
        native.MPI_Improbe(MPI_ANY_SOURCE, TAG, self.comm.handle, &mut flag, &mut message, &mut found);
        if flag == 0 {
            return None;
        }
        let mut bytes = 0;
        native.MPI_Get_count(&found, handles().byte, &mut bytes);
        let mut word = vec![0; bytes as usize];
        native.MPI_Mrecv(word.as_mut_ptr().cast(), bytes, handles().byte, &mut message, no_status());
        Some((self.comm.known_rank(found.MPI_SOURCE) as usize, word))
    }

    /// Says something to a rank, itself too.
    fn say(&self, world: &World, to: usize, word: Word, bytes: &[u8]) -> Res {
        let stage = Stage { fences: self.target.borrow().fences(), starts: self.origin.borrow().starts(to) };
        let letter = Letter { stage, word }.encode(bytes);
        let comm = &self.comm;
        if to == comm.rank {
            self.arrived(world, to, &letter);
            return Ok(());
        }
        let Some(native_rank) = comm.native_rank(to as Int) else {
            let (source, context, comm_source) = (world.rank, comm.context, comm.rank as u32);
            let envelope = Envelope { source, context, comm_source, kind: DATA, ..Envelope::default() };
            world.send(comm.peers()[to], envelope, &letter);
            return Ok(());
        };
        world.outcomes.flush(world);
        let count = Int::try_from(letter.len()).or_else(|_| fail(MPI_ERR_COUNT))?;
        let mut request = handles().no_request;
        let (at, byte) = (letter.as_ptr().cast(), handles().byte);
        untold(native().MPI_Isend(at, count, byte, native_rank, TAG, comm.handle, &mut request))?;
        self.going.borrow_mut().push((request, letter));
        Ok(())
    }

    /// The same where it answers somebody: there is nobody to hear of an error.
    fn reply(&self, world: &World, to: usize, word: Word, bytes: &[u8]) {
        if self.say(world, to, word, bytes).is_err() {
            world::end(1, "what a rank asked of a window could not be answered");
        }
    }

    fn arrived(&self, world: &World, from: usize, message: &[u8]) {
        let Some((letter, bytes)) = Letter::decode(message) else {
            world::end(1, "a message about a window is none");
        };
        match letter.word {
            Word::Answer(answer) => self.answered(answer, bytes),
            Word::Posted => self.origin.borrow_mut().posted_by(from),
            _ if self.target.borrow().is_due(from, letter.stage) => self.carry_out(world, from, letter.word, bytes),
            _ => self.target.borrow_mut().keep(from, letter, bytes),
        }
    }

    fn answered(&self, answer: u32, bytes: &[u8]) {
        let Some(wanted) = self.answers.borrow_mut().wanted.remove(&answer) else { return };
        if let Some((part, held)) = wanted.into {
            Part { datatype: held.get(), ..part }.fill(bytes);
        }
        wanted.done.set(true);
    }

    /// Carries out what a rank asks of this rank's memory.
    fn carry_out(&self, world: &World, from: usize, word: Word, bytes: &[u8]) {
        let granted = |askers: Vec<Asker>| {
            askers.into_iter().for_each(|asker| self.reply(world, asker.rank, Word::Answer(asker.answer), &[]));
        };
        match word {
            Word::Put { runs } => self.write(&runs, bytes),
            Word::Accumulate { runs, by } => self.combine(&runs, by, bytes),
            Word::Get { runs, by, answer } => {
                let before = self.read(&runs);
                if let Some(by) = by {
                    self.combine(&runs, by, bytes);
                }
                self.reply(world, from, Word::Answer(answer), &before);
            }
            Word::Compare { run, answer } => {
                let before = self.read(&[run]);
                let (compared, wanted) = bytes.split_at(bytes.len() / 2);
                if before == compared {
                    self.write(&[run], wanted);
                }
                self.reply(world, from, Word::Answer(answer), &before);
            }
            Word::Flush { answer } => self.reply(world, from, Word::Answer(answer), &[]),
            Word::Lock { alone, answer } => {
                let asker = Asker { rank: from, alone, answer };
                let askers = self.target.borrow_mut().lock.ask(asker);
                granted(askers);
            }
            Word::Unlock => {
                let askers = self.target.borrow_mut().lock.give_back(from);
                granted(askers);
            }
            Word::Completed => self.target.borrow_mut().complete(from),
            Word::Answer(_) | Word::Posted => {}
        }
    }

    /// The bytes of this rank's part at a run.
    #[allow(clippy::mut_from_ref, reason = "the program's memory, which is in the window for this")]
    fn at(&self, run: Run) -> &mut [u8] {
        // SAFETY: within the program's window: the asker has looked at its bounds, or the program has given addresses.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.own.base.cast::<u8>().wrapping_offset(run.at as isize),
                run.bytes as usize,
            )
        }
    }

    fn read(&self, runs: &[Run]) -> Vec<u8> {
        runs.iter().flat_map(|run| &*self.at(*run)).copied().collect()
    }

    fn write(&self, runs: &[Run], mut bytes: &[u8]) {
        for run in runs {
            let Some((own, rest)) = bytes.split_at_checked(run.bytes as usize) else { return };
            self.at(*run).copy_from_slice(own);
            bytes = rest;
        }
    }

    /// Combines packed values with those at the runs.
    fn combine(&self, runs: &[Run], by: Combine, bytes: &[u8]) {
        let (operation, leaf) = (operation_of(by.operation), type_of(by.leaf));
        if operation == handles().replace {
            return self.write(runs, bytes);
        }
        let count = (bytes.len() as u64 / crate::datatype::size(leaf).max(1)) as Int;
        let (come, there) = (Scratch::new(count, leaf), Scratch::new(count, leaf));
        come.part().fill(bytes);
        there.part().fill(&self.read(runs));
        native().MPI_Reduce_local(come.part().at, there.part().at, count, leaf, operation);
        self.write(runs, &there.part().contents());
    }

    /// Asks a rank for an answer, of which the bytes go into `into`.
    fn ask(
        &self,
        world: &World,
        rank: usize,
        into: Option<(Part, Held)>,
        word: impl FnOnce(u32) -> Word,
        bytes: &[u8],
    ) -> Res<Rc<Cell<bool>>> {
        let done = Rc::new(Cell::new(false));
        let answer = {
            let mut answers = self.answers.borrow_mut();
            answers.last = answers.last.wrapping_add(1);
            let answer = answers.last;
            answers.wanted.insert(answer, Wanted { rank, into, done: done.clone() });
            answer
        };
        self.say(world, rank, word(answer), bytes)?;
        Ok(done)
    }

    /// Waits until nothing that was asked of these ranks is open; with `remotely`, until all is done there.
    fn flush(&self, world: &World, ranks: impl Fn(usize) -> bool, remotely: bool) -> Res {
        let unanswered = self.origin.borrow_mut().take_unanswered(|rank| remotely && ranks(rank));
        for rank in unanswered {
            self.ask(world, rank, None, |answer| Word::Flush { answer }, &[])?;
        }
        world.wait_until(|| !self.answers.borrow().wanted.values().any(|wanted| ranks(wanted.rank)));
        Ok(())
    }
}
