//! Orders through the real daemon: given, handed to the wrapper at once, answered from its records.

use crate::contract::{answer, body, fits, value};
use crate::site::{ALICE, MALLORY, SLURM_USER, Site, beat, ended, is_root, job_line, refused, started, until};
use protocol::{BeatReply, Event, OffReply, OffRequest, OrderRequest, OrderState, OrderStatus, RunHealth, Verb};
use std::time::Duration;
use wire::{Client, Error};

fn give(site: &Site, uid: u32, id: &str, job: &str, verb: Verb) -> Result<OrderStatus, Error> {
    let wish = OrderRequest { version: protocol::VERSION, id: id.into(), job: job.into(), verb, begin_s: None };
    site.as_user(uid, move |c| c.post("/v1/orders", &wish))
}

fn look(site: &Site, uid: u32, id: &str, wait_s: u32) -> Result<OrderStatus, Error> {
    let path = format!("/v1/orders/{id}?wait_s={wait_s}");
    site.as_user(uid, move |c| c.within(Duration::from_secs(90)).get(&path))
}

fn health(client: &Client, question: &str) -> RunHealth {
    client.within(Duration::from_secs(90)).get(&format!("/v1/runs/c/7.1/health{question}")).expect("health")
}

fn ordered(id: &str, verb: Verb, state: OrderState) -> Event {
    Event::Ordered { id: id.into(), verb, by: "alice".into(), state, text: "so it is".into(), checkpoint: None }
}

#[test]
fn an_order_reaches_the_wrapper_at_once_and_its_answer_whoever_waits() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    let news = site.as_user(ALICE, |c| health(&c, "")).news;
    std::thread::scope(|scope| {
        // Without an answer at once this would end only after a minute, and the test with it.
        let wrapper = scope.spawn(|| site.as_user(ALICE, |c| health(&c, &format!("?since={news}&wait_s=60"))));
        let given = give(&site, ALICE, "a1", "7", Verb::Checkpoint).expect("taken");
        assert_eq!((given.state, given.job, given.key.run.as_str()), (OrderState::Waiting, 7, "7.1"));
        assert_eq!(give(&site, ALICE, "a1", "7", Verb::Checkpoint).expect("the same").order, given.order);
        refused(give(&site, ALICE, "a1", "7", Verb::Disable), 409);
        let heard = wrapper.join().expect("no panic");
        assert_eq!(heard.orders, [given.order]);
        assert!(site.as_user(ALICE, |c| health(&c, "?restart_count=1")).orders.is_empty(), "for its first life only");
        let person = scope.spawn(|| look(&site, ALICE, "a1", 60));
        site.deliver(ALICE, "7.1", 2, vec![ordered("a1", Verb::Checkpoint, OrderState::Done)]).expect("stored");
        let done = person.join().expect("no panic").expect("known");
        assert_eq!((done.state, done.text.as_str()), (OrderState::Done, "so it is"));
    });
    assert!(site.as_user(ALICE, |c| health(&c, "")).orders.is_empty());
}

#[test]
fn orders_are_for_owners_and_operators() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    for (i, job) in ["7", "5_7"].iter().enumerate() {
        give(&site, ALICE, &format!("hers{i}"), job, Verb::Checkpoint).expect("hers");
        refused(give(&site, MALLORY, &format!("his{i}"), job, Verb::Vacate), 404);
    }
    refused(look(&site, MALLORY, "hers0", 0), 404);
    let uid = |name: &str| nix::unistd::User::from_name(name).expect("users").expect("a user").uid.as_raw();
    until("Slurm's operators", || give(&site, uid("daemon"), "o1", "7", Verb::Enable).ok());
    until("SlurmUser", || give(&site, SLURM_USER, "o2", "7", Verb::Enable).ok());
    refused(give(&site, uid("games"), "o3", "7", Verb::Enable), 404);
    assert_eq!(
        site.as_user(uid("daemon"), |c| c.get::<Vec<protocol::RunAccount>>("/v1/report")).expect("all").len(),
        1
    );
}

#[test]
fn a_job_that_cannot_be_requeued_is_not_vacated() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    give(&site, ALICE, "a1", "7", Verb::Vacate).expect("it can");
    let line = job_line(7, ALICE, "JobState=RUNNING Reason=None Requeue=0");
    site.put("jobs", &line);
    assert!(refused(give(&site, ALICE, "a2", "7", Verb::Vacate), 409).contains("cannot be requeued"));
    site.deliver(ALICE, "local.1", 1, vec![started(0)]).expect("stored");
    assert!(refused(give(&site, ALICE, "a3", "0", Verb::Checkpoint), 409).contains("outside Slurm"));
}

#[test]
fn an_order_outlives_the_controller_and_what_came_of_it_is_told() {
    if !is_root() {
        return;
    }
    let mut site = Site::start(1);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    let given = give(&site, ALICE, "a1", "7", Verb::Checkpoint).expect("taken").order;
    for _ in 0..2 {
        site.restart();
        assert_eq!(site.as_user(ALICE, |c| health(&c, "")).orders.first(), Some(&given));
    }
    site.deliver(ALICE, "7.1", 2, vec![ordered("a1", Verb::Checkpoint, OrderState::Done)]).expect("stored");
    site.restart();
    assert_eq!(look(&site, ALICE, "a1", 0).expect("known").state, OrderState::Done);
    give(&site, ALICE, "a2", "7", Verb::Checkpoint).expect("taken");
    site.deliver(ALICE, "7.1", 3, vec![ended()]).expect("stored");
    let after = look(&site, ALICE, "a2", 0).expect("known");
    assert_eq!((after.state, after.text.as_str()), (OrderState::Failed, "the run ended before: completed"));
    refused(give(&site, ALICE, "a3", "7", Verb::Checkpoint), 404);
}

#[test]
fn an_operator_may_say_of_a_node_that_nobody_reaches_that_it_has_no_power() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    let of_nodes = "/v1/nodes/{node}/off";
    let request = OffRequest { version: protocol::VERSION };
    fits(&body(of_nodes), &value(&request));
    fits(&answer("post", of_nodes), &value(&OffReply { is_new: true }));
    let say = |uid, node: &str| {
        let path = of_nodes.replace("{node}", node);
        site.as_user(uid, move |c| c.post::<_, OffReply>(&path, &request))
    };
    refused(say(0, "n9"), 404);
    refused(say(ALICE, "n2"), 403);
    site.client().post::<_, BeatReply>("/v1/beats", &beat("n2")).expect("heard");
    // Its host is this one.
    until("SlurmUser", || say(SLURM_USER, "n2").err().filter(|e| e.to_string().contains("the controller reaches it")));
    refused(say(0, "n2"), 409);
    let log = site.log();
    assert!(log.contains("act=\"confirm_off\" who=\"user\""), "{log}");
}
