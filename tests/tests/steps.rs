//! Steps of an ordinary user across nodes, dumped as one by CRIU: nodes, wardens, CRIU and drivers die, no work is lost.
//!
//! Needs root and a CRIU that works here; without one every test says that it skipped.

use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use suite::transparent::{self, STATE, TREE, USER, Way};
use suite::{Site, Wanted};

const LIMIT: Duration = Duration::from_secs(360);

/// A program that knows nothing of checkpoints: each line depends on all before it.
const PROGRAM: &str = r#"#!/bin/bash
# work.sh NAME STEPS PAUSE_S
echo "$1 of $SLURM_PROCID" >>"began.$1"
x=$((SLURM_PROCID + 1))
for n in $(seq "$2"); do
    x=$((x * 6364136223846793005 + n))
    echo "$1 rank $SLURM_PROCID step $n $x"
    sleep "$3"
done
"#;

fn site() -> Option<MutexGuard<'static, Site>> {
    static SITE: OnceLock<Option<Mutex<Site>>> = OnceLock::new();
    let start = || {
        let dir = std::env::temp_dir().join(format!("joulepoint-steps-{}", std::process::id()));
        let criu = dir.join("criu");
        let more = format!("[criu]\ncommand = {:?}\n\n[wrapper]\nstep_retries = 1000\n\n", criu.join("criu"));
        let wanted = Wanted { nodes: 4, toml: more + &Wanted::default().toml, ..Wanted::default() };
        let site = Site::start(&dir, &wanted, &mut |text| println!("  {text}")).expect("the site starts");
        match suite::fetch(suite::Fetched::Criu, &criu) {
            Ok(()) => Some(Mutex::new(site)),
            Err(reason) => {
                println!("skipped: steps by the engine criu: {reason}");
                None
            }
        }
    };
    SITE.get_or_init(start).as_ref().map(|site| site.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A seed that can be given again: `SEED=7`.
fn random(name: &str) -> ChaCha8Rng {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    println!("{name}: SEED={seed}");
    ChaCha8Rng::seed_from_u64(seed)
}

/// One job whose script runs steps of the program.
struct Job {
    id: u32,
    folder: PathBuf,
    nodes: u32,
    steps: Vec<(&'static str, u32)>,
}

impl Job {
    fn submit(site: &Site, name: &str, nodes: u32, steps: &[(&'static str, u32)]) -> Result<Job> {
        let calls: String = steps.iter().map(|(name, count)| format!("srun ./work.sh {name} {count} 0.1\n")).collect();
        let script = format!("echo begin\n{calls}echo end");
        Ok(Job { steps: steps.to_vec(), ..Job::submit_script(site, name, nodes, &script)? })
    }

    fn submit_script(site: &Site, name: &str, nodes: u32, script: &str) -> Result<Job> {
        let folder = site.folder(USER, name)?;
        let program = folder.join("work.sh");
        fs::write(&program, PROGRAM)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let (n, tasks) = (format!("-N{nodes}"), format!("-n{nodes}"));
        let options = ["--output=out", "--error=err", "--exclusive", "--ft-energy", "--ft-energy-engine=criu"];
        let options = [&[n.as_str(), tasks.as_str()], &options[..], &["--ft-energy-interval=2s"]].concat();
        let id = site.submit(USER, &folder, &options, script)?;
        Ok(Job { id, folder, nodes, steps: Vec::new() })
    }

    /// Waits until `count` checkpoints of the job are complete.
    fn wait_for_lines(&self, site: &Site, count: u64) -> Result<Value> {
        let made = |run: &Value| (run["total"]["checkpoints"].as_u64()? >= count).then(|| run.clone());
        site.wait_report(self.id, "checkpoints", LIMIT, made).with_context(|| self.said())
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("err")).unwrap_or_default()
    }

    /// Waits for the end, and compares all output with that of an undisturbed run.
    fn ends_as_if_undisturbed(&self, site: &Site) -> Result<Value> {
        let state = site.wait_state(self.id, &["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"], LIMIT)?;
        let out = fs::read_to_string(self.folder.join("out"))?;
        ensure!(state == "COMPLETED", "{state}: {}\n{out}", self.said());
        // Tasks of one step may overtake each other; steps may not.
        let mut lines = out.lines();
        ensure!(lines.next() == Some("begin"), "{out}");
        for (name, count) in &self.steps {
            let mut seen: Vec<&str> = lines.by_ref().take((self.nodes * count) as usize).collect();
            let mut expected: Vec<String> = (0..self.nodes).flat_map(|rank| lines_of(name, rank, *count)).collect();
            seen.sort_unstable();
            expected.sort_unstable();
            ensure!(seen == expected, "step {name}: {}\n{out}", self.said());
        }
        ensure!(lines.collect::<Vec<_>>() == ["end"], "{out}");
        let over = |run: &Value| (run["state"] == "completed").then(|| run.clone());
        site.wait_report(self.id, "the end", LIMIT, over)
    }

    /// How often tasks of a step began from their beginning.
    fn began(&self, step: &str) -> usize {
        fs::read_to_string(self.folder.join(format!("began.{step}"))).unwrap_or_default().lines().count()
    }
}

/// What one task writes.
fn lines_of(name: &str, rank: u32, count: u32) -> Vec<String> {
    let mut x = i64::from(rank) + 1;
    let line = |n: u32| {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(i64::from(n));
        format!("{name} rank {rank} step {n} {x}")
    };
    (1..=count).map(line).collect()
}

#[test]
fn a_script_of_three_steps_on_three_nodes_goes_on_in_its_second_after_a_node_died() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let mut random = random("three steps");
    let job = Job::submit(&site, "three", 3, &[("one", 10), ("two", 150), ("three", 10)])?;
    job.wait_for_lines(&site, 1)?;
    while job.began("two") < 3 {
        thread::sleep(Duration::from_millis(50));
    }
    let run = job.wait_for_lines(&site, 2)?;
    thread::sleep(Duration::from_millis(random.random_range(0..1500)));
    let nodes = run["records"][0]["nodes"].as_array().context("nodes")?;
    let victim = nodes[random.random_range(0..nodes.len())].as_str().context("a name")?.to_string();
    site.cluster.kill_node(&victim)?;
    let run = job.ends_as_if_undisturbed(&site)?;
    site.cluster.revive_node(&victim)?;
    ensure!(job.began("one") == 3, "step 1 ran again: {}", job.said());
    ensure!(job.began("two") == 3, "step 2 began anew: {}", job.said());
    ensure!(run["records"].as_array().map(Vec::len) == Some(2), "{run:#}");
    println!("three steps: {victim} died, {} checkpoints", run["total"]["checkpoints"]);
    Ok(())
}

#[test]
fn steps_that_people_cancel_do_not_go_back_and_signals_arrive() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let hears = "srun bash -c 'trap \"exit 7\" USR1; while :; do sleep 0.1; done'\necho three $?";
    let script = format!(
        "srun ./work.sh one 3000 0.1\necho one $?\nsrun ./work.sh two 3000 0.1\necho two $?\n{hears}\n\
         srun ./work.sh four 3000 0.1"
    );
    let job = Job::submit_script(&site, "cancelled", 2, &script)?;
    let scancel = |user: &str, signal: &str, what: String| -> Result<()> {
        site.cluster.command_as(user, "scancel").args((!signal.is_empty()).then_some(signal)).arg(what).status()?;
        Ok(())
    };
    let own = || -> Vec<String> {
        let out = fs::read_to_string(job.folder.join("out")).unwrap_or_default();
        out.lines().filter(|l| !l.contains("rank")).map(str::to_string).collect()
    };
    let said = |lines: usize| {
        site.wait("the script to go on", LIMIT, |_| Ok((own().len() >= lines).then_some(())))
            .with_context(|| format!("{:?}: {}", own(), job.said()))
    };
    let run = job.wait_for_lines(&site, 1)?;
    scancel(USER, "", format!("{}.0", job.id))?;
    said(1)?;
    let made = |run: &Value| run["total"]["checkpoints"].as_u64().context("checkpoints");
    let run = job.wait_for_lines(&site, made(&run)? + 2)?;
    // An operator's.
    site.cluster.command("scancel").arg(format!("{}.1", job.id)).status()?;
    said(2)?;
    job.wait_for_lines(&site, made(&run)? + 2)?;
    scancel(USER, "--signal=USR1", job.id.to_string())?;
    said(3)?;
    site.wait("step four", LIMIT, |_| Ok((job.began("four") == 2).then_some(())))?;
    scancel(USER, "", job.id.to_string())?;
    let state = site.wait_state(job.id, &["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"], LIMIT)?;
    let over = |run: &Value| (run["state"] != "running").then(|| run.clone());
    let run = site.wait_report(job.id, "the end", LIMIT, over)?;
    ensure!((state.as_str(), &run["state"]) == ("CANCELLED", &"cancelled".into()), "{state}: {run:#}");
    let own = own();
    ensure!(own[0] != "one 0" && own[1] != "two 0" && own[2] == "three 7" && own.len() == 3, "{own:?}: {}", job.said());
    for step in ["one", "two", "four"] {
        ensure!(job.began(step) == 2, "{step} began {} times: {}", job.began(step), job.said());
    }
    Ok(())
}

/// A part of the machinery that dies alone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Srun,
    Warden,
    Criu,
    Driver,
    NodeService,
    Supervisor,
    Slurmd,
}

impl Part {
    const ALL: [Part; 7] =
        [Part::Srun, Part::Warden, Part::Criu, Part::Driver, Part::NodeService, Part::Supervisor, Part::Slurmd];

    /// How the first word of its command line ends, and another word of it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Part::Srun => ("srun", "warden"),
            Part::Warden => ("joulepoint", "warden"),
            Part::Criu => ("", "--unprivileged"),
            Part::Driver => ("/proc/self/exe", "wrap"),
            Part::Supervisor => ("joulepoint", "wrap"),
            Part::NodeService => ("joulepointd", "--role=node"),
            Part::Slurmd => ("slurmd", "-D"),
        }
    }

    /// Kills one of its kind that works for a job; the node that misses its daemon then.
    fn kill(self, site: &mut Site, job: &Job, random: &mut ChaCha8Rng) -> Result<Option<String>> {
        let last_node = |site: &Site| -> Result<String> {
            let run = site.report(job.id)?.context("a report")?;
            let nodes = run["records"].as_array().and_then(|r| r.last()?["nodes"].as_array()).context("nodes")?;
            Ok(nodes.last().and_then(Value::as_str).context("a name")?.to_string())
        };
        if matches!(self, Part::NodeService | Part::Slurmd) {
            let node = last_node(site)?;
            match self {
                Part::Slurmd => site.cluster.kill_slurmd(&node)?,
                _ => site.cluster.kill_node_command(&node)?,
            }
            return Ok(Some(node));
        }
        let limit = Instant::now() + LIMIT;
        loop {
            let victims = processes(site, self);
            if let Some(victim) = victims.get(random.random_range(0..victims.len().max(1))) {
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(*victim), nix::sys::signal::SIGKILL).ok();
                return Ok(None);
            }
            ensure!(Instant::now() < limit, "no {self:?} runs: {}", job.said());
        }
    }
}

/// Processes of this site that are such a part; one look at all, since a dump is short.
fn processes(site: &Site, part: Part) -> Vec<i32> {
    let (program, word) = part.words();
    let place = site.conf.parent().map(|p| p.display().to_string()).unwrap_or_default();
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|e| e.file_name().to_str()?.parse().ok());
    let is_part = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        let is_ours = String::from_utf8_lossy(&line).contains(&place);
        is_ours && words[0].ends_with(program.as_bytes()) && words.contains(&word.as_bytes())
    };
    pids.filter(is_part).collect()
}

#[test]
fn whatever_is_killed_during_a_dump_the_line_before_is_there_and_no_work_is_lost() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let mut random = random("killed parts");
    let rounds = std::env::var("JOULEPOINT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let job = Job::submit(&site, "parts", 2, &[("one", 525 * rounds)])?;
    job.wait_for_lines(&site, 1)?;
    for part in (0..rounds).flat_map(|_| Part::ALL) {
        let complete = |site: &Site| transparent::checkpoints(site, job.id).into_iter().filter(|(_, c)| *c).count();
        let limit = Instant::now() + LIMIT;
        // A dump is on its way while the newest folder has no manifest.
        while transparent::checkpoints(&site, job.id).iter().all(|(_, complete)| *complete) {
            ensure!(Instant::now() < limit, "no dump begins: {}", job.said());
            thread::sleep(Duration::from_millis(2));
        }
        ensure!(complete(&site) > 0, "{part:?}: no line before: {}", job.said());
        thread::sleep(Duration::from_millis(random.random_range(0..100)));
        let without_daemon = part.kill(&mut site, &job, &mut random)?;
        ensure!(complete(&site) > 0, "{part:?}: no line is left: {}", job.said());
        let made = site.report(job.id)?.and_then(|run| run["total"]["checkpoints"].as_u64()).context("a report")?;
        job.wait_for_lines(&site, made + 1)?;
        println!("killed: {part:?}; checkpoint {} follows", made + 1);
        if let Some(node) = without_daemon {
            site.cluster.revive_node(&node)?;
        }
    }
    let run = job.ends_as_if_undisturbed(&site)?;
    ensure!(job.began("one") == 2, "the step began anew: {}", job.said());
    println!("killed parts: {} kills, {} checkpoints", 7 * rounds, run["total"]["checkpoints"]);
    Ok(())
}

#[test]
fn trees_of_processes_and_python_go_on_after_their_nodes_died() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    transparent::build(&site.conf.with_file_name("bin"))?;
    let programs = [TREE, STATE].map(|program| (program, Way::Srun));
    let told = &mut |text: &str| println!("{text}");
    for mut played in transparent::play(&mut site, &mut random("programs"), &programs, 1, LIMIT, told)? {
        played.judge(&site, LIMIT)?;
    }
    Ok(())
}

/// Steps whose streams are of every kind; what each leaves is said by the script itself. A step lasts until its node has
/// died, however slow the machine is: until there is a file `NAME.died`.
const STREAMS: &str = r#"
LINES='for n in $(seq 40); do echo "$SLURM_PROCID line $n"; sleep 0.2; done'
lasts() { echo "$LINES; until [ -e $1.died ]; do sleep 0.2; done"; }
srun -n4 --label bash -c "$(lasts labelled)" | tee labelled | sort >sorted
srun -n2 --output=named --error=named.err bash -c "$(lasts named); echo over >&2"
srun -n2 bash -c 'while read -r line; do echo "$SLURM_PROCID got $line"; sleep 1; done' <<END
first
second
third
END
srun -n1 -N1 --exact bash -c "$(lasts out); exit 4" & four=$!
srun -n1 -N1 --exact bash -c "${LINES//line/other}" &
wait $four; echo "code $?"; wait
"#;

#[test]
fn streams_of_every_kind_are_as_if_undisturbed_after_nodes_died() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let mut random = random("streams");
    let job = Job::submit_script(&site, "streams", 2, STREAMS)?;
    let sorted = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(job.folder.join(name)).unwrap_or_default();
        let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
        lines.sort_unstable();
        lines
    };
    let expected = |of: &dyn Fn(u32, u32) -> String, ranks: u32| -> Vec<String> {
        let all = (0..ranks).flat_map(|rank| (1..=40).map(move |n| (rank, n)));
        let mut lines: Vec<String> = all.map(|(rank, n)| of(rank, n)).collect();
        lines.sort_unstable();
        lines
    };
    let begun = |name: &str| fs::metadata(job.folder.join(name)).is_ok_and(|m| m.len() > 0);
    for name in ["labelled", "named", "out"] {
        site.wait(name, LIMIT, |_| Ok(begun(name).then_some(()))).with_context(|| job.said())?;
        let made = site.report(job.id)?.and_then(|run| run["total"]["checkpoints"].as_u64()).unwrap_or(0);
        let run = job.wait_for_lines(&site, made + 2)?;
        thread::sleep(Duration::from_millis(random.random_range(0..1000)));
        let record = run["records"].as_array().and_then(|r| r.last()).context("a record")?;
        let victim = record["nodes"][1].as_str().context("two nodes")?.to_string();
        site.cluster.kill_node(&victim)?;
        fs::write(job.folder.join(format!("{name}.died")), "")?;
        println!("streams: {victim} died after {name} had begun");
        let lives = run["records"].as_array().map_or(0, Vec::len);
        let more = |run: &Value| (run["records"].as_array()?.len() > lives).then_some(());
        site.wait_report(job.id, "a requeue", LIMIT, more).with_context(|| job.said())?;
        site.cluster.revive_node(&victim)?;
    }
    let state = site.wait_state(job.id, &["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"], LIMIT)?;
    ensure!(state == "COMPLETED", "{state}: {}", job.said());
    let labelled = expected(&|rank, n| format!("{rank}: {rank} line {n}"), 4);
    for name in ["labelled", "sorted"] {
        ensure!(sorted(name) == labelled, "{name}: {:?}: {}", sorted(name), job.said());
    }
    ensure!(sorted("named") == expected(&|rank, n| format!("{rank} line {n}"), 2), "{:?}", sorted("named"));
    ensure!(sorted("named.err") == ["over", "over"], "{:?}", sorted("named.err"));
    let (mut own, out) = (expected(&|rank, n| format!("{rank} line {n}"), 1), sorted("out"));
    own.extend(expected(&|rank, n| format!("{rank} other {n}"), 1));
    let words = ["first", "second", "third"];
    own.extend((0..2).flat_map(|rank| words.map(|word| format!("{rank} got {word}"))));
    own.push("code 4".to_string());
    own.sort_unstable();
    ensure!(out == own, "{out:?}: {}", job.said());
    Ok(())
}

/// Steps write results into files: by an option, by a redirection with standard error, and by a pipe.
const RESULTS: &str = r#"
numbers='for k in $(seq 60); do echo $k,$((k * k)); sleep 0.1; done'
srun -n1 -N1 --exact -o named.csv bash -c "$numbers" &
srun -n1 -N1 --exact bash -c "$numbers" > both.csv 2>&1 &
wait
srun -n1 -N1 --exact bash -c "$numbers" 2>&1 | cat > piped.csv
srun -n1 -N1 awk -F, '{ sum += $2 } END { print sum }' named.csv both.csv piped.csv > sum
"#;

#[test]
fn results_hold_no_word_of_ours_after_their_node_died_and_another_one_has_taken_over() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let job = Job::submit_script(&site, "results", 1, RESULTS)?;
    let run = job.wait_for_lines(&site, 2)?;
    let victim = run["records"][0]["nodes"][0].as_str().context("a node")?.to_string();
    site.cluster.kill_node(&victim)?;
    let state = site.wait_state(job.id, &["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"], LIMIT);
    site.cluster.revive_node(&victim)?;
    ensure!(state? == "COMPLETED", "{}", job.said());
    let numbers: String = (1..=60).map(|k| format!("{k},{}\n", k * k)).collect();
    for name in ["named.csv", "both.csv", "piped.csv"] {
        let text = fs::read_to_string(job.folder.join(name))?;
        ensure!(text == numbers, "{name}: {text}\n{}", job.said());
    }
    let sum = 3 * (1..=60).map(|k| k * k).sum::<u64>();
    ensure!(fs::read_to_string(job.folder.join("sum"))? == format!("{sum}\n"), "{}", job.said());
    let said = job.said();
    ensure!(said.contains(&format!("and was {victim}: what bears that name")), "{said}");
    Ok(())
}

/// More steps than the node has CPUs: the others wait.
const FARM: &str = r#"
for i in 1 2 3 4 5 6 7 8; do
    srun -n1 -N1 -c1 --exact bash -c "echo $i >>begun; for k in \$(seq 60); do echo $i \$k; sleep 0.1; done" > farm.$i &
done
wait
cat farm.*
"#;

#[test]
fn a_farm_of_steps_that_wait_for_cpus_is_protected_and_goes_on_after_its_node_died() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let job = Job::submit_script(&site, "farm", 1, FARM)?;
    let run = job.wait_for_lines(&site, 1)?;
    let begun = || fs::read_to_string(job.folder.join("begun")).unwrap_or_default().lines().count();
    let before = begun();
    ensure!(before < 8, "all steps have begun: {}", job.said());
    let victim = run["records"][0]["nodes"][0].as_str().context("a node")?.to_string();
    site.cluster.kill_node(&victim)?;
    let state = site.wait_state(job.id, &["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"], LIMIT);
    site.cluster.revive_node(&victim)?;
    ensure!(state? == "COMPLETED", "{}", job.said());
    let lines: String = (1..=8).flat_map(|i| (1..=60).map(move |k| format!("{i} {k}\n"))).collect();
    let out = fs::read_to_string(job.folder.join("out"))?;
    ensure!(out == lines, "{out}\n{}", job.said());
    println!("farm: {before} of 8 steps had begun when {victim} died, {} in all", begun());
    ensure!(begun() < 8 + before, "all that had begun began anew: {}", job.said());
    Ok(())
}

/// A step runs beside, and the script itself works.
const BESIDE: &str = r#"srun --overlap -n1 sleep 300 &
python3 -c '
import os
while not os.path.exists("enough"):
    sum(range(100000))'
kill %1
wait
echo done
"#;

#[test]
fn work_of_the_script_itself_beside_its_steps_is_told_to_be_in_no_checkpoint() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let job = Job::submit_script(&site, "beside", 1, BESIDE)?;
    let said = "but what the script does by itself (python3) is done again";
    site.wait("what no checkpoint holds", LIMIT, |_| Ok(job.said().contains(said).then_some(())))
        .with_context(|| job.said())?;
    fs::write(job.folder.join("enough"), "")?;
    site.wait_state(job.id, &["COMPLETED"], LIMIT).with_context(|| job.said())?;
    let run = site.report(job.id)?.context("a report")?;
    ensure!(run["protection"]["reason"].as_str().unwrap_or_default().contains("by itself"), "{run}");
    Ok(())
}
