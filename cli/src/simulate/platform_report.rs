//! Prints what `simulate platform` found: wastes beside closed forms, energy by phase, the queue.

use std::fmt::Write as _;

use options::format_time;
use serde_json::{Value, json};
use simulator::grid::Estimate;
use simulator::platform::{Expected, Failures, Machine, Outcome, Phase, Workload};

use super::platform::Row;

/// The form of the answer.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Output")]
pub struct Format {
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV.
    #[arg(long)]
    csv: bool,
}

/// Prints the rows.
pub fn print(
    format: &Format,
    machine: &Machine,
    workload: &Workload,
    skipped: usize,
    rows: &[Row],
) -> anyhow::Result<()> {
    if format.json {
        let rows: Vec<Value> = rows.iter().map(|row| row_json(machine, row)).collect();
        let all = json!({ "machine": machine_json(machine), "jobs_skipped": skipped, "rows": rows });
        crate::out::print(format!("{all}\n"))?;
    } else if format.csv {
        crate::out::print(csv(machine, rows)?)?;
    } else {
        crate::out::print(text(machine, workload, skipped, rows)?)?;
    }
    Ok(())
}

/// Mean and confidence of a figure of each run.
fn figure(row: &Row, value: impl Fn(&Outcome) -> f64) -> (f64, f64) {
    let estimate = Estimate::of(row.outcomes.iter().map(value));
    (estimate.mean, estimate.half_width.unwrap_or(0.0))
}

fn mean(row: &Row, value: impl Fn(&Outcome) -> f64) -> f64 {
    figure(row, value).0
}

/// A closed form's waste, where it has one: first-order forms pass one when failures are frequent.
fn closed(row: &Row, waste: impl Fn(&Expected) -> f64) -> Option<f64> {
    row.expected.as_ref().map(waste).filter(|w| (0.0..1.0).contains(w))
}

/// A closed form's energy per useful node-second, where it has one.
fn closed_energy(row: &Row) -> Option<f64> {
    closed(row, |e| e.application).and(row.expected?.energy_j)
}

/// Share of the nodes in service that jobs or borrowers held.
fn utilisation(o: &Outcome, machine: &Machine) -> f64 {
    o.held_node_s / (f64::from(machine.nodes) * o.elapsed_s)
}

fn text(machine: &Machine, workload: &Workload, skipped: usize, rows: &[Row]) -> anyhow::Result<String> {
    let mut text = heading(machine, workload, skipped, rows)?;
    match workload {
        Workload::Backlog(_) => wastes(&mut text, rows)?,
        Workload::Jobs(_) => queue(&mut text, machine, rows)?,
    }
    phases(&mut text, machine, rows)?;
    Ok(text)
}

fn heading(machine: &Machine, workload: &Workload, skipped: usize, rows: &[Row]) -> anyhow::Result<String> {
    let mut text = format!(
        "{} nodes in {} groups, {} spare, MTBF {} ({})\n",
        machine.nodes,
        machine.groups,
        machine.spares,
        format_time(machine.mtbf_s),
        match machine.failures {
            Failures::Drawn(distribution) => format!("{distribution:?} per node").to_lowercase(),
            Failures::Logged(_) => "from a log".to_owned(),
        }
    );
    if let Workload::Jobs(jobs) = workload {
        writeln!(text, "{} jobs; {skipped} records without a run left out", jobs.len())?;
    }
    let runs = rows.first().map_or(0, |r| r.outcomes.len());
    let longest_s = rows.iter().flat_map(|r| &r.outcomes).map(|o| o.elapsed_s).fold(0.0, f64::max);
    writeln!(text, "{runs} runs of up to {}; ± is the 95 % confidence of the mean\n", format_time(longest_s))?;
    Ok(text)
}

fn percent((mean, confidence): (f64, f64)) -> String {
    format!("{:6.2} ± {:.2} %", mean * 100.0, confidence * 100.0)
}

fn period(row: &Row) -> String {
    row.period_s.map_or_else(String::new, |t| format!("{t:.0} s"))
}

fn wastes(text: &mut String, rows: &[Row]) -> anyhow::Result<()> {
    writeln!(
        text,
        "     {:<13} {:<10} {:>8}  {:<18}{:>8}  {:<18}{:>8}  {:>8} {:>7}  {:>6}",
        "protocol",
        "",
        "period",
        " application waste",
        "closed",
        "  platform waste",
        "closed",
        "J/useful",
        "closed",
        "lent"
    )?;
    for (number, row) in (1..).zip(rows) {
        let form = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |v| format!("{:.2} %", v * 100.0));
        let recoveries = mean(row, |o| (o.lent + o.kept) as f64);
        let lent = match recoveries {
            0.0 => String::new(),
            all => format!("{:.0} %", mean(row, |o| o.lent as f64) / all * 100.0),
        };
        writeln!(
            text,
            "({number:>2}) {:<13} {:<10} {:>8}  {:<18}{:>8}  {:<18}{:>8}  {:>8.2} {:>7}  {:>6}",
            row.name,
            row.variant,
            period(row),
            percent(figure(row, Outcome::application_waste)),
            form(closed(row, |e| e.application)),
            percent(figure(row, Outcome::platform_waste)),
            form(closed(row, |e| e.platform)),
            mean(row, Outcome::energy_per_useful_node_s),
            closed_energy(row).map_or_else(String::new, |j| format!("{j:.2}")),
            lent
        )?;
    }
    tasks(text, rows)
}

/// The energy of tasks under shadow replication, in Mills's unit, and promises that were not kept.
fn tasks(text: &mut String, rows: &[Row]) -> anyhow::Result<()> {
    for row in rows {
        let (done, missed) = (mean(row, |o| o.tasks.done as f64), mean(row, |o| o.tasks.missed as f64));
        if let Some(energy) = row.expected.and_then(|e| e.task_energy) {
            let found = figure(row, |o| o.tasks.energy / o.tasks.done as f64);
            writeln!(
                text,
                "     shadow {}: {:.1} ± {:.1} s·speed² a task, closed form {energy:.1}; {:.3} % of {done:.0} tasks late",
                row.variant,
                found.0,
                found.1,
                missed / done * 100.0
            )?;
        }
    }
    Ok(())
}

fn queue(text: &mut String, machine: &Machine, rows: &[Row]) -> anyhow::Result<()> {
    writeln!(
        text,
        "     {:<13} {:<10} {:>8} {:>6}  {:>12} {:>8}  {:>12} {:>9}  {:<18} {:<17} {:>8}",
        "protocol",
        "",
        "ended",
        "not",
        "makespan",
        "in use",
        "mean wait",
        "slowdown",
        " application waste",
        "  platform waste",
        "J/useful"
    )?;
    for (number, row) in (1..).zip(rows) {
        writeln!(
            text,
            "({number:>2}) {:<13} {:<10} {:>8.0} {:>6.0}  {:>12} {:>6.1} %  {:>12} {:>9.2}  {:<18} {:<17} {:>8.2}",
            row.name,
            row.variant,
            mean(row, |o| o.finished as f64),
            mean(row, |o| o.unfinished as f64),
            format_time(mean(row, |o| o.elapsed_s)),
            mean(row, |o| utilisation(o, machine)) * 100.0,
            format_time(mean(row, |o| o.wait_s)),
            mean(row, |o| o.slowdown),
            percent(figure(row, Outcome::application_waste)),
            percent(figure(row, Outcome::platform_waste)),
            mean(row, Outcome::energy_per_useful_node_s)
        )?;
    }
    Ok(())
}

fn phases(text: &mut String, machine: &Machine, rows: &[Row]) -> anyhow::Result<()> {
    write!(text, "\nenergy by phase, joules per useful node-second\n{:<14}", "")?;
    for number in 1..=rows.len() {
        write!(text, "{:>9}", format!("({number})"))?;
    }
    writeln!(text)?;
    for phase in Phase::ALL {
        let energy = |row: &Row| mean(row, |o| o.ledger.energy_j(phase, &machine.watts) / o.useful_node_s());
        if rows.iter().all(|row| mean(row, |o| o.ledger.node_s(phase)) <= 0.0) {
            continue;
        }
        write!(text, "{:<14}", phase.name())?;
        for row in rows {
            write!(text, "{:>9.3}", energy(row))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn machine_json(machine: &Machine) -> Value {
    let c = &machine.costs;
    let watts: serde_json::Map<String, Value> =
        Phase::ALL.into_iter().map(|p| (p.name().to_owned(), json!(machine.watts.at(p)))).collect();
    json!({
        "nodes": machine.nodes, "spares": machine.spares, "groups": machine.groups, "mtbf_s": machine.mtbf_s,
        "repair_s": machine.repair_s, "overlap": machine.overlap, "checkpoint_s": c.checkpoint_s,
        "restart_s": c.restart_s, "down_s": c.down_s, "alpha": c.alpha, "lam": c.lambda, "rho": c.rho,
        "beta": c.beta, "load_s": c.load_s, "save_s": c.save_s, "scheduler_s": c.scheduler_s, "watts": watts,
    })
}

fn row_json(machine: &Machine, row: &Row) -> Value {
    let pair = |(mean, confidence): (f64, f64), closed: Option<f64>| json!({ "mean": mean, "confidence_95": confidence, "closed_form": closed });
    let phases: serde_json::Map<String, Value> = Phase::ALL
        .into_iter()
        .map(|phase| {
            let node_s = mean(row, |o| o.ledger.node_s(phase));
            let energy_j = mean(row, |o| o.ledger.energy_j(phase, &machine.watts));
            (phase.name().to_owned(), json!({ "node_s": node_s, "energy_j": energy_j }))
        })
        .collect();
    let done = mean(row, |o| o.tasks.done as f64);
    let task_energy = (done > 0.0).then(|| figure(row, |o| o.tasks.energy / o.tasks.done as f64));
    json!({
        "protocol": row.name,
        "variant": row.variant,
        "period_s": row.period_s,
        "runs": row.outcomes.len(),
        "elapsed_s": mean(row, |o| o.elapsed_s),
        "failures": mean(row, |o| o.failures as f64),
        "application_waste": pair(figure(row, Outcome::application_waste), closed(row, |e| e.application)),
        "application_waste_overlap_closed_form": row.expected.and_then(|e| e.overlapping),
        "platform_waste": pair(figure(row, Outcome::platform_waste), closed(row, |e| e.platform)),
        "useful_node_s": mean(row, Outcome::useful_node_s),
        "lent_useful_node_s": mean(row, |o| o.lent_node_s),
        "utilisation": mean(row, |o| utilisation(o, machine)),
        "energy_j": mean(row, |o| o.energy_j),
        "energy_per_useful_node_s": pair(
            figure(row, Outcome::energy_per_useful_node_s),
            closed_energy(row),
        ),
        "recoveries_lent": mean(row, |o| o.lent as f64),
        "recoveries_kept": mean(row, |o| o.kept as f64),
        "jobs_finished": mean(row, |o| o.finished as f64),
        "jobs_unfinished": mean(row, |o| o.unfinished as f64),
        "wait_s": mean(row, |o| o.wait_s),
        "bounded_slowdown": mean(row, |o| o.slowdown),
        "tasks_done": done,
        "tasks_late": mean(row, |o| o.tasks.missed as f64),
        "task_energy": task_energy.map(|found| pair(found, row.expected.and_then(|e| e.task_energy))),
        "phases": phases,
    })
}

fn csv(machine: &Machine, rows: &[Row]) -> anyhow::Result<String> {
    let mut text = String::from(
        "protocol,variant,period_s,application_waste,application_waste_confidence_95,application_waste_closed_form,\
         platform_waste,platform_waste_confidence_95,platform_waste_closed_form,energy_per_useful_node_s,wait_s,\
         bounded_slowdown,utilisation",
    );
    for phase in Phase::ALL {
        write!(text, ",{}_j", phase.name())?;
    }
    writeln!(text)?;
    for row in rows {
        let (application, platform) = (figure(row, Outcome::application_waste), figure(row, Outcome::platform_waste));
        let number = |value: Option<f64>| value.map_or_else(String::new, |v| v.to_string());
        write!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{},{},{}",
            row.name,
            row.variant,
            number(row.period_s),
            application.0,
            application.1,
            number(closed(row, |e| e.application)),
            platform.0,
            platform.1,
            number(closed(row, |e| e.platform)),
            mean(row, Outcome::energy_per_useful_node_s),
            mean(row, |o| o.wait_s),
            mean(row, |o| o.slowdown),
            mean(row, |o| utilisation(o, machine))
        )?;
        for phase in Phase::ALL {
            write!(text, ",{}", mean(row, |o| o.ledger.energy_j(phase, &machine.watts)))?;
        }
        writeln!(text)?;
    }
    Ok(text)
}
