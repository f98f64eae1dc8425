//! Which of several controllers on one MariaDB leads; the others wait as its standby.
//!
//! The leader counts up a number of renewals. A standby that has seen it stand still for a while, by its own clock, takes the next
//! token. Whoever writes shows its token first, in the same transaction ([`super::Connection::open_led`]): what an earlier leader still
//! has in hand counts for nothing. No clock of another host is believed.

use super::{Connection, url};
use crate::error::Result;
use crate::value::params;
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Time between two renewals, and between two looks of a standby.
const PAUSE: Duration = Duration::from_secs(1);

/// A standby takes over after renewals have stood still for so long.
const SILENCE: Duration = Duration::from_secs(6);

/// A leader believes for so long after a renewal that it leads. What it has begun by then ends before [`SILENCE`] is over, unless
/// slurmctld takes longer than the rest.
const CONFIRMED: Duration = Duration::from_secs(4);

/// Longest wait for an answer about the lease.
const ANSWERED: Duration = Duration::from_secs(3);

/// After so many renewals without a look a standby is missed.
const STANDBY_LOOKS: u32 = 10;

/// One row each. The token has a table of its own: a long transaction holds its row, and the lease is renewed meanwhile.
const TABLES: [&str; 4] = [
    "CREATE TABLE IF NOT EXISTS controller_lease (place BIGINT PRIMARY KEY, token BIGINT NOT NULL, leader VARCHAR(255) NOT NULL, \
     renewals BIGINT NOT NULL, standby VARCHAR(255) NOT NULL, looks BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS controller_token (place BIGINT PRIMARY KEY, token BIGINT NOT NULL)",
    "INSERT OR IGNORE INTO controller_lease VALUES (1, 0, '', 0, '', 0)",
    "INSERT OR IGNORE INTO controller_token VALUES (1, 0)",
];

/// Time since the boot, with that in which the machine was suspended.
fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// What the table says.
#[derive(Clone, PartialEq)]
struct Lease {
    token: i64,
    leader: String,
    renewals: i64,
}

/// The standby that was seen last.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: String,
    looks: i64,
    /// Renewals since it has looked.
    since: u32,
}

/// A controller's lead over the store, from its token until another one's.
pub struct Leadership {
    connection: Mutex<Connection>,
    token: i64,
    /// When the renewal began by which that was certain last; none after the lead was given up.
    confirmed: Mutex<Option<Duration>>,
    standby: Mutex<Seen>,
}

impl Leadership {
    /// Waits until nobody else leads, and leads. `who` names this controller: it does not wait for an earlier life of its own.
    /// None for a SQLite file, which one host has.
    ///
    /// # Errors
    /// What MariaDB says at first; later it is asked again.
    pub fn wait(place: &Path, who: &str) -> Result<Option<Leadership>> {
        let Some(url) = url(place) else { return Ok(None) };
        let connection = Connection::open_within(url, ANSWERED)?;
        TABLES.iter().try_for_each(|sql| connection.execute(sql, &[]).map(drop))?;
        // The lease as it was seen last, and since when.
        let mut seen: Option<(Lease, Duration)> = None;
        let mut told = String::new();
        loop {
            let now = since_boot();
            match look(&connection, who, seen.as_ref(), now) {
                Ok(Looked::Lead { token }) => {
                    let (confirmed, standby) = (Mutex::new(Some(now)), Mutex::default());
                    return Ok(Some(Leadership { connection: Mutex::new(connection), token, confirmed, standby }));
                }
                Ok(Looked::Follow(lease)) => {
                    if told != lease.leader {
                        tracing::info!(leader = lease.leader, "another controller leads; this one is its standby");
                        told.clone_from(&lease.leader);
                    }
                    // From now on, however long the answer took: it may have been renewed at the end of that.
                    seen = seen.filter(|(before, _)| *before == lease).or_else(|| Some((lease, since_boot())));
                }
                Err(e) => {
                    tracing::warn!(%e, "the lease of the controller cannot be read");
                    // Nothing was seen of the leader meanwhile.
                    seen = None;
                }
            }
            sleep(PAUSE);
        }
    }

    /// What the writes of this leader show.
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Whether it was certain a moment ago that no other controller leads.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed.lock().is_some_and(|begun| since_boot().saturating_sub(begun) < CONFIRMED)
    }

    /// Renews the lease until another controller has taken it, or may have: where there is a standby, one that reaches MariaDB
    /// no more is not answered by nodes and clients in its place. A standby that waits no more, as one of an earlier name of this
    /// host, counts only where the site `has_standby`. A lead that was given up is renewed no more, for ever.
    pub fn renew_for_ever(&self, has_standby: bool) {
        loop {
            match self.renew() {
                _ if self.is_given_up() => {}
                Ok(true) => {}
                Ok(false) => return,
                Err(e) => {
                    tracing::warn!(%e, "the lease of the controller cannot be renewed");
                    let may_be_taken = self.standby().is_some_and(|(_, is_there)| is_there || has_standby);
                    if may_be_taken && !self.is_confirmed() {
                        return;
                    }
                }
            }
            sleep(PAUSE);
        }
    }

    fn is_given_up(&self) -> bool {
        self.confirmed.lock().is_none()
    }

    /// Renews the lease once; whether it was still ours.
    ///
    /// # Errors
    /// What MariaDB says.
    pub fn renew(&self) -> Result<bool> {
        let (begun, c) = (since_boot(), self.connection.lock());
        if self.is_given_up() {
            return Ok(false);
        }
        let sql = "UPDATE controller_lease SET renewals = renewals + 1 WHERE place = 1 AND token = ?1";
        if c.execute(sql, params![self.token])? == 0 {
            return Ok(false);
        }
        if let Some(confirmed) = &mut *self.confirmed.lock() {
            *confirmed = begun;
        }
        let sql =
            "SELECT CASE WHEN standby = leader THEN '' ELSE standby END, looks FROM controller_lease WHERE place = 1";
        let (name, looks): (String, i64) = c.query_row(sql, &[], |r| Ok((r.get(0)?, r.get(1)?)))?;
        let mut seen = self.standby.lock();
        let since = if looks == seen.looks { seen.since.saturating_add(1) } else { 0 };
        *seen = Seen { name, looks, since };
        Ok(true)
    }

    /// The name of the standby, if there has been one, and whether it is still there.
    pub fn standby(&self) -> Option<(String, bool)> {
        let seen = self.standby.lock().clone();
        (!seen.name.is_empty()).then_some((seen.name, seen.since < STANDBY_LOOKS))
    }

    /// Lets a standby lead at once.
    ///
    /// # Errors
    /// What MariaDB says.
    pub fn give_up(&self) -> Result<()> {
        *self.confirmed.lock() = None;
        // Until it is back it is the standby that is missed.
        let sql = "UPDATE controller_lease SET standby = leader, leader = '' WHERE place = 1 AND token = ?1";
        self.connection.lock().execute(sql, params![self.token]).map(drop)
    }
}

/// What a look at the lease came to.
enum Looked {
    /// It is ours, with this token.
    Lead { token: i64 },
    /// It is another's.
    Follow(Lease),
}

fn look(c: &Connection, who: &str, seen: Option<&(Lease, Duration)>, now: Duration) -> Result<Looked> {
    let sql = "SELECT token, leader, renewals FROM controller_lease WHERE place = 1";
    let lease = c.query_row(sql, &[], |r| Ok(Lease { token: r.get(0)?, leader: r.get(1)?, renewals: r.get(2)? }))?;
    let is_silent = seen.is_some_and(|(before, since)| *before == lease && now.saturating_sub(*since) >= SILENCE);
    if (lease.leader.is_empty() || lease.leader == who || is_silent) && take(c, who, &lease)? {
        return Ok(Looked::Lead { token: lease.token + 1 });
    }
    let sql = "UPDATE controller_lease SET standby = ?1, looks = looks + 1 WHERE place = 1 AND leader <> ?1";
    c.execute(sql, params![who])?;
    Ok(Looked::Follow(lease))
}

/// Takes the next token, unless somebody else has changed the lease since; what the leader before has begun to write ends first.
fn take(c: &Connection, who: &str, from: &Lease) -> Result<bool> {
    // The leader before is the standby from now on, here or missed.
    let sql = "UPDATE controller_lease SET token = token + 1, leader = ?1, renewals = renewals + 1, \
               standby = CASE WHEN ?4 IN ('', ?1) THEN standby ELSE ?4 END \
               WHERE place = 1 AND token = ?2 AND renewals = ?3 AND leader = ?4";
    if c.execute(sql, params![who, from.token, from.renewals, from.leader])? == 0 {
        return Ok(false);
    }
    c.execute("UPDATE controller_token SET token = ?1 WHERE place = 1 AND token < ?1", params![from.token + 1])?;
    if !from.leader.is_empty() && from.leader != who {
        tracing::warn!(
            before = from.leader,
            token = from.token + 1,
            "the controller before was silent: this one leads"
        );
    }
    Ok(true)
}
