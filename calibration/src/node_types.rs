//! Sorts nodes into types: by the site's classes, else by Slurm's features and the CPU model.

use anyhow::{Context, Result};
use hardware::facts::Facts;
use std::collections::BTreeMap;

/// The types by name, with the facts of their nodes.
///
/// # Errors
/// When a class is not a node list.
pub fn sort(
    facts: &[Facts],
    features: &BTreeMap<String, Vec<String>>,
    classes: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, Vec<Facts>>> {
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for (class, list) in classes {
        let nodes = slurm::expand_nodelist(list).with_context(|| format!("calibration.classes.{class} = '{list}'"))?;
        named.extend(nodes.into_iter().map(|n| (n, class.clone())));
    }
    let mut types: BTreeMap<String, Vec<Facts>> = BTreeMap::new();
    for f in facts {
        let own = || {
            let of_slurm = features.get(&f.node).map(|w| w.join("+")).unwrap_or_default();
            plain(&format!("{of_slurm} {} {}cpus", f.fingerprint.cpu, f.fingerprint.cores))
        };
        types.entry(named.get(&f.node).cloned().unwrap_or_else(own)).or_default().push(f.clone());
    }
    Ok(types)
}

/// A name that can be part of a path: `Intel(R) Xeon(R) Gold 6130 32cpus` is `intel-xeon-gold-6130-32cpus`.
fn plain(text: &str) -> String {
    let text = text.to_lowercase().replace("(r)", " ").replace("(tm)", " ");
    let known = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '_') { c } else { ' ' };
    text.chars().map(known).collect::<String>().split_whitespace().collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Fingerprint;

    fn facts(node: &str, cpu: &str) -> Facts {
        let fingerprint = Fingerprint { cpu: cpu.into(), cores: 8, ..Fingerprint::default() };
        Facts { node: node.into(), fingerprint, frequencies_hz: Vec::new() }
    }

    #[test]
    fn classes_win_over_features_and_these_are_joined_by_the_cpu_model() {
        let all = [facts("n1", "Intel(R) Xeon(R) 6130"), facts("n2", "Intel(R) Xeon(R) 6130"), facts("n3", "EPYC")];
        let features = [("n2".to_string(), vec!["ib".to_string()])].into();
        let types = sort(&all, &features, &BTreeMap::new()).unwrap();
        assert_eq!(
            types.keys().collect::<Vec<_>>(),
            ["epyc-8cpus", "ib-intel-xeon-6130-8cpus", "intel-xeon-6130-8cpus"]
        );
        let classes = [("fat".to_string(), "n[1-2]".to_string())].into();
        let types = sort(&all, &features, &classes).unwrap();
        assert_eq!(types["fat"].len(), 2);
        assert!(sort(&all, &features, &[("bad".to_string(), "n[1-".to_string())].into()).is_err());
    }
}
