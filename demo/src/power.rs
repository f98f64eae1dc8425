//! Lets the user of the shell cut the power of a node, and give it back.

use anyhow::{Context, Result};
use site::Site;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The commands, and what each does to the power of a node.
const COMMANDS: [(&str, &str); 2] = [("kill-node", "off"), ("revive-node", "on")];

/// Name of this program where the site's programs are: the user may not be able to enter the folder of the build.
const PROGRAM: &str = "joulepoint-demo";

/// Puts the commands beside the site's programs, and lets the user give orders to the cluster.
pub fn give(site: &Site, user: &str) -> Result<()> {
    let program = site.bin().join(PROGRAM);
    fs::copy(std::env::current_exe()?, &program).with_context(|| program.display().to_string())?;
    for (name, what) in COMMANDS {
        let path = site.bin().join(name);
        let (program, cluster) = (program.display(), site.cluster.dir.display());
        let usage = format!("usage: {name} NODE");
        let script = format!("#!/bin/sh\nexec {program} power {cluster} {what} \"${{1:?{usage}}}\"\n");
        fs::write(&path, script).with_context(|| path.display().to_string())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    site.cluster.let_order(user)
}

/// Cuts the power of a node of the cluster in a folder, or gives it back.
pub fn order(cluster: &Path, what: &str, node: &str) -> Result<()> {
    let words = ["power", what, node].map(str::to_string);
    let said = testbed::order(cluster, &words)?;
    if !said.is_empty() {
        println!("{said}");
    }
    Ok(())
}
