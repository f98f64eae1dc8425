//! Asks a site's power controller, by any of the `fence_*` commands or one that speaks as they do.

use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a power controller.
const LIMIT: Duration = Duration::from_secs(20);

/// Time between two looks whether it has answered.
const LOOK: Duration = Duration::from_millis(20);

/// Exit status of a fence agent that says "off".
const OFF: i32 = 2;

/// Whether a node has power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It has.
    On,
    /// It has not.
    Off,
}

/// Why a power controller gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It cannot be run.
    #[error("{program}: {cause}")]
    Start {
        /// The command.
        program: String,
        /// What the system said.
        cause: io::Error,
    },
    /// It did not end in time.
    #[error("{program} did not answer within {} s", LIMIT.as_secs())]
    TimedOut {
        /// The command.
        program: String,
    },
    /// It failed.
    #[error("{program} ended with {status}")]
    Failed {
        /// The command.
        program: String,
        /// Its exit status.
        status: String,
    },
}

/// A site's power controller: a command to which `-o status` or `-o off` is added, `{node}` standing for the node's name.
#[derive(Clone, Debug)]
pub(crate) struct Controller {
    words: Vec<String>,
    /// Whether it may take power away.
    pub(crate) may_cut: bool,
}

impl Controller {
    /// The one that a site names, if it does.
    pub(crate) fn new(site: &config::Watch) -> Option<Controller> {
        let (words, may_cut) = (site.power_command.clone(), site.power_off);
        (!words.is_empty()).then_some(Controller { words, may_cut })
    }

    /// Whether a node has power.
    pub(crate) fn status(&self, node: &str) -> Result<Status, Error> {
        match self.run(node, "status")? {
            Some(0) => Ok(Status::On),
            Some(OFF) => Ok(Status::Off),
            other => Err(self.failed(other)),
        }
    }

    /// Takes a node's power away.
    pub(crate) fn off(&self, node: &str) -> Result<(), Error> {
        match self.run(node, "off")? {
            Some(0) => Ok(()),
            other => Err(self.failed(other)),
        }
    }

    fn failed(&self, code: Option<i32>) -> Error {
        let status = code.map_or_else(|| "a signal".to_string(), |c| format!("status {c}"));
        Error::Failed { program: self.words.first().cloned().unwrap_or_default(), status }
    }

    fn run(&self, node: &str, action: &str) -> Result<Option<i32>, Error> {
        let words: Vec<String> = self.words.iter().map(|w| w.replace("{node}", node)).collect();
        let program = words.first().cloned().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(words.iter().skip(1)).args(["-o", action]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|cause| Error::Start { program: program.clone(), cause })?;
        let end = Instant::now() + LIMIT;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status.code()),
                Ok(None) if Instant::now() < end => std::thread::sleep(LOOK),
                Ok(None) => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(Error::TimedOut { program });
                }
                Err(cause) => return Err(Error::Start { program, cause }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(script: &str) -> Controller {
        let power_command = ["sh", "-c", script, "agent", "-n", "{node}"].map(str::to_string).to_vec();
        Controller::new(&config::Watch { power_command, ..config::Watch::default() }).expect("a command")
    }

    #[test]
    fn a_fence_agent_is_understood_by_its_exit_status() {
        let truth = agent(r#"[ "$4" = status ] || exit 0; [ "$2" = n3 ] && exit 2; exit 0"#);
        assert_eq!(truth.status("n1").unwrap(), Status::On);
        assert_eq!(truth.status("n3").unwrap(), Status::Off);
        truth.off("n1").unwrap();
        assert!(matches!(agent("exit 1").status("n1"), Err(Error::Failed { .. })));
        let absent = Controller { words: vec!["/nonexistent".into()], may_cut: false };
        assert!(matches!(absent.status("n1"), Err(Error::Start { .. })));
        assert!(Controller::new(&config::Watch::default()).is_none());
    }
}
