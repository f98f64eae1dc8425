//! What is planned for a run before its program is started: the controller's plan, the engine, and what comes back.

use crate::former::Former;
use config::Site;
use engines::choice::{self, Facts};
use engines::criu;
use engines::hook::Commands;
use engines::veloc::Setup;
use host::linked;
use host::mail;
use host::unsuited::{self, Me};
use job::cluster::Controller;
use job::identity::Identity;
use options::size::PARTS_CURE;
use options::{Refusal, Resume, Settings};
use protection::Prospect;
use protocol::{Event, Plan, PlanRequest, Record, Request, Setting, Source};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use steps::calls::{LAUNCHERS, fingerprint};
use worlds::kinds::{self, Launcher};
use worlds::ranks;

/// Commands by which a script puts other folders into its `PATH`, beside `PATH=...` itself.
const LOADING: [&str; 8] = ["module", "ml", "spack", "conda", "mamba", "micromamba", "source", "."];

/// What a job asks for, of which site, where.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub request: &'a Request,
    pub settings: &'a Settings,
    pub site: &'a Site,
    pub argv: &'a [String],
    pub me: &'a Identity,
}

/// What was found out before a run's program is started.
pub(crate) struct Planned {
    pub plan: Plan,
    /// The engine, which is chosen here.
    pub chosen: Option<options::Engine>,
    /// What the user wants together with what the plan sets, if it sets something.
    pub settings: Option<Settings>,
    pub criu: Option<Criu>,
    pub prospect: Prospect,
    /// The script puts its job back into the queue itself, and its user has not said what is to come back with it.
    pub requeues: bool,
}

impl Planned {
    /// Slurm starts the job no second time: at the end of its walltime it is not ended early for that, either.
    pub(crate) fn starts_once(&mut self, settings: &Settings, site: &Site) {
        if settings.spare == 0 {
            self.prospect.but = "the loss of a node ends the job for good (--no-requeue)".to_string();
        }
        if self.plan.flexible_s.take().is_some() {
            protocol::say!("joulepoint: --ft-energy-flexible has no effect: Slurm does not requeue the job");
        }
        if settings.requeue.unwrap_or(site.wrapper.requeue_at_end) {
            self.settings.get_or_insert_with(|| settings.clone()).requeue = Some(false);
            protocol::say!(
                "joulepoint: the job does not go on after its walltime: Slurm does not requeue it (--no-requeue, JobRequeue=0)"
            );
        }
    }
}

/// The value of an option that leaves it to the plan.
const AUTO: &str = "auto";

/// Why the nodes of a run that goes on do not recover one by one from now on.
const BEGAN_TOGETHER: &str = "the run began with all nodes going back together, and goes on so";

/// The controller's plan, or the wrapper's own if the controller is away, for a job that ends at `end_s`, and what carries it
/// out. What the plan itself sets is as if the user had set it; where that cannot be, the run is planned without.
pub(crate) fn plan(
    asked: &Asked<'_>,
    runs: &Path,
    controller: &Controller,
    end_s: Option<f64>,
    former: &Former,
) -> Planned {
    if !former.options.is_empty() {
        return again(asked, runs, controller, end_s, former);
    }
    // Groups that the user asks for are no matter of the plan.
    let stays = former.resumes && asked.settings.protocol != Some(options::Protocol::Uncoordinated);
    let plan = ask(asked, controller, end_s, stays.then_some(BEGAN_TOGETHER));
    if plan.options.is_empty() {
        return equip(asked, plan, runs, former.made_by);
    }
    let why = match with(asked.request, &plan.options, &asked.site.defaults) {
        Ok((request, settings)) => {
            let changed = Asked { request: &request, settings: &settings, ..*asked };
            let planned = equip(&changed, plan, runs, former.made_by);
            if planned.chosen == Some(options::Engine::Criu) {
                return Planned { settings: Some(settings.clone()), ..planned };
            }
            planned.prospect.protection.reason
        }
        Err(refusal) => refusal.to_string(),
    };
    equip(asked, ask(asked, controller, end_s, Some(&why)), runs, former.made_by)
}

/// The plan of a run that goes on with the groups that an earlier plan has made. Without a checkpoint it may begin as a whole,
/// with one it waits where they cannot be had.
fn again(asked: &Asked<'_>, runs: &Path, controller: &Controller, end_s: Option<f64>, former: &Former) -> Planned {
    let options = &former.options;
    // What the site sets now must not keep a run from its checkpoints.
    let set = with(asked.request, options, &asked.site.defaults);
    let why = match set.or_else(|_| with(asked.request, options, &BTreeMap::new())) {
        Ok((request, mut settings)) => {
            let nodes = asked.me.nodes.len() as u32;
            // Each group has one node, however many there are now.
            settings.spare = nodes.saturating_sub(settings.groups);
            let changed = Asked { request: &request, settings: &settings, ..*asked };
            let mut plan = ask(&changed, controller, end_s, None);
            plan.options = options.clone();
            let mut planned = equip(&changed, plan, runs, former.made_by);
            let why = match planned.chosen {
                _ if nodes < settings.groups => {
                    format!("{} groups need as many nodes, and there are {nodes}", settings.groups)
                }
                Some(options::Engine::Criu) => String::new(),
                _ => planned.prospect.protection.reason.clone(),
            };
            if why.is_empty() || former.made_by.is_some() {
                let refused = (!why.is_empty()).then(|| format!("the groups of this run cannot go on: {why}"));
                planned.prospect.refused = planned.prospect.refused.or(refused);
                return Planned { settings: Some(settings.clone()), ..planned };
            }
            why
        }
        Err(refusal) => refusal.to_string(),
    };
    equip(asked, ask(asked, controller, end_s, Some(&why)), runs, former.made_by)
}

/// A request with more options, which stand below its own and above a site's defaults, and its settings.
fn with(
    request: &Request,
    more: &BTreeMap<String, String>,
    defaults: &BTreeMap<String, String>,
) -> Result<(Request, Settings), Refusal> {
    let mut request = request.clone();
    // What is left open is said by nobody.
    request.settings.retain(|name, setting| !more.contains_key(name) || setting.value != AUTO);
    for (name, value) in more {
        let setting = || Setting { value: value.clone(), source: Source::Default };
        request.settings.entry(name.clone()).or_insert_with(setting);
    }
    let settings = options::resolve(&request, defaults)?;
    Ok((request, settings))
}

/// Asks for a plan; `together` says why the nodes do not recover one by one unless that was asked for.
fn ask(asked: &Asked<'_>, controller: &Controller, end_s: Option<f64>, together: Option<&str>) -> Plan {
    let Asked { request, settings, site, argv, me } = asked;
    let now_s = mail::now_s();
    let question = PlanRequest {
        request: (*request).clone(),
        nodes: me.nodes.len() as u32,
        cpus_per_node: me.cpus_per_node,
        tasks: me.tasks(),
        user: me.user.clone(),
        job_name: me.job_name.clone(),
        node_names: me.nodes.clone(),
        walltime_s: end_s.map(|end_s| end_s - now_s),
        local_s: Some(mail::local_s(now_s)),
        script: Some(fingerprint(argv)),
        together: together.map(str::to_string),
        ..PlanRequest::default()
    };
    match controller.client.post::<PlanRequest, Plan>("/v1/plan", &question) {
        Ok(plan) => plan,
        Err(e) => {
            tracing::warn!(%e, "the controller is away; the plan is made from the site file");
            planner::plan_without_history(settings, &question, site)
        }
    }
}

/// Chooses the engine that carries a plan out; checkpoints that are there already were made by `made_by`.
fn equip(asked: &Asked<'_>, mut plan: Plan, runs: &Path, made_by: Option<options::Engine>) -> Planned {
    let Asked { settings, site, argv, me, .. } = asked;
    let read = linked::read(argv, &me.folder);
    let mut libraries = linked::libraries_of(&read.words, &me.folder);
    // What its libraries need is their own affair, but for MPI: a program of Fortran names it no other way.
    libraries.extend(linked::all_libraries_of(&read.words, &me.folder).into_iter().filter(|l| kinds::is_mpi(l)));
    let names = |name: &str| read.words.iter().any(|word| word.rsplit('/').next() == Some(name));
    // One that is called by its path is the real one.
    let launchers: Vec<&'static str> =
        LAUNCHERS.into_iter().filter(|name| read.words.iter().any(|word| word == name)).collect();
    // Within one node what launchers start is below the script, and in its sandbox.
    let starts_worlds = plan.protocol != planner::UNCOORDINATED
        && me.nodes.len() > 1
        && !launchers.is_empty()
        && libraries.iter().any(|l| kinds::is_mpi(l));
    let starts_steps = starts_worlds || names("srun");
    // A function of the shell is none that can be waited for, or looked up.
    let sets = read.shell.iter().flat_map(|text| text.split_whitespace()).any(|word| word.starts_with("PATH="));
    let loads = sets || LOADING.iter().any(|name| names(name));
    let looks = |text: &String| ["$!", "command -v", "type -p"].iter().any(|word| text.contains(word));
    let functions = if loads && !read.shell.iter().any(looks) { launchers } else { Vec::new() };
    let launcher = match loads {
        true => Launcher::Later,
        false => Launcher::Path(kinds::paths()),
    };
    // What a script does beside its steps is in no sandbox; each call is looked at by itself.
    let unsuited = match starts_steps {
        true => unsuited::look_beside_steps(argv, &read),
        false => unsuited::look(argv, &read, &libraries, &me.folder, &Me::now()),
    };
    let mut facts = Facts {
        hook: Commands::configured(site).is_some(),
        nodes: me.nodes.len(),
        is_part: is_component(),
        talks: settings.log.is_some(),
        starts_mpi: engines::criu::talks(&read.words, &libraries),
        no_world: ranks::hindrance(&read.words, &me.folder, &launcher, me.nodes.len() > 1).map(|why| why.to_string()),
        fabric: choice::fabric(),
        old_driver: choice::old_driver_here(),
        libraries,
        starts_steps,
        unsuited,
        no_dmtcp: choice::no_dmtcp(),
        proven: plan.engine.clone(),
        made_by,
        ..Facts::default()
    };
    // Trying it takes a moment, so it is tried only where it may be chosen.
    let criu = choice::may_be_criu(settings, &facts).then(|| criu::find(site, me, runs));
    facts.no_veloc = choice::may_be_veloc(settings, &facts).then(|| Setup::of(&read.words, &me.folder).err()).flatten();
    facts.no_criu = criu.as_ref().and_then(|found| found.as_ref().err().cloned());
    let (chosen, why) = choice::choose(settings, &facts);
    plan.engine = chosen.map_or("none", options::Engine::as_str).to_string();
    plan.reasons.push(format!("engine {}: {why}", plan.engine));
    if let Some(why) = facts.unsuited.fails.filter(|_| chosen == Some(options::Engine::Criu)) {
        protocol::say!("joulepoint: under the engine criu a command of the script fails: {why}");
        plan.reasons.push(format!("a command of the script fails: {why}"));
    }
    if let Some(told) = flexible(settings, chosen, &mut plan) {
        protocol::say!("joulepoint: {told}");
    }
    let by_steps = facts.starts_steps && chosen == Some(options::Engine::Criu);
    if by_steps && settings.network == options::Network::Own {
        protocol::say!(
            "joulepoint: --ft-energy-network=own changes nothing for steps: no checkpoint has their connections"
        );
    }
    let requeues = facts.unsuited.requeues && !asked.request.settings.contains_key("ft-energy-resume");
    if requeues && facts.starts_steps && !by_steps {
        protocol::say!(
            "joulepoint: the script requeues its job itself: it runs all its steps in each life (--ft-energy-resume=steps leaves \
             out those that have ended)"
        );
    }
    let mut prospect = Prospect::of(settings, chosen, &why, &me.folder);
    facts.is_part.then(|| prospect.protection.cure = PARTS_CURE.to_string());
    let criu = criu.and_then(Result::ok).map(|command| Criu { command, by_steps, launchers: functions });
    Planned { plan, chosen, settings: None, criu, prospect, requeues }
}

/// What a job hears that may wait for other hours; its plan says so only if it can be asked to leave.
fn flexible(settings: &Settings, chosen: Option<options::Engine>, plan: &mut Plan) -> Option<String> {
    settings.flexible?;
    let can_be_asked = match chosen {
        None | Some(options::Engine::Scr | options::Engine::Veloc) => false,
        Some(options::Engine::App) => settings.signal.is_some(),
        Some(options::Engine::Criu | options::Engine::Dmtcp | options::Engine::Hook) => true,
    };
    let is_reserved = std::env::var_os("SLURM_JOB_RESERVATION").is_some_and(|name| !name.is_empty());
    let why = match (can_be_asked, is_reserved) {
        (false, _) => "the program cannot be asked for a checkpoint",
        (true, true) => "the job is in a reservation, which ends when it ends",
        (true, false) => "",
    };
    if !why.is_empty() {
        plan.flexible_s = None;
        return Some(format!("--ft-energy-flexible has no effect: {why}"));
    }
    let told = plan.flexible_s.map(|s| format!("it may wait for other hours, {} in all at most", options::spoken(s)));
    Some(told.unwrap_or_else(|| planner::NO_TARIFF.to_owned()))
}

/// CRIU of this node, tried and good.
pub(crate) struct Criu {
    pub command: PathBuf,
    /// Whether it dumps the tasks of steps, and not the whole script.
    pub by_steps: bool,
    /// Launchers of MPI that the script names.
    pub launchers: Vec<&'static str>,
}

/// What comes back with a script; an engine that brings the script itself back leaves it nothing to skip, and one that
/// brings back the tasks of steps (`by_steps`) knows them by the script's calls. Of a script that `requeues` itself no step is
/// left out, which may have ended for that.
pub(crate) fn resume(settings: &Settings, engine: Option<options::Engine>, by_steps: bool, requeues: bool) -> Resume {
    match (settings.resume, engine) {
        (Resume::Steps, _) if requeues && !by_steps => Resume::Script,
        (Resume::Script, Some(options::Engine::Criu)) if by_steps => Resume::Steps,
        (resume, Some(options::Engine::Criu)) if by_steps => resume,
        (Resume::Steps, Some(options::Engine::Criu | options::Engine::Dmtcp)) => Resume::Script,
        (resume, _) => resume,
    }
}

/// The engine by which the newest checkpoint of the run was made, as its wrapper said then; none if there is none. Without
/// an engine the files are taken that a program announces, as by the engine `app`.
pub(crate) fn made_by(records: &[Record]) -> Option<options::Engine> {
    let (mut engine, mut made_by) = (None, None);
    for record in records {
        match &record.event {
            Event::Protection(protection) => {
                engine = Some(planner::engine_named(&protection.engine).unwrap_or(options::Engine::App));
            }
            Event::Committed { .. } => made_by = engine,
            Event::InGroup { of, .. } if matches!(**of, Event::Committed { .. }) => made_by = engine,
            _ => {}
        }
    }
    made_by
}
/// Whether this is a component of a heterogeneous job; a job that such a one has submitted inherits its variables.
fn is_component() -> bool {
    let variable = |name| std::env::var(name).ok();
    let leader = variable("SLURM_JOB_ID_HET_GROUP_0");
    variable("SLURM_HET_SIZE").is_some() && (leader.is_none() || leader == variable("SLURM_JOB_ID"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plan_sets_stands_below_what_its_user_has_said_and_above_the_site() {
        let pairs = |all: &[(&str, &str)]| all.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        let set: BTreeMap<String, String> =
            pairs(&[("ft-energy-protocol", "uncoordinated"), ("ft-energy-groups", "2"), ("ft-energy-log", "disk")]);
        let request = |name: &str, value: &str| {
            let setting = Setting { value: value.to_string(), source: Source::Option };
            let on = Setting { value: String::new(), source: Source::Option };
            Request { settings: [("ft-energy".to_string(), on), (name.to_string(), setting)].into() }
        };
        let site = pairs(&[("ft-energy-keep", "5")]);
        let (_, settings) = with(&request("ft-energy-log", "memory"), &set, &site).expect("accepted");
        assert_eq!((settings.groups, settings.log, settings.keep), (2, Some(options::Log::Memory), 5));
        let (_, open) = with(&request("ft-energy-protocol", "auto"), &set, &site).expect("accepted");
        assert_eq!(open.protocol, Some(options::Protocol::Uncoordinated));
        let contradicts = pairs(&[("ft-energy-done", "run.cpt")]);
        assert!(with(&request("ft-energy-spare", "1"), &set, &contradicts).is_err(), "files that all groups share");
        assert!(with(&request("ft-energy-spare", "1"), &set, &BTreeMap::new()).is_ok());
    }
}
