//! Tells what runs cost: adds up what the store holds of them.

use crate::database::Connection;
use crate::error::{Error, Result};
use crate::report::{self, ByRun, Counted, PhaseSum, Selection};
use protocol::{AdminSummary, Phase, PhaseAccount, RecordAccount, RunAccount, RunKey, Totals};
use serde::Deserialize;
use std::collections::BTreeSet;
use tariff::Tariff;

mod sound;

/// The longest text of a run in its AdminComment, characters.
const LONGEST_WORD: usize = 80;

/// Most runs that one question of a user may ask for, and most bytes of their records, if it is for sums and if it is for
/// lists: the answer is made in memory.
const MOST_RUNS: u64 = 20_000;
const MOST_SUMMED: u64 = 512 << 20;
const MOST_LISTED: u64 = 64 << 20;

/// Which runs are wanted; absent parts do not restrict. Names are one or several, separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wanted {
    /// Slurm job ids; that of an array stands for all its tasks.
    #[serde(deserialize_with = "numbers")]
    pub job: Vec<u32>,
    /// Slurm job ids of jobs and tasks alone, beside those.
    #[serde(deserialize_with = "numbers")]
    pub task: Vec<u32>,
    /// User names.
    pub user: Option<String>,
    /// Slurm accounts.
    pub account: Option<String>,
    /// States of the run.
    pub state: Option<String>,
    /// Runs that had not ended by then.
    pub start: Option<f64>,
    /// Runs that had begun by then.
    pub end: Option<f64>,
    /// Only sums: no lists of records, failures, checkpoints, spans, decisions and loans, no phase that did not occur,
    /// and no plan.
    pub brief: bool,
}

fn numbers<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    let text = String::deserialize(from)?;
    let number = |n: &str| n.parse().map_err(|_| serde::de::Error::custom(format!("'{n}' is not a job id")));
    text.split(',').map(number).collect()
}

impl Wanted {
    fn selection(&self, uid: Option<u32>) -> Selection {
        let mut selection = Selection::default();
        if !(self.job.is_empty() && self.task.is_empty()) {
            let within = |column: &str, of: &[u32]| format!("{column} IN ({})", vec!["?"; of.len()].join(", "));
            let all = [("job", &self.job), ("array_job", &self.job), ("job", &self.task)];
            // Only terms that an index answers: with a constant beside them SQLite would read all runs.
            let all: Vec<_> = all.into_iter().filter(|(_, of)| !of.is_empty()).collect();
            let any = all.iter().map(|(column, of)| within(column, of)).collect::<Vec<_>>().join(" OR ");
            selection.and(&format!("({any})"), all.iter().flat_map(|(_, of)| of.iter().copied()));
        }
        for (column, names) in [("user", &self.user), ("account", &self.account), ("state", &self.state)] {
            let names = names.as_deref().into_iter().flat_map(|n| n.split(','));
            selection.one_of(column, names.map(str::to_owned).collect());
        }
        if let Some(start) = self.start {
            selection.and("(end_s IS NULL OR end_s >= ?)", [start]);
        }
        if let Some(end) = self.end {
            selection.and("start_s <= ?", [end]);
        }
        selection.one_of("uid", uid.into_iter().collect());
        selection
    }
}

/// How much a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Number of runs.
    pub runs: u64,
    /// Bytes of their records.
    pub bytes: u64,
}

/// A question that asks for too much at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} runs with {} bytes of records are asked for at once, and {MOST_RUNS} with {most_bytes} are told: narrow the \
     question by jobs (-j) or times (-S, -E)", asked.runs, asked.bytes
)]
pub struct TooMuch {
    asked: Asked,
    most_bytes: u64,
}

impl Asked {
    /// Whether a user may ask for so much; sums need less memory than lists.
    ///
    /// # Errors
    /// That it is too much.
    pub fn allow(self, brief: bool) -> Result<(), TooMuch> {
        let most_bytes = if brief { MOST_SUMMED } else { MOST_LISTED };
        let is_fine = self.runs <= MOST_RUNS && (self.bytes <= most_bytes || self.runs <= 1 && brief);
        if is_fine { Ok(()) } else { Err(TooMuch { asked: self, most_bytes }) }
    }
}

/// How much the runs that are wanted are, of those of `uid` if given.
pub fn asked(c: &Connection, wanted: &Wanted, uid: Option<u32>) -> Result<Asked> {
    let (runs, bytes) = report::size(c, &wanted.selection(uid))?;
    Ok(Asked { runs, bytes })
}

/// The accounts of the runs that are wanted, oldest first; only those of `uid` if given, with what they cost by a tariff.
pub fn accounts(c: &Connection, wanted: &Wanted, uid: Option<u32>, tariff: Option<&Tariff>) -> Result<Vec<RunAccount>> {
    read(c, &wanted.selection(uid), if wanted.brief { Detail::Sums } else { Detail::All }, tariff)
}

/// The account of one run.
///
/// # Errors
/// What the database says, or that there is no such run.
pub fn account(c: &Connection, key: &RunKey) -> Result<RunAccount> {
    one(c, key, Detail::All)
}

/// The account of one run without what may be of any length: what its nodes did when, and what was decided.
///
/// # Errors
/// As [`account`] says.
pub fn ended(c: &Connection, key: &RunKey) -> Result<RunAccount> {
    one(c, key, Detail::Ended)
}

/// The sums of one run, without its lists.
///
/// # Errors
/// As [`account`] says.
pub fn brief(c: &Connection, key: &RunKey) -> Result<RunAccount> {
    one(c, key, Detail::Sums)
}

/// How much of a run is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// No lists.
    Sums,
    /// Lists of a bounded length.
    Ended,
    /// All.
    All,
}

fn one(c: &Connection, key: &RunKey, detail: Detail) -> Result<RunAccount> {
    let mut selection = Selection::default();
    selection.and("cluster = ?", [&key.cluster]);
    selection.and("run = ?", [&key.run]);
    read(c, &selection, detail, None)?.pop().ok_or_else(|| Error::NoRun(key.run.clone()))
}

fn read(c: &Connection, selection: &Selection, detail: Detail, tariff: Option<&Tariff>) -> Result<Vec<RunAccount>> {
    c.make_room_for_choice()?;
    // One moment for all queries: a writer may be at work beside them.
    c.snapshot(|| read_all(c, selection, detail, tariff))
}

fn read_all(c: &Connection, selection: &Selection, detail: Detail, tariff: Option<&Tariff>) -> Result<Vec<RunAccount>> {
    report::choose(c, selection)?;
    let runs = report::runs(c)?;
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let mut sums = report::phase_sums(c, tariff)?;
    let mut counters = report::counters(c)?;
    let mut records = report::records(c, detail == Detail::Sums)?;
    let mut failures = report::failures(c)?;
    let mut counts = report::checkpoint_counts(c)?;
    let mut lists = match detail {
        Detail::Sums => None,
        detail => Some(Lists::read(c, detail)?),
    };
    let accounts = runs.into_iter().map(|(place, mut run, plan)| {
        let (mut of_run, sums, counted) = (records.of(place), sums.of(place), counters.of(place));
        run.phases = phases(&sums, run.end_s.is_some());
        run.failures = failures.of(place);
        let until_s = sums.iter().map(|s| s.until_s).fold(run.start_s, f64::max);
        run.total = totals(&run, &of_run, measured_j(&of_run, &counted, &sums), until_s);
        run.total.metered_j = metered_j(counted.iter());
        if tariff.is_some() {
            let is_resilience = |sum: &&PhaseSum| sum.phase != Phase::Compute.as_str();
            run.total.bill = run.total.joules.map(|joules| report::bill(sums.iter(), joules));
            let resilience = sums.iter().filter(is_resilience);
            run.total.resilience_bill = run.total.resilience_j.map(|joules| report::bill(resilience, joules));
        }
        for record in &mut of_run {
            record.metered_j = metered_j(counted.iter().filter(|c| c.restart_count == record.restart_count));
        }
        run.total.checkpoints = counts.of(place);
        run.waits = run.end_s.is_none() && of_run.last().is_some_and(|record| record.end_s.is_some());
        expect(&mut run, plan.as_deref());
        match &mut lists {
            None => {
                run.failures.clear();
                run.phases.retain(|p| p.node_seconds != 0.0 || !p.source.is_empty());
            }
            Some(lists) => {
                run.records = of_run;
                run.plan = report::plan(plan.as_deref());
                lists.give(place, &mut run);
            }
        }
        sound::or_empty(run)
    });
    let mut accounts: Vec<RunAccount> = accounts.collect();
    let age = |a: &RunAccount, b: &RunAccount| a.start_s.total_cmp(&b.start_s).then_with(|| a.run.cmp(&b.run));
    accounts.sort_by(age);
    Ok(accounts)
}

/// What the nodes' counters showed, J; of records that are still open, what has been cut into phases. None if nothing was
/// read.
fn measured_j(records: &[RecordAccount], counters: &[Counted], sums: &[PhaseSum]) -> Option<f64> {
    let open = |restart_count| records.iter().find(|r| r.restart_count == restart_count).map(|r| r.state == "running");
    let closed = counters.iter().filter(|c| open(c.restart_count) == Some(false)).map(|c| c.joules);
    let cut = sums.iter().filter(|s| open(s.restart_count) == Some(true)).filter_map(|s| s.joules);
    closed.chain(cut).reduce(|sum, joules| sum + joules)
}

/// What the node services themselves counted, J; none if they told nothing.
fn metered_j<'a>(counters: impl Iterator<Item = &'a Counted>) -> Option<f64> {
    counters.filter_map(|c| c.metered_j).reduce(|sum, joules| sum + joules)
}

/// What a brief account leaves out.
struct Lists {
    checkpoints: ByRun<Vec<protocol::CheckpointAccount>>,
    spans: ByRun<Vec<protocol::PhaseSpan>>,
    decisions: ByRun<Vec<protocol::DecisionAccount>>,
    loans: ByRun<Vec<protocol::LoanAccount>>,
}

impl Lists {
    fn read(c: &Connection, detail: Detail) -> Result<Lists> {
        let all = detail == Detail::All;
        Ok(Lists {
            checkpoints: report::checkpoints(c)?,
            spans: if all { report::spans(c)? } else { ByRun::default() },
            decisions: if all { report::decisions(c)? } else { ByRun::default() },
            loans: report::loans(c)?,
        })
    }

    fn give(&mut self, place: i64, run: &mut RunAccount) {
        run.checkpoints = self.checkpoints.of(place);
        run.spans = self.spans.of(place);
        run.decisions = self.decisions.of(place);
        run.loans = self.loans.of(place);
    }
}

/// All phases in the order in which reports show them. Those that did not occur in a run that `has_ended`, and of which
/// anything was read, took no energy, and have no source; all else that was not read is absent.
fn phases(sums: &[PhaseSum], has_ended: bool) -> Vec<PhaseAccount> {
    let is_read = sums.iter().any(|s| s.joules.is_some());
    let of = |phase: Phase| {
        let of_phase = || sums.iter().filter(|s| s.phase == phase.as_str());
        let sources: BTreeSet<&str> = of_phase().map(|s| s.source.as_str()).filter(|s| !s.is_empty()).collect();
        // Not the -0.0 of an empty sum.
        let node_seconds = of_phase().fold(0.0, |sum, s| sum + s.node_seconds);
        let read_j = of_phase().filter_map(|s| s.joules).reduce(|sum, joules| sum + joules);
        PhaseAccount {
            phase,
            joules: read_j.or((is_read && has_ended && node_seconds == 0.0).then_some(0.0)),
            node_seconds,
            source: sources.into_iter().collect::<Vec<_>>().join(","),
        }
    };
    Phase::ALL.into_iter().map(of).collect()
}

/// A run that goes on is known until `until_s`.
fn totals(run: &RunAccount, records: &[RecordAccount], measured_j: Option<f64>, until_s: f64) -> Totals {
    let of = |phase: Phase| run.phases.iter().find(|p| p.phase == phase);
    let joules = |phase| of(phase).and_then(|p| p.joules).unwrap_or(0.0);
    let seconds = |phase| of(phase).map_or(0.0, |p| p.node_seconds);
    let all_s: f64 = run.phases.iter().map(|p| p.node_seconds).sum();
    let resilience_j = Phase::ALL.into_iter().filter(|p| *p != Phase::Compute).map(joules).sum();
    let over = |whole: f64, part: f64| (part > 0.0).then(|| (whole - part) / part);
    let last_s =
        run.end_s.or_else(|| records.last().map(|r| r.end_s.unwrap_or(r.start_s.max(until_s)))).unwrap_or(run.start_s);
    Totals {
        joules: measured_j,
        resilience_j: measured_j.map(|_| resilience_j),
        recomputed_j: measured_j.map(|_| joules(Phase::LostWork)),
        recomputed_node_s: seconds(Phase::LostWork),
        elapsed_s: last_s - run.start_s,
        held_s: records.iter().map(|r| r.end_s.unwrap_or(last_s) - r.start_s).sum::<f64>().max(0.0),
        failures: run.failures.iter().filter(|f| f.counts).count() as u32,
        records: records.len() as u32,
        energy_overhead: measured_j.and_then(|whole_j| over(whole_j, joules(Phase::Compute))),
        time_overhead: over(all_s, seconds(Phase::Compute)),
        ..Totals::default()
    }
}

/// What of a plan is held beside the measurement.
#[derive(Deserialize)]
struct Expected {
    expected_energy_overhead: f64,
    alternatives: Vec<Other>,
}

/// An alternative of a plan.
#[derive(Deserialize)]
struct Other {
    what: String,
    energy_overhead: Option<f64>,
}

/// Puts the prediction beside the measurement, and what the plan was expected to save against the other objective.
fn expect(run: &mut RunAccount, plan: Option<&str>) {
    let Some(plan) = plan.and_then(|p| serde_json::from_str::<Expected>(p).ok()) else { return };
    let other = plan.alternatives.iter().find(|a| a.what.starts_with("objective=")).and_then(|a| a.energy_overhead);
    let compute_j = run.phases.iter().find(|p| p.phase == Phase::Compute).and_then(|p| p.joules);
    run.total.expected_energy_overhead = Some(plan.expected_energy_overhead);
    run.total.expected_saving_j = other.zip(compute_j).map(|(o, j)| (o - plan.expected_energy_overhead) * j);
}

/// The short form of an account: its energy is what the node services counted, where they did, and no part of it is more.
pub fn summary(run: &RunAccount) -> AdminSummary {
    let whole_j = run.total.metered_j.or(run.total.joules);
    let part_j = |joules: Option<f64>| whole_j.zip(joules).map(|(whole_j, joules)| tenths(joules.min(whole_j)));
    let sources: BTreeSet<&str> =
        run.phases.iter().flat_map(|p| p.source.split(',')).filter(|s| !s.is_empty()).collect();
    AdminSummary {
        joulepoint: protocol::VERSION,
        run: short(&run.run),
        joules: whole_j.map(tenths),
        resilience_j: part_j(run.total.resilience_j),
        lost_work_j: part_j(run.total.recomputed_j),
        checkpoints: run.total.checkpoints,
        failures: run.total.failures,
        protection: run.protection.as_ref().map_or_else(String::new, |p| p.state.as_str().to_string()),
        source: short(&sources.into_iter().collect::<Vec<_>>().join(",")),
    }
}

/// A text from outside, cut to a bounded length.
fn short(text: &str) -> String {
    text.chars().take(LONGEST_WORD).collect()
}

fn tenths(joules: f64) -> f64 {
    (joules * 10.0).round() / 10.0
}
