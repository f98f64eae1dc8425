//! A driver and its wardens, over real lines.

use super::dump::LATE;
use super::*;
use ::criu::client::Ask;
use driver::ports::NotSaved;
use protocol::ManifestFile;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

fn member(call: &str, rank: u32, tasks: u32) -> Member {
    Member { call: call.into(), rank, tasks, node: format!("n{rank}"), step: None, ranks: None }
}

/// A run's wardens, and who was lost.
fn listen(run: &Path) -> (Wardens, Receiver<(u32, Loss)>) {
    let (wardens, lost, _) = listen_for_killed(run);
    (wardens, lost)
}

/// The same, and for each who was lost whether the `srun` was killed.
fn listen_for_killed(run: &Path) -> (Wardens, Receiver<(u32, Loss)>, Receiver<bool>) {
    let ((sender, lost), (say, killed)) = (channel(), channel());
    let (sender, say) = (Mutex::new(sender), Mutex::new(say));
    let told = move |m: &Member, loss: Loss, is_killed: &dyn Fn() -> bool| {
        let _ = say.lock().unwrap().send(is_killed());
        sender.lock().unwrap().send((m.rank, loss)).unwrap();
        false
    };
    (Wardens::listen(run, "localhost", Callbacks::new(told, |_, _| true)).unwrap(), lost, killed)
}

/// A task that says this to each order in turn, and tells the orders that it heard when its line ends.
fn task(run: &Path, member: Member, answers: Vec<Said>) -> thread::JoinHandle<Vec<Order>> {
    let line = line::call(run, &Hello::Task(member)).unwrap();
    thread::spawn(move || {
        let mut teller = line.teller().unwrap();
        let mut answers = answers.into_iter();
        let mut heard = Vec::new();
        for order in line.words::<Order>() {
            heard.push(order);
            match answers.next() {
                Some(answer) => teller.tell(&answer).unwrap(),
                None => return heard,
            }
        }
        heard
    })
}

fn good() -> Vec<Said> {
    vec![Said::Frozen, Said::Saved { carried_bytes: [7, 0] }, Said::Dumped { frozen_s: 0.5 }]
}

fn ended(code: i32) -> Said {
    Said::Ended { code, carried_bytes: [7, 0], asked: false, sent: None }
}

fn wait_for(wardens: &Wardens, count: usize) {
    let limit = Instant::now() + Duration::from_secs(60);
    while wardens.tasks().len() != count {
        assert!(Instant::now() < limit, "{:?}", wardens.tasks());
        thread::sleep(Duration::from_millis(5));
    }
}

fn dump(wardens: &Wardens, into: &Path) -> Result<Vec<ManifestFile>, String> {
    let still = |standing: &[Standing]| {
        assert!(standing.iter().all(|s| s.carried_bytes == [7, 0]));
        Ok(())
    };
    let saved = wardens.dump(&Dump {
        into,
        earlier: &run::Earlier::default(),
        limit_s: 60.0,
        dumps: &config::Criu::default(),
        has_others: false,
        wanted: &|| true,
        still: &still,
        goes_on: &|| {},
    });
    saved.map(|saved| saved.files).map_err(|e| e.to_string())
}

#[test]
fn all_tasks_stand_still_before_any_is_saved_and_all_go_on_with_the_line() {
    let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (wardens, _) = listen(run.path());
    let tasks: Vec<_> = (0..3).map(|rank| task(run.path(), member("a.1", rank, 3), good())).collect();
    wait_for(&wardens, 3);
    assert_eq!(dump(&wardens, into.path()).unwrap(), []);
    wardens.forget();
    for (rank, task) in tasks.into_iter().enumerate() {
        let folder = into.path().join(format!("a.1.{rank}"));
        let expected = [
            Order::Freeze(Ask {
                folder,
                limit_s: 60.0,
                memory_share: 0.5,
                compress: false,
                increments: Some(increments::Increments { base: None }),
                overwritten_bytes: (1 << 30) / 3,
                keeps_leftovers: true,
                tells_going_on: true,
            }),
            Order::Save,
            Order::Thaw { keep: true },
            Order::End,
        ];
        assert_eq!(task.join().unwrap(), expected);
    }
}

#[test]
fn one_task_that_fails_leaves_no_line_and_lets_all_go_on() {
    let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (wardens, _) = listen(run.path());
    let given_up = Said::Failed("given up".into());
    let one = task(run.path(), member("a.1", 0, 2), vec![Said::Frozen, given_up]);
    let other = task(run.path(), member("a.1", 1, 2), vec![Said::Failed("a GPU".into())]);
    wait_for(&wardens, 2);
    assert_eq!(dump(&wardens, into.path()).unwrap_err(), "task 1 on n1: a GPU");
    wardens.forget();
    for task in [one, other] {
        assert_eq!(task.join().unwrap().get(1), Some(&Order::Thaw { keep: false }));
    }
}

#[test]
fn a_task_killed_in_any_phase_leaves_no_line_and_lets_the_others_go_on() {
    for phase in 0..3 {
        let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (wardens, lost) = listen(run.path());
        let killed = task(run.path(), member("a.1", 0, 2), good()[..phase].to_vec());
        let mut answers = good()[..2.min(phase + 1)].to_vec();
        answers.push(if phase < 2 { Said::Failed("given up".into()) } else { Said::Dumped { frozen_s: 0.5 } });
        let other = task(run.path(), member("a.1", 1, 2), answers);
        wait_for(&wardens, 2);
        assert_eq!(dump(&wardens, into.path()).unwrap_err(), "task 0 on n0: it ended meanwhile");
        assert_eq!(lost.recv_timeout(Duration::from_secs(60)), Ok((0, Loss::Gone)));
        assert_eq!(killed.join().unwrap().len(), phase + 1);
        // Without hanging up, which would take from a slow task what it has not read.
        wardens.0.state().tasks.values_mut().for_each(|task| task.teller.tell(&Order::End).unwrap());
        let heard = other.join().unwrap();
        let thawed = heard.iter().filter(|o| matches!(o, Order::Thaw { keep } if *keep == (phase == 2)));
        assert_eq!(thawed.count(), 1, "{phase}: {heard:?}");
    }
}

#[test]
fn a_task_that_fails_between_two_orders_is_heard() {
    let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (wardens, _) = listen(run.path());
    let one = line::call(run.path(), &Hello::Task(member("a.1", 0, 2))).unwrap();
    let other = line::call(run.path(), &Hello::Task(member("a.1", 1, 2))).unwrap();
    wait_for(&wardens, 2);
    let late = thread::spawn(move || {
        let mut teller = other.teller().unwrap();
        let mut orders = other.words::<Order>();
        orders.next().unwrap();
        // The first one has failed by then.
        thread::sleep(Duration::from_millis(100));
        teller.tell(&Said::Frozen).unwrap();
        assert_eq!(orders.next(), Some(Order::Save));
        assert_eq!(orders.next(), Some(Order::Thaw { keep: false }));
        teller.tell(&Said::Failed("given up".into())).unwrap();
        orders.next()
    });
    let first = thread::spawn(move || {
        let mut teller = one.teller().unwrap();
        let mut orders = one.words::<Order>();
        orders.next().unwrap();
        teller.tell(&Said::Frozen).unwrap();
        thread::sleep(Duration::from_millis(50));
        teller.tell(&Said::Failed("criu was ended".into())).unwrap();
        assert_eq!(orders.last(), Some(Order::End));
    });
    assert_eq!(dump(&wardens, into.path()).unwrap_err(), "task 0 on n0: criu was ended");
    wardens.forget();
    assert!(late.join().is_ok() && first.join().is_ok());
}

#[test]
fn dumps_do_not_overlap_and_one_that_nobody_wants_any_more_is_none() {
    let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (wardens, _) = listen(run.path());
    let answers = vec![Said::Frozen, Said::Saved { carried_bytes: [7, 0] }, Said::Failed("given up".into())];
    let one = task(run.path(), member("a.1", 0, 1), answers);
    wait_for(&wardens, 1);
    let is_wanted = AtomicBool::new(true);
    let still = |_: &[Standing]| {
        assert_eq!(dump(&wardens, into.path()).unwrap_err(), "another dump is on its way");
        is_wanted.store(false, Ordering::SeqCst);
        Ok(())
    };
    let wanted = || is_wanted.load(Ordering::SeqCst);
    let dumps = &config::Criu::default();
    let asked = Dump {
        into: into.path(),
        earlier: &run::Earlier::default(),
        limit_s: 60.0,
        dumps,
        has_others: false,
        wanted: &wanted,
        still: &still,
        goes_on: &|| {},
    };
    assert_eq!(wardens.dump(&asked).unwrap_err().to_string(), LATE);
    wardens.forget();
    assert!(one.join().unwrap().contains(&Order::Thaw { keep: false }));
}

#[test]
fn a_task_that_is_missing_fails_the_dump_and_one_that_has_ended_is_part_of_it() {
    let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (wardens, lost) = listen(run.path());
    assert!(dump(&wardens, into.path()).unwrap_err().contains("none runs now"));
    let _one = task(run.path(), member("a.1", 0, 2), good());
    wait_for(&wardens, 1);
    assert!(dump(&wardens, into.path()).unwrap_err().contains("1 of 2 tasks"));
    let for_now = wardens.0.state().complete();
    assert!(matches!(for_now, Err(NotSaved::Ended(_))), "the next dump may be one");
    line::call(run.path(), &Hello::Task(member("a.1", 1, 2))).unwrap().leave(&ended(3), None);
    let files = dump(&wardens, into.path()).unwrap();
    assert_eq!(files.iter().map(|f| f.copy.as_str()).collect::<Vec<_>>(), ["a.1.1/ended"]);
    assert!(lost.try_recv().is_err());
}

#[test]
fn no_task_is_restored_before_all_have_put_their_files_back() {
    let run = tempfile::tempdir().unwrap();
    let (wardens, _) = listen(run.path());
    let mut one = line::call(run.path(), &Hello::Task(member("a.1", 0, 3))).unwrap();
    let mut other = line::call(run.path(), &Hello::Task(member("a.1", 1, 3))).unwrap();
    line::call(run.path(), &Hello::Task(member("a.1", 2, 3))).unwrap().leave(&ended(0), None);
    wait_for(&wardens, 2);
    one.tell(&Said::Ready).unwrap();
    thread::sleep(Duration::from_millis(20));
    assert_eq!(one.hear::<Order>().unwrap(), None);
    other.tell(&Said::Ready).unwrap();
    for line in [one, other] {
        assert_eq!(line.words::<Order>().next(), Some(Order::Restore));
    }
}

#[test]
fn a_task_without_a_word_is_lost_and_a_step_outside_forbids_the_dump() {
    let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (wardens, lost) = listen(run.path());
    drop(line::call(run.path(), &Hello::Task(member("a.1", 4, 5))).unwrap());
    assert_eq!(lost.recv_timeout(Duration::from_secs(60)), Ok((4, Loss::Gone)));
    let outside = Some("it reads a pipe".to_string());
    let step = Hello::Step { call: "b.1".into(), words: "srun cat".into(), outside, together: None, goes_on: false };
    let _line = line::call(run.path(), &step).unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while !dump(&wardens, into.path()).unwrap_err().contains("srun cat runs in no sandbox: it reads a pipe") {
        assert!(Instant::now() < limit);
    }
}

#[test]
fn a_step_that_waits_for_cpus_forbids_a_dump_only_if_it_goes_on_from_a_line() {
    let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (wardens, _lost) = listen(run.path());
    let limit = Instant::now() + Duration::from_secs(60);
    let step = |call: &str, goes_on| {
        let words = format!("srun {call}");
        let step = Hello::Step { call: call.into(), words, outside: None, together: None, goes_on };
        line::call(run.path(), &step).unwrap()
    };
    let _begins = step("a.1", false);
    assert!(dump(&wardens, into.path()).unwrap_err().contains("none runs now"));
    let _goes_on = step("b.1", true);
    while !dump(&wardens, into.path()).unwrap_err().contains("srun b.1 has not started its tasks yet") {
        assert!(Instant::now() < limit);
    }
}

#[test]
fn what_the_ranks_of_all_nodes_have_sent_is_added_up_until_the_script_begins_anew() {
    let run = tempfile::tempdir().unwrap();
    let (wardens, _lost) = listen(run.path());
    assert_eq!((wardens.sent(), wardens.together()), (None, None));
    let limit = Instant::now() + Duration::from_secs(60);
    let mut tasks = Vec::new();
    for rank in 0..2 {
        let of = Member { ranks: Some("0-1/2-3".into()), ..member("a.1", rank, 2) };
        let mut line = line::call(run.path(), &Hello::Task(of)).unwrap();
        let sent = Some(Sent { messages: 3, bytes: 70 });
        line.tell(&Said::Ended { code: 0, carried_bytes: [0, 0], asked: false, sent }).unwrap();
        tasks.push(line);
    }
    let both = Some(Sent { messages: 6, bytes: 140 });
    while wardens.sent() != both {
        assert!(Instant::now() < limit, "{:?}", wardens.sent());
        thread::sleep(Duration::from_millis(5));
    }
    for (words, why) in [("mpirun prog", "an MPI launcher starts it"), ("srun cat", "it reads standard input")] {
        let together = Some(why.to_string());
        let step = Hello::Step { call: words.into(), words: words.into(), outside: None, together, goes_on: false };
        tasks.push(line::call(run.path(), &step).unwrap());
        while wardens.together().as_deref() != Some("mpirun prog: an MPI launcher starts it") {
            assert!(Instant::now() < limit, "{:?}", wardens.together());
            thread::sleep(Duration::from_millis(5));
        }
    }
    let of = Member { ranks: Some("0/1".into()), ..member("b.1", 0, 2) };
    let mut uncounted = line::call(run.path(), &Hello::Task(of)).unwrap();
    uncounted.tell(&ended(1)).unwrap();
    while wardens.sent().is_some() {
        assert!(Instant::now() < limit, "a part is told for the whole");
        thread::sleep(Duration::from_millis(5));
    }
    wardens.forget();
    assert_eq!(wardens.sent(), None);
    assert!(wardens.together().is_some(), "a call that is not made again is still one of the script's");
}

#[test]
fn a_step_that_the_script_ends_loses_no_task() {
    let run = tempfile::tempdir().unwrap();
    let (wardens, lost) = listen(run.path());
    let step = Hello::Step { call: "a.1".into(), words: "prog".into(), outside: None, together: None, goes_on: false };
    let mut step = line::call(run.path(), &step).unwrap();
    let one = line::call(run.path(), &Hello::Task(member("a.1", 0, 1))).unwrap();
    wait_for(&wardens, 1);
    step.tell(&Said::Ending).unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while !wardens.0.state().steps.values().any(|s| s.is_ending) {
        assert!(Instant::now() < limit);
    }
    drop(one);
    wait_for(&wardens, 0);
    assert!(lost.recv_timeout(Duration::from_millis(100)).is_err());
}

#[test]
fn a_step_whose_srun_was_killed_is_told_from_one_that_somebody_has_cancelled() {
    let run = tempfile::tempdir().unwrap();
    let (wardens, lost, killed) = listen_for_killed(run.path());
    for (call, is_killed) in [("a.1", true), ("b.1", false)] {
        let step =
            Hello::Step { call: call.into(), words: "prog".into(), outside: None, together: None, goes_on: false };
        let mut step = line::call(run.path(), &step).unwrap();
        let one = line::call(run.path(), &Hello::Task(member(call, 0, 1))).unwrap();
        wait_for(&wardens, 1);
        if is_killed {
            step.tell(&Said::Killed).unwrap();
            let limit = Instant::now() + Duration::from_secs(60);
            while !wardens.0.state().killed.contains(call) {
                assert!(Instant::now() < limit);
            }
        }
        drop(one);
        assert_eq!(lost.recv_timeout(Duration::from_secs(60)).unwrap(), (0, Loss::Gone));
        assert_eq!(killed.recv().unwrap(), is_killed);
        drop(step);
        wait_for(&wardens, 0);
    }
}

#[test]
fn a_step_that_has_ended_well_hears_it_when_all_of_its_tasks_have_said_how_they_ended() {
    let run = tempfile::tempdir().unwrap();
    let (wardens, lost) = listen(run.path());
    let step = |call: &str| {
        let (call, words) = (call.into(), "srun x".into());
        line::call(run.path(), &Hello::Step { call, words, outside: None, together: None, goes_on: false }).unwrap()
    };
    let mut tasks: Vec<Line> =
        (0..3).map(|rank| line::call(run.path(), &Hello::Task(member("a.1", rank, 3))).unwrap()).collect();
    wait_for(&wardens, 3);
    let mut one = step("a.1");
    one.tell(&Said::EndedWell).unwrap();
    for (left, task) in [2, 1, 0].into_iter().zip(&mut tasks) {
        thread::sleep(Duration::from_millis(100));
        assert_eq!(one.hear::<Said>().unwrap(), None, "{left} and one more have not said it");
        task.tell(&ended(0)).unwrap();
        wait_for(&wardens, left);
    }
    let heard = |step: Line| step.words::<Said>().next();
    assert_eq!(heard(one), Some(Said::EndedWell));
    drop(tasks);
    // A task that is lost has said nothing. Its call is another one: with the line of its step all tasks of a call go.
    let task = line::call(run.path(), &Hello::Task(member("c.1", 0, 1))).unwrap();
    wait_for(&wardens, 1);
    let mut one = step("c.1");
    one.tell(&Said::EndedWell).unwrap();
    thread::sleep(Duration::from_millis(100));
    drop(task);
    assert_eq!(lost.recv().unwrap(), (0, Loss::Gone));
    assert_eq!(one.hear::<Said>().unwrap(), None);
    let mut none = step("b.1");
    none.tell(&Said::EndedWell).unwrap();
    assert_eq!(heard(none), Some(Said::EndedWell), "nothing is known of tasks of it");
}

#[test]
fn a_step_of_which_a_task_has_no_sandbox_is_ended_and_none_of_it_is_lost() {
    let run = tempfile::tempdir().unwrap();
    let (wardens, lost) = listen(run.path());
    let begun = |rank| line::call(run.path(), &Hello::Task(member("a.1", rank, 3))).unwrap();
    let (mut one, other) = (begun(0), begun(1));
    wait_for(&wardens, 2);
    one.tell(&Said::Unheld).unwrap();
    let end = |task: Line| {
        let mut teller = task.teller().unwrap();
        assert_eq!(task.words::<Order>().next(), Some(Order::End));
        teller.tell(&ended(137)).unwrap();
    };
    end(other);
    // One that calls late is of the same step.
    end(begun(2));
    wait_for(&wardens, 0);
    drop(one);
    assert!(lost.recv_timeout(Duration::from_millis(100)).is_err());
}

#[test]
fn who_does_not_know_the_secret_is_no_task() {
    let (run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (wardens, _) = listen(run.path());
    let (_others, _) = listen(other.path());
    let there = run.path().join(FOLDER).join(ADDRESS);
    std::fs::copy(there, other.path().join(FOLDER).join(ADDRESS)).unwrap();
    let refused = line::call(other.path(), &Hello::Task(member("a.1", 0, 1))).unwrap_err();
    assert!(refused.contains("is not the wrapper of the job"), "{refused}");
    assert_eq!(wardens.tasks(), []);
}

#[test]
fn a_crowd_of_strangers_holds_no_more_than_its_places_and_a_task_gets_in() {
    let run = tempfile::tempdir().unwrap();
    let (wardens, _) = listen(run.path());
    let address = std::fs::read_to_string(run.path().join(FOLDER).join(ADDRESS)).unwrap();
    let crowd: Vec<_> = (0..300)
        .map(|_| {
            let stranger = std::net::TcpStream::connect(address.trim()).unwrap();
            stranger.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stranger
        })
        .collect();
    let one = task(run.path(), member("a.1", 0, 1), vec![]);
    wait_for(&wardens, 1);
    // Who proves nothing is sent away, whether it had a place or not.
    for mut stranger in crowd {
        let heard = std::io::Read::read(&mut stranger, &mut [0; 1]);
        assert!(!matches!(&heard, Ok(1..)) && !heard.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock));
    }
    wardens.forget();
    assert_eq!(one.join().unwrap(), [Order::End]);
}

#[test]
fn a_rank_that_was_killed_takes_its_program_back_and_one_that_has_ended_stays_until_all_have() {
    let run = tempfile::tempdir().unwrap();
    let (wardens, lost) = listen(run.path());
    let with_ranks = |call: &str, rank| Member { ranks: Some("0-1/2-3".into()), ..member(call, rank, 2) };
    let ends = |member: Member, code: i32| {
        let line = line::call(run.path(), &Hello::Task(member)).unwrap();
        thread::spawn(move || line.leave(&ended(code), None))
    };
    let killed = ends(with_ranks("a.1", 1), 128 + libc::SIGKILL);
    assert_eq!(lost.recv_timeout(Duration::from_secs(60)), Ok((1, Loss::Gone)));
    killed.join().unwrap();
    let other = line::call(run.path(), &Hello::Task(with_ranks("b.1", 0))).unwrap();
    wait_for(&wardens, 1);
    // As by `MPI_Abort(comm, -1)`.
    let first = ends(with_ranks("b.1", 1), 255);
    let into = tempfile::tempdir().unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while !dump(&wardens, into.path()).unwrap_err().contains("comes to its end") {
        assert!(Instant::now() < limit);
    }
    assert!(!first.is_finished(), "the other one may need its relay");
    other.leave(&ended(0), None);
    first.join().unwrap();
    assert!(lost.try_recv().is_err());
}
