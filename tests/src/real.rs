//! Checkpoint engines of others, built from their sources, which lie beside the repository (`../shared/sources`).

use crate::{Site, Wanted, built, repository};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What SCR stands on, and itself.
const SCR: [&str; 10] = ["lwgrp", "dtcmp", "KVTree", "AXL", "spath", "rankstr", "redset", "shuffile", "er", "scr"];

/// SCR with the program `bin/steps`, built once.
///
/// # Errors
/// Why not, where its sources or what builds them is missing.
pub fn scr() -> Result<PathBuf> {
    let (prefix, sources) = (prefix("scr")?, sources(&SCR)?);
    let steps = prefix.join("bin/steps");
    if steps.exists() {
        return Ok(prefix);
    }
    // The script builds whatever lies beside it, and more is there than is wanted.
    let own = tempfile::tempdir()?;
    for name in SCR.map(|part| format!("{part}.tar.xz")).iter().map(String::as_str).chain(["build.sh"]) {
        fs::copy(sources.join(name), own.path().join(name)).with_context(|| name.to_string())?;
    }
    run(Command::new("bash").arg(own.path().join("build.sh")).arg(own.path()).arg(&prefix))?;
    run(Command::new("mpicc")
        .arg("-O2")
        .arg(sources.join("scr-steps.c"))
        .arg("-o")
        .arg(&steps)
        .arg(format!("-I{}", prefix.join("include").display()))
        .arg(format!("-L{}", prefix.join("lib").display()))
        .arg("-lscr"))?;
    Ok(prefix)
}

/// VELOC beside SCR, on whose parts it stands, with the program `bin/steps`; built once and if that is wanted.
///
/// # Errors
/// As of [`scr`].
pub fn veloc() -> Result<PathBuf> {
    let (prefix, sources) = (prefix("veloc")?, sources(&["VELOC"])?);
    let steps = prefix.join("bin/steps");
    if steps.exists() {
        return Ok(prefix);
    }
    if std::env::var_os(ALL).is_none() {
        bail!(Absent::Unbuilt("VELOC"));
    }
    run(Command::new("cp").args(["-rT"]).arg(scr()?).arg(&prefix))?;
    let own = tempfile::tempdir()?;
    run(Command::new("tar").arg("-xJf").arg(sources.join("VELOC.tar.xz")).arg("-C").arg(own.path()))?;
    let folder = own.path().join("VELOC");
    let set = |name: &str, value: &dyn Display| format!("-D{name}={value}");
    run(Command::new("cmake").arg("-S").arg(&folder).arg("-B").arg(folder.join("build")).args([
        set("CMAKE_BUILD_TYPE", &"Release"),
        set("CMAKE_INSTALL_PREFIX", &prefix.display()),
        set("CMAKE_PREFIX_PATH", &prefix.display()),
        set("CMAKE_INSTALL_LIBDIR", &"lib"),
        set("BUILD_SHARED_LIBS", &"ON"),
        set("ENABLE_TESTS", &"OFF"),
        set("COMM_QUEUE", &"socket_queue"),
        set("POSIX_IO", &"rw"),
    ]))?;
    run(Command::new("cmake").arg("--build").arg(folder.join("build")).args(["--target", "install", "-j2"]))?;
    run(Command::new("mpicc")
        .arg("-O2")
        .arg(repository().join("apps/veloc/steps.c"))
        .arg("-o")
        .arg(&steps)
        .arg(format!("-I{}", prefix.join("include").display()))
        .arg(format!("-L{}", prefix.join("lib").display()))
        .arg(format!("-Wl,-rpath-link,{}", prefix.join("lib").display()))
        .args(["-lveloc-client", "-lveloc-modules"]))?;
    Ok(prefix)
}

/// Set where engines are built that take minutes.
const ALL: &str = "ALL_ENGINES";

/// Why an engine is not tried here; all else is a failure.
#[derive(Debug, thiserror::Error)]
enum Absent {
    #[error("{} is not there", .0.display())]
    Source(PathBuf),
    #[error("make engines builds {0}")]
    Unbuilt(&'static str),
}

/// DMTCP, built once and if that is wanted (`make engines`): it takes some five minutes.
///
/// # Errors
/// As of [`scr`].
pub fn dmtcp() -> Result<PathBuf> {
    let (prefix, sources) = (prefix("dmtcp")?, sources(&["dmtcp"])?);
    if prefix.join("bin/dmtcp_restart").exists() {
        return Ok(prefix);
    }
    if std::env::var_os(ALL).is_none() {
        bail!(Absent::Unbuilt("DMTCP"));
    }
    let own = tempfile::tempdir()?;
    run(Command::new("tar").arg("-xJf").arg(sources.join("dmtcp.tar.xz")).arg("-C").arg(own.path()))?;
    let folder = own.path().join("dmtcp");
    run(Command::new("./configure").arg(format!("--prefix={}", prefix.display())).current_dir(&folder))?;
    run(Command::new("make").arg("-j2").current_dir(&folder))?;
    run(Command::new("make").arg("install").current_dir(&folder))?;
    Ok(prefix)
}

fn prefix(name: &str) -> Result<PathBuf> {
    Ok(built()?.join(name))
}

/// The folder of the sources, if these are there.
fn sources(parts: &[&str]) -> Result<PathBuf> {
    let sources = repository().join("../shared/sources");
    let archive = |part: &&str| sources.join(format!("{part}.tar.xz"));
    match parts.iter().map(archive).find(|archive| !archive.exists()) {
        Some(archive) => bail!(Absent::Source(archive)),
        None => Ok(sources),
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// What all tests of a suite share: [`site`], once.
pub fn shared(name: &str, nodes: u32, build: fn() -> Result<PathBuf>) -> Option<MutexGuard<'static, Site>> {
    static SITE: OnceLock<Option<Mutex<Site>>> = OnceLock::new();
    let start = || site(name, nodes, build).map(Mutex::new);
    SITE.get_or_init(start).as_ref().map(|site| site.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The results of a program in its job's output, the file `out`: the lines that begin with TOTAL, sorted.
///
/// # Errors
/// What the file system says, or that there are none.
pub fn totals(folder: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(folder.join("out"))?;
    let mut lines: Vec<String> = text.lines().filter(|line| line.starts_with("TOTAL")).map(str::to_string).collect();
    lines.sort();
    ensure!(!lines.is_empty(), "{text}");
    Ok(lines)
}

/// A site of so many nodes whose users find an engine in the folder `name` beside the site file; none, and a word why, if it
/// cannot be built here.
fn site(name: &str, nodes: u32, build: fn() -> Result<PathBuf>) -> Option<Site> {
    let prefix = match build() {
        Err(why) if why.is::<Absent>() => {
            println!("skipped: {why:#}");
            return None;
        }
        built => built.expect("its sources can be built"),
    };
    let dir = PathBuf::from(format!("/tmp/joulepoint-{name}-{}", std::process::id()));
    let wanted = Wanted { nodes, ..Wanted::default() };
    let site = Site::start(&dir, &wanted, &mut |text| println!("  {text}")).expect("a site");
    run(Command::new("cp").arg("-r").arg(prefix).arg(dir.join(name))).expect("cp");
    Some(site)
}
