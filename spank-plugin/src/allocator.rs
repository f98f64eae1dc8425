//! In `sbatch`, `salloc` and `scrontab`: the request is checked before anything is submitted.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::option_values::program;
use crate::output;
use crate::prospect;
use crate::submit::{self, CARRIER};

/// Checks the request and sends it along with the job.
pub fn init_post_opt() -> Result<(), String> {
    output::forget();
    let request = submit::request()?.filter(submit::asked_by_user);
    match &request {
        Some(request) if program() == "sbatch" => {
            submit::enough_nodes(request)?;
            let (words, script) = submit::submission();
            let stays_away = prospect::stays_away(&words, &script);
            let settings = options::resolve(request, &Default::default()).map_err(|refusal| refusal.to_string())?;
            if stays_away && settings.require {
                return Err(
                    "--no-requeue: Slurm ends the job with a lost node, and --ft-energy-require asks for more; leave \
                            one of them out"
                        .to_owned(),
                );
            }
            crate::inform(&prospect::line(&settings, &script));
            prospect::unknown_twins(std::env::vars_os()).iter().for_each(|line| crate::inform(line));
            if stays_away {
                crate::inform(
                    "--no-requeue: with a lost node the job ends for good; only what dies within it is recovered",
                );
            }
            let json = submit::to_json(request)?;
            // SAFETY: sbatch has not started a thread when it runs this hook.
            unsafe { std::env::set_var(CARRIER, json) }
        }
        // What an outer job carried is not meant for this one.
        // SAFETY: as above, and the same for salloc.
        _ => unsafe { std::env::remove_var(CARRIER) },
    }
    if request.is_some() && program() == "salloc" {
        crate::inform("only batch jobs are protected; the steps of this allocation run as written");
    }
    Ok(())
}
