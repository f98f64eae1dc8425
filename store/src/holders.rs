//! Who holds a run: the records of one holder are not taken any more when a newer one is known.

use crate::database::Connection;
use crate::error::{Error, Result};
use crate::value::params;
use protocol::Batch;

/// Takes down who sends a batch; one of a holder that another has followed may only repeat what is stored up to `upto`.
///
/// # Errors
/// [`Error::Superseded`], or what the database says.
pub(super) fn admit(c: &Connection, batch: &Batch, upto: u64) -> Result<()> {
    // Senders of a version before say nothing.
    let Some(holder) = batch.holder else { return Ok(()) };
    let (cluster, run) = (&batch.key.cluster, &batch.key.run);
    let known: Option<u64> =
        c.query_optional("SELECT holder FROM holders WHERE cluster = ?1 AND run = ?2", params![cluster, run], |r| {
            r.get(0)
        })?;
    match known {
        Some(newer) if newer > holder => {
            let is_new = batch.records.iter().any(|record| record.seq > upto);
            if is_new { Err(Error::Superseded { holder, newer }) } else { Ok(()) }
        }
        Some(same) if same == holder => Ok(()),
        _ => {
            c.execute(
                "INSERT INTO holders VALUES (?1, ?2, ?3)
                 ON CONFLICT (cluster, run) DO UPDATE SET holder = excluded.holder",
                params![cluster, run, holder],
            )?;
            Ok(())
        }
    }
}
