//! `joulepoint capabilities`: which checkpoint engines the nodes have, for people and for `sbatch`.

use crate::{Failure, client, out, site};
use protocol::Capabilities;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Arguments of `joulepoint capabilities`.
#[derive(clap::Args)]
pub struct CapabilitiesArgs {
    /// Write it where `sbatch` on this host looks (node.capabilities of the site file); joulepoint-login.timer does so.
    #[arg(long)]
    publish: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "publish")]
    json: bool,
}

/// Asks the controller and prints or publishes what it says.
pub fn run(args: &CapabilitiesArgs, conf: &Path) -> Result<(), Failure> {
    let told: Capabilities = client(conf)?.get("/v1/capabilities")?;
    match args {
        CapabilitiesArgs { publish: true, .. } => Ok(publish(&site(conf)?.node.capabilities, &told)?),
        CapabilitiesArgs { json: true, .. } => Ok(out::json(&told)?),
        _ => Ok(out::print(describe(&told))?),
    }
}

/// Replaces the file, which is read at any time, as a whole. Its time is that of this host, whose clock its readers have.
fn publish(file: &Path, told: &Capabilities) -> anyhow::Result<()> {
    if file.as_os_str().is_empty() {
        anyhow::bail!("node.capabilities is empty: there is no file to publish in");
    }
    let told = Capabilities { at_s: host::mail::now_s(), ..told.clone() };
    fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
    let new = file.with_extension(format!("{}.new", std::process::id()));
    out::file(&new, &serde_json::to_string(&told)?)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
    Ok(fs::rename(&new, file)?)
}

fn describe(told: &Capabilities) -> String {
    if told.nodes == 0 {
        return "no node has told yet what it has\n".to_string();
    }
    let line = |engine: &str| format!("{engine:<8}{} of {} nodes\n", told.having(engine), told.nodes);
    let images = ["criu", "dmtcp", "scr"].map(line).concat();
    format!("{images}As the node services see it: what modules bring is not counted. 'app' and 'hook' need nothing.\n")
}
