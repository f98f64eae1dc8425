//! Programs of an ordinary user under the engine criu, each on a node of its own that can be killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};
use suite::{Fetched, built, fetch, transparent};

/// Longest time of one program, with all of its restarts.
pub const LIMIT: Duration = Duration::from_secs(600);

/// Number of nobody.
pub const NOBODY: u32 = 65534;

/// What all tests need: programs in a place that an ordinary user can enter.
pub struct Place(pub PathBuf);

impl Place {
    /// None if there is no CRIU; the reason is printed.
    pub fn get() -> Option<&'static Place> {
        static PLACE: OnceLock<Option<Place>> = OnceLock::new();
        PLACE.get_or_init(Place::make).as_ref()
    }

    fn make() -> Option<Place> {
        let folder = std::env::temp_dir().join(format!("joulepoint-criu-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        open(&folder);
        let place = Place(folder);
        if let Err(reason) = fetch(Fetched::Criu, &place.path("criu")) {
            println!("skipped: the engine criu: {reason}");
            return None;
        }
        fs::copy(built().expect("built").join("joulepoint"), place.path("joulepoint")).expect("cargo build first");
        transparent::build(&place.0).expect("a compiler");
        let conf = format!(
            "[controller]\nurl = \"http://127.0.0.1:1\"\n\n[energy]\nsources = [\"model\"]\n\n\
             [criu]\ncommand = {:?}\n\n[wrapper]\nstep_retries = 1000\n",
            place.path("criu/criu")
        );
        fs::write(place.path("joulepoint.toml"), conf).expect("a site file");
        Some(place)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A new folder of an ordinary user.
    pub fn home(&self, name: &str) -> Home<'_> {
        let folder = self.path(&format!("home-{name}"));
        fs::create_dir_all(folder.join("tmp")).expect("a folder");
        for folder in [&folder, &folder.join("tmp")] {
            std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).expect("root");
        }
        Home { place: self, folder }
    }
}

/// A user's folder in which one program runs.
pub struct Home<'a> {
    place: &'a Place,
    pub folder: PathBuf,
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
    pub fn start(&self, argv: &[&str], resume: bool) -> Child {
        self.start_with(&[], argv, resume)
    }

    /// The same with more options.
    pub fn start_with(&self, options: &[&str], argv: &[&str], resume: bool) -> Child {
        let mut command = self.command(Path::new("unshare"));
        // The shell stays: a process that changes its user is not killed with its parent any more.
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", "\"$@\"; exit $?", "node"]);
        command
            .args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(self.place.path("joulepoint"));
        command.args(["run", "-o", "ft-energy", "-o", "ft-energy-engine=criu", "-o", "ft-energy-interval=1s"]);
        command.args(options);
        if resume {
            command.arg("--resume");
        }
        command.arg("--").args(argv).process_group(0).spawn().expect("unshare")
    }

    /// Waits for the end; the exit code.
    pub fn end(&self, child: &mut Child) -> Option<i32> {
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
    pub fn wait_for_line(&self, child: &mut Child) {
        let newest = || complete(&self.folder).pop();
        let before = newest();
        let limit = Instant::now() + LIMIT;
        while newest() == before && child.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < limit, "no checkpoint: {}", self.said());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The program without any protection.
    pub fn undisturbed(&self, argv: &[&str]) -> Option<i32> {
        let mut command = self.command(Path::new(argv[0]));
        command.args(&argv[1..]).uid(NOBODY).gid(NOBODY).status().expect("it runs").code()
    }

    /// Checkpoints that could not be used.
    pub fn set_aside(&self) -> Vec<PathBuf> {
        let pattern = self.folder.join(".joulepoint/*/*/checkpoints/*/manifest.damaged");
        glob::glob(&pattern.to_string_lossy()).expect("a pattern").flatten().collect()
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    pub fn said(&self) -> String {
        self.read("err")
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_string()
}

fn open(folder: &Path) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// Complete checkpoints below a folder, oldest first.
pub fn complete(home: &Path) -> Vec<PathBuf> {
    let pattern = home.join(".joulepoint/*/*/checkpoints/*/manifest.json");
    let paths = glob::glob(&pattern.to_string_lossy()).expect("a pattern").flatten();
    let mut found: Vec<PathBuf> = paths.filter_map(|p| p.parent().map(Path::to_path_buf)).collect();
    found.sort_by_key(|p| p.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<u64>().ok()));
    found
}
