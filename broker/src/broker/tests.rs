//! How often a look lists the queue, and who waits for the disk.

use super::*;
use crate::machine::example;
use crate::ports::NotOrdered;
use protocol::{Order, OrderState};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A service that knows of nothing.
struct Nobody;

impl Ports for Nobody {
    fn expect_heartbeats(&self, _: &[String]) {}

    fn joules(&self, _: &str, _: u32) -> Option<f64> {
        None
    }

    fn requeueing(&self, _: &[OpenRun]) {}

    fn order_state(&self, _: &str) -> Option<OrderState> {
        None
    }

    fn order(&self, _: &OpenRun, _: Order) -> Result<(), NotOrdered> {
        Ok(())
    }

    fn over(&self, _: &Loan) {}
}

/// A broker of these loans, beside a Slurm that has no job and notes what `squeue` is asked.
fn broker(dir: &Path, loans: &[Loan]) -> Broker {
    let (jobs, asked) = (dir.join("jobs"), dir.join("asked"));
    fs::write(&jobs, "").unwrap();
    let squeue = format!("#!/bin/sh\necho \"$*\" >>{}\n{}", asked.display(), slurm::example::squeue(&jobs));
    for (name, script) in [("squeue", squeue.as_str()), ("scontrol", "#!/bin/sh\n")] {
        fs::write(dir.join(name), script).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let place = dir.join("store.sqlite");
    let mut store = Store::open(&place).unwrap();
    loans.iter().for_each(|loan| store.save_lending(loan).unwrap());
    let broker = Broker::new(Parts {
        site: Lend::default(),
        defaults: BTreeMap::new(),
        idle_w: 100.0,
        slurm: Slurm::new(Some(dir.to_path_buf())),
        store: Arc::new(Mutex::new(store)),
        reader: Arc::new(Mutex::new(Store::open_again(&place).unwrap())),
        readers: Arc::new(Readers::open(&place).unwrap()),
        ports: Arc::new(Nobody),
    });
    broker.take_up_loans().unwrap();
    broker
}

fn loan(id: &str, state: LoanState, lent_s: Option<f64>) -> Loan {
    let (id, name) = (id.to_string(), format!("{PREFIX}{id}"));
    Loan { id, name, state, state_s: now_s(), lent_s, back_s: None, back: Vec::new(), stays: Vec::new(), ..example() }
}

#[test]
fn one_listing_serves_what_all_loans_do_next() {
    let dir = tempfile::tempdir().unwrap();
    let broker = broker(dir.path(), &["a", "b", "c"].map(|id| loan(id, LoanState::Asked, None)));
    let mut listing = Duration::ZERO;
    broker.look_at_loans(&mut listing).unwrap();
    assert!(broker.open.lock().is_empty(), "their lender is gone: each is closed in two steps");
    let asked = fs::read_to_string(dir.path().join("asked")).unwrap();
    let of_all = |line: &&str| !["--jobs", "--name", "--helpFormat"].iter().any(|of| line.contains(of));
    assert_eq!(asked.lines().filter(of_all).count(), 2, "{asked}");
    assert!(listing > Duration::ZERO);
}

#[test]
fn who_asks_what_is_lent_does_not_wait_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let lent_s = now_s();
    let loan = loan("a", LoanState::Lent, Some(lent_s));
    let broker = broker(dir.path(), std::slice::from_ref(&loan));
    let run = OpenRun {
        key: loan.key.clone(),
        uid: loan.uid,
        job: loan.job,
        restart_count: loan.restart_count,
        nodes: vec!["n1".into(), "n2".into(), "n3".into()],
        record_state: "running".into(),
        protection: String::new(),
    };
    std::thread::scope(|scope| {
        let disk = broker.store.lock();
        let changing = scope.spawn(|| broker.expect_return("a", lent_s + 60.0));
        while broker.changing.try_lock().is_some() {
            std::thread::yield_now();
        }
        assert!(broker.open.try_lock_for(Duration::from_secs(10)).is_some());
        assert!(broker.has_lent(&run, "n2"));
        drop(disk);
        changing.join().unwrap().unwrap();
    });
    assert_eq!(broker.get("a").unwrap().return_s, lent_s + 60.0);
}
