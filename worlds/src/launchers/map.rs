//! Where a launcher puts its ranks: Open MPI's says it itself, without starting any.

use super::Call;
use host::supervise::unblocked;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longest time that a launcher may take to say where its ranks go.
const LIMIT: Duration = Duration::from_secs(30);

/// The ranks of each node that has some.
pub type Placed = Vec<(String, Vec<usize>)>;

/// Why it is not known where ranks go, or why sandboxes cannot have them there.
#[derive(Debug, thiserror::Error)]
pub enum Unplaced {
    /// It cannot be asked.
    #[error("it cannot be asked where its ranks go: {0}")]
    Asked(#[from] io::Error),
    /// It does not answer.
    #[error("it does not say where its ranks go within {} s", LIMIT.as_secs())]
    Silent,
    /// It says none, since it would refuse the call, or something else.
    #[error("it does not say where its ranks go, or refuses its words")]
    NoMap,
    /// More than one node has ranks, and they lie between each other.
    #[error(
        "its ranks are dealt out to the nodes in turn; let each node have ranks that follow each other (--map-by slot)"
    )]
    InTurn,
    /// It names nodes that the script does not have.
    #[error("it puts ranks on {0}, which is no node of the job")]
    Elsewhere(String),
    /// It names them in another order.
    #[error("it takes the nodes in another order than Slurm")]
    Order,
}

/// Where one of Open MPI's launchers puts the ranks of a call: it says it, and starts nothing, if it is told so in these words.
/// What it says is printed if the call `shows` it.
///
/// # Errors
/// Why it does not.
pub(super) fn asked(real: &Command, call: &Call, asking: &[&str]) -> Result<Placed, Unplaced> {
    let mut command = Command::new(real.get_program());
    pass_environment(real, &mut command, |_| true);
    // It would set out for no node, and says on standard error that it has not.
    command.args(&call.options).args(asking).args(call.program.first());
    let text = ask(command, None)?;
    if call.shows {
        let _ = io::stdout().write_all(text.as_bytes());
    }
    read(&text)
}

/// Sets for a command those variables that are set for another one and `count`.
pub(super) fn pass_environment(from: &Command, to: &mut Command, count: impl Fn(&OsStr) -> bool) {
    for (name, value) in from.get_envs().filter(|(name, _)| count(name)) {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}

/// What a launcher that is asked says: all of it, or up to a line with which it says that there is no more, though it stays.
///
/// # Errors
/// It cannot be started, or does not come to that end.
pub(super) fn ask(mut command: Command, last: Option<&'static str>) -> Result<String, Unplaced> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = unblocked(&mut command).spawn()?;
    let output = child.stdout.take().ok_or(Unplaced::Silent)?;
    let (sender, said) = mpsc::channel();
    threads::start(move || {
        let mut text = Vec::new();
        let mut from = BufReader::new(output);
        let outcome = loop {
            let begun = text.len();
            match from.read_until(b'\n', &mut text) {
                Ok(0) => break Ok(()),
                Ok(_) if last.is_some_and(|last| text[begun..].trim_ascii() == last.as_bytes()) => break Ok(()),
                Ok(_) => {}
                Err(e) => break Err(e),
            }
        };
        // Nobody listens any more when it took too long.
        let _ = sender.send(outcome.map(|()| String::from_utf8_lossy(&text).into_owned()));
    });
    let text = said.recv_timeout(LIMIT).map_err(|_| Unplaced::Silent);
    // It has said all, or too little; one that has ended is only reaped.
    if text.is_err() || last.is_some() {
        let _ = child.kill();
    }
    child.wait()?;
    Ok(text??)
}

/// The map of one job, as Open MPI 4 shows it, which names each rank behind `Process rank:`, or Open MPI 5, which does so in
/// the name of its process: `[job@1,rank]`.
fn read(text: &str) -> Result<Placed, Unplaced> {
    let mut placed: Placed = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(of_node) = line.strip_prefix("Data for node: ") {
            let name = of_node.split_whitespace().next().ok_or(Unplaced::NoMap)?;
            placed.push((name.to_string(), Vec::new()));
            continue;
        }
        let of_process =
            line.strip_prefix("Data for proc: [").and_then(|name| Some(name.split_once(']')?.0.rsplit_once(',')?.1));
        let Some(rank) = of_process.or_else(|| line.split_once("Process rank: ")?.1.split_whitespace().next()) else {
            continue;
        };
        let (_, ranks) = placed.last_mut().ok_or(Unplaced::NoMap)?;
        ranks.push(rank.parse().map_err(|_| Unplaced::NoMap)?);
    }
    placed.retain(|(_, ranks)| !ranks.is_empty());
    if placed.is_empty() { Err(Unplaced::NoMap) } else { Ok(placed) }
}

/// The nodes that have ranks and how many each has, if a step on these nodes numbers them in the same way: Slurm numbers its
/// tasks in the order of the `job`'s nodes.
///
/// # Errors
/// It does not.
pub fn in_order(placed: Placed, job: &[String]) -> Result<(Vec<String>, Vec<usize>), Unplaced> {
    let mut places = Vec::new();
    for (node, _) in &placed {
        let place = job.iter().position(|other| other == node);
        places.push(place.ok_or_else(|| Unplaced::Elsewhere(node.clone()))?);
    }
    if !places.is_sorted() {
        return Err(Unplaced::Order);
    }
    let ranks = placed.iter().flat_map(|(_, ranks)| ranks);
    if ranks.enumerate().any(|(place, rank)| *rank != place) {
        return Err(Unplaced::InTurn);
    }
    Ok(placed.into_iter().map(|(node, ranks)| (node, ranks.len())).unzip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_launcher_that_stays_after_its_last_word_is_ended() {
        let shell = |line: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            command
        };
        let begun = Instant::now();
        assert_eq!(ask(shell("echo a; echo END; exec sleep 60"), Some("END")).unwrap(), "a\nEND\n");
        assert_eq!(ask(shell("echo b"), Some("END")).unwrap(), "b\n");
        assert_eq!(ask(shell("echo c; echo END; echo d"), None).unwrap(), "c\nEND\nd\n");
        assert!(begun.elapsed() < LIMIT);
    }

    fn nodes(count: usize) -> Vec<String> {
        (1..=count).map(|n| format!("n{n}")).collect()
    }

    fn placed(ranks: &[(&str, &[usize])]) -> Placed {
        ranks.iter().map(|(node, ranks)| ((*node).to_string(), ranks.to_vec())).collect()
    }

    #[test]
    fn what_open_mpi_shows_is_read() {
        let map = "\n Data for JOB [77,1] offset 0 Total slots allocated 5\n\n ====   JOB MAP   ====\n\n\
                   Data for node: n1\tNum slots: 2\tMax slots: 0\tNum procs: 2\n\
                   \tProcess OMPI jobid: [77,1] App: 0 Process rank: 0 Bound: N/A\n\
                   \tProcess OMPI jobid: [77,1] App: 0 Process rank: 1 Bound: UNBOUND\n\n\
                   Data for node: n2\tNum slots: 2\tMax slots: 0\tNum procs: 1\n\
                   \tProcess OMPI jobid: [77,1] App: 0 Process rank: 2 Bound: N/A\n";
        assert_eq!(read(map).unwrap(), placed(&[("n1", &[0, 1]), ("n2", &[2])]));
        let map = "\nData for JOB prterun-n1-77@1 offset 0 Total slots allocated 5\nNum nodes: 2\n\n\
                   Data for node: n1\tState: 3\tFlags: MAPPED:SLOTS_GIVEN\n\tDaemon: [prterun-n1-77@0,1]\tDaemon launched: False\n\
                   \tData for proc: [prterun-n1-77@1,0]\n\t\tPid: 0\tLocal rank: 0\tNode rank: 0\tApp rank: 0\n\
                   \tData for proc: [prterun-n1-77@1,1]\n\n\
                   Data for node: n2\tState: 3\tFlags: MAPPED:SLOTS_GIVEN\n\tData for proc: [prterun-n1-77@1,2]\n";
        assert_eq!(read(map).unwrap(), placed(&[("n1", &[0, 1]), ("n2", &[2])]));
        assert!(matches!(read("There are not enough slots available"), Err(Unplaced::NoMap)));
    }

    #[test]
    fn the_ranks_of_each_node_must_follow_each_other_on_nodes_of_the_job() {
        let order = |ranks: &[(&str, &[usize])]| in_order(placed(ranks), &nodes(3));
        assert_eq!(order(&[("n1", &[0, 1]), ("n3", &[2])]).unwrap(), (vec!["n1".into(), "n3".into()], vec![2, 1]));
        assert!(matches!(order(&[("n1", &[0, 2]), ("n2", &[1])]), Err(Unplaced::InTurn)));
        assert!(matches!(order(&[("n2", &[0]), ("n1", &[1])]), Err(Unplaced::Order)));
        assert!(matches!(order(&[("n9", &[0])]), Err(Unplaced::Elsewhere(node)) if node == "n9"));
    }
}
