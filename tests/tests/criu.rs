//! Unmodified programs of an ordinary user are killed with all that holds them, and end as if they had not been.
//!
//! Needs root (to become an ordinary user, and to kill whole nodes) and a CRIU that works here: `JOULEPOINT_CRIU`, or
//! the one that `packaging/criu.sh` fetches; without it every test says that it skipped.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};
use suite::{Site, Wanted, built, repository};

/// Longest time of one program, with all of its restarts.
const LIMIT: Duration = Duration::from_secs(240);

/// An ordinary user of the cluster.
const USER: &str = "jpalice";

/// Number of nobody.
const NOBODY: u32 = 65534;

/// What all tests need: programs in a place that an ordinary user can enter.
struct Place(PathBuf);

impl Place {
    /// None if there is no CRIU; the reason is printed.
    fn get() -> Option<&'static Place> {
        static PLACE: OnceLock<Option<Place>> = OnceLock::new();
        PLACE.get_or_init(Place::make).as_ref()
    }

    fn make() -> Option<Place> {
        let folder = std::env::temp_dir().join(format!("joulepoint-criu-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        open(&folder);
        let place = Place(folder);
        if let Err(reason) = suite::fetch_criu(&place.path("criu")) {
            println!("skipped: the engine criu: {reason}");
            return None;
        }
        fs::copy(built().expect("built").join("joulepoint"), place.path("joulepoint")).expect("cargo build first");
        let sources = repository().join("apps/transparent");
        for program in ["threads", "memory"] {
            let source = sources.join(program).with_extension("c");
            let made = Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(place.path(program)).arg(source).status();
            assert!(made.expect("cc").success());
        }
        for script in ["tree.sh", "state.py"] {
            fs::copy(sources.join(script), place.path(script)).expect("a copy");
        }
        let conf = format!(
            "[controller]\nurl = \"http://127.0.0.1:1\"\n\n[energy]\nsources = [\"model\"]\n\n\
             [criu]\ncommand = {:?}\n\n[wrapper]\nstep_retries = 1000\n",
            place.path("criu/criu")
        );
        fs::write(place.path("joulepoint.toml"), conf).expect("a site file");
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A new folder of an ordinary user.
    fn home(&self, name: &str) -> Home<'_> {
        let folder = self.path(&format!("home-{name}"));
        fs::create_dir_all(folder.join("tmp")).expect("a folder");
        for folder in [&folder, &folder.join("tmp")] {
            std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).expect("root");
        }
        Home { place: self, folder }
    }
}

/// A user's folder in which one program runs.
struct Home<'a> {
    place: &'a Place,
    folder: PathBuf,
}

impl Home<'_> {
    /// A command as an ordinary user, whose output is added to the file `out`.
    fn command(&self, program: &Path) -> Command {
        let file = |name: &str| fs::OpenOptions::new().append(true).create(true).open(self.folder.join(name)).unwrap();
        let mut command = Command::new(program);
        command
            .current_dir(&self.folder)
            .env("HOME", &self.folder)
            .env("TMPDIR", self.folder.join("tmp"))
            .env("JOULEPOINT_CONF", self.place.path("joulepoint.toml"))
            .env("JOULEPOINT_LOG", "info")
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"));
        command
    }

    /// Starts a program under protection on a node of its own: with the one child, all of it dies at once.
    fn start(&self, argv: &[&str], resume: bool) -> Child {
        let mut command = self.command(Path::new("unshare"));
        // The shell stays: a process that changes its user is not killed with its parent any more.
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", "\"$@\"; exit $?", "node"]);
        command
            .args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(self.place.path("joulepoint"));
        command.args(["run", "-o", "ft-energy", "-o", "ft-energy-engine=criu", "-o", "ft-energy-interval=1s"]);
        if resume {
            command.arg("--resume");
        }
        command.arg("--").args(argv).process_group(0).spawn().expect("unshare")
    }

    /// Waits for the end; the exit code.
    fn end(&self, child: &mut Child) -> Option<i32> {
        let limit = Instant::now() + LIMIT;
        loop {
            if let Some(status) = child.try_wait().expect("a child") {
                return status.code();
            }
            assert!(Instant::now() < limit, "no end: {}", self.said());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until there is one more complete checkpoint than now, or the program has ended.
    fn wait_for_line(&self, child: &mut Child) {
        let newest = || complete(&self.folder).pop();
        let before = newest();
        let limit = Instant::now() + LIMIT;
        while newest() == before && child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < limit, "no checkpoint: {}", self.said());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The program without any protection.
    fn undisturbed(&self, argv: &[&str]) -> Option<i32> {
        let mut command = self.command(Path::new(argv[0]));
        command.args(&argv[1..]).uid(NOBODY).gid(NOBODY).status().expect("it runs").code()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    fn said(&self) -> String {
        self.read("err")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_string()
}

fn open(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// A seed that can be given again: `SEED=7`.
fn random(name: &str) -> ChaCha8Rng {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    println!("{name}: SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

/// Kills the node of a program `JOULEPOINT_KILLS` times (3 if not said) at random moments, and compares.
fn survives(name: &str, argv: &[&str], files: &[&str]) {
    let Some(place) = Place::get() else { return };
    let argv: Vec<String> = argv.iter().map(|a| a.replace("{}", &place.0.to_string_lossy())).collect();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let kills = std::env::var("JOULEPOINT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    let reference = place.home(&format!("{name}-undisturbed"));
    let code = reference.undisturbed(&argv);
    let home = place.home(name);
    let mut random = random(name);
    let mut resume = false;
    let mut killed = 0;
    for _ in 0..kills {
        let mut child = home.start(&argv, resume);
        home.wait_for_line(&mut child);
        thread::sleep(Duration::from_millis(random.random_range(0..2000)));
        killed += u32::from(child.try_wait().expect("a child").is_none());
        child.kill().expect("a child");
        child.wait().expect("a child");
        resume = true;
    }
    let mut child = home.start(&argv, resume);
    assert_eq!(home.end(&mut child), code, "{}", home.said());
    for file in ["out"].iter().chain(files) {
        assert!(home.read(file) == reference.read(file), "{name}: {file} differs in {}", home.folder.display());
    }
    let dumps = home.said().matches("stood still for a dump").count();
    assert!(killed > 0, "{name} has ended too soon");
    println!("{name}: {killed} kills, {dumps} dumps, the output is that of an undisturbed run");
}

#[test]
fn a_program_with_threads_ends_as_if_undisturbed() {
    survives("threads", &["{}/threads", "400"], &[]);
}

#[test]
fn a_tree_of_processes_with_pipes_and_an_orphan_ends_as_if_undisturbed() {
    survives("tree", &["{}/tree.sh", "100"], &["orphan.log"]);
}

#[test]
fn a_python_program_with_shared_memory_and_temporary_files_ends_as_if_undisturbed() {
    survives("state", &["python3", "{}/state.py", "100"], &["state.log"]);
}

#[test]
fn a_program_with_much_memory_ends_as_if_undisturbed() {
    survives("memory", &["{}/memory", "64", "160"], &[]);
}

/// Processes below one whose command line has a word, as this host numbers them.
fn below(root: u32, word: &str) -> Vec<i32> {
    let output = Command::new("ps").args(["-e", "-o", "pid=,ppid=,args="]).output().expect("ps");
    let mut wanted = vec![root as i32];
    let mut found = Vec::new();
    let lines: Vec<(i32, i32, String)> = text(&output.stdout)
        .lines()
        .filter_map(|line| {
            let mut parts = line.split_whitespace();
            let (pid, parent) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            Some((pid, parent, parts.collect::<Vec<_>>().join(" ")))
        })
        .collect();
    let mut next = 0;
    while next < wanted.len() {
        let parent = wanted[next];
        for (pid, _, args) in lines.iter().filter(|(_, of, _)| *of == parent) {
            wanted.push(*pid);
            if args.contains(word) {
                found.push(*pid);
            }
        }
        next += 1;
    }
    found
}

/// Kills processes of a kind again and again while a program runs, and compares.
fn survives_without(name: &str, word: &str, kills: u32) {
    let Some(place) = Place::get() else { return };
    let program = place.path("threads").to_string_lossy().into_owned();
    let argv = [program.as_str(), "600"];
    let reference = place.home(&format!("{name}-undisturbed"));
    let code = reference.undisturbed(&argv);
    let home = place.home(name);
    let mut random = random(name);
    let mut child = home.start(&argv, false);
    home.wait_for_line(&mut child);
    let mut killed = 0;
    while killed < kills && child.try_wait().expect("a child").is_none() {
        thread::sleep(Duration::from_micros(random.random_range(0..60_000)));
        let victims = below(child.id(), word);
        if let Some(victim) = victims.get(random.random_range(0..victims.len().max(1))) {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(*victim), nix::sys::signal::Signal::SIGKILL).ok();
            killed += 1;
            // Time for another checkpoint, so that a kill finds every phase.
            thread::sleep(Duration::from_millis(random.random_range(0..2500)));
        }
    }
    assert_eq!(home.end(&mut child), code, "{}", home.said());
    assert!(home.read("out") == reference.read("out"), "{name}: the output differs in {}", home.folder.display());
    assert!(killed > 0, "{}", home.said());
    println!("{name}: {killed} kills of '{word}', the output is that of an undisturbed run");
}

#[test]
fn criu_killed_in_any_phase_of_a_dump_or_restore_harms_nothing() {
    survives_without("killed-criu", "--unprivileged", 6);
}

#[test]
fn a_warden_killed_at_any_moment_harms_nothing() {
    survives_without("killed-warden", " warden ", 4);
}

#[test]
fn a_damaged_image_is_found_and_the_one_before_is_used() {
    let Some(place) = Place::get() else { return };
    let program = place.path("threads").to_string_lossy().into_owned();
    let argv = [program.as_str(), "400"];
    let reference = place.home("damaged-undisturbed");
    let code = reference.undisturbed(&argv);
    let home = place.home("damaged");
    let mut child = home.start(&argv, false);
    while complete(&home.folder).len() < 2 {
        home.wait_for_line(&mut child);
    }
    child.kill().expect("a child");
    child.wait().expect("a child");
    let newest = complete(&home.folder).pop().expect("two checkpoints");
    let images = newest.join("images");
    let pages = images.join("pages-1.img");
    let mut bytes = fs::read(&pages).expect("pages");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&pages, bytes).expect("damage");
    let mut child = home.start(&argv, true);
    assert_eq!(home.end(&mut child), code, "{}", home.said());
    assert!(home.read("out") == reference.read("out"), "{}", home.folder.display());
    assert!(newest.join("manifest.damaged").exists() || !newest.exists(), "{}", home.said());
}

/// Complete checkpoints below a folder, oldest first.
fn complete(home: &Path) -> Vec<PathBuf> {
    let pattern = home.join(".joulepoint/*/*/checkpoints/*/manifest.json");
    let paths = glob::glob(&pattern.to_string_lossy()).expect("a pattern").flatten();
    let mut found: Vec<PathBuf> = paths.filter_map(|p| p.parent().map(Path::to_path_buf)).collect();
    found.sort_by_key(|p| p.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<u64>().ok()));
    found
}

#[test]
fn a_program_sees_its_users_name_and_gains_no_right() {
    let Some(place) = Place::get() else { return };
    let home = place.home("rights");
    let script = "id -un; grep CapEff /proc/self/status; touch ro; chmod 400 ro; echo x >ro; ls /proc/self/fd | wc -l";
    let mut child = home.start(&["bash", "-c", script], false);
    home.end(&mut child);
    let out = home.read("out");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "nobody", "{out}{}", home.said());
    assert!(lines[1].ends_with("0000000000000000"), "{out}");
    assert!(home.said().contains("Permission denied"), "{out}");
    // Standard input, output and error, and the folder that ls reads.
    assert_eq!(lines[2], "4", "{out}");
}

#[test]
fn an_exit_code_and_a_signal_pass_through() {
    let Some(place) = Place::get() else { return };
    let home = place.home("codes");
    for (script, code) in [("exit 42", 42), ("trap 'exit 9' USR1; kill -USR1 $$; sleep 5", 9)] {
        let mut child = home.start(&["bash", "-c", script], false);
        assert_eq!(home.end(&mut child), Some(code), "{script}: {}", home.said());
    }
}

#[test]
fn without_a_criu_that_works_the_job_runs_and_says_why_it_is_not_protected() {
    let Some(place) = Place::get() else { return };
    let home = place.home("without");
    let conf = home.folder.join("other.toml");
    fs::write(&conf, "[energy]\nsources = [\"model\"]\n\n[criu]\ncommand = \"/bin/false\"\n").expect("a site file");
    let output: Output = Command::new(place.path("joulepoint"))
        .args(["run", "-o", "ft-energy", "-o", "ft-energy-engine=criu", "--", "echo", "done"])
        .env("JOULEPOINT_CONF", &conf)
        .env("HOME", &home.folder)
        .current_dir(&home.folder)
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("it runs");
    assert_eq!(text(&output.stdout), "done");
    let said = text(&output.stderr);
    assert!(said.contains("the engine criu does not work on this node") && said.contains("app or hook"), "{said}");
}

#[test]
fn jobs_of_an_ordinary_user_go_on_after_their_nodes_died_and_end_as_if_undisturbed() {
    let Some(place) = Place::get() else { return };
    let threads = format!("{} 600", place.path("threads").display());
    let mut make = Command::new("make");
    make.args(["-s", "-C"]).arg(repository().join("apps/heat")).arg(format!("BUILD={}", place.0.display()));
    assert!(make.status().expect("make").success(), "Open MPI is needed (packaging/test-packages.sh)");
    let heat = format!(
        "mpirun --oversubscribe -n 4 {} --size 128 --steps 500 --step-ms 20 --report 20",
        place.path("heat").display()
    );
    let programs = [("threads", threads, 3), ("heat", heat, 0)];
    for (name, program, code) in &programs {
        let reference = place.home(&format!("{name}-job-undisturbed"));
        let words: Vec<&str> = program.split(' ').collect();
        assert_eq!(reference.undisturbed(&words), Some(*code), "{}", reference.said());
    }
    let wanted = Wanted {
        nodes: 3,
        toml: format!(
            "[criu]\ncommand = {:?}\ncompress = \"zstd\"\n\n{}",
            place.path("criu/criu"),
            Wanted::default().toml
        ),
        ..Wanted::default()
    };
    let mut site = Site::start(&place.path("site"), &wanted, &mut |text| println!("  {text}")).expect("a site");
    let options = ["--open-mode=append", "--output=out", "--error=err", "--ft-energy", "--ft-energy-engine=criu"];
    let options = [&options[..], &["--ft-energy-interval=2s", "-n1"]].concat();
    let jobs = programs.map(|(name, program, code)| {
        let folder = site.folder(USER, name).expect("a folder");
        let script = format!("echo begin $SLURM_JOB_ID\n{program}\necho end $?");
        let job = site.submit(USER, &folder, &options, &script).expect("a job");
        let expected = place.home(&format!("{name}-job-undisturbed")).read("out");
        (job, folder.join("out"), format!("begin {job}\n{expected}end {code}\n"))
    });
    let report = |site: &Site, job: u32, what: &str, wanted: &dyn Fn(&serde_json::Value) -> bool| {
        site.wait_report(job, what, LIMIT, |run| wanted(run).then(|| run.clone())).expect("a report")
    };
    let mut victims = BTreeSet::new();
    for (job, ..) in &jobs {
        let run = report(&site, *job, "a checkpoint", &|run| run["total"]["checkpoints"].as_u64() >= Some(1));
        victims.insert(run["records"][0]["nodes"][0].as_str().expect("a node").to_string());
    }
    for victim in victims {
        site.cluster.kill_node(&victim).expect("a node dies");
    }
    for (job, out, expected) in jobs {
        let run = report(&site, job, "the end", &|run| run["state"] == "completed" || run["state"] == "failed");
        assert_eq!(fs::read_to_string(out).expect("an output"), expected);
        assert_eq!(run["records"].as_array().map(Vec::len), Some(2), "{run}");
    }
}
