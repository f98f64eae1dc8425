//! Splits whole numbers by weight without losing any.

/// Parts of `total` by weight that add up to it exactly; the heaviest takes what rounding leaves. Without any
/// weight the last takes all.
pub(crate) fn split(total: u64, weights: &[f64]) -> Vec<u64> {
    let sum: f64 = weights.iter().sum();
    let mut parts = vec![0; weights.len()];
    let heaviest = (0..weights.len()).max_by(|a, b| weights[*a].total_cmp(&weights[*b]));
    let mut left = total;
    if sum > 0.0 {
        for (part, weight) in parts.iter_mut().zip(weights) {
            *part = ((total as f64 * (weight / sum)) as u64).min(left);
            left -= *part;
        }
    }
    let taker = if sum > 0.0 { heaviest } else { weights.len().checked_sub(1) };
    if let Some(taker) = taker {
        parts[taker] += left;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_split_loses_nothing(total: u64, weights in prop::collection::vec(0.0..1e9_f64, 1..20)) {
            let parts = split(total, &weights);
            prop_assert_eq!(parts.iter().map(|p| u128::from(*p)).sum::<u128>(), u128::from(total));
        }
    }
}
