//! Follows a job from a failure until all its groups can go on: rebuilding, waiting, lending, and failing again.

use super::checkpointed::Protected;
use super::phase::Phase;
use super::running::World;

/// A recovery in progress.
pub(super) struct Recovery {
    from_s: f64,
    pub(super) resume_s: f64,
    reexecution_s: f64,
    rebuilds: Vec<Rebuild>,
    loan: Option<Loan>,
    /// Node-seconds that have a phase; those of the rest of the job are idle.
    charged_node_s: f64,
}

/// One group on its way back.
struct Rebuild {
    group: u32,
    from_s: f64,
    ready_s: f64,
    restart_s: f64,
    reexecution_s: f64,
}

impl Rebuild {
    fn end_s(&self) -> f64 {
        self.ready_s + self.restart_s + self.reexecution_s
    }

    fn charge(&self, nodes: f64, until_s: f64, world: &mut World<'_>) -> f64 {
        let wait_s = self.ready_s - self.from_s;
        let stages =
            [(Phase::Down, wait_s), (Phase::Restart, self.restart_s), (Phase::Reexecution, self.reexecution_s)];
        world.ledger.charge_stages(nodes, self.from_s, until_s, &stages)
    }
}

impl Recovery {
    /// Begins when `group` fails; its replacement is there at `ready_s`.
    pub(super) fn begin(
        job: &Protected,
        group: u32,
        now_s: f64,
        ready_s: f64,
        reexecution_s: f64,
        world: &mut World<'_>,
    ) -> Recovery {
        let restart_s = world.machine.costs.restart_s;
        let rebuild = Rebuild { group, from_s: now_s, ready_s, restart_s, reexecution_s };
        let resume_s = rebuild.end_s();
        let loan = (job.plan.lend && job.plan.groups > 1)
            .then(|| Loan::begin(job, group, now_s, resume_s, reexecution_s, world))
            .flatten();
        Recovery { from_s: now_s, resume_s, reexecution_s, rebuilds: vec![rebuild], loan, charged_node_s: 0.0 }
    }

    /// Another failure, at the job's node `node`.
    pub(super) fn strike(&mut self, job: &Protected, node: f64, now_s: f64, ready_s: f64, world: &mut World<'_>) {
        let group = job.group_of(node);
        let restart_s = world.machine.costs.restart_s;
        let mut next = Rebuild { group, from_s: now_s, ready_s, restart_s, reexecution_s: self.reexecution_s };
        let under_way = self.rebuilds.iter().position(|r| r.group == group && r.end_s() > now_s);
        if let Some(place) = under_way {
            let cut = self.rebuilds.swap_remove(place);
            self.charged_node_s += cut.charge(job.group_nodes, now_s, world);
            next.ready_s = ready_s.max(cut.ready_s);
            next.reexecution_s = cut.reexecution_s;
        } else if let Some(loan) = &mut self.loan
            && !self.rebuilds.iter().any(|r| r.group == group)
        {
            let (charged, saved) = loan.strike(job, node, now_s, world);
            self.charged_node_s += charged;
            next.reexecution_s = if saved { 0.0 } else { self.reexecution_s };
        }
        self.resume_s = self.resume_s.max(next.end_s());
        self.rebuilds.push(next);
        if let Some(loan) = &mut self.loan {
            loan.extend(now_s, self.resume_s);
        }
    }

    /// Ends, or is cut, at `until_s`.
    pub(super) fn close(&mut self, job: &Protected, until_s: f64, world: &mut World<'_>) {
        for rebuild in &self.rebuilds {
            self.charged_node_s += rebuild.charge(job.group_nodes, until_s, world);
        }
        if let Some(loan) = self.loan.take() {
            self.charged_node_s += loan.close(until_s, world);
        }
        let total = job.nodes * (until_s - self.from_s);
        world.ledger.charge(Phase::Survivor, 1.0, total - self.charged_node_s);
    }
}

/// Survivors at work for others: they checkpoint, are loaded, work, are saved, and read their own checkpoint again.
struct Loan {
    from_s: f64,
    /// When the borrowers begin to work.
    ready_s: f64,
    /// When they are called back.
    callback_s: f64,
    /// From then until they are back: save and restart.
    back_s: f64,
    checkpoint_s: f64,
    rate: f64,
    failed_group: u32,
    borrowers: Vec<Borrower>,
}

/// A job on lent nodes; the backlog's jobs are counted together and have no number.
struct Borrower {
    job: Option<usize>,
    first_node: f64,
    nodes: f64,
    /// Time that it needs to its end.
    needed_s: f64,
}

impl Loan {
    /// Lends if that pays (MODELS.md D) and somebody borrows.
    fn begin(
        job: &Protected,
        failed_group: u32,
        now_s: f64,
        resume_s: f64,
        reexecution_s: f64,
        world: &mut World<'_>,
    ) -> Option<Loan> {
        let (c, checkpoint_s) = (&world.machine.costs, job.plan.checkpoint_s);
        // What is to be done again is known here, checkpoint included: alpha is 0, and rho is in it.
        let decision =
            policy::waste::lending(reexecution_s, checkpoint_s, 0.0, 1.0, c.load_s + c.save_s, c.scheduler_s);
        if !decision.is_ok_and(|d| d.lend) {
            world.kept += 1;
            return None;
        }
        let ready_s = now_s + checkpoint_s + c.scheduler_s + c.load_s;
        let back_s = c.save_s + c.restart_s;
        let nodes = job.nodes - job.group_nodes;
        let rate = job.plan.borrower_rate;
        let borrowers = if world.backlog {
            vec![Borrower { job: None, first_node: 0.0, nodes, needed_s: f64::INFINITY }]
        } else {
            borrowers(nodes, rate, now_s, world)
        };
        if borrowers.is_empty() {
            world.kept += 1;
            return None;
        }
        world.lent += 1;
        let callback_s = resume_s - back_s;
        Some(Loan { from_s: now_s, ready_s, callback_s, back_s, checkpoint_s, rate, failed_group, borrowers })
    }

    /// A survivor's node fails: its borrower loses what it did here. Returns the node-seconds charged, and whether
    /// the group had been saved before.
    fn strike(&mut self, job: &Protected, node: f64, now_s: f64, world: &mut World<'_>) -> (f64, bool) {
        let saved = now_s >= self.from_s + self.checkpoint_s;
        // The failed group lends nothing: nodes after it move up.
        let place = if job.group_of(node) > self.failed_group { node - job.group_nodes } else { node };
        let hit = self.borrowers.iter().position(|b| b.job.is_none() || b.holds(place));
        let Some(index) = hit else { return (0.0, false) };
        if let Some(number) = self.borrowers[index].job {
            let borrower = self.borrowers.swap_remove(index);
            world.queue.give_back(number, 0.0, now_s);
            return (self.charge(&borrower, borrower.nodes, now_s, world), saved);
        }
        self.borrowers[index].nodes -= job.group_nodes;
        (self.charge(&self.borrowers[index], job.group_nodes, now_s, world), saved)
    }

    /// The job resumes later than thought: so do the borrowers, unless they have been called back.
    fn extend(&mut self, now_s: f64, resume_s: f64) {
        if now_s < self.callback_s {
            self.callback_s = resume_s - self.back_s;
        }
    }

    fn close(self, until_s: f64, world: &mut World<'_>) -> f64 {
        let mut charged = 0.0;
        for borrower in &self.borrowers {
            charged += self.charge(borrower, borrower.nodes, until_s, world);
            let worked_s = self.worked_s(borrower, until_s);
            world.lent_node_s += borrower.nodes * worked_s * self.rate;
            if let Some(number) = borrower.job {
                world.queue.give_back(number, worked_s * self.rate, self.ready_s + worked_s);
            }
        }
        charged
    }

    fn worked_s(&self, borrower: &Borrower, until_s: f64) -> f64 {
        (self.callback_s.min(until_s) - self.ready_s).max(0.0).min(borrower.needed_s)
    }

    fn charge(&self, borrower: &Borrower, nodes: f64, until_s: f64, world: &mut World<'_>) -> f64 {
        let c = &world.machine.costs;
        let worked_s = (self.callback_s - self.ready_s).max(0.0).min(borrower.needed_s);
        let early_s = (self.callback_s - self.ready_s - worked_s).max(0.0);
        let stages = [
            (Phase::Checkpoint, self.checkpoint_s),
            (Phase::Survivor, c.scheduler_s),
            (Phase::Loan, c.load_s),
            (Phase::Lent, worked_s),
            (Phase::Survivor, early_s),
            (Phase::Loan, c.save_s),
            (Phase::Restart, c.restart_s),
        ];
        world.ledger.charge_stages(nodes, self.from_s, until_s, &stages)
    }
}

impl Borrower {
    fn holds(&self, node: f64) -> bool {
        (self.first_node..self.first_node + self.nodes).contains(&node)
    }
}

/// Jobs of the queue that fit into `nodes`, side by side.
fn borrowers(nodes: f64, rate: f64, now_s: f64, world: &mut World<'_>) -> Vec<Borrower> {
    let mut first_node = 0.0;
    world
        .queue
        .take_fitting(nodes, now_s)
        .into_iter()
        .map(|job| {
            let nodes = f64::from(world.queue.jobs[job].nodes);
            let borrower = Borrower { job: Some(job), first_node, nodes, needed_s: world.queue.left_s[job] / rate };
            first_node += nodes;
            borrower
        })
        .collect()
}
