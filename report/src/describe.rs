//! One run as text: what its user wants to know first, then phase by phase, prediction beside measurement.

use crate::accounted::{Joined, Lending};
use crate::columns::{percent, share, state};
use crate::sheet::printable;
use crate::words::{counted, energy, folded, hanging, volume};
use options::spoken;
use planner::Modelled;
use planner::expected_checkpoint_j;
use planner::restart::{requeued_s, restart_s};
use protocol::{CheckpointAccount, FailureAccount, Phase, Plan, RunAccount, Told};
use tariff::KWH_J;

/// What stands for a figure that is not known.
const NOT_YET: &str = "not yet known";

/// One run.
pub fn describe(line: &Joined) -> String {
    let run = &line.run;
    let parts = [
        summary(line),
        phases(line),
        overhead(run),
        line.lending.as_ref().and_then(|l| l.model.as_ref()).map(beside_the_model).unwrap_or_default(),
        repeated(run),
        stops(run),
        accounting(line),
        records(run),
    ];
    let text = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
    text.split('\n').map(|line| folded(&printable(line))).collect::<Vec<_>>().join("\n")
}

/// The first lines, in the form of seff.
fn summary(line: &Joined) -> String {
    let (run, t) = (&line.run, &line.run.total);
    let mut text = String::new();
    let mut told = |name: &str, value: String| text += &hanging(&format!("{name}:"), &value);
    let or_none = |text: &str| if text.is_empty() { "none".to_string() } else { text.to_string() };
    told("Job ID", format!("{} on {}, run {}", run.job_id, run.cluster, run.run));
    told("Job name", run.job_name.clone());
    told("User", format!("{}, account {}, partition {}", run.user, or_none(&run.account), or_none(&run.partition)));
    let exit = line.slurm.as_ref().map_or_else(String::new, |slurm| format!(" (exit code {})", slurm.exit_code));
    told("State", format!("{}{exit}", state(run)));
    told("Elapsed", format!("{}, {} of it on nodes", spoken(t.elapsed_s), spoken(t.held_s)));
    told("Energy", whole(run));
    let price = |cost: Option<super::cost::Cost>| cost.and_then(|c| c.told(&line.cost.currency));
    if let Some(cost) = price(line.cost.whole) {
        let of_it = price(line.cost.resilience).map_or_else(String::new, |part| format!("; resilience {part}"));
        let by =
            if line.run.total.bill.is_some_and(|bill| bill.is_by_hours) { "; by the rates of its hours" } else { "" };
        told("Cost", format!("{cost}{of_it}{by}"));
    }
    told("Resilience", resilience(run));
    let protection = run.protection.as_ref().map_or_else(|| "unknown".to_string(), protection::line);
    told("Protection", protection);
    let (failures, others) = parted(run);
    told(
        "Events",
        format!(
            "{}, {}, {}, {}",
            counted(run.records.len() as u64, "record"),
            counted(failures.len() as u64, "failure"),
            counted(others.len() as u64, "other stop"),
            counted(run.checkpoints.len() as u64, "checkpoint")
        ),
    );
    whose(run).into_iter().for_each(|note| told("Note", note.to_string()));
    text
}

/// The energy of a run, and how it is known.
fn whole(run: &RunAccount) -> String {
    let Some(joules) = run.total.joules else { return NOT_YET.to_string() };
    let sources = sources(run);
    let by = match run.told() {
        Told::NotYet => String::new(),
        Told::Estimated => ", estimated: this node has no counter (source model)".to_string(),
        told => format!(", {} (source {sources})", told.as_str()),
    };
    format!("{} ({:.4} kWh){by}", energy(joules), joules / KWH_J)
}

fn sources(run: &RunAccount) -> String {
    let mut all: Vec<&str> =
        run.phases.iter().flat_map(|p| p.source.split(',')).filter(|source| !source.is_empty()).collect();
    all.sort_unstable();
    all.dedup();
    all.join(", ")
}

/// What resilience took of it, and by what.
fn resilience(run: &RunAccount) -> String {
    let Some(all) = run.total.resilience_j else { return NOT_YET.to_string() };
    let is_part = |p: &&protocol::PhaseAccount| p.phase != Phase::Compute && p.joules.is_some_and(|j| j > 0.0);
    let part = |p: &protocol::PhaseAccount| {
        format!("{} {}", p.phase.as_str().replace('_', " "), energy(p.joules.unwrap_or(0.0)))
    };
    let parts: Vec<String> = run.phases.iter().filter(is_part).map(part).collect();
    let of_it = share(Some(all), run.total.joules).map_or_else(String::new, |s| format!(", {:.2}% of it", 100.0 * s));
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!("{}{of_it}{parts}", energy(all))
}

/// Failures, which count into the MTBF, and what else stopped the run.
fn parted(run: &RunAccount) -> (Vec<&FailureAccount>, Vec<&FailureAccount>) {
    run.failures.iter().partition(|f| f.counts)
}

fn phases(line: &Joined) -> String {
    let (run, t) = (&line.run, &line.run.total);
    let mut text =
        format!("{:<16} {:>14} {:>8} {:>14}  {}\n", "Phase", "Energy (J)", "Share", "Node-seconds", "Source");
    let joules = |value: Option<f64>| value.map_or("-".to_string(), |j| format!("{j:.1}"));
    for p in &run.phases {
        let share = share(p.joules, t.joules).map_or("-".to_string(), |s| format!("{:.2}%", 100.0 * s));
        let source = if p.source.is_empty() { "-" } else { &p.source };
        let name = p.phase.as_str().replace('_', " ");
        text += &format!("{name:<16} {:>14} {share:>8} {:>14.1}  {source}\n", joules(p.joules), p.node_seconds);
    }
    let sum = match run.told() {
        Told::NotYet => "in all",
        told => told.as_str(),
    };
    text += &format!("{sum:<16} {:>14}\n", joules(t.joules));
    if let Some(metered_j) = t.metered_j {
        text += &format!("{:<16} {metered_j:>14.1}  by the nodes' services themselves\n", "metered");
    }
    text + &line.lending.as_ref().filter(|l| l.lent.loans > 0).map(lent).unwrap_or_default()
}

fn overhead(run: &RunAccount) -> String {
    let (t, plan) = (&run.total, run.plan.as_ref());
    let told = run.told().as_str();
    let mut text = "Overhead against a run without failures and checkpoints\n".to_string();
    text += &format!(
        "  energy: {}, predicted {}\n",
        t.energy_overhead.map_or_else(|| NOT_YET.to_string(), |o| format!("{told} {}", percent(Some(o)))),
        percent(plan.map(|p| p.expected_energy_overhead))
    );
    text += &format!(
        "  time:   {}, predicted {}\n",
        t.time_overhead.map_or_else(|| NOT_YET.to_string(), |o| format!("measured {}", percent(Some(o)))),
        percent(plan.map(|p| p.expected_time_overhead))
    );
    text + &plan.map(|plan| beside_the_plan(run, plan)).unwrap_or_default() + &volumes(run)
}

/// How large checkpoints are, and what of it had to be written.
fn volumes(run: &RunAccount) -> String {
    let Some(kept) = mean(run.checkpoints.iter().map(|c| c.bytes as f64)) else { return String::new() };
    let written = mean(run.checkpoints.iter().map(|c| c.written_bytes.unwrap_or(c.bytes) as f64)).unwrap_or(kept);
    let written = match written < kept {
        true => format!(" each, {} of it written: the rest had not changed", volume(written)),
        false => " each".to_string(),
    };
    format!("  volume:     {}{written}\n", volume(kept))
}

fn mean(of: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = of.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// What checkpoints and restarts took, beside what the plan expected.
fn beside_the_plan(run: &RunAccount, plan: &Plan) -> String {
    let seconds = |s: f64| spoken((s * 10.0).round() / 10.0);
    let known = |value: Option<f64>, told: fn(f64) -> String| value.map_or("none yet".to_string(), told);
    let of = |what: fn(&CheckpointAccount) -> Option<f64>| mean(run.checkpoints.iter().filter_map(what));
    let still = of(|c| c.still_s).map_or_else(String::new, |s| format!(", the program stood still for {}", seconds(s)));
    let took = of(|c| Some(c.seconds)).map_or("none yet".to_string(), seconds);
    let restart = restart_s(run).map_or("none yet".to_string(), seconds);
    format!(
        "  checkpoint: {took}{still}; predicted {} (from: {})\n              {}, predicted {} (from: {})\n  \
         restart:    {restart}; predicted {} (from: {})\n  \
         first interval {}; in the queue between records {}\n",
        seconds(plan.checkpoint_s.value),
        plan.checkpoint_s.from,
        known(of(|c| c.joules), energy),
        energy(expected_checkpoint_j(run, plan)),
        plan.checkpoint_w.from,
        seconds(plan.restart_s.value),
        plan.restart_s.from,
        spoken(plan.interval_s.round()),
        seconds(requeued_s(run)),
    )
}

/// What was decided that its user must know of.
fn repeated(run: &RunAccount) -> String {
    let section = |(action, heading): (&str, &str)| {
        let decided = run.decisions.iter().filter(|d| d.action == action);
        let lines: String = decided.map(|d| format!("  {}\n", d.reason)).collect();
        if lines.is_empty() { lines } else { format!("{heading}\n{lines}") }
    };
    let told = [(driver::setup::REPEATED_WORK, "Repeated work"), (planner::TOGETHER, "All groups went back together")];
    told.into_iter().map(section).collect()
}

/// The failures that the summary counts, and the other stops, each under its own heading.
fn stops(run: &RunAccount) -> String {
    let (failures, others) = parted(run);
    let section = |heading: &str, of: &[&FailureAccount]| {
        let line = |f: &&FailureAccount| {
            let kind = f.kind.replace('_', " ");
            format!(
                "  {kind}: {}, noticed after {}\n",
                f.reason,
                spoken((f.detection_s * 10.0).round().max(0.0) / 10.0)
            )
        };
        let lines: String = of.iter().map(line).collect();
        if lines.is_empty() { lines } else { format!("{heading}\n{lines}") }
    };
    section("Failures", &failures) + &section("Other stops (not counted into the MTBF)", &others)
}

fn accounting(line: &Joined) -> String {
    let Some(slurm) = &line.slurm else { return String::new() };
    let consumed = slurm.consumed_j.map_or("not measured".to_string(), |j| format!("{j:.1} J"));
    format!(
        "Slurm's accounting: {}, exit code {}, {} on {}, energy {consumed}\n",
        slurm.state,
        slurm.exit_code,
        options::format_time(slurm.elapsed_s),
        counted(slurm.nodes as u64, "node")
    )
}

fn records(run: &RunAccount) -> String {
    let mut text = "Records\n".to_string();
    for r in &run.records {
        let seconds = r.end_s.map_or_else(|| "runs".to_string(), |e| spoken((e - r.start_s).round()));
        text += &format!("  restart {} on {}: {} ({seconds})\n", r.restart_count, r.nodes.join(","), r.state);
    }
    text
}

/// Who says what is shown, where it is the run's user alone.
pub fn whose(run: &RunAccount) -> Option<&'static str> {
    match run {
        RunAccount { job: 0, .. } => Some("It ran outside Slurm: all of this is its user's word."),
        RunAccount { verified: false, .. } => {
            Some("Slurm does not say that the job is this user's: all of this is the user's word.")
        }
        _ => None,
    }
}

/// What was lent: a line below those of the phases, since its energy is the borrowers'.
fn lent(lending: &Lending) -> String {
    let sum = &lending.lent;
    let used = sum.used_j.map_or("-".to_string(), |j| format!("{j:.1}"));
    format!(
        "{:<16} {used:>14} {:>8} {:>14.1}  the borrowers', in {:.1} node-seconds; idle, the nodes would have drawn {:.1} J\n",
        "lent", "-", sum.node_seconds, sum.used_node_seconds, sum.would_idle_j
    )
}

/// Waste beside what Bouteiller13 predicts from the figures of this run.
fn beside_the_model(model: &Modelled) -> String {
    let (app, plat) = (model.app, model.plat);
    let figures = model.figures().map(|(name, f)| {
        let of = if f.from == "measured" { String::new() } else { format!(" ({})", f.from) };
        format!("{name} {:.4}{of}", f.value)
    });
    let mut text = format!(
        "Waste of node-seconds, beside Bouteiller13 with this run's figures\n  \
         application, had it kept its nodes: measured {}, predicted {}\n  \
         platform, with what was lent:       measured {}, predicted {}\n  \
         {}\n",
        percent(Some(app.measured)),
        percent(app.predicted),
        percent(Some(plat.measured)),
        percent(plat.predicted),
        figures.join(", ")
    );
    if let Some(share) = model.lent_share {
        text += &format!(
            "  beyond the break-even the lent nodes waited {:.1} node-seconds, and were away for {} of that\n",
            model.beyond_node_s,
            percent(Some(share))
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounted::alone;
    use config::Accounting;
    use serde_json::{Value, json};

    fn described(changes: Value, site: &Accounting) -> String {
        let mut run = json!({
            "cluster": "c", "run": "11.1", "job": 11, "job_id": "9_2", "user": "alice", "account": "physics",
            "partition": "all", "job_name": "heat", "state": "completed", "start_s": 100.0, "end_s": 3800.0,
            "total": protocol::Totals::default(), "phases": [], "records": [], "failures": [], "checkpoints": [],
            "plan": null
        });
        for (key, value) in changes.as_object().expect("an object") {
            run[key] = value.clone();
        }
        let run = serde_json::from_value(run).expect("a run");
        describe(&alone(vec![run], site)[0])
    }

    fn phase(phase: &str, joules: Value, source: &str) -> Value {
        json!({ "phase": phase, "joules": joules, "node_seconds": 5.0, "source": source })
    }

    #[test]
    fn a_run_of_which_nothing_was_read_shows_no_zero() {
        let changes = json!({
            "state": "running", "end_s": null, "phases": [phase("compute", Value::Null, "")],
            "records": [{ "job": 11, "restart_count": 0, "start_s": 100.0, "end_s": null, "state": "running", "nodes": ["n1"] }]
        });
        let text = described(changes, &Accounting::default());
        for line in [
            "Job ID:     9_2 on c",
            "State:      RUNNING",
            "Energy:     not yet known",
            "compute                       -",
        ] {
            assert!(text.contains(line), "'{line}' is not in:\n{text}");
        }
        assert!(!text.contains("measured") && !text.contains("0.0 J") && !text.contains(" 0.00%"), "{text}");
    }

    #[test]
    fn an_estimate_is_not_called_measured_and_a_counter_is() {
        let total = json!({
            "joules": 7.2e6, "resilience_j": 3.6e5, "recomputed_j": 0.0, "recomputed_node_s": 0.0, "elapsed_s": 3700.0,
            "held_s": 3600.0, "failures": 0, "checkpoints": 0, "energy_overhead": 0.05, "time_overhead": 0.1
        });
        let of = |source: &str| {
            let phases = [phase("compute", json!(6.84e6), source), phase("checkpoint", json!(3.6e5), source)];
            let site = Accounting {
                price_per_kwh: Some(0.5),
                currency: "EUR".into(),
                co2_g_per_kwh: Some(400.0),
                ..Accounting::default()
            };
            described(json!({ "total": total, "phases": phases }), &site)
        };
        let (model, rapl) = (of("model"), of("rapl"));
        assert!(model.contains("Energy:     7.20 MJ (2.0000 kWh), estimated"), "{model}");
        assert!(model.contains("energy: estimated 5.00%") && model.contains("\nestimated "), "{model}");
        assert!(rapl.contains("measured (source rapl)") && rapl.contains("energy: measured 5.00%"), "{rapl}");
        assert!(rapl.contains("Cost:       1.00 EUR, 800.0 g CO2; resilience 0.05 EUR, 40.0 g CO2"), "{rapl}");
        assert!(rapl.contains("Resilience: 360 kJ, 5.00% of it: checkpoint 360 kJ"), "{rapl}");
        assert!(rapl.contains("Elapsed:    1 h 1 min, 1 h of it on nodes"), "{rapl}");
        assert!(rapl.lines().all(|l| l.chars().count() <= 80), "{rapl}");
    }

    #[test]
    fn what_was_written_stands_beside_what_is_kept() {
        let of = |written: [Value; 2]| {
            let checkpoint = |bytes: f64, written: &Value| json!({ "number": 1, "begun_s": 1.0, "seconds": 1.0, "bytes": bytes as u64, "written_bytes": written, "joules": null, "still_s": null });
            let both = [checkpoint(12e9, &written[0]), checkpoint(14e9, &written[1])];
            described(json!({ "checkpoints": both }), &Accounting::default())
        };
        let (all, some) = (of([Value::Null, Value::Null]), of([json!(12_000_000_000u64), json!(2_000_000_000u64)]));
        assert!(all.contains("  volume:     13.0 GB each\n"), "{all}");
        assert!(
            some.contains("  volume:     13.0 GB each, 7.00 GB of it written: the rest had not changed\n"),
            "{some}"
        );
        assert!(!described(json!({}), &Accounting::default()).contains("volume"), "no checkpoint has none");
    }

    #[test]
    fn what_the_summary_counts_is_what_the_sections_list() {
        let stop = |kind: &str, counts: bool| json!({ "kind": kind, "node": null, "at_s": 200.0, "detection_s": 3.2, "counts": counts, "reason": "seen" });
        let all = [("node", true), ("cancelled", false), ("batch_host", true), ("step", false), ("node", true)];
        for number in 0..=all.len() {
            let failures: Vec<Value> = all[..number].iter().map(|(kind, counts)| stop(kind, *counts)).collect();
            let text = described(json!({ "failures": failures }), &Accounting::default());
            let listed = |heading: &str| {
                let section = text.split_once(&format!("\n{heading}")).map_or("", |(_, rest)| rest);
                section.lines().skip(1).take_while(|l| l.starts_with("  ")).count()
            };
            let told =
                [counted(listed("Failures") as u64, "failure"), counted(listed("Other stops") as u64, "other stop")];
            assert!(text.contains(&told.join(", ")), "{told:?} is not in:\n{text}");
            assert_eq!(listed("Failures") + listed("Other stops"), number, "{text}");
        }
    }
}
