//! What the program in place of `srun` tells the driver of groups, from where the script has called it.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use steps::groups::words::{SOCKET, Said};

/// A call that waits for its driver, which is gone when this is.
struct Call {
    child: Child,
    lines: Lines<BufReader<UnixStream>>,
}

impl Call {
    /// `srun prog`, in a folder, with its output in a file.
    fn make(root: &Path, folder: &Path, output: &str, labels: bool) -> Call {
        let socket = root.join("socket");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let mut command = Command::new(root.join("srun"));
        command.arg("prog").current_dir(folder).env(SOCKET, &socket).env_remove("SLURM_LABELIO");
        if labels {
            command.env("SLURM_LABELIO", "1");
        }
        let output = File::create(root.join(output)).unwrap();
        let child = command.stdout(output).stderr(Stdio::null()).spawn().unwrap();
        let (stream, _) = listener.accept().unwrap();
        Call { child, lines: BufReader::new(stream).lines() }
    }

    fn said(&mut self) -> Said {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    /// What tells it from other calls, and why no sandbox can hold it.
    fn known(&mut self) -> (String, Option<String>) {
        match self.said() {
            Said::Called { key, unfit, .. } => (key.unwrap(), unfit),
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_call_is_known_by_its_folder_and_output_and_the_end_that_the_script_asks_for_is_told() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    [&a, &b].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    symlink(env!("CARGO_BIN_EXE_joulepoint"), root.path().join("srun")).unwrap();
    let known = |folder: &Path, output: &str, labels| Call::make(root.path(), folder, output, labels).known();
    let (key, unfit) = known(&a, "out.1", false);
    assert_eq!((known(&a, "out.1", false).0, unfit), (key.clone(), None));
    assert_ne!(known(&b, "out.1", false).0, key, "another folder");
    assert_ne!(known(&a, "out.2", false).0, key, "another output");
    let (_, unfit) = known(&a, "out.1", true);
    assert!(unfit.as_ref().is_some_and(|why| why.contains("labels")), "the script's variables count: {unfit:?}");

    let mut call = Call::make(root.path(), &a, "out.1", false);
    call.known();
    kill(Pid::from_raw(call.child.id() as i32), Signal::SIGTERM).unwrap();
    assert!(matches!(call.said(), Said::Ending));
}
