//! What a program has got and not yet received: matching by source and tag, and the counters that a checkpoint keeps.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

/// How far a program is, on all its channels; a checkpoint keeps it and a restart begins from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// To each group: messages sent.
    pub sent: Vec<u64>,
    /// From each group: all messages up to this number were received.
    pub received: Vec<u64>,
    /// From each group: messages received beyond that, out of order because of their tags.
    pub beyond: Vec<BTreeSet<u64>>,
}

impl Counters {
    /// The counters of a program that begins, among so many groups.
    pub fn start(groups: usize) -> Self {
        Counters { sent: vec![0; groups], received: vec![0; groups], beyond: vec![BTreeSet::new(); groups] }
    }

    /// True if the counters are those of so many groups.
    pub fn fits(&self, groups: usize) -> bool {
        [self.sent.len(), self.received.len(), self.beyond.len()] == [groups; 3]
    }
}

/// A message that waits to be received.
#[derive(Debug)]
struct Waiting {
    number: u64,
    tag: i32,
    bytes: Vec<u8>,
}

/// The messages of all sources.
#[derive(Debug)]
pub struct Inbox {
    waiting: Vec<VecDeque<Waiting>>,
    arrived: Vec<u64>,
    received: Vec<u64>,
    beyond: Vec<BTreeSet<u64>>,
}

impl Inbox {
    /// An inbox that goes on from a checkpoint's counters.
    pub fn new(counters: &Counters) -> Self {
        Inbox {
            waiting: counters.received.iter().map(|_| VecDeque::new()).collect(),
            arrived: counters.received.clone(),
            received: counters.received.clone(),
            beyond: counters.beyond.clone(),
        }
    }

    /// From each group: the number of messages that are here or were received; a relay goes on after them.
    pub fn arrived(&self) -> &[u64] {
        &self.arrived
    }

    /// The counters of what was received, for a checkpoint.
    pub fn received(&self) -> (&[u64], &[BTreeSet<u64>]) {
        (&self.received, &self.beyond)
    }

    /// Takes in the next message of a source; false if it is not the next one.
    pub fn put(&mut self, source: usize, number: u64, tag: i32, bytes: Vec<u8>) -> bool {
        match self.arrived.get_mut(source) {
            Some(arrived) if number == *arrived + 1 => *arrived = number,
            _ => return false,
        }
        if !self.beyond[source].contains(&number) {
            self.waiting[source].push_back(Waiting { number, tag, bytes });
        }
        true
    }

    /// Receives the oldest message of a source with this tag.
    pub fn take(&mut self, source: usize, tag: i32) -> Option<Vec<u8>> {
        let queue = self.waiting.get_mut(source)?;
        let index = queue.iter().position(|w| w.tag == tag)?;
        let message = queue.remove(index)?;
        let beyond = &mut self.beyond[source];
        beyond.insert(message.number);
        while beyond.remove(&(self.received[source] + 1)) {
            self.received[source] += 1;
        }
        Some(message.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_received_out_of_order_is_not_received_again_after_a_restart() {
        let mut inbox = Inbox::new(&Counters::start(1));
        for (number, tag) in [(1, 7), (2, 8), (3, 7)] {
            assert!(inbox.put(0, number, tag, vec![number as u8]));
        }
        assert_eq!(inbox.take(0, 8), Some(vec![2]));
        let (received, beyond) = inbox.received();
        let counters = Counters { sent: vec![0], received: received.to_vec(), beyond: beyond.to_vec() };
        assert_eq!(counters.received, [0]);
        let mut again = Inbox::new(&counters);
        for (number, tag) in [(1, 7), (2, 8), (3, 7)] {
            assert!(again.put(0, number, tag, vec![number as u8]));
        }
        assert_eq!(again.take(0, 8), None);
        assert_eq!((again.take(0, 7), again.take(0, 7)), (Some(vec![1]), Some(vec![3])));
        assert_eq!(again.received().0, [3]);
        assert!(again.received().1[0].is_empty());
    }

    #[test]
    fn messages_of_one_tag_keep_their_order_and_a_wrong_number_is_refused() {
        let mut inbox = Inbox::new(&Counters::start(2));
        assert!(!inbox.put(0, 2, 1, vec![]));
        assert!(!inbox.put(2, 1, 1, vec![]));
        assert!(inbox.put(1, 1, 1, vec![1]) && inbox.put(1, 2, 1, vec![2]));
        assert!(!inbox.put(1, 2, 1, vec![2]));
        assert_eq!((inbox.take(1, 1), inbox.take(1, 1), inbox.take(1, 1)), (Some(vec![1]), Some(vec![2]), None));
    }
}
