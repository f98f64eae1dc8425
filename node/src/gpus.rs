//! Asks Slurm which of this node's GPUs each job holds; a user's word is not taken for it.

use crate::metering::Metering;
use energy::Gpus;
use slurm::Slurm;
use std::time::Duration;

/// Time between two looks for jobs whose GPUs are not known.
const LOOK: Duration = Duration::from_secs(1);

/// Time before Slurm is asked again when it did not answer.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Asks once for each job, beside the heartbeat, on a node whose GPUs are metered.
pub(crate) fn ask_for_ever(metering: &Metering, slurm: &Slurm) {
    loop {
        std::thread::sleep(LOOK);
        let unknown = {
            let meters = metering.lock();
            if meters.meter.has_gpus() { meters.accounts.without_gpus() } else { Vec::new() }
        };
        let mut pause = Duration::ZERO;
        for job in unknown {
            match slurm.gpus(job, &metering.name) {
                Ok(gpus) => metering.lock().accounts.set_gpus(job, gpus.map_or(Gpus::NotKnown, Gpus::Own)),
                Err(e) => {
                    tracing::info!(job, %e, "it is not known which GPUs are the job's");
                    pause = ASK_AGAIN;
                }
            }
        }
        std::thread::sleep(pause);
    }
}
