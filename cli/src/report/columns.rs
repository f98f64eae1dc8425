//! The columns of the report, and tables in sacct's forms.

use super::accounted::{Joined, SlurmSide};
use super::moment::shown;
use protocol::Phase;

/// One column: name, heading, width, value.
pub struct Field {
    /// What `-o` calls it.
    pub name: &'static str,
    heading: &'static str,
    width: usize,
    value: fn(&Joined) -> String,
}

/// A column as it was asked for.
pub struct Column {
    /// Which.
    pub field: &'static Field,
    width: usize,
    left: bool,
}

const fn field(name: &'static str, heading: &'static str, width: usize, value: fn(&Joined) -> String) -> Field {
    Field { name, heading, width, value }
}

/// Energy of a phase, J.
pub fn joules_of(run: &protocol::RunAccount, phase: Phase) -> f64 {
    run.phases.iter().find(|p| p.phase == phase).map_or(0.0, |p| p.joules)
}

/// The energy of a run, J; unknown before any counter was read.
pub fn energy(run: &protocol::RunAccount) -> String {
    let read = run.phases.iter().any(|p| !p.source.is_empty());
    if read { joules(run.total.joules) } else { "unknown".to_string() }
}

/// How far a run is protected, or was at its end.
pub fn protection(run: &protocol::RunAccount) -> &'static str {
    run.protection.as_ref().map_or("unknown", |p| p.state.as_str())
}

/// A fraction as a percentage.
pub fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| "unknown".to_string(), |f| format!("{:.2}%", 100.0 * f))
}

/// The share of resilience in the whole energy.
pub fn share(resilience_j: f64, joules: f64) -> Option<f64> {
    (joules > 0.0).then(|| resilience_j / joules)
}

fn joules(value: f64) -> String {
    format!("{value:.1}")
}

fn moment(at_s: Option<f64>) -> String {
    at_s.map_or_else(|| "Unknown".to_string(), shown)
}

fn accounted(line: &Joined, value: impl Fn(&SlurmSide) -> Option<String>) -> String {
    line.slurm.as_ref().and_then(value).unwrap_or_default()
}

fn lent(line: &Joined, value: impl Fn(&planner::Lent) -> Option<f64>) -> String {
    line.lending.as_ref().and_then(|l| value(&l.lent)).map(joules).unwrap_or_default()
}

/// All columns.
pub const FIELDS: &[Field] = &[
    field("jobid", "JobID", 8, |l| l.run.job.to_string()),
    field("run", "Run", 22, |l| l.run.run.clone()),
    field("cluster", "Cluster", 12, |l| l.run.cluster.clone()),
    field("jobname", "JobName", 14, |l| l.run.job_name.clone()),
    field("user", "User", 10, |l| l.run.user.clone()),
    field("account", "Account", 10, |l| l.run.account.clone()),
    field("state", "State", 10, |l| l.run.state.clone()),
    field("protection", "Protection", 13, |l| protection(&l.run).to_string()),
    field("start", "Start", 19, |l| moment(Some(l.run.start_s))),
    field("end", "End", 19, |l| moment(l.run.end_s)),
    field("elapsed", "Elapsed", 11, |l| options::format_time(l.run.total.elapsed_s)),
    field("records", "Records", 7, |l| l.run.total.records.to_string()),
    field("failures", "Failures", 8, |l| l.run.total.failures.to_string()),
    field("checkpoints", "Checkpoints", 11, |l| l.run.total.checkpoints.to_string()),
    field("energy", "Energy(J)", 14, |l| energy(&l.run)),
    field("metered", "Metered(J)", 14, |l| l.run.total.metered_j.map(joules).unwrap_or_default()),
    field("verified", "Verified", 8, |l| if l.run.verified { "yes" } else { "no" }.to_string()),
    field("resilience", "Resilience(J)", 14, |l| joules(l.run.total.resilience_j)),
    field("share", "Share", 8, |l| percent(share(l.run.total.resilience_j, l.run.total.joules))),
    field("compute", "Compute(J)", 14, |l| joules(joules_of(&l.run, Phase::Compute))),
    field("checkpoint", "Checkpoint(J)", 14, |l| joules(joules_of(&l.run, Phase::Checkpoint))),
    field("logging", "Logging(J)", 14, |l| joules(joules_of(&l.run, Phase::Logging))),
    field("restart", "Restart(J)", 14, |l| joules(joules_of(&l.run, Phase::Restart))),
    field("lostwork", "LostWork(J)", 14, |l| joules(joules_of(&l.run, Phase::LostWork))),
    field("idle", "Idle(J)", 14, |l| joules(joules_of(&l.run, Phase::Idle))),
    field("lent", "Lent(node-s)", 12, |l| lent(l, |sum| Some(sum.node_seconds))),
    field("used", "Used(node-s)", 12, |l| lent(l, |sum| Some(sum.used_node_seconds))),
    field("usedenergy", "Used(J)", 14, |l| lent(l, |sum| sum.used_j)),
    field("wouldidle", "WouldIdle(J)", 14, |l| lent(l, |sum| Some(sum.would_idle_j))),
    field("overhead", "Overhead", 9, |l| percent(l.run.total.energy_overhead)),
    field("timeoverhead", "TimeOverhead", 12, |l| percent(l.run.total.time_overhead)),
    field("predicted", "Predicted", 9, |l| percent(l.run.total.expected_energy_overhead)),
    field("saved", "Saved(J)", 12, |l| l.run.total.expected_saving_j.map(joules).unwrap_or_default()),
    field("submit", "Submit", 19, |l| accounted(l, |s| s.submit_s.map(shown))),
    field("slurmstate", "SlurmState", 12, |l| accounted(l, |s| Some(s.state.clone()))),
    field("slurmelapsed", "SlurmElapsed", 12, |l| accounted(l, |s| Some(options::format_time(s.elapsed_s)))),
    field("exitcode", "ExitCode", 8, |l| accounted(l, |s| Some(s.exit_code.clone()))),
    field("nnodes", "NNodes", 6, |l| accounted(l, |s| Some(s.nodes.to_string()))),
    field("consumedenergy", "ConsumedEnergy(J)", 17, |l| accounted(l, |s| s.consumed_j.map(joules))),
];

/// The columns that need sacct.
const FROM_SACCT: [&str; 6] = ["submit", "slurmstate", "slurmelapsed", "exitcode", "nnodes", "consumedenergy"];

/// The columns that need the broker of loans.
const FROM_LOANS: [&str; 4] = ["lent", "used", "usedenergy", "wouldidle"];

/// The columns that are shown unless others are asked for.
pub const USUAL: &str = "jobid,jobname%9,user%8,state%9,elapsed%10,protection,energy%10,share%6";

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

/// How a table is printed.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Columns of fixed width.
    Aligned,
    /// Fields with this between them, and behind the last one if so wanted.
    Parsable(String, bool),
    /// Fields with commas between them, quoted where needed.
    Csv,
}

/// A table of text: headings with their widths, and rows.
#[derive(Default)]
pub struct Sheet {
    /// Heading, width, whether to the left.
    pub head: Vec<(String, usize, bool)>,
    /// As many cells each as there are headings.
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    /// The runs in these columns.
    pub fn of(lines: &[Joined], columns: &[Column]) -> Sheet {
        Sheet {
            head: columns.iter().map(|c| (c.field.heading.to_string(), c.width, c.left)).collect(),
            rows: lines.iter().map(|l| columns.iter().map(|c| (c.field.value)(l)).collect()).collect(),
        }
    }

    /// The table as text.
    pub fn text(&self, form: &Form, header: bool) -> String {
        let names: Vec<String> = self.head.iter().map(|h| h.0.clone()).collect();
        let mut text = String::new();
        if header {
            text += &self.line(form, &names);
            if *form == Form::Aligned {
                let rules: Vec<String> = self.head.iter().map(|h| "-".repeat(h.1)).collect();
                text += &self.line(form, &rules);
            }
        }
        self.rows.iter().for_each(|row| text += &self.line(form, row));
        text
    }

    fn line(&self, form: &Form, cells: &[String]) -> String {
        let cells = cells.iter().map(|c| printable(c));
        let line = match form {
            Form::Aligned => cells.zip(&self.head).map(|(c, h)| fitted(&c, h.1, h.2)).collect::<Vec<_>>().join(" "),
            Form::Parsable(between, last) => {
                let line = cells.map(|c| c.replace(between.as_str(), " ")).collect::<Vec<_>>().join(between);
                if *last { line + between } else { line }
            }
            Form::Csv => cells.map(|c| quoted(&c)).collect::<Vec<_>>().join(","),
        };
        line.trim_end_matches(' ').to_string() + "\n"
    }
}

/// A cell in its width; what is cut ends with `+`, as sacct has it.
fn fitted(cell: &str, width: usize, left: bool) -> String {
    let cut: String = match cell.chars().count() > width {
        true => cell.chars().take(width - 1).chain(['+']).collect(),
        false => cell.to_string(),
    };
    if left { format!("{cut:<width$}") } else { format!("{cut:>width$}") }
}

/// A user's text fit for somebody else's terminal.
pub fn printable(text: &str) -> String {
    let turns = |c| matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if c.is_control() || turns(c) { '?' } else { c }).collect()
}

/// A cell of a file that a spreadsheet may open: one that it would take for a formula has a quote in front. Numbers stay.
fn quoted(cell: &str) -> String {
    let formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && !is_number(cell);
    let guarded = if formula { format!("'{cell}") } else { cell.to_string() };
    let cell = guarded.as_str();
    if cell.contains([',', '"', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_string() }
}

/// Whether a cell with a sign is a number, a share, a time or nothing.
fn is_number(cell: &str) -> bool {
    let digits = cell.strip_prefix(['+', '-']).unwrap_or("=");
    let plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | ':' | '%');
    cell.parse::<f64>().is_ok()
        || cell == "-"
        || (digits.starts_with(|c: char| c.is_ascii_digit()) && digits.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_of_a_csv_is_a_formula_and_numbers_stay_numbers() {
        for (cell, safe) in [
            ("=HYPERLINK(\"http://x\",1)", "\"'=HYPERLINK(\"\"http://x\"\",1)\""),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("-2+3", "'-2+3"),
            ("@SUM(1)", "'@SUM(1)"),
            ("\tx", "'\tx"),
            ("\rx", "'\rx"),
            ("-5", "-5"),
            ("-1.5e-7", "-1.5e-7"),
            ("+3.25%", "+3.25%"),
            ("-00:01:57", "-00:01:57"),
            ("-", "-"),
            ("heat=1", "heat=1"),
        ] {
            assert_eq!(quoted(cell), safe, "{cell}");
        }
    }

    #[test]
    fn fields_are_known_or_corrected_and_have_widths() {
        let two = columns("JobID%4,Energy%-20").expect("columns");
        assert_eq!((two[0].width, two[0].left, two[1].width, two[1].left), (4, false, 20, true));
        assert!(columns("enrgy").is_err_and(|e| e.contains("did you mean 'energy'")));
        for wrong in ["energy%", "energy%0", "energy%x", "energy%-", "energy%2000"] {
            assert!(columns(wrong).is_err_and(|e| e.contains("is not a width")), "{wrong}");
        }
        assert!(FROM_SACCT.iter().chain(&FROM_LOANS).all(|n| FIELDS.iter().any(|f| f.name == *n)));
        assert!(columns(USUAL).is_ok());
    }

    #[test]
    fn every_form_keeps_its_separators_whole() {
        let head = vec![("Name".to_string(), 6, false), ("N".to_string(), 3, true)];
        let sheet = Sheet { head, rows: vec![vec!["a,b|\"c\u{1b}[2J".into(), "1".into()]] };
        let text = |form: Form| sheet.text(&form, false);
        assert_eq!(text(Form::Csv), "\"a,b|\"\"c?[2J\",1\n");
        assert_eq!(text(Form::Parsable("|".into(), false)), "a,b \"c?[2J|1\n");
        assert_eq!(text(Form::Parsable("|".into(), true)), "a,b \"c?[2J|1|\n");
        assert_eq!(text(Form::Aligned), "a,b|\"+ 1\n");
        assert_eq!(sheet.text(&Form::Aligned, true), "  Name N\n------ ---\na,b|\"+ 1\n");
    }
}
