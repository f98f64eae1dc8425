//! Runs one relay for each group, on the group's first node and outside its step, as long as the run lasts.

use crate::ranks::RANKS;
use crate::silence::{Said, Silence};
use criu::world::socket;
use driver::groups::ports::{News, Relays, Varies};
use driver::ports::Happening;
use host::mail::{Post, Tries, Try};
use host::processes;
use options::Log;
use run::Placements;
use serde::Deserialize;
use slurm::Slurm;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Pauses before a relay that ended is started again: the first, and the longest when it ends at once each time.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(16)];

/// Time between two looks at what the relays say.
const LOOK: Duration = Duration::from_secs(1);

/// How long a program waits for its relay, s: the driver decides long before what becomes of it.
const PATIENCE_S: u32 = 3600;

/// Starts relays by steps of their own.
pub struct Steps {
    /// The real `srun`.
    pub srun: PathBuf,
    /// Where nodes answer.
    pub slurm: Arc<Slurm>,
    /// The run's folder, which all nodes see.
    pub run: PathBuf,
    /// Where the logs are kept.
    pub log: Log,
    /// Checkpoints to which a group must be able to go back.
    pub keep: u32,
    /// Until when each relay is wanted.
    pub placements: Placements,
    /// What the sockets of the relays are called, but for their groups: on each node, and of this wrapper only.
    pub sockets: String,
    /// The one MPI program whose messages they carry; without one, those of programs that talk by themselves.
    pub world: Option<Carried>,
    /// CPUs of a node, of which a relay uses one.
    pub cpus: u32,
    /// Where news go.
    pub post: Post,
    /// The relay of each group.
    pub all: Vec<Relay>,
    /// Who tells what the relays say: nobody, when they are not wanted any more.
    pub told: Tries,
}

/// The MPI program whose messages relays carry.
pub struct Carried {
    /// The relay's program.
    pub program: PathBuf,
    /// Folder of the sockets on each node.
    pub sockets: PathBuf,
    /// Tells its relays from those of other calls.
    pub name: String,
    /// World ranks of each group.
    pub ranks: String,
}

/// A line of the shell that has a program (`$@`) find a folder (`$0`) of its user only.
const OWN_FOLDER: &str = "umask 077; mkdir -p \"$0\"; [ -O \"$0\" ] && [ ! -L \"$0\" ] && exec \"$@\"; \
                          echo \"joulepoint: $0 is no folder of this user\" >&2; exit 1";

/// The relay of one group.
#[derive(Default)]
pub struct Relay {
    node: String,
    tries: Tries,
    srun: Arc<AtomicI32>,
    /// Seconds of logging that were told last.
    logged_s: f64,
    /// When the program joined of whose losses no more is told.
    heard_s: Arc<Mutex<f64>>,
    /// It was told that the program depends on when messages come.
    is_told: Arc<AtomicBool>,
    /// When the program before the newest one joined.
    before_s: f64,
    /// What was saved of a relay with a line, until this one has it, and goes on from there.
    line: Arc<Mutex<Option<PathBuf>>>,
}

impl Relay {
    /// One that goes on from what was saved with a line, if that has something of it.
    pub fn from_line(saved: PathBuf) -> Relay {
        Relay { line: Arc::new(Mutex::new(Some(saved))), ..Relay::default() }
    }
}

/// What a relay says is in no log any more.
struct Losses {
    group: usize,
    status: PathBuf,
    heard_s: Arc<Mutex<f64>>,
    /// It was told that the program depends on when messages come.
    is_told: Arc<AtomicBool>,
}

impl Losses {
    /// Who wants what the group has to send again, or that it does not repeat itself; once for each time its program has
    /// joined.
    fn news(&self) -> Option<News> {
        let status = Status::read(&self.status)?;
        if status.varies && !self.is_told.swap(true, Ordering::SeqCst) {
            return Some(News::Varies { group: self.group, why: Varies::Moments });
        }
        let mut heard_s = self.heard_s.lock().unwrap_or_else(PoisonError::into_inner);
        if status.joined_s == *heard_s {
            return None;
        }
        let differs = status.differences.first().map(|d| News::Differs { group: self.group, from: d.from, to: d.to });
        let lacks = || Some(status.lost.iter().find(|l| l.from == self.group)?.to);
        let news = differs.or_else(|| Some(News::Lacking { group: self.group, to: lacks()? }))?;
        *heard_s = status.joined_s;
        Some(news)
    }

    /// The program starts again: what was said of the one before is no news.
    fn forget(&self) {
        if let Some(status) = Status::read(&self.status) {
            *self.heard_s.lock().unwrap_or_else(PoisonError::into_inner) = status.joined_s;
        }
    }
}

/// What is read of a relay's status.
#[derive(Deserialize)]
struct Status {
    logging_s: f64,
    joined_s: f64,
    /// Absent from a relay of an earlier version.
    behind: Option<u64>,
    lost: Vec<Loss>,
    /// Messages that were sent again and were others than before; only relays of ranks know.
    #[serde(default)]
    differences: Vec<Difference>,
    /// What ranks do depends on when messages come.
    #[serde(default)]
    varies: bool,
}

/// A rank has not repeated itself.
#[derive(Deserialize)]
struct Difference {
    from: usize,
    to: usize,
}

#[derive(Deserialize)]
struct Loss {
    from: usize,
    to: usize,
}

impl Status {
    fn read(path: &Path) -> Option<Status> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }
}

/// A step of ours on a node, for one program beside those of the job: it takes nothing from them.
pub fn own_step(srun: &Path, name: &str, node: &str) -> Command {
    let mut command = Command::new(srun);
    command
        .args(["--overlap", "--nodes=1", "--ntasks=1", "--cpus-per-task=1", "--mem=0", "--input=none", "--mpi=none"])
        // A slurmctld that was killed may take a resized job's CPUs for used, and would let this step wait.
        .arg("--overcommit")
        .args([format!("--nodelist={node}"), format!("--job-name={name}")])
        // Slurm's variables of the job would ask for as many tasks as the job has.
        .env_remove("SLURM_NTASKS_PER_NODE")
        .env_remove("SLURM_NTASKS")
        .stdin(Stdio::null());
    command
}

impl Steps {
    pub(super) fn socket(&self, group: usize) -> String {
        match self.world {
            Some(_) => socket(Path::new(&self.sockets), group as u32).to_string_lossy().into_owned(),
            None => format!("{}.g{group}", self.sockets),
        }
    }

    fn status(&self, group: usize) -> PathBuf {
        self.run.join("relays").join(format!("{group}.status.json"))
    }

    fn alive(&self, group: usize) -> PathBuf {
        self.run.join("relays").join(format!("{group}.alive"))
    }

    fn losses(&self, group: usize) -> Losses {
        Losses {
            group,
            status: self.status(group),
            heard_s: self.all[group].heard_s.clone(),
            is_told: self.all[group].is_told.clone(),
        }
    }

    /// Tells the driver that a program did not go back far enough.
    pub fn watch(&self) {
        let all: Vec<Losses> = (0..self.all.len()).map(|group| self.losses(group)).collect();
        let (post, one) = (self.post.clone(), self.told.begin());
        threads::start(move || {
            while one.is_current() {
                thread::sleep(LOOK);
                for losses in &all {
                    losses.news().into_iter().for_each(|news| post.tell_of(&one, Happening::Group(news)));
                }
            }
        });
    }

    /// Name of a group's relay, of its step and of its placement.
    fn name(&self, group: usize) -> String {
        let of_call = self.world.as_ref().map(|world| format!(".{}", world.name));
        format!("relay{}.g{group}", of_call.unwrap_or_default())
    }

    fn command(&self, group: usize, node: &str) -> Command {
        let address = self.slurm.address(node);
        let mut command = match &self.world {
            None => self.of_messages(group, node),
            Some(world) => {
                let mut command = own_step(&self.srun, &self.name(group), node);
                command.args(["sh", "-c", OWN_FOLDER]).arg(&world.sockets).arg(&world.program);
                command.env(RANKS, &world.ranks);
                command
            }
        };
        command
            .arg("serve")
            .arg("--run")
            .arg(&self.run)
            .args(["--group", &group.to_string(), "--groups", &self.all.len().to_string()])
            .args(["--log", self.log.as_str(), "--keep", &self.keep.to_string()])
            .args(["--status-every", "2", "--lost", "wait"])
            .args(["--advertise", &address, "--socket", &self.socket(group)])
            .env("JOULEPOINT_LOG", "warn");
        command
    }

    /// A step of a relay for programs that talk by themselves.
    fn of_messages(&self, group: usize, node: &str) -> Command {
        let beside = std::env::current_exe().ok().map(|me| me.with_file_name("joulepoint-relay"));
        let program = beside.filter(|p| p.is_file()).unwrap_or_else(|| PathBuf::from("joulepoint-relay"));
        let mut command = own_step(&self.srun, &self.name(group), node);
        command.arg(program);
        command
    }

    /// Asks the relay of a group, which is on its node, for something; `verb` and what follows it.
    ///
    /// # Errors
    /// A sentence: it has not done it.
    pub fn ask(&self, group: usize, verb: &[&str]) -> Result<Command, String> {
        let (Some(world), node) = (&self.world, &self.all[group].node) else {
            return Err("its relay knows no ranks".to_string());
        };
        if node.is_empty() {
            return Err(format!("group {group} has no relay"));
        }
        let mut command = own_step(&self.srun, &format!("{}.{}", self.name(group), verb[0]), node);
        command.arg(&world.program).args(verb).arg("--run").arg(&self.run).args(["--group", &group.to_string()]);
        Ok(command)
    }
}

impl Relays for Steps {
    fn place(&mut self, group: usize, node: &str) {
        if self.all[group].node == node {
            return;
        }
        // What an earlier relay said is heard, and what it counted is accounted for.
        let _ = fs::remove_file(self.status(group));
        let command = self.command(group, node);
        let (placements, place) = (self.placements.clone(), self.name(group));
        let logs = self.run.join("relays").join(format!("{group}.ranks"));
        let line = Line { saved: self.all[group].line.clone(), logs };
        let relay = &mut self.all[group];
        // First of all, so that what still tries to start the relay before takes no place any more.
        let one = relay.tries.begin();
        if !std::mem::replace(&mut relay.node, node.to_string()).is_empty() {
            placements.over(&placements.of(&place));
        }
        end(&relay.srun);
        // Each try has its own: the thread of an earlier one notes the end of its srun when it likes.
        relay.srun = Arc::default();
        let (srun, said) = (relay.srun.clone(), Said::default());
        let watch = Silence { group, node: node.to_string(), alive: self.alive(group), said: said.clone() };
        let (wanted, post) = (one.clone(), self.post.clone());
        threads::start(move || watch.tell(&wanted, &post, LOOK));
        let lost = (self.log == Log::Memory).then(|| self.post.clone());
        let node = node.to_string();
        let mut kept = Kept { command, group, node, placements, place, line };
        threads::start(move || kept.serve(&one, &srun, &said, lost.as_ref()));
    }

    fn starts(&mut self, group: usize) {
        self.losses(group).forget();
        if let Some(status) = Status::read(&self.status(group)) {
            self.all[group].before_s = status.joined_s;
        }
    }

    fn behind(&mut self, group: usize) -> Option<u64> {
        let status = Status::read(&self.status(group))?;
        let joined = status.joined_s > 0.0 && status.joined_s != self.all[group].before_s;
        status.behind.filter(|_| joined)
    }

    fn variables(&self, group: usize) -> Vec<(String, String)> {
        let variable = |name: &str, value| (name.to_string(), value);
        vec![variable("FT_ENERGY_RELAY", self.socket(group)), variable("FT_ENERGY_RELAY_WAIT", PATIENCE_S.to_string())]
    }

    fn logged_node_s(&mut self, group: usize) -> f64 {
        let Some(Status { logging_s, .. }) = Status::read(&self.status(group)) else { return 0.0 };
        // A relay that was started again counts from zero.
        let before_s = std::mem::replace(&mut self.all[group].logged_s, logging_s);
        let new_s = if logging_s < before_s { logging_s } else { logging_s - before_s };
        new_s / f64::from(self.cpus.max(1))
    }

    fn stop(&mut self) {
        self.told.void();
        for relay in &self.all {
            relay.tries.void();
            end(&relay.srun);
        }
    }
}

/// `srun` ends its step on SIGTERM.
fn end(srun: &AtomicI32) {
    let pid = srun.swap(0, Ordering::SeqCst);
    if pid > 0 {
        processes::signal(pid, libc::SIGTERM);
    }
}

/// What a relay goes on from, and where it keeps its logs.
struct Line {
    saved: Arc<Mutex<Option<PathBuf>>>,
    logs: PathBuf,
}

impl Line {
    /// Puts the log of a line where the relay will find it, once; nothing, if the line has none of this call.
    fn take(&self) -> Result<(), mpi_relay::Error> {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = saved.as_ref() {
            match fs::metadata(folder) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                _ => mpi_relay::line::go_back(&self.logs, folder)?,
            }
            *saved = None;
        }
        Ok(())
    }
}

/// A relay that is kept running.
struct Kept {
    command: Command,
    group: usize,
    node: String,
    placements: Placements,
    /// Its place in the run.
    place: String,
    line: Line,
}

impl Kept {
    /// Starts it as often as it ends; `lost` is told if a log in memory ends with it.
    fn serve(&mut self, one: &Try, srun: &AtomicI32, said: &Said, lost: Option<&Post>) {
        self.command.stderr(Stdio::piped());
        let (group, node) = (self.group, self.node.as_str());
        let [first, longest] = PAUSES;
        let mut pause = first;
        loop {
            let begun = Instant::now();
            // One whose step slurmctld has forgotten is ended by nobody else.
            let placement = self.placements.of(&self.place);
            if !one.is_current() {
                return;
            }
            if let Err(e) = self.line.take() {
                tracing::error!(group, %e, "a relay cannot go back to what was saved of it; it is tried again");
                said.keep(&format!("joulepoint-mpi-relay: {e}"));
                thread::sleep(pause);
                continue;
            }
            match self.command.env("JOULEPOINT_PLACEMENT", placement.to_string()).spawn() {
                Ok(mut child) => {
                    srun.store(child.id() as i32, Ordering::SeqCst);
                    // Whoever called this try off before the line above found nothing to end.
                    if !one.is_current() {
                        end(srun);
                    }
                    child.stderr.take().into_iter().for_each(|from| said.hear(from));
                    let ended = child.wait();
                    srun.store(0, Ordering::SeqCst);
                    self.placements.over(&placement);
                    if one.is_current() {
                        tracing::warn!(group, node, ?ended, "the relay ended; it is started again");
                        lost.inspect(|post| post.tell_of(one, Happening::Group(News::LogLost { group })));
                    }
                }
                Err(e) => {
                    tracing::error!(group, node, %e, "the relay cannot be started");
                    said.keep(&format!("srun: {e}"));
                }
            }
            thread::sleep(pause);
            pause = if begun.elapsed() > 2 * longest { first } else { longest.min(2 * pause) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_relay_that_moves_leaves_none_behind_however_late_its_srun_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (srun, run) = (dir.path().join("srun"), dir.path().join("run"));
        // One that takes a moment to end, and marks that it runs.
        let script = format!(
            "#!/bin/sh\nexec >/dev/null 2>&1\nmark={}.$$\ntrap 'sleep 0.3; rm $mark; exit' TERM\ntouch $mark\n\
             for n in $(seq 1000); do sleep 0.02; done\n",
            dir.path().join("runs").display()
        );
        let text = dir.path().join("text");
        std::fs::write(&text, script).unwrap();
        // A copy made by a child: a file of ours may just be open in what another test starts, and cannot be run.
        assert!(std::process::Command::new("install").args([&text, &srun]).status().unwrap().success());
        let (post, _clock) = host::mail::queue();
        let slurm = Arc::new(Slurm::new(Some(dir.path().to_path_buf())));
        let (sockets, all) = (String::new(), vec![Relay::default()]);
        std::fs::create_dir(&run).unwrap();
        let taken = run::take_up(&run, &run::line::Claim::default(), run::Patience::NONE).unwrap();
        let placements = Placements::of_holder(&run, &taken.holder);
        let mut relays = Steps {
            srun,
            slurm,
            run,
            log: Log::Disk,
            keep: 1,
            placements: placements.clone(),
            sockets,
            world: None,
            cpus: 1,
            post,
            all,
            told: Tries::default(),
        };
        let marks = || glob::glob(&format!("{}.*", dir.path().join("runs").display())).unwrap().count();
        let wait_for = |count: usize, more: Duration| {
            let begun = Instant::now();
            while marks() != count {
                assert!(begun.elapsed() < Duration::from_secs(60), "{} instead of {count}", marks());
                thread::sleep(Duration::from_millis(10));
            }
            thread::sleep(more);
        };
        for node in ["n1", "n2", "n3", "n4"] {
            relays.place(0, node);
            wait_for(1, Duration::from_millis(500));
        }
        assert_eq!(
            placements.of("relay.g0").number,
            3,
            "each is told that its placement is over, whatever Slurm knows of it"
        );
        relays.stop();
        wait_for(0, Duration::ZERO);
    }

    #[test]
    fn a_loss_is_told_once_for_each_join_and_not_after_the_program_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        let status = dir.path().join("1.status.json");
        let losses = Losses { group: 1, status: status.clone(), heard_s: Arc::default(), is_told: Arc::default() };
        let says = |joined_s: f64, from: usize| {
            let lost = format!("[{{\"from\": {from}, \"to\": 2, \"number\": 7}}]");
            let text = format!("{{\"logging_s\": 0.0, \"joined_s\": {joined_s}, \"lost\": {lost}}}");
            std::fs::write(&status, text).unwrap();
            losses.news()
        };
        assert_eq!(says(10.0, 0), None, "that is for group 0 to send");
        let lacks = Some(News::Lacking { group: 1, to: 2 });
        assert_eq!((says(10.0, 1), says(10.0, 1)), (lacks.clone(), None));
        assert_eq!(says(20.0, 1), lacks);
        says(30.0, 0);
        losses.forget();
        assert_eq!((says(30.0, 1), says(40.0, 1)), (None, lacks));
        let text = r#"{"logging_s": 0.0, "joined_s": 50.0, "lost": [], "differences": [{"from": 3, "to": 0}]}"#;
        std::fs::write(&status, text).unwrap();
        assert_eq!((losses.news(), losses.news()), (Some(News::Differs { group: 1, from: 3, to: 0 }), None));
        let text = r#"{"logging_s": 0.0, "joined_s": 50.0, "lost": [], "varies": true}"#;
        std::fs::write(&status, text).unwrap();
        assert_eq!((losses.news(), losses.news()), (Some(News::Varies { group: 1, why: Varies::Moments }), None));
    }
}
