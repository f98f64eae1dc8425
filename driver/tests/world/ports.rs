//! The world as the driver of groups sees it.

use super::{KEEP, Program, Shared};
use crate::common::{disk_full, plan};
use driver::groups;
use driver::groups::place::{Places, before};
use driver::groups::ports::NOT_BEGUN;
use driver::groups::ports::{Aside, GroupPorts, Lending, Lines, Market, News, NoLine, Relays, Shares};
use driver::ledger::Earlier;
use driver::ports::{Child, Clock, Cluster, Engine, Happening, Meter, NodeCounter, NotStarted, Store, Unprepared};
use driver::setup::{Outcome, Setup, Started};
use options::Settings;
use protection::Prospect;
use protocol::{Event, FailureKind, JobReading, Manifest};
use rand::Rng;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

struct Port(Shared);

struct GroupEngine(Shared, usize);

impl Clock for Port {
    fn now_s(&self) -> f64 {
        self.0.borrow().now_s
    }

    fn wait(&mut self, until_s: f64) -> Option<Happening> {
        let mut w = self.0.borrow_mut();
        w.call();
        assert!(until_s.is_finite() && until_s < w.now_s + 86_400.0, "a wait until {until_s}");
        w.next(until_s)
    }
}

impl Meter for Port {
    fn read(&mut self) -> Vec<NodeCounter> {
        let mut w = self.0.borrow_mut();
        w.call();
        let p = w.chances.meter_fails;
        let nodes: Vec<String> = w.nodes.keys().cloned().collect();
        let since_s = w.record_started_s;
        let counter = |node: String| {
            let reading = JobReading { job: 1, joules: w.joules(&node), cpu_s: 0.0, source: "model".into(), since_s };
            NodeCounter { reading: (!w.chance(p)).then_some(reading), node }
        };
        nodes.into_iter().map(counter).collect()
    }
}

impl Engine for GroupEngine {
    fn name(&self) -> &str {
        "scripted"
    }

    fn on_demand(&self) -> bool {
        true
    }

    fn prepare(&mut self, from: Option<&Manifest>, _: f64) -> Result<Vec<(String, String)>, Unprepared> {
        let mut w = self.0.borrow_mut();
        w.call();
        let p = &mut w.programs[self.1];
        let newest = p.lines.iter().rev().find(|(_, _, rotten)| !rotten);
        assert_eq!(from.map(|m| m.number), newest.map(|(m, _, _)| m.number), "a complete checkpoint is not used");
        p.restored = newest.map_or(0.0, |(_, progress, _)| *progress);
        Ok(Vec::new())
    }

    fn begin(&mut self, _: PathBuf) {
        let mut w = self.0.borrow_mut();
        w.call();
        let (fails, hangs) = (w.chances.checkpoint_fails, w.chances.checkpoint_hangs);
        let fails = w.chance(fails);
        let takes = if w.chance(hangs) { 1e6 } else { w.rng.random_range(1.0..20.0) };
        let (now_s, progress) = (w.now_s, w.progress(self.1));
        w.programs[self.1].asked = Some((now_s, takes, fails, progress));
    }

    fn give_up(&mut self) {
        self.0.borrow_mut().programs[self.1].asked = None;
    }
}

impl Shares for Port {
    fn start(
        &mut self,
        call: u64,
        group: usize,
        places: &[Vec<String>],
        environment: &[(String, String)],
    ) -> Option<i32> {
        let mut w = self.0.borrow_mut();
        w.call();
        let told_dead = |n: &String| {
            w.gone.contains(n) && !w.pending.iter().any(|h| matches!(h, Happening::NodeLost { node, .. } if node == n))
        };
        assert!(!places[group].iter().any(told_dead), "started on a dead node");
        assert!(!places[group].iter().any(|n| w.unserved.contains(n)), "started where no relay can begin");
        assert!(!w.asked, "started although the script has asked it to end");
        let mut all: Vec<&String> = places.iter().flatten().collect();
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "a node in two groups");
        let list = environment.iter().find(|(name, _)| name == "SLURM_JOB_NODELIST").map(|(_, list)| list.as_str());
        assert!(places[group].iter().all(|n| list.unwrap_or_default().split(',').any(|l| l == n)), "{list:?} for srun");
        w.places = places.to_vec();
        let now_s = w.now_s;
        let p = &mut w.programs[group];
        assert!(p.call.is_none(), "two instances of one program");
        let is_again = p.started;
        let refused = w.chances.step_refused;
        if is_again && w.chance(refused) {
            w.pending.insert(0, Happening::Group(News::Ended { call, group, code: NOT_BEGUN, is_cancelled: false }));
            return None;
        }
        let late = w.chances.begins_late;
        let late_s = if is_again && w.chance(late) { 25.0 } else { 0.0 };
        let p = &mut w.programs[group];
        let from = p.lines.iter().rev().find(|(_, _, rotten)| !rotten).map_or(0.0, |(_, progress, _)| *progress);
        let image = p.image.take().filter(|_| environment.iter().any(|(name, _)| name == "IMAGE"));
        let from = match image {
            Some(progress) => progress,
            None => {
                assert!(!p.started || p.failed, "a group started again that did not fail");
                from
            }
        };
        (p.call, p.running, p.failed, p.waits, p.done) =
            (Some(call), Some((now_s + late_s, from)), false, false, false);
        let again = std::mem::replace(&mut p.started, true);
        let is_again = again || w.record > 0;
        w.is_open = true;
        let begins = if image.is_some() { from } else { w.goes_on(group, from, is_again) };
        w.restarts += u64::from(again);
        let lent = w.loan.as_ref().is_some_and(|(nodes, ..)| nodes.iter().any(|n| places[group].contains(n)));
        assert!(!lent, "started on a lent node");
        w.log_begins(group, begins);
        None
    }

    fn over(&mut self, _: u64, group: usize, code: i32) {
        let w = self.0.borrow();
        assert!(!w.asked, "kept though the script had asked it to end");
        assert!(w.programs[group].done == (code == 0) && w.programs[group].call.is_none(), "over with {code}");
    }

    fn stop(&mut self, _: u64, group: usize) {
        let mut w = self.0.borrow_mut();
        w.call();
        let p = &w.programs[group];
        let all_go = w.wrong.is_some() || w.is_together();
        let has_line = p.stays && p.running.is_none() && !p.lines.is_empty();
        assert!(all_go || p.failed || p.image.is_some() || has_line, "a group was stopped that was not put aside");
        if let Some(ended) = w.ends(group, 143) {
            w.pending.insert(0, ended);
        }
    }

    fn end(&mut self, _: u64, code: i32) {
        self.0.borrow_mut().is_open = false;
        self.0.borrow_mut().pending.push(Happening::Exited { code });
    }
}

impl Relays for Port {
    fn place(&mut self, group: usize, node: &str) {
        let mut w = self.0.borrow_mut();
        w.call();
        assert_eq!(w.programs[group].call, None, "a relay of a program that runs was moved to {node}");
        if w.programs[group].relay.as_ref().is_none_or(|(at, _)| at != node) {
            w.programs[group].relay = Some((node.to_string(), None));
            if w.programs[group].done {
                let all = w.work_s[group];
                w.log_begins(group, all);
            }
        }
    }

    fn variables(&self, _: usize) -> Vec<(String, String)> {
        Vec::new()
    }

    fn behind(&mut self, group: usize) -> Option<u64> {
        self.0.borrow_mut().behind(group)
    }

    fn gathers(&self) -> bool {
        let w = self.0.borrow();
        w.gathers && w.is_open
    }

    fn gathered(&mut self, number: u64) -> Result<(), NoLine> {
        let mut w = self.0.borrow_mut();
        w.call();
        let fails = w.chances.no_line;
        let has = |p: &Program| p.lines.iter().any(|(m, ..)| m.number == number);
        assert!(w.programs.iter().all(has), "not all groups have checkpoint {number}");
        if w.chance(fails) || w.wrong.is_some() { Err(NoLine::NotMet) } else { Ok(()) }
    }

    fn all_back(&mut self, _: Option<Vec<PathBuf>>) {
        let mut w = self.0.borrow_mut();
        w.call();
        assert!(w.programs.iter().all(|p| p.call.is_none()), "relays go back while a program runs");
        w.begin_together();
    }

    fn logged_node_s(&mut self, _: usize) -> f64 {
        self.0.borrow_mut().rng.random_range(0.0..1.0)
    }

    fn stop(&mut self) {}
}

impl Lending for Port {
    fn market(&mut self, _: &[usize], nodes: &[String]) -> Result<Market, String> {
        let mut w = self.0.borrow_mut();
        w.call();
        assert!(!nodes.iter().any(|n| n == "n0"), "the batch host was to be lent");
        if w.log != Some(options::Log::Disk) {
            return Err("--ft-energy-lend=yes was not asked for".into());
        }
        let shortest_queued_s = w.chance(0.9).then_some(60.0);
        Ok(Market { shortest_queued_s, idle_w: 100.0 })
    }

    fn park(&mut self, group: usize, _: &str, _: f64) -> Aside {
        let mut w = self.0.borrow_mut();
        w.call();
        if w.by_checkpoint {
            w.programs[group].stays = true;
            return Aside::Checkpoint;
        }
        let fails = w.chances.park_fails;
        let fails = w.chance(fails);
        let takes_s = w.rng.random_range(0.5..10.0);
        let (now_s, progress) = (w.now_s, w.progress(group));
        w.halts(group);
        let p = &mut w.programs[group];
        p.image = None;
        p.parking = Some((now_s + takes_s, fails, progress));
        p.parked_at = progress;
        Aside::Image
    }

    fn wake(&mut self, group: usize, _: &str) {
        let mut w = self.0.borrow_mut();
        w.call();
        let now_s = w.now_s;
        let p = &mut w.programs[group];
        (p.image, p.parking) = (None, None);
        if std::mem::take(&mut p.stays) && p.running.is_some() {
            return;
        }
        if p.call.is_none() {
            // It has ended meanwhile, and its relay lets the next one in.
            return;
        }
        assert!(p.running.is_none(), "woken that did not stand still");
        p.running = Some((now_s, p.parked_at));
    }

    fn lend(&mut self, nodes: &[String], return_s: f64, _: &str) {
        let mut w = self.0.borrow_mut();
        w.call();
        assert!(w.loan.is_none(), "two loans of one run");
        for (group, place) in w.places.iter().enumerate() {
            let its = place.iter().any(|n| nodes.contains(n));
            assert!(!its || w.programs[group].call.is_none(), "group {group} runs on nodes to be lent");
        }
        w.loan = Some((nodes.to_vec(), w.now_s, return_s));
    }

    fn expect(&mut self, return_s: f64) {
        let mut w = self.0.borrow_mut();
        w.call();
        if let Some((.., until)) = &mut w.loan {
            *until = return_s;
        }
    }

    fn image(&self, _: &Path) -> (String, String) {
        ("IMAGE".to_string(), String::new())
    }

    fn shelter(&self) -> String {
        "n0".to_string()
    }

    fn stop(&mut self) {
        self.0.borrow_mut().loan = None;
    }
}

impl Lines for Port {
    fn room(&mut self, _: usize) -> run::Result<(u64, PathBuf)> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.next_number += 1;
        Ok((w.next_number, PathBuf::new()))
    }

    fn commit(&mut self, group: usize, manifest: &Manifest) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        let full = w.chances.disk_full;
        if w.chance(full) {
            return Err(disk_full());
        }
        let rots = w.chances.checkpoint_rots;
        let rotten = w.chance(rots);
        let held = w.lines.clone();
        let Program { lines, restored, .. } = &mut w.programs[group];
        lines.push((manifest.clone(), *restored, rotten));
        let surplus = lines.len().saturating_sub(KEEP);
        let mut at = 0;
        lines.retain(|(m, ..)| {
            at += 1;
            at > surplus || held.contains(&m.number)
        });
        Ok(())
    }

    fn rooms(&mut self) -> run::Result<(u64, Vec<PathBuf>)> {
        let (number, folder) = Lines::room(self, 0)?;
        let mut w = self.0.borrow_mut();
        w.begun.push(number);
        let count = w.programs.len();
        Ok((number, vec![folder; count]))
    }

    fn join(&mut self, number: u64) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        let full = w.chances.disk_full;
        if w.chance(full) {
            return Err(disk_full());
        }
        w.lines.push(number);
        let surplus = w.lines.len().saturating_sub(KEEP);
        w.lines.drain(..surplus);
        Ok(())
    }

    fn part(&mut self, number: u64) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.programs.iter_mut().for_each(|p| p.lines.retain(|(m, ..)| m.number != number));
        Ok(())
    }

    fn over(&mut self) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.lines.clear();
        w.begun.clear();
        if w.is_together() {
            // A call that was ended begins anew.
            w.programs.iter_mut().for_each(|p| p.lines.clear());
        }
        Ok(())
    }

    fn all_back(&mut self, anew: bool) -> run::Result<Option<u64>> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.programs.iter_mut().for_each(|p| p.failed = true);
        let anew = anew || !w.lines.is_empty();
        while let Some(number) = w.lines.last().copied() {
            if w.programs.iter().all(|p| p.lines.iter().any(|(m, ..)| m.number == number)) {
                w.programs.iter_mut().for_each(|p| p.lines.retain(|(m, ..)| m.number <= number));
                return Ok(Some(number));
            }
            w.lines.pop();
        }
        let begun = std::mem::take(&mut w.begun);
        w.programs.iter_mut().for_each(|p| p.lines.retain(|(m, ..)| !anew && !begun.contains(&m.number)));
        Ok(None)
    }

    fn folder(&self, _: usize, _: u64) -> PathBuf {
        PathBuf::new()
    }

    fn forget_from(&mut self, group: usize, number: u64) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.programs[group].lines.retain(|(m, ..)| m.number < number);
        Ok(())
    }

    fn newest(&mut self, group: usize) -> run::Result<(Option<Manifest>, Vec<String>)> {
        let mut w = self.0.borrow_mut();
        w.call();
        let lines = &mut w.programs[group].lines;
        let damaged = lines.iter().filter(|(_, _, rotten)| *rotten).map(|(m, _, _)| format!("{}", m.number)).collect();
        lines.retain(|(_, _, rotten)| !rotten);
        Ok((lines.last().map(|(m, _, _)| m.clone()), damaged))
    }
}

impl Child for Port {
    fn start(&mut self, _: &[(String, String)]) -> Result<(), NotStarted> {
        let mut w = self.0.borrow_mut();
        w.call();
        let groups = (0..w.programs.len()).collect();
        w.pending.push(Happening::Group(News::Called { call: 0, groups }));
        Ok(())
    }

    fn terminate(&mut self) {
        let mut w = self.0.borrow_mut();
        for p in &mut w.programs {
            (p.running, p.call, p.asked) = (None, None, None);
        }
        w.pending.push(Happening::Exited { code: 143 });
    }

    fn stop(&mut self) {
        let mut w = self.0.borrow_mut();
        w.call();
        for p in &mut w.programs {
            (p.running, p.call, p.asked) = (None, None, None);
        }
    }

    fn step(&mut self) -> String {
        String::new()
    }
}

impl Cluster for Port {
    fn dead_nodes(&mut self) -> Vec<(String, f64)> {
        let w = self.0.borrow();
        w.nodes.iter().filter_map(|(n, dead)| dead.map(|t| (n.clone(), t))).collect()
    }

    fn suspects(&mut self) -> bool {
        !self.0.borrow().pending.is_empty()
    }

    fn runs_on(&mut self) -> bool {
        false
    }

    fn cause(&mut self) -> Option<FailureKind> {
        self.0.borrow().cause
    }

    fn requeue(&mut self) -> Result<(), String> {
        self.0.borrow_mut().call();
        Ok(())
    }
}

impl Store for Port {
    fn append(&mut self, _: f64, events: Vec<Event>) -> run::Result<()> {
        let mut w = self.0.borrow_mut();
        w.call();
        w.journal.extend(events);
        Ok(())
    }

    fn room(&mut self) -> run::Result<(u64, PathBuf)> {
        panic!("the run has groups")
    }

    fn commit(&mut self, _: &Manifest) -> run::Result<()> {
        panic!("the run has groups")
    }

    fn newest(&mut self) -> run::Result<(Option<Manifest>, Vec<String>)> {
        Ok((None, Vec::new()))
    }

    fn flush(&mut self, _: f64) {
        self.0.borrow_mut().call();
    }
}

fn settings(groups: usize, spare: u32, log: Option<options::Log>) -> Settings {
    let words = [("ft-energy", ""), ("ft-energy-protocol", "uncoordinated"), ("ft-energy-groups", &groups.to_string())];
    let set = |(name, value): (&str, &str)| {
        (name.to_string(), protocol::Setting { value: value.to_string(), source: protocol::Source::Option })
    };
    let request = protocol::Request { settings: words.map(set).into() };
    Settings { spare, log, ..options::resolve(&request, &BTreeMap::new()).expect("valid") }
}

/// One record of the run, from its start until the wrapper leaves it.
pub fn play_record(world: &Shared, record: u32) -> Outcome {
    let groups = world.borrow().programs.len();
    let (spare, interval_s) = (world.borrow().spare, world.borrow().interval_s);
    let is_order = |e: &&Event| matches!(e, Event::Ordered { .. });
    let answered = world.borrow().journal.iter().filter(is_order).cloned().collect();
    let nodes: Vec<String> = world.borrow().nodes.keys().cloned().collect();
    let places = Places::deal(&nodes, groups, spare as usize).expect("enough nodes");
    let earlier = before(world.borrow().journal.iter());
    world.borrow_mut().places.clone_from(&places.groups);
    let setup = Setup {
        started: Started { job: 1, restart_count: record, nodes, ..Started::default() },
        plan: plan("uncoordinated", interval_s),
        settings: settings(groups, spare, world.borrow().log),
        prospect: Prospect::default(),
        end_s: None,
        margin_s: 20.0,
        requeue_at_end: false,
        step_retries: 1,
        checkpoint_limit_s: 300.0,
        resumes: record > 0,
        accounted: Earlier::default(),
        was_lost: false,
        answered,
    };
    let port = || Port(world.clone());
    let [mut clock, mut meter, mut child, mut cluster, mut store, mut lines, mut shares, mut relays, mut lending] =
        std::array::from_fn(|_| port());
    let mut engines: Vec<GroupEngine> = (0..groups).map(|g| GroupEngine(world.clone(), g)).collect();
    let ports = GroupPorts {
        clock: &mut clock,
        meter: &mut meter,
        engines: engines.iter_mut().map(|e| e as &mut dyn Engine).collect(),
        child: &mut child,
        cluster: &mut cluster,
        store: &mut store,
        lines: &mut lines,
        shares: &mut shares,
        relays: &mut relays,
        lending: &mut lending,
    };
    groups::run(&setup, &places, &earlier, ports)
}
