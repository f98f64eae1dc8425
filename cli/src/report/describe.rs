//! One run as text: phase by phase, prediction beside measurement.

use super::accounted::{Joined, Lending};
use super::columns::{percent, printable};
use planner::Modelled;
use planner::expected_checkpoint_j;
use planner::restart::{requeued_s, restart_s};
use protocol::{CheckpointAccount, RunAccount};

/// One run, phase by phase.
pub fn describe(line: &Joined) -> String {
    let run = &line.run;
    let t = &run.total;
    let mut text = format!(
        "Job {} ({}), run {} on {}, user {}, account {}: {}\n{} in all, {} of it on nodes; {} records, {} failures, {} checkpoints\n{}\n",
        run.job,
        run.job_name,
        run.run,
        run.cluster,
        run.user,
        if run.account.is_empty() { "none" } else { &run.account },
        run.state,
        options::format_time(t.elapsed_s),
        options::format_time(t.held_s),
        run.records.len(),
        t.failures,
        t.checkpoints,
        whose(run).map_or(String::new(), |text| format!("{text}\n"))
    );
    if let Some(protection) = &run.protection {
        text += &format!("Protection: {}\n\n", wrapper::protection::line(protection));
    }
    text += &format!("{:<12} {:>14} {:>7} {:>14}  {}\n", "Phase", "Energy (J)", "Share", "Node-seconds", "Source");
    for p in &run.phases {
        let share = if t.joules > 0.0 { 100.0 * p.joules / t.joules } else { 0.0 };
        let source = if p.source.is_empty() { "-" } else { &p.source };
        text += &format!(
            "{:<12} {:>14.1} {:>6.2}% {:>14.1}  {source}\n",
            p.phase.as_str().replace('_', " "),
            p.joules,
            share,
            p.node_seconds
        );
    }
    text += &format!("{:<12} {:>14.1}\n", "measured", t.joules);
    if let Some(metered_j) = t.metered_j {
        text += &format!("{:<12} {metered_j:>14.1}  the job's counters, as the nodes' services told them\n", "metered");
    }
    text += &line.lending.as_ref().filter(|l| l.lent.loans > 0).map(lent).unwrap_or_default();
    text += "\n";
    let plan = run.plan.as_ref();
    text += "Overhead against a run without failures and checkpoints\n";
    text += &format!(
        "  energy: measured {}, predicted {}\n",
        percent(t.energy_overhead),
        percent(plan.map(|p| p.expected_energy_overhead))
    );
    text += &format!(
        "  time:   measured {}, predicted {}\n",
        percent(t.time_overhead),
        percent(plan.map(|p| p.expected_time_overhead))
    );
    if let Some(plan) = plan {
        let mean = |of: &dyn Fn(&CheckpointAccount) -> Option<f64>, unit: &str| {
            let known: Vec<f64> = run.checkpoints.iter().filter_map(of).collect();
            let mean = known.iter().sum::<f64>() / known.len() as f64;
            if known.is_empty() { "none".to_string() } else { format!("{mean:.2} {unit}") }
        };
        text += &format!(
            "  checkpoint: measured {}, predicted {:.2} s (from: {}); first interval {:.1} s\n",
            mean(&|c| Some(c.seconds), "s"),
            plan.checkpoint_s.value,
            plan.checkpoint_s.from,
            plan.interval_s
        );
        text += &format!(
            "              measured {}, predicted {:.2} J (from: {})\n",
            mean(&|c| c.joules, "J"),
            expected_checkpoint_j(run, plan),
            plan.checkpoint_w.from
        );
        text += &format!(
            "  restart:    measured {}, predicted {:.2} s (from: {}); in the queue between records {:.1} s\n",
            restart_s(run).map_or("none".to_string(), |s| format!("{s:.2} s")),
            plan.restart_s.value,
            plan.restart_s.from,
            requeued_s(run)
        );
    }
    if let Some(model) = line.lending.as_ref().and_then(|l| l.model.as_ref()) {
        text += &beside_the_model(model);
    }
    let repeated: Vec<_> = run.decisions.iter().filter(|d| d.action == wrapper::driver::REPEATED_WORK).collect();
    if !repeated.is_empty() {
        text += "\nRepeated work\n";
        repeated.iter().for_each(|d| text += &format!("  {}\n", d.reason));
    }
    if !run.failures.is_empty() {
        text += "\nFailures\n";
        for f in &run.failures {
            let counts = if f.counts { "" } else { " (not counted into the MTBF)" };
            text += &format!("  {}{counts}: {}, noticed after {:.1} s\n", f.kind, f.reason, f.detection_s);
        }
    }
    if let Some(slurm) = &line.slurm {
        let consumed = slurm.consumed_j.map_or("not measured".to_string(), |j| format!("{j:.1} J"));
        text += &format!(
            "\nSlurm's accounting: {}, exit code {}, {} on {} nodes, energy {consumed}\n",
            slurm.state,
            slurm.exit_code,
            options::format_time(slurm.elapsed_s),
            slurm.nodes
        );
    }
    text += "\nRecords\n";
    for r in &run.records {
        let seconds = r.end_s.map_or_else(|| "runs".to_string(), |e| options::format_time(e - r.start_s));
        text += &format!("  restart {} on {}: {} ({seconds})\n", r.restart_count, r.nodes.join(","), r.state);
    }
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
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
        "{:<12} {used:>14} {:>7} {:>14.1}  the borrowers', in {:.1} node-seconds; idle, the nodes would have drawn {:.1} J\n",
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
        "\nWaste of node-seconds, beside Bouteiller13 with this run's figures\n  \
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
