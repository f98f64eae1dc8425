//! Programs of four kinds that know nothing of checkpoints (`apps/transparent`), and jobs of them whose nodes are
//! killed under the engine criu: for the suites and random kills.

use crate::{Fetched, Site, Wanted, fetch, repository};
use anyhow::{Context, Result, bail, ensure};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// An ordinary user of the cluster.
pub const USER: &str = "jpalice";

/// One program, with a last word that says how many steps it makes.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What to call it.
    pub name: &'static str,
    /// Its words but for the last; `{}` is the folder of the programs.
    words: &'static [&'static str],
    /// What it writes beside its standard output, in its working folder.
    pub files: &'static [&'static str],
    /// Least time of a step, s.
    step_s: f64,
    /// Time that it must go on for between two kills, so that there is a checkpoint, s.
    life_s: f64,
}

/// Four threads in step with each other.
pub const THREADS: Program = Program { name: "threads", words: &["{}/threads"], files: &[], step_s: 0.02, life_s: 8.0 };

/// Processes joined by pipes, and an orphan.
pub const TREE: Program =
    Program { name: "tree", words: &["{}/tree.sh"], files: &["orphan.log"], step_s: 0.1, life_s: 8.0 };

/// Python with threads, shared memory and temporary files.
pub const STATE: Program =
    Program { name: "state", words: &["python3", "{}/state.py"], files: &["state.log"], step_s: 0.1, life_s: 8.0 };

/// 64 MiB that change.
pub const MEMORY: Program =
    Program { name: "memory", words: &["{}/memory", "64"], files: &[], step_s: 0.05, life_s: 8.0 };

/// 1 GiB that changes: a dump of it takes long.
pub const LARGE: Program =
    Program { name: "1-GiB", words: &["{}/memory", "1024"], files: &[], step_s: 0.05, life_s: 8.0 };

/// Builds the programs in a folder.
///
/// # Errors
/// The compiler is missing, or says why not.
pub fn build(into: &Path) -> Result<()> {
    let sources = repository().join("apps/transparent");
    for program in ["threads", "memory"] {
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-pthread", "-o"]).arg(into.join(program)).arg(sources.join(program).with_extension("c"));
        ensure!(cc.status().context("cc")?.success(), "cc {program}");
    }
    let on_gpu = repository().join("gpu/tests/data/build.sh");
    ensure!(Command::new("sh").arg(on_gpu).arg(into).status()?.success(), "the libraries in the place of NVIDIA's");
    for script in ["tree.sh", "state.py"] {
        fs::copy(sources.join(script), into.join(script)).with_context(|| script.to_string())?;
    }
    Ok(())
}

impl Program {
    /// All its words.
    pub fn argv(&self, folder: &Path, steps: u32) -> Vec<String> {
        let words = self.words.iter().map(|w| w.replace("{}", &folder.to_string_lossy()));
        words.chain([steps.to_string()]).collect()
    }

    /// Steps for so many kills.
    fn steps(&self, kills: u32) -> u32 {
        (f64::from(kills + 1) * self.life_s / self.step_s) as u32
    }
}

/// A site whose users have a CRIU that works, and the programs in its folder `bin`; why not, where CRIU cannot be had.
///
/// # Errors
/// The site does not start.
pub fn site(dir: &Path, nodes: u32, progress: &mut dyn FnMut(&str)) -> Result<Result<Site, String>> {
    let own = dir.with_extension("criu");
    if let Err(reason) = fetch(Fetched::Criu, &own) {
        return Ok(Err(reason));
    }
    let toml = format!(
        "[criu]\ncommand = {:?}\n\n[wrapper]\nstep_retries = 1000\n\n{}",
        own.join("criu"),
        Wanted::default().toml
    );
    let site = Site::start(dir, &Wanted { nodes, toml, shared: vec![own], ..Wanted::default() }, progress)?;
    build(&bin(&site))?;
    Ok(Ok(site))
}

fn bin(site: &Site) -> PathBuf {
    site.conf.with_file_name("bin")
}

/// How a job starts its program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// In its script, which is dumped as a whole.
    Batch,
    /// By `srun`: the task of the step is dumped.
    Srun,
}

/// One job of a program, whose nodes are killed.
pub struct Played {
    /// What runs.
    pub program: Program,
    /// How.
    pub way: Way,
    /// Slurm's number.
    pub job: u32,
    /// How often its node was killed.
    pub kills: u32,
    /// How often Slurm has put it back into the queue.
    pub requeues: u32,
    folder: PathBuf,
    /// Undisturbed beside it.
    reference: Child,
    beside: PathBuf,
    next: Next,
}

/// What comes next for a job.
enum Next {
    /// It runs, with this newest checkpoint at most; a later one is waited for.
    Line(Option<u64>),
    /// It waits for its start.
    Start,
    /// Its node is killed then.
    Kill(Instant),
    /// It waits for Slurm to requeue it, which has happened so often; its node has died.
    Requeue { node: String, before: u32 },
    /// Nothing but its end.
    End,
}

/// Time after a checkpoint within which a node dies: the next one begins after two seconds.
const AFTER_LINE_S: f64 = 5.0;

/// Time after a start within which a node dies: in the restore, before the first checkpoint, or in it.
const AFTER_START_S: f64 = 8.0;

/// Runs each program once, all at once, and kills the node of each so often at random moments; tells each kill.
///
/// # Errors
/// A job does not come to its end.
pub fn play(
    site: &mut Site,
    rng: &mut ChaCha8Rng,
    programs: &[(Program, Way)],
    kills: u32,
    limit: Duration,
    told: &mut dyn FnMut(&str),
) -> Result<Vec<Played>> {
    let begin = |(program, way): &(Program, Way)| Played::begin(site, *program, *way, kills);
    let mut all: Vec<Played> = programs.iter().map(begin).collect::<Result<_>>()?;
    let until = Instant::now() + limit;
    loop {
        let mut over = true;
        for played in &mut all {
            over &= played.look(site, rng, kills, told).with_context(|| format!("job {}", played.job))?;
        }
        if over {
            return Ok(all);
        }
        ensure!(Instant::now() < until, "not over within {} s", limit.as_secs());
        std::thread::sleep(Duration::from_millis(200));
    }
}

impl Played {
    fn begin(site: &Site, program: Program, way: Way, kills: u32) -> Result<Played> {
        let pid = std::process::id();
        let folder = |what: &str| site.folder(USER, &format!("{}-{way:?}-{pid}-{what}", program.name));
        let (folder, beside) = (folder("job")?, folder("undisturbed")?);
        let argv = program.argv(&bin(site), program.steps(kills));
        for folder in [&folder, &beside] {
            // What an earlier round left.
            let script = "find . -mindepth 1 -delete; mkdir tmp";
            ensure!(site.user_command(USER, "sh", folder).args(["-c", script]).status()?.success(), "{folder:?}");
        }
        let mut reference = site.user_command(USER, &argv[0], &beside);
        let out = fs::File::create(beside.join("out"))?;
        let reference = reference
            .args(&argv[1..])
            .env("TMPDIR", beside.join("tmp"))
            .stdin(Stdio::null())
            .stdout(out)
            .spawn()
            .context(program.name)?;
        let export = format!("--export=ALL,TMPDIR={}", folder.join("tmp").display());
        let options = ["-n1", "--exclusive", "--open-mode=append", "--output=out", "--error=err", &export];
        let engine = ["--ft-energy", "--ft-energy-engine=criu", "--ft-energy-interval=2s"];
        let srun = if way == Way::Srun { "srun " } else { "" };
        let script = format!("echo begin\n{srun}{}\necho end $?", argv.join(" "));
        let job = site.submit(USER, &folder, &[&options[..], &engine].concat(), &script)?;
        Ok(Played { program, way, job, kills: 0, requeues: 0, folder, reference, beside, next: Next::Start })
    }

    /// Does what is to be done now; whether the job is over.
    fn look(&mut self, site: &mut Site, rng: &mut ChaCha8Rng, kills: u32, told: &mut dyn FnMut(&str)) -> Result<bool> {
        let fields = site.cluster.job(self.job)?;
        let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
        let state = field("JobState");
        let restarts: u32 = field("Restarts").parse().unwrap_or(0);
        self.requeues = restarts;
        let after = |limit_s: f64, rng: &mut ChaCha8Rng| {
            Next::Kill(Instant::now() + Duration::from_secs_f64(rng.random_range(0.0..limit_s)))
        };
        match &self.next {
            Next::Requeue { node, before } if restarts > *before => {
                site.cluster.revive_node(node)?;
                self.next = if self.kills == kills { Next::End } else { Next::Start };
            }
            _ if ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"].contains(&state) => {
                if let Next::Requeue { node, .. } = &self.next {
                    site.cluster.revive_node(node)?;
                }
                self.next = Next::End;
                return Ok(true);
            }
            Next::Start if state == "RUNNING" => {
                // The first life needs a checkpoint; of the others each fourth need not get as far.
                let soon = self.kills > 0 && rng.random_range(0..4) == 0;
                self.next = if soon { after(AFTER_START_S, rng) } else { Next::Line(newest(site, self.job)) };
            }
            Next::Line(before) if newest(site, self.job) > *before => self.next = after(AFTER_LINE_S, rng),
            Next::Kill(at) if Instant::now() >= *at && state == "RUNNING" => {
                let node = field("BatchHost").to_string();
                site.cluster.kill_node(&node)?;
                self.kills += 1;
                let (name, line) = (self.program.name, newest(site, self.job).unwrap_or(0));
                told(&format!("{name} by {:?}: kill {} of {node}, checkpoint {line}", self.way, self.kills));
                self.next = Next::Requeue { node, before: restarts };
            }
            _ => {}
        }
        Ok(false)
    }

    /// Compares all that the program wrote with an undisturbed run; how many checkpoints the report counts.
    ///
    /// # Errors
    /// What differs.
    pub fn judge(&mut self, site: &Site, limit: Duration) -> Result<u64> {
        let code = self.reference.wait()?.code().context("the undisturbed run was killed")?;
        let read = |folder: &Path, name: &str| {
            fs::read_to_string(folder.join(name)).with_context(|| format!("{}/{name}", folder.display()))
        };
        let said = || read(&self.folder, "err").unwrap_or_default();
        let state = site.state(self.job)?;
        let expected = format!("begin\n{}end {code}\n", read(&self.beside, "out")?);
        differs("out", &read(&self.folder, "out")?, &expected).with_context(|| format!("{state}: {}", said()))?;
        for name in self.program.files {
            differs(name, &read(&self.folder, name)?, &read(&self.beside, name)?).with_context(said)?;
        }
        ensure!(state == "COMPLETED", "{state}: {}", said());
        let unused = |folder: &PathBuf| folder.join("manifest.damaged").exists();
        let aside: Vec<_> = checkpoints(site, self.job).into_iter().map(|(folder, _)| folder).filter(unused).collect();
        ensure!(aside.is_empty(), "could not be restored, so that the output proves nothing: {aside:?}");
        let over = |run: &Value| (run["state"] == "completed").then(|| run.clone());
        let run = site.wait_report(self.job, "the end", limit, over)?;
        run["total"]["checkpoints"].as_u64().context("checkpoints")
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        let _ = self.reference.kill();
        let _ = self.reference.wait();
    }
}

/// Tells the first line that differs.
pub(crate) fn differs(what: &str, found: &str, expected: &str) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let (mut found, mut expected) = (found.lines(), expected.lines());
    for number in 1.. {
        let (found, expected) = (found.next(), expected.next());
        if found != expected || found.is_none() {
            bail!("{what}, line {number}: {found:?} instead of {expected:?}");
        }
    }
    Ok(())
}

/// Checkpoints of a job's run, with whether each is complete.
pub fn checkpoints(site: &Site, job: u32) -> Vec<(PathBuf, bool)> {
    let runs = site.cluster.shared().join(format!("runs-{USER}"));
    let pattern = runs.join(format!("*/{job}.*/checkpoints/[0-9]*"));
    let found = glob::glob(&pattern.to_string_lossy()).into_iter().flatten().flatten();
    found.map(|f| (f.clone(), f.join("manifest.json").exists())).collect()
}

/// Number of the newest checkpoint that is complete.
fn newest(site: &Site, job: u32) -> Option<u64> {
    let complete = checkpoints(site, job).into_iter().filter(|(_, complete)| *complete);
    complete.filter_map(|(folder, _)| folder.file_name()?.to_str()?.parse().ok()).max()
}
