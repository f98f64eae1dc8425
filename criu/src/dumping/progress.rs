//! Whether a restore gets on. CRIU's processes wait for each other, and for what their program left behind: where one waits
//! for what never comes, all stand still, and nothing but a limit would ever end them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long all processes may wait, and nothing be read, before a restore counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// The same, of processes that compute.
const BUSY_PATIENCE: Duration = Duration::from_secs(600);

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Of this part of the time, a process that only polls uses less.
const BUSY: f64 = 0.1;

/// Most processes that are named.
const MOST_NAMED: usize = 3;

/// What the processes of a sandbox have done, but its first.
#[derive(Clone, Debug, Default, PartialEq)]
struct Work {
    processes: Vec<i32>,
    read_bytes: u64,
    pages: u64,
}

/// A look at all of them.
#[derive(Clone, Debug, Default)]
struct Look {
    work: Work,
    /// CPU time, s.
    cpu_s: f64,
    /// One waits for a storage, which may be slow for long and is no fault of a checkpoint.
    waits_for_storage: bool,
    /// Name, state and what it waits in, of each.
    waiting: Vec<String>,
}

/// What has been seen of a restore.
pub struct Progress {
    /// `/proc` of the sandbox.
    proc: PathBuf,
    patience: Duration,
    last: Look,
    /// For how long nothing has happened; a time in which we were stopped with all others does not count.
    still: Duration,
    looked: Instant,
}

impl Progress {
    /// Of a restore that may take so long in all: it is stuck after a quarter of that at the latest.
    pub fn new(proc: &Path, limit: Duration) -> Progress {
        let patience = PATIENCE.min(limit / 4);
        let (still, looked) = (Duration::ZERO, Instant::now());
        Progress { proc: proc.to_path_buf(), patience, last: Look::default(), still, looked }
    }

    /// Looks now and then; why the restore will not come to an end, if nothing gets on any more.
    pub fn stuck(&mut self, now: Instant) -> Option<String> {
        let since = now.duration_since(self.looked);
        if since < LOOK {
            return None;
        }
        self.looked = now;
        let look = Look::at(&self.proc);
        if look.work != self.last.work || look.waits_for_storage {
            (self.last, self.still) = (look, Duration::ZERO);
            return None;
        }
        self.still += since.min(2 * LOOK);
        let still = self.still;
        let is_busy = look.cpu_s - self.last.cpu_s > BUSY * still.as_secs_f64();
        if still < if is_busy { BUSY_PATIENCE } else { self.patience } {
            return None;
        }
        let rest = look.waiting.len().saturating_sub(MOST_NAMED);
        let more = if rest > 0 { format!(" and {rest} others") } else { String::new() };
        let named = look.waiting.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
        let what = if is_busy { "computes" } else { "waits" };
        Some(format!("criu has made no progress for {} s: all of it {what} ({named}{more})", still.as_secs()))
    }
}

impl Look {
    fn at(proc: &Path) -> Look {
        let mut look = Look::default();
        let entries = fs::read_dir(proc).into_iter().flatten().flatten();
        let mut pids: Vec<i32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        // The first is ourselves.
        for pid in pids.into_iter().filter(|pid| *pid > 1) {
            look.add(&proc.join(pid.to_string()), pid);
        }
        look
    }

    fn add(&mut self, process: &Path, pid: i32) {
        let text = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
        let stat = text("stat");
        let Some((head, rest)) = stat.rsplit_once(')') else { return };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
        let state = fields.first().copied().unwrap_or("?");
        // proc_pid_stat(5): fields 14 and 15 are CPU time, 24 is the resident set; the first here is field 3.
        self.cpu_s += (number(11) + number(12)) as f64 / ticks_a_second();
        self.work.pages += number(21);
        self.work.processes.push(pid);
        let read = text("io").lines().find_map(|l| l.strip_prefix("rchar: ")?.trim().parse::<u64>().ok());
        self.work.read_bytes += read.unwrap_or(0);
        self.waits_for_storage |= state == "D";
        let name = head.split_once('(').map_or("?", |(_, name)| name);
        let within = text("wchan");
        let within = if matches!(within.trim(), "" | "0") { String::new() } else { format!(" in {}", within.trim()) };
        self.waiting.push(format!("{name} {state}{within}"));
    }
}

fn ticks_a_second() -> f64 {
    // SAFETY: a question about a constant of the system.
    (unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(tempfile::TempDir);

    impl Fake {
        /// A process that has read and computed so much.
        fn process(&self, pid: i32, state: &str, read_bytes: u64, cpu_ticks: u64) {
            let folder = self.0.path().join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            let zeros = "0 ".repeat(10);
            let stat = format!("{pid} (a (name) {state} {zeros}{cpu_ticks} 0 0 0 0 0 1 0 5 4096 7 0");
            fs::write(folder.join("stat"), stat).unwrap();
            fs::write(folder.join("io"), format!("rchar: {read_bytes}\nwchar: 5\n")).unwrap();
            fs::write(folder.join("wchan"), "futex_wait_queue").unwrap();
        }
    }

    /// Looks once a second for so long; what is said last.
    fn after(progress: &mut Progress, seconds: u64) -> Option<String> {
        (0..seconds).map(|_| progress.stuck(progress.looked + LOOK)).last().flatten()
    }

    #[test]
    fn a_restore_is_stuck_when_nothing_gets_on_and_not_when_it_is_slow() {
        let proc = Fake(tempfile::tempdir().unwrap());
        let mut progress = Progress::new(proc.0.path(), Duration::from_secs(3600));
        proc.process(1, "R", 0, 0);
        proc.process(7, "S", 100, 1);
        assert_eq!(after(&mut progress, 60), None);
        // It reads, and is waited for again.
        proc.process(7, "S", 101, 1);
        assert_eq!(after(&mut progress, 60), None);
        // A storage that hangs is no fault of a checkpoint.
        proc.process(7, "D", 101, 1);
        assert_eq!(after(&mut progress, 900), None);
        proc.process(7, "S", 101, 1);
        assert_eq!(after(&mut progress, 57), None);
        // The job is suspended for an hour, and we with it.
        assert_eq!(progress.stuck(progress.looked + Duration::from_secs(3600)), None);
        let why = after(&mut progress, 1).expect("stuck");
        assert_eq!(why, "criu has made no progress for 60 s: all of it waits (a (name S in futex_wait_queue)");
        // Another process is progress, too.
        proc.process(8, "S", 0, 0);
        assert_eq!(after(&mut progress, 1), None);
        // One that computes has longer.
        proc.process(8, "R", 0, 10_000_000);
        assert_eq!(after(&mut progress, 599), None);
        assert!(after(&mut progress, 1).expect("stuck").contains("computes"));
    }

    #[test]
    fn it_is_stuck_after_a_quarter_of_its_time_at_the_latest() {
        let proc = Fake(tempfile::tempdir().unwrap());
        let mut progress = Progress::new(proc.0.path(), Duration::from_secs(8));
        for pid in 7..12 {
            proc.process(pid, "S", 0, 0);
        }
        assert_eq!(after(&mut progress, 2), None);
        let why = after(&mut progress, 1).expect("stuck");
        assert!(why.ends_with("and 2 others)"), "{why}");
    }

    #[test]
    fn what_the_kernel_tells_of_real_processes_is_read() {
        let look = Look::at(Path::new("/proc"));
        let own = std::process::id() as i32;
        assert!(look.work.processes.contains(&own) && look.work.pages > 0 && look.work.read_bytes > 0);
    }
}
