//! Asks slurmctld about jobs, by their ids wherever it can: facts that no user writes, and each text of a user alone.

use crate::fields::time;
use crate::gpus::{parse_gpus, parse_gpus_json};
use crate::job::{format, parse_jobs, parse_one, whole};
use crate::per_node::{parse_per_node, parse_per_node_json};
use crate::{Error, Job, JobState, Jobs, Slurm, Step, expand_nodelist, parse_steps};
use std::time::{Duration, Instant};

/// The first series whose `scontrol` answers in JSON.
const JSON_SINCE: (u32, u32) = (23, 2);

/// Time until slurmctld is asked again that has not answered, doubled each time up to the longest.
const AGAIN: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Time until it is said that this takes a while, and until nobody waits any more.
const A_WHILE: Duration = Duration::from_secs(10);
const TOO_LONG: Duration = Duration::from_secs(600);

/// The columns of [`Holder`].
const HOLDER: [&str; 4] = ["JobID", "UserID", "State", "NodeList"];

/// A text of a job that its user or an operator wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobText {
    /// The job's name.
    Name,
    /// Its account, which without associations is whatever its user wrote.
    Account,
    /// The script and its arguments.
    Command,
    /// The operators' comment.
    AdminComment,
    /// What it asks of a burst buffer.
    BurstBuffer,
    /// Its quality of service; nothing where the site has none.
    Qos,
    /// When it must have ended; see [`Slurm::deadline_s`].
    Deadline,
}

impl JobText {
    fn column(self) -> &'static str {
        match self {
            JobText::Name => "Name",
            JobText::Account => "Account",
            JobText::Command => "Command",
            JobText::AdminComment => "admin_comment",
            JobText::BurstBuffer => "BurstBuffer",
            JobText::Qos => "QOS",
            JobText::Deadline => "Deadline",
        }
    }
}

/// A job that holds nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Job id.
    pub job: u32,
    /// User id.
    pub uid: u32,
    /// What it is doing.
    pub state: JobState,
    /// Whether only its end is cleaned up there: one that is requeued begins again after that.
    pub is_completing: bool,
    /// The nodes that it holds.
    pub nodes: Vec<String>,
}

impl Slurm {
    /// A job as slurmctld knows it; none once slurmctld has forgotten it. One request for one job.
    pub fn job(&self, id: u32) -> Result<Option<Job>, Error> {
        match self.facts(&["--jobs", &id.to_string()]) {
            Ok(text) => parse_one(&text, id).inspect(|job| job.iter().for_each(|job| self.remember(job))),
            Err(e) if e.is_unknown_job() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The same, also if slurmctld is away for a while, as long as that is `wanted`; `waits` is called once, with the reason,
    /// if it takes long. None also if it takes too long, or what asks cannot run or is not understood.
    pub fn job_in_the_end(
        &self,
        id: u32,
        mut wanted: impl FnMut(Duration) -> bool,
        waits: impl FnOnce(&Error),
    ) -> Option<Job> {
        let (begun, mut waits, mut pause) = (Instant::now(), Some(waits), AGAIN);
        loop {
            match self.job(id) {
                Ok(job) => return job,
                Err(e @ (Error::Refused { .. } | Error::TimedOut { .. } | Error::Postponed)) => {
                    if let Some(waits) = waits.take_if(|_| begun.elapsed() >= A_WHILE) {
                        waits(&e);
                    }
                }
                Err(_) => return None,
            }
            if begun.elapsed() > TOO_LONG || !wanted(pause) {
                return None;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Those of some jobs that slurmctld knows, one question for each: for several at once it would be sent all jobs of
    /// the cluster.
    pub fn jobs_of(&self, ids: &[u32]) -> Result<Vec<Job>, Error> {
        ids.iter().filter_map(|id| self.job(*id).transpose()).collect()
    }

    /// All jobs of the cluster: for the broker of loans while it has one open, and for nobody else.
    pub fn jobs(&self) -> Result<Jobs, Error> {
        Ok(parse_jobs(&self.facts(&[])?))
    }

    /// The jobs of a user that bear one of these names.
    pub fn jobs_named(&self, uid: u32, names: &[&str]) -> Result<Jobs, Error> {
        // Without a name Slurm would tell of all of them.
        if let Some(name) = names.iter().find(|n| n.is_empty() || n.contains(',')) {
            return Err(Error::unreadable("job name to look for", name));
        }
        match names {
            [] => Ok(Jobs::default()),
            names => Ok(parse_jobs(&self.facts(&["--user", &uid.to_string(), "--name", &names.join(",")])?)),
        }
    }

    /// The jobs that hold one of these nodes now. slurmctld sends all its jobs for it: ask rarely, and about all nodes at
    /// once.
    pub fn jobs_on(&self, nodes: &[String]) -> Result<Vec<Holder>, Error> {
        let columns = whole(HOLDER.into_iter());
        let text = self.squeue(&["--nodelist", &nodes.join(",")], &columns)?;
        text.lines().filter(|l| !l.is_empty()).filter_map(|line| parse_holder(line).transpose()).collect()
    }

    /// A text of a job, as it was written; it stands alone in the answer, so that it cannot pass for anything else.
    pub fn text(&self, job: &Job, which: JobText) -> Result<String, Error> {
        let column = format!("{}:0", which.column());
        let number = job.own_number();
        // squeue tells the number of a heterogeneous job's first component for all of them.
        let text = match job.het == Some(job.id) {
            true => of_component(&self.squeue(&["--jobs", &number], &format!("JobID:0|,{column}"))?, job.id),
            false => self.squeue(&["--jobs", &number], &column)?,
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        Ok(if text == "(null)" { String::new() } else { text.to_owned() })
    }

    /// When a job must have ended, s since the epoch; absent for any time.
    pub fn deadline_s(&self, job: &Job) -> Result<Option<f64>, Error> {
        time("Deadline", self.text(job, JobText::Deadline)?.trim_end())
    }

    /// The nodes that a waiting job must not have.
    pub fn excluded_nodes(&self, job: &Job) -> Result<Vec<String>, Error> {
        let number = job.own_number();
        let args = ["--noheader", "--local", "--all", "--states=all", "--jobs", &number, "--format=%x"];
        expand_nodelist(&self.output("squeue", &args)?)
    }

    /// The GPUs of a node that a running job holds, as Slurm counts them there; nothing where it does not say which.
    pub fn gpus(&self, job: u32, node: &str) -> Result<Option<Vec<u32>>, Error> {
        let (text, is_json) = self.details(job)?;
        if is_json { parse_gpus_json(&text, job, node) } else { parse_gpus(&text, job, node) }
    }

    /// What a job asks for on each of its nodes beside GRES, in words for `salloc`: how much memory, and which threads.
    pub fn per_node(&self, job: u32) -> Result<Vec<String>, Error> {
        let (text, is_json) = self.details(job)?;
        if is_json { parse_per_node_json(&text, job) } else { parse_per_node(&text, job) }
    }

    /// Everything that Slurm shows of a job, and whether that is JSON.
    fn details(&self, job: u32) -> Result<(String, bool), Error> {
        let (id, is_json) = (job.to_string(), self.series()? >= JSON_SINCE);
        let form = if is_json { [id.as_str(), "--json"] } else { ["-o", id.as_str()] };
        Ok((self.output("scontrol", &[&["show", "job", "-d"][..], &form].concat())?, is_json))
    }

    /// The running steps of a job, the batch step included.
    pub fn steps(&self, job: u32) -> Result<Vec<Step>, Error> {
        let number = self.number(job)?;
        match self.output("scontrol", &["show", "step", "-o", &number]) {
            Ok(text) => parse_steps(&text, &number),
            Err(e) if e.is_unknown_job() => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// A job's batch script; for its owner and operators.
    pub fn batch_script(&self, job: u32) -> Result<String, Error> {
        self.output("scontrol", &["write", "batch_script", &self.number(job)?, "-"])
    }

    /// The job id of a task of an array, `ARRAY_TASK` as people write it; accounting knows one that has long ended.
    pub fn array_task(&self, array: u32, task: u32) -> Result<Option<u32>, Error> {
        let name = format!("{array}_{task}");
        match self.facts(&["--jobs", &name]) {
            Ok(text) => Ok(parse_jobs(&text).jobs.iter().find(|j| j.array == Some((array, task))).map(|j| j.id)),
            Err(e) if e.is_unknown_job() => {
                let text = self.output("sacct", &["-n", "-P", "-X", "-j", &name, "--format=JobIDRaw"])?;
                Ok(text.lines().next().and_then(|id| id.trim().parse().ok()))
            }
            Err(e) => Err(e),
        }
    }

    fn facts(&self, which: &[&str]) -> Result<String, Error> {
        self.squeue(which, &format(self.has_exclusive()?))
    }

    /// Columns of jobs in whatever state and partition.
    fn squeue(&self, which: &[&str], columns: &str) -> Result<String, Error> {
        let columns = ["--Format", columns];
        let args = [&["--noheader", "--local", "--all", "--states=all"], which, &columns].concat();
        self.output("squeue", &args)
    }
}

/// A job that holds nodes now; none if it waits or has ended, whatever else is said of it.
fn parse_holder(line: &str) -> Result<Option<Holder>, Error> {
    let wrong = || Error::unreadable("line of squeue", line);
    let columns: Vec<&str> = line.strip_suffix('|').ok_or_else(wrong)?.split('|').collect();
    let [job, uid, state, nodes] = columns[..] else { return Err(wrong()) };
    let (state, is_completing) = (JobState::read(state)?.0, state == "COMPLETING");
    if state == JobState::Pending || state.is_over() {
        return Ok(None);
    }
    let job = job.parse().map_err(|_| wrong())?;
    let uid = crate::fields::uid("user id", uid)?;
    Ok(Some(Holder { job, uid, state, is_completing, nodes: expand_nodelist(nodes)? }))
}

/// The text behind a component's number, up to that of another one.
fn of_component(answer: &str, job: u32) -> String {
    let number = |line: &str| line.split_once('|').and_then(|(number, _)| number.parse::<u32>().ok());
    let mine = answer.split_inclusive('\n').skip_while(|line| number(line) != Some(job));
    let rest = mine.enumerate().take_while(|(at, line)| *at == 0 || number(line).is_none_or(|other| other <= job));
    let text: String = rest.map(|(_, line)| line).collect();
    text.split_once('|').map(|(_, text)| text.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::with;

    #[test]
    fn accounting_is_asked_for_the_task_of_an_array_of_which_slurm_knows_only_others() {
        let dir = tempfile::tempdir().expect("a folder");
        with(&dir, "squeue", "[ $# = 1 ] || { echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }");
        assert_eq!(with(&dir, "sacct", "echo 9").array_task(2, 7).expect("an answer"), Some(9));
        assert_eq!(with(&dir, "sacct", "true").array_task(2, 7).expect("an answer"), None);
        let slurm = with(&dir, "squeue", "echo '/usr/bin/squeue: 3: exec: /opt/squeue: not found' >&2; exit 127");
        assert!(slurm.job(2).is_err(), "a Slurm that cannot be asked knows nothing of the job");
    }

    #[test]
    fn the_last_task_of_an_array_is_meant_alone_though_it_has_the_arrays_number() {
        let dir = tempfile::tempdir().expect("a folder");
        let jobs = dir.path().join("jobs");
        std::fs::write(
            &jobs,
            "JobId=2 ArrayJobId=2 ArrayTaskId=3 UserId=a(1000) JobState=RUNNING\n\
                               JobId=5 ArrayJobId=2 ArrayTaskId=1 UserId=a(1000) JobState=RUNNING\n\
                               JobId=7 UserId=a(1000) JobState=RUNNING\n",
        )
        .expect("jobs");
        with(&dir, "squeue", &crate::example::squeue(&jobs));
        let asked = dir.path().join("asked");
        let slurm = with(&dir, "scontrol", &format!("echo \"$@\" >> {}", asked.display()));
        for job in [2, 5, 7] {
            slurm.requeue(job).expect("requeued");
        }
        slurm.start_now(2).expect("started");
        let asked = std::fs::read_to_string(asked).expect("asked");
        let wanted = "requeue 2_3\nrequeue 2_1\nrequeue 7\nupdate JobId=2_3 StartTime=now+2seconds\n";
        assert_eq!(asked, wanted);
    }

    #[test]
    fn a_job_is_found_among_the_tasks_of_its_array_and_no_text_of_a_user_is_asked_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let (jobs, asked) = (dir.path().join("jobs"), dir.path().join("asked"));
        std::fs::write(
            &jobs,
            "JobId=5 ArrayJobId=2 ArrayTaskId=1 UserId=a(1000) JobState=RUNNING\n\
                               JobId=2 ArrayJobId=2 ArrayTaskId=3 UserId=a(1000) JobState=PENDING\n",
        )
        .expect("jobs");
        let script = format!("echo \"$@\" >> {}\n{}", asked.display(), crate::example::squeue(&jobs));
        let slurm = with(&dir, "squeue", &script);
        let job = slurm.job(2).expect("an answer").expect("a job");
        assert_eq!((job.state, job.array, job.alone), (JobState::Pending, Some((2, 3)), false));
        assert_eq!(slurm.job(3).expect("an answer"), None);
        let asked = std::fs::read_to_string(asked).expect("asked").to_lowercase();
        for text in ["name:", "comment", "command", "workdir", "account", "std", "wckey", "burstbuffer"] {
            assert!(!asked.replace("username:", "").contains(text), "{text}: {asked}");
        }
    }

    #[test]
    fn holders_are_those_that_have_the_nodes_now() {
        let dir = tempfile::tempdir().expect("a folder");
        let lines = "7|1000|RUNNING|n[1-2]|\n8|1001|COMPLETING|n2|\n9|?|COMPLETED|n1|\n10|1000|PENDING||\n\
                     11|0|SUSPENDED|n1|\n12|-1294967295|RUNNING|n1|\n";
        let slurm = with(&dir, "squeue", &format!("echo \"$@\" >&2; cat <<'END'\n{lines}END"));
        let nodes = ["n1", "n2"].map(str::to_string);
        let holders = slurm.jobs_on(&nodes).expect("an answer");
        assert_eq!(
            holders.iter().map(|h| (h.job, h.uid, h.is_completing)).collect::<Vec<_>>(),
            [(7, 1000, false), (8, 1001, true), (11, 0, false), (12, 3_000_000_001, false)]
        );
        assert_eq!(holders[0].nodes, nodes);
        let forged = with(&dir, "squeue", "echo '7|1000|RUNNING|n1|x|'");
        assert!(forged.jobs_on(&nodes).is_err(), "what has other columns is not guessed at");
    }

    #[test]
    fn a_text_is_what_was_written_whatever_it_looks_like() {
        let dir = tempfile::tempdir().expect("a folder");
        let job =
            crate::example::parse_job("JobId=7 UserId=a(1000) JobState=RUNNING", 7).expect("read").expect("a job");
        let slurm = with(&dir, "squeue", "printf 'x\\n7|0|RUNNING|\\n \\n'");
        assert_eq!(slurm.text(&job, JobText::AdminComment).expect("a text"), "x\n7|0|RUNNING|\n ");
        let none = with(&dir, "squeue", "echo '(null)'");
        assert_eq!(none.text(&job, JobText::AdminComment).expect("none"), "");
        let first = crate::Job { het: Some(7), ..job.clone() };
        let parts = with(&dir, "squeue", "printf '9|(null)\\n7|x\\n7|y\\n8|z\\n'");
        assert_eq!(parts.text(&first, JobText::AdminComment).expect("a text"), "x\n7|y", "that of one component alone");
        let parts = with(&dir, "squeue", "printf '8|z\\n7|(null)\\n'");
        assert_eq!(parts.text(&first, JobText::AdminComment).expect("none"), "");
    }
}
