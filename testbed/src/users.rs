//! Makes sure that the two ordinary users of the tests exist.

use anyhow::{Context, Result, bail};
use nix::unistd::{Uid, User};
use std::path::Path;
use std::process::Command;

/// An ordinary user, of account `physics`.
pub const ALICE: &str = "jpalice";
/// Another ordinary user, of account `chemistry`.
pub const BOB: &str = "jpbob";

/// Creates the two users where they are missing, and their homes under `homes`.
pub(crate) fn ensure(homes: &Path) -> Result<()> {
    if !Uid::effective().is_root() {
        bail!("a test cluster needs root");
    }
    std::fs::create_dir_all(homes)?;
    for name in [ALICE, BOB] {
        let user = find_or_create(name)?;
        let home = homes.join(name);
        std::fs::create_dir_all(&home)?;
        nix::unistd::chown(&home, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

/// The user called `name`.
pub(crate) fn find(name: &str) -> Result<User> {
    User::from_name(name)?.with_context(|| format!("there is no user {name}"))
}

fn find_or_create(name: &str) -> Result<User> {
    if let Some(user) = User::from_name(name)? {
        return Ok(user);
    }
    let out = Command::new("useradd")
        .args(["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/bash"])
        .arg(name)
        .output()
        .context("useradd")?;
    // Another cluster may have created the user meanwhile: what counts is that it is there now.
    find(name).with_context(|| format!("useradd said: {}", String::from_utf8_lossy(&out.stderr).trim()))
}
