//! Looks at open loans again and again, writes down what they become, and chooses borrowers.

use crate::choice::{candidates, free_nodes, room};
use crate::chosen::Observation;
use crate::error::Result;
use crate::hands::{Hands, is_of};
use crate::leftovers::sweep;
use crate::listing::Listing;
use crate::looks::Looks;
use crate::machine::{self, Next, World};
use crate::ports::Ports;
use crate::seen::{PREFIX, Seen, is_borrower, now_s, world};
use crate::suitable::Suitable;
use config::Lend;
use parking_lot::Mutex;
use protocol::{Chosen, ChosenState, Loan, LoanMode, LoanState, RunKey, Stay};
use slurm::{Job, JobText, Node, Slurm};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{OpenRun, Readers, Store};

/// Longest time between two looks at open loans, where a listing of the queue takes long.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A look lists all jobs: slurmctld is busy with that for one part in so many of the time at most.
const REST: u32 = 10;

/// Time between two looks at open loans.
const LOOK: Duration = Duration::from_millis(500);

/// Looks from one sweep for leftovers to the next.
const LOOKS_TO_SWEEP: u32 = 60;

/// Most acts of one loan in one look.
const MOST_STEPS: u32 = 8;

/// Most nodes that are remembered as gone.
const MOST_GONE: usize = 10_000;

/// How many looks of backfill must have left a node free.
const BACKFILL_LOOKS: f64 = 2.0;

/// What a broker is made of.
pub struct Parts {
    /// What the site allows.
    pub site: Lend,
    /// What the site says in place of users, by option.
    pub defaults: BTreeMap<String, String>,
    /// Power of an idle node, W.
    pub idle_w: f64,
    /// Slurm.
    pub slurm: Slurm,
    /// The connection that writes.
    pub store: Arc<Mutex<Store>>,
    /// The one for looks at the cluster.
    pub reader: Arc<Mutex<Store>>,
    /// Those for questions of users.
    pub readers: Arc<Readers>,
    /// The service around it.
    pub ports: Arc<dyn Ports>,
}

/// The broker, with the open loans as they are on disk.
pub struct Broker {
    pub(crate) site: Lend,
    pub(crate) idle_w: f64,
    pub(crate) slurm: Slurm,
    pub(crate) store: Arc<Mutex<Store>>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) suitable: Suitable,
    pub(crate) listing: Listing,
    looks: Mutex<Looks>,
    hands: Hands,
    pub(crate) open: Mutex<BTreeMap<String, Loan>>,
    /// Held by who changes one of them.
    changing: Mutex<()>,
    /// Nodes that a run's life lent and did not get back. This service alone knows when such a node dies, so that
    /// its memory is enough.
    gone: Mutex<BTreeSet<(RunKey, u32, String)>>,
    /// Since when lent nodes are used by nobody, by loan and node.
    free_since: Mutex<BTreeMap<(String, String), f64>>,
    /// What was refused, by who asked and the id: a question that was on its way meanwhile is answered in the same way.
    pub(crate) refused: Mutex<BTreeMap<(u32, String), String>>,
    /// Loans of which the store did not say whether it has them.
    pub(crate) unsure: Mutex<BTreeSet<String>>,
    pub(crate) asking: Mutex<()>,
    bell: tokio::sync::watch::Sender<u64>,
}

impl Broker {
    /// A broker of no loan yet.
    pub fn new(parts: Parts) -> Broker {
        let Parts { site, defaults, idle_w, slurm, store, reader, readers, ports } = parts;
        let patience_s = site.patience_s;
        Broker {
            site,
            idle_w,
            suitable: Suitable::new(slurm.clone(), defaults),
            listing: Listing::default(),
            looks: Mutex::default(),
            hands: Hands { slurm: slurm.clone(), reader, ports, patience_s },
            slurm,
            store,
            readers,
            open: Mutex::default(),
            changing: Mutex::default(),
            gone: Mutex::default(),
            free_since: Mutex::default(),
            refused: Mutex::default(),
            unsure: Mutex::default(),
            asking: Mutex::default(),
            bell: tokio::sync::watch::Sender::default(),
        }
    }

    /// The open loan of an id.
    pub fn get(&self, id: &str) -> Option<Loan> {
        self.open.lock().get(id).cloned()
    }

    /// Whether a run's life has lent a node, or lost it while it was lent: what happens there is no failure of it.
    pub fn has_lent(&self, run: &OpenRun, node: &str) -> bool {
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

    pub(crate) fn ring(&self) {
        self.bell.send_modify(|n| *n += 1);
    }

    /// Waits until a loan is in another state than `since`, at most for `limit`.
    pub async fn moved(&self, id: &str, since: Option<LoanState>, limit: Duration) {
        let mut bell = self.bell.subscribe();
        let has_moved = |_: &u64| self.get(id).map(|l| l.state) != since;
        let _ = tokio::time::timeout(limit, bell.wait_for(has_moved)).await;
    }

    /// Drives open loans for ever, and removes leftovers at the start and now and then.
    pub fn lend_for_ever(&self) {
        while let Err(e) = self.take_up_loans() {
            tracing::error!(error = %e, "the loans cannot be read");
            std::thread::sleep(LOOK);
        }
        for look in 0_u32.. {
            let mut listing = Duration::ZERO;
            if let Err(e) = self.look_at_loans(&mut listing) {
                tracing::warn!(error = %e, "a look at the loans failed; it will be tried again");
            }
            if look.is_multiple_of(LOOKS_TO_SWEEP)
                && let Err(e) = sweep(&self.slurm.when_idle(), &self.hands.reader, self.site.longest_s)
            {
                tracing::warn!(error = %e, "leftovers of loans were not looked for");
            }
            let pause = (listing * REST).clamp(LOOK, LONGEST_PAUSE);
            self.looks.lock().due(Instant::now() + pause);
            std::thread::sleep(pause);
        }
    }

    fn take_up_loans(&self) -> Result<()> {
        let open = self.hands.reader.lock().lendings(f64::INFINITY)?;
        if !open.is_empty() {
            tracing::info!(loans = open.len(), "open loans are taken up");
            open.iter().for_each(|l| self.hands.ports.expect_heartbeats(&l.nodes));
        }
        self.open.lock().extend(open.into_iter().map(|l| (l.id.clone(), l)));
        Ok(())
    }

    /// Takes up what the store has written although it said otherwise: whoever asks again is told of it.
    fn take_up_unsure(&self) -> Result<()> {
        let unsure = self.unsure.lock().clone();
        for id in unsure {
            let written = self.hands.reader.lock().lending(&id)?.filter(|l| !l.state.is_over());
            if let Some(loan) = written {
                self.open.lock().entry(id.clone()).or_insert(loan);
            }
            self.unsure.lock().remove(&id);
        }
        Ok(())
    }

    /// Looks at all open loans, once more for all that go on as long as there are such; `listing` grows by the time that it
    /// took Slurm to list what there is.
    fn look_at_loans(&self, listing: &mut Duration) -> Result<()> {
        self.take_up_unsure()?;
        let mut ids: Vec<String> = self.open.lock().keys().cloned().collect();
        for _ in 0..MOST_STEPS {
            if ids.is_empty() {
                break;
            }
            let begun = Instant::now();
            let seen = self.see();
            *listing += begun.elapsed();
            let seen = seen?;
            ids.retain(|id| {
                let step = self.step(id, &seen);
                // What it took is no time in which nobody looked.
                self.looks.lock().due(Instant::now());
                step.unwrap_or_else(|e| {
                    tracing::warn!(loan = id, error = %e, "failed; it will be tried again");
                    false
                })
            });
        }
        Ok(())
    }

    fn see(&self) -> Result<Seen> {
        let open = self.open.lock().clone();
        let begun = Instant::now();
        let seen = Seen::look(&self.slurm, &open);
        let mut looks = self.looks.lock();
        match &seen {
            Ok(_) => looks.succeeded(begun, Instant::now(), now_s()),
            Err(_) => looks.failed(),
        }
        Ok(seen?)
    }

    /// A job's account, for a record of it; empty if Slurm does not say.
    fn account_of(&self, job: &Job) -> String {
        self.slurm.text(job, JobText::Account).unwrap_or_else(|e| {
            tracing::warn!(job = job.id, %e, "a borrower's account is not known");
            String::new()
        })
    }

    /// The longest time limit in the partition of a lender, s; absent for none.
    fn longest_limit_s(&self, lender: &Job) -> Option<u64> {
        match self.slurm.partitions() {
            Ok(all) => all.into_iter().find(|p| p.name == lender.partition)?.max_time_s,
            Err(e) => {
                tracing::warn!(job = lender.id, %e, "its partition's limit is not known: its own is not raised now");
                Some(0)
            }
        }
    }

    /// What Slurm shows of a loan at a look, with what is asked for in its state alone.
    fn world(&self, loan: &Loan, seen: &Seen) -> Result<World> {
        let mut world = World { chosen: self.observations(loan, seen)?, ..world(&self.slurm, loan, seen)? };
        match loan.state {
            LoanState::Growing => world.booted_s = self.slurm.booted_s()?.unwrap_or_default(),
            LoanState::Closing => {
                world.longest_limit_s = world.lender.as_ref().and_then(|lender| self.longest_limit_s(lender));
            }
            _ => {}
        }
        Ok(world)
    }

    /// One step of a loan; whether the world has changed by it.
    fn step(&self, id: &str, seen: &Seen) -> Result<bool> {
        let Some(loan) = self.get(id) else { return Ok(false) };
        let mut world = self.world(&loan, seen)?;
        let loan = self.note_stays(loan, &world, seen)?;
        let is_suspended = machine::is_suspended(&loan, &world);
        let (at, mut looks) = (Instant::now(), self.looks.lock());
        if is_suspended {
            looks.suspended(id, at);
        }
        let times = looks.times(id, at);
        drop(looks);
        let (now_s, counts_from_s) = times.unwrap_or_else(|| (now_s(), now_s()));
        world.counts_from_s = counts_from_s;
        match machine::next(now_s, &loan, &world, self.site.patience_s) {
            Next::Wait if is_suspended => Ok(false),
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
                self.hands.carry_out(&loan, &world, &act)?;
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

    /// Changes an open loan, on disk first; who only reads the open ones does not wait for the disk.
    pub(crate) fn change(&self, id: &str, change: impl FnOnce(&mut Loan)) -> Result<()> {
        let _one_at_a_time = self.changing.lock();
        let Some(mut loan) = self.get(id) else { return Ok(()) };
        change(&mut loan);
        self.store.lock().save_lending(&loan)?;
        if loan.state.is_over() {
            self.note_gone(&loan);
            self.looks.lock().forget(id);
            self.hands.ports.over(&loan);
            self.open.lock().remove(id);
        } else {
            self.open.lock().insert(id.to_string(), loan);
        }
        self.ring();
        Ok(())
    }

    /// Notes who is on the lent nodes, and how much energy they used there.
    fn note_stays(&self, loan: Loan, world: &World, seen: &Seen) -> Result<Loan> {
        let Some(lent_s) = loan.lent_s.filter(|_| loan.back_s.is_none()) else { return Ok(loan) };
        let mut stays = loan.stays.clone();
        for job in seen.jobs.iter().filter(|j| is_borrower(j, &loan, lent_s, seen)) {
            for node in job.nodes.iter().filter(|n| loan.nodes.contains(n)) {
                let end_s = job.end_s.filter(|_| job.state.is_over());
                let joules = self.hands.ports.joules(node, job.id);
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
        } else {
            // Figures that grow with every look are written with the next change.
            let _one_at_a_time = self.changing.lock();
            if let Some(l) = self.open.lock().get_mut(&loan.id) {
                l.stays = stays;
            }
        }
        Ok(self.get(&loan.id).unwrap_or(loan))
    }

    /// Those of the free nodes that have been so for a time; notes the others.
    fn long_free<'a>(&self, now_s: f64, loan: &Loan, free: &[&'a Node], time_s: f64) -> Vec<&'a Node> {
        let mut since = self.free_since.lock();
        since.retain(|(of, node), _| *of != loan.id || free.iter().any(|n| n.name == *node));
        let is_long = |n: &&&Node| {
            let since_s = since.entry((loan.id.clone(), n.name.clone())).or_insert(now_s);
            now_s - *since_s >= time_s
        };
        free.iter().filter(is_long).copied().collect()
    }

    /// Whether an open loan has a job already.
    fn has_chosen(&self, job: u32) -> bool {
        let is_it = |c: &Chosen| c.job == job && c.state != ChosenState::Over;
        self.open.lock().values().any(|l| l.chosen.iter().any(is_it))
    }
    /// Chooses a borrower, on disk, if one is to be chosen; whether one was.
    fn choose(&self, loan: &Loan, seen: &Seen) -> Result<bool> {
        let now_s = now_s();
        let is_open = loan.mode == LoanMode::Preempt && loan.state == LoanState::Lent;
        let is_calling = loan.chosen.iter().any(|c| c.state == ChosenState::Called);
        if !is_open || is_calling || loan.return_s - now_s < self.site.shortest_s {
            self.free_since.lock().retain(|(of, _), _| *of != loan.id);
            return Ok(false);
        }
        let free = free_nodes(loan, seen);
        if candidates(now_s, loan, &seen.jobs, &free).is_empty() {
            self.long_free(now_s, loan, &free, 0.0);
            return Ok(false);
        }
        let time_s = BACKFILL_LOOKS * slurm::backfill_s(&self.slurm.config()?);
        let free = self.long_free(now_s, loan, &free, time_s);
        let mut asked = 0;
        for (job, _) in candidates(now_s, loan, &seen.jobs, &free) {
            if self.has_chosen(job.id) {
                continue;
            }
            let unlisted = self.suitable.unlisted(job, &mut asked).unwrap_or_else(|e| {
                tracing::warn!(job = job.id, "what it asked for is not known: {e}");
                None
            });
            let Some(nodes) = unlisted.and_then(|unlisted| room(job, &unlisted, &free)) else { continue };
            tracing::info!(loan = loan.id, job = job.id, user = job.user, ?nodes, "a borrower is chosen");
            let chosen = Chosen {
                job: job.id,
                uid: job.uid,
                user: job.user.clone(),
                restart_count: job.restarts,
                name: format!("{PREFIX}{}_{}", loan.id, job.id),
                nodes,
                state: ChosenState::Called,
                state_s: now_s,
                reason: "its nodes are free, and it can checkpoint".into(),
            };
            self.change(&loan.id, |l| l.chosen.push(chosen))?;
            return Ok(true);
        }
        Ok(false)
    }

    /// What is seen of the borrowers that were chosen.
    fn observations(&self, loan: &Loan, seen: &Seen) -> Result<BTreeMap<u32, Observation>> {
        let open = || loan.chosen.iter().filter(|c| c.state != ChosenState::Over);
        if open().next().is_none() {
            return Ok(BTreeMap::new());
        }
        let runs = self.hands.reader.lock().open_runs()?;
        let observed = |c: &Chosen| -> Result<(u32, Observation)> {
            let observation = Observation {
                job: seen.job(&self.slurm, c.job)?,
                is_reserved: seen.reservations.iter().any(|r| r.name == c.name),
                is_protected: runs.iter().any(|r| is_of(r, c)),
                order: self.hands.ports.order_state(&c.name),
            };
            Ok((c.job, observation))
        };
        open().map(observed).collect()
    }
}

#[cfg(test)]
mod tests;
