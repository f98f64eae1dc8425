//! What a submission says of a job: its size and its options, from sbatch's arguments and its script's `#SBATCH` lines.

use options::Takes;
use options::size::{directives, sizes, stays_away};
use std::fs;
use std::path::Path;

/// A job's size, as far as it was told, and what it asks of Joulepoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    /// Nodes; of a range the fewest; absent where Slurm finds the number.
    pub nodes: Option<u32>,
    /// Tasks.
    pub tasks: Option<u32>,
    /// Tasks on each node, where that is told instead.
    pub tasks_per_node: Option<u32>,
    /// CPUs of each task; one unless told.
    pub cpus_per_task: Option<u32>,
    /// Nodes that must be among them, as Slurm writes it.
    pub nodelist: String,
    /// Time limit, where it is told as a time, s.
    pub time_s: Option<u64>,
    /// Job name, else the script's.
    pub job_name: String,
    /// Our options as `--ft-energy-keep=3`; of two for one thing the later counts.
    pub options: Vec<String>,
    /// The commands that it runs, as far as they are seen: those of its script, or of `--wrap`.
    pub commands: String,
    /// It does not come back after the loss of a node (`--no-requeue`).
    pub stays_away: bool,
}

impl Submission {
    /// Reads a command line, and the script that it names.
    pub fn read(arguments: &[String]) -> Submission {
        let is_script = |a: &&String| fs::read(Path::new(a)).is_ok_and(|text| text.starts_with(b"#!"));
        let at = arguments.iter().skip(1).position(|a| is_script(&a)).map(|i| i + 1);
        let script = at.map(|i| &arguments[i]);
        // What follows the script are its own arguments.
        let arguments = &arguments[..at.unwrap_or(arguments.len())];
        let text = script.and_then(|path| fs::read(path).ok()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let directives = directives(&text);
        let mut told = sizes(&directives);
        told.extend(sizes(arguments));
        let number = |name: &str| {
            let digits = |text: &String| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok());
            told.get(name).and_then(digits).filter(|n: &u32| *n > 0)
        };
        let file = script.and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let wrapped = arguments.iter().find(|a| a.starts_with("--wrap"));
        let otherwise = if wrapped.is_some() { "wrap" } else { file };
        Submission {
            nodes: number("--nodes"),
            tasks: number("--ntasks"),
            tasks_per_node: number("--ntasks-per-node"),
            cpus_per_task: number("--cpus-per-task"),
            time_s: told.get("--time").and_then(|text| options::parse_time(text).ok()).map(|time| time.as_secs()),
            // A path is a file of names, which Slurm reads.
            nodelist: told.get("--nodelist").filter(|list| !list.contains('/')).cloned().unwrap_or_default(),
            job_name: told.get("--job-name").cloned().unwrap_or_else(|| otherwise.to_string()),
            options: [ours(&directives), ours(arguments)].concat(),
            stays_away: stays_away(arguments, std::env::var_os("SBATCH_NO_REQUEUE").is_some(), &text),
            commands: wrapped.cloned().unwrap_or(text),
        }
    }

    /// The names of its nodes, where all are told.
    ///
    /// # Errors
    /// A sentence: the list cannot be read, or names more nodes than the job has.
    pub fn named(&self, nodes: u32) -> Result<Vec<String>, String> {
        let names = slurm::expand_nodelist(&self.nodelist).map_err(|e| e.to_string())?;
        if names.len() > nodes as usize {
            return Err(format!("'{}' names {} nodes, and the job has {nodes}", self.nodelist, names.len()));
        }
        Ok(if names.len() == nodes as usize { names } else { Vec::new() })
    }

    /// Tasks on so many nodes, and the CPUs that they need on each.
    pub fn spread_over(&self, nodes: u32) -> (Option<u32>, u32) {
        let tasks = self.tasks.or_else(|| self.tasks_per_node.map(|n| n.saturating_mul(nodes)));
        (tasks, tasks.unwrap_or(1).div_ceil(nodes.max(1)).saturating_mul(self.cpus_per_task.unwrap_or(1)))
    }
}

/// Our options among words, with their values.
fn ours(words: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    // One that is written wrong is refused where all are read.
    for (i, word) in words.iter().enumerate().filter(|(_, word)| word.starts_with("--ft-")) {
        let takes = options::find(&word[2..]).map(|spec| spec.takes);
        found.push(match words.get(i + 1).filter(|_| takes == Some(Takes::Required)) {
            Some(value) => format!("{word}={value}"),
            None => word.clone(),
        });
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
        // On so many nodes, where the submission does not tell.
        for (line, nodes, on, tasks, cpus) in [
            ("sbatch --wrap=true", None, 1, None, 1),
            ("sbatch -N2 -n8 --wrap=true", Some(2), 2, Some(8), 4),
            ("sbatch -N 2-4 --ntasks 8 -c 3 --wrap=true", Some(2), 2, Some(8), 12),
            ("sbatch --nodes=3 --ntasks-per-node=2 --wrap=true", Some(3), 3, Some(6), 2),
            ("sbatch --ntasks-per-node=2 --wrap=true", None, 5, Some(10), 2),
        ] {
            let read = read(line);
            assert_eq!((read.nodes, read.spread_over(on)), (nodes, (tasks, cpus)), "{line}");
            assert_eq!(read.job_name, "wrap");
        }
    }

    #[test]
    fn nodes_are_named_where_all_are_told() {
        let names = |line: &str, nodes| read(line).named(nodes);
        let three = ["n1", "n3", "n4"].map(str::to_string).to_vec();
        assert_eq!(names("sbatch -w n1,n[3-4] --wrap=true", 3), Ok(three));
        assert_eq!(names("sbatch --nodelist=n1 --wrap=true", 2), Ok(vec![]), "Slurm finds the other");
        assert_eq!(names("sbatch -w ./nodes.txt --wrap=true", 1), Ok(vec![]));
        for wrong in ["sbatch -w n[1-4] --wrap=true", "sbatch -w n[1- --wrap=true"] {
            assert!(names(wrong, 2).is_err(), "{wrong}");
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
        assert_eq!((plain.nodes, plain.tasks, plain.job_name.as_str()), (Some(2), Some(4), "name"));
        let other = of(format!("sbatch -N4 --ft-energy {}", path.display()));
        assert_eq!((other.nodes, other.tasks), (Some(4), Some(4)));
    }

    #[test]
    fn our_options_are_read_as_sbatch_reads_them() {
        for (line, read) in [
            (" --ft-energy=time --ft-energy-io-bound 5%", vec!["--ft-energy=time", "--ft-energy-io-bound=5%"]),
            (" -N 2 --ft-energy --ft-energy-keep=3 # --ft-energy-spare=1", vec!["--ft-energy", "--ft-energy-keep=3"]),
            (
                " --ft-energy-done='a b.{group}' --ft-energy-dir=\"/a\"b",
                vec!["--ft-energy-done=a b.{group}", "--ft-energy-dir=/ab"],
            ),
            (" --ft-energy-done=\\*.cpt", vec!["--ft-energy-done=*.cpt"]),
            (" --ft-energy-keep", vec!["--ft-energy-keep"]),
        ] {
            assert_eq!(ours(&directives(&format!("#SBATCH{line}"))), read, "{line}");
        }
    }
}
