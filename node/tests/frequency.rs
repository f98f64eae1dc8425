//! A node's CPU frequency is held on a lease, on a tree of files as the kernel has it, and always put back.

use node::frequency::Frequency;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CPUS: u32 = 4;
const LEASE: Duration = Duration::from_secs(20);

/// Folder of the CPUs, and the file that keeps what they had.
struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    fn new() -> Tree {
        let dir = tempfile::tempdir().expect("folder");
        for cpu in 0..CPUS {
            let folder = dir.path().join(format!("cpu{cpu}/cpufreq"));
            fs::create_dir_all(&folder).expect("folder");
            for (name, value) in [
                ("scaling_available_frequencies", "2400000 2000000 1200000 \n"),
                ("scaling_governor", if cpu == 3 { "powersave\n" } else { "ondemand\n" }),
                ("scaling_min_freq", "1200000\n"),
                ("scaling_max_freq", "2400000\n"),
                ("cpuinfo_min_freq", "1200000\n"),
                ("cpuinfo_max_freq", "2400000\n"),
            ] {
                fs::write(folder.join(name), value).expect("written");
            }
        }
        fs::create_dir(dir.path().join("cpuidle")).expect("folder");
        Tree { dir }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("n1.cpufreq")
    }

    fn service(&self) -> Frequency {
        Frequency::open(self.dir.path().to_path_buf(), self.file())
    }

    /// Governor, minimum and maximum of every CPU.
    fn state(&self) -> Vec<String> {
        let of = |cpu: u32| ["scaling_governor", "scaling_min_freq", "scaling_max_freq"].map(|n| self.path(cpu, n));
        let read = |path: PathBuf| fs::read_to_string(path).expect("readable").trim().to_string();
        (0..CPUS).flat_map(of).map(read).collect()
    }

    fn path(&self, cpu: u32, name: &str) -> PathBuf {
        self.dir.path().join(format!("cpu{cpu}/cpufreq/{name}"))
    }

    fn holds(&self, khz: &str) -> bool {
        self.state().iter().filter(|v| *v == khz).count() == 2 * CPUS as usize
    }
}

#[test]
fn a_job_holds_a_frequency_until_it_gives_it_back() {
    let tree = Tree::new();
    let (before, service, now) = (tree.state(), tree.service(), Instant::now());
    service.hold(7, 1.2e9, LEASE, now).expect("held");
    assert!(tree.holds("1200000") && service.held_hz() == Some(1.2e9));
    service.hold(7, 2.0e9, LEASE, now).expect("another");
    assert!(tree.holds("2000000"));
    service.hold(7, 0.0, LEASE, now).expect("the lowest");
    assert!(tree.holds("1200000") && service.held_hz() == Some(1.2e9));
    assert!(service.give_back(7) && !service.give_back(7));
    assert_eq!(tree.state(), before);
    assert!(!tree.file().exists());
}

#[test]
fn what_is_asked_again_goes_on_and_what_is_not_ends_with_its_lease_or_its_job() {
    let tree = Tree::new();
    let (before, service, now) = (tree.state(), tree.service(), Instant::now());
    service.hold(7, 1.2e9, LEASE, now).expect("held");
    service.hold(7, 1.2e9, LEASE, now + LEASE / 2).expect("again");
    service.expire(now + LEASE, |_| true);
    assert!(tree.holds("1200000"), "the lease was made longer");
    // The wrapper is killed: nobody asks any more.
    service.expire(now + LEASE * 2, |_| true);
    assert_eq!(tree.state(), before);
    service.hold(7, 1.2e9, LEASE, now).expect("held");
    service.expire(now, |job| job != 7);
    assert_eq!(tree.state(), before, "the job is gone");
    let hour = Duration::from_secs(3600);
    service.hold(7, 1.2e9, hour, now).expect("held");
    service.expire(now + Duration::from_secs(61), |_| true);
    assert_eq!(tree.state(), before, "a lease is a minute at most");
}

#[test]
fn a_killed_service_puts_back_at_its_next_start_and_one_that_stops_at_once() {
    let tree = Tree::new();
    let before = tree.state();
    let killed = tree.service();
    killed.hold(7, 1.2e9, LEASE, Instant::now()).expect("held");
    std::mem::forget(killed);
    assert!(tree.holds("1200000"));
    let next = tree.service();
    assert_eq!(tree.state(), before);
    next.hold(7, 1.2e9, LEASE, Instant::now()).expect("the wrapper asks again");
    drop(next);
    assert_eq!(tree.state(), before);
}

#[test]
fn a_second_job_is_refused_and_does_not_disturb_the_first() {
    let tree = Tree::new();
    let (before, service, now) = (tree.state(), tree.service(), Instant::now());
    service.hold(7, 1.2e9, LEASE, now).expect("held");
    let why = service.hold(8, 2.0e9, LEASE, now).expect_err("of job 7");
    assert!(why.contains("job 7 holds"), "{why}");
    assert!(!service.give_back(8) && tree.holds("1200000"));
    service.give_back(7);
    service.hold(8, 2.0e9, LEASE, now).expect("free now");
    service.give_back(8);
    assert_eq!(tree.state(), before);
}

#[test]
fn what_cannot_be_set_is_refused_and_changes_nothing() {
    let tree = Tree::new();
    let (before, service, now) = (tree.state(), tree.service(), Instant::now());
    let why = service.hold(7, 1.7e9, LEASE, now).expect_err("between two");
    assert!(why.contains("1.70 GHz cannot be set here, only: 1.20, 2.00, 2.40"), "{why}");
    assert_eq!(tree.state(), before);
    let none = Frequency::open(Path::new("/nonexistent").to_path_buf(), tree.file());
    assert!(none.hold(7, 1.2e9, LEASE, now).is_err());
}

#[test]
fn a_setting_that_fails_half_way_is_put_back_also_if_that_fails_at_first() {
    let tree = Tree::new();
    let (service, now) = (tree.service(), Instant::now());
    // The kernel lets nobody write the third CPU's minimum: two CPUs are set by then.
    let broken = tree.path(2, "scaling_min_freq");
    let unwritable = Path::new("/proc/sys/kernel/ngroups_max");
    fs::remove_file(&broken).expect("removed");
    std::os::unix::fs::symlink(unwritable, &broken).expect("in its place");
    let before = tree.state();
    let why = service.hold(7, 1.2e9, LEASE, now).expect_err("cannot be written");
    assert!(why.contains("cpu2"), "{why}");
    assert_eq!(tree.state(), before);
    assert!(tree.file().exists(), "of the third it is not sure");
    fs::remove_file(&broken).expect("removed");
    fs::write(&broken, fs::read(unwritable).expect("readable")).expect("a file that can be written");
    service.expire(now, |_| true);
    assert_eq!(tree.state(), before);
    assert!(!tree.file().exists());

    // A CPU goes away while the frequency is held, and comes back.
    service.hold(7, 1.2e9, LEASE, now).expect("held");
    let (cpu, away) = (tree.dir.path().join("cpu2"), tree.dir.path().join("away"));
    fs::rename(&cpu, &away).expect("gone");
    service.give_back(7);
    assert!(tree.file().exists(), "what is left to be put back is not forgotten");
    fs::rename(&away, &cpu).expect("back");
    service.expire(now, |_| true);
    assert_eq!(tree.state(), before);
}
