//! `make accuracy`: calibrates a private cluster, then sets ten jobs' plans beside what the jobs measured.

use anyhow::{Context, Result, ensure};
use policy::repeated::student;
use protocol::{Calibration, Plan};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use suite::{Site, Wanted};

const USER: &str = "jpalice";
const NODES: u32 = 4;

/// Mean and worst error of Aupy15, Fig. 1.15.
const TARGETS: [f64; 2] = [0.049, 0.076];

/// Longest time that one job may take.
const LIMIT: Duration = Duration::from_secs(240);

/// Jobs that move more are large, MiB.
const LARGE_MIB: u32 = 16;

/// One job: nodes, tasks on each, MiB of all tasks, messages, seconds.
#[derive(Clone, Copy)]
struct Shape {
    nodes: u32,
    tasks_per_node: u32,
    mib: u32,
    messages: &'static str,
    length_s: u32,
}

const fn shape(nodes: u32, tasks_per_node: u32, mib: u32, messages: &'static str, length_s: u32) -> Shape {
    Shape { nodes, tasks_per_node, mib, messages, length_s }
}

const SHAPES: [Shape; 10] = [
    shape(1, 1, 2, "100:1M", 40),
    shape(1, 1, 24, "100:1M", 50),
    shape(1, 2, 8, "1000:4M", 40),
    shape(1, 2, 32, "10:64M", 50),
    shape(2, 1, 4, "1000:4M", 50),
    shape(2, 1, 20, "100000:1G", 40),
    shape(2, 2, 16, "100:1M", 40),
    shape(3, 1, 12, "10:64M", 50),
    shape(4, 1, 28, "1000:4M", 45),
    shape(4, 2, 32, "100000:1G", 50),
];

/// Time between two checkpoints of a job; those of the calibration are as far apart.
const APART: &str = "2s";

/// How the cluster is calibrated in a hurry: where runs write, and often enough for the error that is aimed at.
const IN_A_HURRY: [&str; 9] = ["--fast", "--storage", "shared", "--apart", APART, "--within", "5", "--most", "16"];

/// What was planned and measured of one job's checkpoints: time in s, energy in J.
struct Row {
    is_large: bool,
    planned: [f64; 2],
    /// Of each checkpoint.
    measured: [Vec<f64>; 2],
}

/// Calibrates, runs the jobs and prints the table.
pub fn run(full: bool) -> Result<()> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-accuracy-{}", std::process::id()));
    let toml = format!("[calibration]\ndir = {:?}\n", dir.join("slurm/shared/calibration"));
    let site = Site::start(&dir, &Wanted { nodes: NODES, toml, ..Wanted::default() }, &mut |_| {})?;
    let begun = Instant::now();
    let how: &[&str] = if full { &[] } else { &IN_A_HURRY };
    let json = said(&site, "root", &[&["calibrate", "run", "--json"], how].concat())?;
    let [calibration] = &serde_json::from_str::<Vec<Calibration>>(&json)?[..] else {
        anyhow::bail!("one node type was expected: {json}")
    };
    println!("calibrated {NODES} nodes in {:.0} s", begun.elapsed().as_secs_f64());
    fits(calibration);
    let program = site.cluster.shared().join("task");
    std::fs::copy(std::env::current_exe()?, &program).with_context(|| program.display().to_string())?;
    heading();
    let rows: Vec<Row> = SHAPES.iter().map(|s| job(&site, &program, s)).collect::<Result<_>>()?;
    summary(&rows);
    println!("\njoulepoint report --accuracy\n{}", said(&site, "root", &["report", "--accuracy"])?);
    drop(site);
    Ok(std::fs::remove_dir_all(&dir)?)
}

fn said(site: &Site, user: &str, args: &[&str]) -> Result<String> {
    let output = site.joulepoint(user, args)?;
    let said = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{args:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(said)
}

/// How well the curves meet the points of each operation; residuals as a share of its longest duration.
fn fits(calibration: &Calibration) {
    println!("noise of one repetition: {:.1} % of a duration", 100.0 * calibration.noise.time_fraction);
    println!("{:<26} {:>6} {:>22} {:>18}", "operation", "points", "R2 least, median", "worst residual");
    for m in &calibration.measured {
        let mut r2: Vec<f64> = m.fits.iter().map(|f| f.r2).collect();
        r2.sort_by(f64::total_cmp);
        let (Some(least), Some(median)) = (r2.first(), r2.get(r2.len() / 2)) else { continue };
        let longest = m.points.iter().map(|p| p.time_s).fold(0.0, f64::max);
        let of_time = m.fits.iter().filter(|f| f.of == protocol::Quantity::TimeS);
        let worst = of_time.map(|f| f.residual / longest).fold(0.0, f64::max);
        let storage = m.storage.map_or("", |s| s.as_str());
        let name = format!("{} {storage}", m.operation.as_str());
        println!("{name:<26} {:>6} {least:>12.4}, {median:>8.4} {:>16.1} %", m.points.len(), 100.0 * worst);
    }
}

/// Plans a job, runs it, and prints its row.
fn job(site: &Site, program: &Path, shape: &Shape) -> Result<Row> {
    let Shape { nodes, tasks_per_node, mib, messages, length_s } = *shape;
    let tasks = nodes * tasks_per_node;
    let name = format!("n{nodes}p{tasks_per_node}m{mib}");
    let folder = site.folder(USER, &name)?;
    let share = 1024 * mib / tasks;
    let done: Vec<String> = (0..tasks).map(|i| format!("state.{i}")).collect();
    let options = [
        format!("ft-energy-memory={}K", share * tasks),
        format!("ft-energy-messages={messages}"),
        format!("ft-energy-interval={APART}"),
        "ft-energy-signal=USR1".to_string(),
        format!("ft-energy-done={}", done.join(",")),
    ];
    let (n, all) = (nodes.to_string(), tasks.to_string());
    let mut plan = vec!["plan", "--json", "-N", &n, "-n", &all, "-c", "2", "-J", &name];
    options.iter().for_each(|o| plan.extend(["-o", o]));
    let plan: Plan = serde_json::from_str(&said(site, USER, &plan)?)?;
    let (checkpoint_s, checkpoint_w) = (plan.checkpoint_s.value, planner::checkpoint_power_w(&plan));
    let planned = [checkpoint_s, checkpoint_s * checkpoint_w * f64::from(nodes)];

    let mut args: Vec<String> = options.iter().map(|o| format!("--{o}")).collect();
    args.extend([format!("-N{n}"), format!("-n{all}"), format!("-J{name}")]);
    args.extend(["--exclusive", "--ft-energy"].map(str::to_string));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let program = program.display();
    let script = format!("srun --ntasks-per-node={tasks_per_node} {program} task \"$PWD\" {} {length_s}", 1024 * share);
    let id = site.submit(USER, &folder, &args, &script)?;
    let list = site.wait_report(id, "its end", LIMIT, |run| {
        (run["state"] == "completed").then(|| run["checkpoints"].as_array().cloned().unwrap_or_default())
    })?;
    let figures = |name: &str| list.iter().filter_map(|c| c[name].as_f64()).collect::<Vec<_>>();
    let row = Row { is_large: mib > LARGE_MIB, planned, measured: [figures("seconds"), figures("joules")] };
    row.print(shape).with_context(|| format!("job {id} made fewer than two checkpoints"))?;
    Ok(row)
}

fn heading() {
    println!(
        "\nnodes tasks  MiB   length  ckpts | time planned measured   error  mean +-  spread | energy planned measured   error  mean +-  spread"
    );
}

impl Row {
    fn mean(&self, of: usize) -> f64 {
        self.measured[of].iter().sum::<f64>() / self.measured[of].len() as f64
    }

    fn error(&self, of: usize) -> f64 {
        self.planned[of] / self.mean(of) - 1.0
    }

    /// Half width of the 95 % interval of the mean, as a share of it: an error within it may be noise alone.
    fn uncertainty(&self, of: usize) -> f64 {
        let count = self.measured[of].len();
        student(count.saturating_sub(1)) * self.spread(of) / (count as f64).sqrt()
    }

    /// The first checkpoint beside the mean of the others.
    fn first(&self, of: usize) -> f64 {
        let (first, others) = (self.measured[of][0], &self.measured[of][1..]);
        first / (others.iter().sum::<f64>() / others.len() as f64) - 1.0
    }

    /// Standard deviation of one checkpoint, as a share of the mean: nothing can be foretold better.
    fn spread(&self, of: usize) -> f64 {
        let (mean, all) = (self.mean(of), &self.measured[of]);
        (all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (all.len() as f64 - 1.0)).sqrt() / mean
    }

    fn print(&self, s: &Shape) -> Option<()> {
        let tasks = s.nodes * s.tasks_per_node;
        let side = |of: usize, unit: &str| {
            let [error, sure, spread] = [self.error(of), self.uncertainty(of), self.spread(of)].map(|x| 100.0 * x);
            let (planned, mean) = (self.planned[of], self.mean(of));
            format!("{planned:>10.3} {unit} {mean:>8.3} {unit} {error:>+6.1} % {sure:>6.1} % {spread:>5.1} %")
        };
        let checkpoints = self.measured.iter().map(Vec::len).min().filter(|n| *n > 1)?;
        let of_job = format!("{:>5} {tasks:>5} {:>4} {:>6} s {checkpoints:>6}", s.nodes, s.mib, s.length_s);
        println!("{of_job} | {} | {}", side(0, "s"), side(1, "J"));
        Some(())
    }
}

/// The errors, and beside them what cannot be foretold: how far one checkpoint lies from the others of its job. Then
/// whether they are a bias: how many lie beyond the interval of their job's mean, and which way those of small and of large
/// jobs and of first checkpoints lie.
fn summary(rows: &[Row]) {
    let [mean_target, worst_target] = TARGETS.map(|t| 100.0 * t);
    println!("\n          mean error  worst error       bias  noise floor  mean error / floor");
    for (of, name) in ["time", "energy"].into_iter().enumerate() {
        let mean = |figure: &dyn Fn(&Row) -> f64| 100.0 * rows.iter().map(figure).sum::<f64>() / rows.len() as f64;
        let worst = rows.iter().map(|r| 100.0 * r.error(of).abs()).fold(0.0, f64::max);
        let (error, bias, floor) = (mean(&|r| r.error(of).abs()), mean(&|r| r.error(of)), mean(&|r| r.spread(of)));
        let ratio = error / floor;
        println!("{name:<8} {error:>9.1} % {worst:>10.1} % {bias:>+8.1} % {floor:>10.1} % {ratio:>19.2}");
    }
    println!("target   {mean_target:>9.1} % {worst_target:>10.1} %");
    println!("\n         beyond noise   small jobs   large jobs   first checkpoint");
    for (of, name) in ["time", "energy"].into_iter().enumerate() {
        let mean = |some: &dyn Fn(&&Row) -> bool, figure: &dyn Fn(&Row) -> f64| {
            let (sum, count) = rows.iter().filter(some).fold((0.0, 0.0), |(s, n), r| (s + figure(r), n + 1.0));
            100.0 * sum / count
        };
        let beyond = rows.iter().filter(|r| r.error(of).abs() > r.uncertainty(of)).count();
        let [small, large] = [false, true].map(|large| mean(&|r| r.is_large == large, &|r| r.error(of)));
        let first = mean(&|_| true, &|r| r.first(of));
        println!("{name:<8} {beyond:>6} of {:<3} {small:>+9.1} % {large:>+10.1} % {first:>+16.1} %", rows.len());
    }
}
