//! Reads from `scontrol show job -d -o` which GPUs of a node a job holds.

use crate::Error;
use crate::nodelist::expand_nodelist;

/// The GPUs that a job holds on `node`, counted as Slurm counts them there (`IDX`), from what stands between the
/// job's own fields: `Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0-1) Nodes=n3 ...`.
///
/// Nothing where Slurm does not say which: of GPUs that it only counts, and of shares of a GPU.
pub(crate) fn held(details: &str, node: &str) -> Result<Option<Vec<u32>>, Error> {
    for part in details.split(" Nodes=").skip(1) {
        let nodes = part.split(' ').next().unwrap_or_default();
        if expand_nodelist(nodes)?.iter().any(|n| n == node) {
            let gres = part.split(' ').find_map(|word| word.strip_prefix("GRES=")).unwrap_or_default();
            return indices(gres);
        }
    }
    Err(Error::unreadable("the job's part of its node", details))
}

/// The `IDX` of all GPUs in a list such as `gpu:a100:2(IDX:0,2-3),nic:1(IDX:0)`.
fn indices(gres: &str) -> Result<Option<Vec<u32>>, Error> {
    let wrong = || Error::unreadable("GRES", gres);
    let mut all = Vec::new();
    for item in items(gres) {
        let name = item.split([':', '(']).next().unwrap_or_default();
        let Some((_, set)) = item.split_once("(IDX:").filter(|_| name == "gpu") else {
            match name {
                "gpu" | "shard" | "mps" => return Ok(None),
                _ => continue,
            }
        };
        for range in set.trim_end_matches(')').split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u16, u16) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
            all.extend((first..=last).map(u32::from));
        }
    }
    Ok(Some(all))
}

/// The parts between commas that stand outside brackets.
fn items(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    list.split(move |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_read_for_one_node() {
        let details = "* JOB_GRES=gpu:a100:3,nic:1   Nodes=n[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:a100:1(IDX:3),nic:1(IDX:0)  \
                       Nodes=n3 CPU_IDs=0-3 Mem=0 GRES=gpu:a100:3(IDX:0,2-3)  Nodes=n4 CPU_IDs=0 Mem=0 GRES=";
        for (node, gpus) in [("n1", vec![3]), ("n2", vec![3]), ("n3", vec![0, 2, 3]), ("n4", vec![])] {
            assert_eq!(held(details, node).expect("read"), Some(gpus), "{node}");
        }
        assert!(held(details, "n5").is_err());
    }

    #[test]
    fn what_slurm_only_counts_or_shares_is_not_known() {
        for gres in ["gpu:2", "gpu:2(CNT:2)", "shard:1(1/4,0/4)", "gpu:1(IDX:0),mps:50(50/100)"] {
            assert_eq!(indices(gres).expect("read"), None, "{gres}");
        }
        assert_eq!(indices("gpu:0(IDX:)").expect("read"), Some(vec![]));
        assert!(indices("gpu:1(IDX:x)").is_err());
    }
}
