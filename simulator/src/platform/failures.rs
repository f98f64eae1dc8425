//! Draws the next failure: when, and at which position among the nodes in service.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::machine::{Failures, Machine};
use crate::Error;
use crate::trace::{Distribution, Trace};

/// Gaps that are drawn at once.
const BATCH: usize = 1_024;

/// Each node has lived this many mean gaps when a simulation starts, so that the machine is not new.
const AGE: f64 = 10.0;

/// The failures of one run, in order.
pub(super) struct FailureSource {
    kind: Kind,
    random: ChaCha8Rng,
    nodes: u32,
    now_s: f64,
}

enum Kind {
    /// Memoryless nodes together are one memoryless machine.
    Memoryless(Gaps),
    /// One clock for each node: bits of its next failure's time, and its position.
    Clocks(Gaps, BinaryHeap<Reverse<(u64, u32)>>),
    Logged {
        gaps_s: Vec<f64>,
        next: usize,
    },
}

impl FailureSource {
    pub(super) fn new(machine: &Machine, seed: u64) -> Result<FailureSource, Error> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let kind = match &machine.failures {
            Failures::Logged(gaps_s) if gaps_s.is_empty() => return Err(Error::TooShort { gaps: 0 }),
            Failures::Logged(gaps_s) => {
                Kind::Logged { gaps_s: gaps_s.clone(), next: random.random_range(0..gaps_s.len()) }
            }
            Failures::Drawn(Distribution::Exponential) => {
                Kind::Memoryless(Gaps::new(Distribution::Exponential, machine.mtbf_s, random.random()))
            }
            Failures::Drawn(distribution) => {
                let mean_s = machine.mtbf_s * f64::from(machine.nodes);
                let mut gaps = Gaps::new(*distribution, mean_s, random.random());
                let mut clocks = BinaryHeap::with_capacity(machine.nodes as usize);
                for node in 0..machine.nodes {
                    let mut at_s = -mean_s * (AGE + random.random::<f64>());
                    while at_s < 0.0 {
                        at_s += gaps.draw()?;
                    }
                    clocks.push(Reverse((at_s.to_bits(), node)));
                }
                Kind::Clocks(gaps, clocks)
            }
        };
        Ok(FailureSource { kind, random, nodes: machine.nodes, now_s: 0.0 })
    }

    /// The time and the position of the next failure.
    pub(super) fn draw(&mut self) -> Result<(f64, u32), Error> {
        let any = self.random.random_range(0..self.nodes);
        match &mut self.kind {
            Kind::Memoryless(gaps) => self.now_s += gaps.draw()?,
            Kind::Logged { gaps_s, next } => {
                self.now_s += gaps_s[*next];
                *next = (*next + 1) % gaps_s.len();
            }
            Kind::Clocks(gaps, clocks) => {
                if let Some(mut first) = clocks.peek_mut() {
                    let (bits, node) = first.0;
                    self.now_s = f64::from_bits(bits);
                    *first = Reverse(((self.now_s + gaps.draw()?).to_bits(), node));
                    return Ok((self.now_s, node));
                }
            }
        }
        Ok((self.now_s, any))
    }
}

/// An endless stream of gaps.
struct Gaps {
    distribution: Distribution,
    mean_s: f64,
    seeds: ChaCha8Rng,
    batch_s: std::vec::IntoIter<f64>,
}

impl Gaps {
    fn new(distribution: Distribution, mean_s: f64, seed: u64) -> Gaps {
        Gaps { distribution, mean_s, seeds: ChaCha8Rng::seed_from_u64(seed), batch_s: Vec::new().into_iter() }
    }

    fn draw(&mut self) -> Result<f64, Error> {
        loop {
            if let Some(gap_s) = self.batch_s.next() {
                return Ok(gap_s);
            }
            let batch = Trace::synthetic(self.distribution, self.mean_s, BATCH, self.seeds.random())?;
            self.batch_s = batch.gaps_s.into_iter();
        }
    }
}
