//! The engines scr and dmtcp over scripted commands: what is asked of them, and what becomes of a killed wrapper.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A folder with scripted commands before the `PATH`, in which a job runs.
struct Place(tempfile::TempDir);

impl Place {
    fn new(commands: &[(&str, &str)]) -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        for (name, text) in commands {
            let path = dir.path().join("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\ncd {}\n{text}\n", dir.path().display())).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Place(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Starts `script` under an engine.
    fn start(&self, engine: &str, script: &str) -> Child {
        fs::write(self.path("job.sh"), script).unwrap();
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let option = format!("ft-energy-engine={engine}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
        command.args(["--conf", "/dev/null", "run", "-o", &option, "-o", "ft-energy-interval=1s"]);
        command.args(["--", "sh", "job.sh"]).current_dir(self.0.path()).env("PATH", path).env("HOME", self.0.path());
        command.env_remove("SLURM_JOB_ID").env_remove("SCR_PREFIX").stdin(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// The manifests that are complete.
    fn manifests(&self) -> Vec<PathBuf> {
        let pattern = self.path(".joulepoint/*/*/checkpoints/*/manifest.json");
        glob::glob(&pattern.to_string_lossy()).unwrap().flatten().collect()
    }

    fn journal(&self) -> String {
        let pattern = self.path(".joulepoint/*/*/journal*");
        glob::glob(&pattern.to_string_lossy())
            .unwrap()
            .flatten()
            .map(|p| String::from_utf8_lossy(&fs::read(p).unwrap()).into_owned())
            .collect()
    }
}

fn until(what: &str, mut there: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !there() {
        assert!(Instant::now() < limit, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Kills the driver below a wrapper; the wrapper starts another.
fn kill_driver(wrapper: &Child) {
    let below = host::processes::below(wrapper.id() as i32);
    let driver = below.iter().find(|p| p.parent == wrapper.id() as i32).expect("a driver");
    host::processes::signal(driver.pid, 9);
}

/// A DMTCP that starts the program as it is, and whose image is a line of text.
const DMTCP: [(&str, &str); 4] = [
    ("dmtcp_coordinator", "while [ \"$1\" != --port-file ]; do shift; done; echo 7777 > \"$2\"; echo \"$4\" > images"),
    ("dmtcp_launch", "while [ \"$1\" != --no-gzip ]; do shift; done; shift; exec \"$@\""),
    ("dmtcp_command", "echo \"$*\" >> commands; echo image > $(cat images)/ckpt_sh_1.dmtcp"),
    ("dmtcp_restart", "echo \"$*\" >> restarts; exit 5"),
];

const ENDLESS: &str = "echo begun >> begun; while :; do sleep 0.1; done";

fn with(name: &'static str, text: &'static str) -> Vec<(&'static str, &'static str)> {
    DMTCP.iter().map(|(n, t)| (*n, if *n == name { text } else { *t })).collect()
}

#[test]
fn dmtcp_launches_checkpoints_and_restarts_the_script() {
    let place = Place::new(&DMTCP);
    let wrapper = place.start("dmtcp", ENDLESS);
    until("a checkpoint", || !place.manifests().is_empty());
    kill_driver(&wrapper);
    let output = wrapper.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(place.read("begun"), "begun\n", "the script was started again");
    assert!(place.read("commands").contains("--coord-port 7777 --bcheckpoint"));
    let image = place.read("restarts").split_whitespace().last().map(PathBuf::from).unwrap();
    assert!(image.ends_with("ckpt_sh_1.dmtcp") && fs::read_to_string(&image).unwrap() == "image\n", "{image:?}");
}

#[test]
fn a_dmtcp_that_fails_costs_a_checkpoint_and_not_the_job() {
    let waits = "while [ ! -e end ]; do sleep 0.1; done; exit 3";
    for (text, reason) in [("exit 1", "ended with exit status: 1"), ("exit 0", "left no image")] {
        let place = Place::new(&with("dmtcp_command", text));
        let wrapper = place.start("dmtcp", waits);
        until("a failed checkpoint", || place.journal().contains(reason));
        fs::write(place.path("end"), "").unwrap();
        assert_eq!(wrapper.wait_with_output().unwrap().status.code(), Some(3));
        assert_eq!(place.manifests(), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_program_that_a_dump_has_stopped_for_ever_is_ended_and_goes_on_from_the_checkpoint_before() {
    let stops = "[ -e commands ] && { kill -STOP $(cat program); sleep 600; }\n\
        echo \"$*\" >> commands; echo image > $(cat images)/ckpt_sh_1.dmtcp";
    let place = Place::new(&with("dmtcp_command", stops));
    let wrapper = place.start("dmtcp", "echo $$ > program; while :; do sleep 0.1; done");
    let output = wrapper.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("DMTCP has not stopped all processes"), "{said}");
    assert!(said.contains("goes on from checkpoint 1"), "{said}");
}

#[test]
fn without_a_coordinator_the_job_runs() {
    let output = Place::new(&with("dmtcp_coordinator", "exit 1")).start("dmtcp", "exit 4").wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("the job runs without checkpoints"), "{said}");
}

#[test]
fn an_engine_that_was_asked_for_and_is_missing_ends_the_job_before_it_has_begun() {
    if host::tool::find("dmtcp_coordinator").is_some() {
        return println!("skipped: dmtcp_coordinator is in the PATH here");
    }
    let output = Place::new(&[]).start("dmtcp", "exit 6").wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(protection::EXIT_NOT_PROTECTED), "{said}");
    assert!(said.contains("dmtcp was asked for, but dmtcp_coordinator is not in the PATH"), "{said}");
    assert!(said.contains("before it has begun"), "{said}");
}

#[test]
fn a_job_that_was_started_before_is_not_begun_anew_for_a_site_file_that_cannot_be_read() {
    let place = Place::new(&[("scontrol", "exit 1"), ("squeue", "exit 1")]);
    fs::write(place.path("site.toml"), "this is [[ not toml").unwrap();
    fs::write(place.path("job.sh"), "#!/bin/sh\necho begun > begun\n").unwrap();
    let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap());
    let request = r#"{"settings":{"ft-energy":{"value":"","source":"option"}}}"#;
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
    command.args(["--conf", "site.toml", "wrap", "--request", request, "--", "sh", "job.sh"]);
    command.current_dir(place.path(".")).env("PATH", path).env("SLURM_JOB_ID", "7").env("SLURM_RESTART_COUNT", "1");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(driver::setup::EXIT_NOT_RESTORED), "{said}");
    assert!(said.contains("site.toml") && said.contains("is held"), "{said}");
    assert!(said.contains("could not be requeued") && !place.path("begun").exists(), "{said}");
}

#[test]
fn scr_gets_the_interval_and_goes_back_to_the_line() {
    let place = Place::new(&[]);
    let flushed = |number: u32| {
        let head = "2026-11-27T11:22:07: host=n1, jobid=none";
        let of = format!("dset={number}, name=\"ckpt.{number}\"");
        format!(
            "{head}, event=CHECKPOINT_END, {of}, secs=4.0\n{head}, xfer=CHECKPOINT, {of}, secs=4.0, bytes=1000.0, files=1\n\
             {head}, event=FLUSH_SUCCESS, {of}, secs=1.0\n"
        )
    };
    fs::write(place.path("one"), flushed(1)).unwrap();
    let program = "env | grep -e ^SCR_ -e ^FT_ENERGY_RESTART | sort > seen.$$\n[ -e .scr ] && exit 0\n\
        mkdir .scr && cp one .scr/log\nwhile :; do sleep 0.1; done";
    let wrapper = place.start("scr", program);
    until("a checkpoint", || !place.manifests().is_empty());
    kill_driver(&wrapper);
    assert!(wrapper.wait_with_output().unwrap().status.success());
    let folder = fs::canonicalize(place.path(".")).unwrap();
    let seen = |resumed: u8| {
        format!(
            "FT_ENERGY_RESTART={resumed}\nSCR_CHECKPOINT_SECONDS=1\nSCR_FLUSH=1\nSCR_LOG_ENABLE=1\nSCR_LOG_SYSLOG_ENABLE=0\n\
             SCR_PREFIX={}\n",
            folder.display()
        )
    };
    let all = glob::glob(&place.path("seen.*").to_string_lossy()).unwrap().flatten();
    let mut all: Vec<String> = all.map(|path| fs::read_to_string(path).unwrap()).collect();
    all.sort();
    assert_eq!(all, [seen(0), seen(1)]);
    let line = place.manifests()[0].parent().map(Path::to_path_buf).unwrap();
    assert_eq!(fs::read_to_string(line.join("dataset")).unwrap(), "ckpt.1");
    let manifest: protocol::Manifest = serde_json::from_slice(&fs::read(line.join("manifest.json")).unwrap()).unwrap();
    assert!(manifest.bytes > 1000 && manifest.ended_s - manifest.begun_s >= 1.0, "{manifest:?}");
}
