//! Holds a batch against Slurm's word before anything of it is stored: whose its job is, when it ran, and on which nodes.

use crate::access::Access;
use crate::asked::user_name;
use crate::plausible::{self, Implausible, Known};
use crate::refusal::of_store;
use crate::words::{Heard, Life, Words};
use anyhow::Result;
use axum::http::StatusCode;
use config::Site;
use listener::Users;
use listener::now_s;
use listener::{Refusal, forbidden};
use parking_lot::Mutex;
use protocol::{Batch, Event, RunKey};
use serde_json::Value;
use slurm::JobName;
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{OpenRun, Readers, RunRow, Store};
use wire::Peer;

/// Most nodes that a run outside Slurm may name: it runs on the host where it was started.
const MOST_NODES_OUTSIDE: usize = 64;

/// How long before a job's start, and after its end, its run may be named, s.
const NAMED_S: f64 = 600.0;

/// How long after its last record a run is closed of whose owner Slurm said nothing, s.
const UNVERIFIED_S: f64 = 86_400.0;

/// Of how many runs at once it is asked again whose they are.
const ASK_TOGETHER: u32 = 50;

/// A batch that may be stored.
#[derive(Debug)]
pub(crate) struct Claimed {
    /// The batch, with Slurm's words in place of the user's where Slurm has some, and the name under which it is stored.
    pub batch: Batch,
    /// Whether Slurm says that the job is the sender's.
    pub verified: bool,
    /// What Slurm's commands call the job, where the run begins and Slurm says so.
    pub named: Option<JobName>,
}

/// What stands against a batch.
enum Word {
    /// A run outside Slurm: nobody but its user knows of it.
    Outside,
    /// Its job was found to be the sender's when it began.
    Kept,
    /// Slurm knows the job as the sender's.
    Theirs(Heard),
    /// Neither slurmctld nor accounting knows the job.
    Unknown,
}

impl Word {
    /// The newest life of a user's job.
    fn life(&self, uid: u32) -> Option<&Life> {
        match self {
            Word::Theirs(heard) => heard.lives.iter().rfind(|life| life.uid == uid),
            _ => None,
        }
    }
}

/// What batches are held against.
pub(crate) struct Claims {
    pub site: Arc<Site>,
    pub store: Arc<Mutex<Store>>,
    /// For the looks at what nobody has vouched for.
    pub reader: Arc<Mutex<Store>>,
    pub readers: Arc<Readers>,
    pub access: Arc<Access>,
    pub users: Arc<Users>,
    pub words: Words,
}

impl Claims {
    /// Holds a batch of `bytes` against what is known of its run and its job.
    ///
    /// # Errors
    /// Why it is not stored.
    pub(crate) fn claim(&self, peer: Peer, mut batch: Batch, bytes: usize) -> Result<Claimed, Refusal> {
        let now_s = now_s();
        let row = self.resolve(peer, &mut batch)?;
        self.users.bytes(now_s, peer.uid, bytes)?;
        if batch.records.is_empty() {
            return Ok(Claimed { batch, verified: row.is_some_and(|r| r.verified), named: None });
        }
        let job = job_of(&batch, row.as_ref())?;
        let begins = batch.records.iter().any(|r| matches!(r.event, Event::Started { .. }));
        let word = match &row {
            _ if job == 0 => Word::Outside,
            Some(row) if row.verified && !begins => Word::Kept,
            _ => self.ask(peer, job, &batch.key.run)?,
        };
        self.hold(peer, job, &batch, row.as_ref(), &word)?;
        let verified = matches!(word, Word::Kept | Word::Theirs(_));
        if row.is_none() && begins {
            self.begin(now_s, peer, job, verified, &mut batch.key)?;
        }
        if let Some(row) = row.filter(|row| verified && !row.verified && row.uid == peer.uid) {
            tracing::info!(
                run = batch.key.run,
                job = row.job,
                uid = row.uid,
                "Slurm now knows the job of a run as its user's"
            );
            self.vouch(&batch.key, peer.uid, job, &word).map_err(of_store)?;
        }
        self.say_as_slurm(peer, job, &mut batch, &word);
        clean(&mut batch)?;
        let named = word.life(peer.uid).filter(|_| begins).and_then(|life| life.name);
        Ok(Claimed { batch, verified, named })
    }

    /// Finds the run that a batch means, under the name by which it is stored: that of another user does not count.
    fn resolve(&self, peer: Peer, batch: &mut Batch) -> Result<Option<RunRow>, Refusal> {
        let store = self.readers.free();
        let plain = store.run(&batch.key).map_err(of_store)?;
        if let Some(row) = plain.as_ref().filter(|row| self.access.may(peer.uid, row.uid)) {
            return Ok(Some(row.clone()));
        }
        let own = own_key(&batch.key, peer.uid);
        if let Some(row) = store.run(&own).map_err(of_store)? {
            batch.key = own;
            return Ok(Some(row));
        }
        let first = batch.records.first();
        let begins = first.is_some_and(|r| r.seq == 1 && matches!(r.event, Event::Started { .. }));
        match (plain, first) {
            (Some(_), _) if begins => batch.key = own,
            (Some(_), _) => return Err(forbidden(peer, "write this run")),
            (None, Some(first)) if first.seq == 1 && !begins => {
                return Err(bad("record 1 of a run is its start: the event 'started'".into()));
            }
            (None, _) => {}
        }
        Ok(None)
    }

    /// Whose run a name means for who asks, if it may be seen.
    pub(crate) fn visible(&self, peer: Peer, key: &RunKey) -> Result<Option<RunKey>> {
        let store = self.readers.free();
        if store.owner(key)?.is_some_and(|owner| self.access.may(peer.uid, owner)) {
            return Ok(Some(key.clone()));
        }
        let own = own_key(key, peer.uid);
        Ok(store.owner(&own)?.map(|_| own))
    }

    /// What Slurm says of the job; nobody takes up a job of somebody else.
    fn ask(&self, peer: Peer, job: u32, run: &str) -> Result<Word, Refusal> {
        let named_s = match named(run) {
            Some((_, at_s)) => Some(at_s),
            // Root may keep books for others.
            None if peer.uid == 0 => None,
            None => {
                return Err(bad(format!(
                    "run {run} of job {job} has no name of a run: JOBID.START, with the second of its start"
                )));
            }
        };
        let is_theirs = |life: &Life| life.uid == peer.uid && is_during(life, named_s);
        let heard = self.words.hear(peer.uid, job, false, 0.0, &|lives| lives.iter().any(is_theirs))?;
        if heard.lives.iter().any(is_theirs) {
            return Ok(Word::Theirs(heard));
        }
        let own = heard.lives.iter().find(|life| life.uid == peer.uid);
        match own {
            // Without accounting nobody knows when the job began first.
            Some(life) if heard.is_without_accounting && life.restarts > 0 => Ok(Word::Theirs(heard)),
            // Root may keep books for others; it is not taken for the job's owner.
            _ if peer.uid == 0 => Ok(Word::Unknown),
            Some(life) => Err(bad(format!(
                "run {run} does not begin while job {job} ran: by Slurm's word it began at {:.0}; a run is named \
                 JOBID.START, with the second of its start",
                life.start_s.unwrap_or(0.0)
            ))),
            None if heard.lives.is_empty() => Ok(Word::Unknown),
            None => Err(Refusal(StatusCode::FORBIDDEN, format!("job {job} is not of user {}", peer.uid))),
        }
    }

    /// Holds the numbers, times and nodes of all records against what is known.
    fn hold(&self, peer: Peer, job: u32, batch: &Batch, row: Option<&RunRow>, word: &Word) -> Result<(), Refusal> {
        let (now_s, most_w) = (now_s(), self.site.energy.max_node_w);
        let refused = |e: Implausible| bad(e.to_string());
        let begun_s = row.map(|r| r.start_s);
        let heard = match word {
            Word::Outside => {
                let known = Known { since_s: begun_s, ..Known::unknown(&self.site, now_s, MOST_NODES_OUTSIDE) };
                return plausible::check(batch, &known).map_err(refused);
            }
            Word::Unknown => {
                let known = Known { since_s: begun_s, ..Known::unknown(&self.site, now_s, self.words.most_nodes()) };
                return plausible::check(batch, &known).map_err(refused);
            }
            Word::Kept => None,
            Word::Theirs(heard) => Some(heard),
        };
        let mut nodes = match row {
            Some(_) => self.readers.free().nodes_of(&batch.key).map_err(of_store)?,
            None => BTreeSet::new(),
        };
        nodes.extend(heard.iter().flat_map(|h| h.nodes_of(peer.uid)));
        let since_s = heard.and_then(|h| h.since_s(peer.uid)).into_iter().chain(begun_s).reduce(f64::min);
        let until_s = heard.and_then(|h| h.until_s(peer.uid));
        let known = |nodes: Option<&BTreeSet<String>>, most: usize| {
            let known = Known { now_s, since_s, until_s, nodes: None, most_nodes: most, max_node_w: most_w };
            plausible::check(batch, &Known { nodes, ..known })
        };
        match known(Some(&nodes), nodes.len().max(1)) {
            // The job may have had others before, or has got some since.
            Err(Implausible::Text { field: "node", .. } | Implausible::Number { field: "number of nodes", .. }) => {}
            held => return held.map_err(refused),
        }
        // An answer from before these records cannot speak against them.
        let written_s = batch.records.last().map_or(now_s, |r| r.at_s.min(now_s));
        nodes.extend(self.nodes_by_slurm(peer.uid, job, written_s, true)?);
        known(Some(&nodes), nodes.len().max(1)).map_err(refused)
    }

    /// The nodes that a user's job has had, by Slurm's word; all, if it cannot say more of a job that `is_theirs`, or that it
    /// knows as theirs.
    fn nodes_by_slurm(&self, uid: u32, job: u32, since_s: f64, is_theirs: bool) -> Result<BTreeSet<String>, Refusal> {
        let wide = self.words.hear(uid, job, true, since_s, &|_| true)?;
        let mut nodes: BTreeSet<String> = wide.nodes_of(uid).collect();
        // Without accounting nobody knows which nodes it had before one of them died.
        if wide.is_without_accounting && (is_theirs || wide.lives.iter().any(|life| life.uid == uid)) {
            nodes.extend(self.words.cluster().iter().flat_map(|all| all.iter().cloned()));
        }
        Ok(nodes)
    }

    /// Holds nodes that a run of a user says it had against the store, if Slurm has vouched for what is there
    /// (`is_verified`), and then against Slurm's word on its job, whose number must be nobody else's by now.
    ///
    /// # Errors
    /// That neither knows of one, yet, or that Slurm does not answer: whoever asks asks again.
    pub(crate) fn had(
        &self,
        key: &RunKey,
        (uid, job): (u32, u32),
        is_verified: bool,
        names: BTreeSet<&String>,
    ) -> Result<(), Refusal> {
        if names.is_empty() {
            return Ok(());
        }
        self.not_anothers(uid, job)?;
        let mut nodes =
            if is_verified { self.readers.free().nodes_of(key).map_err(of_store)? } else { BTreeSet::new() };
        if names.iter().all(|name| nodes.contains(*name)) {
            return Ok(());
        }
        nodes.extend(self.nodes_by_slurm(uid, job, 0.0, is_verified)?);
        match names.into_iter().find(|name| !nodes.contains(*name)) {
            Some(name) => {
                let text = format!("neither the store nor Slurm knows node {name} as one of job {job}; ask again");
                Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, text))
            }
            None => Ok(()),
        }
    }

    /// Refuses a number that is another user's job by Slurm's word of now: numbers are used again, and what is ended at a
    /// node is found by the number of its job.
    fn not_anothers(&self, uid: u32, job: u32) -> Result<(), Refusal> {
        let heard = self.words.hear(uid, job, false, 0.0, &|_| true)?;
        match heard.lives.last().filter(|life| life.uid != uid) {
            Some(_) => Err(Refusal(StatusCode::FORBIDDEN, format!("job {job} is another user's by now"))),
            None => Ok(()),
        }
    }

    /// Lets a run begin, if its user may begin one more; and under which name.
    fn begin(&self, now_s: f64, peer: Peer, job: u32, verified: bool, key: &mut RunKey) -> Result<(), Refusal> {
        if peer.uid == 0 {
            return Ok(());
        }
        self.users.run(now_s, peer.uid)?;
        let (open, limit) = (self.readers.free().count_open(peer.uid).map_err(of_store)?, self.site.limits.open_runs);
        if open >= limit {
            let text = format!(
                "user {} has {open} runs that have not ended: limits.open_runs of the site file is {limit}; the records of \
                 this one wait where they are",
                peer.uid
            );
            return Err(Refusal(StatusCode::TOO_MANY_REQUESTS, text));
        }
        // The name of a job's run is its owner's, whom only Slurm knows.
        let is_anybodys = job == 0 && named(&key.run).is_none();
        if !verified && !is_anybodys && !key.run.contains('~') {
            *key = own_key(key, peer.uid);
        }
        Ok(())
    }

    /// Puts Slurm's words in place of the user's where it has some.
    fn say_as_slurm(&self, peer: Peer, job: u32, batch: &mut Batch, word: &Word) {
        let known = word.life(peer.uid);
        for record in &mut batch.records {
            let Event::Started { user, account, partition, .. } = &mut record.event else { continue };
            match known {
                Some(life) => {
                    user.clone_from(&life.user);
                    account.clone_from(&self.words.account(peer.uid, job));
                    if !life.partition.is_empty() {
                        partition.clone_from(&life.partition);
                    }
                }
                // Nobody but Slurm says whose account pays.
                None if peer.uid != 0 => {
                    (*user, *account, *partition) = (user_name(peer.uid), String::new(), String::new())
                }
                None => {}
            }
        }
    }

    /// Notes that Slurm knows the job of a run as its user's, with what it says of it.
    fn vouch(&self, key: &RunKey, uid: u32, job: u32, word: &Word) -> store::Result<()> {
        let partition = word.life(uid).map_or("", |life| &life.partition);
        self.store.lock().verify(key, &self.words.account(uid, job), partition)
    }

    /// Asks again of whom Slurm said nothing when a run began, and closes what nobody was heard of for a day.
    pub(crate) fn look_at_unverified(&self) -> Result<()> {
        let runs = self.reader.lock().unverified(ASK_TOGETHER)?;
        for run in &runs {
            let peer = Peer { uid: run.uid, gid: 0 };
            match self.ask(peer, run.job, &run.key.run) {
                Ok(word @ Word::Theirs(_)) => {
                    let OpenRun { key, job, uid, .. } = run;
                    tracing::info!(run = key.run, job, uid, "Slurm now knows the job of a run as its user's");
                    self.vouch(key, *uid, *job, &word)?;
                }
                Ok(_) => {}
                Err(e) => tracing::debug!(run = run.key.run, why = e.1, "a run stays unverified"),
            }
        }
        let closed = self.store.lock().close_unverified(now_s() - UNVERIFIED_S)?;
        if closed > 0 {
            tracing::warn!(closed, "runs of whose owner Slurm said nothing were not heard of for a day and are closed");
        }
        Ok(())
    }
}

/// The job of a batch: that of its name, of its start, and of what is stored must be one.
fn job_of(batch: &Batch, row: Option<&RunRow>) -> Result<u32, Refusal> {
    let run = batch.key.run.split('~').next().unwrap_or_default();
    let mut job = row.map(|r| r.job);
    for record in &batch.records {
        let Event::Started { job: its, .. } = record.event else { continue };
        if job.is_some_and(|job| job != its) {
            let first = job.unwrap_or(0);
            let text = format!("record {}: job {its} is not that of run {run}, which is {first}", record.seq);
            return Err(bad(text));
        }
        if let Some((named, _)) = named(run).filter(|(named, _)| its != 0 && *named != its) {
            return Err(bad(format!("record {}: run {run} is a name of job {named}, not of job {its}", record.seq)));
        }
        job = Some(its);
    }
    Ok(job.unwrap_or(0))
}

/// Job and second of the start, of a run that is named `JOBID.START`.
fn named(run: &str) -> Option<(u32, f64)> {
    let run = run.split('~').next().unwrap_or_default();
    let (job, start) = run.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (digits(job) && digits(start)).then(|| Some((job.parse().ok()?, start.parse::<u64>().ok()? as f64)))?
}

/// Whether a run may have begun at a moment of a job's life; one whose beginning Slurm does not know may have.
fn is_during(life: &Life, named_s: Option<f64>) -> bool {
    let Some(at_s) = named_s else { return true };
    let until_s = life.end_s.unwrap_or(f64::INFINITY);
    life.start_s.is_none_or(|start_s| (start_s - NAMED_S..=until_s.max(start_s) + NAMED_S).contains(&at_s))
}

/// The name of a run whose own is somebody else's, or may be: no name from outside holds a `~`.
fn own_key(key: &RunKey, uid: u32) -> RunKey {
    RunKey { cluster: key.cluster.clone(), run: format!("{}~{uid}", key.run) }
}

/// Takes out of all texts, whichever event they are of, what would speak to the terminal of who reads a report, or turn what
/// stands beside it.
fn clean(batch: &mut Batch) -> Result<(), Refusal> {
    let refused = |e: serde_json::Error| bad(e.to_string());
    for record in &mut batch.records {
        let mut event = serde_json::to_value(&record.event).map_err(refused)?;
        if cleaned(&mut event) {
            record.event = serde_json::from_value(event).map_err(refused)?;
        }
    }
    Ok(())
}

/// Cleans all texts of a document; whether one was not clean.
fn cleaned(document: &mut Value) -> bool {
    let speaks = |c: char| {
        c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let plain = |text: &str| text.chars().map(|c| if speaks(c) { ' ' } else { c }).collect::<String>();
    match document {
        Value::String(text) if text.contains(speaks) => {
            *text = plain(text);
            true
        }
        // All of them, whether or not the first was clean.
        Value::Array(all) => all.iter_mut().map(cleaned).filter(|was_not| *was_not).count() > 0,
        Value::Object(all) => {
            let has_key = all.keys().any(|key| key.contains(speaks));
            if has_key {
                *all = std::mem::take(all).into_iter().map(|(key, value)| (plain(&key), value)).collect();
            }
            all.values_mut().map(cleaned).filter(|was_not| *was_not).count() > 0 || has_key
        }
        _ => false,
    }
}

fn bad(text: String) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(start_s: Option<f64>, end_s: Option<f64>) -> Life {
        Life {
            uid: 1,
            user: "alice".into(),
            partition: "all".into(),
            start_s,
            end_s,
            nodes: vec!["n1".into()],
            restarts: 0,
            name: None,
        }
    }

    #[test]
    fn a_name_is_a_jobs_if_it_is_its_number_and_a_second() {
        assert_eq!(named("7.100"), Some((7, 100.0)));
        assert_eq!(named("7.100~1000"), Some((7, 100.0)));
        for other in ["local-sleep.100", "7", "7.", ".100", "7.100.1", "7.x", "99999999999.1", "-7.100", "7.+1"] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn who_has_no_name_here_is_a_number_and_nobody_elses_name() {
        assert_eq!((user_name(0).as_str(), user_name(4_000_000_001).as_str()), ("root", "4000000001"));
    }

    #[test]
    fn a_run_begins_while_its_job_runs() {
        for (life, at_s, is) in [
            (life(Some(1000.0), None), 1000.0, true),
            (life(Some(1000.0), None), 90_000.0, true),
            (life(Some(1000.0), None), 300.0, false),
            (life(Some(1000.0), Some(2000.0)), 2500.0, true),
            (life(Some(1000.0), Some(2000.0)), 3000.0, false),
            (life(None, None), 5.0, true),
        ] {
            assert_eq!(is_during(&life, Some(at_s)), is, "{at_s} in {life:?}");
        }
        assert!(is_during(&life(Some(1000.0), None), None), "a run of another name is not held to the second");
    }

    #[test]
    fn a_batch_is_of_one_job() {
        let started = |job| Event::Started {
            job,
            restart_count: 0,
            user: String::new(),
            account: String::new(),
            partition: String::new(),
            job_name: "a\x1b]0;x\x07b\nc".into(),
            nodes: Vec::new(),
            resumed_from: None,
            dir: String::new(),
        };
        let batch = |run: &str, jobs: &[u32]| {
            let records = (1..).zip(jobs).map(|(seq, job)| protocol::Record { seq, at_s: 1.0, event: started(*job) });
            Batch {
                version: 1,
                key: RunKey { cluster: "c".into(), run: run.into() },
                holder: None,
                records: records.collect(),
            }
        };
        assert_eq!(job_of(&batch("7.1", &[7, 7]), None).ok(), Some(7));
        assert!(job_of(&batch("7.1", &[7, 8]), None).is_err());
        assert!(job_of(&batch("7.1", &[8]), None).is_err());
        assert_eq!(job_of(&batch("local-x.1", &[0]), None).ok(), Some(0));
        let row = RunRow { uid: 1, job: 7, verified: true, start_s: 1.0 };
        assert_eq!(job_of(&batch("7.1", &[]), Some(&row)).ok(), Some(7));
        assert!(job_of(&batch("7.1", &[0]), Some(&row)).is_err(), "a job's run does not leave Slurm");
        let mut hostile = batch("7.1", &[7]);
        clean(&mut hostile).expect("cleaned");
        assert!(matches!(&hostile.records[0].event, Event::Started { job_name, .. } if job_name == "a ]0;x b c"));
        let dirty = "a\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\nb";
        let made = serde_json::json!({ "number": 1, "path": dirty, "seconds": 1.5, "bytes": u64::MAX, "joules": 0.1 });
        let told = [
            serde_json::json!({ "event": "ordered", "id": "1", "verb": "checkpoint", "by": "b", "state": "done", "text": dirty,
                "checkpoint": made }),
            serde_json::json!({ "event": "protection", "state": "protected", "engine": "app", "why": dirty, "reason": dirty,
                "cure": dirty, "largest_loss_s": 60.0 }),
            serde_json::json!({ "event": "messages", "script": dirty, "nodes": 1, "together": dirty }),
            serde_json::json!({ "event": "in_group", "group": 0, "nodes": ["n1"],
                "of": { "event": "checkpoint_failed", "reason": dirty } }),
        ];
        for json in told {
            let event = serde_json::from_value::<Event>(json.clone()).expect("an event");
            hostile.records[0].event = event;
            clean(&mut hostile).expect("cleaned");
            let wanted = json.to_string().replace(&serde_json::json!(dirty).to_string(), "\"a ]0;x  31m  b\"");
            let wanted: Value = serde_json::from_str(&wanted).expect("JSON");
            assert_eq!(serde_json::to_value(&hostile.records[0].event).expect("JSON"), wanted);
        }
        let mut keys = serde_json::json!({ dirty: [{ "a": 1 }] });
        assert!(cleaned(&mut keys) && !cleaned(&mut keys), "{keys}");
    }
}
