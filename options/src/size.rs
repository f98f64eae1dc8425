//! What sbatch's arguments and a script's `#SBATCH` lines say of a job's size.

use std::collections::BTreeMap;

/// The options that tell a size: short and long name.
const KNOWN: [(&str, &str); 7] = [
    ("-N", "--nodes"),
    ("-n", "--ntasks"),
    ("", "--ntasks-per-node"),
    ("-c", "--cpus-per-task"),
    ("-J", "--job-name"),
    ("-w", "--nodelist"),
    ("-t", "--time"),
];

/// The words of a script's `#SBATCH` lines, which end where the script begins.
pub fn directives(script: &str) -> Vec<String> {
    told(script).flat_map(words_of).collect()
}

/// What stands behind `#SBATCH`, line by line.
fn told(script: &str) -> impl Iterator<Item = &str> {
    let head = script.lines().take_while(|line| line.starts_with('#') || line.trim().is_empty());
    head.filter_map(|line| line.strip_prefix("#SBATCH"))
}

/// The words of a line as sbatch reads them: with quotes and backslashes, up to a `#`.
fn words_of(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match (c, quote) {
            ('\\', _) => word.get_or_insert_default().extend(rest.next()),
            (c, Some(q)) if c == q => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('#', None) => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The options that tell a size among words: `-N2`, `-N 2`, `--nodes=2`, `--nodes 2`.
pub fn sizes(words: &[String]) -> BTreeMap<&'static str, String> {
    let mut found = BTreeMap::new();
    for (i, word) in words.iter().enumerate() {
        for (short, long) in KNOWN {
            let attached = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
            let attached =
                attached.or_else(|| word.strip_prefix(short).filter(|rest| !short.is_empty() && !rest.is_empty()));
            let value = match attached {
                Some(value) => Some(value.to_string()),
                None if word == long || word == short => words.get(i + 1).cloned(),
                None => None,
            };
            found.extend(value.map(|value| (long, value)));
        }
    }
    found
}

/// Why a job of several components is not protected.
pub const PARTS: &str =
    "Slurm brings back only the component of a heterogeneous job that lost a node, and the others run on";

/// What the user of such a job can do.
pub const PARTS_CURE: &str = "one job without 'hetjob' and ':' is protected";

/// Whether a job has several components, by its script's lines and by sbatch's own words before the script.
pub fn has_parts(script: &str, words: &[String]) -> bool {
    let divides = |line: &str| words_of(line).first().is_some_and(|word| word == "hetjob" || word == "packjob");
    told(script).any(divides) || words.iter().any(|word| word == ":")
}

/// The most nodes that a job may get, by its script's lines and sbatch's own words, which win; nothing where they do not
/// say it, or it is not understood.
pub fn most_nodes(script: &str, words: &[String]) -> Option<u32> {
    nodes(script, words)?.rsplit('-').next()?.parse().ok().filter(|most| *most > 0)
}

/// The fewest nodes that a job will have, by its script's lines and sbatch's own words; nothing where they do not say it.
pub fn fewest_nodes(script: &str, words: &[String]) -> Option<u32> {
    nodes(script, words)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// How many nodes a job is to have, as it is written; nothing where that is not told, or not understood.
fn nodes(script: &str, words: &[String]) -> Option<String> {
    let directives = directives(script);
    let all = || directives.iter().chain(words);
    // As in -HN4.
    let is_joined = |word: &str| word.starts_with('-') && !word.starts_with("--") && word.rfind('N') > Some(1);
    if has_parts(script, words) || all().any(|word| is_joined(word)) {
        return None;
    }
    let mut told = sizes(&directives);
    told.extend(sizes(words));
    told.remove("--nodes")
}

/// Whether a job does not come back after the loss of a node, by its own words.
///
/// `by_environment`: whether `SBATCH_NO_REQUEUE` is set.
///
/// The command line wins over the environment, and that over the script.
pub fn stays_away(words: &[String], by_environment: bool, script: &str) -> bool {
    let told = |words: &[String]| {
        let last = words.iter().rev().find(|word| ["--requeue", "--no-requeue"].contains(&word.as_str()));
        last.map(|word| word == "--no-requeue")
    };
    let by_script = || told(&directives(script)).unwrap_or(false);
    told(words).unwrap_or_else(|| by_environment || by_script())
}

/// How many nodes groups and spares need at least; a group has a node.
pub fn needed_nodes(groups: u32, spare: u32) -> u32 {
    groups.max(1).saturating_add(spare)
}

/// Why so many nodes do not make the groups and spares that were asked for, if so.
pub fn too_few(groups: u32, spare: u32, nodes: u32) -> Option<String> {
    let wants = match groups {
        0 | 1 => format!("keep {spare} spares"),
        _ => format!("make {groups} groups and {spare} spares"),
    };
    (nodes < needed_nodes(groups, spare)).then(|| format!("{nodes} nodes are too few to {wants}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_nodes_are_read_where_they_are_said() {
        let script = "#!/bin/bash\n#SBATCH -N 3\nsrun x\n#SBATCH -N9\n";
        for (script, line, most, parts) in [
            ("", "--exclusive", None, false),
            ("", "-N4", Some(4), false),
            ("", "-N 2-8 --nodes=5-6", Some(6), false),
            ("", "-N4k", None, false),
            ("", "--nodes=1,2,4", None, false),
            ("", "-N0", None, false),
            (script, "-HN9", None, false),
            (script, "-n8", Some(3), false),
            (script, "-N2", Some(2), false),
            ("", "-N2 : -N3", None, true),
            ("#SBATCH -N2\n#SBATCH hetjob\n#SBATCH -N3\n", "", None, true),
            ("#SBATCH -N2 -J hetjob\n", "--job-name hetjob", Some(2), false),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_string).collect();
            assert_eq!(most_nodes(script, &words), most, "{script:?} {line}");
            let fewest = fewest_nodes(script, &words);
            assert!(most.is_none() || fewest.is_some_and(|fewest| Some(fewest) <= most), "{script:?} {line}");
            assert_eq!(has_parts(script, &words), parts, "{script:?} {line}");
        }
    }

    #[test]
    fn a_job_that_does_not_come_back_is_seen() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(stays_away(&words("--no-requeue -N2"), false, ""));
        assert!(stays_away(&[], false, "#!/bin/sh\n#SBATCH --no-requeue\n"));
        assert!(stays_away(&[], true, ""));
        assert!(!stays_away(&words("--requeue"), true, "#!/bin/sh\n#SBATCH --no-requeue\n"));
        assert!(!stays_away(&[], false, "#!/bin/sh\n"));
    }
}
