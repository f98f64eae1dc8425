//! The options in Slurm's eyes: registered in every process, and their values as they arrive one by one.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::submit::GROUPS;
use options::{OPTIONS, Spec, Takes};
use spank::{Callback, Context, Handle, Level, OptionSpec, Value, log};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::raw::c_int;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Option name to value as written; empty for an option without one.
pub type Values = BTreeMap<&'static str, OsString>;

static VALUES: Mutex<Values> = Mutex::new(Values::new());

/// Registers every option; one that Slurm will not have is logged, and the others still serve.
pub fn register(handle: &Handle<'_>, callback: Callback) {
    for (id, spec) in (0..).zip(OPTIONS) {
        let option = OptionSpec {
            name: spec.name,
            arginfo: spec.arginfo,
            usage: &format!("[joulepoint] {}", spec.help),
            value: match spec.takes {
                Takes::None => Value::None,
                Takes::Optional => Value::Optional,
                Takes::Required => Value::Required,
            },
            id,
        };
        if let Err(error) = spank::register(handle, &option, callback) {
            log(Level::Error, &format!("joulepoint: cannot register --{}: {error}", spec.name));
        }
    }
}

/// Takes one value. Where a job is submitted it is checked at once; beside the job it is only kept.
pub fn accept(id: c_int, value: Option<&OsStr>, place: Context) -> Result<(), String> {
    let spec = usize::try_from(id).ok().and_then(|id| OPTIONS.get(id));
    let spec = spec.ok_or_else(|| format!("Slurm passed option number {id}, which is not known"))?;
    // All of these are "without a value": Slurm 22.05 sends the one and the other, and a step of a job gets
    // the last, which is C's printing of the first.
    let value = match value {
        Some(text) if spec.takes == Takes::Required || text != "(null)" => text,
        _ => OsStr::new(""),
    };
    if matches!(place, Context::Local | Context::Allocator) {
        check(spec, &format!("--{}", spec.name), value)?;
        if program() == "scrontab" {
            return Err(format!(
                "--{} has no effect in scrontab, where Slurm drops the options of plugins; accepted: sbatch",
                spec.name
            ));
        }
    }
    VALUES.lock().unwrap_or_else(PoisonError::into_inner).insert(spec.name, value.to_owned());
    Ok(())
}

/// The name of this program: `sbatch`, `salloc`, or `scrontab`, which takes options of plugins and forgets them.
pub fn program() -> OsString {
    let path = std::env::args_os().next().unwrap_or_default();
    Path::new(&path).file_name().unwrap_or_default().to_owned()
}

/// Whether this program submits batch jobs: a site may have another name for it, such as that of a program which its own
/// `sbatch` calls.
pub fn is_sbatch() -> bool {
    let program = program();
    program != "salloc" && program != "scrontab"
}

/// Checks one value that was written at `place`.
pub fn check(spec: &Spec, place: &str, value: &OsStr) -> Result<String, String> {
    let text = value.to_str().ok_or_else(|| format!("{place}: '{}' is not UTF-8", value.to_string_lossy()))?;
    options::check_at(spec, place, text).map_err(|refusal| refusal.to_string())?;
    Ok(text.to_owned())
}

/// How variables begin in which a job's script finds our options of its own job; `sbatch` reads them as its own.
const INHERITED: &str = "SLURM_SPANK__SLURM_SPANK_OPTION_joulepoint_";

/// How variables of our own begin, and those of them that a person sets.
const OWN: &str = "JOULEPOINT_";
const PERSONS: [&str; 3] = ["JOULEPOINT_CONF", "JOULEPOINT_LOG", "JOULEPOINT_RESUME"];

/// What the programs of a protected job are told.
const TOLD: [&str; 8] = [
    "FT_ENERGY_RESTART",
    "FT_ENERGY_RESTART_DIR",
    "FT_ENERGY_DONE_FD",
    "FT_ENERGY_INTERVAL_S",
    "FT_ENERGY_INTERVAL_MIN",
    "FT_ENERGY_RELAY",
    "FT_ENERGY_RELAY_WAIT",
    GROUP,
];

/// Which group a program is in; where that is told, the twin of the option of groups is no wish, but how many there are.
const GROUP: &str = "FT_ENERGY_GROUP";

/// Where a job is submitted, before Slurm looks: what a protected job asked for and is told is neither a wish nor a truth for
/// the jobs that its script submits.
pub fn forget_inherited() {
    let has_groups = std::env::var_os(GROUP).is_some();
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| is_inherited(name, has_groups)) {
        // SAFETY: sbatch and salloc have not started a thread when they initialize their plugins.
        unsafe { std::env::remove_var(name) }
    }
}

fn is_inherited(name: &OsStr, has_groups: bool) -> bool {
    let begins = |with: &str| name.as_encoded_bytes().starts_with(with.as_bytes());
    let is_in = |names: &[&str]| names.iter().any(|one| name == *one);
    begins(INHERITED)
        || begins(OWN) && !is_in(&PERSONS)
        || is_in(&TOLD)
        || has_groups && name == options::env_twin(GROUPS).as_str()
}

/// The values that have arrived in this process.
pub fn arrived() -> Values {
    VALUES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn id_of(name: &str) -> c_int {
        c_int::try_from(OPTIONS.iter().position(|spec| spec.name == name).unwrap()).unwrap()
    }

    #[test]
    fn a_wrong_value_is_refused_at_submit_and_kept_beside_the_job() {
        let wrong = Some(OsStr::new("never"));
        let id = id_of("ft-energy-interval");
        let refusal = accept(id, wrong, Context::Allocator).unwrap_err();
        assert!(refusal.contains("--ft-energy-interval: 'never'") && refusal.contains("accepted:"), "{refusal}");
        assert_eq!(accept(id, wrong, Context::Remote), Ok(()));
        assert_eq!(arrived()["ft-energy-interval"], "never");
    }

    #[test]
    fn only_what_slurm_hands_down_of_ours_is_forgotten() {
        for (name, is_ours) in [
            ("SLURM_SPANK__SLURM_SPANK_OPTION_joulepoint_ft_energy_done", true),
            ("SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image", false),
            ("FT_ENERGY", false),
            ("FT_ENERGY_INTERVAL", false),
            ("FT_ENERGY_RESTART", true),
            ("JOULEPOINT_RUN", true),
            ("JOULEPOINT_CONF", false),
        ] {
            assert_eq!(is_inherited(OsStr::new(name), false), is_ours, "{name}");
        }
    }

    #[test]
    fn null_and_empty_are_one_and_strange_numbers_are_refused() {
        let id = id_of("ft-energy");
        assert_eq!(accept(id, None, Context::Local), Ok(()));
        assert_eq!(accept(id, Some(OsStr::new("")), Context::Local), Ok(()));
        assert_eq!(accept(id, Some(OsStr::new("(null)")), Context::Local), Ok(()));
        assert!(accept(-1, None, Context::Local).is_err());
        assert!(accept(c_int::MAX, None, Context::Remote).is_err());
        assert!(accept(id, Some(OsStr::from_bytes(b"\xff\xfe")), Context::Local).unwrap_err().contains("UTF-8"));
    }
}
