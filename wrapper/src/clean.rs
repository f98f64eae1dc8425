//! Removes what earlier runs of this user have left, beside a job that begins or for a person; Slurm is asked first.

use config::{Runs, Site};
use job::identity::Identity;
use job::run_folder::expand;
use run::Cluster;
use run::clean::{self, Keep};
use slurm::Slurm;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use run::clean::{Candidate, Due, End};

/// Time between two looks at the folder of all runs of a user and a cluster, s.
const LOOK_S: f64 = 3600.0;

/// Most folders of runs that are looked at beside a job, most from which something is removed, and for how long.
const MOST_LOOKED_AT: usize = 2000;
const MOST_REMOVED: usize = 200;
const LONGEST: Duration = Duration::from_secs(60);

/// How long a site keeps what ended runs have left.
pub fn keep(runs: &Runs) -> Keep {
    let kept_s = |days: f64| (days > 0.0).then_some(days * 86_400.0);
    Keep {
        completed_s: kept_s(runs.keep_completed_days),
        failed_s: kept_s(runs.keep_failed_days),
        records_s: kept_s(runs.keep_records_days),
    }
}

/// The folders of this user's runs, in `dir` or where the site keeps them: of Slurm's cluster, and of this host.
pub fn folders(site: &Site, dir: Option<&Path>, slurm: &Slurm) -> Vec<PathBuf> {
    let me = Identity::from_environment(&[]);
    let all = dir.map_or_else(|| expand(&site.runs.dir, &me.home, &me.user), Path::to_path_buf);
    let of_cluster = slurm.cluster_name().inspect_err(|e| {
        tracing::warn!(%e, "Slurm does not say which cluster this is: the runs of its jobs are not looked at");
    });
    let mut names: Vec<String> = of_cluster.into_iter().collect();
    names.extend(nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok()));
    names.dedup();
    names.into_iter().map(|name| all.join(name)).collect()
}

/// Whether a run may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Return {
    /// Its job is not known to Slurm any more, or it ran outside Slurm and has ended.
    Never,
    /// Slurm knows its job. Outside of Slurm nobody knows whether one that has not said that it ended still goes on, or
    /// waits to be resumed.
    Possible,
    /// It is another cluster's, or nobody has written down whose it is: the Slurm of this one cannot know its job.
    Elsewhere,
}

/// Whether a run may come back, by the cluster whose Slurm is asked; none where it does not say which one it is.
fn may_return(slurm: &Slurm, here: Option<&Cluster>, run: &Candidate) -> Result<Return, Unclean> {
    let Some(job) = run.job else {
        return Ok(if run.end == End::Open { Return::Possible } else { Return::Never });
    };
    match (here, Cluster::of(&run.path)?) {
        (Some(here), Some(its)) if its.is(here) => {}
        _ => return Ok(Return::Elsewhere),
    }
    Ok(if slurm.job(job)?.is_some() { Return::Possible } else { Return::Never })
}

/// The cluster whose Slurm this is.
fn cluster(slurm: &Slurm) -> Result<Cluster, slurm::Error> {
    slurm.cluster().map(|(name, controllers)| Cluster::new(name, controllers))
}

/// What a job that begins knows.
pub struct Beside {
    /// The folder of all runs of the user on this cluster.
    pub runs: PathBuf,
    /// The job's own.
    pub own: PathBuf,
    /// How long others are kept.
    pub keep: Keep,
    /// When Slurm says that the job has begun, s since the epoch: a few seconds ago.
    pub began_s: f64,
}

impl Beside {
    /// Writes down whose the job's own run is and removes what is due, on a thread of its own: the job does not wait for it,
    /// and it ends with the job.
    pub fn start(self, slurm: Slurm) {
        threads::start(move || match self.record_and_clean(&slurm, host::mail::now_s()) {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "what earlier runs have left was removed"),
            Err(e) => tracing::warn!(%e, "what earlier runs have left is not removed"),
        });
    }

    fn record_and_clean(&self, slurm: &Slurm, now_s: f64) -> Result<usize, Unclean> {
        let here = cluster(slurm)?;
        here.record(&self.own).map_err(|e| Unclean::Storage(run::Error::at(&self.own)(e)))?;
        self.clean(slurm, &here, now_s)
    }

    /// Removes what is due at `now_s`; from how many runs.
    fn clean(&self, slurm: &Slurm, here: &Cluster, now_s: f64) -> Result<usize, Unclean> {
        let until = Instant::now() + LONGEST;
        let (storage_s, before_s) = clean::stamp(&self.runs, LOOK_S)?;
        // Of an array that begins at once one job looks.
        if before_s.is_some_and(|before_s| (storage_s - before_s).abs() < LOOK_S) {
            return Ok(0);
        }
        let now_s = clean::agreed(&[now_s, storage_s, self.began_s]).ok_or(Unclean::Clocks)?;
        clean::finish(&self.runs)?;
        let mut count = 0;
        for one in clean::find(&self.runs, now_s, &self.keep, MOST_LOOKED_AT)? {
            if count >= MOST_REMOVED || Instant::now() > until {
                break;
            }
            if one.path != self.own && may_return(slurm, Some(here), &one)? == Return::Never {
                count += usize::from(one.remove(now_s, &self.keep)?);
            }
        }
        Ok(count)
    }
}

/// Why nothing is removed.
#[derive(Debug, thiserror::Error)]
pub enum Unclean {
    /// The storage says no.
    #[error(transparent)]
    Storage(#[from] run::Error),
    /// Slurm does not say whether a job may come back.
    #[error("Slurm does not say whether a job may come back: {0}")]
    Slurm(#[from] slurm::Error),
    /// Nobody knows what is old.
    #[error("the clocks of this node, of the storage and of Slurm differ by more than an hour")]
    Clocks,
}

/// What a person asks for.
pub struct Asked<'a> {
    /// The folder of all runs of the user on this cluster.
    pub runs: &'a Path,
    /// How long they are kept.
    pub keep: Keep,
    /// Only tell.
    pub dry_run: bool,
}

/// What came of one run.
#[derive(Debug)]
pub enum Done {
    /// It was removed, or would be.
    Removed,
    /// Slurm knows its job.
    Known,
    /// It is not known to be a run of this cluster.
    Elsewhere,
    /// Something has happened to it meanwhile.
    Changed,
    /// It could not be.
    Failed(Unclean),
}

impl Asked<'_> {
    /// Removes what is due at `now_s` by this machine's clock, and tells of each run.
    ///
    /// # Errors
    /// Nothing could be looked at.
    pub fn clean(&self, slurm: &Slurm, now_s: f64) -> Result<Vec<(Candidate, Done)>, Unclean> {
        if !self.runs.is_dir() {
            return Ok(Vec::new());
        }
        let now_s = if self.dry_run {
            now_s
        } else {
            let (storage_s, _) = clean::stamp(self.runs, LOOK_S)?;
            clean::finish(self.runs)?;
            clean::agreed(&[now_s, storage_s]).ok_or(Unclean::Clocks)?
        };
        let found = clean::find(self.runs, now_s, &self.keep, usize::MAX)?;
        let here = if found.is_empty() { None } else { cluster(slurm).ok() };
        let done = |one: &Candidate| match may_return(slurm, here.as_ref(), one) {
            Err(e) => Done::Failed(e),
            Ok(Return::Possible) => Done::Known,
            Ok(Return::Elsewhere) => Done::Elsewhere,
            Ok(Return::Never) if self.dry_run => Done::Removed,
            Ok(Return::Never) => match one.remove(now_s, &self.keep) {
                Ok(true) => Done::Removed,
                Ok(false) => Done::Changed,
                Err(e) => Done::Failed(e.into()),
            },
        };
        Ok(found.into_iter().map(|one| (one.clone(), done(&one))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Event;
    use run::line::Claim;
    use run::{Patience, take_up};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    const DAY_S: f64 = 86_400.0;

    fn here() -> Cluster {
        Cluster::new("c".into(), vec!["ctl(10.0.0.1):6817".into()])
    }

    /// A file system's clock may be some milliseconds late.
    fn settled() {
        thread::sleep(Duration::from_millis(50));
    }

    struct Place {
        dir: tempfile::TempDir,
        slurm: Slurm,
    }

    impl Place {
        /// Runs of jobs 7 to 9 that have ended well, of which Slurm knows those in these lines.
        fn new(known: &str) -> Place {
            let dir = tempfile::tempdir().unwrap();
            let (bin, jobs) = (dir.path().join("bin"), dir.path().join("jobs"));
            fs::create_dir(&bin).unwrap();
            fs::write(&jobs, known).unwrap();
            fs::write(bin.join("squeue"), format!("#!/bin/sh\n{}", slurm::example::squeue(&jobs))).unwrap();
            let config = "ClusterName = c\nSlurmctldHost[0] = ctl(10.0.0.1)\nSlurmctldPort = 6817";
            fs::write(bin.join("scontrol"), format!("#!/bin/sh\necho '{config}'")).unwrap();
            for program in ["squeue", "scontrol"] {
                fs::set_permissions(bin.join(program), fs::Permissions::from_mode(0o755)).unwrap();
            }
            for job in 7..10 {
                let path = dir.path().join(format!("c/{job}.100"));
                let mut taken = take_up(&path, &Claim::default(), Patience::NONE).unwrap();
                let ended = Event::Ended { state: "completed".into(), exit_code: 0 };
                taken.journal.append(vec![(host::mail::now_s(), ended)]).unwrap();
                fs::create_dir_all(path.join("checkpoints/1")).unwrap();
                here().record(&path).unwrap();
            }
            settled();
            Place { slurm: Slurm::new(Some(bin)), dir }
        }

        fn beside(&self, began_s: f64) -> Beside {
            let runs = self.dir.path().join("c");
            Beside { own: runs.join("9.100"), runs, keep: keep(&Runs::default()), began_s }
        }

        fn left(&self) -> Vec<u32> {
            let has = |job: &u32| self.dir.path().join(format!("c/{job}.100/checkpoints")).exists();
            (7..10).filter(has).collect()
        }

        /// The storage was stamped long ago.
        fn age(&self) {
            let stamp = fs::File::create(self.dir.path().join("c/.cleaned")).unwrap();
            stamp.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
    }

    #[test]
    fn a_job_that_slurm_knows_keeps_its_checkpoints_in_whatever_state_it_is() {
        for state in ["PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "PREEMPTED", "COMPLETED", "FAILED"]
        {
            let site = Place::new(&format!("JobId=7 UserId=me(1) JobState={state}\n"));
            let keep = Keep { completed_s: Some(0.0), ..keep(&Runs::default()) };
            let asked = Asked { runs: &site.dir.path().join("c"), keep, dry_run: false };
            let done = asked.clean(&site.slurm, host::mail::now_s() + 60.0).unwrap();
            assert_eq!((done.len(), site.left()), (3, vec![7]), "{state}: {done:?}");
        }
    }

    #[test]
    fn a_run_of_another_cluster_or_of_nobody_knows_which_stays() {
        let site = Place::new("");
        let run = |job: u32| site.dir.path().join(format!("c/{job}.100"));
        // The other cluster has the same name, and knows its job 7 well.
        Cluster::new("c".into(), vec!["ctl(10.9.9.9):6817".into()]).record(&run(7)).unwrap();
        fs::remove_file(run(8).join("cluster.json")).unwrap();
        settled();
        let keep = Keep { completed_s: Some(0.0), ..keep(&Runs::default()) };
        let later_s = host::mail::now_s() + 60.0;
        let asked = Asked { runs: &site.dir.path().join("c"), keep, dry_run: false };
        let done = asked.clean(&site.slurm, later_s).unwrap();
        let elsewhere = done.iter().filter(|(_, done)| matches!(done, Done::Elsewhere)).count();
        assert_eq!((elsewhere, site.left()), (2, vec![7, 8]), "{done:?}");
        // Slurm does not say which one this is.
        let site = Place::new("");
        fs::write(site.dir.path().join("bin/scontrol"), "#!/bin/sh\nexit 1\n").unwrap();
        let asked = Asked { runs: &site.dir.path().join("c"), ..asked };
        let done = asked.clean(&site.slurm, later_s).unwrap();
        assert!(done.iter().all(|(_, done)| matches!(done, Done::Elsewhere)) && site.left().len() == 3, "{done:?}");
    }

    #[test]
    fn a_job_writes_down_whose_its_run_is_before_anything_is_removed() {
        let site = Place::new("");
        let (own, now_s) = (site.dir.path().join("c/9.100"), host::mail::now_s());
        fs::remove_file(own.join("cluster.json")).unwrap();
        site.beside(now_s).record_and_clean(&site.slurm, now_s).unwrap();
        assert_eq!(Cluster::of(&own).unwrap(), Some(here()));
    }

    #[test]
    fn nothing_is_removed_that_nobody_can_tell_of() {
        let site = Place::new("");
        fs::write(
            site.dir.path().join("bin/squeue"),
            "#!/bin/sh\necho 'slurm_load_jobs error: timed out' >&2; exit 1\n",
        )
        .unwrap();
        let keep = Keep { completed_s: Some(0.0), ..keep(&Runs::default()) };
        let asked = Asked { runs: &site.dir.path().join("c"), keep, dry_run: false };
        let done = asked.clean(&site.slurm, host::mail::now_s() + 60.0).unwrap();
        assert!(done.iter().all(|(_, done)| matches!(done, Done::Failed(Unclean::Slurm(_)))), "{done:?}");
        assert_eq!(site.left(), [7, 8, 9]);
    }

    #[test]
    fn a_clock_that_is_wrong_by_years_removes_nothing() {
        let site = Place::new("");
        let (now_s, later_s) = (host::mail::now_s(), host::mail::now_s() + 2000.0 * DAY_S);
        assert!(matches!(site.beside(now_s).clean(&site.slurm, &here(), later_s), Err(Unclean::Clocks)));
        site.age();
        assert!(matches!(site.beside(later_s).clean(&site.slurm, &here(), now_s), Err(Unclean::Clocks)));
        let keep = Keep { completed_s: Some(0.0), ..keep(&Runs::default()) };
        let asked = Asked { runs: &site.dir.path().join("c"), keep, dry_run: false };
        assert!(matches!(asked.clean(&site.slurm, later_s), Err(Unclean::Clocks)));
        assert_eq!(site.left(), [7, 8, 9]);
    }

    #[test]
    fn beside_a_job_others_are_cleaned_once_an_hour_and_never_its_own() {
        let site = Place::new("");
        let now_s = host::mail::now_s();
        let mut beside = site.beside(now_s);
        assert_eq!(beside.clean(&site.slurm, &here(), now_s).unwrap(), 0, "all are new");
        beside.keep.completed_s = Some(0.0);
        assert_eq!(beside.clean(&site.slurm, &here(), now_s + 60.0).unwrap(), 0, "somebody has looked");
        site.age();
        let later_s = host::mail::now_s();
        assert_eq!(Beside { began_s: later_s, ..beside }.clean(&site.slurm, &here(), later_s).unwrap(), 2);
        assert_eq!(site.left(), [9]);
    }

    #[test]
    fn a_person_is_told_what_would_go_and_nothing_goes() {
        let site = Place::new("");
        let asked = Asked { runs: &site.dir.path().join("c"), keep: keep(&Runs::default()), dry_run: true };
        let done = asked.clean(&site.slurm, host::mail::now_s() + 2.0 * DAY_S).unwrap();
        assert_eq!((done.len(), site.left().len()), (3, 3));
        assert!(!site.dir.path().join("c/.cleaned").exists());
        let nowhere = Asked { runs: &site.dir.path().join("nowhere"), ..asked };
        assert!(nowhere.clean(&site.slurm, 0.0).unwrap().is_empty());
    }
}
