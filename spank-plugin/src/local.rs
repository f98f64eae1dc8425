//! In `srun`: a step inside a job runs as written; a job of its own is checked, and told that it is not protected.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::submit;
use protocol::Source;

/// Checks the request of an `srun` that makes its own job.
pub fn init_post_opt() -> Result<(), String> {
    if inside_a_job() {
        return Ok(());
    }
    if let Some(request) = submit::request()?.filter(submit::asked_by_user) {
        // What the environment says is meant for sbatch.
        if request.settings.get(options::REQUIRE).is_some_and(|asked| asked.source == Source::Option) {
            return Err("--ft-energy-require: only batch jobs are protected; accepted: sbatch".to_owned());
        }
        crate::inform("only batch jobs are protected; this step runs as written");
    }
    Ok(())
}

/// Whether this `srun` runs in an allocation that exists already. Its options are then those of the job, which
/// were checked when the job was submitted.
pub fn inside_a_job() -> bool {
    std::env::var_os("SLURM_JOB_ID").is_some()
}
