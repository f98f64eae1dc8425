//! Which call fails, how, and how often: by rules, each with a chance from a seed.

use glob::Pattern;
use nix::errno::Errno;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

macro_rules! ops {
    ($($op:ident = $name:literal),+ $(,)?) => {
        /// A call to the file system.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the names of system calls")]
        pub enum Op { $($op),+ }

        impl fmt::Display for Op {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Op::$op => $name),+ })
            }
        }

        impl FromStr for Op {
            type Err = ();

            fn from_str(name: &str) -> Result<Op, ()> {
                match name { $($name => Ok(Op::$op),)+ _ => Err(()) }
            }
        }
    };
}

ops! {
    Lookup = "lookup", Getattr = "getattr", Setattr = "setattr", Readlink = "readlink", Mkdir = "mkdir", Mknod = "mknod",
    Create = "create", Unlink = "unlink", Rmdir = "rmdir", Symlink = "symlink", Rename = "rename", Link = "link",
    Open = "open", Read = "read", Write = "write", Flush = "flush", Fsync = "fsync",
    Opendir = "opendir", Readdir = "readdir", Fsyncdir = "fsyncdir", Statfs = "statfs", Setxattr = "setxattr",
    Getxattr = "getxattr", Listxattr = "listxattr", Removexattr = "removexattr", Seek = "seek", Allocate = "allocate",
}

impl Op {
    /// Whether it may change what others see.
    pub fn changes(self) -> bool {
        use Op::{
            Allocate, Create, Flush, Fsync, Fsyncdir, Link, Mkdir, Mknod, Removexattr, Rename, Rmdir, Setattr,
            Setxattr, Symlink, Unlink, Write,
        };
        matches!(
            self,
            Allocate
                | Create
                | Flush
                | Fsync
                | Fsyncdir
                | Link
                | Mkdir
                | Mknod
                | Removexattr
                | Rename
                | Rmdir
                | Setattr
                | Setxattr
                | Symlink
                | Unlink
                | Write
        )
    }
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// It is not done, and this is the answer. What was to be written back is lost.
    Error(Errno),
    /// It is done, and this is the answer all the same.
    DoneBut(Errno),
    /// Only part of the bytes are read or written.
    Short,
    /// It takes this long.
    Delay(Duration),
    /// It does not come back until the hung calls are released.
    Hang,
    /// The mount is cut off from here on: its process is killed, or its node is dead.
    Cut(crate::Cut),
}

impl Fault {
    /// Its kind, for the counts.
    pub fn kind(&self) -> String {
        match self {
            Fault::Error(errno) => format!("{errno:?}"),
            Fault::DoneBut(errno) => format!("done, but {errno:?}"),
            Fault::Short => "short".to_string(),
            Fault::Delay(_) => "delay".to_string(),
            Fault::Hang => "hang".to_string(),
            Fault::Cut(cut) => format!("{cut:?}").to_lowercase(),
        }
    }
}

/// When a fault happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What happens.
    pub fault: Fault,
    /// Calls; all if there are none.
    pub ops: Vec<Op>,
    /// Only calls that may change something.
    pub changing: bool,
    /// Files by their paths from the root of the file system.
    pub path: Option<Pattern>,
    /// The mount by its number from 0; each if absent.
    pub mount: Option<usize>,
    /// Calls that match and are left alone first.
    pub after: u64,
    /// How often it happens; without end if absent.
    pub times: Option<u64>,
    /// Its chance at each call that matches, from 0 to 1.
    pub chance: f64,
}

impl Rule {
    /// A fault at each call.
    pub fn always(fault: Fault) -> Rule {
        Rule { fault, ops: Vec::new(), changing: false, path: None, mount: None, after: 0, times: None, chance: 1.0 }
    }

    fn matches(&self, mount: usize, op: Op, path: &str) -> bool {
        self.times != Some(0)
            && self.mount.is_none_or(|m| m == mount)
            && (self.ops.is_empty() || self.ops.contains(&op))
            && (!self.changing || op.changes())
            && self.path.as_ref().is_none_or(|pattern| pattern.matches(path))
    }
}

/// The rules that hold, and what they have done.
#[derive(Debug)]
pub struct Faults {
    rules: Vec<Rule>,
    rng: ChaCha8Rng,
    counts: BTreeMap<String, u64>,
    calls: u64,
}

impl Faults {
    /// No rules yet.
    pub fn new(seed: u64) -> Faults {
        Faults { rules: Vec::new(), rng: ChaCha8Rng::seed_from_u64(seed), counts: BTreeMap::new(), calls: 0 }
    }

    /// One more rule; the first that matches a call counts.
    pub fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// No rules any more, and other chances from now on.
    pub fn begin_anew(&mut self, seed: u64) {
        self.rules.clear();
        self.rng = ChaCha8Rng::seed_from_u64(seed);
    }

    /// No rules any more.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Chances of the seed.
    pub fn rng(&mut self) -> &mut ChaCha8Rng {
        &mut self.rng
    }

    /// How often each kind of fault has happened.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Notes a fault that no rule has made.
    pub fn count(&mut self, kind: &str) {
        *self.counts.entry(kind.to_string()).or_default() += 1;
    }

    /// What happens to a call.
    pub fn meet(&mut self, mount: usize, op: Op, path: impl FnOnce() -> String) -> Option<Fault> {
        self.calls += 1;
        if self.rules.is_empty() {
            return None;
        }
        let path = path();
        let Faults { rules, rng, .. } = self;
        for rule in rules.iter_mut().filter(|rule| rule.matches(mount, op, &path)) {
            if rule.after > 0 {
                rule.after -= 1;
                continue;
            }
            if rule.chance < 1.0 && !rng.random_bool(rule.chance) {
                continue;
            }
            rule.times = rule.times.map(|times| times - 1);
            let fault = rule.fault;
            self.count(&fault.kind());
            return Some(fault);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_meets_its_calls_after_those_that_are_left_alone_and_as_often_as_it_says() {
        let mut faults = Faults::new(1);
        faults.add(Rule {
            ops: vec![Op::Write],
            path: Some(Pattern::new("*/journal").unwrap()),
            mount: Some(1),
            after: 1,
            times: Some(2),
            ..Rule::always(Fault::Error(Errno::EIO))
        });
        let mut meets = |mount, op, path: &str| faults.meet(mount, op, || path.to_string()).is_some();
        assert!(!meets(0, Op::Write, "/run/journal") && !meets(1, Op::Read, "/run/journal"));
        assert!(!meets(1, Op::Write, "/run/plan.json"));
        let seen: Vec<bool> = (0..5).map(|_| meets(1, Op::Write, "/run/journal")).collect();
        assert_eq!(seen, [false, true, true, false, false]);
        assert_eq!((faults.counts()["EIO"], faults.calls()), (2, 8));
    }

    #[test]
    fn the_same_seed_meets_the_same_calls() {
        let seen = |seed| {
            let mut faults = Faults::new(seed);
            faults.add(Rule { chance: 0.3, ..Rule::always(Fault::Short) });
            (0..200).map(|_| faults.meet(0, Op::Read, String::new).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(seen(4), seen(4));
        assert_ne!(seen(4), seen(5));
    }
}
