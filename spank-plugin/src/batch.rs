//! In the batch step, as the job's user, just before the script: the wrapper is put in front of it.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::launcher::launcher;
use crate::option_values;
use crate::output;
use crate::site::{self, Site};
use crate::submit::{CARRIER, to_json};
use crate::wanted::Said;
use protocol::Request;
use spank::{Error, Handle, Step};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Wraps the batch script of a job that wants it.
///
/// # Errors
/// Why the job runs unprotected; it runs in any case.
pub fn task_init(handle: &Handle<'_>) -> Result<(), String> {
    if handle.step() != Ok(Step::Batch) {
        return Ok(());
    }
    let wrapped = wrap(handle);
    output::begin(handle);
    wrapped.map(drop).map_err(|reason| format!("{reason}; the job runs unprotected"))
}

/// Whether the job wants it, and has it.
fn wrap(handle: &Handle<'_>) -> Result<bool, String> {
    let site = site::get();
    let said = Said {
        options: option_values::arrived(),
        variable: &|name| handle.getenv(name).ok(),
        carried: carried(handle),
        site: &site,
    };
    // The job ends if it is not to run without protection, and waits for a person where it may have run.
    let instead = |reason: &str, may_have_run: bool| {
        let shell = match said.requires() {
            _ if may_have_run => HOLDING,
            true => REFUSING,
            false => return Err(reason.to_owned()),
        };
        put_in_front(handle, &["/bin/sh", "-c", shell, reason].map(OsString::from)).map(|()| true)
    };
    // Users can write Slurm's internal variables themselves, so nothing that arrives here counts as checked.
    let request = match said.request() {
        Ok(Some(request)) => request,
        Ok(None) => return Ok(false),
        Err(reason) => return instead(&reason, false),
    };
    if handle.getenv(CONTAINER).is_ok() {
        // Slurm lets the container run the first word of the command.
        return instead(IN_CONTAINER, false);
    }
    if let Err(reason) = executable(&site.wrapper) {
        return instead(&reason, output::is_later_life(handle));
    }
    let words = words(&site, &request)?;
    if let Some(conf) = &site.conf {
        handle
            .setenv("JOULEPOINT_CONF", conf.as_os_str())
            .map_err(|error| format!("cannot set JOULEPOINT_CONF: {error}"))?;
    }
    put_in_front(handle, &words)?;
    // A leftover does no harm: every sbatch sets or removes it.
    let _ = handle.unsetenv(CARRIER);
    Ok(true)
}

/// By which Slurm tells a job of its container (`sbatch --container`).
const CONTAINER: &str = "SLURM_CONTAINER";

/// Why a job in one is not protected.
pub const IN_CONTAINER: &str = "Slurm runs the script in a container (--container), where there is no joulepoint";

/// What the shell runs in place of a script that is not to run without the wrapper; `$0` is the reason. No error of a hook, which
/// Slurm would take for the node's.
const REFUSING: &str =
    r#"echo "joulepoint: NOT PROTECTED: $0; --ft-energy-require: the job ends before it has begun" >&2; exit 122"#;

/// Likewise in a later life of the job: from its beginning the script would run over what the lives before may have left. Slurm
/// ends the job while it waits; a slurmctld that is away is asked for five minutes.
const HOLDING: &str = r#"job=$SLURM_JOB_ID
# By the id of an array's last task Slurm means all of them.
[ -z "$SLURM_ARRAY_TASK_ID" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
for try in 1 2 3 4 5 6 7 8 9 10; do
    if scontrol requeuehold "$job"; then
        echo "joulepoint: $0; the job goes back into the queue and is held; when that is mended: scontrol release" >&2
        sleep 120
        exit 122
    fi
    sleep 30
done
echo "joulepoint: NOT PROTECTED: $0; the job could not be held, and ends before it has begun" >&2
exit 122"#;

/// What the submitting side sent along; one that cannot be read counts as absent.
fn carried(handle: &Handle<'_>) -> Option<Request> {
    serde_json::from_str(handle.getenv(CARRIER).ok()?.to_str()?).ok()
}

fn executable(wrapper: &Path) -> Result<(), String> {
    let path = CString::new(wrapper.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: a NUL-terminated path.
    let answer = unsafe { libc::access(path.as_ptr(), libc::X_OK) };
    if answer == 0 && wrapper.is_file() {
        return Ok(());
    }
    let reason = match answer {
        0 => "not a file".to_owned(),
        _ => std::io::Error::last_os_error().to_string(),
    };
    Err(format!("cannot run {}: {reason}", wrapper.display()))
}

/// The words before the script's own.
fn words(site: &Site, request: &Request) -> Result<Vec<OsString>, String> {
    let json = to_json(request)?;
    Ok(vec![site.wrapper.clone().into(), "wrap".into(), "--request".into(), json.into(), "--".into()])
}

fn put_in_front(handle: &Handle<'_>, words: &[OsString]) -> Result<(), String> {
    let c_words: Vec<CString> = words
        .iter()
        .map(|word| CString::new(word.as_bytes()).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    match handle.prepend_argv(&c_words) {
        Ok(()) => Ok(()),
        Err(Error::Missing(_)) => exchange_program(handle, words),
        Err(error) => Err(format!("cannot put the wrapper before the script: {error}")),
    }
}

/// For Slurm before 23.11: see `launcher`.
fn exchange_program(handle: &Handle<'_>, words: &[OsString]) -> Result<(), String> {
    let argv = handle.argv().map_err(|error| format!("cannot read the script's path: {error}"))?;
    let script = argv.first().ok_or("the script has no path")?;
    let mut all: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
    all.push(script);
    let program = launcher(&all).map_err(|error| format!("cannot prepare the wrapper: {error}"))?;
    handle.replace_program(program).map_err(|error| format!("cannot put the wrapper before the script: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Setting, Source};

    #[test]
    fn the_words_carry_the_request_and_end_before_the_script() {
        let mut request = Request::default();
        let setting = Setting { value: "time".into(), source: Source::Option };
        request.settings.insert("ft-energy".into(), setting);
        let words = words(&Site::default(), &request).unwrap();
        assert_eq!(words[0], "/usr/bin/joulepoint");
        assert_eq!((words[1].to_str(), words[2].to_str()), (Some("wrap"), Some("--request")));
        assert_eq!(serde_json::from_str::<Request>(words[3].to_str().unwrap()).unwrap(), request);
        assert_eq!(words[4], "--");
    }

    #[test]
    fn a_wrapper_that_cannot_run_is_named() {
        assert!(executable(Path::new("/bin/sh")).is_ok());
        assert!(executable(Path::new("/nowhere/joulepoint")).unwrap_err().contains("/nowhere/joulepoint"));
        assert!(executable(Path::new("/tmp")).unwrap_err().contains("not a file"));
        assert!(executable(Path::new("/etc/passwd")).is_err());
    }
}
