//! Who holds a run: the records of one holder are not taken any more when a newer one is known.

use super::{Connection, params};
use anyhow::Result;
use protocol::Batch;

/// Another driver has taken the run up since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("holder {newer} has taken the run up; new records of holder {holder} count for nothing")]
pub struct Superseded {
    /// Who sends.
    pub holder: u64,
    /// Who has the run.
    pub newer: u64,
}

/// Takes down who sends a batch; one of a holder that another has followed may only repeat what is stored up to `upto`.
///
/// # Errors
/// [`Superseded`], or what the database says.
pub(super) fn admit(c: &Connection, batch: &Batch, upto: u64) -> Result<()> {
    // Senders of a version before say nothing.
    let Some(holder) = batch.holder else { return Ok(()) };
    let (cluster, run) = (&batch.key.cluster, &batch.key.run);
    let known: Option<u64> = c
        .prepare_cached("SELECT holder FROM holders WHERE cluster = ?1 AND run = ?2")?
        .query_optional(params![cluster, run], |r| r.get(0))?;
    match known {
        Some(newer) if newer > holder => {
            let is_new = batch.records.iter().any(|record| record.seq > upto);
            if is_new { Err(Superseded { holder, newer }.into()) } else { Ok(()) }
        }
        Some(same) if same == holder => Ok(()),
        _ => {
            c.prepare_cached(
                "INSERT INTO holders VALUES (?1, ?2, ?3)
                 ON CONFLICT (cluster, run) DO UPDATE SET holder = excluded.holder",
            )?
            .execute(params![cluster, run, holder])?;
            Ok(())
        }
    }
}
