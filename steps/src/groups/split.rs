//! Splits one `srun` call into one call for each group, whose tasks see the ranks and the environment of the whole.

use super::files::{Files, emptied};
use super::words::EXIT_ERROR;
use crate::redirects::{OPEN_MODES, is_append};
use host::shell::quoted;
use std::path::Path;
use worlds::ranks;

/// Long options of srun that take no value of their own word.
const FLAGS: &[&str] = &[
    "bcast",
    "compress",
    "contiguous",
    "disable-status",
    "exact",
    "exclusive",
    "external",
    "ft-energy",
    "ft-energy-explain",
    "help",
    "hold",
    "immediate",
    "interactive",
    "kill-on-bad-exit",
    "label",
    "multi-prog",
    "nice",
    "no-allocate",
    "no-kill",
    "overcommit",
    "overlap",
    "oversubscribe",
    "preserve-env",
    "propagate",
    "pty",
    "quiet",
    "quit-on-interrupt",
    "reboot",
    "resv-ports",
    "send-libs",
    "share",
    "spread-job",
    "stepmgr",
    "test-only",
    "unbuffered",
    "usage",
    "use-min-nodes",
    "verbose",
    "version",
    "wait-all-nodes",
    "x11",
];

/// Short options of srun that take a value.
const SHORT: &str = "AbBcCdDeFgGiJLmMnNopPqrStTwWx";

/// Says how many CPUs the job has on its nodes.
pub const CPUS: &str = "SLURM_JOB_CPUS_PER_NODE";

/// Options whose meaning does not survive a split.
const WHOLE_ONLY: &[&str] =
    &["exclude", "het-group", "jobid", "multi-prog", "nodefile", "nodelist", "pack-group", "pty", "relative"];

/// Long names of the short options that are looked at.
const LONG: [(char, &str); 10] = [
    ('N', "nodes"),
    ('n', "ntasks"),
    ('J', "job-name"),
    ('i', "input"),
    ('o', "output"),
    ('e', "error"),
    ('w', "nodelist"),
    ('x', "exclude"),
    ('F', "nodefile"),
    ('r', "relative"),
];

/// One `srun` call of the script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Options that every group's call gets.
    options: Vec<String>,
    /// The program and its arguments.
    command: Vec<String>,
    /// What its tasks are to see as the job's name.
    name: Option<String>,
    /// The fewest nodes and the most.
    nodes: Option<(usize, usize)>,
    tasks: Option<usize>,
    per_node: Option<usize>,
    /// Nodes of each group, when all are there.
    sizes: Vec<usize>,
    /// The groups as tasks are dealt out to them.
    order: Vec<usize>,
    files: Files,
    /// Whether it keeps what its output files have, if it says so.
    appends: Option<bool>,
    /// Its tasks are one MPI program, and it does not say what becomes of it when one of them is lost.
    falls_together: bool,
    /// It says that itself.
    says_what_falls: bool,
    /// It says how long the other tasks have when one has ended.
    says_wait: bool,
    /// Its tasks are one MPI program.
    is_mpi: bool,
    /// CPUs of each task, if it says it.
    cpus_per_task: Option<usize>,
    /// CPUs that each node has at least, as far as that is known.
    cpus: Option<usize>,
    /// Each share is one task, which starts the others.
    is_gathered: bool,
}

/// Why a call is not split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsplit {
    /// It starts no program: `srun` answers by itself.
    Answer,
    /// It only makes sense as a whole, and why.
    Whole(String),
    /// `srun` refuses it, and its words.
    Refused(String),
}

impl From<String> for Unsplit {
    fn from(why: String) -> Unsplit {
        Unsplit::Whole(why)
    }
}

/// The share of one group in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Arguments of srun.
    pub args: Vec<String>,
    /// Name of the step, by which it is found again.
    pub step: String,
    /// The nodes of its tasks: a group may have more.
    pub nodes: Vec<String>,
}

/// A long name of an option, and its value if it has one.
pub type Named = (String, Option<String>);

/// One option as it was written: its long name, and how many words it takes.
pub(crate) struct Written {
    pub(crate) name: String,
    pub(crate) value: Option<String>,
    pub(crate) words: usize,
}

impl Call {
    /// Reads the arguments of an `srun` for groups of so many nodes; `variable` is its environment.
    ///
    /// # Errors
    /// The call is not to be split.
    pub fn read(args: &[String], sizes: &[usize], variable: impl Fn(&str) -> Option<String>) -> Result<Call, Unsplit> {
        let order = (0..sizes.len()).collect();
        let mut call = Call { sizes: sizes.to_vec(), order, ..Call::default() };
        call.says_what_falls = variable("SLURM_KILL_BAD_EXIT").is_some();
        call.says_wait = variable("SLURM_WAIT").is_some();
        let (mut at, mut overcommits) = (0, variable("SLURM_OVERCOMMIT").is_some());
        while let Some(written) = option(&args[at..])? {
            let words = &args[at..at + written.words];
            at += written.words;
            let number = |text: &str| text.parse().map_err(|_| format!("{} is no number", words.join(" ")));
            let value = written.value.as_deref().unwrap_or("");
            match written.name.as_str() {
                "--" => break,
                "nodes" => {
                    let (least, most) = value.split_once('-').unwrap_or((value, value));
                    call.nodes = Some((number(least)?, number(most)?));
                }
                "ntasks" => call.tasks = Some(number(value)?),
                "job-name" => call.name = written.value,
                "open-mode" => call.appends = Some(is_append(value)),
                name if WHOLE_ONLY.contains(&name) => return Err(format!("it uses --{name}").into()),
                name if call.files.takes(name, written.value.as_ref()) => {}
                name => {
                    if name == "ntasks-per-node" {
                        call.per_node = Some(number(value)?);
                    }
                    if matches!(name, "c" | "cpus-per-task") {
                        call.cpus_per_task = Some(number(value)?);
                    }
                    overcommits |= name == "overcommit" || name.contains('O');
                    call.says_wait |= name == "wait" || name.starts_with('W');
                    call.says_what_falls |= name == "kill-on-bad-exit" || name.starts_with('K');
                    call.options.extend_from_slice(words);
                }
            }
        }
        call.command = args[at..].to_vec();
        if call.command.is_empty() {
            return Err(Unsplit::Answer);
        }
        call.is_mpi = is_mpi(args, &variable);
        call.falls_together = call.is_mpi && !call.says_what_falls;
        let number = |name: &str| variable(name).and_then(|v| v.parse().ok());
        call.per_node = call.per_node.or_else(|| number("SLURM_NTASKS_PER_NODE"));
        if call.per_node.is_none() {
            call.tasks = call.tasks.or_else(|| number("SLURM_NTASKS"));
        }
        call.files.complete(&variable);
        let mode = || OPEN_MODES.iter().find_map(|name| variable(name));
        call.appends = call.appends.or_else(|| mode().map(|mode| is_append(&mode)));
        call.name = call.name.or_else(|| variable("SLURM_JOB_NAME"));
        let all: usize = sizes.iter().sum();
        let least = call.nodes.map_or(1, |(least, _)| least).min(call.tasks.unwrap_or(usize::MAX));
        if least > all {
            return Err(Unsplit::Refused(format!("Only allocated {all} nodes asked for {least}")));
        }
        // A group's ranks may be on the node that has fewest.
        call.cpus = variable(CPUS).and_then(|list| least_of(&list));
        let most = variable(CPUS).and_then(|list| most_cpus(&list));
        let (cpus, cpus_per_task) = (most.map(|cpus| cpus * all), call.cpus_per_task.unwrap_or(1));
        let tasks: usize = call.tasks().iter().flatten().sum();
        if !overcommits && cpus.is_some_and(|cpus| tasks.saturating_mul(cpus_per_task) > cpus) {
            let job = variable("SLURM_JOB_ID").unwrap_or_default();
            let why = "More processors requested than permitted";
            return Err(Unsplit::Refused(format!("Unable to create step for job {job}: {why}")));
        }
        Ok(call)
    }

    /// Tasks on each node, group by group: as even as they can be among the nodes of a group, and among groups by their
    /// nodes. A group without a task has no share.
    fn tasks(&self) -> Vec<Vec<usize>> {
        let all: usize = self.sizes.iter().sum();
        let nodes = self.nodes.map_or(all, |(_, most)| most).clamp(1, all.max(1));
        let tasks = self.tasks.unwrap_or_else(|| self.per_node.unwrap_or(1) * nodes);
        let mut before = 0;
        let mut of_group = |size: usize| {
            let until = nodes.min(before + size);
            let (size, tasks) = (until - before, (tasks * until).div_ceil(nodes) - (tasks * before).div_ceil(nodes));
            before = until;
            (0..size.min(tasks)).map(|node| tasks / size + usize::from(node < tasks % size)).collect()
        };
        let mut shares = vec![Vec::new(); self.sizes.len()];
        self.order.iter().for_each(|group| shares[*group] = of_group(self.sizes[*group]));
        shares
    }

    /// Has a call that does not need all groups go to those that come first by this key.
    pub fn prefer<K: Ord>(&mut self, key: impl FnMut(&usize) -> K) {
        if self.may_choose() {
            self.order.sort_by_key(key);
        }
    }

    /// Whether it does not need all groups.
    pub fn may_choose(&self) -> bool {
        self.groups().len() < self.sizes.len()
    }

    /// The groups that have a share.
    pub fn groups(&self) -> Vec<usize> {
        self.tasks().iter().enumerate().filter(|(_, tasks)| !tasks.is_empty()).map(|(g, _)| g).collect()
    }

    /// Whether the share of `group` is one task.
    pub fn is_single(&self, group: usize) -> bool {
        self.tasks()[group] == [1]
    }

    /// How much a group has to do by it, in thousandths of a task on each of its nodes.
    pub fn load_of(&self, group: usize) -> usize {
        1000 * self.tasks_of(group) / self.sizes[group].max(1)
    }

    /// Number of tasks in the share of `group`.
    pub fn tasks_of(&self, group: usize) -> usize {
        self.tasks()[group].iter().sum()
    }

    /// Whether `srun` itself may cancel the step, because a task ended badly or early: accounting shows that as a person's
    /// wish.
    pub fn may_cancel_itself(&self) -> bool {
        self.falls_together || self.says_what_falls || self.says_wait
    }

    /// Whether its tasks are one MPI program, as far as it says so.
    pub fn is_mpi(&self) -> bool {
        self.is_mpi
    }

    /// Has the share of each group be one task, which starts the ranks of the group by itself.
    ///
    /// # Errors
    /// A sentence: that is not possible.
    pub fn gather(&mut self) -> Result<(), String> {
        if self.sizes.iter().any(|size| *size != 1) {
            let cure = "ask for as many groups as nodes, but for the spares";
            return Err(format!("an MPI program is checkpointed node by node, and its groups have several; {cure}"));
        }
        if self.groups().len() > 1 && self.may_choose() {
            return Err(
                "an MPI program is one world over all groups, or within one, and it needs some of them".to_string()
            );
        }
        self.options = gathered(&self.options)?;
        (self.is_gathered, self.falls_together) = (true, false);
        Ok(())
    }

    /// CPUs of each task, if the call says it.
    pub fn cpus_per_task(&self) -> Option<usize> {
        self.cpus_per_task
    }

    /// The ranks of each group among those of all, as the library for MPI reads it; none if one group has all.
    pub fn world(&self) -> Option<String> {
        let counts: Vec<usize> = (0..self.sizes.len()).map(|group| self.tasks_of(group)).collect();
        (self.groups().len() > 1).then(|| ranks::world_of(&counts))
    }

    /// Whether it keeps what its output files have, if it says so.
    pub fn appends(&self) -> Option<bool> {
        self.appends
    }

    /// A line of the shell that empties the files which all groups write to.
    pub fn emptied(&self, number: u64) -> String {
        emptied(&self.files.shared(number))
    }

    /// The share of `group`, when the groups are on these nodes; `number` tells this call from others of the script,
    /// and the words `within` go before the program's. With `empties` each task empties the files of its own first.
    pub fn share(&self, number: u64, group: usize, places: &[Vec<String>], within: &[String], empties: bool) -> Share {
        let tasks = self.tasks();
        let program = self.command.first().map(String::as_str).unwrap_or_default();
        let program = Path::new(program).file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let step = format!("{program}.{number}.g{group}");
        let mine = &places[group][..tasks[group].len()];
        let count = tasks[group].iter().sum::<usize>();
        let of = |groups: &[Vec<usize>]| groups.iter().flatten().sum::<usize>();
        let ranks = of(&tasks[..group])..of(&tasks[..=group]);
        let (files, redirections, written) = self.files.share(number, &ranks, of(&tasks));
        let first = if empties { emptied(&written) } else { String::new() };
        let mut args = self.options.clone();
        args.extend(files);
        if self.files.are_written() {
            args.push("--open-mode=append".to_string());
        }
        if self.falls_together {
            // Else the others would wait in MPI for a task that was killed.
            args.push("--kill-on-bad-exit".to_string());
        }
        args.extend([
            format!("--job-name={step}"),
            format!("--nodes={}", mine.len()),
            format!("--ntasks={}", if self.is_gathered { 1 } else { count }),
            format!("--nodelist={}", mine.join(",")),
        ]);
        if self.is_gathered {
            // What it starts has the CPUs of all; the launcher within is none of Slurm's.
            let cpus = (count * self.cpus_per_task.unwrap_or(1)).min(self.cpus.unwrap_or(usize::MAX));
            args.extend([format!("--cpus-per-task={cpus}"), "--mpi=none".to_string()]);
        }
        let line = format!("{}; {first}exec \"$@\"{redirections}", self.whole(group, &tasks, places));
        args.extend(["sh", "-c", &line, "sh"].map(str::to_string));
        args.extend(within.iter().chain(&self.command).cloned());
        Share { args, step, nodes: mine.to_vec() }
    }

    /// A shell line that gives a task the ranks and the environment of the whole.
    ///
    /// What MPI reads (`PMI_*`, `PMIX_*`, `OMPI_*`) stays the group's: a program's own MPI ends at its group.
    fn whole(&self, group: usize, tasks: &[Vec<usize>], places: &[Vec<String>]) -> String {
        let before = |f: fn(&Vec<usize>) -> usize| tasks[..group].iter().map(f).sum::<usize>();
        let (rank, node) = (before(|t| t.iter().sum()), before(Vec::len));
        // A group that lacks a node is seen without it.
        let used = places.iter().zip(tasks).flat_map(|(nodes, tasks)| nodes.iter().take(tasks.len()));
        let list = used.map(String::as_str).collect::<Vec<_>>().join(",");
        let count: usize = tasks.iter().map(Vec::len).sum();
        let ntasks: usize = tasks.iter().flatten().sum();
        let each: Vec<String> = tasks.iter().flatten().map(usize::to_string).collect();
        let each = each.join(",");
        let name = self.name.as_ref().map(|name| format!("SLURM_JOB_NAME={} ", quoted(name)));
        format!(
            "unset {EXIT_ERROR}; export {}SLURM_GTIDS=$(IFS=,; for t in $SLURM_GTIDS; do printf \"$c%d\" $((t+{rank})); c=,; done) \
             SLURM_PROCID=$((SLURM_PROCID+{rank})) SLURM_NODEID=$((SLURM_NODEID+{node})) \
             SLURM_NTASKS={ntasks} SLURM_NPROCS={ntasks} SLURM_STEP_NUM_TASKS={ntasks} \
             SLURM_NNODES={count} SLURM_JOB_NUM_NODES={count} SLURM_STEP_NUM_NODES={count} \
             SLURM_NODELIST={list} SLURM_JOB_NODELIST={list} SLURM_STEP_NODELIST={list} \
             SLURM_TASKS_PER_NODE={each} SLURM_STEP_TASKS_PER_NODE={each}",
            name.unwrap_or_default()
        )
    }
}

/// Options that say how tasks are laid out on CPUs, or end together: a share of one task has none to lay out.
const OF_TASKS: [&str; 13] = [
    "mpi",
    "c",
    "cpus-per-task",
    "ntasks-per-node",
    "ntasks-per-core",
    "ntasks-per-socket",
    "cpu-bind",
    "m",
    "distribution",
    "K",
    "kill-on-bad-exit",
    "W",
    "wait",
];

/// The options of a share of one task that starts the others.
pub(crate) fn gathered(options: &[String]) -> Result<Vec<String>, String> {
    let (mut kept, mut at) = (Vec::new(), 0);
    while let Some(written) = option(&options[at..])? {
        let words = &options[at..at + written.words];
        at += written.words;
        let is_of_tasks = OF_TASKS.contains(&written.name.as_str()) || written.name.starts_with('K');
        kept.extend(words.iter().filter(|_| !is_of_tasks).cloned());
    }
    Ok(kept)
}

/// The options of an `srun` with their values, and where the program's name stands.
///
/// # Errors
/// A sentence: they are not understood, or there is no program.
pub fn options(args: &[String]) -> Result<(Vec<Named>, usize), String> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(written) = option(&args[at..])? {
        at += written.words;
        if written.name == "--" {
            break;
        }
        found.push((written.name, written.value));
    }
    if at < args.len() { Ok((found, at)) } else { Err("it names no program".to_string()) }
}

/// Whether an `srun` with these words names no program: it answers (`--version`), or refuses them.
pub fn only_answers(args: &[String]) -> bool {
    let mut rest = args;
    while let Ok(Some(written)) = option(rest) {
        rest = &rest[written.words..];
        if written.name == "--" {
            break;
        }
    }
    rest.is_empty()
}

/// How many CPUs a node of a list such as `2(x3),4` has at most.
fn most_cpus(list: &str) -> Option<usize> {
    cpus(list)?.into_iter().max()
}

/// The least number in such a list.
pub fn least_of(list: &str) -> Option<usize> {
    cpus(list)?.into_iter().min()
}

fn cpus(list: &str) -> Option<Vec<usize>> {
    list.split(',').map(|part| part.split('(').next().unwrap_or_default().parse().ok()).collect()
}

/// Whether the tasks of an `srun` with these words are one MPI program, as far as the call says it; `variable` is its
/// environment.
pub fn is_mpi(args: &[String], variable: impl Fn(&str) -> Option<String>) -> bool {
    // Words that only srun itself understands: the option has no short form.
    let Ok((named, _)) = options(args) else { return args.iter().any(|word| word.starts_with("--mpi")) };
    let written = named.into_iter().rev().find(|(name, _)| name == "mpi");
    let mpi = written.map_or_else(|| variable("SLURM_MPI_TYPE"), |(_, value)| value);
    mpi.is_some_and(|mpi| mpi != "none")
}

/// The next option of srun, or none where the program's name begins.
pub(crate) fn option(args: &[String]) -> Result<Option<Written>, String> {
    let Some(word) = args.first() else { return Ok(None) };
    let next = || args.get(1).cloned().ok_or(format!("{word} has no value"));
    if word == "--" {
        return Ok(Some(Written { name: word.clone(), value: None, words: 1 }));
    }
    if let Some(long) = word.strip_prefix("--") {
        if let Some((name, value)) = long.split_once('=') {
            return Ok(Some(Written { name: name.to_string(), value: Some(value.to_string()), words: 1 }));
        }
        let name = long.to_string();
        return Ok(Some(match FLAGS.contains(&long) {
            true => Written { name, value: None, words: 1 },
            false => Written { name, value: Some(next()?), words: 2 },
        }));
    }
    let Some(letters) = word.strip_prefix('-').filter(|l| !l.is_empty()) else { return Ok(None) };
    let Some((at, letter)) = letters.char_indices().find(|(_, c)| SHORT.contains(*c)) else {
        return Ok(Some(Written { name: letters.to_string(), value: None, words: 1 }));
    };
    if at > 0 {
        return Err(format!("{word} joins several options; write them apart"));
    }
    let name = LONG.iter().find(|(c, _)| *c == letter).map_or_else(|| letter.to_string(), |(_, n)| (*n).to_string());
    Ok(Some(match &letters[1..] {
        "" => Written { name, value: Some(next()?), words: 2 },
        joined => Written { name, value: Some(joined.to_string()), words: 1 },
    }))
}

#[cfg(test)]
mod tests;
