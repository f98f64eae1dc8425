//! What an `srun` call says of its streams by options: the stand-in and the wardens do it in the place of `srun`, so that
//! a checkpoint knows what was read and written.

use crate::groups::split;
use std::path::{Path, PathBuf};

/// Variables by which `srun` adds labels.
pub const LABELS: [&str; 2] = ["SLURM_LABELIO", "SRUN_LABELIO"];

/// Variables that say what `--input`, `--output` and `--error` say.
pub const MODES: [&str; 6] =
    ["SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE", "SRUN_INPUT", "SRUN_OUTPUT", "SRUN_ERROR"];

/// Variables that say what `--open-mode` says.
pub(crate) const OPEN_MODES: [&str; 2] = ["SLURM_OPEN_MODE", "SRUN_OPEN_MODE"];

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
    /// The words of a program that an MPI launcher starts, which reads and writes what the launcher does.
    pub fn of_launcher(words: Vec<String>) -> Redirects {
        Redirects { words, input: Input::Standard, files: [None, None], appends: false, labels: false }
    }

    /// Reads the words of a call in a folder; `variable` is its environment, and `appends` whether `srun` keeps what a
    /// file has where the call does not say it (`JobFileAppend`), if that is known.
    ///
    /// # Errors
    /// A sentence: they are not understood.
    pub fn read(
        words: &[String],
        folder: &Path,
        appends: Option<bool>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Redirects, String> {
        if let Some(name) = MODES.iter().find(|name| variable(name).is_some()) {
            return Err(format!("{name} is set; say it by --input, --output or --error"));
        }
        let mut call = Redirects {
            words: Vec::new(),
            input: Input::Standard,
            files: [None, None],
            appends: false,
            labels: LABELS.iter().any(|name| variable(name).is_some()),
        };
        let mut appends = OPEN_MODES.iter().find_map(|name| variable(name)).map(|mode| is_append(&mode)).or(appends);
        let (mut at, mut says_error) = (0, false);
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
                        None if value.eq_ignore_ascii_case("all") => Input::Standard,
                        None => Input::Apart,
                    };
                    if call.input != Input::Apart {
                        continue;
                    }
                }
                "output" => call.files[0] = file(&value, "output")?,
                "error" => (says_error, call.files[1]) = (true, file(&value, "error")?),
                "open-mode" => appends = Some(is_append(&value)),
                _ => {}
            }
            call.words.extend_from_slice(own);
        }
        call.words.extend_from_slice(&words[at..]);
        if !says_error {
            call.files[1] = call.files[0].clone();
        }
        // `srun` opens them in its own folder, whatever `--chdir` says of the tasks.
        for path in call.files.iter_mut().flatten() {
            *path = folder.join(&path);
        }
        if call.files.iter().any(Option::is_some) {
            let unknown = "Slurm does not say whether an output file is emptied (JobFileAppend); say it by --open-mode";
            call.appends = appends.ok_or(unknown)?;
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

/// Whether an open mode keeps what a file has.
pub(crate) fn is_append(mode: &str) -> bool {
    mode.starts_with(['a', 'A'])
}

/// The one file that an option names; none for a file of each task, none and all.
fn file(value: &str, option: &str) -> Result<Option<PathBuf>, String> {
    if value.eq_ignore_ascii_case("none") || value.eq_ignore_ascii_case("all") {
        return Ok(None);
    }
    if value.trim_start_matches([' ', '+']).chars().all(|c| c.is_ascii_digit()) {
        return Err(format!("it names one task by --{option}={value}"));
    }
    let begins = value.get(..3).is_some_and(|b| b.eq_ignore_ascii_case("all")) || value.starts_with('-');
    if begins || value.contains('\\') || value.contains('%') && !is_per_task(value) {
        return Err(format!("it names a file by --{option}={value}; write its name out"));
    }
    Ok((!is_per_task(value)).then(|| PathBuf::from(value)))
}

/// Whether `srun` leaves a name to each task, as by `%t` or `%3t`.
fn is_per_task(name: &str) -> bool {
    let tails = name.split('%').skip(1).map(|tail| tail.trim_start_matches(|c: char| c.is_ascii_digit()));
    tails.into_iter().any(|tail| tail.starts_with(['t', 'n', 'N', 'u']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_at(line: &str, appends: Option<bool>, set: Option<(&str, &str)>) -> Result<Redirects, String> {
        let words: Vec<String> = line.split(' ').map(str::to_string).collect();
        let variable = |name: &str| set.filter(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        Redirects::read(&words, Path::new("/here"), appends, variable)
    }

    fn read(line: &str) -> Result<Redirects, String> {
        read_at(line, Some(false), None)
    }

    #[test]
    fn streams_are_told_apart_from_the_other_words() {
        let file = |path: &str| Some(PathBuf::from(path));
        let cases = [
            ("-n2 prog -l", "-n2 prog -l", Input::Standard, [None, None], false),
            ("-l -n2 prog", "-n2 prog", Input::Standard, [None, None], true),
            ("-ul --label prog", "-u prog", Input::Standard, [None, None], true),
            ("-o out prog", "-o out prog", Input::Standard, [file("/here/out"), file("/here/out")], false),
            ("-D /d -o out -e %t prog", "-D /d -o out -e %t prog", Input::Standard, [file("/here/out"), None], false),
            ("--chdir=/d -i in prog", "--chdir=/d prog", Input::File("/here/in".into()), [None, None], false),
            ("-i ALL -o None prog", "-o None prog", Input::Standard, [None, None], false),
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
        assert!(read_at("prog", None, Some(("SLURM_LABELIO", "1"))).unwrap().labels);
        for name in ["SLURM_STDOUTMODE", "SRUN_OUTPUT"] {
            assert!(read_at("prog", None, Some((name, "a"))).unwrap_err().contains("--output"));
        }
    }

    #[test]
    fn a_file_is_emptied_only_where_srun_is_known_to_empty_it() {
        let variable = |mode| Some(("SLURM_OPEN_MODE", mode));
        for (line, site, set, appends) in [
            ("-o a prog", Some(false), None, Some(false)),
            ("-o a prog", Some(true), None, Some(true)),
            ("-o a prog", None, None, None),
            ("-o a.%t prog", None, None, Some(false)),
            ("prog", None, None, Some(false)),
            ("--open-mode=truncate -o a prog", Some(true), variable("a"), Some(false)),
            ("--open-mode=Append -e a prog", None, None, Some(true)),
            ("-o a prog", None, variable("append"), Some(true)),
            ("-o a prog", Some(true), variable("truncate"), Some(false)),
        ] {
            let read = read_at(line, site, set);
            assert_eq!(read.as_ref().ok().map(|call| call.appends), appends, "{line} {site:?} {set:?}");
            assert!(read.err().is_none_or(|e| e.contains("--open-mode")), "{line}");
        }
    }

    #[test]
    fn a_name_that_srun_makes_another_of_is_left_to_it() {
        for name in ["out.%t", "%3t", "%N/o", "o.%j.%u", "%%t", "none"] {
            assert_eq!(file(name, "output"), Ok(None), "{name}");
        }
        for name in ["out.%j", "%J", "o.%s", "%a.t", "50%", "%%", "-", "-x", "allout", "ALLES", "a\\%t"] {
            assert!(file(name, "output").unwrap_err().contains("write its name out"), "{name}");
        }
        for name in ["", "0", "+1", " 7"] {
            assert!(file(name, "output").unwrap_err().contains("one task"), "{name}");
        }
        assert_eq!(file("al", "error"), Ok(Some("al".into())));
    }
}
