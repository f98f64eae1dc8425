//! What the driver is to do about differences and losses that relays have found.

use crate::layout::Layout;
use crate::prints::Compared;
use crate::words::Progress;
use serde::{Deserialize, Serialize};

/// A rank that was restored has sent another message than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// World rank that sent it.
    pub from: usize,
    /// World rank to which.
    pub to: usize,
    /// Number of the message on that channel.
    pub number: u64,
    /// What differs.
    pub what: Compared,
}

/// A message that is wanted and in no log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// World rank that sent it.
    pub from: usize,
    /// World rank that wants it.
    pub to: usize,
    /// Its number on that channel.
    pub number: u64,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    GoOn,
    /// These groups go back to a checkpoint from before the messages that are lost, and send them again.
    Back(Vec<usize>),
    /// All groups go back to their last common line, or begin anew if there is none, and run coordinated from there.
    AllBack {
        /// Number of the line.
        line: Option<u64>,
        /// What it is for.
        why: Why,
    },
}

/// Why all groups go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A message differs from the one that was sent before.
    Difference(Difference),
    /// So many messages were sent again of which nobody knows any more what they were.
    Unproven(u64),
    /// Outcomes that a group would have to repeat are lost.
    Outcomes,
}

/// Decides from what all relays have found; `line` is the newest line of which all groups have a checkpoint.
pub fn decide(layout: &Layout, differences: &[Difference], losses: &[Loss], line: Option<u64>) -> Decision {
    if let Some(difference) = differences.first() {
        return Decision::AllBack { line, why: Why::Difference(*difference) };
    }
    let mut groups: Vec<usize> = losses.iter().filter_map(|loss| layout.group_of(loss.from)).collect();
    groups.sort_unstable();
    groups.dedup();
    if groups.is_empty() { Decision::GoOn } else { Decision::Back(groups) }
}

/// Whether checkpoints of all groups, by group, are a line to which all can go back: nobody has got a message that its
/// sender has still to send again, nobody waits for one that no log has, no sender holds one with which no log could
/// compare it, and all that was sent again is proved.
pub fn is_line(layout: &Layout, marks: &[&[Progress]]) -> bool {
    let at = |rank: usize| {
        let group = layout.group_of(rank)?;
        marks.get(group)?.get(layout.place_in(group, rank)?)
    };
    let channel = |from: usize, to: usize| match (at(from), at(to)) {
        (Some(sender), Some(receiver)) => {
            let (Some(arrived), Some(sent)) = (receiver.arrived.get(from), sender.sent.get(to)) else { return false };
            let Some((gone, held)) = sender.gone.get(to).zip(sender.held.get(to)) else { return false };
            sender.proved && arrived <= sent && gone <= arrived && gone <= held
        }
        _ => false,
    };
    (0..layout.world()).all(|from| (0..layout.world()).all(|to| channel(from, to)))
}

/// Decides at a program's end about messages that were sent again and could not be compared, since the relays of both
/// sides had died: only a program that is said to be deterministic is trusted.
pub fn vouch(uncompared: u64, line: Option<u64>, deterministic: bool) -> Decision {
    if uncompared == 0 || deterministic {
        return Decision::GoOn;
    }
    Decision::AllBack { line, why: Why::Unproven(uncompared) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_takes_all_back_and_a_loss_only_its_sender() {
        let layout = Layout::parse("0-1/2-3/4").expect("a layout");
        let loss = |from, to| Loss { from, to, number: 7 };
        assert_eq!(decide(&layout, &[], &[], Some(3)), Decision::GoOn);
        let losses = [loss(3, 0), loss(1, 4), loss(2, 0)];
        assert_eq!(decide(&layout, &[], &losses, Some(3)), Decision::Back(vec![0, 1]));
        let difference = Difference { from: 0, to: 2, number: 5, what: Compared::Contents };
        let why = Why::Difference(difference);
        assert_eq!(decide(&layout, &[difference], &losses, Some(3)), Decision::AllBack { line: Some(3), why });
        assert_eq!(decide(&layout, &[difference], &[], None), Decision::AllBack { line: None, why });
        assert_eq!(vouch(0, Some(3), false), Decision::GoOn);
        assert_eq!(vouch(2, Some(3), true), Decision::GoOn);
        assert_eq!(vouch(2, Some(3), false), Decision::AllBack { line: Some(3), why: Why::Unproven(2) });
    }

    #[test]
    fn a_line_has_no_message_whose_sender_must_still_send_it_again() {
        let layout = Layout::parse("0/1").expect("a layout");
        let mark = |arrived, sent, proved| {
            let (arrived, sent, gone) = (vec![0, arrived], vec![0, sent], vec![0, 1]);
            vec![Progress { arrived, held: sent.clone(), sent, gone, proved, ..Progress::default() }]
        };
        let other = |arrived, sent| {
            let (arrived, sent, gone) = (vec![arrived, 0], vec![sent, 0], vec![0, 0]);
            vec![Progress { arrived, held: sent.clone(), sent, gone, proved: true, ..Progress::default() }]
        };
        assert!(is_line(&layout, &[&mark(2, 5, true), &other(4, 2)]));
        assert!(!is_line(&layout, &[&mark(2, 3, true), &other(4, 2)]), "1 has got a message that 0 sends only later");
        assert!(!is_line(&layout, &[&mark(0, 5, true), &other(0, 0)]), "message 1 is in no log");
        let mut holds = mark(2, 5, true);
        holds[0].held[1] = 0;
        assert!(!is_line(&layout, &[&holds, &other(4, 2)]), "0 sends message 1 again, and no log knows it");
        assert!(!is_line(&layout, &[&mark(2, 5, false), &other(4, 2)]) && !is_line(&layout, &[&mark(2, 5, true)]));
    }
}
