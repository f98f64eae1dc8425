//! `joulepoint plan`: what would be done for a job and why, without a job.

mod submission;
mod summary;
mod table;

use crate::out;
use anyhow::{anyhow, bail};
use config::Site;
use planner::Known;
use protocol::{Capabilities, Plan, PlanRequest, Request, Setting, Source, StoredCalibration};
use std::path::PathBuf;
use std::time::Duration;
use submission::Submission;

/// Longest wait for the controller; after it the plan is made from the site file.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);

/// Commands whose arguments are understood.
const SUBMITS: [&str; 3] = ["sbatch", "salloc", "srun"];

/// Who made a plan without the controller.
const ALONE: &str = "plan";

/// An overhead above this is not told in figures, as a fraction.
const MOST_TOLD: f64 = 100.0;

/// Arguments of `joulepoint plan`.
#[derive(clap::Args)]
pub struct PlanArgs {
    /// An option of sbatch, such as ft-energy=time or ft-energy-io-bound=5%; may be repeated.
    #[arg(short = 'o', long = "option", value_name = "NAME[=VALUE]")]
    options: Vec<String>,
    /// The whole request as JSON, as the plugin writes it.
    #[arg(long, value_name = "JSON", conflicts_with = "options")]
    request: Option<String>,
    /// Nodes of the job: as many as are named, or 1.
    #[arg(short = 'N', long, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// CPUs on each node.
    #[arg(short, long, default_value_t = 1)]
    cpus_per_node: u32,
    /// Tasks of the job, one on each CPU if absent.
    #[arg(short = 'n', long, value_name = "TASKS")]
    ntasks: Option<u32>,
    /// The nodes, by which their calibration is found: n1,n[3-5].
    #[arg(short = 'w', long, value_name = "NODES", default_value = "")]
    nodelist: String,
    /// Node type whose calibration is used.
    #[arg(long, value_name = "NAME")]
    node_type: Option<String>,
    /// Duration without failures and checkpoints, as 30 (minutes), 2:00:00 or 1-0.
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    work: Option<f64>,
    /// Time limit of the job, as sbatch has it; without one, none.
    #[arg(short, long, value_name = "TIME", value_parser = seconds)]
    time: Option<f64>,
    /// Recovery groups of the uncoordinated alternatives; one for each node if absent.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    groups: Option<u32>,
    /// Plan on an exported calibration, without the controller.
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Plan on the coefficients printed in Aupy15, for nodes of four processes, without the controller.
    #[arg(long, conflicts_with = "calibration")]
    published: bool,
    /// Job name, by which earlier runs are found.
    #[arg(short = 'J', long, default_value = "")]
    job_name: String,
    /// Tell every figure, its source, and what was looked at and not taken; six lines if absent.
    #[arg(long, conflicts_with = "json")]
    full: bool,
    /// Print the plan as JSON.
    #[arg(long)]
    json: bool,
    /// A submission, from which nodes, tasks, name and our options are taken: `joulepoint plan -- sbatch -N4 job.sh`.
    #[arg(last = true, value_name = "SUBMISSION")]
    submission: Vec<String>,
}

/// Reads options written as `name`, `name=value`, with or without dashes in front.
pub fn request(options: &[String]) -> Result<Request, String> {
    let mut request = Request::default();
    for text in options {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let name = name.trim_start_matches('-');
        let Some(spec) = options::find(name) else {
            let near = options::nearest(name, options::OPTIONS.iter().map(|s| s.name));
            let hint = near.map(|n| format!("; did you mean '{n}'?")).unwrap_or_default();
            return Err(format!("'{name}' is not an option{hint}"));
        };
        options::check(spec, value).map_err(|r| r.to_string())?;
        let setting = Setting { value: value.to_string(), source: Source::Option };
        request.settings.insert(name.to_string(), setting);
    }
    Ok(request)
}

/// Prints the plan.
pub fn run(args: &PlanArgs, site: &Site) -> anyhow::Result<()> {
    if let Some(word) =
        args.submission.first().filter(|word| !SUBMITS.iter().any(|name| word.rsplit('/').next() == Some(name)))
    {
        bail!("'{word}' is not a command that submits to Slurm; accepted: joulepoint plan -- sbatch ARGUMENTS");
    }
    let job = if args.submission.is_empty() {
        let named =
            u32::try_from(slurm::expand_nodelist(&args.nodelist).map_err(|e| anyhow!("--nodelist: {e}"))?.len())?
                .max(1);
        let nodes = Some(args.nodes.unwrap_or(named));
        let nodelist = args.nodelist.clone();
        Submission { nodes, nodelist, job_name: args.job_name.clone(), ..Submission::default() }
    } else {
        Submission::read(&args.submission)
    };
    let mut request = match &args.request {
        Some(json) => serde_json::from_str(json)?,
        None => request(&[&job.options[..], &args.options].concat()).map_err(anyhow::Error::msg)?,
    };
    let explain = request.settings.remove("ft-energy-explain");
    let is_full = args.full || explain.is_some_and(|setting| setting.value == "full");
    if !site.defaults.contains_key("ft-energy") {
        let on = || Setting { value: "energy".to_string(), source: Source::Default };
        request.settings.entry("ft-energy".to_string()).or_insert_with(on);
    }
    let settings = options::resolve(&request, &site.defaults)?;
    if settings.objective.is_none() {
        bail!("--ft-energy=off: the job is not to be protected, so there is no plan");
    }
    // A job that leaves its nodes to Slurm is taken to get what its groups need.
    let nodes = job.nodes.unwrap_or(settings.groups.saturating_add(settings.spare));
    let asked = |name: &str| request.settings.contains_key(name);
    if let Some(short) = options::size::too_few(settings.groups, settings.spare, nodes)
        .filter(|_| asked("ft-energy-groups") || asked("ft-energy-spare"))
    {
        bail!("{short}: ask for more nodes (-N), or for fewer groups or spares");
    }
    let (tasks, cpus_per_node) = match args.submission.is_empty() {
        true => (args.ntasks, args.cpus_per_node),
        false => job.spread_over(nodes),
    };
    let node_names = job.named(nodes).map_err(anyhow::Error::msg)?;
    let known = known(args, site)?;
    // One that is named is meant, whatever the nodes are.
    let of_known = || known.as_ref().map(|k| k.stored.calibration.node_type.clone());
    let question = PlanRequest {
        request,
        nodes,
        cpus_per_node,
        tasks,
        user: std::env::var("USER").unwrap_or_default(),
        job_name: job.job_name.clone(),
        node_names,
        node_type: args.node_type.clone().or_else(of_known),
        work_s: args.work,
        groups: args.groups,
        walltime_s: args.time.or(job.time_s.map(|s| s as f64)),
        local_s: Some(host::mail::local_s(host::mail::now_s())),
        script: None,
        together: None,
    };
    let plan = match known {
        Some(known) => alone(&question, vec![known], site)?,
        None => ask(&question, site)?,
    };
    out::warn_stale("the calibration of the nodes", &plan.stale);
    if args.json {
        return out::json(&plan);
    }
    if is_full {
        return Ok(out::print(describe(&plan, nodes))?);
    }
    // Where a plan was made without the controller, that is not waited for either.
    let capabilities = (plan.made_by != ALONE).then(|| ask_capabilities(site)).flatten();
    Ok(out::print(summary::summary(&plan, &settings, nodes, &job, capabilities.as_ref()))?)
}

/// What the nodes have; nothing where no controller says it.
fn ask_capabilities(site: &Site) -> Option<Capabilities> {
    let client = wire::Client::new(&site.controller.url, site.munge_socket.clone(), ANSWER_LIMIT);
    client.get("/v1/capabilities").ok().filter(|told: &Capabilities| told.nodes > 0)
}

/// The controller's plan; one from the site file alone if it is away.
fn ask(question: &PlanRequest, site: &Site) -> anyhow::Result<Plan> {
    let client = wire::Client::new(&site.controller.url, site.munge_socket.clone(), ANSWER_LIMIT);
    match client.post::<PlanRequest, Plan>("/v1/plan", question) {
        Ok(plan) => Ok(plan),
        Err(wire::Error::Refused { text, .. }) => bail!(text),
        Err(e) => {
            tracing::warn!(%e, "the controller is away; the plan is made from the site file alone");
            alone(question, Vec::new(), site)
        }
    }
}

/// The plan without a controller.
fn alone(question: &PlanRequest, calibrations: Vec<Known>, site: &Site) -> anyhow::Result<Plan> {
    let history = planner::History { calibrations, ..planner::History::default() };
    Ok(Plan { made_by: ALONE.to_string(), ..planner::make_plan(question, &history, site)? })
}

/// The calibration that was named on the command line.
fn known(args: &PlanArgs, site: &Site) -> anyhow::Result<Option<Known>> {
    if args.published {
        return Ok(Some(planner::published::calibration(site.energy.idle_w)));
    }
    let Some(path) = &args.calibration else { return Ok(None) };
    let calibration = crate::calibrate::read(path)?;
    let stored = StoredCalibration { id: 0, calibration, corrections: Vec::new(), stale: Vec::new() };
    Ok(Some(Known::new(stored)))
}

fn seconds(text: &str) -> Result<f64, options::WrongArgument> {
    Ok(options::time_argument(text)?.as_secs_f64())
}

/// The plan in words.
pub fn describe(plan: &Plan, nodes: u32) -> String {
    let percent = |x: f64| if x > MOST_TOLD { "more than 10000%".into() } else { format!("{:.2}%", 100.0 * x) };
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<22}{value}\n"));
    line("objective", plan.objective.clone());
    line("protocol", plan.protocol.clone());
    line("engine", plan.engine.clone());
    if !plan.options.is_empty() {
        let options = plan.options.iter().map(|(name, value)| format!("--{name}={value}"));
        line("set by the plan", options.collect::<Vec<_>>().join(" "));
    }
    line("checkpoint interval", format!("{:.0} s ({})", plan.interval_s, options::format_time(plan.interval_s)));
    line(
        "expected overhead",
        format!(
            "time {}, energy {}, I/O {}",
            percent(plan.expected_time_overhead),
            percent(plan.expected_energy_overhead),
            percent(plan.expected_io_share)
        ),
    );
    line("nodes", nodes.to_string());
    for (name, figure) in [("MTBF", &plan.mtbf_s), ("checkpoint", &plan.checkpoint_s), ("restart", &plan.restart_s)] {
        line(name, format!("{} (from: {})", options::spoken(figure.value), figure.from));
    }
    for (name, figure) in
        [("node idle", &plan.idle_w), ("node computing", &plan.busy_w), ("node in checkpoint", &plan.checkpoint_w)]
    {
        line(name, format!("{:.1} W (from: {})", figure.value, figure.from));
    }
    line("made by", plan.made_by.clone());
    if let Some(choice) = &plan.choice {
        text.push_str(&table::table(choice));
    }
    text.push_str("why\n");
    plan.reasons.iter().for_each(|r| text.push_str(&format!("  {r}\n")));
    text.push_str("not taken\n");
    for a in plan.alternatives.iter().filter(|a| plan.choice.is_none() || !a.what.starts_with("protocol=")) {
        let cost = match (a.time_overhead, a.energy_overhead) {
            (Some(t), Some(e)) => format!(" (time {}, energy {})", percent(t), percent(e)),
            _ => String::new(),
        };
        text.push_str(&format!("  {}{cost}: {}\n", a.what, a.refused));
    }
    text
}
