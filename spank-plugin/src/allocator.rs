//! In `sbatch`, `salloc` and `scrontab`: the request is checked before anything is submitted.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::batch::IN_CONTAINER;
use crate::option_values::{is_sbatch, program};
use crate::output;
use crate::prospect;
use crate::site;
use crate::submit::{self, CARRIER, Seen};
use options::size::{PARTS, PARTS_CURE};
use protocol::Request;
use std::sync::atomic::{AtomicBool, Ordering};

/// Checks the request and sends it along with the job.
pub fn init_post_opt() -> Result<(), String> {
    output::forget();
    let request = submit::request()?.filter(submit::asked_by_user);
    match &request {
        Some(request) if is_sbatch() => {
            submit::enough_nodes(request)?;
            tell(request)?;
            let json = submit::to_json(request)?;
            // SAFETY: sbatch has not started a thread when it runs this hook.
            unsafe { std::env::set_var(CARRIER, json) }
        }
        // What an outer job carried is not meant for this one.
        // SAFETY: as above, and the same for salloc.
        _ => unsafe { std::env::remove_var(CARRIER) },
    }
    if let Some(request) = request.filter(|_| program() == "salloc") {
        if request.settings.contains_key(options::REQUIRE) {
            return Err("--ft-energy-require: only batch jobs are protected; accepted: sbatch".to_owned());
        }
        crate::inform("only batch jobs are protected; the steps of this allocation run as written");
    }
    Ok(())
}

/// Says what is known of the job's protection, once: a job of several parts comes here for each.
///
/// # Errors
/// It asks for more than Slurm would let it have.
fn tell(request: &Request) -> Result<(), String> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let Seen { words, script, is_whole } = submit::submission();
    let stays_away = options::size::stays_away(&words, std::env::var_os("SBATCH_NO_REQUEUE").is_some(), &script);
    let settings = options::resolve(request, &Default::default()).map_err(|refusal| refusal.to_string())?;
    if stays_away && settings.require {
        let cure = "leave one of them out";
        return Err(format!("--ft-energy-require: --no-requeue lets Slurm end the job with a lost node; {cure}"));
    }
    let unprotected = unprotected(&words, &script);
    if let Some(reason) = unprotected.as_ref().filter(|_| settings.is_required()) {
        let asked = settings.engine.filter(|_| !settings.require);
        let asked = asked.map_or("require".to_owned(), |engine| format!("engine={}", engine.as_str()));
        return Err(format!("--ft-energy-{asked}: {reason}"));
    }
    if TOLD.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    if let Some(reason) = unprotected {
        crate::inform(&format!("NOT PROTECTED: {reason}"));
        return Ok(());
    }
    let nodes = prospect::capabilities(&site::get().capabilities);
    let commands = if is_whole { prospect::commands(&words, &script) } else { String::new() };
    let job = options::Job { commands: &commands, nodes: options::size::fewest_nodes(&script, &words) };
    crate::inform(&prospect::line(&settings, &job, nodes.as_ref()));
    prospect::unknown_twins(std::env::vars_os()).iter().for_each(|line| crate::inform(line));
    if stays_away {
        crate::inform("--no-requeue: with a lost node the job ends for good; only what dies within it is recovered");
    } else if output::is_emptied(&words, &script) {
        crate::inform(
            "--open-mode=truncate: Slurm empties the job's output when it begins again; without it no line is lost",
        );
    }
    Ok(())
}

/// Why a job of these words and this script is not protected, whatever else it asks for.
fn unprotected(words: &[String], script: &str) -> Option<String> {
    let is_container = |word: &String| word == "--container" || word.starts_with("--container=");
    if submit::seen().is_some_and(|seen| options::size::has_parts(&seen.script, &seen.words)) {
        return Some(format!("{PARTS}; {PARTS_CURE}"));
    }
    let all = options::size::directives(script);
    all.iter().chain(words).any(is_container).then(|| IN_CONTAINER.to_owned())
}
