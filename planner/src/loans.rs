//! Says what a run's loans were worth, and sets the waste that Bouteiller13 predicts beside the waste that was measured.

use policy::lending::SCHEDULER_S;
use policy::waste::{Bouteiller, Scope, Storage};
use protocol::{DecisionAccount, Figure, Loan, Phase, RunAccount, Stay};
use serde::Serialize;
use std::collections::BTreeMap;

/// Name of the decision that a failed group has caught up; its reason tells how long that took.
pub const CAUGHT_UP: &str = "caught up";

/// Sums over loans.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lent {
    /// Number of loans whose nodes were lent.
    pub loans: u32,
    /// Node-seconds for which the lender's nodes were lent.
    pub node_seconds: f64,
    /// Node-seconds in which others used them; a node that several use at once counts once.
    pub used_node_seconds: f64,
    /// Energy of the borrowers on these nodes, J; not the lender's. Absent if it was not measured.
    pub used_j: Option<f64>,
    /// Energy that the nodes would have drawn idle, J, by the site's idle power.
    pub would_idle_j: f64,
}

impl Lent {
    /// Adds the sums over other loans.
    pub fn add(&mut self, other: &Lent) {
        self.loans += other.loans;
        self.node_seconds += other.node_seconds;
        self.used_node_seconds += other.used_node_seconds;
        self.would_idle_j += other.would_idle_j;
        if let Some(joules) = other.used_j {
            *self.used_j.get_or_insert(0.0) += joules;
        }
    }
}

/// Sums loans up; open ones count until `now_s`.
pub fn lent<'a>(loans: impl IntoIterator<Item = &'a Loan>, now_s: f64) -> Lent {
    let mut sum = Lent::default();
    for loan in loans {
        let Some(lent_s) = loan.lent_s else { continue };
        let away_s = (loan.back_s.unwrap_or(now_s) - lent_s).max(0.0);
        sum.add(&Lent {
            loans: 1,
            node_seconds: away_s * loan.nodes.len() as f64,
            used_node_seconds: loan.stays.iter().map(|s| stayed_s(loan, s, now_s)).sum(),
            used_j: loan.stays.iter().filter_map(|s| s.joules).reduce(|a, b| a + b),
            would_idle_j: away_s * loan.nodes.len() as f64 * loan.idle_w,
        });
    }
    sum
}

/// A borrower's share of its node's time, s: jobs that are on a node at once share it.
fn stayed_s(loan: &Loan, stay: &Stay, now_s: f64) -> f64 {
    let time = |s: &Stay| (s.start_s, s.end_s.unwrap_or(now_s).max(s.start_s));
    let (from_s, to_s) = time(stay);
    let there: Vec<(f64, f64)> = loan.stays.iter().filter(|s| s.node == stay.node).map(time).collect();
    let cuts = there.iter().flat_map(|(from, to)| [*from, *to]);
    let mut cuts: Vec<f64> = cuts.filter(|at| (from_s..=to_s).contains(at)).collect();
    cuts.sort_by(f64::total_cmp);
    let part = |cut: &[f64]| {
        let others = there.iter().filter(|(from, to)| *from <= cut[0] && *to >= cut[1]).count();
        (cut[1] - cut[0]) / others as f64
    };
    cuts.windows(2).filter(|cut| cut[1] > cut[0]).map(part).sum()
}

/// What one user, account or job lent and borrowed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Party {
    /// A user, an account or a job; `total` for all.
    pub of: String,
    /// What it lent.
    #[serde(flatten)]
    pub lent: Lent,
    /// Node-seconds for which it used what others lent.
    pub borrowed_node_seconds: f64,
    /// Energy that it used there, J. Absent if nothing could be read.
    pub borrowed_j: Option<f64>,
}

impl Party {
    fn borrow(&mut self, node_seconds: f64, joules: Option<f64>) {
        self.borrowed_node_seconds += node_seconds;
        if let Some(joules) = joules {
            *self.borrowed_j.get_or_insert(0.0) += joules;
        }
    }
}

/// Sums by who lent and who borrowed, and the total of all, in which what was used is what was borrowed; `name` tells a
/// party by its user, account and job. Loans that are out count until `now_s`.
pub fn parties(loans: &[Loan], now_s: f64, name: impl Fn(&str, &str, u32) -> String) -> Vec<Party> {
    let mut all: BTreeMap<String, Party> = BTreeMap::new();
    let mut total = Party { of: "total".into(), ..Party::default() };
    for loan in loans.iter().filter(|l| l.lent_s.is_some()) {
        let worth = lent([loan], now_s);
        all.entry(name(&loan.user, &loan.account, loan.job)).or_default().lent.add(&worth);
        total.lent.add(&worth);
        for stay in &loan.stays {
            let stayed_s = stayed_s(loan, stay, now_s);
            let borrower = all.entry(name(&stay.user, &stay.account, stay.job)).or_default();
            [borrower, &mut total].into_iter().for_each(|party| party.borrow(stayed_s, stay.joules));
        }
    }
    all.into_iter().map(|(of, party)| Party { of, ..party }).chain([total]).collect()
}

/// A run of groups that exchange messages, compared with the model of Bouteiller13 at the run's own figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Modelled {
    /// Groups (G).
    pub groups: Figure,
    /// MTBF of the run's nodes together (mu), s.
    pub mtbf_s: Figure,
    /// Time between two checkpoints of a group (T), s.
    pub period_s: Figure,
    /// A checkpoint (C), s: until it is complete, however long the program stands still for it.
    pub checkpoint_s: Figure,
    /// Until a failure is noticed (D), s.
    pub down_s: Figure,
    /// Until a failed group computes again (R), s.
    pub restart_s: Figure,
    /// From the beginning of the survivors' wait to the first borrower, without a checkpoint (L), s.
    pub load_s: Figure,
    /// From the moment at which the nodes were wanted back until they were (S), s.
    pub save_s: Figure,
    /// Work speed during a checkpoint (alpha).
    pub alpha: Figure,
    /// Work speed under message logging (lambda).
    pub lambda: Figure,
    /// Speed of doing lost work again (rho).
    pub rho: Figure,
    /// Growth of a checkpoint with logged messages (beta), 1/s.
    pub beta: Figure,
    /// Waste of the application, had it kept its nodes idle: S_App.
    pub app: Pair,
    /// Waste of the platform, which used what was lent, if anything was: S_Plat.
    pub plat: Pair,
    /// Waiting time of the lent nodes beyond the break-even, node-seconds.
    pub beyond_node_s: f64,
    /// Time lent as a share of that: above 1 if the break-even was overestimated.
    pub lent_share: Option<f64>,
}

/// Waste as a share of all node-seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// By the model; absent where the figures are outside of what it holds for.
    pub predicted: Option<f64>,
    /// By the account.
    pub measured: f64,
}

/// Compares a run with the model; none if its groups never waited, or it computed nothing.
pub fn modelled(run: &RunAccount, loans: &[Loan], now_s: f64) -> Option<Modelled> {
    let sum = lent(loans, now_s);
    let logs = run.phases.iter().any(|p| p.phase == Phase::Logging && p.node_seconds > 0.0);
    let idled = logs && run.failures.iter().any(|f| f.counts);
    let plan = run.plan.as_ref().filter(|_| sum.loans > 0 || idled)?;
    let (groups, members) = group_sizes(run)?;
    let spent = |phase| run.phases.iter().filter(|p| p.phase == phase).map(|p| p.node_seconds).sum::<f64>();
    let all_s = run.phases.iter().map(|p| p.node_seconds).sum::<f64>() + sum.node_seconds;
    let nodes = run.records.first().map_or(members, |r| r.nodes.len().max(members)) as f64;
    let of_groups_s = all_s * members as f64 / nodes;
    let (compute_s, logging_s) = (spent(Phase::Compute), spent(Phase::Logging));
    if compute_s <= 0.0 {
        return None;
    }
    let lines = run.checkpoints.len().max(groups) as f64 / groups as f64;
    let counted = || run.failures.iter().filter(|f| f.counts);
    let checkpoint_s = or(mean(run.checkpoints.iter().map(|c| c.seconds)), &plan.checkpoint_s);
    let returns = loans.iter().filter_map(|l| Some((l.back_s? - l.return_s).max(0.0)));
    let loads = loans.iter().filter_map(|l| {
        let first_s = l.stays.iter().map(|s| s.start_s).fold(f64::INFINITY, f64::min);
        let (begun_s, _) = waited(run, l, l.nodes.first()?)?;
        first_s.is_finite().then(|| (first_s - begun_s - checkpoint_s.value).max(0.0))
    });
    let (away_s, beyond_node_s) = away_and_beyond(run, loans);
    // Work during checkpoints counts as work; a failure costs what was done beside the last one. Runs of earlier
    // versions count it as checkpoint time.
    let of_group = members as f64 / groups as f64;
    let beside = || run.checkpoints.iter().filter_map(|c| Some((c.seconds - c.still_s?).max(0.0)));
    let still_s = run.checkpoints.iter().map(|c| c.still_s.unwrap_or(c.seconds)).sum::<f64>() * of_group;
    let lost_s = mean(beside()).unwrap_or(0.0) * counted().count() as f64;
    let beside_s = (beside().sum::<f64>() - lost_s).max(0.0) * of_group;
    let useful_s = compute_s + beside_s.min((spent(Phase::Checkpoint) - still_s).max(0.0));
    let mut m = Modelled {
        groups: measured(groups as f64),
        mtbf_s: or(mean_of(run.total.held_s, counted().count()), &plan.mtbf_s),
        period_s: measured(run.total.held_s / lines),
        down_s: or(mean(counted().map(|f| f.detection_s)), &assumed(0.0)),
        restart_s: or(mean_of(spent(Phase::Restart), counted().count()), &plan.restart_s),
        load_s: or(mean(loads), &assumed(0.0)),
        save_s: or(mean(returns), &assumed(0.0)),
        checkpoint_s,
        alpha: work_beside(run),
        lambda: measured(compute_s / (compute_s + logging_s)),
        rho: or(replay_speed(run), &assumed(1.0)),
        // Relays keep their logs outside of checkpoints.
        beta: by_design(0.0),
        app: Pair { predicted: None, measured: 1.0 - useful_s / of_groups_s },
        plat: Pair { predicted: None, measured: 1.0 - (useful_s + sum.used_node_seconds) / all_s },
        beyond_node_s,
        lent_share: (beyond_node_s > 0.0).then(|| away_s / beyond_node_s),
    };
    let model = m.model();
    let predicted = |scope| {
        let waste = model.check().ok().map(|()| model.waste(scope, m.period_s.value))?;
        Some(waste.waste).filter(|_| waste.period_ge_checkpoint && waste.lost_lt_mtbf)
    };
    (m.app.predicted, m.plat.predicted) = (predicted(Scope::App), predicted(Scope::Plat));
    Some(m)
}

impl Modelled {
    /// The model's parameters, by the names of MODELS.md.
    pub fn figures(&self) -> [(&'static str, &Figure); 12] {
        [
            ("G", &self.groups),
            ("mu", &self.mtbf_s),
            ("T", &self.period_s),
            ("C", &self.checkpoint_s),
            ("D", &self.down_s),
            ("R", &self.restart_s),
            ("L", &self.load_s),
            ("S", &self.save_s),
            ("alpha", &self.alpha),
            ("lambda", &self.lambda),
            ("rho", &self.rho),
            ("beta", &self.beta),
        ]
    }

    fn model(&self) -> Bouteiller {
        Bouteiller {
            mtbf_s: self.mtbf_s.value,
            groups: self.groups.value,
            checkpoint_s: self.checkpoint_s.value,
            down_s: self.down_s.value,
            restart_s: self.restart_s.value,
            alpha: self.alpha.value,
            lambda: self.lambda.value,
            rho: self.rho.value,
            beta: self.beta.value,
            load_s: self.load_s.value,
            save_s: self.save_s.value,
            cap_s: self.period_s.value,
            storage: Storage::Remote,
        }
    }
}

fn measured(value: f64) -> Figure {
    Figure { value, from: "measured".into() }
}

fn by_design(value: f64) -> Figure {
    Figure { value, from: "by design".into() }
}

fn assumed(value: f64) -> Figure {
    Figure { value, from: "assumed".into() }
}

fn or(value: Option<f64>, other: &Figure) -> Figure {
    value.map_or_else(|| other.clone(), measured)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), v| (sum + v, count + 1));
    mean_of(sum, count)
}

fn mean_of(sum: f64, count: usize) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

/// How many groups the run has, and how many nodes these together, as its decisions tell.
fn group_sizes(run: &RunAccount) -> Option<(usize, usize)> {
    let placed = run.decisions.iter().filter(|d| d.action == "place group");
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    for decision in placed {
        let (group, rest) = decision.reason.split_once(" on ")?;
        sizes.entry(group).or_insert(rest.split(':').next()?.split(',').count());
    }
    (!sizes.is_empty()).then(|| (sizes.len(), sizes.values().sum()))
}

/// The share of its normal work that a program does during a checkpoint: as far as it is known for how long it stood still.
fn work_beside(run: &RunAccount) -> Figure {
    let known = run.checkpoints.iter().filter_map(|c| Some((c.still_s?, c.seconds)));
    let (still_s, all_s) = known.fold((0.0, 0.0), |(still, all), (s, seconds)| (still + s, all + seconds));
    match all_s > 0.0 {
        // The program has already written its files, and they are copied while it works.
        true if still_s == 0.0 => by_design(1.0),
        true => measured((1.0 - still_s / all_s).max(0.0)),
        false => assumed(0.0),
    }
}

/// Speed of doing lost work again relative to the first time, for groups that were seen to catch up.
fn replay_speed(run: &RunAccount) -> Option<f64> {
    let seconds = |d: &DecisionAccount| {
        let mut words = d.reason.split(" in ").skip(1).map(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        Some((words.next()??, words.next()??))
    };
    let caught_up = run.decisions.iter().filter(|d| d.action == CAUGHT_UP).filter_map(seconds);
    let (took_s, lost_s) = caught_up.fold((0.0, 0.0), |(took, lost), (t, l)| (took + t, lost + l));
    (took_s > 0.0 && lost_s > 0.0).then(|| lost_s / took_s)
}

/// When a lent node began to wait, its dump included, and when it went on; none if the account does not show it.
fn waited(run: &RunAccount, loan: &Loan, node: &str) -> Option<(f64, f64)> {
    let (lent_s, back_s) = (loan.lent_s?, loan.back_s?);
    let of_node = || run.spans.iter().filter(|s| s.node == node);
    let works = |s: &&protocol::PhaseSpan| matches!(s.phase, Phase::Compute | Phase::LostWork | Phase::Logging);
    let begun_s = of_node().filter(works).filter(|s| s.end_s <= lent_s).map(|s| s.end_s).reduce(f64::max)?;
    let on_s = of_node().filter(works).filter(|s| s.start_s >= back_s).map(|s| s.start_s).reduce(f64::min)?;
    Some((begun_s, on_s))
}

/// Time for which nodes were lent, and their waiting time beyond the break-even of `policy::lending`, node-seconds.
fn away_and_beyond(run: &RunAccount, loans: &[Loan]) -> (f64, f64) {
    let plan_s = run.plan.as_ref().map_or(0.0, |plan| plan.checkpoint_s.value + plan.restart_s.value);
    let break_even_s = plan_s + SCHEDULER_S;
    let (mut away_s, mut beyond_s) = (0.0, 0.0);
    for loan in loans {
        let waits = loan.nodes.iter().filter_map(|node| waited(run, loan, node));
        for (begun_s, on_s) in waits {
            away_s += loan.back_s.zip(loan.lent_s).map_or(0.0, |(back_s, lent_s)| back_s - lent_s);
            beyond_s += (on_s - begun_s - break_even_s).max(0.0);
        }
    }
    (away_s, beyond_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{History, make_plan};
    use config::Site;
    use protocol::{PlanRequest, Request, Setting, Source};
    use serde_json::{Value, json};

    fn loan() -> Loan {
        serde_json::from_str(include_str!("../../protocol/tests/loan.json")).unwrap()
    }

    /// Three groups of a node each and a spare; one fails after 200 s and takes 100 s to do its work again.
    fn run() -> RunAccount {
        let span = |node: &str, phase: &str, start_s: f64, end_s: f64| json!({ "node": node, "phase": phase, "start_s": start_s, "end_s": end_s, "joules": null, "source": "" });
        let lender = |node| {
            let spans = [("compute", 0.0, 200.0), ("checkpoint", 200.0, 202.0), ("idle", 202.0, 210.0)];
            let after = [("idle", 300.0, 304.0), ("compute", 304.0, 400.0)];
            spans.into_iter().chain(after).map(move |(phase, from, to)| span(node, phase, from, to)).collect::<Vec<_>>()
        };
        let spans: Vec<Value> = [lender("n2"), lender("n3")].concat();
        let phase = |phase: &str, node_seconds: f64| json!({ "phase": phase, "joules": 0.0, "node_seconds": node_seconds, "source": "model" });
        let placed = |group| {
            json!({ "at_s": 0.0, "action": "place group", "reason": format!("group {group} on n{}: has its nodes", group + 2),
                    "interval_s": 1.0 })
        };
        let caught_up = json!({ "at_s": 300.0, "action": CAUGHT_UP, "interval_s": 1.0,
                                "reason": "group 2 on n1: has sent again in 80.0 s what it had sent in 100.0 s" });
        let request = PlanRequest {
            request: Request {
                settings: [("ft-energy".to_string(), Setting { value: String::new(), source: Source::Option })].into(),
            },
            nodes: 4,
            cpus_per_node: 2,
            ..PlanRequest::default()
        };
        let mut plan = make_plan(&request, &History::default(), &Site::default()).unwrap();
        (plan.checkpoint_s.value, plan.restart_s.value) = (1.0, 3.0);
        let run = json!({
            "cluster": "c", "run": "7.1", "job": 7, "user": "alice", "account": "physics", "job_name": "j",
            "state": "completed", "start_s": 0.0, "end_s": 400.0,
            "total": { "joules": 0.0, "resilience_j": 0.0, "recomputed_j": 0.0, "recomputed_node_s": 0.0, "elapsed_s": 400.0,
                       "held_s": 400.0, "failures": 1, "checkpoints": 3, "energy_overhead": null, "time_overhead": null },
            "phases": [phase("compute", 891.0), phase("logging", 9.0), phase("restart", 5.0), phase("lost_work", 100.0),
                       phase("checkpoint", 2.0), phase("idle", 413.0)],
            "records": [{ "job": 7, "restart_count": 0, "start_s": 0.0, "end_s": 400.0, "state": "completed",
                          "nodes": ["n1", "n2", "n3", "n4"] }],
            "failures": [{ "kind": "node", "node": "n4", "at_s": 198.0, "detection_s": 2.0, "counts": true, "reason": "dead" }],
            "checkpoints": [{ "number": 1, "begun_s": 100.0, "seconds": 2.0, "bytes": 1, "joules": null }],
            "spans": spans, "decisions": [placed(0), placed(1), placed(2), caught_up], "loans": [], "plan": plan
        });
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn what_was_lent_is_set_beside_what_would_have_idled() {
        let sum = lent([&loan()], 1000.0);
        assert_eq!((sum.loans, sum.node_seconds, sum.used_node_seconds), (1, 180.0, 30.0));
        assert_eq!((sum.used_j, sum.would_idle_j), (Some(9000.0), 18_000.0));
        let never_left = Loan { lent_s: None, ..loan() };
        assert_eq!(lent([&never_left], 1000.0), Lent::default());
    }

    #[test]
    fn the_model_is_fed_with_what_the_run_showed() {
        let m = modelled(&run(), &[loan()], 1000.0).unwrap();
        let values = m.figures().map(|(_, f)| f.value);
        // G mu T C D R, then L: 15 s of waiting without the checkpoint, S: 3 s late, and the speeds.
        assert_eq!(values, [3.0, 400.0, 400.0, 2.0, 2.0, 5.0, 13.0, 3.0, 0.0, 0.99, 1.25, 0.0]);
        // 1420 node-seconds held and 180 lent; three of four nodes are the groups'.
        assert_eq!(m.app.measured, 1.0 - 891.0 / 1200.0);
        assert_eq!(m.plat.measured, 1.0 - 921.0 / 1600.0);
        // Each of two waited 104 s, of which 14 are needed anyway, and was away for 90.
        assert_eq!((m.beyond_node_s, m.lent_share), (180.0, Some(1.0)));
        let mut early = loan();
        early.lent_s = Some(201.0);
        assert_eq!(modelled(&run(), &[early], 1000.0).unwrap().lent_share, Some(1.1), "and is not called all of it");
        let waste = m.model().waste(Scope::Plat, 400.0).waste;
        assert_eq!(m.plat.predicted, Some(waste));
        assert!(m.app.predicted.is_some_and(|w| w > 0.0 && w < 1.0));
    }

    #[test]
    fn jobs_that_share_a_node_share_its_time_and_what_all_borrowed_is_what_was_used() {
        let stay = |job, user: &str, start_s, end_s| Stay {
            job,
            user: user.into(),
            start_s,
            end_s: Some(end_s),
            ..loan().stays[0].clone()
        };
        // Alone for 10 s, two for 20 s, three for 10 s; then nobody, and one of them again.
        let stays = vec![
            stay(8, "bob", 215.0, 255.0),
            stay(9, "carol", 225.0, 255.0),
            stay(10, "carol", 245.0, 255.0),
            stay(11, "carol", 265.0, 265.0),
        ];
        let shared = Loan { stays, ..loan() };
        let sum = lent([&shared], 1000.0);
        assert!((sum.used_node_seconds - 40.0).abs() < 1e-9, "{sum:?}");
        let all = parties(&[shared, loan()], 1000.0, |user, _, _| user.to_string());
        let shown: Vec<(&str, u32, i64)> =
            all.iter().map(|p| (p.of.as_str(), p.lent.loans, p.borrowed_node_seconds.round() as i64)).collect();
        assert_eq!(shown, [("alice", 2, 0), ("bob", 0, 53), ("carol", 0, 17), ("total", 2, 70)]);
        let total = &all[3];
        assert!((total.lent.used_node_seconds - total.borrowed_node_seconds).abs() < 1e-9);
        assert_eq!(total.lent.used_j, total.borrowed_j);
    }

    #[test]
    fn what_a_program_does_beside_its_checkpoint_is_no_waste() {
        let still = |still_s| {
            let mut run = run();
            run.checkpoints[0].still_s = still_s;
            run.failures.clear();
            let m = modelled(&run, &[loan()], 1000.0).unwrap();
            (m.alpha.value, m.alpha.from, m.app.measured)
        };
        // A checkpoint of 2 s, by a group of one node of three.
        assert_eq!(still(None), (0.0, "assumed".into(), 1.0 - 891.0 / 1200.0));
        assert_eq!(still(Some(0.5)), (0.75, "measured".into(), 1.0 - 892.5 / 1200.0));
        assert_eq!(still(Some(2.0)), (0.0, "measured".into(), 1.0 - 891.0 / 1200.0));
        assert_eq!(still(Some(0.0)), (1.0, "by design".into(), 1.0 - 893.0 / 1200.0));
        assert_eq!(modelled(&run(), &[loan()], 1000.0).unwrap().beta.from, "by design");
        let mut failed = run();
        failed.checkpoints[0].still_s = Some(0.5);
        let m = modelled(&failed, &[loan()], 1000.0).unwrap();
        assert_eq!(m.app.measured, 1.0 - 891.0 / 1200.0, "it was lost with the work after it");
    }

    #[test]
    fn a_run_that_kept_its_nodes_is_set_beside_the_model_as_well() {
        let never_left = Loan { lent_s: None, ..loan() };
        let m = modelled(&run(), &[never_left], 1000.0).unwrap();
        assert_eq!((m.app.measured, m.plat.measured), (1.0 - 891.0 / 1065.0, 1.0 - 891.0 / 1420.0));
        assert_eq!((m.load_s.from.as_str(), m.lent_share), ("assumed", None));
        let mut quiet = run();
        quiet.failures.clear();
        assert_eq!(modelled(&quiet, &[], 1000.0), None);
    }
}
