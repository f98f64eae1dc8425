//! The words of a call of an MPI launcher, as far as it is known what they mean.

/// What an option of a launcher is about, and how many words follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// Where ranks go: the launcher itself is asked.
    Place(usize),
    /// It has the launcher show where ranks go.
    Show,
    /// The same, if the word that follows says so.
    ShowMap,
    /// Nothing that a sandbox has: how nodes are reached, or which CPUs are whose.
    Nothing,
    /// A variable, whose value may stand behind `=`, or stays what it is.
    Exported,
    /// The folder of the ranks.
    Folder,
    /// A parameter of Open MPI, and its value.
    Parameter,
}

/// Options of Open MPI 4 and 5, with one dash or two.
const OPEN_MPI: &[(&str, About)] = &[
    ("np", About::Place(1)),
    ("n", About::Place(1)),
    ("c", About::Place(1)),
    ("N", About::Place(1)),
    ("npernode", About::Place(1)),
    ("npersocket", About::Place(1)),
    ("pernode", About::Place(0)),
    ("map-by", About::Place(1)),
    ("rank-by", About::Place(1)),
    ("bind-to", About::Place(1)),
    ("host", About::Place(1)),
    ("H", About::Place(1)),
    ("hostfile", About::Place(1)),
    ("machinefile", About::Place(1)),
    ("default-hostfile", About::Place(1)),
    ("cpus-per-rank", About::Place(1)),
    ("use-hwthread-cpus", About::Place(0)),
    ("nolocal", About::Place(0)),
    ("oversubscribe", About::Place(0)),
    ("nooversubscribe", About::Place(0)),
    ("allow-run-as-root", About::Place(0)),
    ("display-map", About::Show),
    ("display-allocation", About::Show),
    ("report-bindings", About::Nothing),
    ("q", About::Nothing),
    ("quiet", About::Nothing),
    ("x", About::Exported),
    ("wdir", About::Folder),
    ("wd", About::Folder),
    ("mca", About::Parameter),
    ("gmca", About::Parameter),
];

/// Those that only Open MPI 4 has.
const ORTE: &[(&str, About)] = &[
    ("cpus-per-proc", About::Place(1)),
    ("bynode", About::Place(0)),
    ("byslot", About::Place(0)),
    ("bycore", About::Place(0)),
    ("bysocket", About::Place(0)),
    ("bind-to-core", About::Place(0)),
    ("bind-to-socket", About::Place(0)),
    ("bind-to-none", About::Place(0)),
    ("novm", About::Nothing),
];

/// Those that only Open MPI 5 has.
const PRRTE: &[(&str, About)] = &[
    ("display", About::ShowMap),
    ("prtemca", About::Parameter),
    ("gprtemca", About::Parameter),
    ("pmixmca", About::Parameter),
    ("gpmixmca", About::Parameter),
];

/// Parameters of Open MPI that say where ranks go.
const PLACING: [&str; 3] = ["rmaps", "hwloc", "ras"];

/// Those that say how nodes reach each other, which ranks in sandboxes do by their relays.
const REACHING: [&str; 15] = [
    "btl",
    "gds",
    "grpcomm",
    "mtl",
    "oob",
    "opal_warn",
    "orte_base_help_aggregate",
    "plm",
    "pmix",
    "pml",
    "prte_if",
    "ptl",
    "rml",
    "routed",
    "smsc",
];

/// Those that a rank reads, and that mean the same within one node.
const TUNING: [&str; 8] = ["coll", "fbtl", "fcoll", "fs", "io", "mpi", "op", "topo"];

/// Variables that are ours, the launcher's or Slurm's to set.
const NOT_THEIRS: [&str; 6] = ["JOULEPOINT_", "OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_"];

/// A call whose words are understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Those by which the launcher says where ranks go.
    pub options: Vec<String>,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Variables that it sets for ranks.
    pub set: Vec<(String, String)>,
    /// The folder of the ranks, if it says one.
    pub chdir: Option<String>,
    /// It wants to be shown where ranks go.
    pub shows: bool,
}

/// Why the words of a call are left to the launcher.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// It is not known what it does.
    #[error("its option {0} is not known to mean the same in sandboxes")]
    Option(String),
    /// Its value is missing, or no number.
    #[error("its option {0} has no value that is understood")]
    Value(String),
    /// Not known whether it tunes, or changes what ranks do.
    #[error("its parameter {0} is not known to mean the same in sandboxes")]
    Parameter(String),
    /// Its environment tells the launcher what is not known to mean the same.
    #[error("{0} in its environment is not known to mean the same in sandboxes")]
    Told(String),
    /// It sets what is not its own.
    #[error("it sets {0} for its ranks")]
    Variable(String),
    /// Several programs.
    #[error("it starts several programs at once")]
    Several,
    /// None.
    #[error("it starts no program")]
    NoProgram,
}

/// Reads the words of Open MPI 4's launcher.
///
/// # Errors
/// Why they are not understood.
pub(super) fn orte(words: &[String]) -> Result<Call, Unread> {
    open_mpi(words, ORTE)
}

/// The same of Open MPI 5's.
///
/// # Errors
/// Why they are not understood.
pub(super) fn prrte(words: &[String]) -> Result<Call, Unread> {
    open_mpi(words, PRRTE)
}

fn open_mpi(words: &[String], own: &[(&str, About)]) -> Result<Call, Unread> {
    let mut call = Call::default();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first().filter(|(word, _)| word.starts_with('-')) {
        let name = word.strip_prefix("--").or(word.strip_prefix('-')).unwrap_or_default();
        let about = OPEN_MPI.iter().chain(own).find(|(known, _)| *known == name).map(|(_, about)| *about);
        let about = about.ok_or_else(|| Unread::Option(word.clone()))?;
        let value = |at: usize| after.get(at).cloned().ok_or_else(|| Unread::Value(word.clone()));
        let taken = match about {
            About::Place(values) => {
                call.options.extend_from_slice(rest.get(..=values).ok_or_else(|| Unread::Value(word.clone()))?);
                values
            }
            About::Show => {
                call.options.push(word.clone());
                call.shows = true;
                0
            }
            About::ShowMap if value(0)? == "map" => {
                call.shows = true;
                1
            }
            About::ShowMap => return Err(Unread::Option(format!("{word} {}", value(0)?))),
            About::Nothing => 0,
            About::Exported => {
                let pair = value(0)?;
                let pair = pair.split_once('=').map(|(name, value)| (name.to_string(), value.to_string()));
                pair.into_iter().try_for_each(|pair| set(&mut call, pair))?;
                1
            }
            About::Folder => {
                call.chdir = Some(value(0)?);
                1
            }
            About::Parameter => {
                parameter(&mut call, &[word.clone(), value(0)?, value(1)?])?;
                2
            }
        };
        rest = after.get(taken..).ok_or_else(|| Unread::Value(word.clone()))?;
    }
    call.starts(rest)
}

impl Call {
    /// The same with the program that these words name.
    ///
    /// # Errors
    /// They name none, or several.
    pub(super) fn starts(self, rest: &[String]) -> Result<Call, Unread> {
        if rest.is_empty() {
            return Err(Unread::NoProgram);
        }
        if rest.iter().any(|word| word == ":") {
            return Err(Unread::Several);
        }
        Ok(Call { program: rest.to_vec(), ..self })
    }
}

/// Has a call set a variable for its ranks.
///
/// # Errors
/// It may not set one of this name.
pub(super) fn set(call: &mut Call, pair: (String, String)) -> Result<(), Unread> {
    let is_name = !pair.0.is_empty() && pair.0.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name || NOT_THEIRS.iter().any(|begin| pair.0.starts_with(begin)) {
        return Err(Unread::Variable(pair.0));
    }
    call.set.push(pair);
    Ok(())
}

fn parameter(call: &mut Call, words: &[String; 3]) -> Result<(), Unread> {
    let [_, name, value] = words;
    let is_of = |all: &[&str]| all.iter().any(|group| name == group || name.starts_with(&format!("{group}_")));
    if is_of(&TUNING) {
        call.set.push((format!("OMPI_MCA_{name}"), value.clone()));
    } else if is_of(&PLACING) {
        call.options.extend_from_slice(words);
    } else if !is_of(&REACHING) {
        return Err(Unread::Parameter(name.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn what_places_ranks_is_left_to_open_mpi_and_the_rest_is_done_in_its_place() {
        let read = |line: &str| orte(&words(line)).unwrap();
        for (line, options, program) in [
            ("./app", "", "./app"),
            ("-np 8 ./app -np 3", "-np 8", "./app -np 3"),
            ("--map-by ppr:2:node -N 2 --bind-to core a", "--map-by ppr:2:node -N 2 --bind-to core", "a"),
            ("--mca btl ^openib --report-bindings -H n1:2,n2 a b", "-H n1:2,n2", "a b"),
            (
                "-q --hostfile h --mca rmaps_base_oversubscribe 1 a",
                "--hostfile h --mca rmaps_base_oversubscribe 1",
                "a",
            ),
        ] {
            let call = read(line);
            assert_eq!((call.options.join(" "), call.program.join(" ")), (options.into(), program.into()), "{line}");
            assert!(call.set.is_empty() && call.chdir.is_none() && !call.shows, "{line}");
        }
        let call = read("-x A=b=c -x HOME -wdir /w --mca coll_tuned_priority 9 --display-map a");
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(call.set, [pair("A", "b=c"), pair("OMPI_MCA_coll_tuned_priority", "9")]);
        assert_eq!((call.chdir.as_deref(), call.shows), (Some("/w"), true));
    }

    #[test]
    fn open_mpi_5_has_words_of_its_own() {
        let line =
            "--prtemca plm ssh --pmixmca gds hash --prtemca rmaps_default_mapping_policy slot --display map -n 2 a";
        let call = prrte(&words(line)).unwrap();
        let options = "--prtemca rmaps_default_mapping_policy slot -n 2";
        assert_eq!((call.options.join(" "), call.program.join(" "), call.shows), (options.into(), "a".into(), true));
        for line in
            ["--display bind a", "--display", "--bycore a", "--rtos donotlaunch a", "--prtemca prte_tmpdir_base /x a"]
        {
            assert!(prrte(&words(line)).is_err(), "{line}");
        }
        assert!(orte(&words(line)).is_err(), "Open MPI 4 does not know them");
    }

    #[test]
    fn words_that_are_not_known_are_left_to_the_launcher() {
        for line in [
            "--tag-output a",
            "-np 2 --rankfile r a",
            "-np 2 a : -np 1 b",
            "--mca orte_tmpdir_base /x a",
            "--output-filename o a",
            "-x LD_PRELOAD",
            "-np",
            "-x OMPI_MCA_btl=tcp a",
            "--app file",
            "-x =b a",
            "-np=3 a",
        ] {
            assert!(orte(&words(line)).is_err(), "{line}");
        }
        let said = orte(&words("--timeout 5 a")).unwrap_err().to_string();
        assert!(said.contains("--timeout"), "{said}");
    }
}
