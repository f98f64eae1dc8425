//! Loans on a real Slurm: idle nodes go to a queued job of another user and come back, whoever dies in between.
//!
//! One cluster of four nodes serves all tests, one after the other.

use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use suite::{Site, Wanted};

const LENDER: &str = "jpalice";
const BORROWER: &str = "jpbob";
const MINUTES: Duration = Duration::from_secs(100);

/// How late others may be here, s.
const PATIENCE_S: u32 = 30;

/// slurmctld writes down what it knows of jobs every five seconds; a killed one forgets the rest.
const WRITTEN: Duration = Duration::from_secs(7);

fn folder() -> PathBuf {
    PathBuf::from(format!("/tmp/joulepoint-loans-{}", std::process::id()))
}

fn site() -> MutexGuard<'static, Site> {
    static SITE: OnceLock<Mutex<Site>> = OnceLock::new();
    let start = || {
        trap_commands();
        let toml = format!(
            "[estimates]\nnode_mtbf_s = 36000.0\ncheckpoint_s = 1.0\nrestart_s = 5.0\n[lend]\nmode = \"preempt\"\nshortest_s = 1.0\n\
             patience_s = {PATIENCE_S}.0\nnot_partitions = [\"kept\"]\n"
        );
        let slurm_conf = "PartitionName=all Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP\n\
                          PartitionName=kept Nodes=n[1-4] MaxTime=INFINITE State=UP\n";
        // Slurm 22.05 may give a node from which a job was requeued to nobody before it has asked it again.
        let slurmd_timeout_s = 45;
        let wanted = Wanted { nodes: 4, toml, slurm_conf: slurm_conf.into(), slurmd_timeout_s, ..Wanted::default() };
        let dir = folder().join("site");
        Mutex::new(Site::start(&dir, &wanted, &mut |text| println!("  {text}")).expect("the site starts"))
    };
    let site = SITE.get_or_init(start).lock().unwrap_or_else(PoisonError::into_inner);
    // What a test that failed has left would have all others fail.
    let _ = fs::remove_file(trap_file());
    for user in [LENDER, BORROWER] {
        let _ = site.cluster.command("scancel").args(["-u", user]).status();
    }
    site
}

/// Puts a `scontrol` before Slurm's that kills the service which calls it, before or after a command that is named in
/// the file `trap`, once: the service dies at this very point of a loan.
fn trap_commands() {
    let bin = folder().join("trap-bin");
    fs::create_dir_all(&bin).expect("a folder");
    fs::set_permissions(folder(), fs::Permissions::from_mode(0o755)).expect("open to users");
    let real = std::env::split_paths(&std::env::var_os("PATH").expect("a PATH"))
        .map(|dir| dir.join("scontrol"))
        .find(|path| path.exists())
        .expect("scontrol is installed");
    let script = format!(
        "#!/bin/bash\n\
         trap={trap}\n\
         [ \"$(cat /proc/$PPID/comm)\" = joulepointd ] && [ -e $trap ] && {{ read -r when words < $trap; }}\n\
         if [ -n \"$words\" ] && [[ \"$*\" == *\"$words\"* ]]; then\n\
         rm $trap\n\
         [ $when = after ] && {real} \"$@\"\n\
         kill -9 $PPID\n\
         exit 1\n\
         fi\n\
         exec {real} \"$@\"\n",
        trap = trap_file().display(),
        real = real.display()
    );
    fs::write(bin.join("scontrol"), script).expect("written");
    fs::set_permissions(bin.join("scontrol"), fs::Permissions::from_mode(0o755)).expect("executable");
    let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())));
    // SAFETY: the first test sets it before anything is started.
    unsafe { std::env::set_var("PATH", path.expect("a PATH")) };
}

fn trap_file() -> PathBuf {
    folder().join("trap")
}

fn scontrol(site: &Site, args: &[&str]) -> Result<String> {
    let output = site.cluster.command("scontrol").args(args).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn field(site: &Site, job: u32, key: &str) -> Result<String> {
    let text = scontrol(site, &["show", "job", "-o", &job.to_string()])?;
    let value = text.split_whitespace().find_map(|w| w.strip_prefix(&format!("{key}=")).map(str::to_string));
    value.with_context(|| format!("job {job} without {key}: {text}"))
}

/// A protected job on four nodes that uses only the first two.
fn lender(site: &Site, name: &str, more: &[&str]) -> Result<u32> {
    let folder = site.folder(LENDER, name)?;
    let protected =
        ["--ft-energy=energy", "--ft-energy-interval=1:00:00", "--ft-energy-signal=USR1", "--ft-energy-done=x.ckpt"];
    let usual = ["-N4", "--exclusive", "--no-kill", "-t70"];
    let args: Vec<&str> = usual.iter().chain(&protected).chain(more).copied().collect();
    let job = site.submit(LENDER, &folder, &args, "sleep 900")?;
    site.wait_report(job, "the lender's run", MINUTES, |run| (run["state"] == "running").then_some(()))?;
    Ok(job)
}

fn borrower(site: &Site, name: &str, args: &[&str], seconds: u32) -> Result<u32> {
    let folder = site.folder(BORROWER, name)?;
    site.submit(BORROWER, &folder, args, &format!("sleep {seconds}"))
}

/// Asks as the lender does; the answer comes when the nodes are back.
fn ask(site: &Site, job: u32, seconds: u32) -> Result<Child> {
    let program = site.conf.with_file_name("bin").join("joulepoint").display().to_string();
    let (job, seconds) = (job.to_string(), seconds.to_string());
    let mut command = site.user_command(LENDER, &program, Path::new("/"));
    command.args(["loans", "ask", "--job", &job, "--nodes", "n[3-4]", "--for", &seconds]);
    // SAFETY: prctl is safe between fork and exec; whoever asks goes with a test that fails.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

fn loan_of(site: &Site, job: u32) -> Result<Option<Value>> {
    let output = site.joulepoint("root", &["loans", "-j", &job.to_string(), "--json"])?;
    if !output.status.success() {
        return Ok(None); // the service is away
    }
    let loans: Value = serde_json::from_slice(&output.stdout)?;
    Ok(loans.as_array().and_then(|l| l.last()).cloned())
}

fn wait_loan(site: &Site, job: u32, states: &[&str]) -> Result<Value> {
    let in_state = |loan: Value| states.iter().any(|s| loan["state"] == *s).then_some(loan);
    site.wait(&format!("a loan of job {job} in {states:?}"), MINUTES, |s| Ok(loan_of(s, job)?.and_then(in_state)))
        .with_context(|| format!("{:?}", loan_of(site, job)))
}

fn recall(site: &Site, loan: &Value) -> Result<()> {
    let id = loan["id"].as_str().context("an id")?;
    assert!(site.joulepoint("root", &["loans", "recall", id])?.status.success());
    Ok(())
}

/// No reservation, no helper job, no held node.
fn nothing_is_left(site: &Site) -> Result<()> {
    site.wait("no leftovers", MINUTES, |site| {
        let reservations = scontrol(site, &["show", "reservation", "-o"])?;
        let jobs = scontrol(site, &["show", "job", "-o"])?;
        let is_helper = |j: &&str| {
            j.contains("JobName=joulepoint_") && (j.contains("JobState=PENDING") || j.contains("JobState=RUNNING"))
        };
        let clean = !reservations.contains("joulepoint_") && !jobs.lines().any(|j| is_helper(&j));
        Ok(clean.then_some(()))
    })
}

/// Ends what a test began, and waits until all nodes are idle.
fn tidy(site: &Site, jobs: &[u32]) -> Result<()> {
    for job in jobs {
        site.cluster.command("scancel").arg(job.to_string()).status()?;
    }
    nothing_is_left(site)?;
    site.wait("idle nodes", MINUTES, |site| {
        let text = scontrol(site, &["show", "node", "-o"])?;
        Ok(text.lines().all(|l| l.contains("State=IDLE ")).then_some(()))
    })
}

fn seconds(loan: &Value, key: &str) -> f64 {
    loan[key].as_f64().unwrap_or_else(|| panic!("{key} in {loan:#}"))
}

#[test]
fn idle_nodes_go_to_the_job_that_fits_and_come_back_with_the_walltime() -> Result<()> {
    let site = &*site();
    let job = lender(site, "fits", &[])?;
    let too_long = borrower(site, "long", &["-N2", "-t5"], 1)?;
    let fits = borrower(site, "short", &["-N1", "-t1"], 10)?;
    let asked = ask(site, job, 150)?;
    wait_loan(site, job, &["lent"])?;
    assert_eq!(field(site, job, "NodeList")?, "n[1-2]");
    site.wait_state(fits, &["COMPLETED"], MINUTES)?;
    assert_eq!(site.state(too_long)?, "PENDING", "it would not end before the return");
    recall(site, &wait_loan(site, job, &["lent"])?)?;
    let loan = wait_loan(site, job, &["closed"])?;
    let output = asked.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("n[3-4] back after"), "{said}");
    assert_eq!(field(site, job, "NodeList")?, "n[1-4]");
    let away_s = seconds(&loan, "back_s") - seconds(&loan, "lent_s");
    assert_eq!(field(site, job, "TimeLimit")?, format!("01:{:02}:00", 10 + (away_s / 60.0).ceil() as u32));
    let stay = &loan["stays"][0];
    assert_eq!((stay["job"].as_u64(), stay["user"].as_str()), (Some(fits.into()), Some(BORROWER)), "{loan:#}");
    assert!(stay["joules"].as_f64().is_some_and(|j| j >= 0.0), "{loan:#}");
    let run = site.report(job)?.context("a report")?;
    let lent = run["loans"].as_array().context("loans")?;
    assert!(lent.iter().any(|l| l["borrower"] == fits && l["end_s"].is_f64()), "{lent:?}");
    assert!(lent.iter().any(|l| l["borrower"].is_null()), "one of two nodes was lent to nobody: {lent:?}");
    assert!(run["failures"].as_array().is_some_and(Vec::is_empty), "{run:#}");
    tidy(site, &[job, too_long])
}

#[test]
fn the_service_may_be_killed_before_and_after_everything_it_does() -> Result<()> {
    let site = &mut *site();
    // In one loan before the nodes are called back and after it.
    let deaths: [&[&str]; 4] = [
        &["create reservation", "update ReservationName="],
        &["NodeList=", "NumNodes=0"],
        &["TimeLimit="],
        &["delete ReservationName="],
    ];
    let job = lender(site, "killed", &[])?;
    for (when, words) in ["before", "after"].iter().flat_map(|when| deaths.map(|words| (*when, words))) {
        println!("  killed {when} {}", words.join(", and "));
        let limit = field(site, job, "TimeLimit")?;
        let traps: Vec<String> = words.iter().map(|word| format!("{when} {word}\n")).collect();
        fs::write(trap_file(), &traps[0])?;
        let asked = ask(site, job, 600)?;
        let loan = through_deaths(site, job, &traps[1..])?;
        let output = asked.wait_with_output()?;
        assert!(output.status.success(), "{when} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(field(site, job, "NodeList")?, "n[1-4]", "{when} {words:?}: {loan:#}");
        assert_ne!(field(site, job, "TimeLimit")?, limit, "{when} {words:?}");
        nothing_is_left(site)?;
    }
    tidy(site, &[job])
}

/// Starts the service again when a trap has sprung, sets the next, and calls the nodes back when it is the last, until
/// the loan is over.
fn through_deaths(site: &mut Site, job: u32, traps: &[String]) -> Result<Value> {
    let end = std::time::Instant::now() + MINUTES;
    let (mut traps, mut is_set) = (traps.iter(), true);
    loop {
        if is_set && !trap_file().exists() {
            site.kill_controller()?;
            site.start_controller()?;
            is_set = false;
            if let Some(trap) = traps.next() {
                fs::write(trap_file(), trap)?;
                is_set = true;
            }
        }
        let loan = loan_of(site, job)?.unwrap_or_default();
        if !is_set && loan["state"] == "closed" {
            return Ok(loan);
        }
        if traps.len() == 0
            && loan["state"] == "lent"
            && let Some(id) = loan["id"].as_str()
        {
            site.joulepoint("root", &["loans", "recall", id])?; // again if the service is away
        }
        anyhow::ensure!(std::time::Instant::now() < end, "is set: {is_set}; {loan:#}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_slurmctld_that_forgets_the_return_does_no_harm() -> Result<()> {
    let site = &mut *site();
    let job = lender(site, "forgotten", &[])?;

    // It remembers the helper, and not for whom it is: the service dies before it has merged it.
    fs::write(trap_file(), "before NumNodes=0\n")?;
    let asked = ask(site, job, 600)?;
    recall(site, &wait_loan(site, job, &["lent"])?)?;
    site.wait("the end of the service", MINUTES, |_| Ok((!trap_file().exists()).then_some(())))?;
    site.kill_controller()?;
    std::thread::sleep(WRITTEN);
    site.cluster.kill_controller()?;
    site.cluster.start_controller()?;
    site.start_controller()?;
    wait_loan(site, job, &["returning"])?;
    let loan = wait_loan(site, job, &["closed"])?;
    assert!(asked.wait_with_output()?.status.success(), "{loan:#}");
    assert_eq!(field(site, job, "NodeList")?, "n[1-4]", "{loan:#}");

    // It forgets that the nodes are back.
    let asked = ask(site, job, 600)?;
    recall(site, &wait_loan(site, job, &["lent"])?)?;
    let old = before_the_return(site, job)?;
    wait_loan(site, job, &["closing"])?;
    site.cluster.kill_controller()?;
    copy(&old, &site.cluster.dir.join("state"))?;
    site.cluster.start_controller()?;
    wait_loan(site, job, &["returning"])?;
    let loan = wait_loan(site, job, &["closed"])?;
    assert!(asked.wait_with_output()?.status.success(), "{loan:#}");
    assert_eq!(field(site, job, "NodeList")?, "n[1-4]", "{loan:#}");

    // From now on it remembers: what runs there goes on.
    let id = job.to_string();
    let mut command = site.user_command(LENDER, "srun", Path::new("/"));
    command.args(["--jobid", &id, "--overlap", "-N2", "-n2", "-w", "n[3-4]", "sh", "-c", "sleep 5; echo went on"]);
    let step = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let runs =
        |site: &Site| Ok(scontrol(site, &["show", "step", "-o", &id])?.contains("NodeList=n[3-4]").then_some(()));
    site.wait("a step on both nodes", MINUTES, runs)?;
    site.cluster.kill_controller()?;
    site.cluster.start_controller()?;
    assert_eq!(field(site, job, "NodeList")?, "n[1-4]");
    let output = step.wait_with_output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "went on\nwent on\n");
    nothing_is_left(site)?;
    tidy(site, &[job])
}

/// What slurmctld had written down last before the nodes of a loan came back.
fn before_the_return(site: &Site, job: u32) -> Result<PathBuf> {
    let (state, new, old) = (site.cluster.dir.join("state"), folder().join("new"), folder().join("old"));
    let is_out = || Ok(loan_of(site, job)?.is_some_and(|loan| loan["state"] == "lent" || loan["state"] == "returning"));
    loop {
        let is_whole = copy(&state, &new).is_ok(); // unless it is being written just now
        let is_out: Result<bool> = is_out();
        if !is_out? {
            return Ok(old);
        }
        if is_whole {
            copy(&new, &old)?;
        }
    }
}

/// Puts a copy of a folder in another's place.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let words = r#"rm -rf "$1.new" && cp -a "$0" "$1.new" && rm -rf "$1" && mv "$1.new" "$1""#;
    let done = std::process::Command::new("sh").args(["-c", words]).args([from, to]).status()?;
    anyhow::ensure!(done.success(), "{} was not copied", from.display());
    Ok(())
}

#[test]
fn whoever_else_dies_the_nodes_return_or_the_run_is_requeued() -> Result<()> {
    let site = &mut *site();

    // slurmctld restarts in the middle, and a lent node dies: the other comes back, and the run has no failure.
    let job = lender(site, "slurmctld", &[])?;
    let mut asked = ask(site, job, 3600)?;
    wait_loan(site, job, &["lent"])?;
    std::thread::sleep(WRITTEN);
    site.cluster.kill_controller()?;
    site.cluster.start_controller()?;
    site.cluster.kill_node("n4")?;
    site.wait("the dead node", MINUTES, |s| {
        Ok(scontrol(s, &["show", "node", "-o", "n4"])?.contains("State=DOWN").then_some(()))
    })?;
    recall(site, &wait_loan(site, job, &["lent"])?)?;
    let loan = wait_loan(site, job, &["closed"])?;
    assert_eq!(field(site, job, "NodeList")?, "n[1-3]", "{loan:#}");
    assert!(asked.wait()?.success());
    let run = site.report(job)?.context("a report")?;
    assert!(run["failures"].as_array().is_some_and(Vec::is_empty), "{run:#}");
    site.cluster.revive_node("n4")?;
    tidy(site, &[job])?;

    // The lender is cancelled.
    let job = lender(site, "cancelled", &[])?;
    asked = ask(site, job, 3600)?;
    wait_loan(site, job, &["lent"])?;
    site.cluster.command("scancel").arg(job.to_string()).status()?;
    wait_loan(site, job, &["closed"])?;
    asked.wait()?;
    tidy(site, &[job])?;

    // A borrower will not stop: an operator has raised its limit.
    let job = lender(site, "stubborn", &[])?;
    let stubborn = borrower(site, "stubborn", &["-N2", "-t1"], 600)?;
    asked = ask(site, job, 150)?;
    site.wait_state(stubborn, &["RUNNING"], MINUTES)?;
    scontrol(site, &["update", &format!("jobid={stubborn}"), "TimeLimit=20"])?;
    recall(site, &wait_loan(site, job, &["lent"])?)?;
    wait_loan(site, job, &["failed"])?;
    assert!(!asked.wait()?.success());
    assert_eq!(field(site, job, "Restarts")?, "1");
    assert_eq!(site.state(stubborn)?, "RUNNING", "nobody is driven out of a window");
    tidy(site, &[job, stubborn])
}

/// Counts to 60 in 30 s and mixes what it counts; writes down how far it is when it is told to.
const COUNT: &str = r#"
cd "$SLURM_SUBMIT_DIR"
read -r i sum < x.ckpt || { i=0; sum=0; }
trap 'echo $i $sum > x.new; mv x.new x.ckpt' USR1
while [ $i -lt 60 ]; do
  sleep 0.5 & pause=$!
  while kill -0 $pause 2>/dev/null; do wait $pause; done
  i=$((i + 1)); sum=$(((sum * 1103515245 + i) % 2147483648))
  echo $i >> counted
done
echo $sum > result
"#;

/// What the counting comes to, if nothing happens to it.
fn undisturbed() -> String {
    let sum = (1..=60).fold(0_u64, |sum, i| (sum * 1_103_515_245 + i) % 2_147_483_648);
    format!("{sum}\n")
}

#[test]
fn a_long_job_that_can_checkpoint_borrows_and_goes_back_into_the_queue_at_the_return() -> Result<()> {
    let site = &mut *site();
    let job = lender(site, "preempt", &[])?;
    let plain = borrower(site, "plain", &["-N1", "-t30"], 1)?;
    let folder = site.folder(BORROWER, "counts")?;
    fs::write(folder.join("count.sh"), COUNT)?;
    let protected =
        ["--ft-energy=energy", "--ft-energy-interval=1:00:00", "--ft-energy-signal=USR1", "--ft-energy-done=x.ckpt"];
    let args = [&["-N1", "-t30", "--exclusive"], &protected[..]].concat();
    let long = site.submit(BORROWER, &folder, &args, "srun bash count.sh")?;
    // The service is killed when the borrower is called in and nobody has noted it, and again when it is to go.
    fs::write(trap_file(), format!("after JobId={long} ReservationName=joulepoint\n"))?;
    let asked = ask(site, job, 900)?;
    site.wait("the end of the service", MINUTES, |_| Ok((!trap_file().exists()).then_some(())))?;
    site.kill_controller()?;
    site.start_controller()?;
    let counted = |site: &Site, at_least: usize| {
        let lines = || fs::read_to_string(folder.join("counted")).unwrap_or_default().lines().count();
        site.wait("some counting", MINUTES, |_| Ok((lines() >= at_least).then_some(())))
    };
    counted(site, 4)?;
    assert_eq!(site.state(plain)?, "PENDING", "it is not under Joulepoint");
    site.wait("a borrower that needs no reservation", MINUTES, |site| {
        Ok(field(site, long, "Reservation").unwrap_or_default().is_empty().then_some(()))
    })?;
    recall(site, &wait_loan(site, job, &["lent"])?)?;
    wait_loan(site, job, &["returning", "growing", "closing", "closed"])?;
    site.kill_controller()?;
    site.start_controller()?;
    let loan = wait_loan(site, job, &["closed"])?;
    assert!(asked.wait_with_output()?.status.success(), "{loan:#}");
    assert_eq!(field(site, job, "NodeList")?, "n[1-4]");
    assert_eq!(
        (loan["mode"].as_str(), loan["chosen"].as_array().map(Vec::len)),
        (Some("preempt"), Some(1)),
        "{loan:#}"
    );
    let chosen = &loan["chosen"][0];
    assert_eq!((chosen["job"].as_u64(), chosen["state"].as_str()), (Some(long.into()), Some("over")), "{loan:#}");
    assert_eq!(loan["stays"][0]["job"], long, "{loan:#}");
    assert_eq!(field(site, long, "Restarts")?, "1");
    let output = site.joulepoint("root", &["loans", "-j", &job.to_string()])?;
    let sheet = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(sheet.contains(" preempt ") && sheet.contains(&format!("{long}({BORROWER},preempt)")), "{sheet}");
    nothing_is_left(site)?;

    // It goes on from there as soon as there is room.
    tidy(site, &[job, plain])?;
    site.wait_state(long, &["COMPLETED"], MINUTES)?;
    let run = site.wait_report(long, "the end", MINUTES, |run| (run["state"] == "completed").then(|| run.clone()))?;
    let kinds: Vec<_> = run["failures"].as_array().into_iter().flatten().map(|f| f["kind"].clone()).collect();
    assert_eq!((kinds, run["total"]["failures"].as_u64()), (vec!["preempted".into()], Some(0)), "{run:#}");
    assert!(run["checkpoints"].as_array().is_some_and(|c| !c.is_empty()), "{run:#}");
    assert_eq!(run["records"].as_array().map(Vec::len), Some(2), "{run:#}");
    assert_eq!(fs::read_to_string(folder.join("result"))?, undisturbed());
    let counted = fs::read_to_string(folder.join("counted"))?.lines().count();
    assert!(counted <= 62, "it began again from its checkpoint: {counted}");
    Ok(())
}

#[test]
fn what_the_site_forbids_is_refused_with_the_reason() -> Result<()> {
    let site = &*site();
    let job = lender(site, "kept", &["-pkept"])?;
    let output = ask(site, job, 150)?.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("partition kept"), "{said}");
    tidy(site, &[job])
}
