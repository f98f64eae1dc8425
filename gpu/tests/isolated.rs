//! Programs on a GPU that is none are suspended and resumed, by libraries in the place of NVIDIA's that do it, refuse, hang and
//! crash; this program is the process that speaks with them.

use gpu::{Error, Patience, Suspended, resume, suspend};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time of a call.
const LIMIT: Duration = Duration::from_secs(60);

/// Enough for all.
const FREE_BYTES: u64 = 1 << 40;

fn main() {
    if std::env::args().nth(1).as_deref() == Some(gpu::isolated::WORD) {
        return gpu::isolated::run().unwrap();
    }
    goes_on_when_it_has_its_gpu_back();
    is_left_alone_where_the_driver_cannot_do_it();
    is_lost_where_the_driver_hangs_with_it();
    is_one_of_its_tree();
    println!("suspended and resumed, left alone, lost, one of a tree: ok");
}

/// A folder with the libraries and the program.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/build.sh");
        assert!(Command::new("sh").arg(build).arg(place.0.path()).status().unwrap().success());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A program that counts so far, and has begun to.
    fn start(&self, counts: u32) -> Child {
        let out = self.path("out");
        let mut command = Command::new(self.path("on-gpu"));
        command.arg(counts.to_string()).arg(self.path("fast")).stdout(fs::File::create(&out).unwrap());
        let child = command.spawn().unwrap();
        let until = Instant::now() + LIMIT;
        while fs::read_to_string(&out).unwrap().is_empty() {
            assert!(Instant::now() < until, "it does not begin");
            thread::sleep(Duration::from_millis(10));
        }
        child
    }

    fn suspend(&self, children: &[&Child]) -> Result<Option<Suspended>, Error> {
        self.suspend_by(&self.path("libcuda.so.1"), children, Patience::default())
    }

    fn suspend_by(&self, library: &Path, children: &[&Child], patience: Patience) -> Result<Option<Suspended>, Error> {
        let pids: Vec<i32> = children.iter().map(|child| child.id() as i32).collect();
        suspend(library, &pids, FREE_BYTES, patience)
    }

    /// Compiles a library of this text.
    fn library(&self, name: &str, text: &str) -> PathBuf {
        let (source, library) = (self.path("library.c"), self.path(name));
        fs::write(&source, text).unwrap();
        let mut cc = Command::new("cc");
        assert!(cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap().success());
        library
    }
}

fn refused(outcome: Result<Option<Suspended>, Error>) -> String {
    match outcome {
        Err(Error::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// It goes on counting, and what it has on its GPU is what it was.
fn ends_well(place: &Place, mut child: Child) {
    fs::write(place.path("fast"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

fn goes_on_when_it_has_its_gpu_back() {
    let place = Place::new();
    let child = place.start(200);
    let suspended = place.suspend(&[&child]).unwrap().unwrap();
    assert_eq!((suspended.process, suspended.gpus.len()), (child.id() as i32, 1));
    let before = fs::read_to_string(place.path("out")).unwrap();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::read_to_string(place.path("out")).unwrap(), before, "it stands still");
    let elsewhere = "7 NVIDIA Model B\n";
    fs::write(place.path("gpus"), elsewhere).unwrap();
    let other = resume(&suspended, Patience::default()).unwrap_err();
    assert!(matches!(&other, Error::Refused(why) if why.contains("it was on NVIDIA Model A")), "{other:?}");
    fs::write(place.path("gpus"), "7 NVIDIA Model A\n").unwrap();
    resume(&suspended, Patience::default()).unwrap();
    ends_well(&place, child);
}

fn is_left_alone_where_the_driver_cannot_do_it() {
    let place = Place::new();
    let child = place.start(200);
    let crashes = "#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }\n";
    for (library, why) in [
        (place.library("old.so", "int cuInit(unsigned flags) { return flags; }\n"), "saves GPUs from 570 on"),
        (place.library("crashes.so", crashes), "has crashed"),
        (place.path("none.so"), "none.so"),
    ] {
        let said = refused(place.suspend_by(&library, &[&child], Patience::default()));
        assert!(said.contains(why), "{said}");
    }
    fs::write(place.path("fault"), "checkpoint 801").unwrap();
    let said = refused(place.suspend(&[&child]));
    assert!(said.contains("cuCheckpointProcessCheckpoint: CUDA_ERROR_801"), "{said}");
    ends_well(&place, child);
}

fn is_lost_where_the_driver_hangs_with_it() {
    let place = Place::new();
    let mut child = place.start(1_000_000);
    fs::write(place.path("fault"), "checkpoint 0").unwrap();
    let begun = Instant::now();
    let patience = Patience { shortest: Duration::from_secs(2), ..Patience::default() };
    let lost = place.suspend_by(&place.path("libcuda.so.1"), &[&child], patience).unwrap_err();
    assert_eq!(lost, Error::Unanswered("NVIDIA's driver does not answer".to_string()));
    assert!(begun.elapsed() < LIMIT / 2);
    child.kill().unwrap();
    child.wait().unwrap();
}

fn is_one_of_its_tree() {
    let place = Place::new();
    let mut without = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(place.suspend(&[&without]), Ok(None));
    let one = place.start(200);
    assert_eq!(place.suspend(&[&without, &one]).unwrap().map(|s| resume(&s, Patience::default())), Some(Ok(())));
    let other = place.start(200);
    let said = refused(place.suspend(&[&one, &without, &other]));
    assert!(said.contains(gpu::owner::SEVERAL), "{said}");
    without.kill().unwrap();
    without.wait().unwrap();
    ends_well(&place, one);
    ends_well(&place, other);
}
