//! Scripts that start again go on where they were: the stand-in for `srun`, before a scripted one.

use engines::wardens::{Callbacks, Wardens};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use steps::calls::{Call, Calls, End};
use steps::sandboxes::Sandboxes;

const JOULEPOINT: &str = env!("CARGO_BIN_EXE_joulepoint");

/// A run's folder, and a `srun` that writes down what it was called with.
struct Place {
    dir: tempfile::TempDir,
    calls: Calls,
    /// More of the script's environment.
    more: Vec<(String, String)>,
    /// What the driver has to say.
    says: Arc<Mutex<Vec<String>>>,
}

/// A `srun` that runs the program of a warden without it, with its input, and skips options of two words.
const WITHOUT_WARDENS: &str = r#"#!/bin/sh
echo "$*" >>"$LOG"
case " $* " in *" warden "*)
    while [ "$1" != -- ]; do [ "$1" != --stdin ] || exec <"$2"; shift; done
    shift ;;
esac
while case "$1" in -?) ;; *) false ;; esac; do shift 2; done
exec "$@"
"#;

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        fs::create_dir(&real).unwrap();
        let scripted = "#!/bin/sh\necho \"$*\" >> \"$LOG\"\nexec \"$@\"\n";
        fs::write(real.join("srun"), scripted).unwrap();
        fs::set_permissions(real.join("srun"), fs::Permissions::from_mode(0o755)).unwrap();
        let calls = Calls::open(dir.path(), &["script".to_string()]).unwrap();
        let stand_in = dir.path().join("calls/bin/srun");
        fs::remove_file(&stand_in).unwrap();
        symlink(JOULEPOINT, stand_in).unwrap();
        Place { dir, calls, more: Vec::new(), says: Arc::default() }
    }

    /// One whose calls are put into sandboxes, of which the driver hears, in a job of so many nodes; the site says
    /// whether output files are added to.
    fn with_sandboxes(nodes: &str, appends: Option<bool>) -> Place {
        let mut place = Place::new();
        fs::write(place.dir.path().join("real/srun"), WITHOUT_WARDENS).unwrap();
        let run = place.dir.path().to_path_buf();
        let says = place.says.clone();
        let says = Box::new(move |text: &str| says.lock().unwrap().push(text.to_string()));
        let callbacks = Callbacks { says, ..Callbacks::new(|_, _, _| false, |_, _| true) };
        Wardens::listen(&run, "localhost", callbacks).unwrap();
        let out = File::create(run.join("out")).unwrap().metadata().unwrap();
        let common = vec![(out.dev(), out.ino())];
        let sandboxes = Sandboxes {
            criu: "criu".into(),
            run,
            placement: None,
            restore: None,
            limit_s: 9.0,
            common,
            appends,
            job: String::new(),
        };
        place.more = vec![sandboxes.variable(), ("SLURM_JOB_NUM_NODES".into(), nodes.into())];
        place
    }

    fn path(&self) -> String {
        format!("{}:{}", self.dir.path().join("real").display(), std::env::var("PATH").unwrap())
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(self.dir.path()).env("LOG", self.log()).stdin(Stdio::null());
        command.stdout(fs::File::options().append(true).create(true).open(self.dir.path().join("out")).unwrap());
        command.stderr(fs::File::options().append(true).create(true).open(self.dir.path().join("err")).unwrap());
        command.env_remove("SLURM_JOB_ID").envs(self.calls.variables()).envs(self.more.clone());
        command.env("PATH", format!("{}:{}", self.dir.path().join("calls/bin").display(), self.path()));
        command
    }

    /// Starts the script from its top; what the real `srun` was called with, in order of the calls.
    fn start(&self, script: &str) -> Vec<String> {
        self.calls.begin().unwrap();
        let _ = fs::remove_file(self.log());
        self.command(script).status().unwrap();
        fs::read_to_string(self.log()).unwrap_or_default().lines().map(str::to_string).collect()
    }

    /// Whether the driver was told this to say, and nothing stands in the output of a step.
    fn said(&self, words: &str) -> bool {
        let limit = Instant::now() + Duration::from_secs(1);
        let is_said = || self.says.lock().unwrap().iter().any(|line| line.contains(words));
        while !is_said() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(10));
        }
        println!("{:#?}", self.says.lock().unwrap());
        assert!(!self.read("err").contains(words), "{}", self.read("err"));
        is_said()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }
}

/// Kills the stand-in, as the end of its host would; the first time only.
const DIES_ONCE: &str = "sh -c '[ -e died ] || { touch died; kill -9 $PPID; sleep 60; }; echo whole >> whole'";

#[test]
fn ended_steps_are_not_run_again_and_the_interrupted_one_is() {
    let place = Place::new();
    let script = format!("srun echo one\nsrun {DIES_ONCE} || exit\nsrun echo three");
    assert_eq!(place.start(&script).len(), 2);
    let again = place.start(&script);
    assert_eq!(again.len(), 2, "{again:?}");
    assert!(again[0].starts_with("sh -c") && again[1] == "echo three", "{again:?}");
    assert_eq!(place.read("whole"), "whole\n");
    assert_eq!(place.start(&script), Vec::<String>::new());
    assert!(place.read("err").contains("step 1 (srun echo one) has ended with 0 before; not run again"));
}

#[test]
fn exit_codes_are_told_again() {
    let place = Place::new();
    let script = "srun sh -c 'exit 7'; echo $? >> codes; srun sh -c 'kill -SEGV $$'; echo $? >> codes";
    assert_eq!(place.start(script).len(), 2);
    assert_eq!(place.start(script).len(), 0);
    assert_eq!(place.read("codes"), "7\n139\n7\n139\n");
}

#[test]
fn turns_of_a_loop_are_told_apart_by_their_number() {
    let place = Place::new();
    let turn = "srun sh -c 'echo turn >> turns; [ $(wc -l < turns) != 3 ] || kill -9 $PPID'";
    let script = format!("for i in 1 2 3 4; do {turn} || exit; done");
    assert_eq!(place.start(&script).len(), 3);
    assert_eq!(place.start(&script).len(), 2, "the third and the fourth turn");
    assert_eq!(place.read("turns").lines().count(), 5);
}

#[test]
fn steps_in_the_background_are_known_in_any_order() {
    let place = Place::new();
    let script = "srun sh -c 'sleep 0.3; echo a' & srun sh -c 'echo b' & srun sh -c 'kill -9 $PPID' & wait";
    assert_eq!(place.start(script).len(), 3);
    let other_order = "srun sh -c 'kill -9 $PPID' & srun sh -c 'echo b' & srun sh -c 'sleep 0.3; echo a' & wait";
    assert_eq!(place.start(other_order), ["sh -c kill -9 $PPID"]);
}

#[test]
fn what_a_step_wrote_is_put_back_where_the_script_empties_the_file() {
    let place = Place::new();
    let script = "srun echo emptied > result; srun echo added >> log.txt; srun echo shared";
    place.start(script);
    let out = place.read("out");
    assert_eq!(place.start(script).len(), 0);
    assert_eq!((place.read("result"), place.read("log.txt")), ("emptied\n".into(), "added\n".into()));
    assert_eq!((out.as_str(), place.read("out").as_str()), ("shared\n", "shared\n"));
}

#[test]
fn an_output_too_large_to_keep_is_made_again_if_it_is_gone() {
    let place = Place::new();
    let script = "srun head -c 20000000 /dev/zero > large; srun head -c 20000000 /dev/zero >> larger";
    assert_eq!(place.start(script).len(), 2);
    assert_eq!(place.start(script).len(), 1, "only the one that was emptied");
    assert_eq!(fs::metadata(place.dir.path().join("large")).unwrap().len(), 20_000_000);
    assert_eq!(fs::metadata(place.dir.path().join("larger")).unwrap().len(), 20_000_000);
}

#[test]
fn steps_in_a_pipeline_run_again_since_what_went_through_is_gone() {
    let place = Place::new();
    let script =
        "x=$(srun echo 5); srun echo line | tee tee.log; { sleep 0.3; echo data; } | srun cat > sink; echo $x >> seen";
    assert_eq!(place.start(script).len(), 3);
    assert_eq!(place.start(script).len(), 3);
    assert_eq!(
        (place.read("seen"), place.read("tee.log"), place.read("sink")),
        ("5\n5\n".into(), "line\n".into(), "data\n".into())
    );
    let unused = "seq 2 | while read i; do srun --input=none $i; done";
    assert_eq!(place.start(unused).len(), 2);
    assert_eq!(place.start(unused).len(), 0, "a pipe that the step does not read is none of its business");
}

#[test]
fn input_files_tell_steps_apart() {
    let place = Place::new();
    let script = |text: &str| format!("srun cat <<< {text} > copy");
    assert_eq!(place.start(&script("one")).len(), 1);
    assert_eq!(place.start(&script("one")).len(), 0);
    assert_eq!(place.start(&script("two")).len(), 1);
    assert_eq!(place.read("copy"), "two\n");
}

#[test]
fn a_step_that_was_told_to_end_has_not_ended_by_itself() {
    let place = Place::new();
    let script = "srun sh -c 'trap \"echo asked >> asked; exit 0\" TERM; touch ready; while :; do sleep 0.01; done' & \
        while [ ! -e ready ]; do sleep 0.01; done; kill -TERM $!; wait $!; echo $? >> codes; rm ready";
    assert_eq!(place.start(script).len(), 1);
    assert_eq!(place.start(script).len(), 1);
    assert_eq!((place.read("asked"), place.read("codes")), ("asked\nasked\n".into(), "0\n0\n".into()));
}

#[test]
fn nothing_counts_as_ended_while_the_script_is_stopped() {
    let place = Place::new();
    let script = format!("srun touch {}", place.dir.path().join("calls/closed").display());
    assert_eq!(place.start(&script).len(), 1);
    assert_eq!(place.start(&script).len(), 1);
}

#[test]
fn a_script_does_not_go_on_over_a_step_that_failed_with_its_node() {
    let place = Place::new();
    let called = "while ! grep -qs false log; do sleep 0.01; done";
    let closed = place.dir.path().join("calls/closed");
    let stop = format!("({called}; touch {}; sleep 0.5; kill -TERM 0) &", closed.display());
    place.calls.begin().unwrap();
    let script = format!("{stop} srun false; srun echo on");
    let mut command = place.command(&script);
    let status = command.env("SLURM_JOB_NUM_NODES", "2").process_group(0).status().unwrap();
    assert_eq!(fs::read_to_string(place.log()).unwrap(), "false\n", "{status}");
}

#[test]
fn a_step_that_ended_well_when_slurm_took_its_nodes_away_has_not_ended() {
    for (state, expected) in [("RUNNING", 0), ("COMPLETING", 1)] {
        let place = Place::new();
        let (squeue, closed) = (place.dir.path().join("real/squeue"), place.dir.path().join("calls/closed"));
        let jobs = place.dir.path().join("jobs");
        let running = |state: &str| {
            let job = format!("JobId=7 JobName=j UserId=u(1) JobState={state} NodeList=n[1-2]\n");
            fs::write(&jobs, job).unwrap();
        };
        running(state);
        // The wrapper closes the script's calls once it has heard of the node.
        let said =
            format!("#!/bin/sh\ngrep -q RUNNING jobs || touch {}\n{}", closed.display(), slurm::example::squeue(&jobs));
        fs::write(&squeue, said).unwrap();
        fs::set_permissions(&squeue, fs::Permissions::from_mode(0o755)).unwrap();
        let script = "SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 JOULEPOINT_CALLS=7$JOULEPOINT_CALLS srun true";
        assert_eq!(place.start(script).len(), 1);
        running("RUNNING");
        assert_eq!(place.start(script).len(), expected, "{state}");
    }
}

#[test]
fn a_real_srun_and_the_steps_of_others_are_left_alone() {
    let place = Place::new();
    let real = place.dir.path().join("real/srun");
    for script in [
        format!("{} echo absolute", real.display()),
        "SLURM_JOB_ID=99 srun echo 'of another job'".to_string(),
        "srun orted --of-an-mpi-launcher".to_string(),
    ] {
        assert_eq!(place.start(&script).len(), 1, "{script}");
        assert_eq!(place.start(&script).len(), 1, "{script}");
    }
    let nested = "srun sh -c 'srun echo inner; env' > seen";
    assert_eq!(place.start(nested), ["sh -c srun echo inner; env", "echo inner"]);
    assert!(!place.read("seen").contains("calls/bin") && !place.read("seen").contains("JOULEPOINT_CALLS"));
    assert_eq!(place.start(nested).len(), 0);
}

#[test]
fn another_script_begins_without_a_past() {
    let place = Place::new();
    assert_eq!(place.start("srun echo one").len(), 1);
    Calls::open(place.dir.path(), &["another".to_string()]).unwrap();
    let stand_in = place.dir.path().join("calls/bin/srun");
    fs::remove_file(&stand_in).unwrap();
    symlink(JOULEPOINT, stand_in).unwrap();
    assert_eq!(place.start("srun echo one").len(), 1);
}

#[test]
fn without_a_real_srun_the_shell_hears_what_it_would_have_heard() {
    let place = Place::new();
    let mut command = place.command("srun true");
    let only = format!("{}:/nowhere", place.dir.path().join("calls/bin").display());
    let status = command.env("PATH", only).status();
    assert!(status.is_err() || status.unwrap().code() == Some(127));
}

#[test]
fn what_goes_to_a_file_that_has_been_removed_is_kept_like_what_goes_through_a_pipe() {
    let script = "exec 3<>f; rm f; srun echo kept >&3; cat /proc/self/fd/3 >>seen";
    let place = Place::with_sandboxes("1", None);
    assert_eq!((place.start(script).len(), place.start(script).len()), (1, 0));
    assert_eq!(place.read("seen"), "kept\nkept\n", "{}", place.read("err"));
    let place = Place::new();
    assert_eq!((place.start(script).len(), place.start(script).len()), (1, 1));
    assert_eq!(place.read("seen"), "kept\nkept\n");
}

#[test]
fn a_step_whose_words_are_others_than_before_is_told_to_begin_anew() {
    let place = Place::new();
    let script = |host: &str| format!("for n in 1 2; do srun echo $n; done; srun echo --address={host} run; exit 1");
    assert_eq!(place.start(&script("n1")).len(), 3);
    assert_eq!(place.start(&script("n2")).len(), 1);
    let told = "srun echo --address=n2 run is another step than srun echo --address=n1 run, which ran before";
    assert!(place.read("err").contains(told), "{}", place.read("err"));
    assert!(!place.read("err").contains("srun echo 2 is another"), "{}", place.read("err"));
}

#[test]
fn a_step_ends_when_nobody_reads_it_any_more() {
    let place = Place::with_sandboxes("1", None);
    let turns = "while :; do echo turn; sleep 0.01; done";
    let script =
        format!("srun sh -c '{turns}' | head -n 3 >seen; srun sh -c 'trap \"\" TERM; {turns}' | head -n 1 >>seen");
    for _ in 0..2 {
        assert_eq!(place.start(&script).len(), 2, "{}", place.read("err"));
        assert_eq!(place.read("seen"), "turn\n".repeat(4));
    }
    assert!(place.said("nobody reads the output"));
    let whole = "srun echo whole | cat >whole";
    assert_eq!((place.start(whole).len(), place.start(whole).len()), (1, 0));
    assert_eq!(place.read("whole"), "whole\n");
}

#[test]
fn what_a_step_outside_of_sandboxes_wrote_is_not_lost() {
    let place = Place::with_sandboxes("1", None);
    let script = "x=$(srun -i /dev/zero echo 5); echo $x >>seen; srun -i /dev/zero echo shared";
    assert_eq!(place.start(script), ["-i /dev/zero echo 5", "-i /dev/zero echo shared"]);
    assert!(place.said("it reads a terminal or a device"));
    assert_eq!(place.read("out"), "shared\n");
    File::create(place.dir.path().join("out")).unwrap();
    assert_eq!(place.start(script), ["-i /dev/zero echo 5"], "what went through a pipe is not remembered");
    assert_eq!((place.read("seen"), place.read("out")), ("5\n5\n".into(), "shared\n".into()));
}

#[test]
fn tasks_on_other_nodes_read_a_copy_of_what_only_this_node_has() {
    let place = Place::with_sandboxes("2", None);
    let here = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = here.path().join("in");
    fs::write(&file, "skipped\nrest\n").unwrap();
    let call = place.start(&format!("{{ read -r line; srun cat >copy; }} <{}", file.display()));
    assert!(call[0].contains("--stdin ") && !call[0].contains("/dev/shm"), "{call:?}");
    assert_eq!(place.read("copy"), "rest\n");
    File::create(&file).unwrap().set_len(20_000_000).unwrap();
    assert_eq!(place.start(&format!("srun wc -c <{} >size", file.display())), ["wc -c"]);
    assert_eq!(place.read("size").trim(), "20000000", "it reads all by itself");
    assert!(place.said("which other nodes may not see"));
}

#[test]
fn only_what_srun_would_empty_is_emptied() {
    for (appends, emptied, inside) in [(Some(false), true, true), (Some(true), false, true), (None, false, false)] {
        let place = Place::with_sandboxes("1", appends);
        fs::create_dir(place.dir.path().join("sub")).unwrap();
        for name in ["file", "sub/file"] {
            fs::write(place.dir.path().join(name), "before").unwrap();
        }
        let call = place.start("srun -D sub -o file true </dev/null");
        assert_eq!(call[0].contains(" warden "), inside, "{call:?}");
        assert_eq!(place.read("file"), if emptied { "" } else { "before" }, "{appends:?}");
        assert_eq!(place.read("sub/file"), "before");
        assert_eq!(place.said("JobFileAppend"), !inside);
    }
}

/// A command below the wrapper, whose driver is killed when `signal` appears; what it printed.
fn killed_driver(place: &Place, options: &[&str], script: &str) -> Output {
    let file = place.dir.path().join("job.sh");
    fs::write(&file, script).unwrap();
    let mut command = Command::new(JOULEPOINT);
    command.args(["--conf", "/dev/null", "run"]).args(options).args(["--", "bash"]).arg(&file);
    command
        .current_dir(place.dir.path())
        .env("PATH", place.path())
        .env("LOG", place.log())
        .env("HOME", place.dir.path());
    command.env_remove("SLURM_JOB_ID").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while !place.dir.path().join("kill").exists() {
        assert!(Instant::now() < limit, "the script never came to its second step");
        std::thread::sleep(Duration::from_millis(20));
    }
    let below = host::processes::below(child.id() as i32);
    let driver = below.iter().find(|p| p.parent == child.id() as i32).expect("a driver");
    host::processes::signal(driver.pid, 9);
    child.wait_with_output().unwrap()
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// Three steps; the wrapper is to be killed in the second one.
const THREE: &str = "srun sh -c 'echo 1 >> one' >> out.log 2>&1\n\
    srun sh -c 'echo 2 >> two; [ -e kill ] || { touch kill; sleep 60; }' >> out.log 2>&1\n\
    srun sh -c 'echo 3 >> three' >> out.log 2>&1\n";

#[test]
fn a_killed_wrapper_does_not_run_the_first_of_three_steps_again() {
    let run = |resume: &str| {
        let place = Place::new();
        let option = format!("ft-energy-resume={resume}");
        let output = killed_driver(&place, &["-o", &option, "-o", "ft-energy-done=*.ckpt"], THREE);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ["one", "two", "three"].map(|name| lines(&place.dir.path().join(name)))
    };
    std::thread::scope(|scope| {
        let runs = ["steps", "script", "none"].map(|resume| scope.spawn(move || run(resume)));
        assert_eq!(runs.map(|r| r.join().unwrap()), [[1, 2, 1], [2, 2, 1], [2, 2, 1]]);
    });
}

#[test]
fn a_storage_that_fails_makes_no_step_another_one_and_none_that_ended_one_that_has_not() {
    let dir = tempfile::tempdir().unwrap();
    let storage = faultfs::FaultFs::new(faultfs::Settings::default());
    let Ok(_mounted) = storage.mount(dir.path()) else {
        println!("skipped: no file system can be mounted here");
        return;
    };
    let calls = Calls::open(dir.path(), &[]).unwrap();
    calls.begin().unwrap();
    assert_eq!((calls.claim("a").unwrap(), calls.claim("a").unwrap()), ((1, 0), (2, 1)));
    let ended = Some(End { at_s: 2.0, code: 0, outputs: Vec::new() });
    let (key, command) = ("a".to_string(), "a".to_string());
    calls.write("a.1", &Call { number: 1, key, command, begun_s: 1.0, ended, targets: Vec::new() }).unwrap();
    let fail = |ops: &[&str]| {
        for op in ops {
            storage.obey(&format!("fault error=ESTALE op={op} times=2").parse().unwrap()).unwrap();
        }
    };
    fail(&["open"]);
    assert!(calls.read("a.1").unwrap().is_some_and(|call| call.ended.is_some()));
    fail(&["opendir", "readdir", "readlink", "symlink"]);
    assert_eq!(calls.claim("a").unwrap(), (3, 2));
    fail(&["opendir", "readdir", "open"]);
    assert_eq!(calls.settle(None, 5.0, None).unwrap().kept_until_s, Some(2.0));
}
