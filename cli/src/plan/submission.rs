//! What a submission says of a job's size: sbatch's own arguments, then the `#SBATCH` lines of its script.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The options that tell a size: short and long name.
const KNOWN: [(&str, &str); 5] =
    [("-N", "--nodes"), ("-n", "--ntasks"), ("", "--ntasks-per-node"), ("-c", "--cpus-per-task"), ("-J", "--job-name")];

/// A job's size, as far as it was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    /// Nodes; of a range the fewest.
    pub nodes: u32,
    /// Tasks.
    pub tasks: Option<u32>,
    /// CPUs that the tasks need on each node.
    pub cpus_per_node: u32,
    /// Job name, else the script's.
    pub job_name: String,
}

impl Submission {
    /// Reads a command line, and the script that it names.
    pub fn read(arguments: &[String]) -> Submission {
        let is_script = |a: &&String| fs::read(Path::new(a)).is_ok_and(|text| text.starts_with(b"#!"));
        let at = arguments.iter().skip(1).position(|a| is_script(&a)).map(|i| i + 1);
        let script = at.map(|i| &arguments[i]);
        // What follows the script are its own arguments.
        let arguments = &arguments[..at.unwrap_or(arguments.len())];
        let lines = script.and_then(|path| fs::read(path).ok()).unwrap_or_default();
        let mut told = options(&directives(&String::from_utf8_lossy(&lines)));
        told.extend(options(arguments));
        let number = |name: &str| {
            let digits = |text: &String| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok());
            told.get(name).and_then(digits).filter(|n: &u32| *n > 0)
        };
        let nodes = number("--nodes").unwrap_or(1);
        let tasks = number("--ntasks").or_else(|| number("--ntasks-per-node").map(|n| n * nodes));
        let file = script.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let wrapped = arguments.iter().any(|a| a.starts_with("--wrap"));
        let otherwise = if wrapped { "wrap" } else { file };
        Submission {
            nodes,
            tasks,
            cpus_per_node: tasks.unwrap_or(1).div_ceil(nodes) * number("--cpus-per-task").unwrap_or(1),
            job_name: told.get("--job-name").cloned().unwrap_or_else(|| otherwise.to_string()),
        }
    }
}

/// The words of a script's `#SBATCH` lines, which end where the script begins.
fn directives(script: &str) -> Vec<String> {
    let head = script.lines().take_while(|line| line.starts_with('#') || line.trim().is_empty());
    let told = head.filter_map(|line| line.strip_prefix("#SBATCH"));
    told.flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace()).map(str::to_string).collect()
}

/// The known options among words: `-N2`, `-N 2`, `--nodes=2`, `--nodes 2`.
fn options(words: &[String]) -> BTreeMap<&'static str, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Submission {
        Submission::read(&line.split(' ').map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_size_is_read_however_it_is_written() {
        for (line, nodes, tasks, cpus) in [
            ("sbatch --wrap=true", 1, None, 1),
            ("sbatch -N2 -n8 --wrap=true", 2, Some(8), 4),
            ("sbatch -N 2-4 --ntasks 8 -c 3 --wrap=true", 2, Some(8), 12),
            ("sbatch --nodes=3 --ntasks-per-node=2 --wrap=true", 3, Some(6), 2),
        ] {
            let read = read(line);
            assert_eq!((read.nodes, read.tasks, read.cpus_per_node), (nodes, tasks, cpus), "{line}");
            assert_eq!(read.job_name, "wrap");
        }
    }

    #[test]
    fn the_command_line_wins_over_the_script() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.sh");
        let script =
            "#!/bin/bash\n#SBATCH -N 2 # two\n#SBATCH --ntasks=4\n# a word\n#SBATCH -J name\n\nsrun x\n#SBATCH -N 9\n";
        fs::write(&path, script).unwrap();
        let of = |line: String| read(&line);
        let plain = of(format!("sbatch {}", path.display()));
        assert_eq!((plain.nodes, plain.tasks, plain.job_name.as_str()), (2, Some(4), "name"));
        let other = of(format!("sbatch -N4 --ft-energy {}", path.display()));
        assert_eq!((other.nodes, other.tasks), (4, Some(4)));
    }
}
