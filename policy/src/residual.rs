//! Keeps past gaps in bins, so that the mean of what is left of those that outlast an age is found fast.

/// Bits of the mantissa that tell bins apart: each doubling of a gap has sixteen bins.
const BITS: u32 = 4;

/// Sorted gaps in bins by their first bits: a new gap moves one bin only, and an age finds its bin without a search.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResidualTable {
    bins: Vec<Bin>,
    /// For each bin, how many gaps the bins after it hold, and their sum.
    after: Vec<Lot>,
}

/// How many gaps, and their sum in s; both of one type, so that they are added in one step.
type Lot = (f64, f64);

#[derive(Clone, Debug, Default)]
struct Bin {
    sorted_s: Vec<f64>,
    /// `above_s[i]` is the sum of the gaps from index i on.
    above_s: Vec<f64>,
}

impl Bin {
    /// Adds its gaps up; how many there are, and their sum.
    fn sum_up(&mut self) -> Lot {
        let mut sum_s = 0.0;
        self.above_s = vec![0.0; self.sorted_s.len()];
        for (above_s, gap_s) in self.above_s.iter_mut().zip(&self.sorted_s).rev() {
            sum_s += gap_s;
            *above_s = sum_s;
        }
        (self.sorted_s.len() as f64, sum_s)
    }

    fn insert(&mut self, gap_s: f64) {
        let at = self.sorted_s.partition_point(|g| *g <= gap_s);
        self.sorted_s.insert(at, gap_s);
        let rest_s = self.above_s.get(at).copied().unwrap_or(0.0);
        self.above_s.insert(at, rest_s + gap_s);
        self.above_s[..at].iter_mut().for_each(|sum_s| *sum_s += gap_s);
    }

    /// How many of its gaps are longer, and their sum.
    fn longer(&self, elapsed_s: f64) -> Lot {
        let at = self.sorted_s.partition_point(|g| *g <= elapsed_s);
        ((self.sorted_s.len() - at) as f64, self.above_s.get(at).copied().unwrap_or(0.0))
    }
}

impl ResidualTable {
    /// A table of many gaps, each looked at once.
    pub(crate) fn of(mut gaps_s: Vec<f64>) -> ResidualTable {
        gaps_s.sort_unstable_by(f64::total_cmp);
        let count = gaps_s.last().map_or(0, |longest_s| bin_of(*longest_s) + 1);
        let mut table = ResidualTable { bins: vec![Bin::default(); count], after: vec![Lot::default(); count] };
        gaps_s.into_iter().for_each(|gap_s| table.bins[bin_of(gap_s)].sorted_s.push(gap_s));
        let mut after = Lot::default();
        for (bin, lot) in table.bins.iter_mut().zip(&mut table.after).rev() {
            *lot = after;
            after = join(after, bin.sum_up());
        }
        table
    }

    /// Adds a gap.
    pub(crate) fn insert(&mut self, gap_s: f64) {
        let at = bin_of(gap_s);
        if at >= self.bins.len() {
            self.bins.resize_with(at + 1, Bin::default);
            self.after.resize(at + 1, Lot::default());
        }
        self.bins[at].insert(gap_s);
        self.after[..at].iter_mut().for_each(|after| *after = join(*after, (1.0, gap_s)));
    }

    /// Mean of g - t over the gaps g > t; the mean gap where none is longer.
    pub(crate) fn mean_residual_s(&self, elapsed_s: f64) -> Option<f64> {
        let (count, sum_s) = self.longer(elapsed_s);
        if count > 0.0 {
            return Some(sum_s / count - elapsed_s);
        }
        let (count, sum_s) = self.longer(0.0);
        (count > 0.0).then(|| sum_s / count)
    }

    /// How many gaps are longer, and their sum.
    fn longer(&self, elapsed_s: f64) -> Lot {
        let at = bin_of(elapsed_s);
        self.bins.get(at).map_or(Lot::default(), |bin| join(self.after[at], bin.longer(elapsed_s)))
    }
}

/// The bin of a time: positive numbers are ordered as their bits are, and all up to a second share the first bin.
fn bin_of(seconds: f64) -> usize {
    let first_bits = |x: f64| (x.to_bits() >> (f64::MANTISSA_DIGITS - 1 - BITS)) as usize;
    first_bits(seconds.max(1.0)) - first_bits(1.0)
}

/// Two lots together.
fn join(a: Lot, b: Lot) -> Lot {
    (a.0 + b.0, a.1 + b.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_residual_is_that_of_a_plain_list() {
        let mut table = ResidualTable::default();
        assert_eq!(table.mean_residual_s(1.0), None);
        let mut plain: Vec<f64> = Vec::new();
        let mut state = 1_u64;
        for _ in 0..2_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Few values, so that many are equal.
            let gap_s = ((state >> 40) % 700) as f64 * 60.0 + 1.0;
            table.insert(gap_s);
            plain.push(gap_s);
            let elapsed_s = ((state >> 20) % 50_000) as f64;
            let left: Vec<f64> = plain.iter().filter(|g| **g > elapsed_s).map(|g| g - elapsed_s).collect();
            let expected = match left.len() {
                0 => plain.iter().sum::<f64>() / plain.len() as f64,
                n => left.iter().sum::<f64>() / n as f64,
            };
            let found = table.mean_residual_s(elapsed_s).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-9, "{} gaps, {elapsed_s}: {found}, {expected}", plain.len());
            if plain.len() % 100 == 1 {
                let at_once = ResidualTable::of(plain.clone()).mean_residual_s(elapsed_s).unwrap();
                assert!((at_once / expected - 1.0).abs() < 1e-9, "{} gaps at once: {at_once}", plain.len());
            }
        }
        assert_eq!(ResidualTable::of(Vec::new()).mean_residual_s(1.0), None);
    }
}
