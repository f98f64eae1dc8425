//! What an unmodified script must see of its allocation when some nodes are spares, or gone.

use crate::groups::split;
use crate::mpi;
use protocol::NodeHealth;
use std::process::Command;

/// Names the job, a colon and all its nodes that live, for the program that stands in for `srun`.
const ALL: &str = "JOULEPOINT_NODES";

/// Gives a call of `srun` with these words the list of nodes that its tasks must see.
pub fn for_srun(srun: &mut Command, words: &[String]) {
    let folder = std::env::current_dir().unwrap_or_default();
    if let Some(list) = list_for(words, |name| mpi::lookup(name, words, &folder, |name| std::env::var(name).ok())) {
        srun.env("SLURM_JOB_NODELIST", list);
    }
    srun.env_remove(ALL).env_remove(mpi::DEFAULT);
}

/// Takes from the environment of an MPI launcher what is not for it: it sees the nodes that the script does.
pub fn for_launcher(launcher: &mut Command) {
    launcher.env_remove(ALL).env_remove(mpi::DEFAULT);
}

/// The list that a script does not see, for a call with MPI alone: Slurm may put a step on a spare while another step is
/// on one of the script's nodes, and its PMIx looks for the step's nodes in `SLURM_JOB_NODELIST`: MPI waits without end
/// for one that is not there.
fn list_for(words: &[String], variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let all = variable(ALL)?;
    let list = all.strip_prefix(&variable("SLURM_JOB_ID")?)?.strip_prefix(':')?;
    split::is_mpi(words, &variable).then(|| list.to_string())
}

/// How the job was laid out when it was submitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The job, as Slurm numbers it.
    pub job: u32,
    /// Nodes of the allocation.
    pub nodes: Vec<String>,
    /// How many of them are spares.
    pub spare: usize,
    /// SLURM_NTASKS, if Slurm said it.
    pub tasks: Option<usize>,
    /// SLURM_NTASKS_PER_NODE, if Slurm said it.
    pub tasks_per_node: Option<usize>,
    /// How many tasks SLURM_TASKS_PER_NODE allows each node at least, as launchers of MPI read it.
    pub slots_per_node: Option<usize>,
    /// SLURM_CPUS_ON_NODE.
    pub cpus_per_node: usize,
}

impl Layout {
    /// Slurm's variables for the nodes that the script is to use; none while that is all of them.
    ///
    /// `srun` takes its number of nodes and tasks from these, and refuses numbers that contradict each other;
    /// `mpirun` takes its hosts from them.
    pub fn variables(&self, health: &[NodeHealth]) -> Vec<(String, String)> {
        let gone = |n: &&String| health.iter().any(|h| h.node == **n && h.dead);
        let most = self.nodes.len().saturating_sub(self.spare).max(1);
        let (dead, live): (Vec<&String>, Vec<&String>) = self.nodes.iter().partition(gone);
        if most == self.nodes.len() {
            return Vec::new();
        }
        // On fewer nodes than it was made for, a program would be another one, and end well.
        let used: Vec<&String> = live.iter().chain(&dead).take(most).copied().collect();
        let per_node = self
            .tasks_per_node
            .or_else(|| self.tasks.filter(|t| t % self.nodes.len() == 0).map(|t| t / self.nodes.len()));
        let tasks = per_node.map(|each| each * used.len()).or(self.tasks);
        let each = tasks.map(|tasks| tasks.div_ceil(used.len())).or(self.slots_per_node).unwrap_or(1);
        let list = slurm::compress_nodelist(&used);
        let count = used.len().to_string();
        let variable = |name: &str, value: String| (name.to_string(), value);
        let mut all = vec![
            variable(ALL, format!("{}:{}", self.job, slurm::compress_nodelist(&live))),
            variable("SLURM_JOB_NODELIST", list.clone()),
            variable("SLURM_NODELIST", list),
            variable("SLURM_JOB_NUM_NODES", count.clone()),
            variable("SLURM_NNODES", count),
            variable("SLURM_TASKS_PER_NODE", format!("{each}(x{})", used.len())),
            variable("SLURM_JOB_CPUS_PER_NODE", format!("{}(x{})", self.cpus_per_node, used.len())),
        ];
        // Where the job says no number, a launcher of MPI fills the nodes.
        let number = |tasks: usize| ["SLURM_NTASKS", "SLURM_NPROCS"].map(|name| variable(name, tasks.to_string()));
        all.extend(tasks.into_iter().flat_map(number));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(count: usize, spare: usize, tasks: Option<usize>) -> Layout {
        let nodes = (1..=count).map(|i| format!("n{i}")).collect();
        Layout { job: 7, nodes, spare, tasks, cpus_per_node: 2, ..Layout::default() }
    }

    fn dead(node: &str) -> NodeHealth {
        NodeHealth {
            node: node.into(),
            url: String::new(),
            silent_s: None,
            slurmd_up: false,
            dead: true,
            doomed: true,
            found_dead_s: None,
            booted_s: None,
            job: None,
        }
    }

    fn get(variables: &[(String, String)], name: &str) -> String {
        variables.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()).unwrap_or_default()
    }

    #[test]
    fn nothing_changes_while_all_nodes_are_used() {
        assert!(layout(2, 0, Some(4)).variables(&[]).is_empty());
    }

    #[test]
    fn a_spare_is_hidden_until_it_is_needed() {
        let layout = layout(5, 1, Some(5));
        let before = layout.variables(&[]);
        assert_eq!(get(&before, "SLURM_JOB_NODELIST"), "n[1-4]");
        assert_eq!((get(&before, "SLURM_NTASKS"), get(&before, "SLURM_TASKS_PER_NODE")), ("4".into(), "1(x4)".into()));
        assert_eq!(get(&before, ALL), "7:n[1-5]");
        let after = layout.variables(&[dead("n2")]);
        assert_eq!(get(&after, ALL), "7:n[1,3-5]");
        assert_eq!(get(&after, "SLURM_JOB_NODELIST"), "n[1,3-5]");
        assert_eq!((get(&after, "SLURM_NNODES"), get(&after, "SLURM_NTASKS")), ("4".into(), "4".into()));
    }

    #[test]
    fn a_job_that_says_no_number_of_tasks_has_none_with_a_spare_either() {
        let layout = Layout { slots_per_node: Some(2), ..layout(4, 1, None) };
        let seen = layout.variables(&[]);
        assert_eq!((get(&seen, "SLURM_TASKS_PER_NODE"), get(&seen, "SLURM_NTASKS")), ("2(x3)".into(), String::new()));
        assert_eq!(get(&seen, "SLURM_NNODES"), "3");
    }

    #[test]
    fn only_a_call_with_mpi_gets_the_spares_and_only_those_of_its_own_job() {
        for (line, mpi, job, expected) in [
            ("-N4 --mpi=pmix prog", "", "7", true),
            ("-N4 --mpi pmi2 prog", "", "7", true),
            ("-ln4 --mpi=pmix prog", "", "7", true),
            ("prog", "pmix", "7", true),
            ("-N4 prog", "", "7", false),
            ("-ln4 prog", "", "7", false),
            ("prog --mpi=pmix", "", "7", false),
            ("--mpi=none prog", "pmix", "7", false),
            ("--mpi=pmix prog", "", "70", false),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            let variables = [(ALL, "7:n[1-5]"), ("SLURM_JOB_ID", job), ("SLURM_MPI_TYPE", mpi)];
            let set = |name: &str| variables.iter().find(|(n, value)| *n == name && !value.is_empty());
            let list = list_for(&words, |name| set(name).map(|(_, value)| (*value).to_string()));
            assert_eq!(list.as_deref(), expected.then_some("n[1-5]"), "{line} {mpi} {job}");
        }
    }

    #[test]
    fn a_script_never_sees_fewer_nodes_than_it_was_made_for() {
        assert!(layout(4, 0, Some(8)).variables(&[dead("n3")]).is_empty());
        let variables = layout(4, 1, Some(8)).variables(&[dead("n2"), dead("n3")]);
        assert_eq!(get(&variables, "SLURM_JOB_NODELIST"), "n[1-2,4]");
        assert_eq!((get(&variables, "SLURM_NNODES"), get(&variables, ALL)), ("3".into(), "7:n[1,4]".into()));
        assert!(layout(2, 0, None).variables(&[dead("n1")]).is_empty());
    }
}
