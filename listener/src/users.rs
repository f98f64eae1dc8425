//! Holds each user to the site's limits, so that nobody takes from others what the service has for all.

use crate::bucket::{Bucket, Rate};
use config::Limits;
use parking_lot::Mutex;
use std::collections::HashMap;

/// A day, s.
const DAY_S: f64 = 86_400.0;

/// How many seconds' requests may come at once: a whole array of jobs may start together.
const BURST_S: f64 = 10.0;

/// Of how many users something is remembered before those who rest are forgotten.
const MOST_REMEMBERED: usize = 1024;

/// What a user has asked too much of.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum TooMuch {
    /// Requests.
    #[error(
        "user {uid} sends more than {limit} requests a second (limits.requests_per_s of the site file); ask again later"
    )]
    Requests {
        /// User id.
        uid: u32,
        /// The site's limit.
        limit: f64,
    },
    /// Bytes of records.
    #[error(
        "user {uid} has sent {limit} bytes of records within a day (limits.bytes_per_day of the site file): they wait \
         where they are, and are taken as the day goes on"
    )]
    Bytes {
        /// User id.
        uid: u32,
        /// The site's limit, bytes.
        limit: u64,
    },
    /// New runs.
    #[error(
        "user {uid} has begun {limit} runs within a day (limits.runs_per_day of the site file): the records of this one \
         wait where they are"
    )]
    Runs {
        /// User id.
        uid: u32,
        /// The site's limit.
        limit: u32,
    },
    /// Commands to Slurm.
    #[error(
        "user {uid} causes more than {limit} commands to Slurm a minute (limits.slurm_commands_per_minute of the site \
         file); ask again later"
    )]
    Commands {
        /// User id.
        uid: u32,
        /// The site's limit.
        limit: u32,
    },
}

/// What all users have left of their limits. Root has none: the site's own services speak as root.
#[derive(Debug)]
pub struct Users {
    limits: Limits,
    of: Mutex<HashMap<u32, User>>,
}

#[derive(Debug)]
struct User {
    requests: Bucket,
    bytes: Bucket,
    runs: Bucket,
    commands: Bucket,
}

impl Users {
    /// Nobody has asked for anything yet.
    pub fn new(limits: Limits) -> Users {
        Users { limits, of: Mutex::default() }
    }

    /// Takes one request.
    ///
    /// # Errors
    /// That the user has no more.
    pub fn request(&self, now_s: f64, uid: u32) -> Result<(), TooMuch> {
        let limit = self.limits.requests_per_s;
        let too_much = TooMuch::Requests { uid, limit };
        self.take(now_s, uid, 1.0, self.requests(), |u| &mut u.requests, too_much)
    }

    /// Takes bytes of records that are to be stored.
    ///
    /// # Errors
    /// That the user has not so many left.
    pub fn bytes(&self, now_s: f64, uid: u32, bytes: usize) -> Result<(), TooMuch> {
        let too_much = TooMuch::Bytes { uid, limit: self.limits.bytes_per_day };
        self.take(now_s, uid, bytes as f64, self.of_day(self.limits.bytes_per_day as f64), |u| &mut u.bytes, too_much)
    }

    /// Takes one new run.
    ///
    /// # Errors
    /// That the user has no more.
    pub fn run(&self, now_s: f64, uid: u32) -> Result<(), TooMuch> {
        let limit = self.limits.runs_per_day;
        let too_much = TooMuch::Runs { uid, limit };
        self.take(now_s, uid, 1.0, self.of_day(f64::from(limit)), |u| &mut u.runs, too_much)
    }

    /// Takes one command to Slurm.
    ///
    /// # Errors
    /// That the user has no more.
    pub fn command(&self, now_s: f64, uid: u32) -> Result<(), TooMuch> {
        let too_much = TooMuch::Commands { uid, limit: self.limits.slurm_commands_per_minute };
        self.take(now_s, uid, 1.0, self.commands(), |u| &mut u.commands, too_much)
    }

    fn take(
        &self,
        now_s: f64,
        uid: u32,
        amount: f64,
        rate: Rate,
        of: impl FnOnce(&mut User) -> &mut Bucket,
        too_much: TooMuch,
    ) -> Result<(), TooMuch> {
        if uid == 0 {
            return Ok(());
        }
        let mut users = self.of.lock();
        if users.len() >= MOST_REMEMBERED && !users.contains_key(&uid) {
            users.retain(|_, user| !self.rests(now_s, user));
        }
        let user = users.entry(uid).or_insert_with(|| self.fresh());
        if of(user).take(now_s, rate, amount) { Ok(()) } else { Err(too_much) }
    }

    fn fresh(&self) -> User {
        User {
            requests: Bucket::full(self.requests()),
            bytes: Bucket::full(self.of_day(self.limits.bytes_per_day as f64)),
            runs: Bucket::full(self.of_day(f64::from(self.limits.runs_per_day))),
            commands: Bucket::full(self.commands()),
        }
    }

    fn rests(&self, now_s: f64, user: &User) -> bool {
        user.requests.is_idle(now_s, self.requests())
            && user.bytes.is_idle(now_s, self.of_day(self.limits.bytes_per_day as f64))
            && user.runs.is_idle(now_s, self.of_day(f64::from(self.limits.runs_per_day)))
            && user.commands.is_idle(now_s, self.commands())
    }

    fn requests(&self) -> Rate {
        let per_s = self.limits.requests_per_s;
        Rate { per_s, burst: per_s * BURST_S }
    }

    fn commands(&self) -> Rate {
        let burst = f64::from(self.limits.slurm_commands_per_minute);
        Rate { per_s: burst / 60.0, burst }
    }

    fn of_day(&self, burst: f64) -> Rate {
        Rate { per_s: burst / DAY_S, burst }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_at_the_limit_takes_nothing_from_another_and_root_has_none() {
        let users = Users::new(Limits { requests_per_s: 5.0, slurm_commands_per_minute: 3, ..Limits::default() });
        assert_eq!((0..1000).filter(|_| users.request(100.0, 7).is_ok()).count(), 50);
        assert!(users.request(100.0, 8).is_ok());
        assert_eq!((0..1000).filter(|_| users.request(100.0, 0).is_ok()).count(), 1000);
        assert_eq!((0..10).filter(|_| users.command(100.0, 7).is_ok()).count(), 3);
        let text = users.command(100.0, 7).expect_err("too many").to_string();
        assert!(text.contains("user 7") && text.contains("limits.slurm_commands_per_minute"), "{text}");
    }

    #[test]
    fn a_days_bytes_come_back_with_the_day() {
        let users = Users::new(Limits { bytes_per_day: 86_400, ..Limits::default() });
        assert!(users.bytes(100.0, 7, 86_000).is_ok());
        assert!(users.bytes(100.0, 7, 1000).is_err());
        assert!(users.bytes(1100.0, 7, 1000).is_ok());
    }

    #[test]
    fn users_who_rest_are_forgotten() {
        let users = Users::new(Limits::default());
        for uid in 1..=5000 {
            assert!(users.request(f64::from(uid) * 10.0, uid).is_ok());
        }
        assert!(users.of.lock().len() <= MOST_REMEMBERED);
    }
}
