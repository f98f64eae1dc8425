//! A call of `srun` whose tasks are one MPI program, as one step with one task on each node: a sandbox, in which the program's
//! own launcher starts the ranks of the node, with a relay beside it if other nodes have ranks, too.

use crate::groups::split::{self, Call, Unsplit};
use crate::mpi;
use crate::redirects::Redirects;
use host::linked;
use slurm::Slurm;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use worlds::calls::{MEETINGS, one_on_each, sockets};
use worlds::kinds::{self, Hindrance, Launcher, World};
use worlds::ranks::{self, OfNodes, world_of};
use xxhash_rust::xxh3::xxh3_64;

/// Why a call runs as one native world, which no sandbox holds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Native {
    /// Nothing says how its tasks meet.
    #[error("it is linked to MPI, and neither it nor the cluster says how its tasks meet (--mpi)")]
    NoMpi,
    /// It wants labels.
    #[error("it labels its output (--label), and the ranks of a node write together")]
    Labelled,
    /// It wants a file for each task.
    #[error("it names a file for each task by %t, and the ranks of a node write together; write 'srun ... > FILE'")]
    OwnFiles,
    /// The job's nodes are unknown.
    #[error("Slurm does not say which nodes the job has")]
    NoNodes,
    /// Such as `srun --version`.
    #[error("it starts no program")]
    NoProgram,
    /// What the call names is not linked to MPI, and starts what is.
    #[error("its call names no program that is linked to MPI; name the MPI program itself in the call of srun")]
    Indirect,
    /// No node has a task.
    #[error("it has no tasks")]
    NoTasks,
    /// Its program cannot be part of a world.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    /// What its words, its program or Slurm say is not understood, or cannot be had.
    #[error("{0}")]
    Unfit(String),
}

/// Removes where the relays of earlier lives of a run met: they meet nobody any more.
///
/// # Errors
/// What the file system says.
pub fn forget_meetings(run: &Path) -> io::Result<()> {
    match fs::remove_dir_all(run.join(MEETINGS)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// A call, gathered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// Options of `srun`.
    pub options: Vec<String>,
    /// The nodes that have ranks.
    nodes: Vec<String>,
    /// How many ranks each has.
    counts: Vec<usize>,
    world: World,
    of_nodes: OfNodes,
    /// Where the program is looked for.
    pub folder: PathBuf,
}

/// Where the ranks of a call are, and what they see of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// The nodes that have some, as Slurm orders them.
    pub nodes: Vec<String>,
    /// How many each has, one after the other.
    pub counts: Vec<usize>,
    /// CPUs that the job has on each of its nodes at least, if that is known.
    pub cpus: Option<usize>,
    /// CPUs of each, as the script's environment says it.
    pub cpus_per_task: Option<usize>,
    /// Variables that the call sets for them.
    pub set: Vec<(String, String)>,
}

/// Where a call's relays meet, and until when.
pub struct Place<'a> {
    /// Folder of the run.
    pub run: &'a Path,
    /// Name of the call.
    pub call: &'a str,
    /// Tells this life of the script from others.
    pub life: &'a str,
}

impl Gathered {
    /// The call in this folder as it is to be started, if it is of MPI; `at` is where its program stands among its words, and
    /// `variable` the environment.
    ///
    /// # Errors
    /// Why it runs as one native world.
    pub fn of_call(
        call: &Redirects,
        at: usize,
        folder: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Gathered>, Native> {
        let program = &call.words[at..];
        let is_mpi = split::is_mpi(&call.words, |name| mpi::lookup(name, &call.words, folder, &variable));
        let world = match ranks::world(program, folder, &Launcher::Path(kinds::paths())) {
            Some(world) if is_mpi || ranks::names_mpi(program, folder) => world,
            _ => return if is_mpi { Err(Native::Indirect) } else { Ok(None) },
        };
        let gathered = Gathered::read(call, at, world?, folder, variable)?;
        gathered.check_calls(&program[0])?;
        Ok(Some(gathered))
    }

    /// The ranks of a program, to be started by the launcher `real` in this folder, as one task on each node.
    ///
    /// # Errors
    /// Why it runs as one native world.
    pub fn of_launcher(program: &[String], folder: &Path, real: &Path, ranks: Ranks) -> Result<Gathered, Native> {
        let world = ranks::world(program, folder, &Launcher::Is(real.to_path_buf())).ok_or(Native::Indirect)??;
        let Ranks { nodes, counts, cpus, cpus_per_task, set } = ranks;
        if counts.is_empty() || counts.contains(&0) {
            return Err(Native::NoTasks);
        }
        let most = counts.iter().max().copied().unwrap_or(1);
        let mut options = one_on_each(&nodes, cpus.unwrap_or(most));
        options.push(format!("--chdir={}", folder.display()));
        // A launcher does not ask whether another one's ranks have the CPUs, and lays out its own as it likes.
        // Its ranks have the script's environment, whatever the job was submitted with, and it ends by one interrupt.
        let as_launchers_do = ["--overlap", "--cpu-bind=none", "--export=ALL", "--quit-on-interrupt"];
        options.extend(as_launchers_do.map(str::to_string));
        let of_nodes = OfNodes { cpus_per_task, first_reads: true, set };
        let gathered = Gathered { options, nodes, counts, world, of_nodes, folder: folder.to_path_buf() };
        gathered.check_calls(&program[0])?;
        Ok(gathered)
    }

    /// Whether nothing that the program itself calls is refused to ranks on several nodes.
    fn check_calls(&self, program: &str) -> Result<(), Native> {
        match linked::program(program, &self.folder).filter(|_| self.counts.len() > 1) {
            Some(program) => Ok(kinds::check_calls(&program, &self.world.library)?),
            None => Ok(()),
        }
    }

    fn read(
        call: &Redirects,
        at: usize,
        world: World,
        folder: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Gathered, Native> {
        let words = &call.words;
        let variable = |name: &str| mpi::lookup(name, words, folder, &variable);
        if !split::is_mpi(words, variable) {
            return Err(Native::NoMpi);
        }
        if call.labels {
            return Err(Native::Labelled);
        }
        let (named, _) = split::options(words).map_err(Native::Unfit)?;
        let is_per_rank = |(name, value): &split::Named| {
            ["output", "error", "input"].contains(&name.as_str()) && value.as_ref().is_some_and(|v| names_ranks(v))
        };
        if named.iter().any(is_per_rank) {
            return Err(Native::OwnFiles);
        }
        let is_distribution = |(name, _): &&split::Named| name == "m" || name == "distribution";
        let by_call = named.iter().rfind(is_distribution).map(|(_, value)| value.clone().unwrap_or_default());
        let distribution = by_call.or_else(|| variable("SLURM_DISTRIBUTION")).unwrap_or_default();
        if !["", "*", "block"].contains(&distribution.split([':', ',']).next().unwrap_or_default()) {
            return Err(Native::Unfit(format!(
                "it lays out its ranks by --distribution={distribution}, and here they are in blocks"
            )));
        }
        let list = variable("SLURM_JOB_NODELIST").ok_or(Native::NoNodes)?;
        let mut nodes = slurm::expand_nodelist(&list).map_err(|e| Native::Unfit(e.to_string()))?;
        let read = Call::read(words, &vec![1; nodes.len()], variable).map_err(|why| match why {
            Unsplit::Answer => Native::NoProgram,
            Unsplit::Whole(why) | Unsplit::Refused(why) => Native::Unfit(why),
        })?;
        let mut counts: Vec<usize> = (0..nodes.len()).map(|node| read.tasks_of(node)).collect();
        counts.truncate(counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1));
        nodes.truncate(counts.len());
        if counts.contains(&0) {
            return Err(Native::NoTasks);
        }
        let end = if at > 0 && words[at - 1] == "--" { at - 1 } else { at };
        let most = counts.iter().max().copied().unwrap_or(1) * read.cpus_per_task().unwrap_or(1);
        let cpus = variable(split::CPUS).and_then(|list| split::least_of(&list)).map_or(most, |least| least.min(most));
        let mut options = split::gathered(&words[..end]).map_err(Native::Unfit)?;
        options.extend(one_on_each(&nodes, cpus));
        if counts.iter().any(|count| *count != counts[0]) {
            // Slurm binds all tasks to as many CPUs; said only where it matters, since not every site binds.
            options.push("--cpu-bind=none".to_string());
        }
        let of_nodes = OfNodes { cpus_per_task: read.cpus_per_task(), ..OfNodes::default() };
        Ok(Gathered { options, nodes, counts, world, of_nodes, folder: folder.to_path_buf() })
    }

    /// Words of the supervisor of each sandbox; `slurm` knows where nodes are reached.
    pub fn of_supervisor(&self, place: &Place, slurm: &Slurm) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut words = vec!["--own-network".to_string(), "--ranks".to_string(), world_of(&self.counts)];
        if self.counts.len() > 1 {
            let meeting = place.run.join(MEETINGS).join(place.call);
            let meeting = meeting.join(format!("{:016x}", xxh3_64(place.life.as_bytes())));
            let addresses = slurm.addresses(&self.nodes).join(",");
            words.extend(["--relay".to_string(), text(&self.world.relay), "--meeting".to_string(), text(&meeting)]);
            words.extend(["--sockets".to_string(), text(&self.sockets(place)), "--addresses".to_string(), addresses]);
        }
        words
    }

    /// Words that start the ranks of a node in its sandbox, before those of the program.
    pub fn of_ranks(&self, place: &Place) -> Vec<String> {
        let spread = self.counts.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let sockets = (self.counts.len() > 1).then(|| self.sockets(place));
        ranks::words_of_node(&self.world, &spread, sockets.as_deref(), &self.of_nodes)
    }

    fn sockets(&self, place: &Place) -> PathBuf {
        sockets(place.run).join(place.call)
    }
}

/// Whether a name of a file has a rank in it, as by `%t` or `%3t`.
fn names_ranks(name: &str) -> bool {
    name.split('%').skip(1).any(|tail| tail.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(line: &str, nodes: &str, more: &[(&str, &str)]) -> Result<Gathered, Native> {
        let words: Vec<String> = line.split(' ').map(str::to_string).collect();
        let call = Redirects::read(&words, Path::new("/here"), Some(false), |_| None).expect("words of srun");
        let (_, at) = split::options(&call.words).expect("options of srun");
        let world = World { launcher: "/bin/mpirun".into(), library: "/l.so".into(), relay: "/relay".into() };
        let variables = [("SLURM_JOB_NODELIST", nodes), ("SLURM_JOB_ID", "7")];
        let set = |name: &str| variables.iter().chain(more).find(|(n, _)| *n == name).map(|(_, v)| (*v).to_string());
        Gathered::read(&call, at, world, Path::new("/here"), set)
    }

    #[test]
    fn a_call_over_nodes_is_one_task_on_each_that_starts_as_many_ranks_as_srun_would() {
        let call =
            gathered("--mpi=pmix -n5 -c 2 -t 9 -o out -- prog x", "n[1-3]", &[(split::CPUS, "4(x2),3")]).unwrap();
        let expected = "-t 9 -o out --nodes=3 --ntasks=3 --ntasks-per-node=1 --nodelist=n1,n2,n3 --cpus-per-task=3 \
                        --mpi=none --kill-on-bad-exit=1 --cpu-bind=none";
        assert!(call.options.join(" ").ends_with(expected), "{:?}", call.options);
        let place = Place { run: Path::new("/run/1"), call: "a.1", life: "3:0" };
        let ranks = call.of_ranks(&place).join(" ");
        assert!(
            ranks.starts_with("ranks --launcher /bin/mpirun --library /l.so --spread 2,2,1 --sockets /tmp/"),
            "{ranks}"
        );
        assert!(ranks.ends_with("/a.1 --cpus-per-task 2 --"), "{ranks}");
        assert_eq!(world_of(&call.counts), "0-1/2-3/4");
    }

    #[test]
    fn a_call_of_mpi_whose_program_is_started_by_a_script_is_native_and_one_without_mpi_is_no_world() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_string()).collect();
            let call = Redirects::read(&words, Path::new("/"), Some(false), |_| None).expect("words of srun");
            let (_, at) = split::options(&call.words).expect("options of srun");
            Gathered::of_call(&call, at, Path::new("/"), |_| None)
        };
        assert_eq!(read(&["--mpi=pmix", "-n4", "sh", "-c", "exec prog"]), Err(Native::Indirect));
        assert_eq!(read(&["-n4", "sh", "-c", "exec prog"]), Ok(None));
        assert_eq!(read(&["--mpi=none", "-n4", "sh", "-c", "exec prog"]), Ok(None));
    }

    #[test]
    fn a_call_on_one_node_needs_no_relay() {
        let call = gathered("-N1 -n4 prog", "n[1-3]", &[(mpi::TYPE, "pmix")]).unwrap();
        assert!(call.options.join(" ").contains("--nodes=1 --ntasks=1"), "{:?}", call.options);
        let place = Place { run: Path::new("/run/1"), call: "a.1", life: "" };
        assert_eq!(call.of_ranks(&place).join(" "), "ranks --launcher /bin/mpirun --library /l.so --spread 4 --");
        let words = call.of_supervisor(&place, &Slurm::new(None));
        assert_eq!(words, ["--own-network", "--ranks", "0-3"]);
    }

    #[test]
    fn what_is_no_one_world_over_sandboxes_is_told_why() {
        for (line, why) in [
            ("-n4 prog", "--mpi"),
            ("--mpi=none prog", "--mpi"),
            ("--mpi=pmix -l -n4 prog", "--label"),
            ("--mpi=pmix -o out.%2t prog", "%t"),
            ("--mpi=pmix -m cyclic prog", "cyclic"),
            ("--mpi=pmix -w n2 prog", "--nodelist"),
            ("--mpi=pmix -N4 prog", "asked for 4"),
        ] {
            let said = gathered(line, "n[1-3]", &[]).unwrap_err().to_string();
            assert!(said.contains(why), "{line}: {said}");
        }
        assert!(gathered("--mpi=pmix -o out.%N prog", "n[1-3]", &[]).is_ok());
    }
}
