//! Who this job is: Slurm's variables, or a command outside Slurm; and which run it belongs to.

use crate::run_folder::expand;
use config::Site;
use options::Settings;
use run::line::Claim;
use run::{Patience, storage};
use slurm::Slurm;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use steps::groups::split;
use steps::resized::Layout;

/// Set when a command outside Slurm is to take up an earlier run.
pub const RESUME: &str = "JOULEPOINT_RESUME";

/// The name of Slurm's copy of a batch script, which nobody changes while the job is there.
const SLURMS_COPY: &str = "slurm_script";

/// File of a run that says of which batch script it is.
const SCRIPT: &str = "script";

/// File of a run that says when its job was submitted, s since the epoch.
const SUBMITTED: &str = "submitted";

/// One job record, as its environment tells it.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Slurm job id; none outside Slurm.
    pub job: Option<u32>,
    /// SLURM_RESTART_COUNT.
    pub restart_count: u32,
    /// Slurm cluster name, or the host's.
    pub cluster: String,
    /// User name.
    pub user: String,
    /// Slurm account.
    pub account: String,
    /// Slurm partition.
    pub partition: String,
    /// Job name, or the command's.
    pub job_name: String,
    /// Nodes of the allocation, or this host.
    pub nodes: Vec<String>,
    /// The node that this process is on, as Slurm calls it; none outside Slurm.
    pub node: Option<String>,
    /// CPUs on each node.
    pub cpus_per_node: u32,
    /// The job's folder.
    pub folder: PathBuf,
    /// HOME, or the user's home folder; `/tmp` if neither is known.
    pub home: String,
    /// Slurm's copy of the batch script, and its arguments; none of another command.
    pub script: Option<Vec<String>>,
}

impl Identity {
    /// Where other nodes reach this one.
    pub fn address(&self, slurm: &Slurm) -> String {
        slurm.address(self.node.as_deref().unwrap_or("localhost"))
    }

    /// Reads the environment.
    pub fn from_environment(argv: &[String]) -> Identity {
        let get = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let host = nix::unistd::gethostname()
            .ok()
            .and_then(|h| h.into_string().ok())
            .unwrap_or_else(|| "localhost".to_string());
        let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten();
        let command = argv.first().map(|a| a.rsplit('/').next().unwrap_or(a).to_string());
        let nodes = get("SLURM_JOB_NODELIST").and_then(|l| slurm::expand_nodelist(&l).ok());
        let home = user.as_ref().map(|u| u.dir.to_string_lossy().into_owned());
        let job: Option<u32> = get("SLURM_JOB_ID").and_then(|v| v.parse().ok());
        Identity {
            job,
            restart_count: get("SLURM_RESTART_COUNT").and_then(|v| v.parse().ok()).unwrap_or(0),
            cluster: get("SLURM_CLUSTER_NAME").unwrap_or_else(|| host.clone()),
            // A node that cannot ask for names at the moment must not take the user for another.
            user: job
                .and_then(|_| get("SLURM_JOB_USER"))
                .or(user.map(|u| u.name))
                .unwrap_or_else(|| nix::unistd::getuid().to_string()),
            account: get("SLURM_JOB_ACCOUNT").unwrap_or_default(),
            partition: get("SLURM_JOB_PARTITION").unwrap_or_default(),
            job_name: get("SLURM_JOB_NAME").or(command).unwrap_or_default(),
            nodes: nodes.filter(|n| !n.is_empty()).unwrap_or_else(|| vec![host]),
            node: get("SLURMD_NODENAME"),
            cpus_per_node: get("SLURM_CPUS_ON_NODE").and_then(|v| v.parse().ok()).unwrap_or(1),
            folder: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            home: get("HOME").or(home).unwrap_or_else(|| "/tmp".to_string()),
            script: job
                .and_then(|_| argv.first().filter(|word| Path::new(word).ends_with(SLURMS_COPY)))
                .map(|_| argv.to_vec()),
        }
    }

    /// How the job is laid out on its nodes.
    pub fn layout(&self, spare: u32) -> Layout {
        let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse().ok());
        Layout {
            job: self.job.unwrap_or(0),
            nodes: self.nodes.clone(),
            spare: spare as usize,
            tasks: number("SLURM_NTASKS"),
            tasks_per_node: number("SLURM_NTASKS_PER_NODE"),
            slots_per_node: std::env::var("SLURM_TASKS_PER_NODE").ok().and_then(|list| split::least_of(&list)),
            cpus_per_node: self.cpus_per_node as usize,
        }
    }

    /// Tasks of the job, where it says how many.
    pub fn tasks(&self) -> Option<u32> {
        let layout = self.layout(0);
        let tasks = layout.tasks.or_else(|| Some(layout.tasks_per_node? * layout.nodes.len()))?;
        u32::try_from(tasks).ok()
    }

    /// What the run's folder is told of its holder.
    pub fn claim(&self) -> Claim {
        let node = self.node.clone().or_else(|| self.nodes.first().cloned()).unwrap_or_default();
        let at_s = host::mail::now_s();
        Claim { holder: 0, job: self.job, restart_count: self.restart_count, node, at_s }
    }

    /// The folder under which this user's runs are kept.
    pub fn runs_folder(&self, settings: &Settings, site: &Site) -> PathBuf {
        settings.dir.clone().unwrap_or_else(|| expand(&site.runs.dir, &self.home, &self.user))
    }

    /// The name of the run, and whether earlier wrappers worked on it.
    ///
    /// Slurm uses job ids again, so a run is its job id and the moment of its first start; a requeued job, and a
    /// driver that was killed, take up the newest run of their id and of their script.
    ///
    /// # Errors
    /// What the file system says for as long as it is tried: then nobody knows whether there is one.
    pub fn run_name(&self, runs: &Path, killed_before: bool) -> run::Result<(String, bool)> {
        let folder = runs.join(&self.cluster);
        let asked = self.job.is_none() && std::env::var_os(RESUME).is_some();
        if self.restart_count > 0 || killed_before || asked {
            let mut is_newest = true;
            for name in self.runs_in(&folder)? {
                // Before the run of another job no run is of this one, unless it says so.
                if self.is_own(&folder.join(&name))?.unwrap_or(is_newest) {
                    return Ok((name, true));
                }
                is_newest = false;
                protocol::say!("joulepoint: run {name} is of another job that had this number: its script is another");
            }
        }
        Ok((self.new_run_name(), false))
    }

    /// The run of a job that starts for the first time by Slurm's word, and had started before: a slurmctld that is killed
    /// forgets what it had not kept yet, and starts the job once more. Its run is known by its script and by when Slurm says
    /// that the job was submitted, `submitted_s`, which is asked only where an earlier run has this number.
    ///
    /// # Errors
    /// What the file system says for as long as it is tried.
    pub fn forgotten_run(&self, runs: &Path, submitted_s: impl FnOnce() -> Option<f64>) -> run::Result<Option<String>> {
        let folder = runs.join(&self.cluster);
        if self.job.is_none() || self.restart_count > 0 {
            return Ok(None);
        }
        let Some(newest) = self.runs_in(&folder)?.into_iter().next() else { return Ok(None) };
        let run = folder.join(&newest);
        let kept = storage::read_if_there(&run.join(SUBMITTED), Patience::LONG)?;
        let is_same = |at_s: f64| kept.is_some_and(|kept| kept == submitted(at_s).as_bytes());
        let is_it = self.is_own(&run)? == Some(true) && submitted_s().is_some_and(is_same);
        Ok(is_it.then_some(newest))
    }

    /// The runs of this job's number in the folder of its cluster, the newest first.
    fn runs_in(&self, folder: &Path) -> run::Result<Vec<String>> {
        let id = self.run_id();
        let names = storage::names(folder, Patience::LONG)?.into_iter().filter_map(|name| name.into_string().ok());
        let begun = |name: &String| name.strip_prefix(&format!("{id}."))?.parse::<u64>().ok();
        let mut runs: Vec<(u64, String)> = names.filter_map(|name| Some((begun(&name)?, name))).collect();
        runs.sort();
        Ok(runs.into_iter().rev().map(|(_, name)| name).collect())
    }

    /// Whether a run is of this job's script; none if that is not known.
    fn is_own(&self, run: &Path) -> run::Result<Option<bool>> {
        let Some(script) = self.script.as_deref().and_then(mark) else { return Ok(None) };
        let path = run.join(SCRIPT);
        match Patience::LONG.with(|| fs::read_to_string(&path)) {
            // What is not whole says nothing.
            Ok(kept) => Ok(kept.ends_with('\n').then(|| kept == script)),
            // A run from before this was kept.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(run::Error::at(&path)(e)),
        }
    }

    /// Notes in a run that begins of which script it is: without it, its runs are known by the number of the job.
    pub fn note_script(&self, run: &Path) {
        if let Some(script) = self.script.as_deref().and_then(mark) {
            note(run, SCRIPT, &script);
        }
    }

    /// Notes in a run that begins when its job was submitted, by Slurm's word.
    pub fn note_submitted(&self, run: &Path, job: Option<&slurm::Job>) {
        if let Some(at_s) = job.and_then(|job| job.submit_s) {
            note(run, SUBMITTED, &submitted(at_s));
        }
    }

    /// The name of a run that begins now.
    pub fn new_run_name(&self) -> String {
        format!("{}.{:.0}", self.run_id(), host::mail::now_s().floor())
    }

    /// What the names of all runs of this job begin with.
    fn run_id(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' };
        let local = || self.job_name.chars().take(64).map(plain).collect::<String>();
        self.job.map_or_else(|| format!("local-{}", local()), |j| j.to_string())
    }
}

/// Notes something in a run; who reads it later does without it.
fn note(run: &Path, file: &str, text: &str) {
    let written = Patience::SHORT.with(|| run::write_durably(&run.join(file), text.as_bytes()));
    written.unwrap_or_else(|e| tracing::warn!(%e, file, "this is not noted in the run"));
}

/// When a job was submitted, as a run keeps it.
fn submitted(at_s: f64) -> String {
    format!("{at_s:.0}\n")
}

/// What a batch script is: a digest of its content, and its arguments; none if it cannot be read. Its path is another on each node.
fn mark(argv: &[String]) -> Option<String> {
    let (script, arguments) = argv.split_first()?;
    let (bytes, digest) = run::digest(&mut File::open(script).ok()?).ok()?;
    Some(format!("{digest} {bytes} {arguments:?}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requeued_job_takes_up_its_newest_run_and_a_new_job_does_not() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["7.100", "7.200", "70.300", "7.x"] {
            fs::create_dir_all(dir.path().join("c").join(name)).unwrap();
        }
        let me = Identity { job: Some(7), cluster: "c".into(), ..Identity::default() };
        assert_eq!(me.run_name(dir.path(), true).unwrap(), ("7.200".to_string(), true));
        assert!(!me.run_name(dir.path(), false).unwrap().1);
        let requeued = Identity { restart_count: 1, ..me.clone() };
        assert_eq!(requeued.run_name(dir.path(), false).unwrap().0, "7.200");
        let other = Identity { job: Some(8), restart_count: 1, ..me };
        assert!(!other.run_name(dir.path(), false).unwrap().1);
    }

    #[test]
    fn a_job_that_got_the_number_of_another_does_not_take_up_its_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("slurm_script");
        let me = |text: &str, argument: &str| {
            fs::write(&path, text).unwrap();
            let argv = [path.to_string_lossy().into_owned(), argument.to_string()];
            assert!(mark(&argv).is_some());
            let script = Some(argv.to_vec());
            Identity { job: Some(7), cluster: "c".into(), restart_count: 1, script, ..Identity::default() }
        };
        for name in ["7.100", "7.200", "7.300"] {
            fs::create_dir_all(dir.path().join("c").join(name)).unwrap();
        }
        me("a", "1").note_script(&dir.path().join("c/7.300"));
        me("b", "1").note_script(&dir.path().join("c/7.200"));
        let name = |me: Identity| me.run_name(dir.path(), false).unwrap();
        assert_eq!(name(me("a", "1")), ("7.300".to_string(), true));
        assert_eq!(name(me("b", "1")), ("7.200".to_string(), true));
        assert!(!name(me("a", "2")).1, "the oldest is of one of the others");
        for torn in ["", "0123"] {
            fs::write(dir.path().join("c/7.300").join(SCRIPT), torn).unwrap();
            assert_eq!(name(me("a", "2")), ("7.300".to_string(), true));
        }
    }

    #[test]
    fn a_job_whose_start_slurm_has_forgotten_takes_up_its_run() {
        let dir = tempfile::tempdir().unwrap();
        let (path, run) = (dir.path().join("slurm_script"), dir.path().join("c/7.200"));
        let me = |restart_count| {
            let script = Some(vec![path.to_string_lossy().into_owned()]);
            Identity { job: Some(7), cluster: "c".into(), restart_count, script, ..Identity::default() }
        };
        let of = |restart_count, at_s| me(restart_count).forgotten_run(dir.path(), || at_s).unwrap();
        fs::write(&path, "a").unwrap();
        assert_eq!(me(0).forgotten_run(dir.path(), || panic!("there is no run")).unwrap(), None);
        fs::create_dir_all(&run).unwrap();
        assert_eq!(of(0, Some(150.0)), None, "a run of a version before, which does not say when");
        me(0).note_script(&run);
        note(&run, SUBMITTED, &submitted(150.2));
        assert_eq!(of(0, Some(150.0)).as_deref(), Some("7.200"));
        assert_eq!((of(0, Some(151.0)), of(0, None), of(1, Some(150.0))), (None, None, None));
        fs::write(&path, "b").unwrap();
        assert_eq!(of(0, Some(150.0)), None, "another script");
    }

    #[test]
    fn a_listing_that_fails_hides_no_earlier_run() {
        let dir = tempfile::tempdir().unwrap();
        let storage = faultfs::FaultFs::new(faultfs::Settings::default());
        let Ok(_mounted) = storage.mount(dir.path()) else {
            println!("skipped: no file system can be mounted here");
            return;
        };
        fs::create_dir_all(dir.path().join("c/7.100")).unwrap();
        let me = Identity { job: Some(7), cluster: "c".into(), ..Identity::default() };
        for op in ["opendir", "readdir"] {
            storage.obey(&format!("fault error=ESTALE op={op} times=2").parse().unwrap()).unwrap();
            assert_eq!(me.run_name(dir.path(), true).unwrap(), ("7.100".to_string(), true), "{op}");
        }
    }
}
