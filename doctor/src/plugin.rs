//! Whether Slurm loads the plugin here, once, of the right version, and with a wrapper behind it.

use crate::plugstack::{Entry, entries};
use crate::slurm_settings::Settings;
use crate::{Findings, Patient};
use slurm::Slurm;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the plugin says of itself in its own file, before its version.
const MARK: &[u8] = b"joulepoint plugin ";

/// The program in front of batch scripts, unless `wrapper=` names another.
const WRAPPER: &str = "/usr/bin/joulepoint";

/// Examines `plugstack.conf`, the shared object and the wrapper.
pub(crate) fn examine(patient: &Patient, slurm: &Slurm, settings: &Settings, findings: &mut Findings) {
    let value = |key: &str| settings.get(key).map_or("", String::as_str);
    let plugstack = match value("plugstackconfig") {
        // Slurm does not say its default: the file beside slurm.conf.
        "" | "(null)" => Path::new(value("slurm_conf")).with_file_name("plugstack.conf"),
        set => PathBuf::from(set),
    };
    let line = "a line 'optional /usr/lib/joulepoint/joulepoint.so'";
    let found = match entries(&plugstack, value("plugindir")) {
        Ok(found) => found,
        Err(e) => return findings.fault("plugin-line", e, format!("make the file, with {line}")),
    };
    let [entry, more @ ..] = found.as_slice() else {
        let what = format!("{} does not load joulepoint.so", plugstack.display());
        return findings.fault("plugin-line", what, format!("add {line}; it is needed on login hosts as well"));
    };
    findings.ok("plugin-line", entry.place.clone());
    if let Some(second) = more.first() {
        let what = format!("loaded twice: {}; {}", entry.place, second.place);
        findings.fault("plugin-once", what, "remove one of the lines: Slurm refuses options that come twice");
    } else {
        findings.ok("plugin-once", "loaded once");
    }
    if entry.required {
        let cure = "write 'optional': with 'required' a node that lacks the file fails every job";
        findings.warning("plugin-optional", format!("{} says 'required'", entry.place), cure);
    }
    if shared_object(patient, entry, findings) {
        visible(slurm, findings);
    }
    arguments(patient, entry, findings);
}

/// The file itself; whether the options can be expected to show.
fn shared_object(patient: &Patient, entry: &Entry, findings: &mut Findings) -> bool {
    let shown = entry.so.display();
    let bytes = match std::fs::read(&entry.so) {
        Ok(bytes) => bytes,
        Err(e) => {
            let cure = "install joulepoint-plugin here, or mend the path in plugstack.conf";
            findings.fault("plugin-file", format!("{shown}: {e}"), cure);
            return false;
        }
    };
    if bytes.get(..5) != Some(b"\x7fELF\x02") || bytes.get(18..20) != own_machine().get(18..20) {
        let cure = "install the package that was built for this machine";
        findings.fault("plugin-file", format!("{shown} is no shared object of this machine"), cure);
        return false;
    }
    match version_in(&bytes) {
        Some(version) if version == patient.version => {
            findings.ok("plugin-file", format!("{shown}, version {version}"))
        }
        Some(version) => {
            let what = format!("{shown} has version {version}, this command {}", patient.version);
            findings.warning("plugin-file", what, "upgrade both to the same version");
        }
        None => {
            findings.fault("plugin-file", format!("{shown} is not Joulepoint's plugin"), "install joulepoint-plugin");
            return false;
        }
    }
    true
}

/// The head of a program that certainly belongs to this machine: this one.
fn own_machine() -> Vec<u8> {
    use std::io::Read;
    let mut head = Vec::new();
    let file = std::fs::File::open("/proc/self/exe");
    let _ = file.and_then(|file| file.take(64).read_to_end(&mut head));
    head
}

fn version_in(bytes: &[u8]) -> Option<String> {
    let start = bytes.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let version = bytes[start..].iter().take_while(|b| b.is_ascii_alphanumeric() || b".-+".contains(b));
    Some(version.map(|b| char::from(*b)).collect())
}

fn visible(slurm: &Slurm, findings: &mut Findings) {
    match slurm.submit_help() {
        Ok(help) if help.contains("--ft-energy") => findings.ok("plugin-options", "sbatch --help shows --ft-energy"),
        Ok(_) => {
            let cure = "see what sbatch -vvv says of joulepoint: a plugin that Slurm rejects is left out silently";
            findings.fault("plugin-options", "sbatch --help does not show --ft-energy", cure);
        }
        Err(e) => findings.fault("plugin-options", e.to_string(), "sbatch must work on a login host"),
    }
}

/// What the plugin takes behind its path.
const ARGUMENTS: [&str; 4] = ["default", "wrapper", "conf", "capabilities"];

fn arguments(patient: &Patient, entry: &Entry, findings: &mut Findings) {
    let value = |key: &str| entry.arguments.iter().rev().find_map(|a| a.strip_prefix(key)?.strip_prefix('='));
    for argument in &entry.arguments {
        let key = argument.split('=').next().unwrap_or(argument);
        if !ARGUMENTS.contains(&key) {
            let what = format!("{}: argument '{argument}' is not known", entry.place);
            findings.fault("plugin-arguments", what, "known are default=, wrapper=, conf= and capabilities=");
        }
    }
    wrapper(patient, Path::new(value("wrapper").unwrap_or(WRAPPER)), findings);
    let conf = Path::new(value("conf").unwrap_or(config::DEFAULT_PATH));
    if conf != patient.conf {
        let what = format!("jobs read {}, this command {}", conf.display(), patient.conf.display());
        findings.warning("plugin-conf", what, "write conf=PATH behind the plugin, or set JOULEPOINT_CONF alike");
    }
}

fn wrapper(patient: &Patient, path: &Path, findings: &mut Findings) {
    let shown = path.display();
    let cure = "install the command there, or write wrapper=PATH behind the plugin; jobs run unprotected until then";
    match Command::new(path).arg("--version").stdin(Stdio::null()).output() {
        Err(e) => findings.fault("plugin-wrapper", format!("{shown}: {e}"), cure),
        Ok(said) => {
            let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
            if said == format!("joulepoint {}", patient.version) {
                findings.ok("plugin-wrapper", format!("{shown}, version {}", patient.version));
            } else if said.starts_with("joulepoint ") {
                let what = format!("{shown} is {said}, this command {}", patient.version);
                findings.warning("plugin-wrapper", what, "upgrade both to the same version");
            } else {
                findings.fault("plugin-wrapper", format!("{shown} is not the command joulepoint"), cure);
            }
        }
    }
}
