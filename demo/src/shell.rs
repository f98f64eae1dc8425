//! `make try`: a shell of an ordinary user on a private Slurm with Joulepoint, and examples in the user's home.

use crate::power;
use anyhow::{Context, Result, bail};
use site::{Site, Wanted, page, repository};
use std::fs;
use std::io::{IsTerminal, stdin};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

const USER: &str = "jpalice";

/// Enough for a job on two nodes and another place to go to.
const NODES: u32 = 4;

/// Nodes are taken to fail every minute, so that a job of seconds has checkpoints.
const ESTIMATES: &str = "[estimates]\nnode_mtbf_s = 60.0\ncheckpoint_s = 0.2\nrestart_s = 2.0\n";

/// Starts the cluster, runs the shell, and stops the cluster.
pub fn run() -> Result<ExitCode> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-try-{}", std::process::id()));
    let criu = dir.with_extension("criu");
    let outcome = play(&dir, &criu);
    let _ = fs::remove_dir_all(&criu);
    match &outcome {
        Ok(_) => fs::remove_dir_all(&dir)?,
        Err(_) => eprintln!("everything is kept in {}", dir.display()),
    }
    outcome
}

fn play(dir: &Path, criu: &Path) -> Result<ExitCode> {
    let clock = Instant::now();
    let say = |text: &str| println!("[{:6.1} s] {text}", clock.elapsed().as_secs_f64());
    say("starting a private Slurm with Joulepoint: it is gone when you leave the shell");
    let toml = format!("[criu]\ncommand = {:?}\n\n{ESTIMATES}", criu.join("criu"));
    // Before the nodes look which engines they have.
    let has_criu = site::fetch(site::Fetched::Criu, criu);
    let wanted = Wanted { nodes: NODES, toml, shared: vec![criu.to_path_buf()], ..Wanted::default() };
    let site = Site::start(dir, &wanted, &mut |text| {
        say(&format!("  {text}"));
    })?;
    if let Err(why) = &has_criu {
        say(&format!("without CRIU (programs that write no checkpoints are not protected): {why}"));
    }
    let home = home_of(&site)?;
    power::give(&site, USER)?;
    examples(&site, &home)?;
    println!("{}", welcome(has_criu.is_ok()));
    shell(&site, &home)
}

/// The user's home.
fn home_of(site: &Site) -> Result<PathBuf> {
    let command = site.cluster.command_as(USER, "true");
    let home = command.get_envs().find(|(name, _)| *name == "HOME").and_then(|(_, value)| value);
    Ok(home.context("the user has no home")?.into())
}

/// The scripts of the recipes page in `recipes`, and the inputs of the demo's programs in `apps`.
fn examples(site: &Site, home: &Path) -> Result<()> {
    let recipes = home.join("recipes");
    fs::create_dir(&recipes)?;
    let text = fs::read_to_string(repository().join(page::RECIPES))?;
    for (name, text) in page::files(&text) {
        fs::write(recipes.join(name), text)?;
    }
    let apps = Command::new("cp").arg("-r").args([repository().join("apps"), home.join("apps")]).status()?;
    let owner = format!("{USER}:{USER}");
    let given = site.cluster.command("chown").args(["-R", &owner]).args([&recipes, &home.join("apps")]).status()?;
    if !apps.success() || !given.success() {
        bail!("the examples cannot be copied to {}", home.display());
    }
    Ok(())
}

/// What there is to type.
fn welcome(has_criu: bool) -> String {
    let any = "    sbatch --ft-energy plain.sh     a program that knows nothing of checkpoints\n";
    format!(
        "\nYou are {USER} on a Slurm of {NODES} nodes, in the scripts of docs/recipes.md. Its nodes are taken to \
         fail every minute, so that a\njob of seconds has checkpoints. Type, for example:\n\n    \
         sbatch python.sh                a loop that writes its state; its job script names --ft-energy\n{}    \
         joulepoint status               what runs, and whether it is protected\n    \
         kill-node n1                    cuts the power of a node; squeue shows where a job runs\n    \
         revive-node n1                  gives it back\n    \
         joulepoint report -j 1          what happened, and what it cost\n    \
         exit                            ends the shell and the cluster\n",
        if has_criu { any } else { "" }
    )
}

/// Runs the shell; the exit code of commands that come from standard input is theirs.
fn shell(site: &Site, home: &Path) -> Result<ExitCode> {
    let is_terminal = stdin().is_terminal();
    let mut command = site.user_command(USER, "bash", &home.join("recipes"));
    let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value.map(PathBuf::from));
    let path = path.context("the user has no PATH")?;
    command.env("PATH", format!("{}:{}", site.bin().display(), path.display()));
    command.env("TERM", std::env::var("TERM").unwrap_or_else(|_| "dumb".to_string()));
    if is_terminal {
        let start = home.join(".bashrc");
        fs::write(&start, "PS1='\\u@joulepoint:\\w\\$ '\nalias ls='ls --color=auto'\n")?;
        command.arg("--rcfile").arg(start).arg("-i").status().context("bash")?;
        return Ok(ExitCode::SUCCESS);
    }
    let status = command.arg("-s").status().context("bash")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
