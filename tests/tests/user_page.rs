//! The scripts of `docs/recipes.md`, taken out of the page: each is sound, runs protected, and ends.

use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use suite::page::{Block, RECIPES, blocks, files};
use suite::{Site, Wanted, repository};

const USER: &str = "jpalice";
const MINUTES: Duration = Duration::from_secs(900);

fn page() -> Result<String> {
    Ok(fs::read_to_string(repository().join(RECIPES))?)
}

/// A file of the page.
fn file(name: &str) -> Result<String> {
    let found = files(&page()?).into_iter().find(|(known, _)| known == name);
    Ok(found.with_context(|| format!("{RECIPES} has no {name}"))?.1)
}

/// Whether a shell command succeeds: what it needs is installed.
fn has(needs: &str) -> bool {
    Command::new("sh").args(["-c", needs]).output().is_ok_and(|output| output.status.success())
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
    let page = page()?;
    let scripts: Vec<_> = blocks(&page).into_iter().filter(|b| b.words.len() == 2).collect();
    assert!(scripts.len() >= 20, "{}", scripts.len());
    let dir = tempfile::tempdir()?;
    for script in scripts {
        let (language, name) = (script.words[0].as_str(), script.words[1].as_str());
        fs::write(dir.path().join(name), &script.text)?;
        let check = match language {
            "bash" => format!("bash -n {name}"),
            "python" => format!("python3 -m py_compile {name}"),
            "r" if has("command -v Rscript") => format!("Rscript -e 'invisible(parse(\"{name}\"))'"),
            "snakemake" if has("command -v snakemake") => format!("snakemake --quiet --dry-run --snakefile {name}"),
            "r" | "snakemake" => {
                println!("skipped: {name}: {language} is not installed");
                continue;
            }
            other => anyhow::bail!("{other:?} is no language of ours"),
        };
        let output = Command::new("sh").args(["-c", &check]).current_dir(dir.path()).output()?;
        assert!(output.status.success(), "{check}: {}", String::from_utf8_lossy(&output.stderr));
        let is_run = EXAMPLES.iter().any(|e| e.script == name || e.files.contains(&name));
        assert!(is_run != NOT_RUN.contains(&name), "{name} is never run, or is said not to be run and is");
        let section = page.split("\n## ").find(|section| section.starts_with(&script.step)).context("a section")?;
        assert_eq!(section.contains("*Not run by our tests*"), !is_run, "{}: what the page says", script.step);
    }
    Ok(())
}

#[test]
fn every_program_of_the_users_page_has_its_recipe() -> Result<()> {
    let page = fs::read_to_string(repository().join("docs/user.md"))?;
    let table =
        page.split("## What do I type").nth(1).and_then(|rest| rest.split("\n## ").next()).context("a table")?;
    let rows: Vec<&str> = table.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| program")).collect();
    assert!(rows.len() >= 12, "{rows:#?}");
    for row in rows {
        assert!(row.contains("](recipes.md#"), "{row}");
    }
    assert!(page.lines().count() <= 200, "docs/user.md is read by people who have a job to run");
    Ok(())
}

/// What a stranger types into the shell of `make try`.
const TYPED: &str = "set -e
job=$(sbatch --parsable python.sh)
joulepoint status $job --wait-protected
kill-node $(squeue --noheader --jobs=$job --format=%N)
until scontrol show job $job | grep -q JobState=COMPLETED; do sleep 0.5; done
cat slurm-$job.out
joulepoint report -j $job
";

#[test]
fn a_shell_to_try_it_takes_commands_survives_a_dead_node_and_leaves_nothing() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (typed, seen) = (dir.path().join("typed"), dir.path().join("seen"));
    fs::write(&typed, TYPED)?;
    let output = fs::File::create(&seen)?;
    let mut shell = Command::new(suite::built()?.join("demo"))
        .arg("try")
        .stdin(fs::File::open(&typed)?)
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    let end = Instant::now() + MINUTES / 3;
    let status = loop {
        match shell.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > end => {
                shell.kill()?;
                break shell.wait()?;
            }
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    let seen = fs::read_to_string(&seen)?;
    assert!(status.success(), "{status}\n{seen}");
    for words in ["protected by engine app", "goes on from checkpoint", "total 11175.0"] {
        assert!(seen.contains(words), "{words:?} is not in:\n{seen}");
    }
    assert!(!Path::new(&format!("/tmp/joulepoint-try-{}", shell.id())).exists());
    Ok(())
}

/// One example: what has to be installed, what lies beside its script before, and the files of the page that go there.
struct Example {
    script: &'static str,
    needs: &'static str,
    before: &'static str,
    files: &'static [&'static str],
    submit: &'static str,
    jobs: usize,
}

/// Scripts whose programs can be installed here neither from Debian nor from PyPI.
const NOT_RUN: [&str; 1] = ["nextflow.sh"];

/// An example that is one job, whose script needs files of the page beside it.
const fn one(
    script: &'static str,
    submit: &'static str,
    needs: &'static str,
    files: &'static [&'static str],
) -> Example {
    Example { script, needs, before: "true", files, submit, jobs: 1 }
}

const EXAMPLES: [Example; 15] = [
    Example {
        before: "sh $1/apps/gromacs/prepare.sh . 20000",
        ..one("gromacs.sh", "sbatch gromacs.sh", "command -v gmx", &[])
    },
    Example {
        before: "sh $1/apps/lammps/prepare.sh . 4000",
        ..one("lammps.sh", ". ./lammps.env; sbatch lammps.sh", "command -v lmp", &["lammps.env"])
    },
    one("pytorch.sh", "sbatch pytorch.sh", "/usr/bin/python3 -c 'import torch'", &["train.py"]),
    one("lightning.sh", "sbatch lightning.sh", "/usr/bin/python3 -c 'import lightning'", &["lit.py"]),
    one("huggingface.sh", "sbatch huggingface.sh", "/usr/bin/python3 -c 'import torch, transformers'", &["hf.py"]),
    one("r.sh", "sbatch r.sh", "command -v Rscript", &["fit.R"]),
    one("python.sh", "sbatch python.sh", "true", &["count.py"]),
    Example {
        before: "sh $1/apps/openfoam/prepare.sh . 2",
        ..one("openfoam.sh", "sbatch openfoam.sh", "command -v icoFoam", &[])
    },
    Example { before: "cp $1/apps/espresso/si.in .", ..one(ESPRESSO, "sbatch qe.sh", "command -v pw.x", &[]) },
    one(SNAKEMAKE, "sbatch snakemake.sh", "command -v snakemake", &["squares.smk"]),
    Example { before: "make -s -C $1/apps/heat BUILD=$PWD", ..one("mpi.sh", "sbatch mpi.sh", "true", &[]) },
    Example { jobs: 3, ..one("sweep.sh", "sh submit-sweep.sh", "true", &["count.py", "submit-sweep.sh"]) },
    one("ensemble.sh", "sbatch ensemble.sh", "true", &["count.py"]),
    one(PLAIN, "sbatch --ft-energy plain.sh", "true", &["plain.py"]),
    one(R_AS_IT_IS, "sbatch --ft-energy fit.sh", "command -v Rscript", &["fit.R"]),
];

/// The examples that need CRIU.
const BY_CRIU: [&str; 4] = [PLAIN, ESPRESSO, SNAKEMAKE, R_AS_IT_IS];
const PLAIN: &str = "plain.sh";
const ESPRESSO: &str = "qe.sh";
const SNAKEMAKE: &str = "snakemake.sh";
const R_AS_IT_IS: &str = "fit.sh";

/// Those that are started again from their first checkpoint, as after a failure: they show that they resume.
const STARTED_AGAIN: [&str; 6] = ["pytorch.sh", "lightning.sh", "huggingface.sh", "r.sh", "python.sh", "openfoam.sh"];

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
    let page = fs::read_to_string(repository().join("docs/options.md"))?;
    let page = page.split("## What --ft-energy-explain says").nth(1).context("a section")?;
    let args = ["--ft-energy", "--ft-energy-explain=full", "mpi.sh"];
    let said = site.user_command(USER, "sbatch", folder).args(args).output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    for word in EXPLAINED {
        assert!(page.contains(&format!("`{word}`")) && said.contains(word), "{word}:\n{said}");
    }
    Ok(())
}

/// Starts a job's program again once it has a checkpoint: it goes on from there.
fn starts_again(site: &Site, script: &str, job: u32, folder: &Path) -> Result<()> {
    let has_checkpoint = |run: &serde_json::Value| run["total"]["checkpoints"].as_u64().filter(|n| *n > 0);
    site.wait_report(job, "a checkpoint", MINUTES, has_checkpoint)?;
    let ordered = site.joulepoint(USER, &["restart", &job.to_string()])?;
    assert!(ordered.status.success(), "{script}: {}", String::from_utf8_lossy(&ordered.stderr));
    let output = folder.join(format!("slurm-{job}.out"));
    site.wait(&format!("{script} to go on from its checkpoint"), MINUTES, |_| {
        Ok(fs::read_to_string(&output)?.contains("goes on from checkpoint").then_some(()))
    })
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
    let no_criu = suite::fetch(suite::Fetched::Criu, &criu).err();
    let mut jobs = Vec::new();
    for example in &EXAMPLES {
        let absent = || (!has(example.needs)).then(|| format!("not installed: {}", example.needs));
        let no_criu = no_criu.clone().filter(|_| BY_CRIU.contains(&example.script));
        if let Some(reason) = no_criu.or_else(absent) {
            println!("skipped: {}: {reason}", example.script);
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
        // At once: it ends within seconds.
        if STARTED_AGAIN.contains(&example.script) {
            starts_again(&site, example.script, ids[0], &folder)?;
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
