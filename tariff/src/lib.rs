//! Prices and carbon of electricity that change with time: read from a site's file, averaged over a time, and whether a run
//! that may wait is better off waiting for others.

mod file;
mod pause;
mod table;

pub use file::TariffFile;
pub use pause::{Pause, Waiting};
pub use table::Wrong;

use serde::Deserialize;

/// Joules of a kilowatt-hour.
pub const KWH_J: f64 = 3.6e6;

/// What a kilowatt-hour costs; absent where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Price, in the site's currency.
    pub price_per_kwh: Option<f64>,
    /// Carbon dioxide, g.
    pub co2_g_per_kwh: Option<f64>,
}

/// What is to be made least by waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aim {
    /// What the energy costs.
    #[default]
    Price,
    /// The carbon dioxide of it.
    Co2,
}

impl Rates {
    fn of(&self, aim: Aim) -> Option<f64> {
        match aim {
            Aim::Price => self.price_per_kwh,
            Aim::Co2 => self.co2_g_per_kwh,
        }
    }
}

/// A time with the same rates, seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    start_s: f64,
    end_s: f64,
    rates: Rates,
}

/// Rates by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tariff {
    /// In order of time, without overlap.
    stretches: Vec<Stretch>,
    /// The rates of all other times.
    otherwise: Rates,
}

impl Tariff {
    /// The mean rates of a time, seconds since 1970, as if power were constant in it; of a moment if it ends where it begins.
    /// A rate that is not known for all of it is absent. And whether the file has all of that time.
    pub fn mean(&self, start_s: f64, end_s: f64) -> (Rates, bool) {
        let (mut at_s, mut price, mut co2, mut is_whole) = (start_s, Sum::default(), Sum::default(), true);
        let mut add = |seconds: f64, rates: &Rates| {
            price.add(seconds, rates.price_per_kwh);
            co2.add(seconds, rates.co2_g_per_kwh);
        };
        let first = self.stretches.partition_point(|stretch| stretch.end_s <= start_s);
        for stretch in self.stretches[first..].iter().take_while(|stretch| stretch.start_s < end_s) {
            if stretch.start_s > at_s {
                is_whole = false;
                add(stretch.start_s - at_s, &self.otherwise);
            }
            let until_s = stretch.end_s.min(end_s);
            add(until_s - at_s.max(stretch.start_s), &stretch.rates);
            at_s = until_s;
        }
        if at_s < end_s {
            is_whole = false;
            add(end_s - at_s, &self.otherwise);
        } else if end_s <= start_s {
            let within = self.stretches.get(first).filter(|stretch| stretch.start_s <= start_s);
            return (within.map_or(self.otherwise, |stretch| stretch.rates), within.is_some());
        }
        (Rates { price_per_kwh: price.mean(), co2_g_per_kwh: co2.mean() }, is_whole)
    }

    /// Until when the file has rates, seconds since 1970; absent if it has none.
    pub fn until_s(&self) -> Option<f64> {
        self.stretches.last().map(|last| last.end_s)
    }
}

/// Seconds, and a rate added up over them.
#[derive(Default)]
struct Sum {
    seconds: f64,
    total: f64,
    is_unknown: bool,
}

impl Sum {
    fn add(&mut self, seconds: f64, rate: Option<f64>) {
        self.seconds += seconds;
        self.total += rate.unwrap_or(0.0) * seconds;
        self.is_unknown |= rate.is_none() && seconds > 0.0;
    }

    fn mean(&self) -> Option<f64> {
        (!self.is_unknown && self.seconds > 0.0).then(|| self.total / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn price(price: f64) -> Rates {
        Rates { price_per_kwh: Some(price), co2_g_per_kwh: None }
    }

    fn tariff(otherwise: Rates) -> Tariff {
        let of = |start_s, end_s, rate| Stretch { start_s, end_s, rates: price(rate) };
        Tariff { stretches: vec![of(0.0, 100.0, 1.0), of(100.0, 200.0, 3.0), of(300.0, 400.0, 5.0)], otherwise }
    }

    #[test]
    fn a_mean_is_weighted_by_time_and_unknown_where_any_of_it_is() {
        let mean = |tariff: &Tariff, start_s, end_s| tariff.mean(start_s, end_s).0.price_per_kwh;
        let (alone, with_flat) = (tariff(Rates::default()), tariff(price(2.0)));
        for (start_s, end_s, of_alone, of_both) in [
            (0.0, 100.0, Some(1.0), Some(1.0)),
            (50.0, 150.0, Some(2.0), Some(2.0)),
            (150.0, 150.0, Some(3.0), Some(3.0)),
            (100.0, 100.0, Some(3.0), Some(3.0)),
            (150.0, 350.0, None, Some((50.0 * 3.0 + 100.0 * 2.0 + 50.0 * 5.0) / 200.0)),
            (250.0, 250.0, None, Some(2.0)),
            (-50.0, 50.0, None, Some(1.5)),
            (350.0, 450.0, None, Some(3.5)),
            (900.0, 901.0, None, Some(2.0)),
        ] {
            assert_eq!(mean(&alone, start_s, end_s), of_alone, "{start_s} to {end_s}");
            assert_eq!(mean(&with_flat, start_s, end_s), of_both, "{start_s} to {end_s}");
        }
        assert_eq!(alone.mean(0.0, 50.0).0.co2_g_per_kwh, None, "the file has no carbon");
        let is_whole = |start_s, end_s| with_flat.mean(start_s, end_s).1;
        assert_eq!([is_whole(50.0, 150.0), is_whole(150.0, 350.0), is_whole(250.0, 250.0)], [true, false, false]);
        assert_eq!((alone.until_s(), Tariff::default().until_s()), (Some(400.0), None));
    }

    proptest! {
        #[test]
        fn what_two_times_cost_is_what_both_cost_together(start in -100.0..500.0, a in 1.0..300.0, b in 1.0..300.0) {
            let tariff = tariff(price(2.0));
            let cost = |from: f64, until: f64| tariff.mean(from, until).0.price_per_kwh.unwrap_or(f64::NAN) * (until - from);
            let (parts, whole) = (cost(start, start + a) + cost(start + a, start + a + b), cost(start, start + a + b));
            prop_assert!((parts - whole).abs() < 1e-6 * whole, "{parts} {whole}");
        }
    }
}
