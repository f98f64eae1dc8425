//! A call of Hydra, the launcher of MPICH and of Intel's MPI: what its words mean, and where it puts its ranks. MPICH's tells
//! that to who would start its proxies by hand, and Intel's shows it.

use super::map::{Placed, Unplaced, ask, pass_environment};
use super::words::{Call, Unread, set};
use std::path::Path;
use std::process::Command;

/// What an option is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// Where ranks go: the launcher itself is asked; a value follows.
    Place,
    /// Nothing that a sandbox has: how nodes are reached, or which CPUs are whose; so many words follow.
    Nothing(usize),
    /// A variable and its value.
    Variable,
    /// The folder of the ranks.
    Folder,
}

/// Options that mean the same in sandboxes, with one dash or two.
const OPTIONS: &[(&str, About)] = &[
    ("n", About::Place),
    ("np", About::Place),
    ("ppn", About::Place),
    ("perhost", About::Place),
    ("f", About::Place),
    ("hostfile", About::Place),
    ("machinefile", About::Place),
    ("host", About::Place),
    ("hosts", About::Place),
    ("genv", About::Variable),
    ("env", About::Variable),
    ("genvall", About::Nothing(0)),
    ("envall", About::Nothing(0)),
    ("wdir", About::Folder),
    ("launcher", About::Nothing(1)),
    ("bootstrap", About::Nothing(1)),
    ("iface", About::Nothing(1)),
    ("bind-to", About::Nothing(1)),
    ("map-by", About::Nothing(1)),
    ("topolib", About::Nothing(1)),
    ("disable-x", About::Nothing(0)),
];

/// Variables by which Hydra is told something that sandboxes do anyhow, or of which they have nothing.
const NEUTRAL: [&str; 17] = [
    "HYDRA_BINDING",
    "HYDRA_BOOTSTRAP",
    "HYDRA_HOST_FILE",
    "HYDRA_IFACE",
    "HYDRA_LAUNCHER",
    "HYDRA_MAPPING",
    "HYDRA_RMK",
    "I_MPI_HYDRA_BOOTSTRAP",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
    "I_MPI_HYDRA_BRANCH_COUNT",
    "I_MPI_HYDRA_HOST_FILE",
    "I_MPI_HYDRA_IFACE",
    "I_MPI_HYDRA_RMK",
    "I_MPI_HYDRA_TOPOLIB",
    "I_MPI_JOB_FAST_STARTUP",
    "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT",
    "MPIEXEC_PORT_RANGE",
];

/// How variables begin by which its user or site tells Hydra what it is to do.
const STEERING: [&str; 4] = ["HYDRA_", "I_MPI_HYDRA_", "I_MPI_JOB_", "MPIEXEC_"];

/// File in the user's home with options that Hydra reads before those of a call.
const CONFIGURATION: &str = ".mpiexec.hydra.conf";

/// Words by which Hydra says where its ranks go, and starts none.
const ASKING: [&str; 3] = ["-verbose", "-launcher", "manual"];

/// The same of Intel's, which gives up when what is to reach the nodes fails.
const ASKING_INTEL: [&str; 5] = ["-print-rank-map", "-bootstrap", "ssh", "-bootstrap-exec", "/bin/false"];

/// What it says last.
const END: &str = "HYDRA_LAUNCH_END";

/// What it says to each proxy stands before the variables of the ranks, which may have any text.
const BEFORE_VARIABLES: &str = "--global-inherited-env";

/// Reads the words of a call; `variables` are the names in its environment.
///
/// # Errors
/// Why they are not understood.
pub(super) fn words(words: &[String], variables: impl IntoIterator<Item = String>) -> Result<Call, Unread> {
    let steers = |name: &String| STEERING.iter().any(|begin| name.starts_with(begin));
    if let Some(name) = variables.into_iter().find(|name| steers(name) && !NEUTRAL.contains(&name.as_str())) {
        return Err(Unread::Told(name));
    }
    if let Some(file) = std::env::home_dir().map(|home| home.join(CONFIGURATION)).filter(|file| file.exists()) {
        return Err(Unread::Told(file.display().to_string()));
    }
    let mut call = Call::default();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first().filter(|(word, _)| word.starts_with('-')) {
        let name = word.strip_prefix("--").or(word.strip_prefix('-')).unwrap_or_default();
        let about = OPTIONS.iter().find(|(known, _)| *known == name).map(|(_, about)| *about);
        let value = |at: usize| after.get(at).cloned().ok_or_else(|| Unread::Value(word.clone()));
        let taken = match about.ok_or_else(|| Unread::Option(word.clone()))? {
            About::Place => {
                call.options.extend([word.clone(), value(0)?]);
                1
            }
            About::Nothing(values) => values,
            About::Variable => {
                set(&mut call, (value(0)?, value(1)?))?;
                2
            }
            About::Folder => {
                call.chdir = Some(value(0)?);
                1
            }
        };
        rest = after.get(taken..).ok_or_else(|| Unread::Value(word.clone()))?;
    }
    call.starts(rest)
}

/// Where MPICH's launcher puts its ranks, with these options: it says it, and starts nothing.
///
/// # Errors
/// Why it does not.
pub(super) fn asked(launcher: &Path, real: &Command, options: &[String], program: &str) -> Result<Placed, Unplaced> {
    read(&ask(asking(launcher, real, &ASKING, options, program), Some(END))?)
}

/// The same of Intel's.
///
/// # Errors
/// Why it does not.
pub(super) fn asked_intel(
    launcher: &Path,
    real: &Command,
    options: &[String],
    program: &str,
) -> Result<Placed, Unplaced> {
    read_shown(&ask(asking(launcher, real, &ASKING_INTEL, options, program), None)?)
}

fn asking(launcher: &Path, real: &Command, words: &[&str], options: &[String], program: &str) -> Command {
    let mut command = Command::new(launcher);
    // What it passes on to ranks is none of its answer.
    let is_of_launcher = |name: &str| {
        ["SLURM", "HYDRA_", "I_MPI_", "MPIEXEC_", "LD_"].iter().any(|begin| name.starts_with(begin))
            || ["HOME", "PATH", "TMPDIR", "USER"].contains(&name)
    };
    command.env_clear();
    command.envs(std::env::vars().filter(|(name, _)| is_of_launcher(name)));
    pass_environment(real, &mut command, |name| name.to_str().is_some_and(is_of_launcher));
    command.args(words).args(options).arg(program);
    command
}

/// What MPICH's Hydra would tell its proxies.
fn read(text: &str) -> Result<Placed, Unplaced> {
    let proxies: Vec<&str> = text.lines().filter(|line| line.starts_with("--version ")).collect();
    // What stands behind its variables is told by MPICH 5 alone, and has no text of anybody's but the name of the program.
    let blocks: Vec<Vec<usize>> = proxies.iter().filter_map(|proxy| blocks(proxy)).collect();
    let proxies: Vec<Vec<&str>> = proxies
        .iter()
        .map(|line| line.split(BEFORE_VARIABLES).next().unwrap_or_default().split_whitespace().collect())
        .collect();
    let first = proxies.first().ok_or(Unplaced::NoMap)?;
    let count = of(first, "--global-process-count")?.parse().map_err(|_| Unplaced::NoMap)?;
    let hosts = proxies.iter().map(|proxy| of(proxy, "--hostname")).collect::<Result<Vec<_>, _>>()?;
    let placed = match blocks.len() {
        0 => by_map(&proxies, hosts, &mapped(&of(first, "--pmi-process-mapping")?, count).ok_or(Unplaced::NoMap)?)?,
        _ => hosts.into_iter().zip(blocks).collect(),
    };
    let mut ranks: Vec<usize> = placed.iter().flat_map(|(_, ranks)| ranks).copied().collect();
    ranks.sort_unstable();
    // Each is somewhere, and once: what is read otherwise would be no answer.
    let is_whole = placed.len() == proxies.len() && ranks.iter().copied().eq(0..count);
    if is_whole { Ok(placed) } else { Err(Unplaced::NoMap) }
}

/// The value of a word of what a proxy is told.
fn of(proxy: &[&str], name: &str) -> Result<String, Unplaced> {
    let at = proxy.iter().position(|word| *word == name).ok_or(Unplaced::NoMap)?;
    proxy.get(at + 1).map(|value| (*value).to_string()).ok_or(Unplaced::NoMap)
}

/// The ranks of MPICH 4's proxies by the node of each rank.
fn by_map(proxies: &[Vec<&str>], hosts: Vec<String>, nodes: &[usize]) -> Result<Placed, Unplaced> {
    let mut placed: Placed = hosts.into_iter().map(|host| (host, Vec::new())).collect();
    for (rank, node) in nodes.iter().enumerate() {
        placed.get_mut(*node).ok_or(Unplaced::NoMap)?.1.push(rank);
    }
    // Each is told the first of the ranks that it has.
    for ((_, ranks), proxy) in placed.iter().zip(proxies) {
        let told = of(proxy, "--pmi-id-map")?;
        let begins = told.split(',').nth(1).and_then(|rank| rank.parse().ok());
        if ranks.first().copied() != begins {
            return Err(Unplaced::NoMap);
        }
    }
    Ok(placed)
}

/// The ranks of a proxy of MPICH 5, which is told the first of each block and how many it has.
fn blocks(proxy: &str) -> Option<Vec<usize>> {
    let words: Vec<&str> = proxy.split_whitespace().collect();
    let mut ranks = Vec::new();
    for block in words.windows(4).filter(|words| (words[0], words[2]) == ("--exec-rank", "--exec-proc-count")) {
        let (first, count): (usize, usize) = (block[1].parse().ok()?, block[3].parse().ok()?);
        if ranks.len().checked_add(count)? > MOST_RANKS {
            return None;
        }
        ranks.extend(first..first.checked_add(count)?);
    }
    (!ranks.is_empty()).then_some(ranks)
}

/// What Intel's Hydra shows: a line such as `(n1:0,1)` for each node.
fn read_shown(text: &str) -> Result<Placed, Unplaced> {
    let shown = text.lines().filter_map(|line| line.strip_prefix('(')?.strip_suffix(')')?.rsplit_once(':'));
    let of_node = |(node, ranks): (&str, &str)| {
        let ranks = ranks.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| Unplaced::NoMap)?;
        Ok((node.to_string(), ranks))
    };
    let placed: Placed = shown.map(of_node).collect::<Result<_, Unplaced>>()?;
    if placed.is_empty() { Err(Unplaced::NoMap) } else { Ok(placed) }
}

/// The node of each rank, of a map such as `(vector,(0,3,2))`: from node 0 on, three nodes have two ranks each; it begins
/// anew if more are left.
fn mapped(map: &str, count: usize) -> Option<Vec<usize>> {
    let blocks = map.strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut nodes = Vec::new();
    for block in blocks.strip_prefix('(')?.strip_suffix(')')?.split("),(") {
        let numbers: Vec<usize> = block.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [first, many, each] = numbers[..] else { return None };
        if nodes.len() + many.checked_mul(each)? > MOST_RANKS {
            return None;
        }
        nodes.extend((first..first + many).flat_map(|node| std::iter::repeat_n(node, each)));
    }
    (!nodes.is_empty() && count <= MOST_RANKS).then(|| nodes.iter().copied().cycle().take(count).collect())
}

/// Most ranks that a call may be said to have.
const MOST_RANKS: usize = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    fn call(line: &str) -> Result<Call, Unread> {
        words(&plain(line), [])
    }

    #[test]
    fn what_places_ranks_is_left_to_hydra_and_the_rest_is_done_in_its_place() {
        let read =
            call("-n 4 -ppn 2 -launcher ssh --hosts n1,n2 -bind-to core -genv A b=c -wdir /w ./app -n 9").unwrap();
        assert_eq!(read.options.join(" "), "-n 4 -ppn 2 --hosts n1,n2");
        assert_eq!((read.program.join(" "), read.chdir.as_deref()), ("./app -n 9".to_string(), Some("/w")));
        assert_eq!(read.set, [("A".to_string(), "b=c".to_string())]);
    }

    #[test]
    fn words_that_are_not_known_are_left_to_hydra() {
        for (line, why) in [
            ("-n 2 a : -n 1 b", "several programs"),
            ("-prepend-rank -n 2 a", "-prepend-rank"),
            ("-genvnone a", "-genvnone"),
            ("-outfile-pattern o a", "-outfile-pattern"),
            ("-disable-auto-cleanup a", "-disable-auto-cleanup"),
            ("-configfile f", "-configfile"),
            ("-genv PMI_RANK 3 a", "PMI_RANK"),
            ("-n", "-n"),
            ("-n 3", "no program"),
        ] {
            let said = call(line).unwrap_err().to_string();
            assert!(said.contains(why), "{line}: {said}");
        }
        let told = |name: &str| words(&plain("-n 2 a"), [name.to_string()]).map(drop);
        assert_eq!(told("HYDRA_LAUNCHER"), Ok(()));
        for name in ["MPIEXEC_TIMEOUT", "HYDRA_ENV"] {
            assert!(told(name).unwrap_err().to_string().contains(name));
        }
    }

    #[test]
    fn what_hydra_tells_its_proxies_is_read() {
        let proxy = |host: &str, first: usize, map: &str| {
            format!(
                "Arguments being passed to proxy:\n--version 4.0.2 --hostname {host} --global-core-map 0,2,6 --pmi-id-map 0,{first} \
                 --global-process-count 5 --pmi-process-mapping {map} --global-inherited-env 1 'A=--hostname x'\n"
            )
        };
        let map = "(vector,(0,2,2),(2,1,1))";
        let text = format!("{}{}{}{END}\n", proxy("n1", 0, map), proxy("n2", 2, map), proxy("n3", 4, map));
        let ranks = |host: &str, ranks: &[usize]| (host.to_string(), ranks.to_vec());
        assert_eq!(read(&text).unwrap(), [ranks("n1", &[0, 1]), ranks("n2", &[2, 3]), ranks("n3", &[4])]);
        let text = format!("{}{}", proxy("n1", 0, "(vector,(0,2,1))"), proxy("n2", 1, "(vector,(0,2,1))"));
        assert_eq!(read(&text).unwrap(), [ranks("n1", &[0, 2, 4]), ranks("n2", &[1, 3])]);
        let proxy = |host: &str, blocks: &str| {
            format!(
                "--version 5.0.2 --hostname {host} --global-process-count 5 --pmi-process-mapping (vector,[(0,2,1)]x2,0) \
                 --global-inherited-env 1 'A=x' --exec --exec-appnum 0 {blocks} --exec-args 1 true\n"
            )
        };
        let first = "--exec-rank 0 --exec-proc-count 2 --exec-rank 4 --exec-proc-count 1";
        let five = proxy("n1", first) + &proxy("n2", "--exec-rank 2 --exec-proc-count 2");
        assert_eq!(read(&five).unwrap(), [ranks("n1", &[0, 1, 4]), ranks("n2", &[2, 3])]);
        assert!(matches!(read(&proxy("n1", first)), Err(Unplaced::NoMap)), "two are missing");
        let mixed = proxy("n1", first) + &proxy("n2", "");
        assert!(matches!(read(&mixed), Err(Unplaced::NoMap)));
        let proxy = |host: &str, first: usize, map: &str| {
            format!(
                "--version 4.0.2 --hostname {host} --pmi-id-map 0,{first} --global-process-count 5 --pmi-process-mapping {map}\n"
            )
        };
        for text in ["", "[mpiexec] unrecognized argument", &proxy("n1", 3, map), &proxy("n1", 0, "(vector,(0,9,1))")] {
            assert!(matches!(read(text), Err(Unplaced::NoMap)), "{text}");
        }
    }

    #[test]
    fn what_intels_hydra_shows_is_read() {
        let text = "(n1:0,1,6)\n(n2:2,3,4,5)\n\n[mpiexec@n1] Launch arguments: /bin/false -x n1 (a:b)\n";
        let expected = [("n1".to_string(), vec![0, 1, 6]), ("n2".to_string(), vec![2, 3, 4, 5])];
        assert_eq!(read_shown(text).unwrap(), expected);
        for text in ["", "[mpiexec@n1] unrecognized argument", "(n1:0,x)\n"] {
            assert!(matches!(read_shown(text), Err(Unplaced::NoMap)), "{text}");
        }
    }
}
