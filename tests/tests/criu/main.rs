//! Unmodified programs of an ordinary user are killed with all that holds them, and end as if they had not been.
//!
//! Needs root (to become an ordinary user, and to kill whole nodes) and a CRIU that works here: `JOULEPOINT_CRIU`, or
//! the one that `packaging/criu.sh` fetches; without it every test says that it skipped.

mod sheltered;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sheltered::{Home, LIMIT, NOBODY, Place, complete, text};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use suite::transparent::{LARGE, MEMORY, Program, STATE, THREADS, TREE, USER};
use suite::{Site, Wanted, repository};

/// A seed that can be given again: `SEED=7`.
fn random(name: &str) -> ChaCha8Rng {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    println!("{name}: SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

/// How often each program is killed, and whether somebody asked for that.
fn kills() -> (u32, bool) {
    let asked = std::env::var("JOULEPOINT_KILLS").ok().and_then(|n| n.parse().ok());
    (asked.unwrap_or(3), asked.is_some())
}

/// Steps of a program that needs some seconds for `each` of them, so that there is a checkpoint before each kill.
fn steps(each: u32) -> u32 {
    (kills().0 + 1) * each
}

/// Kills the node of a program again and again at random moments, and compares.
fn survives(program: Program, steps: u32) {
    let Some(place) = Place::get() else { return };
    let (kills, name) = (kills().0, program.name);
    let argv = program.argv(&place.0, steps);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let begun = Instant::now();
    let reference = place.home(&format!("{name}-undisturbed"));
    let code = reference.undisturbed(&argv);
    let home = place.home(name);
    let mut random = random(name);
    let mut child = home.start(&argv, false);
    let mut killed = 0;
    while killed < kills {
        home.wait_for_line(&mut child);
        thread::sleep(Duration::from_millis(random.random_range(0..2000)));
        if child.try_wait().expect("a child").is_some() {
            // A dump on a busy disk may take most of the time of the program.
            assert!(killed > 0, "{name} ended before it was killed: {}", home.said());
            break;
        }
        child.kill().expect("a child");
        child.wait().expect("a child");
        killed += 1;
        println!("{name}: killed, {} s", begun.elapsed().as_secs());
        child = home.start(&argv, true);
    }
    assert_eq!(home.end(&mut child), code, "{}", home.said());
    for file in ["out"].iter().chain(program.files) {
        assert!(home.read(file) == reference.read(file), "{name}: {file} differs in {}", home.folder.display());
    }
    assert!(home.set_aside().is_empty(), "{name} began anew or further back: {:?}", home.set_aside());
    let seconds = begun.elapsed().as_secs();
    println!("{name}: {killed} kills, {seconds} s, the output is that of an undisturbed run");
    // Images are large.
    [home, reference].iter().for_each(|h| fs::remove_dir_all(&h.folder).expect("a folder"));
}

#[test]
fn a_program_with_threads_ends_as_if_undisturbed() {
    survives(THREADS, steps(130));
}

#[test]
fn a_tree_of_processes_with_pipes_and_an_orphan_ends_as_if_undisturbed() {
    survives(TREE, steps(30));
}

#[test]
fn a_python_program_with_shared_memory_and_temporary_files_ends_as_if_undisturbed() {
    survives(STATE, steps(30));
}

/// 1 GiB if kills were asked for: then it must outlast a dump on a slow disk.
#[test]
fn a_program_with_much_memory_ends_as_if_undisturbed() {
    let (program, more) = if kills().1 { (LARGE, 1200) } else { (MEMORY, 0) };
    survives(program, steps(60) + more);
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
fn a_program_that_was_stopped_goes_on_when_it_is_told_to_also_at_a_checkpoint() {
    use nix::sys::signal::{Signal, kill};
    let Some(place) = Place::get() else { return };
    let program = place.path("threads").to_string_lossy().into_owned();
    let home = place.home("stopped");
    let mut child = home.start(&[program.as_str(), "200"], false);
    while complete(&home.folder).is_empty() {
        home.wait_for_line(&mut child);
    }
    let all = |signal| {
        for pid in below(child.id(), &program).into_iter().filter(|pid| !is_ours(*pid)) {
            kill(nix::unistd::Pid::from_raw(pid), signal).expect("it runs");
        }
    };
    all(Signal::SIGSTOP);
    // Told to go on at the worst moment: while CRIU holds it.
    let until = Instant::now() + Duration::from_secs(6);
    while Instant::now() < until && below(child.id(), "--unprivileged").is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    all(Signal::SIGCONT);
    assert_eq!(home.end(&mut child), Some(3), "{}", home.said());
    assert!(home.said().contains("is stopped by a signal"), "{}", home.said());
}

#[test]
fn a_lock_on_a_file_that_is_mapped_is_held_after_the_node_has_died() {
    let Some(place) = Place::get() else { return };
    let home = place.home("locks");
    let lock = "import fcntl, mmap, os, time\nf = open('lock', 'w+b'); f.write(b'0' * 100); f.flush()\n\
                fcntl.lockf(f, fcntl.LOCK_EX, 10, 0); m = mmap.mmap(f.fileno(), 100)\n\
                if os.fork():\n    os.wait()\nelse:\n    other = open('lock', 'r+b'); taken = 0\n    for _ in range(40):\n        \
                try: fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0); taken += 1\n        except OSError: pass\n        \
                time.sleep(0.2)\n    print('taken', taken, flush=True)\n";
    let mut child = home.start(&["python3", "-c", lock], false);
    home.wait_for_line(&mut child);
    child.kill().expect("a child");
    child.wait().expect("a child");
    let mut child = home.start(&["python3", "-c", lock], true);
    assert_eq!(home.end(&mut child), Some(0), "{}", home.said());
    assert_eq!(home.read("out"), "taken 0\n", "{}", home.said());
    assert!(home.set_aside().is_empty(), "{:?}", home.set_aside());
}

#[test]
fn a_signal_for_all_processes_of_a_job_reaches_the_program_once() {
    use nix::sys::signal::{Signal, kill};
    let Some(place) = Place::get() else { return };
    let home = place.home("signalled");
    let script = "import signal, time\nheard = []\nsignal.signal(signal.SIGUSR1, lambda *_: heard.append(1))\nprint('begun', flush=True)\n\
                  while not heard: time.sleep(0.05)\ntime.sleep(1)\nprint('heard', len(heard))\n";
    let mut child = home.start(&["python3", "-c", script], false);
    let limit = Instant::now() + LIMIT;
    while !home.read("out").contains("begun") {
        assert!(Instant::now() < limit, "{}", home.said());
        thread::sleep(Duration::from_millis(50));
    }
    // But for the shell that stands for the node.
    let is_of_job =
        |pid: &i32| !fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().starts_with("bash");
    let all: Vec<i32> = below(child.id(), "python3").into_iter().filter(is_of_job).collect();
    all.iter().for_each(|pid| kill(nix::unistd::Pid::from_raw(*pid), Signal::SIGUSR1).expect("it runs"));
    assert_eq!(home.end(&mut child), Some(0), "{}", home.said());
    assert_eq!(home.read("out"), "begun\nheard 1\n", "{}", home.said());
}

/// Whether a process is one of our own.
fn is_ours(pid: i32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.starts_with("joulepoint")
}

/// Changes the largest file of a checkpoint.
fn damage(checkpoint: &Path) {
    let all = glob::glob(&checkpoint.join("**/*").to_string_lossy()).expect("a pattern").flatten();
    let largest = all.filter(|path| path.is_file()).max_by_key(|path| fs::metadata(path).map_or(0, |m| m.len()));
    let largest = largest.expect("it has files");
    let mut bytes = fs::read(&largest).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&largest, bytes).expect("damage");
}

/// What a checkpoint holds, and what of it was written for it alone, bytes.
fn sizes(checkpoint: &Path) -> (u64, u64) {
    let text = fs::read(checkpoint.join("manifest.json")).expect("a manifest");
    let manifest: protocol::Manifest = serde_json::from_slice(&text).expect("a manifest");
    (manifest.files.iter().map(|file| file.bytes).sum(), manifest.written_bytes())
}

#[test]
fn a_checkpoint_writes_what_has_changed_and_none_takes_the_one_before_with_it() {
    let Some(place) = Place::get() else { return };
    let program = place.path("memory").to_string_lossy().into_owned();
    let argv = [program.as_str(), "64", "500", "5"];
    let reference = place.home("increments-undisturbed");
    let code = reference.undisturbed(&argv);
    let home = place.home("increments");
    let mut child = home.start(&argv, false);
    while complete(&home.folder).pop().is_none_or(|newest| sizes(&newest).1 * 100 > sizes(&newest).0 * 12) {
        home.wait_for_line(&mut child);
    }
    child.kill().expect("a child");
    child.wait().expect("a child");
    let mut child = home.start(&argv, true);
    (0..2).for_each(|_| home.wait_for_line(&mut child));
    child.kill().expect("a child");
    child.wait().expect("a child");
    assert!(home.set_aside().is_empty(), "{:?}", home.set_aside());
    damage(&complete(&home.folder).pop().expect("some"));
    let mut child = home.start(&argv, true);
    assert_eq!(home.end(&mut child), code, "{}", home.said());
    assert!(home.read("out") == reference.read("out"), "{}", home.folder.display());
    assert!(home.said().contains("is damaged and not used") && !home.said().contains("begins anew"), "{}", home.said());
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
    damage(&newest);
    let mut child = home.start(&argv, true);
    assert_eq!(home.end(&mut child), code, "{}", home.said());
    assert!(home.read("out") == reference.read("out"), "{}", home.folder.display());
    assert!(newest.join("manifest.damaged").exists() || !newest.exists(), "{}", home.said());
}

#[test]
fn a_program_sees_its_users_name_and_gains_no_right() {
    let Some(place) = Place::get() else { return };
    let home = place.home("rights");
    let script = "id -un; grep CapEff /proc/self/status; touch ro; chmod 400 ro; echo x >ro; ls /proc/self/fd | wc -l; \
                  id -u; grep CapInh /proc/self/status; cp -p /etc/passwd copy && echo copied; unshare -Ur id -u";
    let mut child = home.start(&["bash", "-c", script], false);
    home.end(&mut child);
    let out = home.read("out");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "nobody", "{out}{}", home.said());
    assert!(lines[1].ends_with("0000000000000000"), "{out}");
    assert!(home.said().contains("Permission denied"), "{out}");
    // Standard input, output and error, and the folder that ls reads.
    assert_eq!(lines[2], "4", "{out}");
    // The number is the user's own, so that Slurm's commands and file servers hear the truth, and more namespaces nest.
    assert_eq!(lines[3], NOBODY.to_string(), "{out}");
    assert!(lines[4].ends_with("0000000000000000"), "{out}");
    assert_eq!(lines[5..], ["copied", "0"], "{out}{}", home.said());
}

#[test]
fn a_restored_program_has_its_users_number_and_no_right() {
    let Some(place) = Place::get() else { return };
    let home = place.home("restored-rights");
    let script = "until [ -e enough ]; do sleep 0.1; done; id -u; grep -h Cap /proc/self/status | grep -v CapBnd";
    let mut child = home.start(&["bash", "-c", script], false);
    while complete(&home.folder).is_empty() {
        assert!(child.try_wait().expect("a child").is_none(), "{}", home.said());
        thread::sleep(Duration::from_millis(50));
    }
    child.kill().expect("a child");
    child.wait().expect("a child");
    fs::write(home.folder.join("enough"), "").expect("a file");
    let mut child = home.start(&["bash", "-c", script], true);
    assert_eq!(home.end(&mut child), Some(0), "{}", home.said());
    let out = home.read("out");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], NOBODY.to_string(), "{out}");
    assert!(lines.len() == 5 && lines[1..].iter().all(|line| line.ends_with("0000000000000000")), "{out}");
}

/// Kills a program that waits for the file `enough`, and lets it come to its end from a checkpoint.
fn comes_back(home: &Home, argv: &[&str]) {
    let mut child = home.start(argv, false);
    home.wait_for_line(&mut child);
    child.kill().expect("a child");
    child.wait().expect("a child");
    fs::write(home.folder.join("enough"), "").expect("a file");
    let mut child = home.start(argv, true);
    assert_eq!(home.end(&mut child), Some(0), "{}", home.said());
    assert!(home.set_aside().is_empty(), "{}", home.said());
}

/// Keeps its output as its highest descriptor, as valgrind keeps files of its own.
const HIGHEST: &str = "import os, resource, time
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
os.dup2(1, most - 1)
while not os.path.exists('enough'): time.sleep(0.1)
os.write(most - 1, b'here')";

#[test]
fn a_program_that_has_its_highest_descriptor_comes_back() {
    let Some(place) = Place::get() else { return };
    let home = place.home("highest");
    comes_back(&home, &["python3", "-c", HIGHEST]);
    assert_eq!(home.read("out"), "here", "{}", home.said());
}

/// A file that has no name, mapped and open: what is written by one way is read by the other, in a child, too.
const NAMELESS: &str = "import mmap, os, tempfile, time
shm = tempfile.TemporaryFile(dir='/dev/shm')
files = [os.memfd_create('x'), shm.fileno()]
maps = []
for fd in files:
    os.ftruncate(fd, 4096)
    maps.append(mmap.mmap(fd, 4096))
child = os.fork()
while not os.path.exists('enough'): time.sleep(0.1)
time.sleep(0.5 if child else 0)
if child == 0:
    for m in maps: m[0] = 7
    os._exit(0)
os.waitpid(child, 0)
print([m[0] for m in maps], [os.pread(fd, 1, 0)[0] for fd in files], flush=True)";

#[test]
fn a_file_without_a_name_that_is_mapped_and_open_stays_one() {
    let Some(place) = Place::get() else { return };
    if !place.path("criu/root/patch").exists() {
        println!("skipped: this CRIU has no patch");
        return;
    }
    let home = place.home("nameless");
    comes_back(&home, &["python3", "-c", NAMELESS]);
    assert_eq!(home.read("out"), "[7, 7] [7, 7]\n", "{}", home.said());
}

/// Shared memory of which little is used, and some of which two processes have mapped different parts, one of them with
/// something else where its beginning was.
const PARTS: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define MIB (1ul << 20)
static char *map(void *where, unsigned long bytes, int flags) {
    return mmap(where, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}
static int is_whole(char *part, unsigned long from, unsigned long to) {
    for (unsigned long at = from; at < to; at += 4096)
        if (*(unsigned long *)(part + at) != (at / 4096 % 3 ? 0 : at + 7)) return 0;
    return 1;
}
int main(void) {
    char *large = map(0, 2048 * MIB, MAP_SHARED), *part = map(0, 64 * MIB, MAP_SHARED), line[200];
    for (unsigned long at = 0; at < 2048 * MIB; at += 256 * MIB) large[at] = 1;
    for (unsigned long at = 0; at < 64 * MIB; at += 3 * 4096) *(unsigned long *)(part + at) = at + 7;
    int child = fork(), ended = -1;
    if (child) {
        munmap(part, 32 * MIB);
        memset(map(part, 32 * MIB, MAP_PRIVATE | MAP_FIXED), 9, 32 * MIB);
    } else munmap(part + 16 * MIB, 16 * MIB);
    while (access("enough", F_OK)) usleep(100000);
    int whole = child ? is_whole(part, 32 * MIB, 64 * MIB) && part[0] == 9 && part[32 * MIB - 1] == 9
                      : is_whole(part, 0, 16 * MIB) && is_whole(part, 32 * MIB, 64 * MIB);
    for (unsigned long at = 0; at < 2048 * MIB; at += 256 * MIB) whole &= large[at] == 1;
    if (!child) return !whole;
    waitpid(child, &ended, 0);
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status)) sscanf(line, "RssShmem: %ld", &kib);
    printf("%s %s %s\n", whole ? "whole" : "wrong", ended ? "wrong" : "whole", kib < 100000 ? "little" : "all");
    return 0;
}
"#;

#[test]
fn shared_memory_comes_back_as_it_was_and_takes_no_more_than_it_did() {
    let Some(place) = Place::get() else { return };
    let home = place.home("parts");
    let program = home.folder.join("parts");
    fs::write(program.with_extension("c"), PARTS).expect("a file");
    let made = Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(program.with_extension("c")).status();
    assert!(made.expect("cc").success());
    comes_back(&home, &[&program.display().to_string()]);
    assert_eq!(home.read("out"), "whole whole little\n", "{}", home.said());
}

/// A daemon, whose parent has ended and which is in a session of its own, and a connection within the job with more to send than its
/// reader takes.
const DAEMON: &str = "import os, socket, sys, time
def daemon():
    out = open('daemon', 'w')
    while not os.path.exists('enough'): time.sleep(0.1)
    time.sleep(1)
    out.write('ended'); out.close(); os._exit(0)
if os.fork() == 0:
    os.setsid()
    os.fork() == 0 and daemon()
    os._exit(0)
os.wait()
listener = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    writer = socket.create_connection(listener.getsockname())
    writer.sendall(b'x' * (64 << 20)); os._exit(0)
reader, _ = listener.accept()
while not os.path.exists('enough'): time.sleep(0.1)
count = 0
while data := reader.recv(1 << 20): count += len(data)
os.wait()
while os.path.getsize('daemon') == 0: time.sleep(0.1)
print(count >> 20, open('daemon').read(), flush=True)";

#[test]
fn a_daemon_and_what_a_connection_has_not_sent_are_there_after_two_dead_nodes() {
    let Some(place) = Place::get() else { return };
    let home = place.home("daemon");
    let argv = ["python3", "-c", DAEMON];
    let mut resume = false;
    for _ in 0..2 {
        let mut child = home.start_with(&["-o", "ft-energy-network=own"], &argv, resume);
        home.wait_for_line(&mut child);
        child.kill().expect("a child");
        child.wait().expect("a child");
        resume = true;
    }
    fs::write(home.folder.join("enough"), "").expect("a file");
    let mut child = home.start_with(&["-o", "ft-energy-network=own"], &argv, true);
    assert_eq!(home.end(&mut child), Some(0), "{}", home.said());
    assert_eq!(home.read("out"), "64 ended\n", "{}", home.said());
    assert!(home.set_aside().is_empty(), "{}", home.said());
}

/// Holds a lease, which opening the file breaks; a signal for that ends it.
const LEASE: &str = "import fcntl, os, time
held = open('leased', 'w'); fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('holds', flush=True)
time.sleep(5)
fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
while not os.path.exists('enough'): time.sleep(0.1)
print('lives', flush=True)";

#[test]
fn a_checkpoint_ends_no_program_that_holds_a_lease_and_is_made_later() {
    let Some(place) = Place::get() else { return };
    let home = place.home("lease");
    comes_back(&home, &["python3", "-c", LEASE]);
    assert_eq!(home.read("out"), "holds\nlives\n", "{}", home.said());
    assert!(home.said().contains("holds a lease"), "{}", home.said());
}

/// Ranks that talk all the time, until there is a file `enough`.
const TALKERS: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
static int block[100000], all[100000];
int main(int count, char **words) {
    int rank, size, enough = 0;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (long turn = 0; !enough; turn++) {
        for (int i = 0; i < 100000; i++) block[i] = rank + turn + i;
        MPI_Allreduce(block, all, 100000, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < 100000; i++) if (all[i] != size * (size - 1) / 2 + (int)(size * (turn + i))) MPI_Abort(MPI_COMM_WORLD, 9);
        enough = rank == 0 && access("enough", F_OK) == 0;
        MPI_Bcast(&enough, 1, MPI_INT, 0, MPI_COMM_WORLD);
        usleep(5000);
    }
    if (rank == 0) printf("%d ranks\n", size);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn ranks_of_mpich_within_a_node_come_back() {
    let Some(place) = Place::get() else { return };
    let home = place.home("mpich");
    fs::write(home.folder.join("talkers.c"), TALKERS).expect("a file");
    let compiler = ["-O1", "-o", "talkers", "talkers.c"];
    let Ok(built) = Command::new("mpicc.mpich").args(compiler).current_dir(&home.folder).status() else {
        println!("skipped: there is no mpicc.mpich");
        return;
    };
    assert!(built.success());
    comes_back(&home, &["mpirun.mpich", "-n", "3", "./talkers"]);
    assert_eq!(home.read("out"), "3 ranks\n", "{}", home.said());
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

/// Runs a command where nobody may make a namespace, without harm to this machine: the setting is a namespace's own.
const WITHOUT_NAMESPACES: [&str; 6] = [
    "unshare",
    "--user",
    "--map-root-user",
    "sh",
    "-c",
    "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$0\" \"$@\"",
];

#[test]
fn where_criu_cannot_work_the_job_runs_and_says_why_it_is_not_protected() {
    let Some(place) = Place::get() else { return };
    let (home, criu) = (place.home("without"), place.path("criu/criu"));
    let cases = [
        (&[][..], "/bin/false", "criu left no reason in its log"),
        (
            &WITHOUT_NAMESPACES,
            criu.to_str().expect("a path"),
            "its administrator can set user.max_user_namespaces higher",
        ),
    ];
    for (around, criu, why) in cases {
        let conf = home.folder.join("other.toml");
        fs::write(&conf, format!("[energy]\nsources = [\"model\"]\n\n[criu]\ncommand = {criu:?}\n"))
            .expect("a site file");
        let ours = place.path("joulepoint");
        // Whoever asks for it by name does not want to run without.
        for (engine, ran, code) in [("ft-energy-requeue=no", "done", 0), ("ft-energy-engine=criu", "", 122)] {
            let ours = ours.to_str().expect("a path");
            let run = [ours, "run", "-o", "ft-energy", "-o", engine, "--", "echo", "done"];
            let words = [around, &run].concat();
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).env("JOULEPOINT_CONF", &conf).env("HOME", &home.folder).current_dir(&home.folder);
            let output = command.uid(NOBODY).gid(NOBODY).output().expect("it runs");
            let said = text(&output.stderr);
            assert_eq!((text(&output.stdout).as_str(), output.status.code()), (ran, Some(code)), "{said}");
            for word in ["NOT PROTECTED", "the engine criu does not work on this node", "app or hook", why] {
                assert!(said.contains(word), "{said}");
            }
        }
    }
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
    let on_gpu = format!("{} 400 /nowhere", place.path("on-gpu").display());
    let programs = [("threads", threads, 3), ("heat", heat, 0), ("on-gpu", on_gpu, 7)];
    for (name, program, code) in &programs {
        let reference = place.home(&format!("{name}-job-undisturbed"));
        let words: Vec<&str> = program.split(' ').collect();
        assert_eq!(reference.undisturbed(&words), Some(*code), "{}", reference.said());
    }
    let wanted = Wanted {
        // Half of them dead at once would be left to Slurm, as a partition.
        nodes: 5,
        toml: format!(
            "[criu]\ncommand = {:?}\ncompress = \"zstd\"\n\n{}",
            place.path("criu/criu"),
            Wanted::default().toml
        ),
        shared: vec![place.0.clone()],
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
