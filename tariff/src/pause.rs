//! Whether a run that may wait is better off waiting: the hours of least cost in the time that it has, less what each pause
//! costs.

use crate::{Aim, Stretch, Tariff};

/// The least part of its cost that a pause must save.
const LEAST_SAVING: f64 = 0.05;

/// How many times as long as it takes to leave and come back a pause must be.
const LEAST_PAUSE: f64 = 10.0;

/// A run that may wait. Times in s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waiting {
    /// Now, since 1970.
    pub now_s: f64,
    /// Time that it needs its nodes for.
    pub work_s: f64,
    /// Time that it may still wait.
    pub slack_s: f64,
    /// Time that a pause takes on the nodes: a checkpoint and a restart.
    pub pause_s: f64,
}

/// That it is better off waiting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pause {
    /// Until when, s since 1970.
    pub until_s: f64,
    /// The part of the cost that this is expected to save; costs of nothing or less, as all of it.
    pub saving: f64,
}

/// One way to spend the time that a run has.
struct Way {
    starts_s: f64,
    cost: f64,
}

impl Tariff {
    /// Whether a run is better off waiting, and until when: none if not, or if too little is known of the time to come.
    ///
    /// Two kinds of ways are compared with going on: to wait once, for any moment at which the rate changes, and to run in
    /// the cheapest times alone, with a pause before each. Costs are rates times seconds: power is taken to be constant.
    pub fn pause(&self, aim: Aim, run: &Waiting) -> Option<Pause> {
        let times = self.times(aim, run.now_s, run.now_s + run.work_s + run.slack_s);
        let known_s = times.last()?.1 - run.now_s;
        // What lies beyond the known time costs the same either way.
        let slack_s = run.slack_s.min(known_s / 2.0);
        let work_s = run.work_s.min(known_s - slack_s);
        if !(work_s > 0.0 && slack_s > 0.0) {
            return None;
        }
        let going_on = contiguous(&times, run.now_s, work_s);
        let rate_s =
            run.pause_s * times.iter().map(|(from_s, until_s, rate)| (until_s - from_s) * rate).sum::<f64>() / known_s;
        let once = times
            .iter()
            .filter(|time| time.0 > run.now_s && time.0 <= run.now_s + slack_s)
            .map(|time| Way { starts_s: time.0, cost: contiguous(&times, time.0, work_s) + rate_s });
        let best =
            once.chain([cheapest(&times, run.now_s, work_s, rate_s)]).min_by(|a, b| a.cost.total_cmp(&b.cost))?;
        let saving = if going_on > 0.0 { (going_on - best.cost) / going_on } else { 1.0 };
        let pays = best.cost < going_on && saving >= LEAST_SAVING;
        let lasts = best.starts_s - run.now_s >= LEAST_PAUSE * run.pause_s && best.starts_s > run.now_s;
        (pays && lasts).then_some(Pause { until_s: best.starts_s, saving: saving.min(1.0) })
    }

    /// The times from now on with their rates, as far as the file has them without a gap.
    fn times(&self, aim: Aim, now_s: f64, until_s: f64) -> Vec<(f64, f64, f64)> {
        let mut times: Vec<(f64, f64, f64)> = Vec::new();
        let first = self.stretches.partition_point(|stretch| stretch.end_s <= now_s);
        for Stretch { start_s, end_s, rates } in &self.stretches[first..] {
            let from_s = times.last().map_or(now_s, |last| last.1);
            let (Some(rate), true) = (rates.of(aim), *start_s <= from_s && from_s < until_s) else { break };
            times.push((from_s, end_s.min(until_s), rate));
        }
        times
    }
}

fn contiguous(times: &[(f64, f64, f64)], from_s: f64, work_s: f64) -> f64 {
    let until_s = from_s + work_s;
    times.iter().map(|(a_s, b_s, rate)| (b_s.min(until_s) - a_s.max(from_s)).max(0.0) * rate).sum()
}

/// To run in the cheapest times alone, the earlier of two alike first.
fn cheapest(times: &[(f64, f64, f64)], now_s: f64, work_s: f64, pause_cost: f64) -> Way {
    let mut by_rate: Vec<&(f64, f64, f64)> = times.iter().collect();
    by_rate.sort_by(|a, b| a.2.total_cmp(&b.2));
    let (mut left_s, mut cost, mut taken) = (work_s, 0.0, Vec::new());
    for (from_s, until_s, rate) in by_rate {
        let seconds = (until_s - from_s).min(left_s);
        if seconds <= 0.0 {
            break;
        }
        left_s -= seconds;
        cost += seconds * rate;
        taken.push((*from_s, from_s + seconds));
    }
    taken.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ends = [now_s].into_iter().chain(taken.iter().map(|t| t.1));
    let pauses = taken.iter().zip(ends).filter(|(time, before_s)| time.0 > *before_s).count();
    Way { starts_s: taken.first().map_or(now_s, |time| time.0), cost: cost + pauses as f64 * pause_cost }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rates;
    use proptest::prelude::*;

    const HOUR_S: f64 = 3600.0;

    fn hours(prices: &[f64]) -> Tariff {
        let stretch = |(at, price): (usize, &f64)| Stretch {
            start_s: at as f64 * HOUR_S,
            end_s: (at + 1) as f64 * HOUR_S,
            rates: Rates { price_per_kwh: Some(*price), co2_g_per_kwh: None },
        };
        Tariff { stretches: prices.iter().enumerate().map(stretch).collect(), otherwise: Rates::default() }
    }

    fn until_h(prices: &[f64], work_h: f64, slack_h: f64, pause_s: f64) -> Option<f64> {
        let run = Waiting { now_s: 0.0, work_s: work_h * HOUR_S, slack_s: slack_h * HOUR_S, pause_s };
        hours(prices).pause(Aim::Price, &run).map(|pause| pause.until_s / HOUR_S)
    }

    #[test]
    fn a_run_waits_for_what_is_cheaper_within_its_slack_and_for_nothing_else() {
        let day = [9.0, 9.0, 3.0, 1.0, 1.0, 9.0];
        for (work_h, slack_h, until, why) in [
            (2.0, 4.0, Some(3.0), "the two cheapest hours"),
            (3.0, 3.0, Some(2.0), "the three cheapest"),
            (2.0, 2.0, Some(2.0), "the third hour is as far as it may wait"),
            (2.0, 0.5, None, "no other hour can be reached"),
            (2.0, 0.0, None, "it may not wait"),
            (0.0, 4.0, None, "nothing is left to do"),
        ] {
            assert_eq!(until_h(&day, work_h, slack_h, 10.0), until, "{why}");
        }
        assert_eq!(until_h(&[1.0, 9.0, 9.0, 9.0], 1.0, 3.0, 10.0), None, "now is cheapest");
        assert_eq!(until_h(&[5.0, 5.0, 5.0, 5.0], 1.0, 3.0, 10.0), None, "all are alike");
        assert_eq!(until_h(&[5.0, 4.9, 4.9, 4.9], 1.0, 3.0, 10.0), None, "too little is saved");
        assert_eq!(until_h(&[9.0, 1.0, 1.0], 1.0, 1.0, 1000.0), None, "leaving and coming back takes too long");
        assert_eq!(until_h(&[2.0, -1.0], 1.0, 1.0, 10.0), Some(1.0), "somebody pays for it to be used");
        assert_eq!(until_h(&[], 1.0, 1.0, 10.0), None, "nothing is known");
        assert_eq!(until_h(&[1.0], 5.0, 1.0, 10.0), None, "nothing of later");
    }

    #[test]
    fn it_pauses_in_the_middle_where_that_pays_and_only_there() {
        let day = [1.0, 9.0, 1.0, 9.0, 1.0];
        assert_eq!(until_h(&day, 3.0, 2.0, 10.0), None, "it goes on for the first hour");
        let now = Waiting { now_s: HOUR_S, work_s: 2.0 * HOUR_S, slack_s: 2.0 * HOUR_S, pause_s: 10.0 };
        assert_eq!(hours(&day).pause(Aim::Price, &now).map(|pause| pause.until_s), Some(2.0 * HOUR_S));
        assert_eq!(hours(&day).pause(Aim::Co2, &now), None, "carbon is not known");
    }

    proptest! {
        #[test]
        fn whoever_does_as_told_is_in_time_and_pays_no_more(
            prices in proptest::collection::vec(0.1..10.0, 24..48), work_h in 1.0..12.0, slack_h in 0.0..12.0,
        ) {
            let tariff = hours(&prices);
            let (work_s, slack_s, pause_s) = (work_h * HOUR_S, slack_h * HOUR_S, 0.0);
            let price = |from_s: f64, until_s: f64| tariff.mean(from_s, until_s).0.price_per_kwh.unwrap_or(f64::NAN) * (until_s - from_s);
            let (mut now_s, mut left_s, mut paid) = (0.0, work_s, 0.0);
            while left_s > 1e-6 {
                let waited_s = now_s - (work_s - left_s);
                let run = Waiting { now_s, work_s: left_s, slack_s: slack_s - waited_s, pause_s };
                match tariff.pause(Aim::Price, &run) {
                    Some(pause) => now_s = pause.until_s,
                    None => {
                        // It is asked again at each hour.
                        let until_s = (((now_s + 1e-6) / HOUR_S).floor() * HOUR_S + HOUR_S).min(now_s + left_s);
                        paid += price(now_s, until_s);
                        (left_s, now_s) = (left_s - (until_s - now_s), until_s);
                    }
                }
            }
            prop_assert!(now_s <= work_s + slack_s + 1e-3, "late: {now_s}");
            prop_assert!(paid <= price(0.0, work_s) * (1.0 + 1e-9), "{paid}");
        }
    }
}
