//! One channel from a group to another as pure state: numbers, replay, duplicates, collection; no sockets, no clock.
//!
//! Messages of a channel are numbered from 1. The sender's relay keeps an [`Outgoing`], the receiver's an [`Incoming`].
//! After every break of the connection, and whenever the receiver goes back to a checkpoint, the receiver *wants*
//! messages from a number on; the sender serves them from its log, in order. This is sender-based message logging
//! (Johnson and Zwaenepoel, "Sender-Based Message Logging", FTCS 1987) with the log outside the program.

use std::collections::VecDeque;

/// The sender's side of a channel; `T` is a logged message.
#[derive(Debug)]
pub struct Outgoing<T> {
    /// Messages up to this number are not in the log.
    base: u64,
    /// The receiver will never want messages up to this number again.
    collected: u64,
    log: VecDeque<T>,
    /// The next number to transmit; 0 while nobody asked.
    next: u64,
    /// Number of the last message that the program sent since it joined.
    sent: u64,
    /// Number of the last message that it sent before, as the log or the receiver knows.
    had_sent: u64,
}

/// What happened to a message offered to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// It was new and is logged.
    Logged,
    /// It was logged before, and perhaps collected since: the sender executes again.
    Known,
    /// Messages between the log's end and this one are missing; nothing was logged.
    Early,
}

impl<T> Default for Outgoing<T> {
    fn default() -> Self {
        Outgoing::new(0, 0)
    }
}

impl<T> Outgoing<T> {
    /// An empty log that continues after number `base`; the receiver wants nothing up to `collected` any more.
    pub fn new(base: u64, collected: u64) -> Self {
        Outgoing { base, collected, log: VecDeque::new(), next: 0, sent: 0, had_sent: 0 }
    }

    /// The highest number logged.
    pub fn logged(&self) -> u64 {
        self.base + self.log.len() as u64
    }

    /// Messages up to this number will never be wanted again.
    pub fn collected(&self) -> u64 {
        self.collected
    }

    /// Messages up to this number are no longer in the log.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// A logged message.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let index = number.checked_sub(self.base + 1)?;
        self.log.get_mut(usize::try_from(index).ok()?)
    }

    /// What [`Outgoing::offer`] would answer.
    pub fn judge(&self, number: u64) -> Offered {
        match number.cmp(&(self.logged() + 1)) {
            std::cmp::Ordering::Less => Offered::Known,
            std::cmp::Ordering::Equal => Offered::Logged,
            std::cmp::Ordering::Greater => Offered::Early,
        }
    }

    /// Logs a message of the program, once.
    pub fn offer(&mut self, number: u64, message: T) -> Offered {
        let judged = self.judge(number);
        self.sends(number);
        if judged == Offered::Logged {
            self.log.push_back(message);
        }
        judged
    }

    /// The program (re)joins and can offer messages from `held + 1` on. True if the log had to be emptied for it.
    ///
    /// A log that ends before that has lost messages; one that begins after it, for another reason than collection,
    /// is filled again by a program that went back far enough.
    pub fn join(&mut self, held: u64) -> bool {
        (self.sent, self.had_sent) = (held, self.had_sent.max(self.logged()));
        let lost_its_end = held > self.logged();
        let regained = held < self.base && self.collected < self.base;
        if !lost_its_end && !regained {
            return false;
        }
        self.log.clear();
        self.base = held.max(self.collected.min(self.base));
        true
    }

    /// The receiver wants messages from this number on.
    pub fn want(&mut self, from: u64) {
        self.next = from.max(1);
        self.had_sent = self.had_sent.max(self.next - 1);
    }

    /// The program sends a message, for the first time or again.
    pub fn sends(&mut self, number: u64) {
        self.sent = self.sent.max(number);
    }

    /// Messages that the program has to send again until it is where it was before it went back.
    pub fn behind(&self) -> u64 {
        self.had_sent.saturating_sub(self.sent)
    }

    /// Transmits nothing until the receiver wants messages again.
    pub fn pause(&mut self) {
        self.next = 0;
    }

    /// The number of a message that is wanted and no longer in the log: its sender must go back.
    pub fn lost(&self) -> Option<u64> {
        (self.next != 0 && self.next <= self.base).then_some(self.next)
    }

    /// The number of the next message to transmit, if there is one.
    pub fn due(&self) -> Option<u64> {
        (self.next > self.base && self.next <= self.logged()).then_some(self.next)
    }

    /// The due message was transmitted.
    pub fn transmitted(&mut self) {
        self.next += 1;
    }

    /// The receiver committed a checkpoint that contains messages up to this number. Returns those that go. A number
    /// lower than before says that it has gone back behind its checkpoints: what is gone can be logged anew.
    pub fn collect(&mut self, upto: u64) -> impl Iterator<Item = T> + '_ {
        self.collected = upto;
        self.drain(upto)
    }

    /// Drops what was transmitted, though it may be wanted again: then it is lost.
    pub fn forget(&mut self) -> impl Iterator<Item = T> + '_ {
        self.drain(self.next.saturating_sub(1))
    }

    fn drain(&mut self, upto: u64) -> impl Iterator<Item = T> + '_ {
        let count = upto.min(self.logged()).saturating_sub(self.base);
        self.base += count;
        self.log.drain(..usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Drops messages from the end of the log as long as the test says so. Nobody may have got them. Those that went.
    pub fn cut(&mut self, mut goes: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut gone = Vec::new();
        while let Some(last) = self.log.pop_back_if(|last| goes(last)) {
            gone.push(last);
        }
        self.had_sent = self.had_sent.min(self.logged());
        gone
    }

    /// The logged messages with their numbers, oldest first.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        (self.base + 1..).zip(self.log.iter_mut())
    }
}

/// The receiver's side of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The next number the program must get; 0 while there is no program.
    expected: u64,
    /// `expected` was requested and has not arrived yet: what arrives before it was sent earlier.
    asked: bool,
}

/// What to do with a message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// Give it to the program.
    Deliver,
    /// Drop it: the program has it, or will get it again in its turn.
    Drop,
    /// Messages before it are missing: break the connection and want them again.
    Broken,
}

impl Incoming {
    /// No program is there yet.
    pub fn new() -> Self {
        Incoming { expected: 0, asked: false }
    }

    /// The program (re)joins and has everything up to `arrived`.
    pub fn join(&mut self, arrived: u64) {
        self.expected = arrived + 1;
        self.asked = false;
    }

    /// Up to this number the program got all; `None` while no program is there.
    pub fn arrived(&self) -> Option<u64> {
        self.expected.checked_sub(1)
    }

    /// The program is away: what arrives now must be sent again.
    pub fn leave(&mut self) {
        *self = Incoming::new();
    }

    /// The number to request from the sender's relay; `None` without a program.
    pub fn want(&mut self) -> Option<u64> {
        self.asked = self.expected != 0;
        self.asked.then_some(self.expected)
    }

    /// What to do with a message, by its number.
    pub fn arrive(&mut self, number: u64) -> Arrived {
        if self.expected == 0 || number < self.expected {
            return Arrived::Drop;
        }
        if number > self.expected {
            return if self.asked { Arrived::Drop } else { Arrived::Broken };
        }
        self.expected += 1;
        self.asked = false;
        Arrived::Deliver
    }
}

impl Default for Incoming {
    fn default() -> Self {
        Incoming::new()
    }
}
