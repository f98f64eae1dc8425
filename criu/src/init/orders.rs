//! Requests for dumps: who asks, what is done, and what is answered.

use super::Init;
use crate::client::{Answer, Ask, Request};
use crate::dumping::{Dumping, Outcome, Progress};
use crate::frozen;
use crate::line::{Order, Said};
use crate::relay::Relay;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// So many dumps in a row a stopped process puts off.
const MOST_PUT_OFF: u32 = 3;

/// Longest wait for the text of a request. Only the user's own wrapper can connect.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// Who asked for a dump: the wrapper of a whole script, or the driver of a job, which commands each phase.
pub(super) enum Asker {
    Socket(UnixStream),
    Line,
}

impl Asker {
    /// Whether the dump is still wanted; the driver of a job tells that itself.
    pub(super) fn waits(&self) -> bool {
        match self {
            Asker::Socket(stream) => !hung_up(stream),
            Asker::Line => true,
        }
    }
}

impl Init<'_> {
    /// Handles a new connection.
    pub(super) fn asked(&mut self) {
        let Some(Ok((mut stream, _))) = self.listener.as_ref().map(UnixListener::accept) else { return };
        let asker = || stream.try_clone().map(Asker::Socket).map_err(|e| e.to_string());
        let begun = match read(&stream) {
            // Requests are read only once the program runs, so it is present.
            Ok(Request::Presence { .. }) => return answer(&mut stream, &Answer::Present),
            Ok(Request::Dump(ask)) => asker().and_then(|asker| self.begin(ask, asker)),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = begun {
            answer(&mut stream, &Answer::Failed(reason));
        }
    }

    /// CRIU stops a stopped process again after the dump, and so loses a SIGCONT that comes meanwhile: it would never go on.
    /// One that stays stopped keeps the others from a checkpoint only for a while.
    fn stopped(&mut self) -> Option<String> {
        let stopped = frozen::stopped(&frozen::tree(self.program)).filter(|_| self.put_off < MOST_PUT_OFF);
        self.put_off = stopped.map_or(0, |_| self.put_off + 1);
        stopped.map(|pid| format!("a process of it ({pid} on the node) is stopped by a signal"))
    }

    /// Does what the job's driver orders. Without a driver the program goes on and no dump counts.
    pub(super) fn obey(&mut self) {
        loop {
            let Some(line) = &mut self.line else { return };
            match line.hear() {
                Ok(Some(order)) => self.ordered(order),
                Ok(None) => return,
                Err(_) => {
                    self.line = None;
                    self.thaw(false);
                }
            }
        }
    }

    fn ordered(&mut self, order: Order) {
        match order {
            Order::Freeze(ask) => {
                if let Err(reason) = self.begin(ask, Asker::Line) {
                    self.tell(&Said::Failed(reason));
                }
            }
            // The dump failed before the driver heard of it.
            Order::Save | Order::Thaw { keep: true } if self.dumping.is_none() => {
                self.tell(&Said::Failed("no dump is on its way".to_string()));
            }
            Order::Save => self.save(),
            Order::Restore => self.may_restore = true,
            Order::Thaw { keep } => self.thaw(keep),
            Order::End => self.end(),
            Order::EndAs { code } => {
                self.ends_as = Some(code);
                self.end();
            }
        }
    }

    pub(super) fn carried_bytes(&self) -> [u64; 2] {
        let carried = |relay: Option<&Relay>| relay.map_or(0, Relay::carried_bytes);
        [carried(self.relays.first()), carried(self.relays.get(1))]
    }

    pub(super) fn tell(&mut self, said: &Said) {
        // A broken connection is noticed when it is read.
        let _ = self.line.as_mut().map(|line| line.tell(said));
    }

    fn begin(&mut self, ask: Ask, asker: Asker) -> Result<(), String> {
        if !self.runs {
            return Err("the program is not back yet".to_string());
        }
        if self.dumping.is_some() {
            return Err("another dump is on its way".to_string());
        }
        if let Some(reason) = self.stopped() {
            return Err(reason);
        }
        self.dumping = Some((Dumping::begin(self.task, self.program, ask)?, asker));
        Ok(())
    }

    /// Advances the dump: a wrapper wants all phases at once, a driver commands each.
    pub(super) fn woken(&mut self) {
        let Some((dumping, asker)) = &mut self.dumping else { return };
        match (dumping.woken(), &*asker) {
            (None, _) => {}
            (Some(Progress::Over(outcome)), _) => self.dumped(Some(outcome)),
            (Some(Progress::Frozen), Asker::Socket(_)) => self.save(),
            (Some(Progress::Saved(_)), Asker::Socket(_)) => self.thaw(true),
            (Some(_), Asker::Line) if self.line.is_none() => self.thaw(false),
            (Some(Progress::Frozen), Asker::Line) => self.tell(&Said::Frozen),
            (Some(Progress::Saved(Err(reason))), Asker::Line) => self.tell(&Said::Failed(reason)),
            (Some(Progress::Saved(Ok(()))), Asker::Line) => {
                let carried_bytes = self.carried_bytes();
                self.tell(&Said::Saved { carried_bytes });
            }
        }
    }

    fn save(&mut self) {
        if let Some((dumping, _)) = &mut self.dumping {
            dumping.save(self.program, &mut self.relays, &self.temporaries);
        }
    }

    /// Lets the program go on; the dump counts if it is to be kept and everything is saved.
    fn thaw(&mut self, keep: bool) {
        if let Some((dumping, _)) = &mut self.dumping {
            dumping.thaw(keep);
        }
    }

    /// Tells the client that the program goes on, if it wants to know.
    pub(super) fn goes_on(&mut self) {
        let Some((dumping, asker)) = &mut self.dumping else { return };
        if dumping.goes_on() {
            match asker {
                Asker::Socket(stream) => answer(stream, &Answer::GoesOn),
                Asker::Line => self.tell(&Said::GoesOn),
            }
        }
    }

    /// Answers if the dump has ended. If memory was too small, the dump starts again without, unless the driver has
    /// already been told of the failure.
    pub(super) fn dumped(&mut self, outcome: Option<Outcome>) {
        let Some(mut outcome) = outcome else { return };
        let Some((dumping, asker)) = self.dumping.take() else { return };
        let again = outcome.as_ref().err().and_then(|_| dumping.without_memory());
        let again = again.filter(|_| matches!(asker, Asker::Socket(_)) || !dumping.was_frozen());
        self.harm = dumping.late_harm().map(str::to_string);
        drop(dumping);
        if let Some(ask) = again {
            match Dumping::begin(self.task, self.program, ask) {
                Ok(dumping) => return self.dumping = Some((dumping, asker)),
                Err(reason) => outcome = Err(reason),
            }
        }
        match (asker, outcome) {
            (Asker::Socket(mut stream), Ok(frozen_s)) => answer(&mut stream, &Answer::Dumped { frozen_s }),
            (Asker::Socket(mut stream), Err(reason)) => answer(&mut stream, &Answer::Failed(reason)),
            (Asker::Line, Ok(frozen_s)) => self.tell(&Said::Dumped { frozen_s }),
            (Asker::Line, Err(reason)) => self.tell(&Said::Failed(reason)),
        }
    }
}

fn read(stream: &UnixStream) -> Result<Request, String> {
    let own = |e: io::Error| e.to_string();
    stream.set_read_timeout(Some(ASK_LIMIT)).map_err(own)?;
    let mut line = String::new();
    BufReader::new(stream.take(1 << 16)).read_line(&mut line).map_err(own)?;
    stream.set_nonblocking(true).map_err(own)?;
    serde_json::from_str(&line).map_err(|e| e.to_string())
}

fn hung_up(mut stream: &UnixStream) -> bool {
    match stream.read(&mut [0; 16]) {
        Ok(length) => length == 0,
        Err(e) => e.kind() != io::ErrorKind::WouldBlock,
    }
}

/// The client may be gone; the program goes on either way.
fn answer(stream: &mut UnixStream, said: &Answer) {
    if let Ok(text) = serde_json::to_string(said) {
        let _ = stream.write_all(format!("{text}\n").as_bytes());
    }
}
