//! What a request means: typed values after defaults, combinations checked, later capabilities refused.

use crate::wrong::Wrong;
use crate::{REQUIRE, Refusal, Signal, check_at, env_twin, find, forms};
use protocol::{Request, Source};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What is to be made least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Energy of the whole run.
    Energy,
    /// Runtime.
    Time,
}

/// Fault-tolerance protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// All of the run goes back to one recovery line.
    Coordinated,
    /// Each group checkpoints alone, and goes back alone.
    Uncoordinated,
}

/// Where messages between groups are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// In the memory of the sender's relay.
    Memory,
    /// In the run's folder.
    Disk,
}

impl Log {
    /// The word for it, as `joulepoint-relay` takes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Log::Memory => "memory",
            Log::Disk => "disk",
        }
    }
}

/// Checkpoint engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The program's own checkpoints.
    App,
    /// Commands of the site or the user.
    Hook,
    /// Images of all processes, by CRIU.
    Criu,
    /// SCR, in the program.
    Scr,
    /// Images of all processes, by DMTCP.
    Dmtcp,
    /// VELOC, in the program.
    Veloc,
}

impl Engine {
    /// All engines.
    pub const ALL: [Engine; 6] = [Engine::App, Engine::Hook, Engine::Criu, Engine::Scr, Engine::Dmtcp, Engine::Veloc];

    /// The name, as in `--ft-energy-engine`.
    pub fn as_str(self) -> &'static str {
        match self {
            Engine::App => "app",
            Engine::Hook => "hook",
            Engine::Criu => "criu",
            Engine::Scr => "scr",
            Engine::Dmtcp => "dmtcp",
            Engine::Veloc => "veloc",
        }
    }
}

/// Whose network the sandbox of an engine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Its own if the script calls a launcher of MPI, else the node's.
    #[default]
    Auto,
    /// The node's: connections cannot be dumped.
    Host,
    /// Its own, which leads nowhere else: connections within the job can be dumped.
    Own,
}

/// What comes back when a run's script is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// The checkpoint, and the place in the script: steps that had ended are not run again.
    #[default]
    Steps,
    /// The checkpoint; all steps are run again.
    Script,
    /// Nothing.
    None,
}

/// Promises beside the objective, as fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// Runtime above the time-optimal one.
    pub runtime: Option<f64>,
    /// Share of time in checkpoints.
    pub io: Option<f64>,
    /// Energy above the least.
    pub energy: Option<f64>,
}

/// What a request means.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Objective; absent if the job is not to be protected.
    pub objective: Option<Objective>,
    /// Bounds.
    pub bounds: Bounds,
    /// Protocol; absent for `auto`.
    pub protocol: Option<Protocol>,
    /// Engine; absent for `auto`.
    pub engine: Option<Engine>,
    /// Fixed interval; absent for `auto`.
    pub interval: Option<Duration>,
    /// Work that a failure may cost at most.
    pub max_loss: Option<Duration>,
    /// Whether the job is to end rather than run without checkpoints.
    pub require: bool,
    /// Name of the estimator; `auto` if not chosen.
    pub policy: String,
    /// Recovery groups; 1 unless the protocol is uncoordinated.
    pub groups: u32,
    /// Where messages between groups are logged; absent if the groups send none.
    pub log: Option<Log>,
    /// Whether nodes that wait for another group are lent.
    pub lend: bool,
    /// Spare nodes within the allocation.
    pub spare: u32,
    /// Signal on which the program writes a checkpoint.
    pub signal: Option<Signal>,
    /// Patterns of the files that make up a checkpoint.
    pub done: Vec<String>,
    /// Folder for runs.
    pub dir: Option<PathBuf>,
    /// Complete checkpoints kept.
    pub keep: u32,
    /// Whether the job is requeued after its last checkpoint when the walltime ends; absent for the site's habit.
    pub requeue: Option<bool>,
    /// How long the job may wait in all for hours of less price or carbon; absent for not at all.
    pub flexible: Option<Duration>,
    /// What comes back when the script is started again.
    pub resume: Resume,
    /// Whose network a sandbox has.
    pub network: Network,
    /// Volume of a checkpoint, bytes.
    pub memory_bytes: Option<u64>,
    /// Messages and their volume in bytes.
    pub messages: Option<(u64, u64)>,
    /// Where each value came from, for the log.
    pub sources: BTreeMap<String, Source>,
}

impl Settings {
    /// The patterns of a group's checkpoint files; a run without groups is group 0.
    pub fn done_of(&self, group: usize) -> Vec<String> {
        self.done.iter().map(|pattern| pattern.replace("{group}", &group.to_string())).collect()
    }

    /// Whether the job's user gave this option, and not the site.
    pub fn is_by_user(&self, name: &str) -> bool {
        matches!(self.sources.get(name), Some(Source::Option | Source::Environment))
    }

    /// Whether a job is rather not to run than to run without what it asks for: its user says so, or names the engine. One
    /// that the site names is its default only.
    pub fn is_required(&self) -> bool {
        self.require || self.engine.is_some() && self.is_by_user("ft-energy-engine")
    }

    /// Whether a job can be asked for a checkpoint at any moment, by what it says itself, and lets itself be requeued.
    pub fn can_be_preempted(&self) -> bool {
        let on_demand = match self.engine {
            None | Some(Engine::App) => self.signal.is_some(),
            Some(Engine::Scr | Engine::Veloc) => false,
            Some(Engine::Criu | Engine::Dmtcp | Engine::Hook) => true,
        };
        self.objective.is_some() && self.requeue != Some(false) && on_demand
    }
}

/// Merges site defaults below a request and says what both mean together.
///
/// `defaults` maps option names to values of the site; a wrong one there is refused like a user's.
///
/// # Errors
/// A [`Refusal`] for a wrong value, a combination without meaning, or a capability that is not there yet.
pub fn resolve(request: &Request, defaults: &BTreeMap<String, String>) -> Result<Settings, Refusal> {
    let merged = Merged { request, defaults };
    for name in request.settings.keys().chain(defaults.keys()) {
        let Some(spec) = find(name) else {
            return Err(refusal(&merged, name, "is not an option of Joulepoint", ""));
        };
        check_at(spec, &merged.place(name), merged.get(name).unwrap_or(""))?;
    }
    let objective = match merged.get("ft-energy") {
        None | Some("off") => None,
        Some("time") => Some(Objective::Time),
        Some(_) => Some(Objective::Energy),
    };
    if objective.is_none()
        && let Some(name) = merged.written_by_user().find(|n| *n != "ft-energy")
        && merged.get("ft-energy").is_none()
    {
        return Err(refusal(&merged, name, "has no effect without --ft-energy", "add --ft-energy"));
    }
    let settings = Settings {
        objective,
        bounds: Bounds {
            runtime: merged.parsed("ft-energy-runtime-bound", forms::parse_percent),
            io: merged.parsed("ft-energy-io-bound", forms::parse_percent),
            energy: merged.parsed("ft-energy-energy-bound", forms::parse_percent),
        },
        protocol: match merged.get("ft-energy-protocol") {
            Some("coordinated") => Some(Protocol::Coordinated),
            Some("uncoordinated") => Some(Protocol::Uncoordinated),
            _ => None,
        },
        engine: Engine::ALL.into_iter().find(|e| merged.get("ft-energy-engine") == Some(e.as_str())),
        interval: merged.parsed("ft-energy-interval", forms::parse_time),
        max_loss: merged.parsed("ft-energy-max-loss", forms::parse_time),
        require: merged.get(REQUIRE).is_some(),
        policy: merged.get("ft-energy-policy").unwrap_or("auto").to_string(),
        groups: merged.parsed("ft-energy-groups", forms::parse_count).unwrap_or(1),
        log: match merged.get("ft-energy-log") {
            Some("disk") => Some(Log::Disk),
            Some(_) => Some(Log::Memory),
            None => None,
        },
        lend: merged.get("ft-energy-lend") == Some("yes"),
        spare: merged.parsed("ft-energy-spare", forms::parse_count).unwrap_or(0),
        signal: merged.parsed("ft-energy-signal", forms::parse_signal),
        done: merged
            .get("ft-energy-done")
            .map(|t| t.split(',').map(|p| p.trim().to_string()).collect())
            .unwrap_or_default(),
        dir: merged.get("ft-energy-dir").map(PathBuf::from),
        keep: merged.parsed("ft-energy-keep", forms::parse_count).unwrap_or(2),
        requeue: merged.get("ft-energy-requeue").map(|v| v == "yes"),
        flexible: merged.parsed("ft-energy-flexible", forms::parse_hours),
        network: match merged.get("ft-energy-network") {
            Some("host") => Network::Host,
            Some("own") => Network::Own,
            _ => Network::Auto,
        },
        resume: match merged.get("ft-energy-resume") {
            Some("script") => Resume::Script,
            Some("none") => Resume::None,
            _ => Resume::Steps,
        },
        memory_bytes: merged.parsed("ft-energy-memory", forms::parse_size),
        messages: merged.parsed("ft-energy-messages", forms::parse_messages),
        sources: merged.sources(),
    };
    if settings.objective.is_some() {
        refuse_later_capabilities(&merged)?;
        refuse_contradictions(&merged, &settings)?;
    }
    Ok(Settings { interval: settings.interval.filter(|_| !is_overruled(&merged)), ..settings })
}

/// Whether the site's interval gives way to what its user lets a failure cost.
fn is_overruled(merged: &Merged) -> bool {
    merged.source("ft-energy-interval") == Source::Site
        && matches!(merged.source("ft-energy-max-loss"), Source::Option | Source::Environment)
}

/// A request with the site's defaults below it.
struct Merged<'a> {
    request: &'a Request,
    defaults: &'a BTreeMap<String, String>,
}

impl Merged<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let written = self.request.settings.get(name).map(|s| s.value.as_str());
        written.or_else(|| self.defaults.get(name).map(String::as_str))
    }

    fn parsed<T>(&self, name: &str, parse: impl Fn(&str) -> Result<T, Wrong>) -> Option<T> {
        self.get(name).and_then(|text| parse(text).ok())
    }

    fn written_by_user(&self) -> impl Iterator<Item = &str> {
        let by_user = |s: &Source| matches!(s, Source::Option);
        self.request.settings.iter().filter(move |(_, s)| by_user(&s.source)).map(|(n, _)| n.as_str())
    }

    fn source(&self, name: &str) -> Source {
        match self.request.settings.get(name) {
            Some(setting) => setting.source,
            None if self.defaults.contains_key(name) => Source::Site,
            None => Source::Default,
        }
    }

    fn sources(&self) -> BTreeMap<String, Source> {
        crate::OPTIONS.iter().map(|s| (s.name.to_string(), self.source(s.name))).collect()
    }

    fn place(&self, name: &str) -> String {
        match self.source(name) {
            Source::Environment => env_twin(name),
            Source::Site => format!("site default {name}"),
            Source::Option | Source::Default => format!("--{name}"),
        }
    }
}

fn refusal(merged: &Merged, name: &str, reason: &str, accepted: &str) -> Refusal {
    Refusal {
        place: merged.place(name),
        value: crate::printable(merged.get(name).unwrap_or("")),
        reason: reason.to_string(),
        accepted: accepted.to_string(),
    }
}

/// Options whose capability is not there yet, and the one sentence that says so.
fn refuse_later_capabilities(merged: &Merged) -> Result<(), Refusal> {
    let later = |name: &str, what: &str, instead: &str| {
        refusal(merged, name, &format!("is not available in this version: {what}"), instead)
    };
    if merged.get("ft-energy-protocol") == Some("shadow") {
        let why = "shadow replicas are only estimated (joulepoint model shadow), not enacted";
        return Err(later("ft-energy-protocol", why, "auto, coordinated, uncoordinated"));
    }
    if merged.get("ft-energy-laxity").is_some() {
        return Err(later("ft-energy-laxity", "shadow replicas are not enacted yet", "leave it out"));
    }
    Ok(())
}

fn refuse_contradictions(merged: &Merged, settings: &Settings) -> Result<(), Refusal> {
    if settings.bounds.energy.is_some() && settings.objective == Some(Objective::Energy) {
        return Err(refusal(
            merged,
            "ft-energy-energy-bound",
            "bounds the energy of a run whose objective is energy already",
            "use it with --ft-energy=time",
        ));
    }
    let by_user = |name: &str| matches!(merged.source(name), Source::Option | Source::Environment);
    if let (Some(interval), Some(max_loss)) = (settings.interval, settings.max_loss)
        && interval >= max_loss
        && by_user("ft-energy-interval")
        && by_user("ft-energy-max-loss")
    {
        let reason = "is not longer than --ft-energy-interval, so that a failure could cost more";
        return Err(refusal(merged, "ft-energy-max-loss", reason, "a longer time, or no interval"));
    }
    refuse_half_of_groups(merged, settings)?;
    refuse_lending(merged, settings)?;
    if let Some(engine) = settings.engine.filter(|e| *e != Engine::App && settings.signal.is_some()) {
        return Err(refusal(
            merged,
            "ft-energy-signal",
            &format!("is for the engine app, but the engine is {}", engine.as_str()),
            "--ft-energy-engine=app",
        ));
    }
    let cannot_be_asked = match settings.engine {
        Some(Engine::App) => settings.signal.is_none(),
        engine => matches!(engine, Some(Engine::Scr | Engine::Veloc)),
    };
    if settings.flexible.is_some() && cannot_be_asked && by_user("ft-energy-flexible") {
        let reason = "needs a program that can be asked for a checkpoint at any moment";
        let cure = "--ft-energy-engine=criu, dmtcp or hook, or --ft-energy-signal=SIG";
        return Err(refusal(merged, "ft-energy-flexible", reason, cure));
    }
    Ok(())
}

/// Only groups that wait for each other have nodes to lend, and their logs must be served meanwhile.
fn refuse_lending(merged: &Merged, settings: &Settings) -> Result<(), Refusal> {
    if !settings.lend || settings.log == Some(Log::Disk) {
        return Ok(());
    }
    let reason = "lends the nodes of groups that wait for another, whose messages must be logged on disk";
    let cure = "--ft-energy-protocol=uncoordinated --ft-energy-log=disk";
    Err(refusal(merged, "ft-energy-lend", reason, cure))
}

/// Groups, their protocol, their files and their log make sense only together.
fn refuse_half_of_groups(merged: &Merged, settings: &Settings) -> Result<(), Refusal> {
    let several = settings.groups > 1;
    if settings.protocol == Some(Protocol::Uncoordinated) {
        if !several {
            let cure = "--ft-energy-groups=N with N above 1";
            return Err(refusal(merged, "ft-energy-protocol", "does not say how many groups recover alone", cure));
        }
        if let Some(engine @ (Engine::Scr | Engine::Dmtcp | Engine::Veloc)) = settings.engine {
            let reason = format!("is {}, which does not checkpoint groups one by one", engine.as_str());
            return Err(refusal(merged, "ft-energy-engine", &reason, "app, hook, criu"));
        }
        if settings.resume != Resume::default() {
            return Err(refusal(merged, "ft-energy-resume", "is for jobs without groups", "leave it out"));
        }
        // Files that belong to all groups would be brought back for one and overwrite the others'.
        if let Some(pattern) = settings.done.iter().find(|p| !p.contains("{group}")) {
            let reason = format!("has the pattern '{pattern}', which does not tell the groups' files apart");
            return Err(refusal(merged, "ft-energy-done", &reason, "patterns with {group}, such as 'run.{group}.cpt'"));
        }
        return Ok(());
    }
    for (name, set) in [("ft-energy-groups", several), ("ft-energy-log", settings.log.is_some())] {
        if set {
            return Err(refusal(merged, name, "needs groups that recover alone", "--ft-energy-protocol=uncoordinated"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Setting;

    fn request(pairs: &[(&str, &str)]) -> Request {
        let setting = |v: &str| Setting { value: v.to_string(), source: Source::Option };
        Request { settings: pairs.iter().map(|(n, v)| (n.to_string(), setting(v))).collect() }
    }

    #[test]
    fn the_user_wins_over_the_site() {
        let site = BTreeMap::from([("ft-energy-keep".to_string(), "5".to_string())]);
        let s = resolve(&request(&[("ft-energy", "")]), &site).unwrap();
        assert_eq!((s.keep, s.sources["ft-energy-keep"]), (5, Source::Site));
        let s = resolve(&request(&[("ft-energy", "time"), ("ft-energy-keep", "3")]), &site).unwrap();
        assert_eq!((s.keep, s.sources["ft-energy-keep"]), (3, Source::Option));
        assert_eq!(s.objective, Some(Objective::Time));
    }

    #[test]
    fn capabilities_of_later_versions_are_refused_by_name() {
        for (name, value) in [("ft-energy-protocol", "shadow"), ("ft-energy-laxity", "1.5")] {
            let refused = resolve(&request(&[("ft-energy", ""), (name, value)]), &BTreeMap::new());
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("not available in this version"), "{text}");
        }
    }

    #[test]
    fn an_option_alone_is_refused_but_off_silences_all() {
        let alone = resolve(&request(&[("ft-energy-keep", "3")]), &BTreeMap::new()).unwrap_err();
        assert!(alone.to_string().contains("no effect without --ft-energy"));
        let off = resolve(&request(&[("ft-energy", "off"), ("ft-energy-engine", "criu")]), &BTreeMap::new());
        assert_eq!(off.unwrap().objective, None);
    }

    #[test]
    fn groups_are_accepted_whole_and_refused_by_half() {
        let protocol = ("ft-energy-protocol", "uncoordinated");
        let groups = ("ft-energy-groups", "3");
        let ask = |pairs: &[(&str, &str)]| {
            resolve(&request(&[&[("ft-energy", "")], pairs].concat()), &BTreeMap::new()).map_err(|r| r.to_string())
        };
        let whole = ask(&[protocol, groups, ("ft-energy-done", "a.{group}"), ("ft-energy-log", "disk")]).unwrap();
        assert_eq!((whole.groups, whole.log), (3, Some(Log::Disk)));
        assert_eq!(whole.done_of(2), ["a.2"]);
        assert!(ask(&[protocol, groups, ("ft-energy-engine", "criu")]).is_ok());
        let lend = ("ft-energy-lend", "yes");
        assert!(!whole.lend && ask(&[protocol, groups, ("ft-energy-log", "disk"), lend]).unwrap().lend);
        for (half, word) in [
            (vec![lend], "logged on disk"),
            (vec![protocol, groups, ("ft-energy-log", "memory"), lend], "logged on disk"),
            (vec![protocol], "how many groups"),
            (vec![groups], "uncoordinated"),
            (vec![("ft-energy-log", "memory")], "uncoordinated"),
            (vec![protocol, groups, ("ft-energy-done", "a.{group},b")], "the pattern 'b'"),
            (vec![protocol, groups, ("ft-energy-engine", "scr")], "app, hook, criu"),
        ] {
            let said = ask(&half).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn a_bound_on_energy_needs_the_objective_time() {
        let wrong = request(&[("ft-energy", "energy"), ("ft-energy-energy-bound", "5%")]);
        assert!(resolve(&wrong, &BTreeMap::new()).is_err());
    }
}
