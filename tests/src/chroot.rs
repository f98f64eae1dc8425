//! Makes a bare Debian in a folder, from the machine's own mirror.

use std::path::Path;
use std::process::{Command, Output};

/// Longest time for making one, seconds: half a minute of work, of which others may leave little.
const MAKING_S: &str = "1200";

/// Makes Debian's `suite` with `packages` (separated by commas) in `root`; `more` are arguments for mmdebstrap.
///
/// # Errors
/// The reason for which it cannot be made here: no root, no mirror, no such suite.
pub fn make(suite: &str, packages: &str, more: &[&str], root: &Path) -> Result<(), String> {
    if Command::new("id").arg("-u").output().map_or(true, |id| id.stdout.trim_ascii() != b"0") {
        return Err("needs root".to_owned());
    }
    let mut making = Command::new("timeout");
    making.args(["-s", "KILL", MAKING_S, "mmdebstrap", "--quiet", "--mode=root", "--variant=apt"]);
    making.arg(format!("--include={packages}"));
    making.args(["--aptopt=Acquire::Languages \"none\"", "--aptopt=Acquire::Retries \"1\""]);
    // A frozen mirror, or a clock that is ahead of it, must not end the trial; signatures are still checked.
    making.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
    making.args(["--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/locale/*"]);
    making.args(more).arg(suite).arg(root).arg(mirror()?);
    let output = making.output().map_err(|error| format!("mmdebstrap: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("mmdebstrap ended with {}: {}", output.status, errors(&output))),
    }
}

/// The machine's own Debian mirror, as apt knows it.
fn mirror() -> Result<String, String> {
    let format = "$(ORIGIN)|$(LABEL)|$(REPO_URI)";
    let output = Command::new("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]).output();
    let output = output.map_err(|error| format!("apt-get: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let debian = text.lines().find_map(|line| line.strip_prefix("Debian|Debian|"));
    debian.map(str::to_owned).ok_or_else(|| "apt knows no Debian mirror here".to_owned())
}

fn errors(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = text.lines().filter(|line| line.starts_with("E: "));
    lines.take(2).collect::<Vec<_>>().join("; ")
}
