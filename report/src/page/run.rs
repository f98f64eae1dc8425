//! The page of one run.

use super::chart::{self, Bar, spoken};
use super::timeline::{borrower, by_number, timeline};
use super::{Cell, Set, Table, energy, known_energy, tile};
use crate::accounted::{Joined, Lending};
use crate::columns::{joules_of, percent, share, state};
use crate::describe::whose;
use crate::moment::shown;
use maud::{Markup, html};
use planner::restart::restart_s;
use planner::{Modelled, Pair};
use protocol::{Figure, Phase, Plan, RunAccount, Told};
use std::collections::BTreeMap;
use tariff::KWH_J;

/// Everything between head and foot.
pub fn body(line: &Joined, now_s: f64) -> Markup {
    let run = &line.run;
    html! {
        h1 { "Job " (run.job_id) ": " (run.job_name) }
        p.soft {
            (state(run)) ", user " (run.user) ", account " (if run.account.is_empty() { "none" } else { &run.account })
            ", run " (run.run) " on " (run.cluster) ", from " (shown(run.start_s).replace('T', " "))
            @if let Some(end_s) = run.end_s { " to " (shown(end_s).replace('T', " ")) }
        }
        @if let Some(text) = whose(run) { p { (text) } }
        @if let Some(slurm) = &line.slurm {
            p.soft {
                "Slurm's accounting: " (slurm.state) ", exit code " (slurm.exit_code) ", "
                (options::format_time(slurm.elapsed_s)) " on " (options::counted(slurm.nodes, "node")) ", energy "
                (slurm.consumed_j.map_or("not measured".to_string(), energy))
            }
        }
        (tiles(line))
        h2 { "Time line" }
        (timeline(line, now_s))
        h2 { "Energy by phase and node" }
        (energies(run))
        h2 { "Prediction beside measurement" }
        (predictions(run))
        h2 { "Failures and other stops" }
        @if run.failures.is_empty() { p { "None." } } @else { (failures(run).markup()) }
        h2 { "Decisions" }
        @if run.decisions.is_empty() { p { "None beyond the plan." } } @else { (decisions(run).markup()) }
        @if let Some(plan) = &run.plan { (reasons(plan)) }
        @if !run.loans.is_empty() { h2 { "Loans" } (loans(run).markup()) }
        @if let Some(lending) = &line.lending { (lent(lending)) }
        h2 { "Checkpoints and records" }
        @if run.checkpoints.is_empty() { p { "No complete checkpoint." } } @else {
            details { summary { (run.checkpoints.len()) " complete checkpoints" } (checkpoints(run).markup()) }
        }
        (records(run).markup())
    }
}

fn tiles(line: &Joined) -> Markup {
    let (run, total) = (&line.run, &line.run.total);
    let kwh = match total.joules {
        Some(joules) => format!("energy, {} ({:.4} kWh)", run.told().as_str(), joules / KWH_J),
        None => "energy".to_string(),
    };
    let part = format!("resilience, {} of the energy", percent(share(total.resilience_j, total.joules)));
    let expected = format!("energy overhead; predicted {}", percent(total.expected_energy_overhead));
    let noticed = match run.failures.iter().filter(|f| f.counts).map(|f| f.detection_s).reduce(f64::max) {
        Some(most_s) => format!("failures, noticed within {most_s:.1} s"),
        None => "failures".to_string(),
    };
    html! {
        ul.tiles {
            (tile(&known_energy(total.joules), &kwh))
            (tile(&known_energy(total.resilience_j), &part))
            @if let Some(told) = line.cost.whole.and_then(|c| c.told(&line.cost.currency)) {
                (tile(&told, "what this energy costs"))
            }
            (tile(&percent(total.energy_overhead), &expected))
            (tile(&options::format_time(total.elapsed_s), &format!("elapsed; on nodes {}", options::format_time(total.held_s))))
            (tile(&total.failures.to_string(), &noticed))
            (tile(&total.checkpoints.to_string(), "complete checkpoints"))
        }
    }
}

fn energies(run: &RunAccount) -> Markup {
    let mut by_node: BTreeMap<&str, BTreeMap<Phase, f64>> = BTreeMap::new();
    for span in &run.spans {
        *by_node.entry(&span.node).or_default().entry(span.phase).or_default() += span.joules.unwrap_or(0.0);
    }
    let all = Bar {
        label: "all nodes".into(),
        parts: run.phases.iter().map(|p| (p.phase, p.joules.unwrap_or(0.0))).collect(),
    };
    let mut by_node: Vec<_> = by_node.into_iter().collect();
    by_node.sort_by_key(|(node, _)| by_number(node));
    let nodes = by_node.iter().map(|(node, parts)| Bar {
        label: node.to_string(),
        parts: Phase::ALL.map(|p| (p, parts.get(&p).copied().unwrap_or(0.0))).to_vec(),
    });
    let bars: Vec<Bar> = std::iter::once(all).chain(nodes).collect();
    let title = "Energy of the run by phase, in all and by node";
    html! {
        (chart::key(&Phase::ALL, &[]))
        (chart::stacked("energy", title, &bars))
        (phases(run).markup())
        details { summary { "By node" } (nodes_table(&bars).markup()) }
    }
}

fn phases(run: &RunAccount) -> Table {
    let source = |s: &str| if s.is_empty() { "-".to_string() } else { s.to_string() };
    let row = |p: &protocol::PhaseAccount| {
        vec![
            Cell::text(spoken(p.phase)),
            Cell::known_joules(p.joules),
            Cell::percent(share(p.joules, run.total.joules)),
            Cell::joules(p.node_seconds),
            Cell::text(source(&p.source)),
        ]
    };
    let seconds = run.phases.iter().map(|p| p.node_seconds).sum();
    let foot = vec![
        Cell::text(match run.told() {
            Told::NotYet => "in all".to_string(),
            told => format!("in all, {}", told.as_str()),
        }),
        Cell::known_joules(run.total.joules),
        Cell::text(""),
        Cell::joules(seconds),
        Cell::text(""),
    ];
    Table {
        caption: "Energy and time by phase".into(),
        head: vec![
            ("Phase", Set::Word),
            ("Energy (J)", Set::Number),
            ("Share", Set::Number),
            ("Time (node-seconds)", Set::Number),
            ("Source", Set::Word),
        ],
        rows: run.phases.iter().map(row).collect(),
        foot: Some(foot),
        sorts: false,
    }
}

fn nodes_table(bars: &[Bar]) -> Table {
    let row = |bar: &Bar| {
        let parts = bar.parts.iter().map(|(_, joules)| Cell::joules(*joules));
        std::iter::once(Cell::text(bar.label.clone())).chain(parts).collect()
    };
    Table {
        caption: "Energy by node and phase (J)".into(),
        head: [("Node", Set::Word)].into_iter().chain(Phase::ALL.map(chart::number_column)).collect(),
        rows: bars.iter().skip(1).map(row).collect(),
        foot: bars.first().map(row),
        sorts: true,
    }
}

/// Power of a phase by the counters, W.
fn power_w(run: &RunAccount, phase: Phase) -> Option<f64> {
    let account = run.phases.iter().find(|p| p.phase == phase)?;
    let joules = account.joules.filter(|j| *j > 0.0)?;
    (account.node_seconds > 0.0).then(|| joules / account.node_seconds)
}

fn predictions(run: &RunAccount) -> Markup {
    let Some(plan) = &run.plan else { return html! { p { "The run has no plan in the store." } } };
    let mean_checkpoint_s = (!run.checkpoints.is_empty())
        .then(|| run.checkpoints.iter().map(|c| c.seconds).sum::<f64>() / run.checkpoints.len() as f64);
    let unit = |value: Option<f64>, unit: &str| value.map_or("-".to_string(), |v| format!("{v:.2} {unit}"));
    let figure = |what: &str, figure: &Figure, name: &str, measured: Option<f64>| {
        [what.to_string(), unit(Some(figure.value), name), unit(measured, name), figure.from.clone()]
    };
    let share_of = |what: &str, expected: f64, measured: Option<f64>| {
        [what.to_string(), percent(Some(expected)), percent(measured), plan.made_by.clone()]
    };
    // What a run has used is its part of a node, whole or not.
    let watts = if plan.node_share.is_some() { "W for the job's part of a node" } else { "W a node" };
    let failures = run.total.failures;
    let mtbf_s = (failures > 0).then(|| run.total.held_s / f64::from(failures));
    let saving = run.total.expected_saving_j.map_or("-".to_string(), energy);
    let rows = [
        share_of("Energy overhead", plan.expected_energy_overhead, run.total.energy_overhead),
        share_of("Time overhead", plan.expected_time_overhead, run.total.time_overhead),
        figure("Checkpoint", &plan.checkpoint_s, "s", mean_checkpoint_s),
        figure("Restart", &plan.restart_s, "s", restart_s(run)),
        figure("MTBF of the allocation", &plan.mtbf_s, "s", mtbf_s),
        figure("Power while computing", &plan.busy_w, watts, power_w(run, Phase::Compute)),
        figure("Power while checkpointing", &plan.checkpoint_w, watts, power_w(run, Phase::Checkpoint)),
        ["Saved against the other objective's interval".into(), saving, "-".into(), plan.made_by.clone()],
    ];
    let table = Table {
        caption: format!(
            "Objective {}, protocol {}, engine {}, policy {}, first interval {:.1} s",
            plan.objective, plan.protocol, plan.engine, plan.policy, plan.interval_s
        ),
        head: vec![
            ("What", Set::Text),
            ("Predicted", Set::Number),
            ("Measured", Set::Number),
            ("Prediction from", Set::Text),
        ],
        rows: rows.into_iter().map(|row| row.into_iter().map(Cell::text).collect()).collect(),
        foot: None,
        sorts: false,
    };
    html! { (overheads(run, plan)) (table.markup()) }
}

/// Two pairs of bars: predicted and measured overhead.
fn overheads(run: &RunAccount, plan: &Plan) -> Markup {
    let pairs = [
        ("energy, predicted", "idle", Some(plan.expected_energy_overhead)),
        ("energy, measured", "compute", run.total.energy_overhead),
        ("time, predicted", "idle", Some(plan.expected_time_overhead)),
        ("time, measured", "compute", run.total.time_overhead),
    ];
    let most = pairs.iter().filter_map(|p| p.2).fold(1e-9, f64::max);
    let chart = html! {
        svg id="prediction" viewBox="0 0 1000 112" role="img"
            aria-label="Overhead of energy and time, predicted and measured; the table below has the figures" {
            @for (n, (label, class, value)) in pairs.iter().enumerate() {
                @let y = n as f64 * 26.0 + 6.0;
                @let width = value.unwrap_or(0.0).max(0.0) / most * 720.0;
                text x="140" y=(y + 14.0) text-anchor="end" { (label) }
                rect class=(class) x="150" y=(y) height="18" width=(format!("{width:.2}")) {}
                text x=(format!("{:.2}", 158.0 + width)) y=(y + 14.0) { (percent(*value)) }
            }
        }
    };
    super::scrolled("Overhead, predicted and measured", chart)
}

fn failures(run: &RunAccount) -> Table {
    let row = |f: &protocol::FailureAccount| {
        vec![
            Cell::moment(f.at_s),
            Cell::text(f.kind.replace('_', " ")),
            Cell::text(f.node.clone().unwrap_or_default()),
            Cell::number(f.detection_s, format!("{:.1}", f.detection_s)),
            Cell::text(if f.counts { "yes" } else { "no" }),
            Cell::text(f.reason.clone()),
        ]
    };
    Table {
        caption: "Why work stopped before its end".into(),
        head: vec![
            ("When", Set::Word),
            ("Kind", Set::Word),
            ("Node", Set::Word),
            ("Noticed after (s)", Set::Number),
            ("Counts (MTBF)", Set::Word),
            ("What was seen", Set::Text),
        ],
        rows: run.failures.iter().map(row).collect(),
        foot: None,
        sorts: false,
    }
}

fn decisions(run: &RunAccount) -> Table {
    let row = |d: &protocol::DecisionAccount| {
        let interval = if d.interval_s > 0.0 { format!("{:.1}", d.interval_s) } else { "-".to_string() };
        vec![
            Cell::moment(d.at_s),
            Cell::text(d.action.clone()),
            Cell::number(d.interval_s, interval),
            Cell::text(d.reason.clone()),
        ]
    };
    Table {
        caption: "What was decided, and why".into(),
        head: vec![("When", Set::Word), ("Decision", Set::Word), ("Interval (s)", Set::Number), ("Reason", Set::Text)],
        rows: run.decisions.iter().map(row).collect(),
        foot: None,
        sorts: true,
    }
}

fn reasons(plan: &Plan) -> Markup {
    html! {
        details { summary { "The plan's reasons, and what was refused" } ul {
            @for reason in &plan.reasons { li { (reason) } }
            @for other in &plan.alternatives { li { (other.what) ": " (other.refused) } }
        } }
    }
}

fn loans(run: &RunAccount) -> Table {
    let row = |l: &protocol::LoanAccount| {
        vec![
            Cell::text(l.node.clone()),
            Cell::text(borrower(l.borrower)),
            Cell::moment(l.start_s),
            l.end_s.map_or_else(|| Cell::text("still lent"), Cell::moment),
            l.joules.map_or_else(|| Cell::text("-"), Cell::joules),
        ]
    };
    Table {
        caption: "Nodes lent to other jobs; their energy is the borrower's".into(),
        head: vec![
            ("Node", Set::Word),
            ("Borrower", Set::Word),
            ("From", Set::Word),
            ("To", Set::Word),
            ("Energy of the borrower (J)", Set::Number),
        ],
        rows: run.loans.iter().map(row).collect(),
        foot: None,
        sorts: false,
    }
}

/// What loans came to, and waste beside the model.
fn lent(lending: &Lending) -> Markup {
    let sum = &lending.lent;
    html! {
        @if sum.loans > 0 { p {
            (format!("{:.0}", sum.node_seconds)) " node-seconds were lent, of which others used "
            (format!("{:.0}", sum.used_node_seconds)) " (" (sum.used_j.map_or("not measured".to_string(), energy))
            ", theirs). Idle, the nodes would have drawn " (energy(sum.would_idle_j)) "."
            @if let Some((share, m)) = lending.model.as_ref().and_then(|m| m.lent_share.zip(Some(m))) {
                " Beyond the break-even the nodes waited " (format!("{:.0}", m.beyond_node_s))
                " node-seconds, and were away for " (percent(Some(share))) " of that."
            }
        } }
        @if let Some(model) = &lending.model { (wastes(model).markup()) }
    }
}

fn wastes(model: &Modelled) -> Table {
    let waste = |what: &str, pair: Pair| {
        [what.to_string(), percent(pair.predicted), percent(Some(pair.measured)), "the figures below".to_string()]
    };
    let figure =
        |(name, f): (&str, &Figure)| [name.to_string(), "-".to_string(), format!("{:.4}", f.value), f.from.clone()];
    let wastes = [
        waste("Application, had it kept its nodes (S_App)", model.app),
        waste("Platform, with what was lent (S_Plat)", model.plat),
    ];
    let rows = wastes.into_iter().chain(model.figures().map(figure));
    Table {
        caption: "Waste of node-seconds beside Bouteiller13, with this run's figures (s and 1/s)".into(),
        head: vec![("What", Set::Text), ("Predicted", Set::Number), ("Measured", Set::Number), ("From", Set::Text)],
        rows: rows.map(|row| row.into_iter().map(Cell::text).collect()).collect(),
        foot: None,
        sorts: false,
    }
}

fn checkpoints(run: &RunAccount) -> Table {
    let row = |c: &protocol::CheckpointAccount| {
        vec![
            Cell::number(c.number as f64, c.number.to_string()),
            Cell::moment(c.begun_s),
            Cell::number(c.seconds, format!("{:.2}", c.seconds)),
            Cell::number(c.bytes as f64, c.bytes.to_string()),
            c.written_bytes.map_or_else(|| Cell::number(-1.0, "-"), |b| Cell::number(b as f64, b.to_string())),
            c.joules.map_or_else(|| Cell::number(-1.0, "-"), Cell::joules),
        ]
    };
    Table {
        caption: "Complete checkpoints".into(),
        head: vec![
            ("Number", Set::Number),
            ("Begun", Set::Word),
            ("Time (s)", Set::Number),
            ("Bytes", Set::Number),
            ("Written", Set::Number),
            ("Energy (J)", Set::Number),
        ],
        rows: run.checkpoints.iter().map(row).collect(),
        foot: None,
        sorts: true,
    }
}

fn records(run: &RunAccount) -> Table {
    let row = |r: &protocol::RecordAccount| {
        let end = r.end_s.map_or_else(|| Cell::text("runs"), Cell::moment);
        vec![
            Cell::number(r.restart_count.into(), (r.restart_count + 1).to_string()),
            Cell::text(r.nodes.join(", ")),
            Cell::moment(r.start_s),
            end,
            Cell::text(r.state.clone()),
        ]
    };
    let lost = joules_of(run, Phase::LostWork);
    Table {
        caption: format!("Slurm job records of this run; {} of work was done again", known_energy(lost)),
        head: vec![
            ("Start", Set::Number),
            ("Nodes", Set::Text),
            ("From", Set::Word),
            ("To", Set::Word),
            ("State", Set::Word),
        ],
        rows: run.records.iter().map(row).collect(),
        foot: None,
        sorts: false,
    }
}
