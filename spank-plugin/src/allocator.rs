//! In `sbatch`, `salloc` and `scrontab`: the request is checked before anything is submitted.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::submit::{self, CARRIER};
use std::ffi::OsString;
use std::path::Path;

/// Checks the request and sends it along with the job.
pub fn init_post_opt() -> Result<(), String> {
    let request = submit::request()?.filter(submit::asked_by_user);
    match &request {
        Some(request) if program() == "sbatch" => {
            submit::enough_nodes(request)?;
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

/// Whether this is `scrontab`, which takes options of plugins and forgets them.
pub fn in_scrontab() -> bool {
    program() == "scrontab"
}

fn program() -> OsString {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_name().unwrap_or_default().to_owned()
}
