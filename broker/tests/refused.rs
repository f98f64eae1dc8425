//! What the broker has refused stays refused, however late the same question is heard.

use broker::{Broker, Error, NotOrdered, Parts, Ports};
use config::Lend;
use parking_lot::Mutex;
use protocol::{Loan, LoanRequest, LoanState, Order, OrderState, RunKey, VERSION};
use slurm::Slurm;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use store::{OpenRun, Readers, Store};

const ALICE: u32 = 1000;

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

/// A broker beside a Slurm that has the jobs of a file.
fn start(dir: &Path) -> Broker {
    let scontrol = "#!/bin/sh\ncase \"$*\" in\n\
                    'show step '*) echo 'job step not found' >&2; exit 1 ;;\n\
                    'show config') echo 'SchedulerParameters = permit_job_expansion' ;;\nesac\n";
    let squeue = format!("#!/bin/sh\n{}", slurm::example::squeue(&dir.join("jobs")));
    for (name, script) in [("scontrol", scontrol), ("squeue", squeue.as_str())] {
        fs::write(dir.join(name), script).expect("written");
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).expect("executable");
    }
    let place = dir.join("store.sqlite");
    let store = Store::open(&place).expect("a store");
    Broker::new(Parts {
        site: Lend::default(),
        defaults: BTreeMap::new(),
        idle_w: 100.0,
        slurm: Slurm::new(Some(dir.to_path_buf())),
        store: Arc::new(Mutex::new(store)),
        reader: Arc::new(Mutex::new(Store::open_again(&place).expect("a reader"))),
        readers: Arc::new(Readers::open(&place).expect("readers")),
        ports: Arc::new(Nobody),
    })
}

fn ask(broker: &Broker, id: &str) -> Result<Loan, Error> {
    let run = OpenRun {
        key: RunKey { cluster: "c".into(), run: "7.1".into() },
        uid: ALICE,
        job: 7,
        restart_count: 0,
        nodes: vec!["n1".into(), "n2".into()],
        record_state: "running".into(),
        protection: String::new(),
    };
    let request = LoanRequest {
        version: VERSION,
        id: id.into(),
        job: "7".into(),
        nodes: vec!["n2".into()],
        return_s: UNIX_EPOCH.elapsed().expect("a clock").as_secs_f64() + 600.0,
        reason: "it pays".into(),
    };
    broker.allow(ALICE, run, &request)
}

#[test]
fn the_same_question_is_refused_again_although_it_would_be_allowed_by_now() {
    let dir = tempfile::tempdir().expect("a folder");
    let jobs = dir.path().join("jobs");
    fs::write(&jobs, "").expect("no job");
    let broker = start(dir.path());
    let refused =
        |id: &str| matches!(ask(&broker, id), Err(Error::Refused(why)) if why.contains("does not know job 7"));
    assert!(refused("early"));
    fs::write(
        &jobs,
        "JobId=7 JobName=j UserId=alice(1000) Account=physics JobState=RUNNING Partition=all NodeList=n[1-2] BatchHost=n1 \
         OverSubscribe=NO Requeue=1 TimeLimit=01:00:00 EndTime=9999999999\n",
    )
    .expect("a job");
    assert!(refused("early"), "whoever was told so has the nodes for its own");
    let loan = ask(&broker, "late").expect("allowed");
    assert_eq!((loan.state, loan.nodes), (LoanState::Asked, vec!["n2".to_string()]));
    assert_eq!(ask(&broker, "late").expect("the same").asked_s, loan.asked_s);
}
