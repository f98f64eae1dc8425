//! Reads, makes and removes Slurm's reservations, and resizes jobs.

use crate::fields::Fields;
use crate::nodelist::{compress_nodelist, expand_nodelist};
use crate::{Error, Slurm};
use std::collections::BTreeMap;
use std::process::{Child, Stdio};

/// The keys that `scontrol show reservation -o` prints from 22.05 to 26.05.
const KEYS: &[&str] = &[
    "ReservationName",
    "StartTime",
    "EndTime",
    "Duration",
    "Nodes",
    "NodeCnt",
    "CoreCnt",
    "Features",
    "PartitionName",
    "Flags",
    "TRES",
    "Users",
    "Groups",
    "Accounts",
    "AllowedPartitions",
    "QOS",
    "Licenses",
    "State",
    "BurstBuffer",
    "Watts",
    "MaxStartDelay",
    "Comment",
];

/// A reservation.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// Its name.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// When it begins.
    pub start_s: f64,
    /// When it ends.
    pub end_s: f64,
    /// Names of the users who may use it.
    pub users: Vec<String>,
}

/// When a reservation holds, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// Its beginning, s since the epoch; what has passed means now. Absent to leave it where it is: Slurm does not
    /// move a reservation that has begun.
    pub start_s: Option<f64>,
    /// How long it lasts, min.
    pub minutes: u32,
    /// Who may use it.
    pub users: &'a [&'a str],
}

impl Window<'_> {
    fn words(&self) -> Vec<String> {
        let start = self.start_s.map(start_time);
        let rest = [format!("Duration={}", self.minutes.max(1)), format!("Users={}", self.users.join(","))];
        start.into_iter().chain(rest).collect()
    }
}

/// Nodes for a running job, by a helper job that is merged into it.
#[derive(Clone, Copy, Debug)]
pub struct Expansion<'a> {
    /// The job that gets them.
    pub job: u32,
    /// Name of the helper job, and of the reservation that has the nodes.
    pub name: &'a str,
    /// The nodes.
    pub nodes: &'a [String],
    /// The job's account; the user's own if empty.
    pub account: &'a str,
    /// The job's partition.
    pub partition: &'a str,
    /// The job's quality of service; the user's own if empty.
    pub qos: &'a str,
    /// What the job asks for on each node ([`Slurm::per_node`]): what it gets has no other memory than what it has.
    pub per_node: &'a [String],
}

/// Time limit of a helper job, min: the job's own counts as soon as they are merged.
const HELPER_MIN: &str = "5";

/// Slurm's default of `bf_interval`, s.
const BACKFILL_S: f64 = 30.0;

/// The reservations in the output of `scontrol show reservation -o`.
pub fn parse_reservations(text: &str) -> Result<Vec<Reservation>, Error> {
    text.lines().filter(|l| l.starts_with("ReservationName=")).map(parse_reservation).collect()
}

fn parse_reservation(line: &str) -> Result<Reservation, Error> {
    let f = Fields::split_first("a reservation".into(), line, KEYS);
    let users = f.text("Users")?;
    Ok(Reservation {
        name: f.need("ReservationName")?.to_owned(),
        nodes: expand_nodelist(&f.text("Nodes")?)?,
        start_s: f.time("StartTime")?.unwrap_or(0.0),
        end_s: f.time("EndTime")?.unwrap_or(f64::INFINITY),
        users: users.split(',').filter(|u| !u.is_empty()).map(str::to_owned).collect(),
    })
}

impl Slurm {
    /// All reservations.
    pub fn reservations(&self) -> Result<Vec<Reservation>, Error> {
        parse_reservations(&self.output("scontrol", &["show", "reservation", "-o"])?)
    }

    /// Keeps nodes for some users for a time that begins at a moment (s since the epoch), whoever is on them until
    /// then.
    pub fn reserve(&self, name: &str, nodes: &[String], window: Window<'_>) -> Result<(), Error> {
        let (name, nodes) = (format!("ReservationName={name}"), format!("Nodes={}", compress_nodelist(nodes)));
        let words = window.words();
        let mut args = vec!["create", "reservation", &name, &nodes, "Flags=IGNORE_JOBS,OVERLAP"];
        args.extend(words.iter().map(String::as_str));
        self.output("scontrol", &args).map(drop)
    }

    /// Moves a reservation, and says who may use it.
    pub fn move_reservation(&self, name: &str, window: Window<'_>) -> Result<(), Error> {
        let (name, words) = (format!("ReservationName={name}"), window.words());
        let args: Vec<&str> = ["update", &name].into_iter().chain(words.iter().map(String::as_str)).collect();
        self.output("scontrol", &args).map(drop)
    }

    /// Removes a reservation.
    pub fn unreserve(&self, name: &str) -> Result<(), Error> {
        self.output("scontrol", &["delete", &format!("ReservationName={name}")]).map(drop)
    }

    /// Lets a job that waits start by a reservation, and only by it.
    pub fn call_into(&self, job: u32, reservation: &str) -> Result<(), Error> {
        self.update_job(job, &format!("ReservationName={reservation}"))
    }

    /// Takes a job, waiting or running, out of its reservation.
    pub fn call_out(&self, job: u32) -> Result<(), Error> {
        self.update_job(job, "ReservationName=")
    }

    /// Leaves a running job only these of its nodes; the batch host must be among them.
    pub fn shrink(&self, job: u32, kept: &[String]) -> Result<(), Error> {
        if kept.is_empty() {
            return Err(Error::unreadable("nodes to keep", "")); // Slurm would take it for "all"
        }
        self.update_job(job, &format!("NodeList={}", compress_nodelist(kept)))
    }

    /// Gives all nodes of a job that was submitted with `--dependency=expand:JOB` to that job; it ends.
    pub fn merge(&self, helper: u32) -> Result<(), Error> {
        self.update_job(helper, "NumNodes=0")
    }

    /// Sets a job's time limit, min; only operators may raise it.
    pub fn set_time_limit(&self, job: u32, minutes: u64) -> Result<(), Error> {
        self.update_job(job, &format!("TimeLimit={minutes}"))
    }

    /// Starts `salloc` for nodes that will be merged into a job ([`Slurm::merge`]); it ends when they are granted, or
    /// cannot be. It must come from the job's own user.
    pub fn ask_for_expansion(&self, wanted: &Expansion<'_>) -> Result<Child, Error> {
        let mut command = self.command("salloc");
        let unwanted = |name: &str| {
            let prefixes = ["SLURM", "SALLOC", "SBATCH", "_SLURM", "FT_ENERGY"];
            name != "SLURM_CONF" && prefixes.iter().any(|p| name.starts_with(p))
        };
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        names.filter(|n| unwanted(n)).for_each(|n| {
            command.env_remove(n);
        });
        command.args(["--no-shell", "--exclusive", "--quiet", "-t", HELPER_MIN]).args(wanted.per_node);
        command.arg(format!("--nodes={}", wanted.nodes.len()));
        command.arg(format!("--nodelist={}", compress_nodelist(wanted.nodes)));
        command.arg(format!("--reservation={0}", wanted.name)).arg(format!("--job-name={}", wanted.name));
        command.arg(format!("--dependency=expand:{}", wanted.job)).arg(format!("--partition={}", wanted.partition));
        if !wanted.account.is_empty() {
            command.arg(format!("--account={}", wanted.account));
        }
        // Slurm expands a job by none of another quality of service.
        if !wanted.qos.is_empty() {
            command.arg(format!("--qos={}", wanted.qos));
        }
        let started = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        started.map_err(|cause| Error::Start { command: "salloc".into(), cause })
    }
}

/// Whether this Slurm can take nodes out of a job and give them back, by what [`Slurm::config`] says.
///
/// # Errors
/// Why not.
pub fn resizing(config: &BTreeMap<String, String>) -> Result<(), &'static str> {
    let value = |key: &str| config.get(key).map(String::as_str).unwrap_or_default();
    if !value("schedulerparameters").split(',').any(|p| p.trim() == "permit_job_expansion") {
        return Err("Slurm gives no nodes back to a job here (SchedulerParameters lacks permit_job_expansion)");
    }
    if value("accountingstoragetype") == "accounting_storage/none" {
        return Err("Slurm resizes no job without accounting (AccountingStorageType)");
    }
    Ok(())
}

/// How often backfill looks at the whole queue, s, by what [`Slurm::config`] says.
pub fn backfill_s(config: &BTreeMap<String, String>) -> f64 {
    let parameters = config.get("schedulerparameters").map(String::as_str).unwrap_or_default();
    let interval = parameters.split(',').find_map(|p| p.trim().strip_prefix("bf_interval=")?.parse().ok());
    interval.unwrap_or(BACKFILL_S)
}

/// A moment as scontrol reads it; one that has passed is now.
fn start_time(at_s: f64) -> String {
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
    if at_s <= now_s + 1.0 { "StartTime=now".to_owned() } else { format!("StartTime=uts{at_s:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JobText;
    use crate::command::tests::with;

    #[test]
    fn a_helper_is_of_the_partition_account_and_quality_of_service_of_its_job_and_asks_for_as_much() {
        let dir = tempfile::tempdir().expect("a folder");
        let (jobs, asked) = (dir.path().join("jobs"), dir.path().join("asked"));
        let slurm = with(&dir, "salloc", &format!("echo \"$*\" > {}", asked.display()));
        with(&dir, "squeue", &crate::example::squeue(&jobs));
        for (more, words) in [("", ""), (" QOS=long", " --qos=long")] {
            let line = format!("JobId=7 UserId=a(1000) JobState=RUNNING Partition=all{more}\n");
            std::fs::write(&jobs, line).expect("jobs");
            let job = slurm.job(7).expect("an answer").expect("a job");
            let qos = slurm.text(&job, JobText::Qos).expect("a text");
            let nodes = ["n3", "n4"].map(str::to_owned);
            let wanted = Expansion {
                job: 7,
                name: "joulepoint_a",
                nodes: &nodes,
                account: "physics",
                partition: &job.partition,
                qos: &qos,
                per_node: &["--mem=1500M".to_owned()],
            };
            let mut child = slurm.ask_for_expansion(&wanted).expect("started");
            assert!(child.wait().expect("waited").success());
            let asked = std::fs::read_to_string(&asked).expect("asked");
            let end = format!("--dependency=expand:7 --partition=all --account=physics{words}\n");
            assert!(asked.ends_with(&end) && asked.contains(" --mem=1500M "), "{asked}");
        }
    }

    #[test]
    fn reservations_are_read_with_their_users() {
        let text = "ReservationName=jp_1 StartTime=1795259249 EndTime=1795262849 Duration=01:00:00 Nodes=n[3-4] \
                    NodeCnt=2 CoreCnt=4 Features=(null) PartitionName=(null) Flags=OVERLAP,IGNORE_JOBS,SPEC_NODES \
                    TRES=cpu=4 Users=root,alice Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE \
                    BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)\n";
        let expected = Reservation {
            name: "jp_1".into(),
            nodes: vec!["n3".into(), "n4".into()],
            start_s: 1_795_259_249.0,
            end_s: 1_795_262_849.0,
            users: vec!["root".into(), "alice".into()],
        };
        assert_eq!(parse_reservations(text).unwrap(), [expected]);
        assert_eq!(parse_reservations("No reservations in the system\n").unwrap(), []);
    }

    #[test]
    fn backfill_looks_as_often_as_slurm_is_told() {
        let config = |parameters: &str| BTreeMap::from([("schedulerparameters".to_string(), parameters.to_string())]);
        assert_eq!(backfill_s(&config("permit_job_expansion,bf_interval=2")), 2.0);
        assert_eq!(backfill_s(&config("(null)")), BACKFILL_S);
    }

    #[test]
    fn a_moment_that_has_passed_is_now() {
        assert_eq!(start_time(5.0), "StartTime=now");
        assert_eq!(start_time(4e9), "StartTime=uts4000000000");
    }

    #[test]
    fn a_job_is_never_shrunk_to_nothing() {
        assert!(Slurm::new(Some("/nonexistent".into())).shrink(1, &[]).is_err());
    }
}
