//! Tests of what outlives a driver: ended shares, lines and what they hold of output.

use super::*;
use crate::board::Within;
use crate::dealt::Dealt;
use ::criu::line::Member;
use driver::groups::ports::Shares;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use steps::groups::split::Unsplit;
use steps::sandboxes::fit;

fn args(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_string).collect()
}

fn standing(of: &DumpedCall, rank: u32, carried_bytes: [u64; 2]) -> Standing {
    let member = Member { call: of.name.clone(), rank, tasks: 2, node: "n".into(), step: None, ranks: None };
    Standing { member, carried_bytes }
}

/// A driver of a script, in a run that was seen well until just now.
fn driver(run: &Path, script: &str) -> Dumped {
    let dumped = Dumped::new(Path::new("/criu"), run, 9.0, script.into(), host::mail::now_s());
    fs::create_dir_all(dumped.folder(1)).unwrap();
    dumped
}

fn call(of: &Dumped, key: &str) -> DumpedCall {
    of.call(&args("prog"), key, None, None)
}

/// A line of group 1 in which these calls are open.
fn line(of: &Dumped, open: &[&DumpedCall], into: &Path) -> Result<(), String> {
    let all: Vec<Standing> = open.iter().map(|call| standing(call, 0, [0, 0])).collect();
    let open: Vec<Open> = open.iter().map(|call| ((*call).clone(), [0, 0])).collect();
    of.keep(1, &open, &all, into)
}

fn from(line: &Path) -> [(String, String); 1] {
    [(LINE.to_string(), line.to_string_lossy().into_owned())]
}

/// No open calls, of a run that is taken up.
fn seats(run: &Path) -> Seats {
    let taken = run::take_up(run, &run::line::Claim::default(), run::Patience::NONE).unwrap();
    Seats {
        all: Arc::default(),
        post: host::mail::queue().0,
        steps: None,
        placements: run::Placements::of_holder(run, &taken.holder),
        empties: None,
        dealt: Dealt::open(run, "5eed".to_string()),
        within: Within::Nothing,
        without: Arc::default(),
    }
}

#[test]
fn what_a_group_wrote_after_its_line_is_forgotten() {
    let (run, line) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = driver(run.path(), "s");
    let [two, other] = [(); 2].map(|()| call(&first, "two"));
    assert_ne!(two.name, other.name, "calls of the same words are told apart");
    let way = first.way(1, &two, 2, &[]).unwrap();
    let words = way.words.join(" ");
    assert!(words.contains(" --tasks 2 ") && !words.contains("--restore"), "{words}");
    let [out, err] = way.outputs.unwrap();
    let open = [(two.clone(), way.from_bytes)];
    assert!(first.keep(1, &open, &[], line.path()).unwrap_err().contains("has not started its tasks"));
    fs::write(&out, "before\n").unwrap();
    first.keep(1, &open, &[standing(&two, 2, [4, 0]), standing(&two, 3, [3, 0])], line.path()).unwrap();
    fs::write(&out, "before\nlater\n").unwrap();
    fs::write(&err, "later\n").unwrap();

    let next = driver(run.path(), "s");
    let [two, other] = [(); 2].map(|()| call(&next, "two"));
    let way = next.way(1, &two, 2, &from(line.path())).unwrap();
    assert_eq!((way.from_bytes, fs::read_to_string(&out).unwrap().as_str()), ([7, 0], "before\n"));
    assert!(fs::read_to_string(&err).unwrap().is_empty());
    let restore = format!(" --restore {} ", line.path().display());
    assert!(way.words.join(" ").contains(&restore), "{:?}", way.words);
    let way = next.way(1, &other, 2, &from(line.path())).unwrap();
    assert!(!way.words.join(" ").contains("--restore"), "the line has it not");
    let changed = driver(run.path(), "another script");
    let way = changed.way(1, &call(&changed, "two"), 2, &from(line.path())).unwrap();
    assert!(!way.words.join(" ").contains("--restore"), "the line is another script's");
}

#[test]
fn a_share_that_has_ended_is_not_run_again_by_the_next_driver_and_has_its_code() {
    // The code, how long the run went on, the script of the next driver, and what it is told.
    for (code, on_s, script, told) in
        [(0, 0.0, "s", Some(0)), (3, 99.0, "s", Some(3)), (3, 0.0, "s", None), (0, 99.0, "another script", None)]
    {
        let run = tempfile::tempdir().unwrap();
        let first = driver(run.path(), "s");
        let (prep, main) = (call(&first, "prep"), call(&first, "main"));
        first.way(1, &prep, 1, &[]).unwrap();
        first.over(1, &prep, code, &[]);
        first.way(1, &main, 1, &[]).unwrap();
        let next = Dumped { well_s: first.well_s + on_s + 1.0, ..driver(run.path(), script) };
        let again = |key: &str| next.way(1, &call(&next, key), 1, &[]).err();
        assert_eq!((again("prep"), again("main")), (told, None), "{code} {on_s} {script}");
    }
}

#[test]
fn of_calls_that_are_alike_none_has_ended_before_all_have() {
    let run = tempfile::tempdir().unwrap();
    let first = driver(run.path(), "s");
    let [before, one, two, other] = ["a", "a", "a", "b"].map(|key| call(&first, key));
    for of in [&before, &one, &two, &other] {
        first.way(1, of, 1, &[]).unwrap();
    }
    let ended = || -> Vec<String> {
        let ended: Known<Ended> = known::read(&first.folder(1).join(ENDED), "s");
        ended.into_keys().collect()
    };
    first.over(1, &before, 0, std::slice::from_ref(&other));
    first.over(1, &two, 0, &[one.clone(), other]);
    assert_eq!(ended(), ["a.1"], "a.2 and a.3 run at once");
    first.over(1, &one, 0, &[two]);
    assert_eq!(ended(), ["a.1", "a.2", "a.3"]);
}

#[test]
fn no_line_takes_the_place_of_one_that_holds_calls_which_the_script_has_not_reached_again() {
    let [run, old, new] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let first = driver(run.path(), "s");
    let (a, b) = (call(&first, "a"), call(&first, "b"));
    for of in [&a, &b] {
        first.way(1, of, 1, &[]).unwrap();
    }
    line(&first, &[&a, &b], old.path()).unwrap();

    let begun = || {
        let next = driver(run.path(), "s");
        next.goes_on(1, Some(old.path()));
        let a = call(&next, "a");
        next.way(1, &a, 1, &from(old.path())).unwrap();
        (next, a)
    };
    let (next, a) = begun();
    assert!(line(&next, &[&a], new.path()).unwrap_err().contains("has not reached"));
    let b = call(&next, "b");
    next.way(1, &b, 1, &from(old.path())).unwrap();
    line(&next, &[&a, &b], new.path()).unwrap();
    // One that fails later and goes back knows that both have been reached.
    next.goes_on(1, Some(old.path()));
    line(&next, &[&a], new.path()).unwrap();

    let (next, a) = begun();
    let c = call(&next, "c");
    next.way(1, &c, 1, &from(old.path())).unwrap();
    line(&next, &[&a, &c], new.path()).unwrap();
}

#[test]
fn a_call_that_no_sandbox_of_a_group_can_hold_is_told_why() {
    let run = tempfile::tempdir().unwrap();
    let dumped = driver(run.path(), "s");
    for (line, why) in [("-o out.%t prog", "$SLURM_PROCID"), ("--label prog", "labels"), ("-i data prog", "--input")] {
        let unfit = fit(&args(line), false).unwrap_err();
        assert!(unfit.contains(why), "{line}: {unfit}");
        let of = dumped.call(&args(line), line, Some(unfit), None);
        assert!(dumped.words(0, &of, 1, None).is_empty(), "{line} runs as it is");
    }
    assert!(fit(&args("-o none prog"), false).is_ok());
}

#[test]
fn messages_are_kept_for_calls_that_a_line_or_an_ended_share_has_and_for_no_others() {
    let run = tempfile::tempdir().unwrap();
    let taken = run::take_up(run.path(), &run::line::Claim::default(), run::Patience::NONE).unwrap();
    let base = worlds::calls::Base {
        srun: PathBuf::new(),
        slurm: Arc::new(slurm::Slurm::new(None)),
        run: run.path().to_path_buf(),
        log: options::Log::Disk,
        keep: 1,
        placements: run::Placements::of_holder(run.path(), &taken.holder),
        cpus: 1,
        post: host::mail::queue().0,
    };
    let first = driver(run.path(), "s").talking(Some(Worlds::new(base, 2)));
    let [a, b, c] = ["a", "b", "c"].map(|key| call(&first, key));
    let line_of = run.path().join("checkpoints/g1/7");
    fs::create_dir_all(&line_of).unwrap();
    for of in [&a, &b, &c] {
        fs::write(first.outputs(1, of)[0].clone(), "").unwrap();
        fs::write(first.outputs(1, of)[1].clone(), "").unwrap();
        fs::create_dir_all(run.path().join("worlds").join(&of.name)).unwrap();
    }
    line(&first, &[&a], &line_of).unwrap();
    first.over(1, &b, 0, &[]);
    first.forget_messages(2);
    let kept = |of: &DumpedCall| run.path().join("worlds").join(&of.name).exists();
    assert_eq!([kept(&a), kept(&b), kept(&c)], [true, true, false]);
}

#[test]
fn a_call_that_runs_without_groups_is_told_of_at_the_end() {
    let run = tempfile::tempdir().unwrap();
    let seats = seats(run.path());
    let (ours, _theirs) = UnixStream::pair().unwrap();
    assert_eq!(seats.messages(), None);
    for why in ["it names nodes", "it names a terminal"] {
        assert!(!seats.open(1, &ours, None, Err(Unsplit::Whole(why.to_string()))));
    }
    assert!(!seats.open(1, &ours, None, Err(Unsplit::Answer)), "which starts nothing");
    let told = seats.messages().unwrap();
    assert_eq!((told.script.as_str(), told.together.as_deref()), ("5eed", Some("it names nodes")));
}

#[test]
fn a_group_whose_storage_has_failed_its_restore_waits_and_its_checkpoint_stays() {
    let run = tempfile::tempdir().unwrap();
    fs::set_permissions(run.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let checkpoints = Checkpoints::open(run.path().join("checkpoints/g1"), 2).unwrap();
    let (of, seats, post) = (driver(run.path(), "s"), seats(run.path()), host::mail::queue().0);
    let mut engine =
        GroupCriu::listen(1, post, checkpoints.clone(), &seats, &of, "localhost", &config::Criu::default()).unwrap();
    let (line, folder) = (Manifest { number: 3, ..Manifest::default() }, checkpoints.path(3));
    fs::create_dir(&folder).unwrap();
    let mark = folder.join(::criu::NOT_NOW);
    fs::write(&mark, "of an earlier life").unwrap();
    let mut prepare = |line: Option<&Manifest>| engine.prepare(line, 9.0).map(drop);
    assert_eq!(prepare(Some(&line)), Ok(()));
    assert_eq!(prepare(Some(&line)), Ok(()), "it was back, and has crashed");
    fs::write(&mark, "the disk is full").unwrap();
    assert_eq!(prepare(Some(&line)), Err(Unprepared::Storage("the disk is full".to_string())));
    assert_eq!(prepare(Some(&line)), Ok(()), "the next try is a new one");
    assert!(!mark.exists());
    fs::set_permissions(run.path(), fs::Permissions::from_mode(0o770)).unwrap();
    assert!(matches!(prepare(None), Err(Unprepared::Unusable(_))), "others may have written there");
}
