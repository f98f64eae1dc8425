//! What an unmodified script must see once nodes of its allocation are gone.

use protocol::NodeHealth;

/// Slurm's variables for the nodes that are left; none while all are there.
///
/// `srun` takes its number of nodes and tasks from these, and `mpirun` its hosts.
pub fn variables(nodes: &[String], health: &[NodeHealth]) -> Vec<(String, String)> {
    let gone = |n: &String| health.iter().any(|h| h.node == *n && h.dead);
    let left: Vec<String> = nodes.iter().filter(|n| !gone(n)).cloned().collect();
    let before = std::env::var("SLURM_NTASKS").ok().and_then(|v| v.parse::<usize>().ok());
    let per_node = std::env::var("SLURM_NTASKS_PER_NODE").ok().and_then(|v| v.parse::<usize>().ok());
    shrink(nodes.len(), &left, before, per_node)
}

fn shrink(
    before: usize,
    left: &[String],
    tasks: Option<usize>,
    tasks_per_node: Option<usize>,
) -> Vec<(String, String)> {
    if left.len() == before || left.is_empty() {
        return Vec::new();
    }
    let list = slurm::compress_nodelist(left);
    let count = left.len().to_string();
    let mut variables = vec![
        ("SLURM_JOB_NODELIST".to_string(), list.clone()),
        ("SLURM_NODELIST".to_string(), list),
        ("SLURM_JOB_NUM_NODES".to_string(), count.clone()),
        ("SLURM_NNODES".to_string(), count),
    ];
    let tasks = tasks_per_node.map(|t| t * left.len()).or(tasks);
    if let Some(tasks) = tasks {
        variables.push(("SLURM_NTASKS".to_string(), tasks.to_string()));
        variables.push(("SLURM_NPROCS".to_string(), tasks.to_string()));
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_while_all_nodes_are_there() {
        assert!(shrink(2, &["a1".into(), "a2".into()], Some(4), None).is_empty());
    }

    #[test]
    fn lists_and_counts_shrink() {
        let left = ["n1".to_string(), "n2".to_string(), "n4".to_string()];
        let get = |v: &[(String, String)], n: &str| v.iter().find(|(k, _)| k == n).map(|(_, v)| v.clone());
        let variables = shrink(4, &left, Some(8), Some(2));
        assert_eq!(get(&variables, "SLURM_JOB_NODELIST").unwrap(), "n[1-2,4]");
        assert_eq!(get(&variables, "SLURM_NNODES").unwrap(), "3");
        assert_eq!(get(&variables, "SLURM_NTASKS").unwrap(), "6");
    }
}
