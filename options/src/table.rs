//! The options, one line each: name, argument, help, and the form that a value must have.

use crate::forms;
use crate::wrong::Wrong;

/// The option of a job that is not to run without protection.
pub const REQUIRE: &str = "ft-energy-require";

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Never.
    None,
    /// With or without.
    Optional,
    /// Always.
    Required,
}

/// The form that a value must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `energy`, `time`, `on`, `off`.
    Objective,
    /// A percentage.
    Percent,
    /// A fault-tolerance protocol.
    Protocol,
    /// A checkpoint engine.
    Engine,
    /// `auto` or a time.
    Interval,
    /// A time.
    Time,
    /// A percentage of a whole.
    Share,
    /// An estimator of the MTBF.
    Policy,
    /// A whole number from 1.
    CountFrom1,
    /// A whole number from 0.
    CountFrom0,
    /// `yes` or `no`.
    YesNo,
    /// `memory` or `disk`.
    Log,
    /// `steps`, `script` or `none`.
    Resume,
    /// Whose network a sandbox has.
    Network,
    /// A number from 1.
    Laxity,
    /// A signal, with a time perhaps.
    Signal,
    /// File patterns.
    Pattern,
    /// An absolute folder.
    Folder,
    /// A size.
    Size,
    /// `COUNT:SIZE`.
    Messages,
    /// How much of a plan is told.
    Explain,
    /// Hours.
    Hours,
    /// No value.
    Flag,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Name without dashes in front.
    pub name: &'static str,
    /// Name of the argument in `--help`; empty if there is none.
    pub arginfo: &'static str,
    /// One line for `--help`.
    pub help: &'static str,
    /// Whether it takes a value.
    pub takes: Takes,
    /// The form of the value.
    pub form: Form,
}

const fn spec(name: &'static str, arginfo: &'static str, help: &'static str, takes: Takes, form: Form) -> Spec {
    Spec { name, arginfo, help, takes, form }
}

/// Estimators that `--ft-energy-policy` names.
pub const POLICIES: &[&str] =
    &["auto", "young", "daly", "sma", "wma", "ema", "ar", "hazard", "hazard-dynamic", "hazard-shape"];

/// All options, in the order of `--help`.
#[rustfmt::skip]
pub const OPTIONS: &[Spec] = &[
    spec("ft-energy", "energy|time|on|off", "protect the job at the least energy (default) or in the least time",
        Takes::Optional, Form::Objective),
    spec("ft-energy-runtime-bound", "PCT", "expected waste of time at most PCT above the time-optimal one",
        Takes::Required, Form::Percent),
    spec("ft-energy-io-bound", "PCT", "at most PCT of the time spent writing checkpoints",
        Takes::Required, Form::Share),
    spec("ft-energy-energy-bound", "PCT", "with objective time: energy at most PCT above the least possible",
        Takes::Required, Form::Percent),
    spec("ft-energy-protocol", "NAME", "auto, coordinated, or uncoordinated with --ft-energy-groups", Takes::Required, Form::Protocol),
    spec("ft-energy-engine", "NAME", "auto, app, criu, dmtcp, scr, veloc or hook: what makes checkpoints",
        Takes::Required, Form::Engine),
    spec("ft-energy-network", "auto|host|own", "engine criu: the node's network, or one within the job for mpirun (auto)",
        Takes::Required, Form::Network),
    spec("ft-energy-interval", "auto|TIME", "work between checkpoints, chosen and adapted (auto) or fixed",
        Takes::Required, Form::Interval),
    spec("ft-energy-max-loss", "TIME", "work that a failure may cost at most: the interval is never longer",
        Takes::Required, Form::Time),
    spec(REQUIRE, "", "end the job rather than run it without checkpoints", Takes::None, Form::Flag),
    spec("ft-energy-policy", "NAME", "how the failure rate is estimated: auto, young, daly, ema, ...",
        Takes::Required, Form::Policy),
    spec("ft-energy-groups", "N", "recovery groups of an uncoordinated run", Takes::Required, Form::CountFrom1),
    spec("ft-energy-spare", "N", "nodes of the allocation kept as spares (submit with --no-kill)",
        Takes::Required, Form::CountFrom0),
    spec("ft-energy-log", "memory|disk", "uncoordinated: log the messages between groups (mlog), and where",
        Takes::Required, Form::Log),
    spec("ft-energy-lend", "yes|no", "lend the nodes of groups that wait during a recovery (needs CRIU)", Takes::Required, Form::YesNo),
    spec("ft-energy-laxity", "X", "shadow: longest runtime as a multiple of the shortest",
        Takes::Required, Form::Laxity),
    spec("ft-energy-signal", "SIG[@TIME]", "engine app: the signal on which the program writes a checkpoint",
        Takes::Required, Form::Signal),
    spec("ft-energy-done", "PATTERN", "engine app: the files that make up a checkpoint, such as 'run.cpt'",
        Takes::Required, Form::Pattern),
    spec("ft-energy-dir", "PATH", "where plan, journal and checkpoints of the run are kept",
        Takes::Required, Form::Folder),
    spec("ft-energy-keep", "N", "how many checkpoints are kept (default 2)", Takes::Required, Form::CountFrom1),
    spec("ft-energy-requeue", "yes|no", "requeue the job after its last checkpoint when the walltime ends",
        Takes::Required, Form::YesNo),
    spec("ft-energy-flexible", "HOURS", "how long the job may wait in all for cheaper or cleaner electricity",
        Takes::Required, Form::Hours),
    spec("ft-energy-resume", "steps|script|none", "a script that starts again skips finished srun steps (default), or none",
        Takes::Required, Form::Resume),
    spec("ft-energy-memory", "SIZE", "volume of one checkpoint, if you know it", Takes::Required, Form::Size),
    spec("ft-energy-messages", "COUNT:SIZE", "messages that the program sends, and their total volume",
        Takes::Required, Form::Messages),
    spec("ft-energy-explain", "full", "print what would be done and why (full: with all figures), and submit nothing",
        Takes::Optional, Form::Explain),
];

/// The option of that name.
pub fn find(name: &str) -> Option<&'static Spec> {
    OPTIONS.iter().find(|s| s.name == name)
}

/// The known word nearest to one that is not known, if one is near.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(word, k), k))
        .filter(|(distance, k)| *distance <= k.len().max(3) / 3)
        .min()
        .map(|(_, k)| k)
}

impl Form {
    /// What is accepted, for messages.
    pub fn accepted(self) -> &'static str {
        match self {
            Form::Objective => "energy, time, on, off",
            Form::Percent => "a percentage above 0%, such as 10%",
            Form::Protocol => "auto, coordinated, uncoordinated, shadow",
            Form::Engine => "auto, app, criu, dmtcp, scr, veloc, hook",
            Form::Interval => concat!("auto, or a time: ", forms::times!()),
            Form::Policy => "auto, young, daly, sma, wma, ema, ar, hazard, hazard-dynamic, hazard-shape",
            Form::Time => concat!("a time: ", forms::times!()),
            Form::Share => "a percentage above 0% and up to 100%, such as 5%",
            Form::CountFrom1 => "a whole number from 1 to 10000",
            Form::CountFrom0 => "a whole number from 0 to 10000",
            Form::YesNo => "yes, no",
            Form::Log => "memory, disk",
            Form::Resume => "steps, script, none",
            Form::Network => "auto, host, own",
            Form::Laxity => "a number from 1 to 100, such as 1.5",
            Form::Signal => "a signal such as USR1 or TERM, or USR1@60 (seconds before the end)",
            Form::Pattern => "file names with * and ?, separated by commas, relative to the job's folder",
            Form::Folder => "an absolute path of a folder on a file system that all nodes share",
            Form::Size => "a number with K, M, G or T, such as 512M, 64G or 64GiB (powers of 1024)",
            Form::Messages => "COUNT:SIZE, such as 1000000:4G",
            Form::Explain => "full, or no value",
            Form::Hours => "hours, or a time with its unit: 8, 12h, 90min, 2d",
            Form::Flag => "no value",
        }
    }

    /// Checks a value that is not empty.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(self, value: &str) -> Result<(), Wrong> {
        match self {
            Form::Objective => one_of(value, &["energy", "time", "on", "off"]),
            Form::Percent => forms::parse_percent(value).map(drop),
            Form::Protocol => one_of(value, &["auto", "coordinated", "uncoordinated", "shadow"]),
            Form::Engine => one_of(value, &["auto", "app", "criu", "dmtcp", "scr", "veloc", "hook"]),
            Form::Interval if value == "auto" => Ok(()),
            Form::Interval => forms::parse_time(value).map(drop),
            Form::Time => forms::parse_time(value).map(drop),
            Form::Hours => forms::parse_hours(value).map(drop),
            Form::Share => match forms::parse_percent(value)? {
                share if share > 1.0 => Err(Wrong::Range("is more than all")),
                _ => Ok(()),
            },
            Form::Policy => one_of(value, POLICIES),
            Form::CountFrom1 => count(value, 1),
            Form::CountFrom0 => count(value, 0),
            Form::YesNo => one_of(value, &["yes", "no"]),
            Form::Log => one_of(value, &["memory", "disk"]),
            Form::Resume => one_of(value, &["steps", "script", "none"]),
            Form::Network => one_of(value, &["auto", "host", "own"]),
            Form::Laxity => match value.parse::<f64>() {
                Ok(x) if (1.0..=100.0).contains(&x) => Ok(()),
                _ => Err(Wrong::Form("a laxity")),
            },
            Form::Signal => forms::parse_signal(value).map(drop),
            Form::Pattern => pattern(value),
            Form::Folder => folder(value),
            Form::Size => forms::parse_size(value).map(drop),
            Form::Messages => forms::parse_messages(value).map(drop),
            Form::Explain => one_of(value, &["full"]),
            Form::Flag => Err(Wrong::Range("is a value where none is taken")),
        }
    }
}

fn one_of(value: &str, known: &[&'static str]) -> Result<(), Wrong> {
    if known.contains(&value) {
        return Ok(());
    }
    Err(Wrong::Unknown { near: nearest(value, known.iter().copied()) })
}

fn count(value: &str, least: u32) -> Result<(), Wrong> {
    match forms::parse_count(value) {
        Ok(n) if (least..=10_000).contains(&n) => Ok(()),
        Ok(_) => Err(Wrong::Range("is out of range")),
        Err(wrong) => Err(wrong),
    }
}

fn pattern(value: &str) -> Result<(), Wrong> {
    if value.split(',').any(|p| p.trim().is_empty()) {
        return Err(Wrong::Part("has an empty pattern"));
    }
    if value.split(',').any(|p| p.split('/').any(|part| part == "..")) {
        return Err(Wrong::Part("leaves the job's folder by '..'"));
    }
    Ok(())
}

fn folder(value: &str) -> Result<(), Wrong> {
    if !value.starts_with('/') {
        return Err(Wrong::Form("an absolute path"));
    }
    if value.split('/').any(|part| part == "..") {
        return Err(Wrong::Part("contains '..'"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_is_named() {
        assert_eq!(one_of("enrgy", &["energy", "time"]), Err(Wrong::Unknown { near: Some("energy") }));
        assert_eq!(one_of("blcr", &["energy", "time"]), Err(Wrong::Unknown { near: None }));
    }

    #[test]
    fn paths_do_not_climb() {
        assert!(folder("/a/../b").is_err());
        assert!(folder("a/b").is_err());
        assert!(folder("/scratch/me").is_ok());
        assert!(pattern("../x").is_err());
        assert!(pattern("a.cpt,,b").is_err());
        assert!(pattern("a.cpt, b*").is_ok());
    }
}
