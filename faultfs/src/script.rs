//! Faults by words: the lines that the program's control socket takes.

use crate::{Cut, Fault, FaultFs, Op, Rule};
use glob::Pattern;
use nix::errno::Errno;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// One more rule: `fault KIND [op=a,b] [changing] [path=GLOB] [mount=N] [after=N] [times=N] [chance=P]`.
    Fault(Rule),
    /// No rules any more: `clear`.
    Clear,
    /// What hangs goes on: `release`.
    Release,
    /// Time passes for the caches: `advance SECONDS`.
    Advance(Duration),
    /// The server crashes and begins again: `crash`.
    Crash,
    /// A mount is cut off: `cut N process|node`.
    Cut(usize, Cut),
    /// A mount works again: `renew N`.
    Renew(usize),
    /// A bit of a file changes: `rot PATH`.
    Rot(PathBuf),
    /// Room on the server: `capacity BYTES`.
    Capacity(u64),
    /// How often each kind of fault has happened: `counts`.
    Counts,
}

/// A line that says nothing.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Malformed {
    /// No command.
    #[error("no command: {0:?}; there are fault, clear, release, advance, crash, cut, renew, rot, capacity and counts")]
    Command(String),
    /// A word that is not understood.
    #[error("not understood: {0:?}")]
    Word(String),
    /// A word is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
}

impl FromStr for Command {
    type Err = Malformed;

    fn from_str(line: &str) -> Result<Command, Malformed> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let mut word = |what| words.next().ok_or(Malformed::Missing(what));
        let command = match name {
            "fault" => return rule(words).map(Command::Fault),
            "clear" => Command::Clear,
            "release" => Command::Release,
            "advance" => Command::Advance(seconds(word("a time in seconds")?)?),
            "crash" => Command::Crash,
            "cut" => Command::Cut(number(word("the number of a mount")?)?, cut(word("process or node")?)?),
            "renew" => Command::Renew(number(word("the number of a mount")?)?),
            "rot" => Command::Rot(PathBuf::from(word("a path")?)),
            "capacity" => Command::Capacity(number(word("a number of bytes")?)?),
            "counts" => Command::Counts,
            other => return Err(Malformed::Command(other.to_string())),
        };
        words.next().map_or(Ok(command), |surplus| Err(malformed(surplus)))
    }
}

fn malformed(word: &str) -> Malformed {
    Malformed::Word(word.to_string())
}

fn number<T: FromStr>(word: &str) -> Result<T, Malformed> {
    word.parse().map_err(|_| malformed(word))
}

fn seconds(word: &str) -> Result<Duration, Malformed> {
    Duration::try_from_secs_f64(number(word)?).map_err(|_| malformed(word))
}

fn cut(word: &str) -> Result<Cut, Malformed> {
    match word {
        "process" => Ok(Cut::Process),
        "node" => Ok(Cut::Node),
        _ => Err(malformed(word)),
    }
}

fn errno(word: &str) -> Result<Errno, Malformed> {
    let known = (1..134).map(Errno::from_raw).find(|errno| format!("{errno:?}") == word);
    known.ok_or_else(|| malformed(word))
}

fn rule<'a>(words: impl Iterator<Item = &'a str>) -> Result<Rule, Malformed> {
    let (mut fault, mut rule) = (None, Rule::always(Fault::Short));
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "error" => fault = Some(Fault::Error(errno(value)?)),
            "done-but" => fault = Some(Fault::DoneBut(errno(value)?)),
            "short" => fault = Some(Fault::Short),
            "delay" => fault = Some(Fault::Delay(seconds(value)?)),
            "hang" => fault = Some(Fault::Hang),
            "cut" => fault = Some(Fault::Cut(cut(value)?)),
            "op" => rule.ops = value.split(',').map(number).collect::<Result<Vec<Op>, Malformed>>()?,
            "changing" => rule.changing = true,
            "path" => rule.path = Some(Pattern::new(value).map_err(|_| malformed(word))?),
            "mount" => rule.mount = Some(number(value)?),
            "after" => rule.after = number(value)?,
            "times" => rule.times = Some(number(value)?),
            "chance" => {
                rule.chance = number(value)?;
                if !(0.0..=1.0).contains(&rule.chance) {
                    return Err(malformed(word));
                }
            }
            _ => return Err(malformed(word)),
        }
    }
    rule.fault = fault.ok_or(Malformed::Missing("error=, done-but=, short, delay=, hang or cut="))?;
    Ok(rule)
}

impl FaultFs {
    /// Does what a line says; what there is to tell.
    ///
    /// # Errors
    /// There is no such mount or file.
    pub fn obey(&self, command: &Command) -> crate::Answer<String> {
        match command {
            Command::Fault(rule) => self.add(rule.clone()),
            Command::Clear => self.clear(),
            Command::Release => self.release_hung(),
            Command::Advance(time) => self.advance(*time),
            Command::Crash => self.crash(),
            Command::Cut(mount, cut) => self.cut(*mount, *cut)?,
            Command::Renew(mount) => self.renew(*mount)?,
            Command::Rot(path) => drop(self.rot(&Path::new("/").join(path), 0)?),
            Command::Capacity(bytes) => self.set_capacity(*bytes),
            Command::Counts => {
                let (counts, calls) = self.counts();
                let counts = counts.iter().map(|(kind, count)| format!("; {kind} {count}"));
                return Ok(format!("calls {calls}{}", counts.collect::<String>()));
            }
        }
        Ok("ok".to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_is_to_happen() {
        let rule = Rule {
            ops: vec![Op::Write, Op::Fsync],
            path: Some(Pattern::new("*/journal").unwrap()),
            mount: Some(1),
            after: 2,
            times: Some(3),
            chance: 0.5,
            ..Rule::always(Fault::Error(Errno::EIO))
        };
        let line = "fault error=EIO op=write,fsync path=*/journal mount=1 after=2 times=3 chance=0.5";
        assert_eq!(line.parse(), Ok(Command::Fault(rule)));
        let stale = Rule { changing: true, ..Rule::always(Fault::Error(Errno::ESTALE)) };
        assert_eq!("fault error=ESTALE changing".parse(), Ok(Command::Fault(stale)));
        assert_eq!("cut 1 node".parse(), Ok(Command::Cut(1, Cut::Node)));
        assert_eq!("advance 1.5".parse(), Ok(Command::Advance(Duration::from_millis(1500))));
        for wrong in
            ["", "burn", "fault", "fault error=EVIL", "fault short op=think", "cut 1", "crash now", "advance -1"]
        {
            assert!(wrong.parse::<Command>().is_err(), "{wrong}");
        }
    }
}
