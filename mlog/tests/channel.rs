//! The pure channel under thousands of seeds: losses, duplicates, breaks, crashes of every part, collection.

use mlog::channel::{Arrived, Incoming, Offered, Outgoing};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

const MESSAGES: u64 = 60;

/// One direction of one channel: a deterministic sender, two relays, a receiver, and a bad connection.
struct World {
    random: ChaCha8Rng,
    /// Sender: how many messages it has sent, and how many at its last checkpoint.
    sent: u64,
    sent_at_checkpoint: u64,
    /// What its relay had logged when it joined: not sent again.
    known: u64,
    outgoing: Outgoing<u64>,
    wire: VecDeque<u64>,
    incoming: Incoming,
    received: Vec<u64>,
    received_at_checkpoint: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            random: ChaCha8Rng::seed_from_u64(seed),
            sent: 0,
            sent_at_checkpoint: 0,
            known: 0,
            outgoing: Outgoing::default(),
            wire: VecDeque::new(),
            incoming: Incoming::new(),
            received: Vec::new(),
            received_at_checkpoint: 0,
        };
        world.incoming.join(0);
        world.connect();
        world
    }

    /// A new connection: what was on the old one is gone, and the receiver says what it wants.
    fn connect(&mut self) {
        self.wire.clear();
        self.want();
        self.outgoing.collect(self.received_at_checkpoint as u64).for_each(drop);
    }

    fn want(&mut self) {
        match self.incoming.want() {
            Some(from) => self.outgoing.want(from),
            None => self.outgoing.pause(),
        }
        assert_eq!(self.outgoing.lost(), None);
    }

    fn send(&mut self) {
        if self.sent < MESSAGES {
            self.sent += 1;
            // What the message says depends on its number only: the sender is deterministic.
            let judged = self.outgoing.offer(self.sent, content(self.sent));
            assert_eq!(judged == Offered::Known, self.sent <= self.known);
            assert_ne!(judged, Offered::Early);
        }
    }

    fn transmit(&mut self) {
        let Some(number) = self.outgoing.due() else { return };
        let said = *self.outgoing.get_mut(number).expect("logged");
        assert_eq!(said, content(number));
        self.outgoing.transmitted();
        for _ in 0..self.random.random_range(0..=2).max(u32::from(self.random.random_bool(0.8))) {
            self.wire.push_back(number);
        }
    }

    fn arrive(&mut self) {
        let Some(number) = self.wire.pop_front() else { return };
        match self.incoming.arrive(number) {
            Arrived::Deliver => self.received.push(content(number)),
            Arrived::Drop => {}
            Arrived::Broken => self.connect(),
        }
    }

    fn step(&mut self) {
        match self.random.random_range(0..100) {
            0..35 => self.send(),
            35..65 => self.transmit(),
            65..90 => self.arrive(),
            90 => self.connect(),
            91 => {
                // The sender dies and comes back from its checkpoint.
                self.sent = self.sent_at_checkpoint;
                self.outgoing.join(self.sent);
                self.known = self.outgoing.logged();
            }
            92 => self.sent_at_checkpoint = self.sent,
            93 => {
                self.received_at_checkpoint = self.received.len();
                self.outgoing.collect(self.received_at_checkpoint as u64).for_each(drop);
            }
            94 => {
                // The receiver dies and comes back from its checkpoint, at once or after messages came for nobody.
                self.incoming.leave();
                if self.random.random_bool(0.5) {
                    (0..5).for_each(|_| self.arrive());
                }
                self.received.truncate(self.received_at_checkpoint);
                self.incoming.join(self.received.len() as u64);
                self.want();
            }
            95 => {
                // The receiver's relay dies: its program joins the next one.
                self.incoming = Incoming::new();
                self.incoming.join(self.received.len() as u64);
                self.connect();
            }
            96 => {
                // The sender's relay dies and reads its log again.
                let log: Vec<(u64, u64)> = self.outgoing.iter_mut().map(|(n, m)| (n, *m)).collect();
                let mut again = Outgoing::new(self.outgoing.base(), self.outgoing.collected());
                log.into_iter().for_each(|(n, m)| assert_eq!(again.offer(n, m), Offered::Logged));
                self.outgoing = again;
                self.connect();
                self.outgoing.join(self.sent);
            }
            _ => {}
        }
    }
}

fn content(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn every_message_is_delivered_exactly_once_and_in_order() {
    let wanted: Vec<u64> = (1..=MESSAGES).map(content).collect();
    for seed in 0..5000 {
        let mut world = World::new(seed);
        for _ in 0..600 {
            world.step();
            assert_eq!(world.received, wanted[..world.received.len()], "SEED={seed}");
        }
        let calm = (0..5000).find(|_| {
            world.send();
            world.transmit();
            world.arrive();
            if world.wire.is_empty() && world.outgoing.due().is_none() {
                world.connect();
            }
            world.received.len() == wanted.len()
        });
        assert!(calm.is_some(), "SEED={seed}: {} delivered", world.received.len());
        assert_eq!(world.received, wanted, "SEED={seed}");
    }
}

#[test]
fn what_is_gone_and_wanted_is_a_loss_until_the_sender_goes_back_far_enough() {
    let mut channel = Outgoing::default();
    (1..=10).for_each(|n| assert_eq!(channel.offer(n, n), Offered::Logged));
    assert_eq!(channel.collect(4).collect::<Vec<_>>(), [1, 2, 3, 4]);
    channel.want(5);
    assert_eq!((channel.lost(), channel.due()), (None, Some(5)));
    channel.want(4);
    assert_eq!((channel.lost(), channel.due()), (Some(4), None));

    // A relay that lost its log: the program can send again only from 9 on.
    let mut channel = Outgoing::<u64>::default();
    assert!(channel.join(8));
    channel.want(6);
    assert_eq!(channel.lost(), Some(6));
    assert!(channel.join(3), "the program resumes from a checkpoint after message 3");
    assert_eq!(channel.lost(), None);
    (4..=6).for_each(|n| assert_eq!(channel.offer(n, n), Offered::Logged));
    assert_eq!(channel.due(), Some(6));
}

#[test]
fn a_program_is_behind_until_it_has_sent_again_what_its_log_or_its_receiver_knows() {
    let mut channel = Outgoing::default();
    (1..=10).for_each(|n| assert_eq!(channel.offer(n, n), Offered::Logged));
    assert_eq!(channel.behind(), 0);
    channel.join(4);
    assert_eq!(channel.behind(), 6);
    (5..=10).for_each(|n| channel.sends(n));
    assert_eq!(channel.behind(), 0);

    let mut lost = Outgoing::default();
    lost.want(9);
    lost.join(4);
    assert_eq!(lost.behind(), 4, "the receiver has eight, though the log is gone");
    (5..=9).for_each(|n| assert_eq!(lost.offer(n, n), Offered::Logged));
    lost.pause();
    lost.want(10);
    assert_eq!(lost.behind(), 0);
}

#[test]
fn a_program_that_goes_back_behind_what_was_collected_does_not_empty_the_log() {
    let mut channel = Outgoing::default();
    (1..=10).for_each(|n| assert_eq!(channel.offer(n, n), Offered::Logged));
    channel.collect(6).for_each(drop);
    assert!(!channel.join(2));
    assert_eq!((channel.base(), channel.logged(), channel.judge(3)), (6, 10, Offered::Known));
}

#[test]
fn a_message_forgotten_when_it_left_is_lost_to_one_that_goes_back_until_the_sender_goes_back_too() {
    let mut channel = Outgoing::default();
    channel.want(1);
    (1..=5).for_each(|n| assert_eq!(channel.offer(n, n), Offered::Logged));
    (1..=3).for_each(|_| channel.transmitted());
    assert_eq!(channel.forget().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((channel.due(), channel.lost()), (Some(4), None));
    channel.want(2);
    assert_eq!((channel.due(), channel.lost()), (None, Some(2)));
    assert!(channel.join(1), "nobody collected them: they are made again");
    (2..=5).for_each(|n| assert_eq!(channel.offer(n, n), Offered::Logged));
    assert_eq!((channel.due(), channel.lost()), (Some(2), None));
}
