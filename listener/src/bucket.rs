//! Lets something happen at a bounded rate, with bursts: a token bucket that is given the time.

/// What is left of an allowance.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    left: f64,
    at_s: f64,
}

/// How fast an allowance comes back, and how much of it there may be at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Units a second.
    pub per_s: f64,
    /// Units at once.
    pub burst: f64,
}

impl Bucket {
    /// A full one.
    pub const fn full(rate: Rate) -> Bucket {
        Bucket { left: rate.burst, at_s: 0.0 }
    }

    /// Takes an amount if it is there. A clock that was set back gives nothing, and takes nothing away.
    pub fn take(&mut self, now_s: f64, rate: Rate, amount: f64) -> bool {
        self.left = (self.left + (now_s - self.at_s).max(0.0) * rate.per_s).min(rate.burst);
        self.at_s = now_s;
        let is_there = self.left >= amount;
        if is_there {
            self.left -= amount;
        }
        is_there
    }

    /// Whether nothing was taken for so long that it is full again.
    pub fn is_idle(&self, now_s: f64, rate: Rate) -> bool {
        self.left + (now_s - self.at_s).max(0.0) * rate.per_s >= rate.burst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_s: 2.0, burst: 10.0 };

    #[test]
    fn a_burst_passes_and_the_rest_comes_at_the_rate() {
        let mut bucket = Bucket::full(RATE);
        assert_eq!((0..100).filter(|_| bucket.take(1000.0, RATE, 1.0)).count(), 10);
        assert_eq!((0..100).filter(|_| bucket.take(1002.0, RATE, 1.0)).count(), 4);
        assert!(!bucket.take(1003.0, RATE, 3.0) && bucket.take(1003.0, RATE, 2.0), "what is too much takes nothing");
        assert!(!bucket.is_idle(1004.0, RATE) && bucket.is_idle(1008.0, RATE));
    }

    #[test]
    fn a_clock_that_is_set_back_gives_nothing() {
        let mut bucket = Bucket::full(RATE);
        assert!(bucket.take(1000.0, RATE, 10.0));
        assert!(!bucket.take(500.0, RATE, 1.0));
        assert!(bucket.take(501.0, RATE, 2.0));
    }
}
