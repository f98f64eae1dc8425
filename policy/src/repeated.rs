//! Sums up repeated measurements: outliers by the median and its deviation, mean, 95 % confidence interval.

/// A value farther than this many (scaled) median absolute deviations from the median is an outlier.
const OUTLIER: f64 = 3.5;

/// The median absolute deviation of a normal distribution, as a part of its standard deviation.
const MAD_OF_NORMAL: f64 = 0.674_489_750_196_081_7;

/// Fewer values than this have no outliers.
const FEWEST: usize = 4;

/// Student's t at 97.5 % for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// What repeated measurements of one thing say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Mean of those that count.
    pub mean: f64,
    /// Standard deviation of one of them; 0 for a single one.
    pub deviation: f64,
    /// Half width of the 95 % confidence interval of the mean; infinite for a single one.
    pub half_width: f64,
    /// How many count.
    pub count: usize,
    /// How many were left out.
    pub outliers: usize,
}

impl Summary {
    /// Whether the interval is narrower than a fraction of the mean.
    pub fn is_within(&self, fraction: f64) -> bool {
        self.half_width <= fraction * self.mean.abs()
    }
}

/// Student's t at 97.5 %.
pub fn student(degrees: usize) -> f64 {
    match degrees {
        0 => f64::INFINITY,
        d => STUDENT.get(d - 1).copied().unwrap_or(1.96),
    }
}

/// The middle value; of an even number the mean of the two. None of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { *upper } else { 0.5 * (sorted[middle - 1] + upper) })
}

/// Sums up; None where no value is finite. More than half of equal values have no deviation and no outliers.
pub fn summarize(values: &[f64]) -> Option<Summary> {
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let middle = median(&finite)?;
    let distances: Vec<f64> = finite.iter().map(|v| (v - middle).abs()).collect();
    let limit = OUTLIER * median(&distances)? / MAD_OF_NORMAL;
    let kept: Vec<f64> = match finite.len() >= FEWEST && limit > 0.0 {
        true => finite.iter().copied().filter(|v| (v - middle).abs() <= limit).collect(),
        false => finite.clone(),
    };
    let n = kept.len() as f64;
    let mean = kept.iter().sum::<f64>() / n;
    let squares: f64 = kept.iter().map(|v| (v - mean) * (v - mean)).sum();
    let deviation = if kept.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 };
    let half_width = if kept.len() > 1 { student(kept.len() - 1) * deviation / n.sqrt() } else { f64::INFINITY };
    Some(Summary { mean, deviation, half_width, count: kept.len(), outliers: values.len() - kept.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlier_is_left_out_and_counted() {
        let s = summarize(&[1.00, 1.01, 0.99, 1.02, 9.0]).unwrap();
        assert_eq!((s.count, s.outliers), (4, 1));
        assert!((s.mean - 1.005).abs() < 1e-12 && s.is_within(0.05), "{s:?}");
    }

    #[test]
    fn few_values_and_equal_ones_have_no_outliers() {
        assert_eq!(summarize(&[1.0, 1.0, 50.0]).unwrap().outliers, 0);
        assert_eq!(summarize(&[1.0, 1.0, 1.0, 1.0, 1.2]).unwrap().outliers, 0);
        assert_eq!(summarize(&[]), None);
        assert_eq!(summarize(&[f64::NAN]), None);
        assert!(!summarize(&[1.0]).unwrap().is_within(0.05), "one value tells nothing of its spread");
    }

    #[test]
    fn the_interval_is_students() {
        let s = summarize(&[9.0, 10.0, 11.0]).unwrap();
        assert!((s.half_width - 4.303 / 3.0_f64.sqrt()).abs() < 1e-12, "{s:?}");
        assert_eq!(student(1000), 1.96);
    }
}
