//! Groups on a real Slurm: a node dies, and only its group starts again, on the spare.

use anyhow::{Context, Result, ensure};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, UNIX_EPOCH};
use suite::{Site, Wanted, repository};

const USER: &str = "jpalice";
const MINUTES: Duration = Duration::from_secs(180);
const GROUPS: usize = 3;

fn site() -> MutexGuard<'static, Site> {
    static SITE: OnceLock<Mutex<Site>> = OnceLock::new();
    let start = || {
        let dir = PathBuf::from(format!("/tmp/joulepoint-groups-{}", std::process::id()));
        let estimates = "[estimates]\nnode_mtbf_s = 36000.0\ncheckpoint_s = 1.0\nrestart_s = 5.0\n";
        let toml = format!("[criu]\ncommand = {:?}\n\n{estimates}", dir.join("criu/criu"));
        // No node can leave a job here, so that those that wait are slowed.
        let slurm_conf = "SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0\n".to_string();
        let [root, state] = ["cpus.{node}", "{node}.cpufreq"].map(|name| dir.join(name));
        let node_toml = format!("cpufreq = true\ncpufreq_root = {root:?}\ncpufreq_state = {state:?}");
        let wanted = Wanted { nodes: 5, toml, node_toml, slurm_conf, ..Wanted::default() };
        let site = Site::start(&dir, &wanted, &mut |text| println!("  {text}")).expect("the site starts");
        (1..=5).for_each(|node| cpus(&dir.join(format!("cpus.n{node}"))));
        for (app, program) in [("heat", "heat"), ("stencil", "stencil"), ("stencil", "stencil-mpi")] {
            build(app, &dir.join("bin").join(program));
        }
        Mutex::new(site)
    };
    SITE.get_or_init(start).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files as the kernel has them for two CPUs.
fn cpus(root: &Path) {
    for cpu in 0..2 {
        let folder = root.join(format!("cpu{cpu}/cpufreq"));
        fs::create_dir_all(&folder).expect("a folder");
        for (name, value) in [
            ("scaling_available_frequencies", "2400000 1800000 1200000 \n"),
            ("scaling_governor", "ondemand\n"),
            ("scaling_min_freq", "1200000\n"),
            ("scaling_max_freq", "2400000\n"),
        ] {
            fs::write(folder.join(name), value).expect("written");
        }
    }
}

/// Nodes all of whose CPUs have this ceiling, kHz.
fn with_ceiling(site: &Site, khz: &str) -> Vec<String> {
    let ceiling = |node: &str, cpu: u32| {
        let path = site.conf.with_file_name(format!("cpus.{node}")).join(format!("cpu{cpu}/cpufreq/scaling_max_freq"));
        fs::read_to_string(path).unwrap_or_default()
    };
    let all = (1..=5).map(|node| format!("n{node}"));
    all.filter(|node| (0..2).all(|cpu| ceiling(node, cpu).trim() == khz)).collect()
}

fn build(app: &str, program: &Path) {
    let bin = program.parent().expect("a folder");
    let libraries = suite::built().expect("a folder").display().to_string();
    let made = Command::new("make")
        .arg("-C")
        .arg(repository().join("apps").join(app))
        .args([format!("BUILD={}", bin.display()), format!("MLOG={libraries}"), program.display().to_string()])
        .output()
        .expect("make");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn program(site: &Site, name: &str) -> String {
    site.conf.with_file_name("bin").join(name).display().to_string()
}

/// A job of so many groups and spares, with a task on each node.
fn submitted(
    site: &Site,
    name: &str,
    [nodes, groups, spares]: [usize; 3],
    more: &[&str],
    script: &str,
) -> Result<(u32, PathBuf)> {
    let folder = site.folder(USER, name)?;
    let (nodes, tasks) = (format!("-N{nodes}"), format!("-n{nodes}"));
    let (groups, spares) = (format!("--ft-energy-groups={groups}"), format!("--ft-energy-spare={spares}"));
    let grouped = ["--exclusive", "--no-kill", "--ft-energy=energy", "--ft-energy-protocol=uncoordinated"];
    let own = [nodes.as_str(), &tasks, &groups, &spares];
    let args: Vec<&str> = own.iter().chain(&grouped).chain(more).copied().collect();
    Ok((site.submit(USER, &folder, &args, script)?, folder))
}

/// Three groups of one node, and a spare.
const THREE: [usize; 3] = [4, GROUPS, 1];

/// Waits for the end of a job, and gives its report.
fn report_of_the_end(site: &Site, job: u32) -> Result<Value> {
    let state = site.wait_state(job, &["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT"], MINUTES)?;
    let over = |run: &Value| (run["state"] != "running").then(|| run.clone());
    let run = site.wait_report(job, "the end", MINUTES, over)?;
    ensure!(state == "COMPLETED", "{state}: {run:#}");
    let total = run["total"]["joules"].as_f64().context("a total")?;
    let phases: f64 = run["phases"].as_array().context("phases")?.iter().filter_map(|p| p["joules"].as_f64()).sum();
    ensure!((phases - total).abs() <= 1e-6 * total, "phases {phases} J, total {total} J: {run:#}");
    Ok(run)
}

/// The nodes of a group, as the run's decisions tell it.
fn nodes_of(run: &Value, group: usize) -> Option<Vec<String>> {
    let begins = format!("group {group} on ");
    let decisions = run["decisions"].as_array()?;
    let mut said = decisions.iter().filter_map(|d| d["reason"].as_str()?.strip_prefix(&begins));
    Some(said.next_back()?.split(':').next()?.split(',').map(str::to_string).collect())
}

/// The first of them.
fn node_of(run: &Value, group: usize) -> Option<String> {
    nodes_of(run, group)?.into_iter().next()
}

/// The folder of a run.
fn folder_of(site: &Site, run: &Value) -> PathBuf {
    let [cluster, name] = ["cluster", "run"].map(|key| run[key].as_str().unwrap_or_default());
    site.cluster.shared().join(format!("runs-{USER}")).join(cluster).join(name)
}

/// No node has a file or a socket of the run's last wrapper or its relays.
fn nothing_is_left_of_relays(site: &Site, run: &Value) -> Result<()> {
    let address: Value = serde_json::from_slice(&fs::read(folder_of(site, run).join("relays/0.json"))?)?;
    let socket = address["socket"].as_str().context("a socket")?;
    let name = socket.rsplit(['/', '@']).next().and_then(|name| name.split('.').next()).context("a name")?;
    ensure!(name.starts_with("joulepoint-"), "{socket}");
    for node in site.cluster.nodes.iter().filter(|node| site.cluster.has_power(node)) {
        let on = |program: &str, word: &str| {
            site.cluster.output(site.cluster.command_on(&node.parse()?, program)?.arg(word))
        };
        site.wait(&format!("the relays on {node} to end"), MINUTES, |_| {
            Ok((!on("cat", "/proc/net/unix")?.contains(name)).then_some(()))
        })?;
        let files = on("ls", "/tmp")?;
        let left: Vec<&str> = files.lines().filter(|f| f.starts_with(name)).collect();
        ensure!(left.is_empty(), "left in /tmp of {node}: {left:?}");
    }
    Ok(())
}

/// A job of three groups that need no other, as soon as each has two checkpoints: with its folder, and the node of group 1.
fn ensemble(site: &Site, name: &str, steps: u32) -> Result<(u32, PathBuf, String)> {
    let script = format!(
        "srun --mpi=pmix bash -c 'mkdir -p g$FT_ENERGY_GROUP; cd g$FT_ENERGY_GROUP; \
         echo rank $SLURM_PROCID of $SLURM_NTASKS on $SLURM_JOB_NODELIST >>said; \
         exec {} --size 96 --steps {steps} --step-ms 10 --report 0 >>said'",
        program(site, "heat")
    );
    let more = ["--ft-energy-interval=3s", "--ft-energy-signal=USR1", "--ft-energy-done=g{group}/heat.ckpt"];
    let (job, folder) = submitted(site, name, THREE, &more, &script)?;
    let all_twice = |run: &Value| {
        let made = run["total"]["checkpoints"].as_u64()?;
        (made >= 2 * GROUPS as u64).then(|| run.clone())
    };
    let run = site.wait_report(job, "two checkpoints of each group", MINUTES, all_twice)?;
    Ok((job, folder, node_of(&run, 1).context("a node")?))
}

/// All groups have written the same.
fn all_groups_agree(folder: &Path) -> Result<()> {
    let result =
        |group| fs::read_to_string(folder.join(format!("g{group}/heat.out"))).with_context(|| format!("group {group}"));
    let mut results = (0..GROUPS).map(result).collect::<Result<Vec<String>>>()?;
    results.dedup();
    ensure!(results.len() == 1, "the results differ: {results:?}");
    Ok(())
}

#[test]
fn in_an_ensemble_only_the_group_of_the_dead_node_starts_again() -> Result<()> {
    let mut site = site();
    let (job, folder, victim) = ensemble(&site, "ensemble", 1500)?;
    site.cluster.kill_node(&victim)?;
    let run = report_of_the_end(&site, job)?;
    site.cluster.revive_node(&victim)?;
    ensure!(run["records"].as_array().map(Vec::len) == Some(1), "it went through the queue: {run:#}");
    ensure!(run["total"]["failures"] == 1, "{run:#}");
    ensure!(run["total"]["recomputed_j"].as_f64() > Some(0.0), "no lost work: {run:#}");
    for group in 0..GROUPS {
        let said = fs::read_to_string(folder.join(format!("g{group}/said")))?;
        let resumed = said.matches("resumed step=").count();
        ensure!(resumed == usize::from(group == 1), "group {group} started again {resumed} times:\n{said}");
        ensure!(said.contains(&format!("rank {group} of {GROUPS} on ")), "{said}");
    }
    all_groups_agree(&folder)
}

#[test]
fn a_group_whose_node_is_up_again_before_anybody_has_missed_it_is_not_done() -> Result<()> {
    let mut site = site();
    let (job, folder, victim) = ensemble(&site, "up-again", 4000)?;
    // srun says 0 of the step as soon as the node answers that it knows nothing of it.
    site.kill_controller()?;
    site.cluster.kill_node(&victim)?;
    std::thread::sleep(Duration::from_secs(8));
    site.cluster.revive_node(&victim)?;
    std::thread::sleep(Duration::from_secs(5));
    site.start_controller()?;
    report_of_the_end(&site, job)?;
    all_groups_agree(&folder)
}

/// Options of coupled groups whose program writes its checkpoints by itself.
const COUPLED: [&str; 2] = ["--ft-energy-log=disk", "--ft-energy-done={group}.ckpt"];

fn stencil(site: &Site, step_ms: u32) -> String {
    format!(
        "srun bash -c 'exec {} --steps 1600 --every 200 --step-ms {step_ms} >>said.$FT_ENERGY_GROUP 2>&1'",
        program(site, "stencil")
    )
}

fn results(folder: &Path, groups: usize) -> Result<Vec<String>> {
    let result = |g| fs::read_to_string(folder.join(format!("{g}.out"))).with_context(|| format!("group {g}"));
    (0..groups).map(result).collect()
}

/// How often the program of each group has begun.
fn beginnings(folder: &Path, groups: usize) -> Result<Vec<usize>> {
    let said = |g| fs::read_to_string(folder.join(format!("said.{g}")));
    (0..groups).map(|g| Ok(said(g)?.matches("begins step=").count())).collect()
}

#[test]
fn coupled_groups_compute_the_same_bits_though_a_node_dies() -> Result<()> {
    let mut site = site();
    let (job, quiet) = submitted(&site, "quiet", THREE, &COUPLED, &stencil(&site, 0))?;
    report_of_the_end(&site, job)?;
    let more = [COUPLED.as_slice(), &["--ft-energy-lend=yes"]].concat();
    let (job, folder) = submitted(&site, "struck", THREE, &more, &stencil(&site, 10))?;
    let all_once = |run: &Value| {
        let made = run["total"]["checkpoints"].as_u64()?;
        (made > GROUPS as u64).then(|| run.clone())
    };
    let run = site.wait_report(job, "checkpoints", MINUTES, all_once)?;
    let victim = node_of(&run, 2).context("a node")?;
    let survivors: Vec<String> = (0..2).filter_map(|group| node_of(&run, group)).collect();
    // Else it dies with its checkpoint, and nobody waits for anything.
    let begun_s = run["checkpoints"].as_array().into_iter().flatten().filter_map(|c| c["begun_s"].as_f64());
    let newest = UNIX_EPOCH + Duration::from_secs_f64(begun_s.fold(0.0, f64::max));
    let is_work_lost = |_: &Site| Ok(newest.elapsed().is_ok_and(|age| age > Duration::from_secs(1)).then_some(()));
    site.wait("work that is lost", MINUTES, is_work_lost)?;
    site.cluster.kill_node(&victim)?;
    site.wait("slow survivors", MINUTES, |site| {
        let slow = with_ceiling(site, "1200000");
        Ok((slow == survivors).then_some(()))
    })?;
    let run = report_of_the_end(&site, job)?;
    site.wait("what the nodes had", MINUTES, |site| Ok((with_ceiling(site, "2400000").len() == 5).then_some(())))?;
    let plan = fs::read_to_string(folder_of(&site, &run).join("plan.json"))?;
    nothing_is_left_of_relays(&site, &run)?;
    ensure!(plan.contains("lowest CPU frequency: Slurm gives no nodes back"), "{plan}");
    site.cluster.revive_node(&victim)?;
    ensure!(run["records"].as_array().map(Vec::len) == Some(1), "it went through the queue: {run:#}");
    ensure!(results(&folder, GROUPS)? == results(&quiet, GROUPS)?, "other bits: {:?}", results(&folder, GROUPS)?);
    ensure!(beginnings(&folder, GROUPS)? == [1, 1, 2], "{:?}", beginnings(&folder, GROUPS)?);
    let idle = run["phases"].as_array().into_iter().flatten().find(|p| p["phase"] == "idle");
    ensure!(idle.and_then(|p| p["joules"].as_f64()) > Some(0.0), "nobody waited: {run:#}");
    Ok(())
}

#[test]
fn a_group_goes_back_further_for_messages_that_were_only_in_a_log_that_died() -> Result<()> {
    const SHAPE: [usize; 3] = [5, GROUPS, 2];
    let mut site = site();
    let steps = |more: &str| {
        let program = program(&site, "stencil");
        format!("srun bash -c 'exec {program} --steps 2000 {more} >>said.$FT_ENERGY_GROUP 2>&1'")
    };
    // Lines of group 2 are far apart, so that group 1 is likely to be ahead of them with its own.
    let more = ["--ft-energy-log=memory", "--ft-energy-keep=6", "--ft-energy-done={group}.ckpt"];
    let (job, quiet) = submitted(&site, "forgetful-quiet", SHAPE, &more, &steps(""))?;
    report_of_the_end(&site, job)?;
    let every = "--every $((FT_ENERGY_GROUP == 2 ? 600 : 150)) --step-ms 15";
    let (job, folder) = submitted(&site, "forgetful", SHAPE, &more, &steps(every))?;
    let begun = |run: &Value| Some([1, 2].map(|g| node_of(run, g)).into_iter().flatten().collect::<Vec<_>>());
    let victims = site.wait_report(job, "nodes", MINUTES, |run| begun(run).filter(|nodes| nodes.len() == 2))?;
    site.wait("a line of group 1 that is ahead of group 2's", MINUTES, |_| {
        let said = fs::read_to_string(folder.join("said.1")).unwrap_or_default();
        Ok(said.contains("checkpoint number=7").then_some(()))
    })?;
    for victim in &victims {
        site.cluster.kill_node(victim)?;
    }
    let run = report_of_the_end(&site, job)?;
    for victim in &victims {
        site.cluster.revive_node(victim)?;
    }
    ensure!(run["records"].as_array().map(Vec::len) == Some(1), "it went through the queue: {run:#}");
    let decisions = run["decisions"].as_array().context("decisions")?;
    let back = decisions.iter().filter(|d| d["action"] == "go back").count();
    ensure!(back > 0, "nobody went back further: {run:#}");
    ensure!(results(&folder, GROUPS)? == results(&quiet, GROUPS)?, "other bits: {:?}", results(&folder, GROUPS)?);
    let begun = beginnings(&folder, GROUPS)?;
    ensure!(begun[0] == 1 && begun[1] == 2 + back && begun[2] == 2, "{back} times back, begun {begun:?}: {run:#}");
    Ok(())
}

/// Takes the log of a group's relay from it, and holds it against the next ones.
fn seize_log(site: &Site, run: &Path, group: usize) -> Result<Flock<fs::File>> {
    let log = run.join(format!("relays/{group}.log"));
    let mut token: Value = serde_json::from_slice(&fs::read(run.join("fencing-token"))?)?;
    token["over"][format!("relay.g{group}")] = 1.into();
    fs::write(run.join("fencing-token"), token.to_string())?;
    site.wait("the log", MINUTES, |_| {
        Ok(Flock::lock(fs::File::open(log.join("lock"))?, FlockArg::LockExclusiveNonblock).ok())
    })
}

#[test]
fn a_run_whose_relay_cannot_begin_goes_back_to_the_queue() -> Result<()> {
    const SHAPE: [usize; 3] = [2, 2, 0];
    let site = site();
    let (job, quiet) = submitted(&site, "served-quiet", SHAPE, &COUPLED, &stencil(&site, 0))?;
    report_of_the_end(&site, job)?;
    let (job, folder) = submitted(&site, "unserved", SHAPE, &COUPLED, &stencil(&site, 10))?;
    let run = site.wait_report(job, "checkpoints", MINUTES, |run| {
        (run["total"]["checkpoints"].as_u64()? > 2).then(|| run.clone())
    })?;
    let held = seize_log(&site, &folder_of(&site, &run), 1)?;
    site.wait_state(job, &["PENDING"], MINUTES)?;
    drop(held);
    let run = report_of_the_end(&site, job)?;
    ensure!(run["records"].as_array().map(Vec::len) == Some(2), "{run:#}");
    let told = run["failures"].to_string();
    ensure!(told.contains("no relay can begin on n2: joulepoint-relay: "), "{told}");
    ensure!(results(&folder, 2)? == results(&quiet, 2)?, "other bits: {:?}", results(&folder, 2)?);
    nothing_is_left_of_relays(&site, &run)
}

#[test]
fn an_mpi_step_may_land_on_a_spare() -> Result<()> {
    let site = site();
    let folder = site.folder(USER, "beside")?;
    let heat = program(&site, "heat");
    // Four nodes for the script, of five; while the first step is there, the second is given the spare.
    let script = format!(
        "srun -N1 -n1 bash -c 'touch begun; exec sleep 300' &\nwhile [ ! -e begun ]; do sleep 0.2; done\n\
         srun -N1 -n1 --overlap bash -c 'echo plain $SLURM_JOB_NODELIST' || exit 1\n\
         srun -N4 -n4 --mpi=pmix bash -c 'echo $SLURM_JOB_NODELIST; exec {heat} --size 64 --steps 20' || exit 1\nkill %1"
    );
    let args = ["-N5", "-n5", "--exclusive", "--no-kill", "--ft-energy=energy", "--ft-energy-spare=1"];
    let job = site.submit(USER, &folder, &args, &script)?;
    report_of_the_end(&site, job)?;
    let said = fs::read_to_string(folder.join(format!("slurm-{job}.out")))?;
    ensure!(said.contains("plain n[1-4]\n"), "a step without MPI sees the spare: {said}");
    ensure!(said.matches("n[1-5]\n").count() == 4 && said.contains("finished"), "{said}");
    Ok(())
}

/// SIGKILL of a program on a node.
fn kill_program(site: &Site, node: &str, name: &str) -> Result<()> {
    let is_it = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    let pid = site.cluster.node_pids(node)?.into_iter().find(is_it).with_context(|| format!("no {name} on {node}"))?;
    kill(Pid::from_raw(pid), Signal::SIGKILL).context("kill")
}

#[test]
fn mpi_in_a_group_of_two_nodes_starts_again_when_a_rank_is_killed_and_when_a_node_dies() -> Result<()> {
    const SHAPE: [usize; 3] = [5, 2, 1];
    let mut site = site();
    let steps = |more: &str| {
        let program = program(&site, "stencil-mpi");
        format!(
            "srun --mpi=pmix bash -c 'echo rank $SLURM_PROCID of $SLURM_NTASKS on $SLURM_NODEID >>ranks.$FT_ENERGY_GROUP; \
             exec {program} --steps 1000 --every 200 {more} >>said.$FT_ENERGY_GROUP 2>&1'"
        )
    };
    let (job, quiet) = submitted(&site, "pairs-quiet", SHAPE, &COUPLED, &steps(""))?;
    report_of_the_end(&site, job)?;
    let (job, folder) = submitted(&site, "pairs", SHAPE, &COUPLED, &steps("--step-ms 15"))?;
    let run = site.wait_report(job, "checkpoints", MINUTES, |run| {
        (run["total"]["checkpoints"].as_u64()? > 2).then(|| run.clone())
    })?;
    let pair = nodes_of(&run, 1).context("nodes")?;
    kill_program(&site, &pair[1], "stencil-mpi")?;
    site.wait("the group on the same nodes", MINUTES, |_| Ok((beginnings(&folder, 2)? == [1, 2]).then_some(())))?;
    // The node of its relay, while nobody hears whether it beats.
    site.kill_controller()?;
    site.cluster.kill_node(&pair[0])?;
    site.start_controller()?;
    let run = report_of_the_end(&site, job)?;
    site.cluster.revive_node(&pair[0])?;
    let reason = |failure: usize| run["failures"][failure]["reason"].as_str().unwrap_or_default();
    ensure!(reason(0).contains("group 1 ended by signal"), "{:#}", run["failures"]);
    ensure!(
        reason(1).contains("nor its witnesses have reached it"),
        "Slurm found it dead, not the service: {:#}",
        run["failures"]
    );
    ensure!(run["records"].as_array().map(Vec::len) == Some(1), "it went through the queue: {run:#}");
    ensure!(results(&folder, 2)? == results(&quiet, 2)?, "other bits: {:?}", results(&folder, 2)?);
    ensure!(beginnings(&folder, 2)? == [1, 3], "{:?}", beginnings(&folder, 2)?);
    for (group, ranks, begun) in [(0, [0, 1], 1), (1, [2, 3], 3)] {
        let said = fs::read_to_string(folder.join(format!("ranks.{group}")))?;
        for rank in ranks {
            let expected = format!("rank {rank} of 4 on {rank}\n");
            ensure!(said.matches(&expected).count() == begun, "group {group} has not {expected:?}:\n{said}");
        }
    }
    Ok(())
}

/// Sets the cluster's MpiDefault.
fn set_mpi_default(site: &Site, mpi: &str) -> Result<()> {
    let mut scontrol = site.cluster.command("scontrol");
    let conf = scontrol.get_envs().find_map(|(name, value)| value.filter(|_| name == "SLURM_CONF"));
    let conf = PathBuf::from(conf.context("SLURM_CONF")?);
    let is_other = |line: &&str| !line.starts_with("MpiDefault=");
    let text: String = fs::read_to_string(&conf)?.lines().filter(is_other).map(|l| format!("{l}\n")).collect();
    fs::write(&conf, format!("{text}MpiDefault={mpi}\n"))?;
    ensure!(scontrol.arg("reconfigure").status()?.success(), "scontrol reconfigure");
    Ok(())
}

#[test]
fn mpi_that_only_the_cluster_says_falls_together_and_other_programs_do_not() -> Result<()> {
    let site = site();
    let script = format!(
        "srun bash -c 'test $SLURM_PROCID = 0 && exit 1; sleep 3; echo plain $SLURM_PROCID'\n\
         srun bash -c 'exec {} --steps 400 --every 100 --step-ms 15 >>said.$FT_ENERGY_GROUP 2>&1'",
        program(&site, "stencil-mpi")
    );
    set_mpi_default(&site, "pmix")?;
    let (job, folder) = submitted(&site, "by-default", [4, 2, 0], &COUPLED, &script)?;
    let run = site.wait_report(job, "checkpoints", MINUTES, |run| {
        (run["total"]["checkpoints"].as_u64()? > 1).then(|| run.clone())
    })?;
    let pair = nodes_of(&run, 1).context("nodes")?;
    kill_program(&site, &pair[1], "stencil-mpi")?;
    report_of_the_end(&site, job)?;
    set_mpi_default(&site, "none")?;
    let said = fs::read_to_string(folder.join(format!("slurm-{job}.out")))?;
    ensure!((1..4).all(|rank| said.contains(&format!("plain {rank}\n"))), "{said}");
    ensure!(beginnings(&folder, 2)? == [1, 2], "{:?}", beginnings(&folder, 2)?);
    Ok(())
}

#[test]
fn a_step_that_its_user_cancels_is_not_started_again() -> Result<()> {
    let site = site();
    let more = ["--ft-energy-signal=USR1", "--ft-energy-done={group}.ckpt"];
    let script = "srun bash -c 'echo >>began.$FT_ENERGY_GROUP; exec sleep $((FT_ENERGY_GROUP * 600))'\necho ended $?";
    let (job, folder) = submitted(&site, "cancelled", [2, 2, 0], &more, script)?;
    let step = site.wait("the step of group 1", MINUTES, |site| {
        let steps =
            site.cluster.command("squeue").args(["-h", "-s", "-o", "%i %j", "-j", &job.to_string()]).output()?;
        let text = String::from_utf8_lossy(&steps.stdout).into_owned();
        let begun = folder.join("began.1").exists();
        Ok(text.lines().find_map(|l| l.strip_suffix(" bash.0.g1")).filter(|_| begun).map(str::to_string))
    })?;
    site.cluster.command_as(USER, "scancel").arg(&step).status()?;
    let run = report_of_the_end(&site, job)?;
    let said = fs::read_to_string(folder.join(format!("slurm-{job}.out")))?;
    // By SIGTERM or by SIGKILL, as Slurm's version has it.
    ensure!(said.contains("ended 143") || said.contains("ended 137"), "{said}");
    ensure!(fs::read_to_string(folder.join("began.1"))? == "\n", "it was started again: {run:#}");
    ensure!(run["total"]["failures"] == 0, "{run:#}");
    Ok(())
}

/// A program that knows nothing of checkpoints: each line depends on all before it.
const WORK: &str = r#"
echo "$1" >>"began.$SLURM_PROCID"
x=$((SLURM_PROCID + 1))
for n in $(seq "$2"); do
    x=$((x * 6364136223846793005 + n))
    echo "$1 rank $SLURM_PROCID step $n $x"
    sleep 0.1
done
"#;

/// A step that the script ends, and that nobody starts again.
const SERVER: &str = "srun sleep 9999 & server=$!\nsleep 3\nkill $server\nwait $server\necho server $?\n";

/// A job of such programs in groups, one task on each node.
struct Plain {
    job: u32,
    folder: PathBuf,
    tasks: usize,
    steps: Vec<(&'static str, u32)>,
    /// What a task may begin again, after all else.
    again: &'static str,
}

impl Plain {
    /// Submits it; none if CRIU cannot be had.
    fn submit(site: &Site, name: &str, shape: [usize; 3], steps: &[(&'static str, u32)]) -> Result<Option<Plain>> {
        static CRIU: OnceLock<Result<(), String>> = OnceLock::new();
        if let Err(reason) = CRIU.get_or_init(|| suite::fetch(suite::Fetched::Criu, &site.conf.with_file_name("criu")))
        {
            println!("skipped: groups by the engine criu: {reason}");
            return Ok(None);
        }
        let work = site.conf.with_file_name("work.sh");
        fs::write(&work, WORK)?;
        let call = |(step, count): &(&str, u32)| format!("srun bash {} {step} {count}\n", work.display());
        let script = format!("echo begin\n{}echo end $?\n{SERVER}", steps.iter().map(call).collect::<String>());
        let engine = ["--ft-energy-engine=criu", "--ft-energy-interval=3s"];
        let more = [&engine[..], &["--output=out", "--error=err", "--open-mode=append"]].concat();
        let (job, folder) = submitted(site, name, shape, &more, &script)?;
        let [nodes, _, spares] = shape;
        Ok(Some(Plain { job, folder, tasks: nodes - spares, steps: steps.to_vec(), again: "" }))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    fn said(&self) -> String {
        format!("{}\n{}", self.read("err"), self.read("out"))
    }

    /// Waits for so many checkpoints more.
    fn wait_for_lines(&self, site: &Site, more: u64) -> Result<Value> {
        let made = |run: &Value| run["total"]["checkpoints"].as_u64();
        let before = site.report(self.job)?.as_ref().and_then(made).unwrap_or(0);
        let enough = |run: &Value| (made(run)? >= before + more).then(|| run.clone());
        site.wait_report(self.job, "checkpoints", MINUTES, enough).with_context(|| self.said())
    }

    /// Waits until all tasks have begun a step.
    fn wait_for_step(&self, site: &Site, step: &str) -> Result<()> {
        let all = || (0..self.tasks).all(|rank| self.read(&format!("began.{rank}")).contains(step));
        site.wait(step, MINUTES, |_| Ok(all().then_some(()))).with_context(|| self.said())
    }

    /// Waits until groups have started again alone so often.
    fn wait_for_restarts(&self, site: &Site, count: usize) -> Result<Value> {
        let restarts = |run: &Value| {
            let decisions = run["decisions"].as_array()?.iter().filter(|d| d["action"] == "restart group");
            (decisions.count() == count).then(|| run.clone())
        };
        site.wait_report(self.job, "a group to start again", MINUTES, restarts).with_context(|| self.said())
    }

    /// Waits for the end: no task has begun a step again that need not, and no line of output is lost or doubled.
    fn ends_as_if_undisturbed(&self, site: &Site) -> Result<Value> {
        let run = report_of_the_end(site, self.job).with_context(|| self.said())?;
        let once: String = self.steps.iter().map(|(step, _)| format!("{step}\n")).collect();
        let began = [format!("{once}{}", self.again), once];
        for rank in 0..self.tasks {
            ensure!(began.contains(&self.read(&format!("began.{rank}"))), "task {rank} began again: {}", self.said());
        }
        let out = self.read("out");
        let mut lines = out.lines();
        ensure!(lines.next() == Some("begin"), "{}", self.said());
        for (step, count) in &self.steps {
            let mut seen: Vec<&str> = lines.by_ref().take(self.tasks * *count as usize).collect();
            seen.sort_unstable();
            ensure!(seen == lines_of(step, *count, self.tasks), "step {step}: {}", self.said());
        }
        ensure!(lines.next() == Some("end 0"), "{}", self.said());
        let server: Vec<&str> = lines.collect();
        ensure!(server.len() == 1 && server[0].starts_with("server ") && server[0] != "server 0", "{}", self.said());
        println!("plain groups: {} checkpoints", run["total"]["checkpoints"]);
        Ok(run)
    }
}

/// What all tasks write in a step, sorted.
fn lines_of(step: &str, count: u32, tasks: usize) -> Vec<String> {
    let of_rank = |rank: usize| {
        let mut x = rank as i64 + 1;
        (1..=count).map(move |n| {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(i64::from(n));
            format!("{step} rank {rank} step {n} {x}")
        })
    };
    let mut all: Vec<String> = (0..tasks).flat_map(of_rank).collect();
    all.sort_unstable();
    all
}

/// A process of this site whose command line begins so and goes on with this.
fn process(site: &Site, begin: &str, more: &str) -> Option<nix::unistd::Pid> {
    let place = site.conf.parent()?.to_str()?;
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let is_it = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(place) && line.starts_with(begin) && line.contains(more)
    };
    pids.into_iter().find(is_it).map(nix::unistd::Pid::from_raw)
}

#[test]
fn programs_that_know_nothing_of_checkpoints_go_back_alone_and_then_all_through_the_queue() -> Result<()> {
    let mut site = site();
    let Some(job) = Plain::submit(&site, "plain", THREE, &[("one", 20), ("two", 700)])? else { return Ok(()) };
    job.wait_for_step(&site, "two")?;
    let run = job.wait_for_lines(&site, 2 * GROUPS as u64)?;
    ensure!(job.read("out").contains("two rank 1 step 5 "), "what lines have is not printed: {}", job.said());
    let victim = node_of(&run, 1).context("a node")?;
    site.cluster.kill_node(&victim)?;
    let run = job.wait_for_restarts(&site, 1)?;
    site.cluster.revive_node(&victim)?;
    ensure!(run["records"].as_array().map(Vec::len) == Some(1), "it went through the queue: {run:#}");
    let run = job.wait_for_lines(&site, 2 * GROUPS as u64)?;
    // No spare is left.
    let victim = node_of(&run, 0).context("a node")?;
    site.cluster.kill_node(&victim)?;
    site.wait_state(job.job, &["PENDING"], MINUTES).with_context(|| job.said())?;
    site.cluster.revive_node(&victim)?;
    let run = job.ends_as_if_undisturbed(&site)?;
    ensure!(run["records"].as_array().map(Vec::len) == Some(2), "{run:#}");
    ensure!(run["total"]["failures"] == 2, "{run:#}");
    Ok(())
}

#[test]
fn a_group_of_two_tasks_goes_back_when_its_srun_or_a_warden_is_killed_and_all_do_when_the_driver_is() -> Result<()> {
    use nix::sys::signal::{Signal, kill};
    let site = site();
    let Some(mut job) = Plain::submit(&site, "parts", [5, 2, 1], &[("one", 20), ("two", 600)])? else { return Ok(()) };
    let kill = |begin: &str, more: &str| -> Result<()> {
        let pid = process(&site, begin, more).with_context(|| format!("no process {begin} {more}"))?;
        Ok(kill(pid, Signal::SIGKILL)?)
    };
    let kill_driver = || kill("/proc/self/exe wrap", "");
    job.wait_for_step(&site, "two")?;
    // Before most lines, if not all: what has ended is known without one.
    kill_driver()?;
    job.again = "two\n";
    job.wait_for_lines(&site, 4)?;
    kill("srun ", "--job-name=bash.1.g1 ")?;
    job.wait_for_restarts(&site, 1)?;
    job.wait_for_lines(&site, 4)?;
    kill(&format!("{} warden", site.bin().join("joulepoint").display()), "groups/g1 ")?;
    job.wait_for_restarts(&site, 2)?;
    job.wait_for_lines(&site, 4)?;
    kill_driver()?;
    job.wait_for_lines(&site, 4)?;
    let run = job.ends_as_if_undisturbed(&site)?;
    ensure!(run["records"].as_array().map(Vec::len) == Some(1), "it went through the queue: {run:#}");
    Ok(())
}
