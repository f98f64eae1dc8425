//! Orders through their lives: given, handed out, answered, and never lost in silence.

use super::*;
use protocol::Verb;

fn key(run: &str) -> RunKey {
    RunKey { cluster: "c".into(), run: run.into() }
}

fn status(id: &str, run: &str) -> OrderStatus {
    OrderStatus {
        order: Order { id: id.into(), verb: Verb::Checkpoint, by: "alice".into(), begin_s: None },
        key: key(run),
        job: 7,
        at_s: 100.0,
        state: OrderState::Waiting,
        text: String::new(),
        checkpoint: None,
    }
}

fn kept(_: &OrderStatus) -> Result<()> {
    Ok(())
}

fn noted(_: &str) -> Result<()> {
    Ok(())
}

fn record(seq: u64, event: Event) -> Record {
    Record { seq, at_s: 100.0, event }
}

fn ended(seq: u64, state: &str) -> Record {
    record(seq, Event::Ended { state: state.into(), exit_code: 0 })
}

fn ordered(seq: u64, id: &str) -> Record {
    let event = Event::Ordered {
        id: id.into(),
        verb: Verb::Checkpoint,
        by: "alice".into(),
        state: OrderState::Done,
        text: "made".into(),
        checkpoint: None,
    };
    record(seq, event)
}

#[test]
fn an_order_goes_to_its_wrapper_and_comes_back_answered() {
    let orders = Orders::new(100.0);
    orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap();
    assert_eq!(
        orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap().order.id,
        "a",
        "the same again is the same"
    );
    assert_eq!(orders.post(100.0, status("a", "7.2"), (1, Giver::Owner), 0, kept), Err(NotTaken::OtherOrder));
    assert!(orders.hand_out(101.0, &key("7.2"), None, noted).unwrap().1.is_empty());
    assert_eq!(orders.hand_out(101.0, &key("7.1"), None, noted).unwrap().1.len(), 1);
    assert_eq!(orders.get(101.0, "a").unwrap().0.state, OrderState::Taken);
    orders.heard(102.0, &key("7.2"), [&ordered(1, "a")]);
    assert_eq!(orders.get(102.0, "a").unwrap().0.state, OrderState::Taken, "only its own run answers it");
    orders.heard(102.0, &key("7.1"), [&ordered(1, "a")]);
    assert_eq!(orders.get(102.0, "a").unwrap().0.state, OrderState::Done);
    assert!(orders.hand_out(102.0, &key("7.1"), None, noted).unwrap().1.is_empty());
    assert!(orders.get(102.0 + REMEMBERED_S, "a").is_none());
}

#[test]
fn no_user_can_keep_others_from_giving_orders() {
    let orders = Orders::new(100.0);
    let post = |i: usize, owner: u32, giver: Giver| {
        let run = format!("{owner}.{}", i / MOST_OF_RUN);
        orders.post(100.0, status(&format!("{owner}-{i}-{giver:?}"), &run), (owner, giver), 0, kept)
    };
    for owner in 1..=8 {
        assert!((0..MOST_OF_USER).all(|i| post(i, owner, Giver::Owner).is_ok()), "{owner}");
        assert!(matches!(post(MOST_OF_USER, owner, Giver::Owner), Err(NotTaken::TooMany(_))));
    }
    assert!(matches!(post(0, 9, Giver::Owner), Err(NotTaken::TooMany(why)) if why.contains("all users")));
    assert!((0..MOST_OF_RUN).all(|i| post(i, 1, Giver::Operator).is_ok()), "on a run with as many as may be");
    assert!(post(0, 9, Giver::Operator).is_ok());
}

#[test]
fn an_order_is_for_the_life_of_the_job_that_it_was_given_for() {
    let orders = Orders::new(100.0);
    orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap();
    let heard = |life| orders.hand_out(101.0, &key("7.1"), Some(life), noted).unwrap().1.len();
    assert_eq!(heard(1), 0, "it was requeued, and its start is on its way");
    assert_eq!(orders.get(101.0, "a").unwrap().0.state, OrderState::Waiting);
    assert_eq!(heard(0), 1);
}

#[test]
fn no_order_is_lost_in_silence() {
    let ended = ended(1, "completed");
    type Fate = fn(&Orders, &Record);
    let fates: [(Fate, &str); 3] = [
        (|o, _| drop(o.get(161.0, "a")), "the run's wrapper did not ask for orders within 60 s"),
        (|o, ended| o.heard(101.0, &key("7.1"), [ended]), "the run ended before: completed"),
        (|o, _| o.close(101.0, &key("7.1")), "the run ended without its wrapper's word"),
    ];
    for (fate, text) in fates {
        let orders = Orders::new(100.0);
        orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap();
        fate(&orders, &ended);
        let (after, owner) = orders.get(161.0, "a").unwrap();
        assert_eq!((after.state, after.text.as_str(), owner), (OrderState::Failed, text, 1));
    }
}

#[test]
fn a_journal_that_is_sent_again_fails_nothing() {
    let orders = Orders::new(100.0);
    let journal = [record(1, Event::CheckpointFailed { reason: "full".into() }), ended(2, "requeued")];
    orders.heard(100.0, &key("7.1"), &journal);
    orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 1, kept).unwrap();
    orders.heard(101.0, &key("7.1"), &journal);
    assert_eq!(orders.get(101.0, "a").unwrap().0.state, OrderState::Waiting);
    orders.heard(102.0, &key("7.1"), [&ended(3, "completed")]);
    assert_eq!(orders.get(102.0, "a").unwrap().0.state, OrderState::Failed);
}

#[test]
fn an_order_that_is_not_kept_is_not_given_and_one_that_is_not_noted_is_not_handed_out() {
    let orders = Orders::new(100.0);
    let fails = || Err(store::Error::NoWriter);
    assert_eq!(orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, |_| fails()), Err(NotTaken::NotKept));
    assert!(orders.get(100.0, "a").is_none());
    orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap();
    assert!(orders.hand_out(100.0, &key("7.1"), None, |_| fails()).is_err());
    assert_eq!(orders.get(100.0, "a").unwrap().0.state, OrderState::Waiting);
}

#[test]
fn a_start_of_the_service_finds_every_order_as_it_stands() {
    let of = |id: &str, state, records, is_open| {
        let status = OrderStatus { state, ..status(id, &format!("{id}.1")) };
        KeptOrder { status, owner: 1, restart_count: 1, records, is_open }
    };
    let started = |restart_count| Event::Started {
        job: 7,
        restart_count,
        user: "alice".into(),
        account: String::new(),
        partition: String::new(),
        job_name: String::new(),
        nodes: Vec::new(),
        resumed_from: None,
        dir: String::new(),
    };
    use OrderState::{Done, Failed, Taken, Waiting};
    let orders = Orders::new(150.0);
    orders.take_up(
        150.0,
        vec![
            of("waits", Waiting, vec![], true),
            of("taken", Taken, vec![record(5, started(1))], true),
            of("done", Taken, vec![record(5, ordered(5, "done").event)], true),
            of("requeued", Waiting, vec![record(5, started(2))], true),
            of("over", Taken, vec![], false),
        ],
    );
    for (id, state) in [("waits", Waiting), ("taken", Taken), ("done", Done), ("requeued", Failed), ("over", Failed)] {
        assert_eq!(orders.get(150.0, id).unwrap().0.state, state, "{id}");
    }
    assert_eq!(orders.hand_out(150.0, &key("waits.1"), None, noted).unwrap().1.len(), 1);
    assert_eq!(
        orders.hand_out(150.0, &key("taken.1"), None, noted).unwrap().1.len(),
        1,
        "its wrapper knows it by its id"
    );
    orders.heard(151.0, &key("taken.1"), [&record(4, started(0))]);
    assert_eq!(orders.get(151.0, "taken").unwrap().0.state, Taken, "a journal that is sent again fails nothing");
    assert_eq!(orders.get(151.0 + HEARD_S, "waits").unwrap().0.state, Taken);
    // A wrapper that is stopped answers no more; one that works on an order asks for the next.
    assert_eq!(orders.hand_out(300.0, &key("waits.1"), None, noted).unwrap().1.len(), 1);
    assert_eq!(orders.get(151.0 + SILENT_S, "taken").unwrap().0.state, Failed);
    assert_eq!(orders.get(151.0 + SILENT_S, "waits").unwrap().0.state, Taken);
}

#[test]
fn what_waits_is_bounded() {
    let orders = Orders::new(100.0);
    for i in 0..MOST_OF_RUN {
        orders.post(100.0, status(&i.to_string(), "7.1"), (1, Giver::Owner), 0, kept).unwrap();
    }
    let more = orders.post(100.0, status("more", "7.1"), (1, Giver::Owner), 0, kept);
    assert!(matches!(more, Err(NotTaken::TooMany(_))));
    orders.post(100.0, status("other", "8.1"), (1, Giver::Owner), 0, kept).unwrap();
    for seq in 1..=MOST as u64 + 100 {
        let id = format!("n{seq}");
        orders.post(100.0, status(&id, "9.1"), (1, Giver::Owner), 0, kept).unwrap();
        orders.heard(100.0 + seq as f64 / 1e4, &key("9.1"), [&ordered(seq, &id)]);
    }
    assert_eq!(orders.book.lock().orders.len(), MOST);
    assert!(orders.get(101.0, "n1").is_none(), "the first answered is forgotten first");
    assert!(orders.get(101.0, "0").is_some(), "an unanswered one is not");
}

#[tokio::test]
async fn whoever_waits_hears_at_once() {
    let orders = std::sync::Arc::new(Orders::new(100.0));
    let (since, _) = orders.hand_out(100.0, &key("7.1"), None, noted).unwrap();
    let waiting = tokio::spawn({
        let orders = orders.clone();
        async move { orders.news(&key("7.1"), since, Duration::from_secs(3600)).await }
    });
    orders.post(100.0, status("other", "8.1"), (1, Giver::Owner), 0, kept).unwrap();
    orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap();
    waiting.await.unwrap();
    let (news, _) = orders.hand_out(100.0, &key("7.1"), None, noted).unwrap();
    assert_ne!(news, since);
    orders.close(101.0, &key("7.1"));
    orders.settled("a", Duration::from_secs(3600)).await;
}

#[test]
fn slurm_is_told_once_when_a_vacated_run_begins_again() {
    let orders = Orders::new(100.0);
    let vacate = |id: &str, begin_s| {
        let mut vacate = status(id, "7.1");
        vacate.order = Order { id: id.into(), verb: Verb::Vacate, by: "alice".into(), begin_s };
        vacate
    };
    let tell = |life: u32, succeeds: bool| {
        let mut told_s = None;
        let told = orders.tell_begin(&key("7.1"), life, |begin_s| {
            told_s = Some(begin_s);
            if succeeds { Ok(()) } else { Err("slurmctld is away") }
        });
        (told, told_s)
    };
    orders.post(100.0, vacate("a", None), (1, Giver::Owner), 0, kept).unwrap();
    orders.post(100.0, vacate("b", Some(500.0)), (1, Giver::Owner), 0, kept).unwrap();
    assert_eq!(tell(0, true), (None, None), "nothing was done yet");
    orders.heard(101.0, &key("7.1"), [&ordered(1, "b")]);
    assert_eq!(tell(1, true), (None, None), "of another life");
    assert_eq!(tell(0, false), (Some(Err("slurmctld is away")), Some(500.0)));
    assert_eq!(tell(0, true), (Some(Ok(())), Some(500.0)));
    assert_eq!(tell(0, true), (Some(Ok(())), None), "whoever has changed it since means it");
}
