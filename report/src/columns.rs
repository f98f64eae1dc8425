//! The columns of the report: what each is called, and what it holds of a run.

use crate::accounted::{Joined, SlurmSide};
use crate::sheet::{Cell, Head, Sheet};
use protocol::{Phase, RunAccount};

/// One column: name, heading, width, value.
pub struct Field {
    /// What `-o` calls it.
    pub name: &'static str,
    heading: &'static str,
    width: usize,
    csv_unit: &'static str,
    value: fn(&Joined) -> Cell,
}

/// A column as it was asked for.
pub struct Column {
    /// Which.
    pub field: &'static Field,
    width: usize,
    left: bool,
}

const fn field(name: &'static str, heading: &'static str, width: usize, value: fn(&Joined) -> Cell) -> Field {
    Field { name, heading, width, csv_unit: "", value }
}

const fn with_unit(csv_unit: &'static str, field: Field) -> Field {
    Field { csv_unit, ..field }
}

/// Energy of a phase, J; absent until it is known.
pub fn joules_of(run: &RunAccount, phase: Phase) -> Option<f64> {
    match run.phases.iter().find(|p| p.phase == phase) {
        Some(account) => account.joules,
        // A brief account leaves out what did not occur.
        None => run.end_s.and(run.total.joules).map(|_| 0.0),
    }
}

/// How far a run is protected, or was at its end.
pub fn protection(run: &RunAccount) -> &'static str {
    run.protection.as_ref().map_or("unknown", |p| p.state.as_str())
}

/// The state of a run in Slurm's word.
pub fn state(run: &RunAccount) -> String {
    if run.waits { "PENDING".to_string() } else { run.state.to_uppercase() }
}

/// A fraction as a percentage, for people.
pub fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| "unknown".to_string(), |f| format!("{:.2}%", 100.0 * f))
}

/// The share of resilience in the whole energy.
pub fn share(resilience_j: Option<f64>, joules: Option<f64>) -> Option<f64> {
    let joules = joules.filter(|j| *j > 0.0)?;
    resilience_j.map(|resilience_j| resilience_j / joules)
}

fn text(text: &str) -> Cell {
    Cell::Text(text.to_string())
}

fn accounted(line: &Joined, value: impl Fn(&SlurmSide) -> Cell, otherwise: Cell) -> Cell {
    line.slurm.as_ref().map_or(otherwise, value)
}

fn lent(line: &Joined, value: impl Fn(&planner::Lent) -> Option<f64>) -> Cell {
    Cell::joules(line.lending.as_ref().and_then(|l| value(&l.lent)))
}

fn of_phase(line: &Joined, phase: Phase) -> Cell {
    Cell::joules(joules_of(&line.run, phase))
}

/// All columns.
pub const FIELDS: &[Field] = &[
    field("jobid", "JobID", 8, |l| text(&l.run.job_id)),
    field("jobidraw", "JobIDRaw", 8, |l| Cell::Count(l.run.job)),
    field("run", "Run", 22, |l| text(&l.run.run)),
    field("cluster", "Cluster", 12, |l| text(&l.run.cluster)),
    field("jobname", "JobName", 14, |l| text(&l.run.job_name)),
    field("user", "User", 10, |l| text(&l.run.user)),
    field("account", "Account", 10, |l| text(&l.run.account)),
    field("partition", "Partition", 10, |l| text(&l.run.partition)),
    field("state", "State", 10, |l| Cell::Text(state(&l.run))),
    field("protection", "Protection", 13, |l| text(protection(&l.run))),
    field("start", "Start", 19, |l| Cell::Moment(Some(l.run.start_s))),
    field("end", "End", 19, |l| Cell::Moment(l.run.end_s)),
    with_unit("s", field("elapsed", "Elapsed", 11, |l| Cell::Time(Some(l.run.total.elapsed_s)))),
    field("records", "Records", 7, |l| Cell::Count(l.run.total.records)),
    field("failures", "Failures", 8, |l| Cell::Count(l.run.total.failures)),
    field("checkpoints", "Checkpoints", 11, |l| Cell::Count(l.run.total.checkpoints)),
    field("energy", "Energy(J)", 14, |l| Cell::joules(l.run.total.joules)),
    field("told", "EnergyIs", 16, |l| text(l.run.told().as_str())),
    field("kwh", "Energy(kWh)", 12, |l| Cell::Number(l.cost.whole.map(|c| c.kwh), 4)),
    field("cost", "Cost", 10, |l| Cell::Number(l.cost.whole.and_then(|c| c.price), 4)),
    field("co2", "CO2(g)", 10, |l| Cell::Number(l.cost.whole.and_then(|c| c.co2_g), 1)),
    field("resiliencekwh", "Resilience(kWh)", 15, |l| Cell::Number(l.cost.resilience.map(|c| c.kwh), 4)),
    field("resiliencecost", "ResilienceCost", 14, |l| Cell::Number(l.cost.resilience.and_then(|c| c.price), 4)),
    field("resilienceco2", "ResilienceCO2(g)", 16, |l| Cell::Number(l.cost.resilience.and_then(|c| c.co2_g), 1)),
    field("metered", "Metered(J)", 14, |l| Cell::joules(l.run.total.metered_j)),
    field("verified", "Verified", 8, |l| text(if l.run.verified { "yes" } else { "no" })),
    field("resilience", "Resilience(J)", 14, |l| Cell::joules(l.run.total.resilience_j)),
    with_unit("%", field("share", "Share", 8, |l| Cell::Percent(share(l.run.total.resilience_j, l.run.total.joules)))),
    field("compute", "Compute(J)", 14, |l| of_phase(l, Phase::Compute)),
    field("checkpoint", "Checkpoint(J)", 14, |l| of_phase(l, Phase::Checkpoint)),
    field("logging", "Logging(J)", 14, |l| of_phase(l, Phase::Logging)),
    field("restart", "Restart(J)", 14, |l| of_phase(l, Phase::Restart)),
    field("lostwork", "LostWork(J)", 14, |l| of_phase(l, Phase::LostWork)),
    field("idle", "Idle(J)", 14, |l| of_phase(l, Phase::Idle)),
    field("lent", "Lent(node-s)", 12, |l| lent(l, |sum| Some(sum.node_seconds))),
    field("used", "Used(node-s)", 12, |l| lent(l, |sum| Some(sum.used_node_seconds))),
    field("usedenergy", "Used(J)", 14, |l| lent(l, |sum| sum.used_j)),
    field("wouldidle", "WouldIdle(J)", 14, |l| lent(l, |sum| Some(sum.would_idle_j))),
    with_unit("%", field("overhead", "Overhead", 9, |l| Cell::Percent(l.run.total.energy_overhead))),
    with_unit("%", field("timeoverhead", "TimeOverhead", 12, |l| Cell::Percent(l.run.total.time_overhead))),
    with_unit("%", field("predicted", "Predicted", 9, |l| Cell::Percent(l.run.total.expected_energy_overhead))),
    field("saved", "Saved(J)", 12, |l| Cell::joules(l.run.total.expected_saving_j)),
    field("submit", "Submit", 19, |l| accounted(l, |s| Cell::Moment(s.submit_s), text(""))),
    field("qos", "QOS", 10, |l| accounted(l, |s| text(&s.qos), text(""))),
    field("slurmstate", "SlurmState", 12, |l| accounted(l, |s| text(&s.state), text(""))),
    with_unit(
        "s",
        field("slurmelapsed", "SlurmElapsed", 12, |l| accounted(l, |s| Cell::Time(Some(s.elapsed_s)), text(""))),
    ),
    field("exitcode", "ExitCode", 8, |l| accounted(l, |s| text(&s.exit_code), text(""))),
    field("nnodes", "NNodes", 6, |l| accounted(l, |s| Cell::Count(s.nodes as u32), text(""))),
    field("consumedenergy", "ConsumedEnergy(J)", 17, |l| Cell::joules(l.slurm.as_ref().and_then(|s| s.consumed_j))),
];

/// The columns that need sacct.
const FROM_SACCT: [&str; 7] = ["submit", "qos", "slurmstate", "slurmelapsed", "exitcode", "nnodes", "consumedenergy"];

/// The columns that need the broker of loans.
const FROM_LOANS: [&str; 4] = ["lent", "used", "usedenergy", "wouldidle"];

/// The columns that are shown unless others are asked for: 80 characters.
pub const USUAL: &str = "jobid,jobname%9,user%8,state%9,elapsed%10,protection,energy%10,share%6";

/// Those that are shown where there is room.
pub const WIDE: &str = "jobid%12,jobname%20,user,account,partition,state,start,elapsed,protection,failures,checkpoints,\
                        energy,kwh,resilience,share,overhead";

/// Whether a column needs sacct.
pub fn needs_sacct(columns: &[Column]) -> bool {
    columns.iter().any(|c| FROM_SACCT.contains(&c.field.name))
}

/// Whether a column needs the broker of loans.
pub fn needs_loans(columns: &[Column]) -> bool {
    columns.iter().any(|c| FROM_LOANS.contains(&c.field.name))
}

/// Reads `-o`: names separated by commas, each with `%WIDTH` or `%-WIDTH` (to the left) behind it.
///
/// # Errors
/// The name or the width that is not understood.
pub fn columns(names: &str) -> Result<Vec<Column>, String> {
    let columns: Vec<Column> =
        names.split(',').filter(|n| !n.trim().is_empty()).map(|n| column(n.trim())).collect::<Result<_, _>>()?;
    if columns.is_empty() {
        return Err(format!("'{names}' names no field (--helpformat lists them)"));
    }
    Ok(columns)
}

fn column(text: &str) -> Result<Column, String> {
    let (name, width) = text.split_once('%').map_or((text, None), |(name, width)| (name, Some(width)));
    let name = name.to_lowercase();
    let field = FIELDS.iter().find(|f| f.name == name).ok_or_else(|| {
        let near = options::nearest(&name, FIELDS.iter().map(|f| f.name));
        let hint = near.map(|n| format!("; did you mean '{n}'?")).unwrap_or_default();
        format!("'{name}' is not a field (--helpformat lists them){hint}")
    })?;
    let Some(width) = width else { return Ok(Column { field, width: field.width, left: false }) };
    let (left, digits) = width.strip_prefix('-').map_or((false, width), |digits| (true, digits));
    let wrong = || format!("'{text}': '{width}' is not a width; accepted: %1 to %1000, %-1 to %-1000");
    let width = digits.parse().ok().filter(|w| (1..=1000).contains(w)).ok_or_else(wrong)?;
    Ok(Column { field, width, left })
}

/// The runs in these columns; prices are in `currency`.
pub fn sheet(lines: &[Joined], columns: &[Column], currency: &str) -> Sheet {
    let head = |c: &Column| Head {
        name: match c.field.name {
            "cost" | "resiliencecost" if !currency.is_empty() => format!("{}({currency})", c.field.heading),
            _ => c.field.heading.to_string(),
        },
        csv_unit: c.field.csv_unit,
        width: c.width,
        left: c.left,
    };
    Sheet {
        head: columns.iter().map(head).collect(),
        rows: lines.iter().map(|l| columns.iter().map(|c| (c.field.value)(l)).collect()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_known_or_corrected_and_have_widths() {
        let two = columns("JobID%4,Energy%-20").expect("columns");
        assert_eq!((two[0].width, two[0].left, two[1].width, two[1].left), (4, false, 20, true));
        assert!(columns("enrgy").is_err_and(|e| e.contains("did you mean 'energy'")));
        for wrong in ["energy%", "energy%0", "energy%x", "energy%-", "energy%2000"] {
            assert!(columns(wrong).is_err_and(|e| e.contains("is not a width")), "{wrong}");
        }
        assert!(FROM_SACCT.iter().chain(&FROM_LOANS).all(|n| FIELDS.iter().any(|f| f.name == *n)));
        assert!(columns(USUAL).is_ok() && columns(WIDE).is_ok());
        let usual = columns(USUAL).expect("columns");
        assert_eq!(usual.iter().map(|c| c.width + 1).sum::<usize>() - 1, 80, "as wide as a terminal");
    }
}
