//! Engine `hook`: commands of the site or the user make and bring back checkpoints.

use crate::app::interval_variables;
use config::Site;
use driver::ports::{Engine, Happening, NotSaved, Saved, Unprepared};
use host::mail::{Post, Tries};
use host::tool;
use protocol::Manifest;
use run::{Checkpoints, survey};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The engine.
pub struct Hook {
    post: Post,
    checkpoints: Checkpoints,
    commands: Commands,
    tries: Tries,
}

/// The commands, run by `/bin/sh -c` as the user in the job's folder.
#[derive(Clone, Debug)]
pub struct Commands {
    /// Makes a checkpoint in `$FT_ENERGY_CHECKPOINT_DIR`.
    pub checkpoint: String,
    /// Brings one back from `$FT_ENERGY_RESTART_DIR`, if anything has to be done.
    pub restart: Option<String>,
    /// Longest time of either.
    pub limit: Duration,
}

impl Commands {
    /// The commands that are configured, if any: the user's variables win over the site's.
    pub fn configured(site: &Site) -> Option<Commands> {
        let variable = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let checkpoint = variable(options::CHECKPOINT_COMMAND).or_else(|| site.hook.checkpoint.clone())?;
        let restart = variable("FT_ENERGY_RESTART_COMMAND").or_else(|| site.hook.restart.clone());
        let limit_s = if site.hook.limit_s > 0.0 { site.hook.limit_s } else { 600.0 };
        Some(Commands { checkpoint, restart, limit: Duration::from_secs_f64(limit_s) })
    }

    /// The same, told of which group of so many they are.
    pub fn of_group(self, group: usize, groups: u32) -> Commands {
        let told = |command: &str| format!("export FT_ENERGY_GROUP={group} FT_ENERGY_GROUPS={groups}; {command}");
        Commands { checkpoint: told(&self.checkpoint), restart: self.restart.as_deref().map(told), limit: self.limit }
    }
}

impl Hook {
    /// An engine over these commands.
    pub fn new(post: Post, checkpoints: Checkpoints, commands: Commands) -> Hook {
        Hook { post, checkpoints, commands, tries: Tries::default() }
    }
}

impl Engine for Hook {
    fn name(&self) -> &str {
        "hook"
    }

    fn on_demand(&self) -> bool {
        true
    }

    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, Unprepared> {
        let mut environment = interval_variables(interval_s);
        environment.push(("FT_ENERGY_RESTART".to_string(), u8::from(from.is_some()).to_string()));
        if let Some(manifest) = from {
            let folder = self.checkpoints.path(manifest.number);
            if let Some(command) = &self.commands.restart {
                // Whether the command or a storage is to blame nobody can tell; the checkpoint is not.
                run(command, "FT_ENERGY_RESTART_DIR", &folder, self.commands.limit, || true)
                    .map_err(Unprepared::Storage)?;
            }
            environment.push(("FT_ENERGY_RESTART_DIR".to_string(), folder.to_string_lossy().into_owned()));
        }
        Ok(environment)
    }

    fn begin(&mut self, into: PathBuf) {
        let one = self.tries.begin();
        let (post, commands) = (self.post.clone(), self.commands.clone());
        threads::start(move || {
            let done =
                run(&commands.checkpoint, "FT_ENERGY_CHECKPOINT_DIR", &into, commands.limit, || one.is_current());
            let files = done.and_then(|()| survey(&into).map_err(|e| e.to_string())).and_then(|files| {
                if files.is_empty() { Err("the checkpoint command left no file".to_string()) } else { Ok(files) }
            });
            // What the program does meanwhile only the command knows.
            let saved = files.map(|files| Saved { files, still_s: None, kept: None });
            post.tell_of(&one, Happening::Checkpointed(saved.map_err(NotSaved::from)));
        });
    }

    fn give_up(&mut self) {
        self.tries.void();
    }
}

/// Runs a command of the user, at most for `limit` and while it is wanted.
fn run(command: &str, variable: &str, folder: &Path, limit: Duration, wanted: impl Fn() -> bool) -> Result<(), String> {
    tool::run(Command::new("/bin/sh").args(["-c", command]).env(variable, folder), command, limit, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_command_that_fails_makes_no_checkpoint_unusable() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(dir.path().to_path_buf(), 2).unwrap();
        let restart = Some("cat $FT_ENERGY_RESTART_DIR/state".to_string());
        let commands = Commands { checkpoint: "true".to_string(), restart, limit: Duration::from_secs(3600) };
        let mut hook = Hook::new(host::mail::queue().0, checkpoints, commands);
        let line = Manifest { number: 1, ..Manifest::default() };
        let failed = hook.prepare(Some(&line), 90.0);
        assert!(matches!(&failed, Err(Unprepared::Storage(why)) if why.contains("exit status: 1")), "{failed:?}");
        std::fs::create_dir(dir.path().join("1")).unwrap();
        std::fs::write(dir.path().join("1/state"), "").unwrap();
        hook.prepare(Some(&line), 90.0).unwrap();
    }

    #[test]
    fn a_command_is_bounded_and_its_failure_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let hour = Duration::from_secs(3600);
        run("echo hello > $D/x", "D", dir.path(), hour, || true).unwrap();
        assert_eq!(survey(dir.path()).unwrap()[0].bytes, 6);
        assert!(run("exit 3", "D", dir.path(), hour, || true).unwrap_err().contains("exit status: 3"));
        assert!(run("sleep 3600", "D", dir.path(), Duration::ZERO, || true).unwrap_err().contains("was ended"));
        assert!(run("sleep 3600", "D", dir.path(), hour, || false).unwrap_err().contains("was ended"));
    }
}
