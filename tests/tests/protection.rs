//! What a user is told of a job's protection, by sbatch, in the job's output, by `status` and by `report`, on a real Slurm
//! whose nodes have no CRIU.

use anyhow::{Context, Result, ensure};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use suite::{Site, Wanted};

const USER: &str = "jpalice";
const LIMIT: Duration = Duration::from_secs(180);

/// Exit code of a job that is not to run without checkpoints.
const NOT_PROTECTED: &str = "122:0";

/// Says what it is, and counts four steps a second until there is a file `enough`; goes on from where it was.
const COUNTER: &str = r#"echo "life ${SLURM_RESTART_COUNT:-0}"
n=$(cat state 2> /dev/null || echo 0)
while [ ! -e enough ]; do
    sleep 0.25
    n=$((n + 1))
    echo "$n" > state.new && mv state.new state
done
echo "$n" > result"#;

struct Job {
    id: u32,
    folder: PathBuf,
    /// What sbatch said on standard error.
    told: String,
}

impl Job {
    fn submit(site: &Site, name: &str, args: &[&str], script: &str) -> Result<Job> {
        let folder = site.folder(USER, name)?;
        let output = site.sbatch(USER, &folder, &[&["-n1", "--exclusive"], args].concat(), script)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let id = said.trim().parse().with_context(|| format!("sbatch: {said}{told}"))?;
        Ok(Job { id, folder, told })
    }

    fn output(&self) -> String {
        fs::read_to_string(self.folder.join(format!("slurm-{}.out", self.id))).unwrap_or_default()
    }

    /// Waits until all words stand in the job's output.
    fn says(&self, site: &Site, words: &[&str]) -> Result<String> {
        let what = format!("{words:?} in the output");
        let found = |_: &Site| Ok(words.iter().all(|word| self.output().contains(word)).then_some(()));
        site.wait(&what, LIMIT, found).with_context(|| self.output())?;
        Ok(self.output())
    }

    /// What `joulepoint` says of the job to its user, with the exit code.
    fn asked(&self, site: &Site, args: &[&str]) -> Result<(Option<i32>, String)> {
        let output = site.joulepoint(USER, args)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.code(), text))
    }

    fn ends(&self, site: &Site, state: &str) -> Result<()> {
        site.wait_state(self.id, &[state], LIMIT).with_context(|| self.output()).map(drop)
    }
}

#[test]
fn a_user_always_knows_whether_the_job_is_protected() -> Result<()> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-protection-{}", std::process::id()));
    let mut site = Site::start(
        &dir,
        &Wanted { nodes: 6, slurm_conf: "RequeueExit=75".into(), ..Wanted::default() },
        &mut |text| println!("  {text}"),
    )?;
    let outcome = told(&mut site);
    drop(site);
    let _ = fs::remove_dir_all(&dir);
    outcome
}

fn told(site: &mut Site) -> Result<()> {
    let every_2s = ["--ft-energy", "--ft-energy-interval=2s"];
    let with = |more: &[&'static str]| [&every_2s[..], more].concat();
    // Before anything is submitted every node has told what it has.
    let six =
        |site: &Site| Ok(site.joulepoint(USER, &["capabilities"])?.stdout.starts_with(b"criu    0 of 6").then_some(()));
    site.wait("what all nodes have", LIMIT, six)?;
    let file = site.conf.with_file_name("capabilities.json");
    let is_told = |_: &Site| Ok(fs::read_to_string(&file).unwrap_or_default().contains("\"nodes\":6").then_some(()));
    site.wait("the file for sbatch", LIMIT, is_told)?;
    slurm_sets_what_protected_jobs_need(site)?;
    let comes_back = comes_back(site)?;
    let emptied = ["--ft-energy-done=*.cpt", "--open-mode=truncate"];
    let wrong_pattern = Job::submit(site, "pattern", &with(&emptied), COUNTER)?;
    ensure!(wrong_pattern.told.contains("Slurm empties the job's output"), "{}", wrong_pattern.told);
    let no_engine = Job::submit(site, "none", &["--ft-energy"], COUNTER)?;
    let named = with(&["--ft-energy-done=state", "--no-requeue"]);
    let right = Job::submit(site, "right", &with(&["--ft-energy-done=state"]), COUNTER)?;
    // A loop over scripts names each job after its own.
    let stays = Job::submit(site, "stays", &[&["-J", "job.sh"], &named[..]].concat(), COUNTER)?;
    refused(site)?;
    asks_for_itself_only(site)?;
    runs_once_without_us(site)?;
    of_several_parts(site)?;
    without_an_engine(site, &no_engine)?;
    protected(site, &right)?;
    ensure!(stays.told.contains("with a lost node the job ends for good"), "{}", stays.told);
    let said = stays.says(site, &["protected by engine app", "but the loss of a node ends the job for good"])?;
    let (_, status) = stays.asked(site, &["status", &stays.id.to_string()])?;
    ensure!(status.contains("but the loss of a node ends the job for good"), "{status}: {said}");
    pattern_that_matches_nothing(site, &wrong_pattern)?;
    for job in [&wrong_pattern, &no_engine, &right, &stays] {
        fs::write(job.folder.join("enough"), "")?;
        job.ends(site, "COMPLETED")?;
    }
    emptied_once(site, &comes_back)?;
    asks_for_another_life(site)?;
    hears_once_that_it_ends(site)?;
    waits_for_a_wrapper(site)
}

/// What was asked for by name and cannot be had is refused, before anything of the job has run.
fn refused(site: &Site) -> Result<()> {
    for (name, args, word) in [
        ("by-name", &["--ft-energy", "--ft-energy-engine=criu"][..], "--ft-energy-engine=criu"),
        ("require", &["--ft-energy", "--ft-energy-require"], "--ft-energy-require"),
    ] {
        let job = Job::submit(site, name, args, "touch has-run")?;
        job.ends(site, "FAILED")?;
        let output = job.output();
        for word in [word, "criu", "before it has begun", "NOT PROTECTED"] {
            ensure!(output.contains(word), "{name}: '{word}' is not in {output}");
        }
        ensure!(!job.folder.join("has-run").exists(), "{name}: it has run");
        let slurm = site.cluster.command("scontrol").args(["show", "job", "-o", &job.id.to_string()]).output()?;
        let slurm = String::from_utf8_lossy(&slurm.stdout).into_owned();
        ensure!(slurm.contains(&format!("ExitCode={NOT_PROTECTED}")), "{name}: {slurm}");
    }
    let twin = "--export=ALL,FT_ENERGY_MAX_LOSS=1hour";
    let job = Job::submit(site, "twin", &["--ft-energy", "--ft-energy-require", twin], "touch has-run")?;
    job.ends(site, "FAILED")?;
    let output = job.output();
    ensure!(output.contains("FT_ENERGY_MAX_LOSS") && output.contains("before it has begun"), "twin: {output}");
    ensure!(!job.folder.join("has-run").exists(), "twin: it has run");
    let folder = site.folder(USER, "contradiction")?;
    let both = site.sbatch(USER, &folder, &["--ft-energy", "--ft-energy-require", "--no-requeue"], "true")?;
    ensure!(!both.status.success(), "Slurm would not bring it back");
    Ok(())
}

/// A site that wants Slurm itself to set what protected jobs need: `conf/cli_filter`, as `sbatch` applies it.
fn slurm_sets_what_protected_jobs_need(site: &Site) -> Result<()> {
    const SHOWS: &str = r#"
local submit = slurm_cli_pre_submit
function slurm_cli_pre_submit(options, pack_offset)
    local code = submit(options, pack_offset)
    local function is(name) return name .. "=" .. tostring(options[name]) .. " " end
    io.stderr:write("slurm: ", is("requeue"), is("no-kill"), is("open-mode"), "\n")
    return code
end
"#;
    let etc = site.cluster.dir.join("etc-cli-filter");
    fs::create_dir_all(&etc)?;
    let conf = fs::read_to_string(&site.cluster.conf)?;
    fs::write(etc.join("slurm.conf"), conf + "CliFilterPlugins=cli_filter/lua\n")?;
    let filter = fs::read_to_string(suite::repository().join("conf/cli_filter/cli_filter.lua"))?;
    fs::write(etc.join("cli_filter.lua"), filter + SHOWS)?;
    let folder = site.folder(USER, "cli-filter")?;
    let protected = "requeue=requeue no-kill=unset open-mode=a";
    for (args, expected) in [
        ("--ft-energy", protected),
        ("--ft-energy --no-requeue --open-mode=truncate", "requeue=no-requeue no-kill=unset open-mode=t"),
        ("--ft-energy -N3 --ft-energy-spare=1", "no-kill=set"),
        ("--ft-energy=off", "requeue=unset no-kill=unset open-mode=nil"),
        ("", "requeue=unset no-kill=unset open-mode=nil"),
    ] {
        let submit = format!("printf '#!/bin/sh\\ntrue\\n' | sbatch --hold {args}");
        let mut command = site.user_command(USER, "bash", &folder);
        let output = command.args(["-c", &submit]).env("SLURM_CONF", etc.join("slurm.conf")).output()?;
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success() && told.contains(expected), "{args}: {told}");
    }
    site.cluster.command("scancel").args(["-u", USER, "--state=PENDING"]).status()?;
    Ok(())
}

/// A protected job's script submits another job without the option: that one is none of ours.
fn asks_for_itself_only(site: &Site) -> Result<()> {
    let submits = "touch x; sbatch --quiet --wait -n1 -o inner.out --wrap \
        'echo inner; env | grep -E \"^(FT_ENERGY|JOULEPOINT)_\" | grep -v _CONF=' 2> submitted; true";
    let job = Job::submit(site, "chain", &["--ft-energy", "--ft-energy-done=x"], submits)?;
    job.ends(site, "COMPLETED")?;
    let [inner, submitted] = ["inner.out", "submitted"].map(|name| fs::read_to_string(job.folder.join(name)));
    let (inner, submitted) = (inner?, submitted?);
    ensure!(inner == "inner\n" && !submitted.contains("joulepoint"), "{inner}{submitted}");
    Ok(())
}

/// A job whose run cannot have a folder runs as it would without us: once, and it ends as it ends.
fn runs_once_without_us(site: &Site) -> Result<()> {
    let nowhere = ["--ft-energy", "--ft-energy-done=x", "--ft-energy-dir=/proc/nowhere"];
    let job = Job::submit(site, "once", &nowhere, "echo begun; env | grep JOULEPOINT_; kill -SEGV $$")?;
    job.ends(site, "FAILED")?;
    let output = job.output();
    ensure!(output.matches("begun\n").count() == 1 && output.contains("NOT PROTECTED"), "{output}");
    ensure!(!output.contains("JOULEPOINT_TOLD") && !output.contains("JOULEPOINT_RUN"), "{output}");
    let slurm = site.cluster.command("scontrol").args(["show", "job", "-o", &job.id.to_string()]).output()?;
    let slurm = String::from_utf8_lossy(&slurm.stdout).into_owned();
    ensure!(slurm.contains("ExitCode=0:11"), "{slurm}");
    Ok(())
}

fn without_an_engine(site: &Site, job: &Job) -> Result<()> {
    ensure!(job.told.contains("NOT PROTECTED, as far as the nodes tell: none of the"), "{}", job.told);
    ensure!(job.told.contains("nodes has criu or dmtcp") && job.told.contains("--ft-energy-done"), "{}", job.told);
    let (_, counted) = job.asked(site, &["capabilities"])?;
    ensure!(counted.contains("criu    0 of 6 nodes"), "{counted}");
    let published = site.joulepoint("root", &["capabilities", "--publish"])?;
    ensure!(published.status.success(), "{}", String::from_utf8_lossy(&published.stderr));
    let explained = site.sbatch(USER, &job.folder, &["--ft-energy", "--ft-energy-explain"], "./a")?;
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    ensure!(explained.lines().count() == 6 && explained.contains("none of the 6 nodes has criu"), "{explained}");
    let output = job.says(site, &["NOT PROTECTED"])?;
    for word in ["no criu", "a failure costs all work", "--ft-energy-done=FILES"] {
        ensure!(output.contains(word), "'{word}' is not in {output}");
    }
    let id = job.id.to_string();
    site.wait("the state to arrive", LIMIT, |_| {
        Ok(job.asked(site, &["status", &id])?.1.contains("not protected").then_some(()))
    })?;
    let (code, text) = job.asked(site, &["status", &id, "--wait-protected"])?;
    ensure!(code == Some(3) && text.contains("NOT PROTECTED"), "{code:?}: {text}");
    let (_, text) = job.asked(site, &["report", "-j", &id])?;
    ensure!(text.contains("Protection: NOT PROTECTED"), "{text}");
    let metrics = site.metrics()?;
    ensure!(metrics.contains("joulepoint_runs_protection{state=\"not protected\"}"), "{metrics}");
    Ok(())
}

/// Its first checkpoint is told, and the loss of its node costs neither its work nor a line of its output.
fn protected(site: &mut Site, job: &Job) -> Result<()> {
    ensure!(job.told.contains("the program's own checkpoints ('state')"), "{}", job.told);
    let id = job.id.to_string();
    let (code, text) = job.asked(site, &["status", &id, "--wait-protected", "--timeout=3"])?;
    ensure!(code == Some(0) && text.contains("protected by engine app"), "{code:?}: {text}");
    let output = job.says(site, &["life 0", "protected by engine app"])?;
    ensure!(output.contains("not proven yet (engine app)"), "what is not seen is not promised: {output}");
    let run = site.report(job.id)?.context("a report")?;
    let node = run["records"][0]["nodes"][0].as_str().context("a node")?.to_string();
    let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
    let before = lines(&job.output());
    site.cluster.kill_node(&node)?;
    let output = job.says(site, &["life 1", "goes on from checkpoint"])?;
    site.cluster.give_power(&node)?;
    ensure!(lines(&output).starts_with(&before), "what was there before: {before:?}, and now: {output}");
    Ok(())
}

fn pattern_that_matches_nothing(site: &Site, job: &Job) -> Result<()> {
    let looked = format!("'*.cpt' in {}", job.folder.display());
    let output = job.says(site, &["NOT PROTECTED: the program has written no checkpoint yet"])?;
    ensure!(output.contains(&looked), "what was looked for, and where: {output}");
    // A file that appears after all is taken.
    fs::write(job.folder.join("late.cpt"), "state")?;
    let owner = site.cluster.command_as("root", "chown").arg(USER).arg(job.folder.join("late.cpt")).status()?;
    ensure!(owner.success(), "chown");
    job.says(site, &["joulepoint: protected by engine app"]).map(drop)
}

/// Of a file that a job names: what an earlier job has written there.
const OLD: &str = "of an earlier job\n";

/// A job whose script comes by a pipe, and which names its output, goes back into the queue once and fails then at a folder of
/// its first life. Slurm holds back for two minutes what its user requeues.
fn comes_back(site: &Site) -> Result<Job> {
    let log = site.folder(USER, "log")?.join("log");
    fs::write(&log, OLD)?;
    ensure!(site.cluster.command_as("root", "chown").arg(USER).arg(&log).status()?.success(), "chown");
    let script = r#"echo "life ${SLURM_RESTART_COUNT:-0}"; echo "append ${SBATCH_OPEN_MODE:-no} ${SLURM_OPEN_MODE:-no}"
                    mkdir made || exit 3
                    [ "${SLURM_RESTART_COUNT:-0}" = 1 ] || scontrol requeue $SLURM_JOB_ID; sleep 1"#;
    let script = format!("#!/bin/sh\n#SBATCH --ft-energy\n{script}\n");
    let folder = site.folder(USER, "log")?;
    let mut command = site.user_command(USER, "bash", &folder);
    let submit = r#"printf %s "$0" | sbatch --parsable -n1 --exclusive --output=log"#;
    let output = command.args(["-c", submit, &script]).output()?;
    let [said, told] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let id = said.trim().parse().with_context(|| format!("sbatch: {said}{told}"))?;
    Ok(Job { id, folder, told })
}

/// Its file is empty when the job begins, as ever, and is added to when it comes back; there it is told what was left.
fn emptied_once(site: &Site, job: &Job) -> Result<()> {
    let read = || fs::read_to_string(job.folder.join("log")).unwrap_or_default();
    site.wait("the second life", LIMIT, |_| Ok(read().contains("life 1").then_some(()))).with_context(read)?;
    let text = read();
    ensure!(!text.contains(OLD) && text.contains("life 0\nappend no no\n"), "{text}");
    job.ends(site, "FAILED").with_context(read)?;
    let text = read();
    for word in [
        "begins anew",
        "changed in its folder since it first began: made/;",
        "ended with exit code 3 after it had gone back",
    ] {
        ensure!(text.contains(word), "{word}: {text}");
    }
    let (_, report) = job.asked(site, &["report", "-j", &job.id.to_string()])?;
    ensure!(report.contains("Repeated work") && report.contains("made/"), "{report}");
    Ok(())
}

fn scontrol(site: &Site, words: &[&str]) -> Result<()> {
    let output = site.cluster.command("scontrol").args(words).output()?;
    ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Slurm holds back for a while what goes back into the queue: no longer. Not at this very moment: a node refuses a start in
/// the second in which what ran there before has ended, and Slurm holds the job then.
fn starts_soon(site: &Site, job: &Job) -> Result<()> {
    let pending = |site: &Site| Ok((site.state(job.id)? == "PENDING").then_some(()));
    site.wait("the queue", LIMIT, pending)?;
    let (number, of_it) = (job.id.to_string(), format!("JobId={}", job.id));
    let asks = Cell::new(Instant::now());
    site.wait("its start", LIMIT, |site| {
        let output = site.cluster.command("squeue").args(["-h", "-j", &number, "-o", "%T %Q"]).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // One that is held has no priority.
        let waits = ["PENDING", "COMPLETING", "REQUEUED"].iter().any(|state| said.starts_with(state));
        if !waits || said.trim() == "PENDING 0" {
            return Ok(Some(()));
        }
        // Again after a while, since Slurm sets the time itself when all that was there has ended.
        if asks.get() <= Instant::now() {
            site.cluster.command("scontrol").args(["update", &of_it, "StartTime=now+2seconds"]).output()?;
            asks.set(Instant::now() + Duration::from_secs(10));
        }
        Ok(None)
    })
}

/// A script that ends with an exit code for which Slurm starts it again has done what it wanted: it begins anew.
fn asks_for_another_life(site: &Site) -> Result<()> {
    let script = r#"echo "life ${SLURM_RESTART_COUNT:-0}"; echo "$(cat state)x" > state; sleep 3
                    [ "$(cat state)" = xx ] || exit 75"#;
    let job =
        Job::submit(site, "again", &["--ft-energy", "--ft-energy-done=state", "--ft-energy-interval=1s"], script)?;
    // Before that it waits for its first life.
    job.says(site, &["life 0"])?;
    starts_soon(site, &job)?;
    job.ends(site, "COMPLETED")?;
    let output = job.says(site, &["life 0", "life 1", "exit code 75", "it begins anew, as Slurm has it"])?;
    ensure!(!output.contains("life 2"), "{output}");
    Ok(())
}

/// Slurm signals all processes of a job that is cancelled: the script hears it once, not once more from us.
fn hears_once_that_it_ends(site: &Site) -> Result<()> {
    let script = "n=0; trap 'n=$((n + 1)); echo heard $n; sleep 1; sleep 1; echo saved' TERM; echo begun; while [ $n = 0 ]; do sleep 0.2; done";
    let job = Job::submit(site, "cancelled", &["--ft-energy", "--ft-energy-done=state"], script)?;
    job.says(site, &["begun"])?;
    ensure!(site.cluster.command("scancel").arg(job.id.to_string()).status()?.success(), "scancel");
    job.ends(site, "CANCELLED")?;
    let output = job.says(site, &["heard 1"])?;
    ensure!(!output.contains("heard 2"), "{output}");
    Ok(())
}

/// A job that comes to a node where the wrapper cannot be run does not begin anew over what it has done: it is held.
fn waits_for_a_wrapper(site: &Site) -> Result<()> {
    let job =
        Job::submit(site, "held", &["--ft-energy", "--ft-energy-interval=2s", "--ft-energy-done=state"], COUNTER)?;
    let before = job.says(site, &["life 0", "protected by engine app"])?;
    let wrapper = site.bin().join("joulepoint");
    let (id, may_run) = (job.id.to_string(), fs::metadata(&wrapper)?.permissions());
    fs::set_permissions(&wrapper, PermissionsExt::from_mode(0o644))?;
    let requeued = scontrol(site, &["requeue", &id]).and_then(|()| starts_soon(site, &job));
    let said = requeued
        .and_then(|()| job.says(site, &["Permission denied", "is held; when that is mended: scontrol release"]));
    let is_held = |site: &Site| {
        let output = site.cluster.command("squeue").args(["-h", "-j", &id, "-o", "%T %r"]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).to_lowercase().contains("held").then_some(()))
    };
    let held = said.and_then(|said| site.wait("a held job", LIMIT, is_held).map(|()| said));
    fs::set_permissions(&wrapper, may_run)?;
    let said = held?;
    ensure!(said.starts_with(&before) && !said.contains("life 1"), "nothing is lost, and nothing begins: {said}");
    scontrol(site, &["release", &id])?;
    starts_soon(site, &job)?;
    job.says(site, &["goes on from checkpoint"])?;
    fs::write(job.folder.join("enough"), "")?;
    job.ends(site, "COMPLETED")
}

/// Of a heterogeneous job Slurm brings back one part alone: it is told at submit, or refused, and runs as it would.
fn of_several_parts(site: &Site) -> Result<()> {
    let script = "echo life ${SLURM_RESTART_COUNT:-0}\nuntil [ -e enough ]; do sleep 0.2; done";
    let script = format!("#SBATCH hetjob\n#SBATCH -n1\n{script}");
    let folder = site.folder(USER, "parts-refused")?;
    for option in ["--ft-energy-require", "--ft-energy-engine=criu"] {
        let refused = site.sbatch(USER, &folder, &["--ft-energy", option], &script)?;
        let said = String::from_utf8_lossy(&refused.stderr);
        ensure!(!refused.status.success() && said.contains("heterogeneous"), "{option}: {said}");
    }
    let job = Job::submit(site, "parts", &["--ft-energy", "--ft-energy-done=state"], &script)?;
    ensure!(
        job.told.contains("NOT PROTECTED: Slurm brings back only the component of a heterogeneous job"),
        "{}",
        job.told
    );
    ensure!(!job.told.contains("to be protected"), "{}", job.told);
    job.says(
        site,
        &[
            "NOT PROTECTED: Slurm brings back only the component of a heterogeneous job",
            "one job without 'hetjob'",
            "life 0",
        ],
    )?;
    let is_told = |run: &serde_json::Value| (run["protection"]["state"] == "not_protected").then(|| run.clone());
    let run = site.wait_report(job.id, "its protection", LIMIT, is_told)?;
    ensure!(run["account"] == "physics", "that of one part: {}", run["account"]);
    fs::write(job.folder.join("enough"), "")?;
    let comment = |site: &Site| -> Result<Option<String>> {
        let output = site.cluster.command("scontrol").args(["show", "job", "-o", &job.id.to_string()]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let first = text.lines().next().unwrap_or_default();
        let comment = first.split_once(" AdminComment=").filter(|_| first.contains("JobState=COMPLETED"));
        Ok(comment.map(|(_, comment)| comment.to_string()))
    };
    let said = site.wait("what the run cost", LIMIT, comment)?;
    let is_its_own = said.starts_with("{\"joulepoint\":") && said.matches("{\"joulepoint\"").count() == 1;
    ensure!(is_its_own && !said.contains("(null) {"), "nothing of another part: {said}");
    Ok(())
}
