//! Keeps past gaps in order, so that the mean of what is left of those that outlast an age is found fast.

/// The most gaps in a block.
const LARGEST_BLOCK: usize = 128;

/// Sorted gaps in sorted blocks: a new gap moves one block only.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResidualTable {
    blocks: Vec<Block>,
    /// For each block, how many gaps the blocks after it hold, and their sum.
    after: Vec<(usize, f64)>,
}

#[derive(Clone, Debug)]
struct Block {
    sorted_s: Vec<f64>,
    /// `above_s[i]` is the sum of the gaps from index i on.
    above_s: Vec<f64>,
}

impl Block {
    fn new(sorted_s: Vec<f64>) -> Block {
        let mut sum_s = 0.0;
        let mut above_s = sorted_s.clone();
        for gap_s in above_s.iter_mut().rev() {
            sum_s += *gap_s;
            *gap_s = sum_s;
        }
        Block { sorted_s, above_s }
    }

    fn insert(&mut self, gap_s: f64) {
        let at = self.sorted_s.partition_point(|g| *g <= gap_s);
        self.sorted_s.insert(at, gap_s);
        let rest_s = self.above_s.get(at).copied().unwrap_or(0.0);
        self.above_s.insert(at, rest_s + gap_s);
        self.above_s[..at].iter_mut().for_each(|sum_s| *sum_s += gap_s);
    }

    /// How many gaps it holds from an index on, and their sum.
    fn from(&self, at: usize) -> (usize, f64) {
        (self.sorted_s.len() - at, self.above_s.get(at).copied().unwrap_or(0.0))
    }
}

impl ResidualTable {
    /// Adds a gap.
    pub(crate) fn insert(&mut self, gap_s: f64) {
        if self.blocks.is_empty() {
            self.blocks.push(Block::new(Vec::new()));
            self.after.push((0, 0.0));
        }
        let at = self.block_of(gap_s);
        self.blocks[at].insert(gap_s);
        self.after[..at].iter_mut().for_each(|after| *after = join(*after, (1, gap_s)));
        if self.blocks[at].sorted_s.len() > LARGEST_BLOCK {
            self.split(at);
        }
    }

    fn split(&mut self, at: usize) {
        let mut lower = std::mem::take(&mut self.blocks[at].sorted_s);
        let upper = Block::new(lower.split_off(LARGEST_BLOCK / 2));
        self.after.insert(at, join(self.after[at], upper.from(0)));
        self.blocks[at] = Block::new(lower);
        self.blocks.insert(at + 1, upper);
    }

    /// The first block that ends above a gap, or the last.
    fn block_of(&self, gap_s: f64) -> usize {
        let ends_below = |block: &Block| block.sorted_s.last().is_some_and(|end_s| *end_s <= gap_s);
        self.blocks.partition_point(ends_below).min(self.blocks.len() - 1)
    }

    /// Mean of g - t over the gaps g > t; the mean gap where none is longer.
    pub(crate) fn mean_residual_s(&self, elapsed_s: f64) -> Option<f64> {
        let all = join(*self.after.first()?, self.blocks.first()?.from(0));
        let at = self.block_of(elapsed_s);
        let within = self.blocks[at].sorted_s.partition_point(|g| *g <= elapsed_s);
        match join(self.after[at], self.blocks[at].from(within)) {
            (0, _) => Some(all.1 / all.0 as f64),
            (longer, sum_s) => Some(sum_s / longer as f64 - elapsed_s),
        }
    }
}

/// Counts and sums of two lots.
fn join(a: (usize, f64), b: (usize, f64)) -> (usize, f64) {
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
        }
    }
}
