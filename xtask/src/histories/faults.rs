//! The faults of a life: some rules, each with its chance, on one mount and one history's files.

use faultfs::{Cut, Fault, Op, Rule};
use nix::errno::Errno;
use rand::Rng;
use std::time::Duration;

/// Names are changed by these; the answer of a server that has done it may be lost.
const NAMES: [Op; 6] = [Op::Link, Op::Rename, Op::Mkdir, Op::Create, Op::Unlink, Op::Symlink];

/// What needs room.
const ROOM: [Op; 6] = [Op::Write, Op::Flush, Op::Fsync, Op::Create, Op::Mkdir, Op::Link];

/// What only looks.
const LOOKS: [Op; 7] = [Op::Lookup, Op::Getattr, Op::Open, Op::Read, Op::Opendir, Op::Readdir, Op::Readlink];

/// How many calls pass before: few, or most of those of a life.
fn calls(rng: &mut impl Rng) -> u64 {
    10_f64.powf(rng.random_range(0.0..3.8)) as u64
}

fn base(fault: Fault, mount: usize, history: &str) -> Rule {
    let path = glob::Pattern::new(&format!("/{history}/*")).ok();
    Rule { mount: Some(mount), path, ..Rule::always(fault) }
}

/// Some rules of a life.
pub fn some(rng: &mut impl Rng, mount: usize, history: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = (0..rng.random_range(0..4)).map(|_| one(rng, mount, history)).collect();
    if rng.random_bool(0.6) {
        rules.insert(0, end(rng, mount, history));
    }
    rules
}

fn one(rng: &mut impl Rng, mount: usize, history: &str) -> Rule {
    let pick = |rng: &mut dyn rand::RngCore, from: &[Errno]| Fault::Error(from[rng.random_range(0..from.len())]);
    let (fault, ops) = match rng.random_range(0..8) {
        0 => (Fault::Error(Errno::EIO), Vec::new()),
        1 => (Fault::Error(Errno::ESTALE), LOOKS.to_vec()),
        2 => (Fault::Error(Errno::EACCES), vec![Op::Open, Op::Opendir, Op::Create]),
        3 => (pick(rng, &[Errno::ENOSPC, Errno::EDQUOT]), ROOM.to_vec()),
        4 => (Fault::Short, vec![Op::Read, Op::Write]),
        5 => (Fault::DoneBut(if rng.random_bool(0.5) { Errno::EIO } else { Errno::ETIMEDOUT }), NAMES.to_vec()),
        6 => (pick(rng, &[Errno::EIO, Errno::ENOSPC]), vec![Op::Fsync, Op::Flush, Op::Fsyncdir]),
        _ => (Fault::Delay(Duration::from_micros(200)), Vec::new()),
    };
    // Now and then for longer than anybody tries again.
    let times = if rng.random_bool(0.7) { rng.random_range(1..4) } else { rng.random_range(20..200) };
    let after = calls(rng);
    let chance = if rng.random_bool(0.5) { 1.0 } else { rng.random_range(0.05..0.6) };
    Rule { ops, after, times: Some(times), chance, ..base(fault, mount, history) }
}

/// The process is killed, or its node dies, at some call.
pub fn end(rng: &mut impl Rng, mount: usize, history: &str) -> Rule {
    let cut = if rng.random_bool(0.5) { Cut::Process } else { Cut::Node };
    Rule { after: calls(rng), times: Some(1), ..base(Fault::Cut(cut), mount, history) }
}

/// The process stands still at some call.
pub fn stop(rng: &mut impl Rng, mount: usize, history: &str) -> Rule {
    let changing = rng.random_bool(0.7);
    let after = if changing { calls(rng) / 4 } else { calls(rng) };
    Rule { changing, after, times: Some(1), ..base(Fault::Hang, mount, history) }
}

/// Rules, for people.
pub fn words(rules: &[Rule]) -> String {
    let word = |rule: &Rule| {
        let ops: Vec<String> = rule.ops.iter().map(ToString::to_string).collect();
        let (fault, after, times, chance) = (rule.fault.kind(), rule.after, rule.times.unwrap_or(0), rule.chance);
        format!("{fault} at {} after {after}, {times} times by {chance:.2}", ops.join(","))
    };
    rules.iter().map(word).collect::<Vec<_>>().join("; ")
}
