//! `joulepoint checkpoint`, `vacate`, `restart`, `enable` and `disable`: orders for a running job.

use crate::{Failure, out};
use ::report::moment;
use ::report::sheet::printable;
use jiff::Zoned;
use protocol::{OrderRequest, OrderState, OrderStatus, OrderedCheckpoint, Verb};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};
use wire::{Client, Error};

/// How long the controller may hold its answer back, s.
const HELD_S: u64 = 30;

/// How long the controller may be away while an order is waited for.
const AWAY: Duration = Duration::from_secs(60);

/// Pause after a question that reached nobody.
const PAUSE: Duration = Duration::from_secs(1);

/// Arguments of an order.
#[derive(clap::Args)]
pub struct SteerArgs {
    /// Job id, or ARRAY_TASK for a task of an array.
    #[arg(value_name = "JOB")]
    job: String,
    /// Return as soon as the controller has the order.
    #[arg(long)]
    no_wait: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `vacate`.
#[derive(clap::Args)]
pub struct VacateArgs {
    #[command(flatten)]
    order: SteerArgs,
    /// Let the job begin again then, and not before: as sbatch takes it, such as 20:00, tomorrow or now+2hours.
    #[arg(long, value_name = "TIME")]
    begin: Option<String>,
}

/// Lets a job leave its nodes; the exit code.
pub fn vacate(args: &VacateArgs, client: &Client) -> Result<i32, Failure> {
    let begin_s = args.begin.as_deref().map(|text| moment::parse_next(text, &Zoned::now()));
    let begin_s = begin_s.transpose().map_err(|e| Failure::Usage(format!("--begin: {e}")))?;
    give(Verb::Vacate, begin_s, &args.order, client)
}

/// Gives an order and tells what came of it; the exit code.
pub fn run(verb: Verb, args: &SteerArgs, client: &Client) -> Result<i32, Failure> {
    give(verb, None, args, client)
}

fn give(verb: Verb, begin_s: Option<f64>, args: &SteerArgs, client: &Client) -> Result<i32, Failure> {
    check(&args.job).map_err(Failure::Usage)?;
    let request = OrderRequest { version: protocol::VERSION, id: new_id(), job: args.job.clone(), verb, begin_s };
    let given: OrderStatus = patiently(|| client.post("/v1/orders", &request))?;
    let status = if args.no_wait { given } else { wait(client, given)? };
    if args.json {
        out::json(&status)?;
    } else {
        out::print(sentence(&status) + "\n")?;
    }
    Ok(i32::from(status.state == OrderState::Failed))
}

fn check(job: &str) -> Result<(), String> {
    let is_number = |t: &str| !t.is_empty() && t.parse::<u32>().is_ok();
    let fits = job.split_once('_').map_or_else(|| is_number(job), |(array, task)| is_number(array) && is_number(task));
    if fits { Ok(()) } else { Err(format!("'{job}' is no job: write 123, or 123_4 for a task of an array")) }
}

/// A name that no other order has, so that one sent twice is one order.
fn new_id() -> String {
    let some = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", some(), some())
}

/// Waits until the order is answered.
fn wait(client: &Client, given: OrderStatus) -> Result<OrderStatus, Failure> {
    let client = client.within(Duration::from_secs(HELD_S + 15));
    let path = format!("/v1/orders/{}?wait_s={HELD_S}", given.order.id);
    let mut status = given;
    while matches!(status.state, OrderState::Waiting | OrderState::Taken) {
        status = patiently(|| match client.get(&path) {
            Err(Error::Refused { status: 404, .. }) => Err(Error::Refused {
                status: 404,
                text: format!(
                    "the controller was restarted and has lost the order; whether it was obeyed shows \
                     `joulepoint report -j {}`; else give it again",
                    status.job
                ),
            }),
            answer => answer,
        })?;
    }
    Ok(status)
}

/// Asks again while the controller is away, for a while.
fn patiently(mut ask: impl FnMut() -> Result<OrderStatus, Error>) -> Result<OrderStatus, Failure> {
    let (begun, mut is_said) = (Instant::now(), false);
    loop {
        match ask() {
            Ok(status) => return Ok(status),
            Err(e @ (Error::Unreachable { .. } | Error::Unproven { .. })) if begun.elapsed() < AWAY => {
                if !std::mem::replace(&mut is_said, true) {
                    let e = printable(&e.to_string());
                    protocol::say!("joulepoint: {e}; it is asked again for {} s", AWAY.as_secs());
                }
                std::thread::sleep(PAUSE);
            }
            Err(Error::Refused { text, .. }) => return Err(anyhow::anyhow!(text).into()),
            Err(e) => return Err(anyhow::Error::from(e).into()),
        }
    }
}

fn sentence(status: &OrderStatus) -> String {
    let OrderStatus { order, job, text, .. } = status;
    let (verb, text) = (order.verb.as_str(), printable(text));
    match (status.state, &status.checkpoint) {
        (OrderState::Waiting | OrderState::Taken, _) => format!("job {job}: {verb} is ordered (order {})", order.id),
        (OrderState::Failed, _) => format!("job {job}: {verb} failed: {text}"),
        (OrderState::Done, None) => format!("job {job}: {verb}: {text}"),
        (OrderState::Done, Some(made)) => format!("job {job}: {text}\n{}", figures(made)),
    }
}

fn figures(made: &OrderedCheckpoint) -> String {
    let energy = made.joules.map_or_else(String::new, |j| format!(", {j:.1} J"));
    format!("{}\n{:.2} s, {:.3} MB{energy}", printable(&made.path), made.seconds, made.bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_named_as_people_write_them() {
        for good in ["7", "123_4"] {
            assert_eq!(check(good), Ok(()));
        }
        for bad in ["", "_", "7_", "_7", "-7", "7.0", "heat", "99999999999"] {
            assert!(check(bad).is_err_and(|e| e.contains(bad)), "{bad}");
        }
    }

    #[test]
    fn what_a_wrapper_says_of_its_checkpoint_is_one_line_that_does_not_speak_to_a_terminal() {
        let status = serde_json::json!({
            "order": { "id": "1", "verb": "checkpoint", "by": "bob" }, "key": { "cluster": "c", "run": "7.1" }, "job": 7,
            "at_s": 1.0, "state": "done", "text": "made\u{9b}31m",
            "checkpoint": { "number": 1, "path": "/run/1\u{1b}]0;x\u{7}\nroot: all is well", "seconds": 1.0, "bytes": 1,
                "joules": null }
        });
        let text = sentence(&serde_json::from_value(status).unwrap());
        assert_eq!(text, "job 7: made?31m\n/run/1?]0;x??root: all is well\n1.00 s, 0.000 MB");
    }

    #[test]
    fn no_two_orders_have_one_id() {
        let ids: std::collections::BTreeSet<String> = (0..1000).map(|_| new_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_alphanumeric())));
    }
}
