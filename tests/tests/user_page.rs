//! The scripts of `docs/user.md`, taken out of the page: each is sound, runs protected, and ends.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use suite::page::{Block, blocks};
use suite::{Site, Wanted, repository};

const USER: &str = "jpalice";
const MINUTES: Duration = Duration::from_secs(900);

/// A file of the page.
fn file(name: &str) -> Result<String> {
    let page = fs::read_to_string(repository().join("docs/user.md"))?;
    let found = blocks(&page).into_iter().find(|b| b.words.get(1).is_some_and(|w| w == name));
    Ok(found.with_context(|| format!("docs/user.md has no {name}"))?.text)
}

/// Runs a shell command in a folder as root, before the jobs.
fn prepare(folder: &Path, script: &str) -> Result<()> {
    let done = Command::new("sh").args(["-c", script, "prepare"]).arg(repository()).current_dir(folder).output()?;
    anyhow::ensure!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder)?);
    for entry in fs::read_dir(folder)? {
        chown(entry?.path(), Some(owner), Some(owner))?;
    }
    Ok(())
}

#[test]
fn a_block_knows_its_step_and_where_it_is_typed() {
    let page = "# Page\n## 1. Start\nText.\n```sh controller\n# a comment\ntrue\n```\n```text\nwell\n```\n";
    let block = |words: &[&str], text: &str| Block {
        step: "1. Start".into(),
        words: words.iter().map(|w| w.to_string()).collect(),
        text: text.into(),
    };
    assert_eq!(blocks(page), [block(&["sh", "controller"], "# a comment\ntrue\n"), block(&["text"], "well\n")]);
}

#[test]
fn every_script_has_the_syntax_of_its_language() -> Result<()> {
    let page = fs::read_to_string(repository().join("docs/user.md"))?;
    let scripts: Vec<_> = blocks(&page).into_iter().filter(|b| b.words.len() == 2).collect();
    assert!(scripts.len() >= 8, "{}", scripts.len());
    let dir = tempfile::tempdir()?;
    for script in scripts {
        let path = dir.path().join(&script.words[1]);
        fs::write(&path, &script.text)?;
        let check: &[&str] = match script.words[0].as_str() {
            "bash" => &["bash", "-n"],
            "python" => &["python3", "-m", "py_compile"],
            other => anyhow::bail!("{other:?} is no language of ours"),
        };
        let output = Command::new(check[0]).args(&check[1..]).arg(&path).output()?;
        assert!(output.status.success(), "{:?}: {}", script.words, String::from_utf8_lossy(&output.stderr));
        let name = script.words[1].as_str();
        assert!(EXAMPLES.iter().any(|e| e.script == name || e.files.contains(&name)), "{name} is never run");
    }
    Ok(())
}

/// One example: what lies beside its script before, and the files of the page that go there.
struct Example {
    script: &'static str,
    before: &'static str,
    files: &'static [&'static str],
    submit: &'static str,
    jobs: usize,
}

const EXAMPLES: [Example; 7] = [
    Example {
        script: "gromacs.sh",
        before: "sh $1/apps/gromacs/prepare.sh . 20000",
        files: &[],
        submit: "sbatch gromacs.sh",
        jobs: 1,
    },
    Example {
        script: "lammps.sh",
        before: "sh $1/apps/lammps/prepare.sh . 4000",
        files: &["lammps.env"],
        submit: ". ./lammps.env; sbatch lammps.sh",
        jobs: 1,
    },
    Example { script: "python.sh", before: "true", files: &["count.py"], submit: "sbatch python.sh", jobs: 1 },
    Example {
        script: "mpi.sh",
        before: "make -s -C $1/apps/heat BUILD=$PWD",
        files: &[],
        submit: "sbatch mpi.sh",
        jobs: 1,
    },
    Example {
        script: "sweep.sh",
        before: "true",
        files: &["count.py", "submit-sweep.sh"],
        submit: "sh submit-sweep.sh",
        jobs: 3,
    },
    Example { script: "ensemble.sh", before: "true", files: &["count.py"], submit: "sbatch ensemble.sh", jobs: 1 },
    Example { script: PLAIN, before: "true", files: &["plain.py"], submit: "sbatch plain.sh", jobs: 1 },
];

/// The example that needs CRIU.
const PLAIN: &str = "plain.sh";

/// What the page says of `--ft-energy-explain`, and the command must say.
const EXPLAINED: [&str; 9] = [
    "checkpoint interval",
    "expected overhead",
    "MTBF",
    "checkpoint",
    "restart",
    "protocols",
    "why",
    "not taken",
    "nothing is calibrated",
];

fn explains(site: &Site, folder: &Path) -> Result<()> {
    let page = fs::read_to_string(repository().join("docs/user.md"))?;
    let page = page.split("## What --ft-energy-explain says").nth(1).context("a section")?;
    let args = ["--ft-energy", "--ft-energy-explain=full", "mpi.sh"];
    let said = site.user_command(USER, "sbatch", folder).args(args).output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    for word in EXPLAINED {
        assert!(page.contains(&format!("`{word}`")) && said.contains(word), "{word}:\n{said}");
    }
    Ok(())
}

#[test]
fn every_script_runs_protected_and_ends_well() -> Result<()> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-page-{}", std::process::id()));
    let criu = dir.join("criu");
    // Nodes that are taken to fail often, so that a short run has checkpoints.
    let toml = format!(
        "[criu]\ncommand = {:?}\n\n[estimates]\nnode_mtbf_s = 200.0\ncheckpoint_s = 0.2\nrestart_s = 2.0\n",
        criu.join("criu")
    );
    let site = Site::start(&dir, &Wanted { toml, ..Wanted::default() }, &mut |_| ())?;
    let no_criu = suite::fetch_criu(&criu).err();
    let mut jobs = Vec::new();
    for example in &EXAMPLES {
        if let Some(reason) = no_criu.as_ref().filter(|_| example.script == PLAIN) {
            println!("skipped: {PLAIN}: {reason}");
            continue;
        }
        let folder = site.folder(USER, example.script)?;
        for name in example.files.iter().chain([&example.script]) {
            fs::write(folder.join(name), file(name)?)?;
        }
        prepare(&folder, example.before)?;
        let said = site.user_command(USER, "bash", &folder).args(["-c", example.submit]).output()?;
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let ids: Vec<u32> = text.lines().filter_map(|l| l.split_whitespace().last()?.parse().ok()).collect();
        assert_eq!(ids.len(), example.jobs, "{}: {text}{}", example.script, String::from_utf8_lossy(&said.stderr));
        if example.script == "mpi.sh" {
            explains(&site, &folder)?;
        }
        jobs.extend(ids.into_iter().map(|id| (example.script, id)));
    }
    for (script, job) in jobs {
        let ended = site.wait_state(job, &["COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT"], MINUTES)?;
        let run = site.wait_report(job, "the end", MINUTES, |run| (run["state"] != "running").then(|| run.clone()))?;
        assert_eq!(ended, "COMPLETED", "{script}: {run:#}");
        // GROMACS's own interval is in minutes: a run this short may end before its first checkpoint.
        let checkpoints = run["total"]["checkpoints"].as_u64().unwrap_or(0);
        assert!(checkpoints > 0 || script == "gromacs.sh", "{script} made no checkpoint: {run:#}");
        println!("  {script}: job {job}, {checkpoints} checkpoints");
    }
    drop(site);
    fs::remove_dir_all(&dir)?;
    Ok(())
}
