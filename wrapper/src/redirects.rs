//! What an `srun` call says of its streams by options: the stand-in and the wardens do it in the place of `srun`, so that
//! a checkpoint knows what was read and written.

use crate::groups::split;
use std::path::{Path, PathBuf};

/// Variables by which `srun` adds labels.
pub const LABELS: [&str; 2] = ["SLURM_LABELIO", "SRUN_LABELIO"];

/// Variables that say what `--input`, `--output` and `--error` say.
const MODES: [&str; 3] = ["SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE"];

/// Short options of `srun` without a value, which may be joined.
const SHORT_FLAGS: &str = "bEHIkKlOqQsuvVXZ";

/// A call, apart from its streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Redirects {
    /// Its words without the options that are done in the place of `srun`.
    pub words: Vec<String>,
    /// What its tasks read.
    pub input: Input,
    /// Files that it writes standard output and standard error of all tasks to.
    pub files: [Option<PathBuf>; 2],
    /// Whether these files keep what they have.
    pub appends: bool,
    /// Whether each line tells its task.
    pub labels: bool,
}

/// What the tasks of a call read.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// What the call reads: all of them the same.
    Standard,
    /// Nothing, or a file of its own for each task.
    Apart,
    /// A file that the call names.
    File(PathBuf),
}

impl Redirects {
    /// Reads the words of a call in a folder; `variable` is its environment.
    ///
    /// # Errors
    /// A sentence: they are not understood.
    pub fn read(
        words: &[String],
        folder: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Redirects, String> {
        if let Some(name) = MODES.iter().find(|name| variable(name).is_some()) {
            return Err(format!("{name} is set; say it by --input, --output or --error"));
        }
        let mut call = Redirects {
            words: Vec::new(),
            input: Input::Standard,
            files: [None, None],
            appends: variable("SLURM_OPEN_MODE").is_some_and(|mode| mode.starts_with('a')),
            labels: LABELS.iter().any(|name| variable(name).is_some()),
        };
        let (mut at, mut folder, mut says_error) = (0, folder.to_path_buf(), false);
        while let Some(written) = split::option(&words[at..])? {
            let own = &words[at..at + written.words];
            at += written.words;
            let value = written.value.unwrap_or_default();
            match written.name.as_str() {
                "--" => {
                    call.words.extend_from_slice(own);
                    break;
                }
                name if is_label(name) => {
                    call.labels = true;
                    let others: String = name.chars().filter(|c| *c != 'l' && name != "label").collect();
                    call.words.extend((!others.is_empty()).then(|| format!("-{others}")));
                    continue;
                }
                "input" => {
                    call.input = match file(&value, "input")? {
                        Some(path) => Input::File(path),
                        None if value == "all" => Input::Standard,
                        None => Input::Apart,
                    };
                    if call.input != Input::Apart {
                        continue;
                    }
                }
                "output" => call.files[0] = file(&value, "output")?,
                "error" => (says_error, call.files[1]) = (true, file(&value, "error")?),
                "open-mode" => call.appends = value.starts_with('a'),
                "chdir" | "D" => folder = folder.join(&value),
                _ => {}
            }
            call.words.extend_from_slice(own);
        }
        call.words.extend_from_slice(&words[at..]);
        if !says_error {
            call.files[1] = call.files[0].clone();
        }
        for path in call.files.iter_mut().flatten() {
            *path = folder.join(&path);
        }
        if let Input::File(path) = &mut call.input {
            *path = folder.join(&path);
        }
        Ok(call)
    }
}

/// Whether an option is `--label`, or `-l`, alone or joined to others.
pub fn is_label(name: &str) -> bool {
    name == "label" || name.contains('l') && name.chars().all(|c| SHORT_FLAGS.contains(c))
}

/// The one file that an option names; none for a file of each task, none and all.
fn file(value: &str, option: &str) -> Result<Option<PathBuf>, String> {
    if value.contains('%') || value == "none" || value == "all" {
        return Ok(None);
    }
    match value.parse::<u32>() {
        Ok(_) => Err(format!("it names one task by --{option}={value}")),
        Err(_) => Ok(Some(PathBuf::from(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Redirects, String> {
        let words: Vec<String> = line.split(' ').map(str::to_string).collect();
        Redirects::read(&words, Path::new("/here"), |_| None)
    }

    #[test]
    fn streams_are_told_apart_from_the_other_words() {
        let file = |path: &str| Some(PathBuf::from(path));
        let cases = [
            ("-n2 prog -l", "-n2 prog -l", Input::Standard, [None, None], false),
            ("-l -n2 prog", "-n2 prog", Input::Standard, [None, None], true),
            ("-ul --label prog", "-u prog", Input::Standard, [None, None], true),
            ("-o out prog", "-o out prog", Input::Standard, [file("/here/out"), file("/here/out")], false),
            ("-D /d -o out -e %t prog", "-D /d -o out -e %t prog", Input::Standard, [file("/d/out"), None], false),
            ("--error=/e -- prog", "--error=/e -- prog", Input::Standard, [None, file("/e")], false),
            ("-i data prog", "prog", Input::File("/here/data".into()), [None, None], false),
            ("-i none prog", "-i none prog", Input::Apart, [None, None], false),
            ("--input=in.%t prog", "--input=in.%t prog", Input::Apart, [None, None], false),
        ];
        for (line, words, input, files, labels) in cases {
            let call = read(line).unwrap();
            assert_eq!(
                (call.words.join(" ").as_str(), call.input, call.files, call.labels),
                (words, input, files, labels)
            );
        }
        assert!(read("--open-mode=append -o a prog").unwrap().appends);
        assert!(read("-i 0 prog").unwrap_err().contains("--input=0"));
        let labelled = |name: &str| (name == "SLURM_LABELIO").then(|| "1".to_string());
        assert!(Redirects::read(&["prog".into()], Path::new("/"), labelled).unwrap().labels);
        let moved = |name: &str| (name == "SLURM_STDOUTMODE").then(|| "a".to_string());
        assert!(Redirects::read(&["prog".into()], Path::new("/"), moved).unwrap_err().contains("--output"));
    }
}
