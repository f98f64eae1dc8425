//! What clients say in a question: names, ids, numbers, and how long they wait.

use axum::http::StatusCode;
use listener::Refusal;
use protocol::RunKey;
use std::time::Duration;

/// Longest time for which an answer is held back.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Longest part of a run's name, bytes.
const LONGEST_NAME: usize = 128;

/// Longest id of an order or a loan, bytes.
const LONGEST_ID: usize = 64;

/// `?since=N&wait_s=S`: hold the answer back until there is news; `restart_count=N`: which record of the run asks.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    pub since: Option<u64>,
    pub restart_count: Option<u32>,
    #[serde(default)]
    wait_s: f64,
}

impl Wait {
    /// How long.
    ///
    /// # Errors
    /// That it is no time.
    pub fn limit(&self) -> Result<Duration, Refusal> {
        let limit = Duration::try_from_secs_f64(self.wait_s).map(|limit| limit.min(LONGEST_WAIT));
        limit.map_err(|_| bad(format!("wait_s = {} is no time in seconds", self.wait_s)))
    }
}

/// Ids that clients make up become names in Slurm.
pub(crate) fn check_id(of: &str, id: &str) -> Result<(), Refusal> {
    let plain = (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric());
    if plain { Ok(()) } else { Err(bad(format!("{of}'s id has 1 to {LONGEST_ID} letters and digits"))) }
}

pub(crate) fn number(text: &str) -> Result<u32, Refusal> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number
        .ok_or_else(|| bad(format!("a job is named 123 or 123_4, not '{}'", text.chars().take(40).collect::<String>())))
}

/// Names of runs are parts of paths elsewhere, so they are held to plain ones here.
pub(crate) fn named(key: &RunKey) -> Result<RunKey, Refusal> {
    let plain = |name: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        (1..=LONGEST_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(known)
    };
    if plain(&key.cluster) && plain(&key.run) {
        return Ok(key.clone());
    }
    Err(bad(format!("a run's name has 1 to {LONGEST_NAME} letters, digits, '.', '_' and '-', and no '.' in front")))
}

fn bad(text: String) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, text)
}

/// What a user is called on this host, by which their runs are kept; the number of one who has no name here.
pub(crate) fn user_name(uid: u32) -> String {
    nix::unistd::User::from_uid(uid.into()).ok().flatten().map_or_else(|| uid.to_string(), |u| u.name)
}
