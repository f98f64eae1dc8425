//! Says which numbers and texts of a record can be true: pure, each refusal with its record, its field and its reason.
//!
//! What is stored is added up for others: one record that cannot be true would spoil reports and metrics of all. What is
//! merely odd is taken: clocks are set, nodes die, and the truth of a bad hour must not be lost.

use config::Site;
use energy::SourceKind;
use protocol::{Batch, Event, Messages, Plan, Protection, Record};
use std::collections::BTreeSet;

/// How far a clock may have been set, s: moments may lie so far outside of their run, and ends before beginnings.
const CLOCK_S: f64 = 86_400.0;

/// How much longer than an interval what a counter shows of it may have taken, s: some stand still for a while.
const COUNTER_S: f64 = 600.0;

/// Most records of a batch; a wrapper sends 500 at most.
const MOST_RECORDS: usize = 10_000;

/// Most nodes whose work a batch takes back, beside twice those of its run.
const MOST_ROLLED_BACK: usize = 1000;

/// Longest texts, bytes: a name, a path, an explanation, a plan.
const LONGEST_NAME: usize = 1024;
const LONGEST_PATH: usize = 4096;
const LONGEST_TEXT: usize = 16 << 10;
const LONGEST_PLAN: usize = 512 << 10;

/// Longest word, bytes: a state, a source.
const LONGEST_WORD: usize = 32;

/// More than any of these is no checkpoint's volume, restart, interval or share.
const MOST_BYTES: u64 = 1 << 60;
const MOST_RESTARTS: u32 = 100_000;
const LONGEST_INTERVAL_S: f64 = 1e60;
const MOST_OVERHEAD: f64 = 1e12;

/// What is known of a run beside its records.
#[derive(Clone, Debug)]
pub struct Known<'a> {
    /// Now, s since the epoch.
    pub now_s: f64,
    /// When it began; absent where nobody but its user says.
    pub since_s: Option<f64>,
    /// When its job ended, for good.
    pub until_s: Option<f64>,
    /// The nodes that it may name; absent where nobody but its user says.
    pub nodes: Option<&'a BTreeSet<String>>,
    /// How many it may name.
    pub most_nodes: usize,
    /// More than this is never believed of one node, W.
    pub max_node_w: f64,
}

impl Known<'_> {
    /// A run of which its user's word is all there is.
    pub fn unknown(site: &Site, now_s: f64, most_nodes: usize) -> Known<'static> {
        Known { now_s, since_s: None, until_s: None, nodes: None, most_nodes, max_node_w: site.energy.max_node_w }
    }
}

/// Why a record cannot be true.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Implausible {
    /// There are too many.
    #[error("a batch of {0} records: {MOST_RECORDS} are taken at once; send them in parts")]
    Records(usize),
    /// They go back with too many nodes.
    #[error("a batch that takes back the work of {0} nodes, more than the run can have had: send it in parts")]
    RolledBack(usize),
    /// They do not follow each other.
    #[error(
        "record {seq} stands where record {wanted} was to come: a batch holds records in their order, without a gap"
    )]
    Order {
        /// Its number.
        seq: u64,
        /// The number that was to come.
        wanted: u64,
    },
    /// A number cannot be true.
    #[error("record {seq}: {field} = {value} {why}")]
    Number {
        /// The record's number.
        seq: u64,
        /// Which of its fields.
        field: &'static str,
        /// What stands there.
        value: f64,
        /// Why it cannot be true.
        why: String,
    },
    /// A text cannot be taken.
    #[error("record {seq}: {field} '{value}' {why}")]
    Text {
        /// The record's number.
        seq: u64,
        /// Which of its fields.
        field: &'static str,
        /// What stands there, shortened.
        value: String,
        /// Why it cannot be taken.
        why: String,
    },
}

/// Whether all records of a batch can be true.
///
/// # Errors
/// The first that cannot.
pub fn check(batch: &Batch, known: &Known<'_>) -> Result<(), Implausible> {
    if batch.records.len() > MOST_RECORDS {
        return Err(Implausible::Records(batch.records.len()));
    }
    let first = batch.records.first().filter(|r| r.seq == 1 && matches!(r.event, Event::Started { .. }));
    // A run that begins here began when it says, where nobody else does.
    let known = &Known { since_s: known.since_s.or(first.map(|r| r.at_s)), ..known.clone() };
    let rolled_back: usize = batch.records.iter().map(|record| rolled_back(&record.event)).sum();
    if rolled_back > MOST_ROLLED_BACK + 2 * known.most_nodes {
        return Err(Implausible::RolledBack(rolled_back));
    }
    let mut wanted = batch.records.first().map_or(1, |r| r.seq);
    for record in &batch.records {
        if record.seq != wanted || record.seq == 0 {
            return Err(Implausible::Order { seq: record.seq, wanted: wanted.max(1) });
        }
        wanted = record.seq.saturating_add(1);
        Look { seq: record.seq, known }.at(record)?;
    }
    Ok(())
}

/// Nodes whose work a record takes back: each is looked for in all of the run.
fn rolled_back(event: &Event) -> usize {
    match event {
        Event::InGroup { nodes, of, .. } if matches!(**of, Event::RolledBack { .. }) => nodes.len(),
        Event::RolledBack { .. } => 1,
        _ => 0,
    }
}

/// One record being looked at.
struct Look<'a> {
    seq: u64,
    known: &'a Known<'a>,
}

impl Look<'_> {
    fn at(&self, record: &Record) -> Result<(), Implausible> {
        self.moment("at_s", record.at_s)?;
        self.event(record.at_s, &record.event)
    }

    fn event(&self, at_s: f64, event: &Event) -> Result<(), Implausible> {
        match event {
            Event::Started { restart_count, user, account, partition, job_name, nodes, dir, .. } => {
                self.most("restart_count", f64::from(*restart_count), f64::from(MOST_RESTARTS))?;
                for (field, text) in
                    [("user", user), ("account", account), ("partition", partition), ("job_name", job_name)]
                {
                    self.length(field, text, LONGEST_NAME)?;
                }
                self.length("dir", dir, LONGEST_PATH)?;
                self.nodes(nodes)
            }
            Event::Planned(plan) => self.plan(plan),
            Event::Protection(protection) => self.protection(protection),
            Event::Phase { node, start_s, end_s, joules, source, .. } => {
                self.node(node)?;
                self.span(["start_s", "end_s"], *start_s, *end_s)?;
                self.joules(*joules, *end_s, 1.0)?;
                self.source(source)
            }
            Event::Reading { node, reading } => {
                self.node(node)?;
                self.moment("since_s", reading.since_s)?;
                self.joules(Some(reading.joules), at_s, 1.0)?;
                self.amount("cpu_s", reading.cpu_s)?;
                self.source(&reading.source)
            }
            Event::Committed { begun_s, ended_s, bytes, written_bytes, joules, still_s, .. } => {
                self.span(["begun_s", "ended_s"], *begun_s, *ended_s)?;
                self.most("bytes", *bytes as f64, MOST_BYTES as f64)?;
                self.most("written_bytes", written_bytes.unwrap_or(0) as f64, *bytes as f64)?;
                self.joules(*joules, *ended_s, self.known.most_nodes as f64)?;
                still_s.map_or(Ok(()), |s| self.amount("still_s", s))
            }
            Event::Messages(messages) => self.messages(messages),
            Event::CheckpointFailed { reason } => self.length("reason", reason, LONGEST_TEXT),
            Event::Failure { node, failed_s, detected_s, reason, .. } => {
                node.as_ref().map_or(Ok(()), |n| self.node(n))?;
                self.span(["failed_s", "detected_s"], *failed_s, *detected_s)?;
                self.length("reason", reason, LONGEST_TEXT)
            }
            // 0 is the beginning of all.
            Event::RolledBack { kept_until_s, .. } if *kept_until_s == 0.0 => Ok(()),
            Event::RolledBack { kept_until_s, .. } => self.moment("kept_until_s", *kept_until_s),
            Event::Lent { node, start_s, end_s, joules, .. } => {
                self.node(node)?;
                self.span(["start_s", "end_s"], *start_s, *end_s)?;
                self.joules(*joules, *end_s, 1.0)
            }
            Event::Decided { action, reason, interval_s } => {
                self.length("action", action, LONGEST_NAME)?;
                self.length("reason", reason, LONGEST_TEXT)?;
                self.range("interval_s", *interval_s, -LONGEST_INTERVAL_S, LONGEST_INTERVAL_S)
            }
            Event::Ordered { id, by, text, checkpoint, .. } => {
                for (field, value, most) in
                    [("id", id, LONGEST_NAME), ("by", by, LONGEST_NAME), ("text", text, LONGEST_TEXT)]
                {
                    self.length(field, value, most)?;
                }
                let Some(made) = checkpoint else { return Ok(()) };
                self.length("path", &made.path, LONGEST_PATH)?;
                self.amount("seconds", made.seconds)?;
                self.most("bytes", made.bytes as f64, MOST_BYTES as f64)?;
                self.joules(made.joules, at_s, self.known.most_nodes as f64)
            }
            Event::InGroup { nodes, of, .. } => {
                self.nodes(nodes)?;
                match **of {
                    // What holds groups is no group.
                    Event::InGroup { .. } => Err(self.text("event", "in_group", "holds another of its kind".into())),
                    ref of => self.event(at_s, of),
                }
            }
            Event::Ended { state, .. } => self.word("state", state),
        }
    }

    fn protection(&self, protection: &Protection) -> Result<(), Implausible> {
        let Protection { engine, why, reason, cure, largest_loss_s, .. } = protection;
        self.word("engine", engine)?;
        for (field, text) in [("why", why), ("reason", reason), ("cure", cure)] {
            self.length(field, text, LONGEST_TEXT)?;
        }
        largest_loss_s.map_or(Ok(()), |s| self.range("largest_loss_s", s, 0.0, LONGEST_INTERVAL_S))
    }

    fn messages(&self, messages: &Messages) -> Result<(), Implausible> {
        self.length("script", &messages.script, LONGEST_NAME)?;
        self.length("together", messages.together.as_deref().unwrap_or_default(), LONGEST_TEXT)?;
        self.most("nodes", f64::from(messages.nodes), self.known.most_nodes as f64)?;
        let Some(counted) = messages.counted else { return Ok(()) };
        self.most("count", counted.count as f64, MOST_BYTES as f64)?;
        self.most("bytes", counted.bytes as f64, MOST_BYTES as f64)?;
        self.amount("over_s", counted.over_s)
    }

    fn plan(&self, plan: &Plan) -> Result<(), Implausible> {
        let length = serde_json::to_vec(plan).map_or(usize::MAX, |json| json.len());
        self.most("bytes of the plan", length as f64, LONGEST_PLAN as f64)?;
        let others = plan.alternatives.iter().filter_map(|a| a.energy_overhead);
        let mut all = others.chain([plan.expected_energy_overhead]);
        all.try_for_each(|overhead| self.range("energy overhead", overhead, -MOST_OVERHEAD, MOST_OVERHEAD))
    }

    /// A moment near the run's time.
    fn moment(&self, field: &'static str, value: f64) -> Result<(), Implausible> {
        let Known { now_s, since_s, until_s, .. } = self.known;
        let first = since_s.map_or(0.0, |s| (s - CLOCK_S).max(0.0));
        let last = until_s.unwrap_or(*now_s).min(*now_s) + CLOCK_S;
        if (first..=last).contains(&value) {
            return Ok(());
        }
        let why = format!("is not within a day of the job's time: it must be from {first:.0} to {last:.0}");
        Err(self.number(field, value, why))
    }

    fn span(&self, fields: [&'static str; 2], from_s: f64, to_s: f64) -> Result<(), Implausible> {
        self.moment(fields[0], from_s)?;
        self.moment(fields[1], to_s)?;
        if to_s >= from_s - CLOCK_S {
            return Ok(());
        }
        Err(self.number(fields[1], to_s, format!("lies more than a day before {} = {from_s}", fields[0])))
    }

    /// What so many nodes could have used since the run began.
    fn joules(&self, joules: Option<f64>, until_s: f64, nodes: f64) -> Result<(), Implausible> {
        let Some(value) = joules else { return Ok(()) };
        let since_s = self.known.since_s.unwrap_or(0.0) - CLOCK_S;
        let most = self.known.max_node_w * nodes * ((until_s - since_s).max(0.0) + COUNTER_S);
        if (0.0..=most).contains(&value) {
            return Ok(());
        }
        let most_w = self.known.max_node_w;
        let why = format!("J cannot be: a node draws at most energy.max_node_w = {most_w} W, so from 0 to {most:.0} J");
        Err(self.number("joules", value, why))
    }

    fn amount(&self, field: &'static str, value: f64) -> Result<(), Implausible> {
        self.range(field, value, 0.0, LONGEST_INTERVAL_S)
    }

    fn most(&self, field: &'static str, value: f64, most: f64) -> Result<(), Implausible> {
        self.range(field, value, 0.0, most)
    }

    fn range(&self, field: &'static str, value: f64, least: f64, most: f64) -> Result<(), Implausible> {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(self.number(field, value, format!("must be from {least} to {most}")))
    }

    fn nodes(&self, nodes: &[String]) -> Result<(), Implausible> {
        self.most("number of nodes", nodes.len() as f64, self.known.most_nodes as f64)?;
        nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&self, node: &str) -> Result<(), Implausible> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if node.is_empty() || node.len() > 255 || !node.bytes().all(plain) {
            return Err(self.text("node", node, "is no name of a node: letters, digits, '.', '_' and '-'".into()));
        }
        match self.known.nodes {
            Some(nodes) if !nodes.contains(node) => {
                Err(self.text("node", node, "is not of this job, by Slurm's word".into()))
            }
            _ => Ok(()),
        }
    }

    fn source(&self, source: &str) -> Result<(), Implausible> {
        let is_known = |part: &str| SourceKind::ALL.iter().any(|kind| kind.as_str() == part);
        if source.is_empty() || (source.len() <= LONGEST_NAME && source.split(',').all(is_known)) {
            return Ok(());
        }
        let known = SourceKind::ALL.map(|k| k.as_str()).join(", ");
        Err(self.text("source", source, format!("is no source of energy figures: {known}")))
    }

    fn word(&self, field: &'static str, text: &str) -> Result<(), Implausible> {
        let plain = |b: u8| b.is_ascii_lowercase() || b == b'_';
        if (1..=LONGEST_WORD).contains(&text.len()) && text.bytes().all(plain) {
            return Ok(());
        }
        Err(self.text(field, text, format!("must be one word of at most {LONGEST_WORD} small letters")))
    }

    fn length(&self, field: &'static str, text: &str, most: usize) -> Result<(), Implausible> {
        if text.len() <= most {
            return Ok(());
        }
        Err(self.text(field, text, format!("has {} bytes: {most} are taken", text.len())))
    }

    fn number(&self, field: &'static str, value: f64, why: String) -> Implausible {
        Implausible::Number { seq: self.seq, field, value, why }
    }

    fn text(&self, field: &'static str, value: &str, why: String) -> Implausible {
        let value = value.chars().take(80).flat_map(char::escape_debug).collect();
        Implausible::Text { seq: self.seq, field, value, why }
    }
}

#[cfg(test)]
mod tests;
