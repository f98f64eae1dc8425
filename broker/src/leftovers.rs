//! Removes what a crash left of loans that are over.

use crate::error::Result;
use crate::rules::DAY_S;
use crate::seen::{PREFIX, is_there, now_s, understood};
use audit::By;
use parking_lot::Mutex;
use protocol::Loan;
use slurm::{Job, Slurm};
use std::collections::BTreeMap;
use store::Store;

/// How long after its end a loan's helper job is still looked for, s.
const LEFTOVER_S: f64 = 3600.0;

/// Removes reservations and helper jobs of loans that are over; what no loan of ours knows stays. Jobs are looked for
/// only where something is left.
pub(crate) fn sweep(slurm: &Slurm, reader: &Mutex<Store>, longest_s: f64) -> Result<()> {
    let mut left = Vec::new();
    for reservation in slurm.reservations()? {
        match over(reader, &reservation.name) {
            Ok(loan) => left.extend(loan.map(|loan| (reservation.name, loan))),
            Err(e) => {
                tracing::warn!(error = %e, reservation = reservation.name, "whose loan it was is not known: it stays")
            }
        }
    }
    let jobs = if left.is_empty() { Vec::new() } else { understood(slurm.jobs()?) };
    let inside = |name: &str| jobs.iter().filter(|j| is_there(j) && j.reservation == name).collect::<Vec<_>>();
    for (name, loan) in &left {
        let chosen = |j: &&Job| loan.chosen.iter().any(|c| (c.job, c.uid) == (j.id, j.uid));
        for job in inside(name).into_iter().filter(chosen) {
            let why = "a borrower in the reservation of a loan that is over";
            go_on(audit::note(By::Service, audit::Act::Reservation, (job.id, ""), why, slurm.call_out(job.id)));
        }
    }
    // A reservation is in use as long as its helper is there.
    end_left_helpers(slurm, reader, longest_s)?;
    for (name, loan) in left {
        let why = format!("reservation {name} of loan {}, which is over", loan.id);
        go_on(audit::note(By::Service, audit::Act::Reservation, (0, ""), &why, slurm.unreserve(&name)));
    }
    Ok(())
}

/// Ends the helper jobs of loans that were over lately.
fn end_left_helpers(slurm: &Slurm, reader: &Mutex<Store>, longest_s: f64) -> Result<()> {
    let now_s = now_s();
    let since_s = now_s - longest_s - DAY_S;
    let mut names: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let lately = |l: &Loan| l.state.is_over() && now_s - l.state_s < LEFTOVER_S;
    for loan in reader.lock().lendings(since_s)?.into_iter().filter(lately) {
        names.entry(loan.uid).or_default().push(loan.name);
    }
    for (uid, names) in names {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for job in understood(slurm.jobs_named(uid, &names)?).iter().filter(|j| is_there(j)) {
            let why = "the helper job of a loan that is over";
            go_on(audit::note(By::Service, audit::Act::Cancel, (job.id, ""), why, slurm.cancel(job.id)));
        }
    }
    Ok(())
}

/// The loan of a name, its own or that of a reservation for a chosen borrower, if it is ours and over.
fn over(reader: &Mutex<Store>, name: &str) -> Result<Option<Loan>> {
    let Some(id) = name.strip_prefix(PREFIX).and_then(|rest| rest.split('_').next()) else { return Ok(None) };
    let known = reader.lock().lending(id)?;
    Ok(known.filter(|l| l.state.is_over()))
}

/// One leftover that cannot be removed now keeps no other.
fn go_on(removed: Result<(), slurm::Error>) {
    if let Err(e) = removed {
        tracing::warn!(%e, "a leftover of a loan stays until the next look");
    }
}
