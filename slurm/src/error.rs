//! Why a call to Slurm gave no answer.

/// Why a call to Slurm gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command could not be started.
    #[error("cannot run {command}: {cause}")]
    Start {
        /// Its name.
        command: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The command did not end in time and was killed.
    #[error("{command} did not answer within {seconds} s")]
    TimedOut {
        /// Its name and arguments.
        command: String,
        /// The limit.
        seconds: u64,
    },
    /// It can wait, and nothing is left of the site's `slurm.budget` at the moment.
    #[error("put off: the calls that `slurm.budget` allows are used up for now")]
    Postponed,
    /// It would change something, and this is not the moment ([`crate::Slurm::that_acts_while`]).
    #[error("nothing is done to jobs and nodes while another controller may lead")]
    NoLeave,
    /// Slurm refused.
    #[error("{command}: {text}")]
    Refused {
        /// Its name and arguments.
        command: String,
        /// Its last line on standard error.
        text: String,
    },
    /// The output is not what this Slurm series prints.
    #[error("{what} '{value}' is not understood")]
    Unreadable {
        /// Which field or form.
        what: &'static str,
        /// The text that failed, shortened.
        value: String,
    },
    /// A free text holds a field's name, so that a field could be read in two ways.
    #[error("the text of {what} holds '{key}=' twice: it is not trusted")]
    Ambiguous {
        /// Which record.
        what: String,
        /// Which field.
        key: &'static str,
    },
}

/// What Slurm's commands say when slurmctld gives them no answer; of these `scontrol requeue` says the second.
const NO_ANSWER: [&str; 7] = [
    "Unable to contact slurm controller",
    "Unexpected message received",
    "Socket timed out",
    "Zero Bytes were transmitted or received",
    "Connection refused",
    "Communication connection failure",
    "in standby mode",
];

impl Error {
    /// The text that failed, cut to a length fit for a log line.
    pub(crate) fn unreadable(what: &'static str, value: &str) -> Self {
        Error::Unreadable { what, value: value.chars().take(120).collect() }
    }

    /// Whether Slurm says that there is no such job, step or task of an array, of which it may know others.
    pub fn is_unknown_job(&self) -> bool {
        let is_missing = |text: &str| text.to_lowercase().starts_with("job ") && text.trim_end().ends_with("not found");
        let is_it = |text: &str| text.contains("Invalid job id") || is_missing(text);
        matches!(self, Error::Refused { text, .. } if is_it(text))
    }

    /// Whether slurmctld has given no answer: it is being started again, has too much to do, or cannot be reached from here.
    pub fn is_no_answer(&self) -> bool {
        let no_answer = |text: &str| NO_ANSWER.iter().any(|part| text.contains(part));
        match self {
            Error::TimedOut { .. } => true,
            Error::Refused { text, .. } => no_answer(text),
            _ => false,
        }
    }

    /// Whether what was to be ended has ended or is about to.
    pub(crate) fn is_over(&self) -> bool {
        let ends = |text: &str| text.contains("already completing or completed");
        self.is_unknown_job() || matches!(self, Error::Refused { text, .. } if ends(text))
    }
}
