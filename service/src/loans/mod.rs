//! The broker: lends a run's idle nodes to queued jobs and takes them back, one durable state after the other.
//!
//! `machine.rs` says what comes next, `rules.rs` what the site allows; this file looks at Slurm, carries out acts and
//! removes what a crash left. Reservations and helper jobs bear a loan's name, and only those of loans that the store
//! knows are ever touched.

mod chosen;
mod machine;
mod preempt;
pub(crate) mod queue;
pub(crate) mod routes;
mod rules;
#[cfg(test)]
mod simulation;

use crate::audit::{self, By};
use crate::controller::Controller;
use crate::now_s;
use anyhow::Result;
use machine::{Act, Next, World};
use parking_lot::Mutex;
use preempt::Unlisted;
use protocol::{ChosenState, Loan, LoanState, RunKey, Stay};
use slurm::{Job, JobState, JobText, Jobs, Node, Reservation, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::OpenRun;

/// What names of our reservations and helper jobs begin with; the loan's id follows.
const PREFIX: &str = "joulepoint_";

/// Time between two looks at open loans.
const LOOK: Duration = Duration::from_millis(500);

/// Looks from one sweep for leftovers to the next.
const LOOKS_TO_SWEEP: u32 = 60;

/// Most acts of one loan in one look.
const MOST_STEPS: u32 = 8;

/// Open loans, as they are on disk.
#[derive(Default)]
pub struct Loans {
    open: Mutex<BTreeMap<String, Loan>>,
    /// Nodes that a run's life lent and did not get back. This service alone knows when such a node dies, so that
    /// its memory is enough.
    gone: Mutex<BTreeSet<(RunKey, u32, String)>>,
    /// Since when lent nodes are used by nobody, by loan and node.
    free_since: Mutex<BTreeMap<(String, String), f64>>,
    /// What the queue's listing leaves out of waiting jobs, by id; nothing of those that cannot be chosen as borrowers.
    suited: Mutex<BTreeMap<u32, Option<Unlisted>>>,
    /// The queue, as runs that think of lending were told of it last.
    listed: Mutex<queue::Listed>,
    asking: Mutex<()>,
    bell: tokio::sync::watch::Sender<u64>,
}

/// Most nodes that are remembered as gone.
const MOST_GONE: usize = 10_000;

/// How long after its end a loan's helper job is still looked for, s.
const LEFTOVER_S: f64 = 3600.0;

/// What Slurm shows of everything, at one moment.
struct Seen {
    jobs: Vec<Job>,
    /// Jobs that bear a loan's name and are of its user, by the loan's id: a name is a user's text, and is asked for by
    /// itself.
    helpers: BTreeMap<String, Vec<Job>>,
    nodes: Vec<Node>,
    reservations: Vec<Reservation>,
}

impl Seen {
    /// The jobs that bear a loan's name.
    fn helpers_of(&self, loan: &Loan) -> impl Iterator<Item = &Job> {
        self.helpers.get(&loan.id).into_iter().flatten().filter(|j| j.uid == loan.uid)
    }
}

impl Loans {
    /// The open loan of an id.
    fn get(&self, id: &str) -> Option<Loan> {
        self.open.lock().get(id).cloned()
    }

    /// Whether a run's life has lent a node, or lost it while it was lent: what happens there is no failure of it.
    pub(crate) fn has_lent(&self, run: &OpenRun, node: &str) -> bool {
        let lent = |l: &Loan| {
            let its = l.key == run.key && l.restart_count == run.restart_count;
            let is_back = l.back_s.is_some() && l.back.iter().any(|n| n == node);
            its && l.lent_s.is_some() && !is_back && l.nodes.iter().any(|n| n == node)
        };
        self.open.lock().values().any(lent)
            || self.gone.lock().contains(&(run.key.clone(), run.restart_count, node.to_string()))
    }

    /// Notes what did not come back of a loan that is over.
    fn note_gone(&self, loan: &Loan) {
        let mut gone = self.gone.lock();
        let missing = loan.nodes.iter().filter(|n| loan.lent_s.is_some() && !loan.back.contains(n));
        gone.extend(missing.map(|n| (loan.key.clone(), loan.restart_count, n.clone())));
        while gone.len() > MOST_GONE {
            gone.pop_first();
        }
    }

    fn ring(&self) {
        self.bell.send_modify(|n| *n += 1);
    }
}

impl Controller {
    /// Drives open loans for ever, and sweeps at the start and now and then.
    pub(crate) fn lend_for_ever(&self) {
        while let Err(e) = self.take_up_loans() {
            tracing::error!(error = format!("{e:#}"), "the loans cannot be read");
            std::thread::sleep(LOOK);
        }
        for look in 0_u32.. {
            if let Err(e) = self.look_at_loans() {
                tracing::warn!(error = format!("{e:#}"), "a look at the loans failed; it will be tried again");
            }
            if look.is_multiple_of(LOOKS_TO_SWEEP)
                && let Err(e) = self.sweep()
            {
                tracing::warn!(error = format!("{e:#}"), "leftovers of loans were not looked for");
            }
            std::thread::sleep(LOOK);
        }
    }

    fn take_up_loans(&self) -> Result<()> {
        let open = self.reader.lock().lendings(f64::INFINITY)?;
        if !open.is_empty() {
            tracing::info!(loans = open.len(), "open loans are taken up");
            self.watching.wait_for(open.iter().flat_map(|l| &l.nodes));
        }
        self.loans.open.lock().extend(open.into_iter().map(|l| (l.id.clone(), l)));
        Ok(())
    }

    fn look_at_loans(&self) -> Result<()> {
        let ids: Vec<String> = self.loans.open.lock().keys().cloned().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut seen = self.see()?;
        for id in ids {
            for _ in 0..MOST_STEPS {
                match self.step(&id, &seen) {
                    Ok(true) => seen = self.see()?,
                    Ok(false) => break,
                    Err(e) => {
                        tracing::warn!(loan = id, error = format!("{e:#}"), "failed; it will be tried again");
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn see(&self) -> Result<Seen> {
        let (slurm, open) = (&self.slurm, self.loans.open.lock().clone());
        let named = |l: &Loan| Ok((l.id.clone(), understood(slurm.jobs_named(l.uid, &[&l.name])?)));
        let helpers = open.values().map(named).collect::<Result<_, slurm::Error>>()?;
        let jobs = understood(slurm.jobs()?);
        Ok(Seen { jobs, helpers, nodes: slurm.nodes()?, reservations: slurm.reservations()? })
    }

    /// A job's account, for a record of it; empty if Slurm does not say.
    fn account_of(&self, job: &Job) -> String {
        self.slurm.text(job, JobText::Account).unwrap_or_else(|e| {
            tracing::warn!(job = job.id, %e, "a borrower's account is not known");
            String::new()
        })
    }

    /// One step of a loan; whether the world has changed by it.
    fn step(&self, id: &str, seen: &Seen) -> Result<bool> {
        let Some(loan) = self.loans.get(id) else { return Ok(false) };
        let merges = loan.state == LoanState::Growing;
        let booted_s = if merges { self.slurm.booted_s()?.unwrap_or_default() } else { 0.0 };
        let world = World { chosen: self.sights(&loan, seen)?, booted_s, ..world(&loan, seen) };
        let loan = self.note_stays(loan, &world, seen)?;
        match machine::next(now_s(), &loan, &world, self.site.lend.patience_s) {
            Next::Wait => self.choose(&loan, seen),
            Next::Turn { job, state, reason } => {
                tracing::info!(loan = id, borrower = job, state = state.as_str(), reason, "a borrower goes on");
                self.turn(id, job, state, reason)?;
                Ok(true)
            }
            Next::Become(state, reason) => {
                tracing::info!(loan = id, job = loan.job, state = state.as_str(), reason, "a loan goes on");
                self.become_state(&loan, &world, state, reason)?;
                Ok(!state.is_over())
            }
            Next::Do(act) => {
                self.do_act(&loan, &world, &act)?;
                Ok(true)
            }
        }
    }

    /// Writes the new state; nothing of it is done before.
    fn become_state(&self, loan: &Loan, world: &World, state: LoanState, reason: String) -> Result<()> {
        let now_s = now_s();
        self.change(&loan.id, |l| {
            (l.state, l.state_s, l.reason) = (state, now_s, reason);
            match state {
                LoanState::Shrinking => l.kept = machine::kept(l, world),
                LoanState::Lent => l.lent_s = l.lent_s.or(Some(now_s)),
                LoanState::Returning => (l.back, l.back_s) = (machine::missing(l, world), None),
                LoanState::Closing | LoanState::Failing => {
                    let has = |n: &String| world.lender.as_ref().is_some_and(|j| j.nodes.contains(n));
                    l.back = l.nodes.iter().filter(|n| has(n)).cloned().collect();
                    l.back_s = l.lent_s.map(|_| now_s);
                    l.stays.iter_mut().for_each(|s| s.end_s = s.end_s.or(Some(now_s)));
                }
                _ => {}
            }
        })
    }

    /// Writes the new state of a chosen borrower; nothing of it is done before.
    fn turn(&self, id: &str, job: u32, state: ChosenState, reason: String) -> Result<()> {
        let now_s = now_s();
        self.change(id, |l| {
            let chosen = l.chosen.iter_mut().filter(|c| c.job == job && c.state != ChosenState::Over);
            chosen.for_each(|c| (c.state, c.state_s, c.reason) = (state, now_s, reason.clone()));
        })
    }

    /// Changes an open loan, on disk first.
    fn change(&self, id: &str, change: impl FnOnce(&mut Loan)) -> Result<()> {
        let mut open = self.loans.open.lock();
        let Some(mut loan) = open.get(id).cloned() else { return Ok(()) };
        change(&mut loan);
        self.store.lock().save_lending(&loan)?;
        if loan.state.is_over() {
            self.loans.note_gone(&loan);
            self.ended.add_loan(&loan);
            open.remove(id);
        } else {
            open.insert(id.to_string(), loan);
        }
        drop(open);
        self.loans.ring();
        Ok(())
    }

    /// Notes who is on the lent nodes, and how much energy they used there.
    fn note_stays(&self, loan: Loan, world: &World, seen: &Seen) -> Result<Loan> {
        let Some(lent_s) = loan.lent_s.filter(|_| loan.back_s.is_none()) else { return Ok(loan) };
        let mut stays = loan.stays.clone();
        for job in seen.jobs.iter().filter(|j| is_borrower(j, &loan, lent_s, seen)) {
            for node in job.nodes.iter().filter(|n| loan.nodes.contains(n)) {
                let end_s = job.end_s.filter(|_| job.state.is_over());
                let joules = self.watching.joules(node, job.id);
                let start_s = job.start_s.unwrap_or(lent_s).max(lent_s);
                // A job that slurmctld had forgotten begins anew, and its stay, too.
                let is_it =
                    |s: &Stay| s.node == *node && s.job == job.id && (s.end_s.is_none() || s.start_s >= start_s);
                match stays.iter_mut().find(|s| is_it(s)) {
                    Some(stay) => {
                        stay.end_s = end_s;
                        stay.joules = joules.or(stay.joules);
                    }
                    None => stays.push(Stay {
                        node: node.clone(),
                        job: job.id,
                        user: job.user.clone(),
                        account: String::new(),
                        start_s,
                        end_s,
                        joules,
                    }),
                }
            }
        }
        for stay in &mut stays[loan.stays.len()..] {
            stay.account = seen.jobs.iter().find(|j| j.id == stay.job).map_or_else(String::new, |j| self.account_of(j));
        }
        let stays_on = |s: &Stay| {
            seen.jobs.iter().any(|j| j.id == s.job && is_borrower(j, &loan, lent_s, seen) && j.nodes.contains(&s.node))
        };
        stays.iter_mut().filter(|s| s.end_s.is_none() && !stays_on(s)).for_each(|s| s.end_s = Some(now_s()));
        let missing = machine::missing(&loan, world);
        let shown = |stays: &[Stay]| stays.iter().map(|s| s.end_s).collect::<Vec<_>>();
        let is_new = shown(&stays) != shown(&loan.stays);
        let others = loan.state == LoanState::Returning && loan.back != missing;
        if is_new || others {
            self.change(&loan.id, |l| {
                l.stays.clone_from(&stays);
                if others {
                    l.back = missing;
                }
            })?;
        } else if let Some(l) = self.loans.open.lock().get_mut(&loan.id) {
            // Figures that grow with every look are written with the next change.
            l.stays = stays;
        }
        Ok(self.loans.get(&loan.id).unwrap_or(loan))
    }

    /// Carries an act out, and notes who wanted it.
    fn do_act(&self, loan: &Loan, world: &World, act: &Act) -> Result<()> {
        let of = match act {
            Act::Reserve | Act::MoveWindow | Act::Admit | Act::Unreserve => audit::Act::Reservation,
            Act::Shrink | Act::Merge { .. } | Act::Lengthen { .. } => audit::Act::Resize,
            Act::EndHelper { .. } => audit::Act::Cancel,
            Act::Requeue => audit::Act::Requeue,
            Act::Borrower { deed, .. } => deed.audited(),
        };
        let job = if let Act::Borrower { job, .. } = act { *job } else { loan.job };
        let why = format!("loan {}: {act:?}", loan.id);
        audit::note(By::Owner(loan.uid), of, (job, ""), &why, self.carry_out(loan, world, act))
    }

    fn carry_out(&self, loan: &Loan, world: &World, act: &Act) -> Result<()> {
        let (slurm, name) = (&self.slurm, &loan.name);
        // Slurm removes it by itself if this service never comes back.
        let minutes = (self.site.lend.patience_s / 60.0).ceil() as u32 * 2 + 5;
        let users: &[&str] = if loan.state == LoanState::Returning { &["root", &loan.user] } else { &["root"] };
        let start_s = if loan.state == LoanState::Returning { 0.0 } else { loan.return_s };
        let has_begun = world.reservation.as_ref().is_some_and(|r| r.start_s <= now_s());
        let window = Window { start_s: Some(start_s), minutes, users };
        match act {
            Act::Reserve => slurm.reserve(name, &loan.nodes, window)?,
            // One that has begun cannot be moved: it is removed, and made again at the next look.
            Act::MoveWindow if has_begun => slurm.unreserve(name)?,
            Act::Admit if has_begun => slurm.move_reservation(name, Window { start_s: None, ..window })?,
            Act::MoveWindow | Act::Admit => slurm.move_reservation(name, window)?,
            Act::Shrink => slurm.shrink(loan.job, &loan.kept)?,
            Act::Merge { helper } => slurm.merge(*helper)?,
            Act::Lengthen { minutes } => slurm.set_time_limit(loan.job, *minutes)?,
            Act::EndHelper { helper } => slurm.cancel(*helper)?,
            Act::Unreserve => slurm.unreserve(name)?,
            Act::Requeue => {
                let runs = self.reader.lock().open_runs()?;
                let hit: Vec<_> = runs.into_iter().filter(|r| r.key == loan.key).collect();
                self.watching.hit(&hit);
                slurm.requeue(loan.job)?;
            }
            Act::Borrower { job, deed } => self.do_to_chosen(loan, world, *job, *deed)?,
        }
        Ok(())
    }

    /// Removes reservations and helper jobs of loans that are over; what no loan of ours knows stays. Jobs are looked for
    /// only where something is left.
    fn sweep(&self) -> Result<()> {
        let mut left = Vec::new();
        for reservation in self.slurm.reservations()? {
            left.extend(self.over(&reservation.name)?.map(|loan| (reservation.name, loan)));
        }
        let jobs = if left.is_empty() { Vec::new() } else { understood(self.slurm.jobs()?) };
        let inside = |name: &str| jobs.iter().filter(|j| is_there(j) && j.reservation == name).collect::<Vec<_>>();
        for (name, loan) in &left {
            let chosen = |j: &&Job| loan.chosen.iter().any(|c| (c.job, c.uid) == (j.id, j.uid));
            for job in inside(name).into_iter().filter(chosen) {
                let why = "a borrower in the reservation of a loan that is over";
                go_on(audit::note(
                    By::Service,
                    audit::Act::Reservation,
                    (job.id, ""),
                    why,
                    self.slurm.call_out(job.id),
                ));
            }
        }
        // A reservation is in use as long as its helper is there.
        self.end_left_helpers()?;
        for (name, loan) in left {
            let why = format!("reservation {name} of loan {}, which is over", loan.id);
            go_on(audit::note(By::Service, audit::Act::Reservation, (0, ""), &why, self.slurm.unreserve(&name)));
        }
        Ok(())
    }

    /// Ends the helper jobs of loans that were over lately.
    fn end_left_helpers(&self) -> Result<()> {
        let now_s = now_s();
        let since_s = now_s - self.site.lend.longest_s - rules::DAY_S;
        let mut names: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        let lately = |l: &Loan| l.state.is_over() && now_s - l.state_s < LEFTOVER_S;
        for loan in self.reader.lock().lendings(since_s)?.into_iter().filter(lately) {
            names.entry(loan.uid).or_default().push(loan.name);
        }
        for (uid, names) in names {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            for job in understood(self.slurm.jobs_named(uid, &names)?).iter().filter(|j| is_there(j)) {
                let why = "the helper job of a loan that is over";
                go_on(audit::note(By::Service, audit::Act::Cancel, (job.id, ""), why, self.slurm.cancel(job.id)));
            }
        }
        Ok(())
    }

    /// The loan of a name, its own or that of a reservation for a chosen borrower, if it is ours and over.
    fn over(&self, name: &str) -> Result<Option<Loan>> {
        let Some(id) = name.strip_prefix(PREFIX).and_then(|rest| rest.split('_').next()) else { return Ok(None) };
        let known = self.reader.lock().lending(id)?;
        Ok(known.filter(|l| l.state.is_over()))
    }
}

/// One leftover that cannot be removed now keeps no other.
fn go_on(removed: Result<(), slurm::Error>) {
    if let Err(e) = removed {
        tracing::warn!(%e, "a leftover of a loan stays until the next look");
    }
}

/// The loan that tests of several rooms know.
#[cfg(test)]
pub(crate) fn example() -> Loan {
    serde_json::from_str(include_str!("../../../protocol/tests/loan.json")).unwrap()
}

/// The jobs of a listing; a line that is not understood is told, and hides no other.
fn understood(listed: Jobs) -> Vec<Job> {
    if let Some(e) = listed.unreadable.first() {
        tracing::warn!(%e, lines = listed.unreadable.len(), "jobs of Slurm's queue are not understood and left out");
    }
    listed.jobs
}

fn is_there(job: &Job) -> bool {
    matches!(job.state, JobState::Pending | JobState::Running | JobState::Suspended)
}

/// Whether a job began on lent nodes while they were lent.
fn is_borrower(job: &Job, loan: &Loan, lent_s: f64, seen: &Seen) -> bool {
    let ours = job.id == loan.job || seen.helpers_of(loan).any(|helper| helper.id == job.id);
    // Slurm's times are whole seconds.
    let began = job.start_s.is_some_and(|s| s >= lent_s.floor() - 1.0);
    !ours && began && job.state != JobState::Pending && job.nodes.iter().any(|n| loan.nodes.contains(n))
}

/// What Slurm shows of one loan.
fn world(loan: &Loan, seen: &Seen) -> World {
    let on_nodes = |j: &&Job| {
        let runs = matches!(j.state, JobState::Running | JobState::Suspended | JobState::Completing);
        runs && is_borrower(j, loan, loan.lent_s.unwrap_or(f64::INFINITY), seen)
    };
    let lost = |n: &&Node| {
        loan.nodes.contains(&n.name)
            && (matches!(n.state.as_str(), "DOWN" | "ERROR" | "FAIL") || n.has_flag("DRAIN") || n.has_flag("FAIL"))
    };
    World {
        lender: seen.jobs.iter().find(|j| j.id == loan.job).cloned(),
        // One that a slurmctld has remembered again may wait beside the one that was asked for since.
        helper: seen.helpers_of(loan).filter(|j| is_there(j)).max_by_key(|j| j.nodes.len()).cloned(),
        reservation: seen.reservations.iter().find(|r| r.name == loan.name).cloned(),
        borrowers: seen.jobs.iter().filter(on_nodes).cloned().collect(),
        chosen: BTreeMap::new(),
        down: seen.nodes.iter().filter(lost).map(|n| n.name.clone()).collect::<BTreeSet<_>>(),
        unheard: seen.nodes.iter().any(|n| loan.nodes.contains(&n.name) && n.state == "UNKNOWN"),
        booted_s: 0.0,
    }
}
