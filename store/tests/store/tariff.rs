//! What energy costs by the hour, and who may wait for better ones.

use super::{UID, batch, both, ended, phase, records, started};
use protocol::{Event, Phase, Plan, RunAccount};
use store::account::{Wanted, accounts};
use tariff::{Rates, Tariff};

#[test]
fn energy_is_priced_at_the_rates_of_its_hours_and_what_was_told_by_no_phase_at_the_mean() {
    const KWH_J: f64 = 3.6e6;
    let row = |from: &str, until: &str, price: f64| format!("1970-01-01T{from}Z,1970-01-01T{until}Z,{price},\n");
    let rows = [row("00:01:40", "00:03:20", 0.1), row("00:03:20", "00:05:00", 0.3)].concat();
    let text = format!("start,end,price_per_kwh,co2_g_per_kwh\n{rows}");
    let tariff = Tariff::parse(&text, Rates::default()).expect("a tariff");
    both(|store| {
        let events = vec![
            started(7, 0, &["n1"]),
            phase(Phase::Compute, "n1", (100.0, 200.0), 2.0 * KWH_J),
            phase(Phase::Checkpoint, "n1", (150.0, 250.0), 4.0 * KWH_J),
        ];
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let later = vec![started(8, 0, &["n1"]), phase(Phase::Compute, "n1", (250.0, 350.0), KWH_J)];
        store.append(&batch("8.1", records(1, later)), UID).expect("stored");
        let told = |brief, tariff| {
            let wanted = Wanted { brief, ..Wanted::default() };
            accounts(store.connection(), &wanted, None, tariff).expect("accounts")
        };
        for brief in [true, false] {
            let runs = told(brief, Some(&tariff));
            let bills = |run: &RunAccount| [run.total.bill, run.total.resilience_bill].map(|bill| bill?.price);
            let [whole, resilience] = bills(&runs[0]).map(|price| price.expect("a price"));
            assert!((whole - (2.0 * 0.1 + 4.0 * 0.2)).abs() < 1e-9 && (resilience - 0.8).abs() < 1e-9, "{whole}");
            assert_eq!(runs[0].total.bill.map(|bill| bill.co2_g), Some(None), "no carbon is known");
            let is_by_hours = runs.iter().map(|run| run.total.bill.is_some_and(|bill| bill.is_by_hours));
            assert_eq!(is_by_hours.collect::<Vec<_>>(), [true, false]);
            assert_eq!(bills(&runs[1]), [None, Some(0.0)], "of half of its time no price is known");
            assert!(told(brief, None).iter().all(|run| run.total.bill.is_none()));
        }
    });
}

#[test]
fn a_run_that_may_wait_is_found_with_the_time_that_it_has_waited() {
    both(|store| {
        let plan =
            |flexible_s: Option<f64>| Event::Planned(Box::new(Plan { flexible_s, ..super::calibrations::plan("app") }));
        let lives = vec![started(7, 0, &["n1"]), plan(Some(3600.0)), ended("requeued"), started(7, 1, &["n2"])];
        store.append(&batch("7.1", records(1, lives)), UID).expect("stored");
        store.append(&batch("8.1", records(1, vec![started(8, 0, &["n1"]), plan(None)])), UID).expect("stored");
        let found = store.flexible_runs().expect("runs");
        let told: Vec<_> = found.iter().map(|may| (may.run.job, may.run.restart_count, may.plan.flexible_s)).collect();
        assert_eq!(told, [(7, 1, Some(3600.0))]);
        assert_eq!(found[0].waited_s, 1.0, "{found:?}");
    });
}
