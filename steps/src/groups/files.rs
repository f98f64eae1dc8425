//! The files that a call names by `-i`, `-o` and `-e`: a group's share counts its tasks, nodes and steps from 0, and the
//! names of its files count those of the whole.

use host::shell::quoted;
use std::ops::Range;

/// Standard input, output and error: the option that names a file, and the variables that say the same, in older and in
/// newer series.
const STREAMS: [(&str, [&str; 2]); 3] = [
    ("input", ["SLURM_STDINMODE", "SRUN_INPUT"]),
    ("output", ["SLURM_STDOUTMODE", "SRUN_OUTPUT"]),
    ("error", ["SLURM_STDERRMODE", "SRUN_ERROR"]),
];

/// What Slurm takes for the number of a task in a job that is no array.
const NO_ARRAY: &str = "4294967294";

/// The widest a number is filled up with zeros.
const MOST_DIGITS: usize = 10;

/// What a call says of its three streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// As it was written.
    said: [Option<String>; 3],
    /// What a letter behind `%` stands for, where it is the same for all tasks.
    letters: Vec<(char, String)>,
}

/// What one stream of a share is.
enum Stream {
    /// As `srun` has it, with this value of its option.
    Of(String),
    /// A file that each task opens, as a word of the shell.
    PerTask(String),
}

impl Files {
    /// Takes an option of `srun` over, if it is one of them.
    pub fn takes(&mut self, name: &str, value: Option<&String>) -> bool {
        let stream = STREAMS.iter().position(|(option, _)| *option == name);
        stream.inspect(|stream| self.said[*stream] = value.cloned()).is_some()
    }

    /// What its environment says beside; `variable` is that.
    pub fn complete(&mut self, variable: impl Fn(&str) -> Option<String>) {
        for (said, (_, names)) in self.said.iter_mut().zip(STREAMS) {
            *said = said.take().or_else(|| names.iter().find_map(|name| variable(name)));
        }
        let job = variable("SLURM_JOB_ID").unwrap_or_default();
        self.letters = vec![
            ('A', variable("SLURM_ARRAY_JOB_ID").unwrap_or_else(|| job.clone())),
            ('a', variable("SLURM_ARRAY_TASK_ID").unwrap_or_else(|| NO_ARRAY.to_string())),
            ('j', job),
            ('u', variable("SLURM_JOB_USER").unwrap_or_default()),
            ('x', variable("SLURM_JOB_NAME").unwrap_or_default()),
        ];
    }

    /// Whether output goes to files.
    pub fn are_written(&self) -> bool {
        self.said[1..].iter().any(Option::is_some)
    }

    /// The output files that all groups write to, as words of the shell.
    pub fn shared(&self, step: u64) -> Vec<String> {
        let is_shared = |said: &&String| {
            let is_of_srun = said.parse::<usize>().is_ok() || ["none", "all"].contains(&said.to_lowercase().as_str());
            let varies = |p| matches!(p, Piece::Letter { letter: 't' | 'n' | 'N', .. });
            !is_of_srun && !said.contains('\\') && !pieces(said).any(varies)
        };
        let all = self.said[1..].iter().flatten().filter(is_shared);
        all.map(|said| pieces(said).map(|p| self.word(p, step)).collect()).collect()
    }

    /// The options of a share whose tasks have these `ranks` of so `many`, in step `step` of the script, and the shell's
    /// redirections for what each task opens by itself: `srun` would name it by the number that the task has in its group.
    /// Last, these files as words of the shell, if they are written to.
    pub fn share(&self, step: u64, ranks: &Range<usize>, many: usize) -> (Vec<String>, String, Vec<String>) {
        let (mut options, mut redirections, mut written) = (vec![], String::new(), vec![]);
        for (stream, (name, _)) in STREAMS.iter().enumerate() {
            let sign = ["<", ">>", "2>>"][stream];
            match self.stream(stream, step, ranks, many) {
                Some(Stream::Of(value)) => options.push(format!("--{name}={value}")),
                Some(Stream::PerTask(file)) => {
                    // What the environment says would count else.
                    options.push(format!("--{name}={}", if stream == 0 { "none" } else { "all" }));
                    redirections.push_str(&format!(" {sign}{file}"));
                    written.extend((stream > 0).then_some(file));
                }
                None if stream == 2 && redirections.contains(" >>") => redirections.push_str(" 2>&1"),
                None => {}
            }
        }
        (options, redirections, written)
    }

    fn stream(&self, stream: usize, step: u64, ranks: &Range<usize>, many: usize) -> Option<Stream> {
        let nothing = || Stream::Of("none".to_string());
        let is_input = stream == 0;
        let Some(said) = &self.said[stream] else { return is_input.then(nothing) };
        let one = said.parse::<usize>().ok().filter(|rank| *rank < many);
        Some(match one {
            // What the script reads is not passed on.
            _ if is_input && (one.is_some() || said.eq_ignore_ascii_case("all")) => nothing(),
            Some(rank) if ranks.contains(&rank) => Stream::Of((rank - ranks.start).to_string()),
            Some(_) => nothing(),
            // Slurm leaves a name with a backslash as it is.
            None if said.contains('\\') => Stream::Of(said.clone()),
            None if pieces(said).any(|p| matches!(p, Piece::Letter { letter: 't' | 'n', .. })) => {
                Stream::PerTask(pieces(said).map(|p| self.word(p, step)).collect())
            }
            None => Stream::Of(pieces(said).map(|p| self.text(p, step)).collect()),
        })
    }

    /// A piece of a name that `srun` completes: all but the step's number is the same in each group.
    fn text(&self, piece: Piece, step: u64) -> String {
        match piece {
            Piece::Letter { letter: 's' | 'J', .. } => self.word(piece, step).replace('\'', ""),
            Piece::Letter { written, .. } => written.to_string(),
            Piece::Text(text) => text.to_string(),
        }
    }

    /// A piece of a name as a word of the shell, where a task has its rank in the whole.
    fn word(&self, piece: Piece, step: u64) -> String {
        let (written, digits, letter) = match piece {
            Piece::Text(text) => return quoted(text),
            Piece::Letter { written, digits, letter } => (written, digits.min(MOST_DIGITS), letter),
        };
        let known = |letter: char| self.letters.iter().find(|(l, _)| *l == letter).map(|(_, text)| text.clone());
        match letter {
            't' => format!("$(printf %0{digits}d $SLURM_PROCID)"),
            'n' => format!("$(printf %0{digits}d $SLURM_NODEID)"),
            'N' => "\"$SLURMD_NODENAME\"".to_string(),
            's' => quoted(&format!("{step:0digits$}")),
            'J' => quoted(&format!("{}.{step}", known('j').unwrap_or_default())),
            _ => match known(letter) {
                Some(text) => quoted(&text.parse::<u64>().map_or(text, |number| format!("{number:0digits$}"))),
                None => quoted(written),
            },
        }
    }
}

/// A line of the shell that empties these files, words of it, where they are files.
pub fn emptied(words: &[String]) -> String {
    words.iter().map(|file| format!("[ ! -f {file} ] || : >{file}; ")).collect()
}

/// A piece of a name.
enum Piece<'a> {
    Text(&'a str),
    /// As `%t` or `%3t`.
    Letter {
        written: &'a str,
        digits: usize,
        letter: char,
    },
}

fn pieces(name: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let next = match rest.strip_prefix('%') {
            Some(tail) => {
                let number = tail.len() - tail.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                match tail[number..].chars().next() {
                    Some(letter) => {
                        let length = 1 + number + letter.len_utf8();
                        let digits = tail[..number].parse().unwrap_or(0);
                        (Piece::Letter { written: &rest[..length], digits, letter }, length)
                    }
                    None => (Piece::Text(rest), rest.len()),
                }
            }
            None => {
                let length = rest.find('%').unwrap_or(rest.len());
                (Piece::Text(&rest[..length]), length)
            }
        };
        rest = &rest[next.1..];
        (next.1 > 0).then_some(next.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(said: [Option<&str>; 3]) -> Files {
        let mut files = Files { said: said.map(|s| s.map(str::to_string)), letters: vec![] };
        files.complete(|name| {
            let known = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NAME", "bob's run"), ("SLURM_JOB_USER", "bob")];
            known.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string())
        });
        files
    }

    /// The options of the tasks 2 and 3 of 4 in step 5.
    fn options(said: [Option<&str>; 3]) -> String {
        files(said).share(5, &(2..4), 4).0.join(" ")
    }

    #[test]
    fn what_is_the_same_for_all_tasks_stays_with_srun_and_counts_the_steps_of_the_script() {
        for (said, expected) in [
            ([None, None, None], "--input=none"),
            ([None, Some("out.%j.%N"), None], "--input=none --output=out.%j.%N"),
            ([None, Some("o.%s.%3s.%J"), Some("e.%x")], "--input=none --output=o.5.005.7.5 --error=e.%x"),
            ([Some("in.%N"), Some("none"), None], "--input=in.%N --output=none"),
            ([Some("all"), Some("3"), Some("0")], "--input=none --output=1 --error=none"),
            ([Some("2"), Some("4"), None], "--input=none --output=4"),
            ([None, Some("a\\%t"), Some("50%")], "--input=none --output=a\\%t --error=50%"),
        ] {
            assert_eq!(options(said), expected, "{said:?}");
        }
        for set in ["SLURM_STDOUTMODE", "SRUN_OUTPUT"] {
            let mut files = files([None, None, None]);
            files.complete(|name| (name == set).then(|| "env.%t".to_string()));
            assert_eq!(files.share(0, &(0..1), 1).0, ["--input=none", "--output=all"]);
        }
    }

    #[test]
    fn what_all_groups_write_to_is_emptied_where_it_is_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let line = |said| emptied(&files(said).shared(5));
        for said in [Some("none"), Some("1"), Some("o.%t"), Some("o.%N"), Some("a\\%j"), None] {
            assert_eq!(line([Some("in"), said, said]), "", "{said:?}");
        }
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        for (name, written) in [("o %j.%s.%x", "o 7.5.bob's run"), ("none of them", "beside"), ("folder", "folder/in")]
        {
            std::fs::write(dir.path().join(written), "old").unwrap();
            let line = line([None, Some(name), Some(name)]);
            let done = std::process::Command::new("sh").args(["-c", &line]).current_dir(dir.path()).status();
            assert!(done.unwrap().success());
            let is_emptied = std::fs::read(dir.path().join(written)).unwrap().is_empty();
            assert_eq!(
                (is_emptied, dir.path().join("none of them").exists()),
                (name.starts_with('o'), false),
                "{name}"
            );
        }
    }

    #[test]
    fn a_file_of_each_task_is_named_by_its_rank_in_the_whole() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("in.2"), "read\n").unwrap();
        let name = "o u't %%.%3t.%n.%N.%s.%x.%a.%2j.%q";
        let run = |said| {
            let (options, redirections, _) = files(said).share(5, &(2..4), 4);
            assert!(options.iter().all(|o| !o.contains('%')), "{options:?}");
            let line = format!("exec \"$@\"{redirections}");
            let done = std::process::Command::new("sh")
                .args(["-c", &line, "sh", "sh", "-c", "cat; echo wrong >&2"])
                .envs([("SLURM_PROCID", "2"), ("SLURM_NODEID", "1"), ("SLURMD_NODENAME", "n2")])
                .current_dir(dir.path())
                .status();
            assert!(done.unwrap().success(), "{line}");
        };
        run([Some("in.%t"), Some(name), None]);
        run([Some("in.%t"), Some(name), Some("err.%t")]);
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("o u't %%.002.1.n2.5.bob's run.4294967294.07.%q"), "read\nwrong\nread\n");
        assert_eq!(read("err.2"), "wrong\n");
    }
}
