//! Messages that have arrived at a program and are not yet received: matching by source and tag, and the counters
//! that a checkpoint keeps.

use crate::buffer::Buffer;
use crate::frame::{Bytes, Header, LONGEST_BYTES};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// A program's position on all its channels; a checkpoint keeps it, and a restart begins from it.
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

/// A message that waits to be received, or for its next parts.
#[derive(Debug)]
struct Waiting {
    first: u64,
    last: u64,
    tag: i32,
    bytes: Vec<u8>,
    /// Bytes that are still to come.
    rest: usize,
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

    /// Takes in the next message, or the next part of one, of a source; false if it is not the next one.
    pub fn put(&mut self, header: &Header, body: Bytes) -> bool {
        let (source, number, tag, rest) = (usize::from(header.group), header.number, header.tag, header.rest as usize);
        match self.arrived.get_mut(source) {
            Some(arrived) if number == *arrived + 1 => *arrived = number,
            _ => return false,
        }
        if self.beyond[source].contains(&number) {
            return true;
        }
        let queue = &mut self.waiting[source];
        match queue.back_mut().filter(|w| w.rest > 0) {
            Some(begun) => {
                let fits = (begun.tag, begun.rest) == (tag, body.len() + rest);
                begun.bytes.extend_from_slice(&body);
                (begun.last, begun.rest) = (number, rest);
                fits
            }
            None if body.len() + rest > LONGEST_BYTES => false,
            None => {
                let bytes = whole(body, rest);
                queue.push_back(Waiting { first: number, last: number, tag, bytes, rest });
                true
            }
        }
    }

    /// Receives the oldest message of a source with this tag, if all of it is there.
    pub fn take(&mut self, source: usize, tag: i32) -> Option<Vec<u8>> {
        let queue = self.waiting.get_mut(source)?;
        let index = queue.iter().position(|w| w.tag == tag).filter(|i| queue[*i].rest == 0)?;
        let message = queue.remove(index)?;
        let beyond = &mut self.beyond[source];
        beyond.extend(message.first..=message.last);
        while beyond.remove(&(self.received[source] + 1)) {
            self.received[source] += 1;
        }
        Some(message.bytes)
    }
}

/// A message of one part as it is; otherwise its first part, with room for the others.
fn whole(body: Bytes, rest: usize) -> Vec<u8> {
    if rest == 0 {
        return Arc::try_unwrap(body).map_or_else(|shared| shared.to_vec(), Buffer::into_vec);
    }
    let mut bytes = Vec::with_capacity(body.len() + rest);
    bytes.extend_from_slice(&body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Kind;

    fn bytes(bytes: &[u8]) -> Bytes {
        Arc::new(bytes.into())
    }

    fn part(group: u16, number: u64, tag: i32, rest: u32) -> Header {
        Header { kind: Kind::Message, group, tag, number, length: 1, rest }
    }

    #[test]
    fn a_message_received_out_of_order_is_not_received_again_after_a_restart() {
        let mut inbox = Inbox::new(&Counters::start(1));
        for (number, tag) in [(1, 7), (2, 8), (3, 7)] {
            assert!(inbox.put(&part(0, number, tag, 0), bytes(&[number as u8])));
        }
        assert_eq!(inbox.take(0, 8), Some(vec![2]));
        let (received, beyond) = inbox.received();
        let counters = Counters { sent: vec![0], received: received.to_vec(), beyond: beyond.to_vec() };
        assert_eq!(counters.received, [0]);
        let mut again = Inbox::new(&counters);
        for (number, tag) in [(1, 7), (2, 8), (3, 7)] {
            assert!(again.put(&part(0, number, tag, 0), bytes(&[number as u8])));
        }
        assert_eq!(again.take(0, 8), None);
        assert_eq!((again.take(0, 7), again.take(0, 7)), (Some(vec![1]), Some(vec![3])));
        assert_eq!(again.received().0, [3]);
        assert!(again.received().1[0].is_empty());
    }

    #[test]
    fn messages_of_one_tag_keep_their_order_and_a_wrong_number_is_refused() {
        let mut inbox = Inbox::new(&Counters::start(2));
        assert!(!inbox.put(&part(0, 2, 1, 0), bytes(&[])));
        assert!(!inbox.put(&part(2, 1, 1, 0), bytes(&[])));
        assert!(inbox.put(&part(1, 1, 1, 0), bytes(&[1])) && inbox.put(&part(1, 2, 1, 0), bytes(&[2])));
        assert!(!inbox.put(&part(1, 2, 1, 0), bytes(&[2])));
        assert_eq!((inbox.take(1, 1), inbox.take(1, 1), inbox.take(1, 1)), (Some(vec![1]), Some(vec![2]), None));
    }

    #[test]
    fn a_message_is_received_when_all_its_parts_are_there_and_a_checkpoint_keeps_all_or_none_of_them() {
        let mut inbox = Inbox::new(&Counters::start(1));
        assert!(inbox.put(&part(0, 1, 7, 2), bytes(&[1])));
        assert!(inbox.put(&part(0, 2, 7, 1), bytes(&[2])));
        assert_eq!((inbox.take(0, 7), inbox.received().0), (None, &[0][..]));
        assert!(inbox.put(&part(0, 3, 7, 0), bytes(&[3])));
        assert!(inbox.put(&part(0, 4, 7, 0), bytes(&[4])));
        assert_eq!((inbox.take(0, 7), inbox.received().0), (Some(vec![1, 2, 3]), &[3][..]));
        assert!(inbox.put(&part(0, 5, 7, 5), bytes(&[5])));
        assert!(!inbox.put(&part(0, 6, 7, 3), bytes(&[6])), "a part is missing");
    }
}
