//! Names what a script uses that a sandbox would break, before it is put into one.

use crate::linked::{self, Script};
use crate::shell::{self, base};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Programs that start containers, or have them started.
const CONTAINERS: [&str; 13] = [
    "apptainer",
    "buildah",
    "ch-run",
    "charliecloud",
    "crun",
    "docker",
    "enroot",
    "nerdctl",
    "podman",
    "runc",
    "sarus",
    "shifter",
    "singularity",
];

/// Words by which workflow managers are told to use them.
const BY_WORD: [&str; 8] = [
    "-with-apptainer",
    "-with-charliecloud",
    "-with-docker",
    "-with-podman",
    "-with-singularity",
    "--use-apptainer",
    "--use-singularity",
    "--singularity",
];

/// File attribute by which a program has capabilities.
const CAPABILITIES: &std::ffi::CStr = c"security.capability";

/// Who runs the script, as far as it matters here.
#[derive(Clone, Debug, Default)]
pub struct Me {
    /// Number of the user.
    pub uid: u32,
    /// Number of the user's first group.
    pub gid: u32,
    /// Whether there are groups beside the user's first.
    pub has_groups: bool,
    /// Name and number of the first.
    pub group: Vec<String>,
}

impl Me {
    /// This process's user.
    pub fn now() -> Me {
        let first = nix::unistd::getgid();
        let name = nix::unistd::Group::from_gid(first).ok().flatten().map(|group| group.name);
        let others = nix::unistd::getgroups().unwrap_or_default();
        Me {
            uid: nix::unistd::getuid().as_raw(),
            gid: first.as_raw(),
            has_groups: others.iter().any(|gid| *gid != first),
            group: name.into_iter().chain([first.to_string()]).collect(),
        }
    }
}

/// Programs that send mail, and Postfix's, by which they may do it.
const MAILERS: [&str; 5] = ["mail", "mailx", "mutt", "s-nail", "sendmail"];
const POSTDROP: &str = "/usr/sbin/postdrop";

/// Most programs of a script whose files are looked at: each is looked for in the whole PATH.
const MOST_PROGRAMS: usize = 1000;

/// What stands against a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsuited {
    /// It starts containers: while one runs nothing can be dumped, and some do not even start.
    pub containers: Option<String>,
    /// A command of it fails there.
    pub fails: Option<String>,
    /// It puts its own job back into the queue.
    pub requeues: bool,
}

/// What stands against going on where a script was whose steps alone are in sandboxes.
pub fn look_beside_steps(argv: &[String], script: &Script) -> Unsuited {
    let commands = commands(argv, script);
    let fails = commands.iter().find_map(|command| requeues(command));
    Unsuited { requeues: fails.is_some(), fails, ..Unsuited::default() }
}

/// All commands of a script, as far as they can be read.
fn commands(argv: &[String], script: &Script) -> Vec<Vec<String>> {
    let mut commands = vec![argv.to_vec()];
    commands.extend(script.shell.iter().flat_map(|text| shell::commands(text)));
    commands
}

/// Looks at a command (`argv`, read in `folder`) and at the libraries of its programs.
pub fn look(argv: &[String], script: &Script, libraries: &BTreeSet<String>, folder: &Path, me: &Me) -> Unsuited {
    let commands = commands(argv, script);
    let container = commands.iter().find_map(|command| CONTAINERS.iter().find(|name| base(&command[0]) == **name));
    let by_word = || BY_WORD.iter().find(|word| script.words.iter().any(|w| w == *word));
    let containers = container.or_else(by_word).map(|name| {
        format!(
            "'{name}' starts containers, which bring namespaces of their own that no sandbox holds; the program in them can \
             write checkpoints itself"
        )
    });
    let fails = commands.iter().find_map(|command| fails(command, me));
    let programs: BTreeSet<&str> = commands.iter().filter(|c| !only_asks(c, me)).map(|c| c[0].as_str()).collect();
    let by_file = || programs.iter().take(MOST_PROGRAMS).find_map(|program| by_its_file(program, folder, me));
    let requeues = commands.iter().any(|command| requeues(command).is_some());
    Unsuited { containers, fails: fails.or_else(by_file).or_else(|| mounts(libraries)), requeues }
}

/// Whether a program that gets rights by its file does not need them, as it is called here.
fn only_asks(command: &[String], me: &Me) -> bool {
    match base(&command[0]) {
        "mount" => command[1..].iter().all(|argument| argument == "-l"),
        "ping" => may_ping(me.gid, &fs::read_to_string(PING_GROUPS).unwrap_or_default()),
        // What it is for keeps others out of them, or tells who is logged in.
        "ssh-agent" | "screen" | "wall" | "write" | "chage" | "expiry" => true,
        _ => false,
    }
}

/// Why a command fails in a sandbox that works outside.
fn fails(command: &[String], me: &Me) -> Option<String> {
    let (name, arguments) = command.split_first()?;
    let has = |wanted: &[&str]| arguments.iter().any(|a| wanted.contains(&a.as_str()));
    let short = |letters: &[char]| {
        let is_short = |a: &&String| a.starts_with('-') && !a.starts_with("--");
        arguments.iter().filter(is_short).any(|a| a.contains(letters))
    };
    let changes_group = match base(name) {
        "chgrp" => !arguments.iter().any(|a| me.group.contains(a)),
        "chown" => arguments.iter().any(|a| a.contains(':') && !a.starts_with(['-', '/'])),
        "install" => has(&["-g", "--group"]),
        "rsync" => (short(&['a', 'g']) || has(&["--archive", "--group"])) && !has(&["--no-group", "--no-g"]),
        _ => false,
    };
    if changes_group && me.has_groups {
        let instead = if base(name) == "rsync" { "; rsync --no-group works" } else { "" };
        return Some(format!(
            "'{}' gives files to groups, and a sandbox knows its user's first only{instead}",
            base(name)
        ));
    }
    if let Some(why) = requeues(command) {
        return Some(why);
    }
    if by_ssh(base(name), arguments) && includes_settings_of_root() {
        return Some(format!(
            "'{}' refuses the files of {SSH_SETTINGS}, which belong to nobody in a sandbox",
            base(name)
        ));
    }
    if base(name) == "fakeroot" {
        return Some("'fakeroot' seems to give files to users that a sandbox does not know".to_string());
    }
    if base(name) == "setfacl" {
        return Some("'setfacl' names users and groups that a sandbox does not know".to_string());
    }
    None
}

/// Why a command of a script must not be gone on before: it puts the job back into the queue itself.
fn requeues(command: &[String]) -> Option<String> {
    let (name, arguments) = command.split_first()?;
    let requeues = match base(name) {
        "scontrol" => arguments.iter().any(|a| ["requeue", "requeuehold"].contains(&a.as_str())),
        "trap" => arguments.iter().any(|handler| handler.contains("scontrol requeue")),
        _ => false,
    };
    requeues.then(|| {
        "the script requeues its job to begin anew, and one that goes on from before that would do so for ever"
            .to_string()
    })
}

/// Settings that `ssh` includes, and takes from root or its user only.
const SSH_SETTINGS: &str = "/etc/ssh/ssh_config.d";

/// Whether a command reaches others by `ssh`, as far as its words say it.
fn by_ssh(name: &str, arguments: &[String]) -> bool {
    match name {
        "ssh" | "scp" | "sftp" | "ssh-copy-id" | "sshfs" => true,
        "rsync" => arguments.iter().any(|a| !a.starts_with('-') && is_of_a_host(a)),
        "git" => {
            let asks = ["clone", "fetch", "ls-remote", "pull", "push", "remote", "submodule"];
            let mut asked = arguments.iter().skip_while(|a| !asks.contains(&a.as_str()));
            asked.any(|a| a.starts_with("ssh://") || (a.contains('@') && is_of_a_host(a)))
        }
        _ => false,
    }
}

/// Whether a word names a file of another host, as `rsync` reads it: by a colon before the first slash, and not by two.
fn is_of_a_host(word: &str) -> bool {
    let head = word.split('/').next().unwrap_or_default();
    head.split_once(':').is_some_and(|(_, rest)| !rest.starts_with(':'))
}

fn includes_settings_of_root() -> bool {
    let files = fs::read_dir(SSH_SETTINGS).into_iter().flatten().flatten();
    files.map(|file| file.path()).any(|file| {
        file.extension().is_some_and(|e| e == "conf")
            && file.metadata().is_ok_and(|m| m.uid() != nix::unistd::getuid().as_raw())
    })
}

/// The groups whose members may send echo requests without any right.
const PING_GROUPS: &str = "/proc/sys/net/ipv4/ping_group_range";

/// Whether a group is one of those; `range` has the first and the last.
fn may_ping(gid: u32, range: &str) -> bool {
    let mut ends = range.split_whitespace().map_while(|number| number.parse::<u32>().ok());
    matches!((ends.next(), ends.next()), (Some(first), Some(last)) if (first..=last).contains(&gid))
}

/// Why a program fails in a sandbox because of what its file is.
fn by_its_file(name: &str, folder: &Path, me: &Me) -> Option<String> {
    if MAILERS.contains(&base(name))
        && let Some(by) = by_its_file(POSTDROP, folder, me)
    {
        return Some(format!(
            "'{}' hands mail to postdrop; {by}; sbatch --mail-type tells of a job's end, too",
            base(name)
        ));
    }
    let program = linked::program(name, folder)?;
    let metadata = fs::metadata(&program).ok()?;
    let mode = metadata.permissions().mode();
    let is_set_user = mode & 0o4000 != 0 && metadata.uid() != me.uid;
    // Without the right to execute it means something else.
    let is_set_group = mode & 0o2010 == 0o2010 && metadata.gid() != me.gid;
    (is_set_user || is_set_group || has_capabilities(&program))
        .then(|| format!("'{}' gets rights by its file, and in a sandbox no program does", base(name)))
}

/// Whether the kernel gives capabilities to who executes a file.
fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(program.as_os_str().as_encoded_bytes()) else { return false };
    // SAFETY: both strings end, and with a size of 0 nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), CAPABILITIES.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// A file system in user space is mounted by a helper that gets its rights by its file.
fn mounts(libraries: &BTreeSet<String>) -> Option<String> {
    let library = libraries.iter().find(|library| library.starts_with("libfuse"))?;
    Some(format!("a program that is linked to {library} mounts a file system, which a sandbox does not allow"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(script: &str, me: &Me) -> Unsuited {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("job.sh"), format!("#!/bin/bash\n{script}\n")).unwrap();
        let helper = dir.path().join("helper");
        fs::write(&helper, "").unwrap();
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o4755)).unwrap();
        let argv = ["./job.sh".to_string()];
        look(&argv, &linked::read(&argv, dir.path()), &BTreeSet::new(), dir.path(), me)
    }

    fn me(has_groups: bool) -> Me {
        Me { uid: u32::MAX, gid: u32::MAX, has_groups, group: vec!["lab".into(), "100".into()] }
    }

    #[test]
    fn containers_are_known_by_the_commands_that_start_them() {
        for script in ["podman run x", "time /opt/bin/apptainer exec i.sif prog", "nextflow run a -with-singularity"] {
            assert!(looked(script, &me(false)).containers.is_some(), "{script}");
        }
        for script in ["echo podman", "cat podman.txt", "# docker run", "./docker.py"] {
            assert_eq!(looked(script, &me(true)), Unsuited::default(), "{script}");
        }
    }

    #[test]
    fn a_script_that_requeues_itself_begins_anew() {
        for script in [
            "[ -e done ] || scontrol requeue $SLURM_JOB_ID",
            "trap 'touch asked; scontrol requeue $SLURM_JOB_ID' USR1",
            "again() {\n  scontrol requeue \"$SLURM_JOB_ID\"\n}",
        ] {
            assert!(looked(script, &me(false)).fails.is_some_and(|why| why.contains("for ever")), "{script}");
        }
        for script in ["scontrol show job 7", "echo scontrol requeue"] {
            assert_eq!(looked(script, &me(false)), Unsuited::default(), "{script}");
        }
    }

    #[test]
    fn a_command_that_changes_groups_is_told_to_whoever_has_several() {
        for script in ["chgrp -R geo out", "chown me:geo out", "rsync -av a b", "install -g geo a b"] {
            assert!(looked(script, &me(true)).fails.is_some(), "{script}");
            assert!(looked(script, &me(false)).fails.is_none(), "{script}");
        }
        for script in
            ["chgrp lab out", "chown me out", "rsync -a --no-group a b", "rsync -rt a b", "install -m 644 a b"]
        {
            assert_eq!(looked(script, &me(true)), Unsuited::default(), "{script}");
        }
    }

    #[test]
    fn a_program_that_gets_rights_by_its_file_is_told() {
        let said = looked("timeout 5 ./helper -n", &me(false)).fails.unwrap();
        assert!(said.contains("'helper' gets rights by its file"), "{said}");
        assert_eq!(
            looked("./helper", &Me { uid: nix::unistd::getuid().as_raw(), ..me(false) }).fails,
            None,
            "one's own"
        );
        assert!(looked("echo a helper", &me(false)).fails.is_none());
        let dir = tempfile::tempdir().unwrap();
        let of_group = dir.path().join("of-group");
        fs::write(&of_group, "").unwrap();
        let by_mode = |mode, me: &Me| {
            fs::set_permissions(&of_group, fs::Permissions::from_mode(mode)).unwrap();
            by_its_file(of_group.to_str().unwrap(), dir.path(), me).is_some()
        };
        let own = Me { gid: nix::unistd::getgid().as_raw(), ..me(false) };
        assert!(by_mode(0o2755, &me(false)) && !by_mode(0o2644, &me(false)) && !by_mode(0o2755, &own));
        assert!(looked("setfacl -m u:bob:r a", &me(false)).fails.is_some());
    }

    #[test]
    fn what_asks_others_by_ssh_is_known_by_its_words() {
        let by = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            by_ssh(&words[0], &words[1..])
        };
        for line in
            ["ssh head hostname", "scp a b:c", "rsync -rt a head:/b", "git clone git@host:a/b", "git push ssh://a/b"]
        {
            assert!(by(line), "{line}");
        }
        for line in [
            "rsync -rt a b",
            "rsync a host::module",
            "git commit -am a@b:c",
            "rsync -r data/run-12:30 x",
            "git clone https://a/b",
            "echo ssh",
        ] {
            assert!(!by(line), "{line}");
        }
    }

    #[test]
    fn who_may_ping_without_a_right_is_read() {
        assert!(may_ping(100, "0\t2147483647\n") && may_ping(100, "100 100"));
        assert!(!may_ping(0, "1\t0\n") && !may_ping(100, "") && !may_ping(5, "6 7"));
    }

    #[test]
    fn a_script_with_steps_that_requeues_itself_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            fs::write(dir.path().join("job.sh"), format!("#!/bin/bash\n{text}\n")).unwrap();
            let argv = ["./job.sh".to_string()];
            look_beside_steps(&argv, &linked::read(&argv, dir.path()))
        };
        assert!(of("srun a\n[ -e done ] || scontrol requeue $SLURM_JOB_ID").fails.is_some());
        assert_eq!(of("srun a\nsudo b\nmail -s done me"), Unsuited::default());
    }

    #[test]
    fn what_mounts_in_user_space_is_told() {
        let libraries = BTreeSet::from(["libc.so.6".to_string(), "libfuse3.so.3".to_string()]);
        assert!(mounts(&libraries).is_some_and(|why| why.contains("libfuse3.so.3")));
        assert_eq!(mounts(&BTreeSet::from(["libc.so.6".to_string()])), None);
    }
}
