//! The network of a simulated cluster: cables that are cut, switches that reboot, links that are slow and lossy.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// A host: nodes have their numbers; the controller service and slurmctld have hosts of their own.
pub type Host = usize;

/// What can be wrong with the network.
#[derive(Clone, Debug, Default)]
pub struct Net {
    /// Directions that carry nothing.
    cut: BTreeSet<(Host, Host)>,
    /// Packets lost on any way, in a hundred.
    loss: u32,
    /// Longest extra delay, s.
    slow_s: f64,
}

impl Net {
    /// No packet from one host reaches the other.
    pub fn cut(&mut self, from: Host, to: Host) {
        self.cut.insert((from, to));
    }

    /// Neither direction.
    pub fn cut_both(&mut self, a: Host, b: Host) {
        self.cut(a, b);
        self.cut(b, a);
    }

    /// Every packet arrives again, in time.
    pub fn heal(&mut self) {
        *self = Net::default();
    }

    /// A network that loses packets and delays them.
    pub fn degrade(&mut self, loss: u32, slow_s: f64) {
        (self.loss, self.slow_s) = (loss, slow_s);
    }

    /// Whether a question and its answer get through, both ways as TCP needs them; how long each takes, s.
    pub fn exchange(&self, rng: &mut ChaCha8Rng, a: Host, b: Host) -> Option<(f64, f64)> {
        if a != b && (self.cut.contains(&(a, b)) || self.cut.contains(&(b, a))) {
            return None;
        }
        let mut way = || {
            let lost = rng.random_range(0..100) < self.loss;
            // A lost packet is sent again after a while, and not for ever.
            let again_s = if lost { rng.random_range(0.2..1.5) } else { 0.0 };
            rng.random_range(0.0005..0.02) + again_s + rng.random_range(0.0..=self.slow_s)
        };
        let (there_s, back_s) = (way(), way());
        (there_s + back_s < 2.0).then_some((there_s, back_s))
    }
}
