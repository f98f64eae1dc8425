//! Loans through the real daemon, with a Slurm of a few lines: the whole way, a kill in the middle, and the sweep.

use crate::site::{ALICE, MALLORY, Site, daemon, is_root, job_line, refused, started, until};
use protocol::{Loan, LoanProgress, LoanRequest, LoanState, VERSION};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};
use wire::Error;

/// A `scontrol` that keeps job 7, its helper 9 and one reservation in files, and does what the broker asks.
fn teach_slurm(site: &Site) {
    let d = site.dir.path().display();
    let script = format!(
        "#!/bin/bash\necho \"$@\" >> {d}/asked\n\
         for word in \"$@\"; do case $word in\n\
         ReservationName=*) name=${{word#*=}} ;; StartTime=uts*) start=${{word#*=uts}} ;;\n\
         StartTime=now) start=$(date +%s) ;; Users=*) users=${{word#*=}} ;; TimeLimit=*) limit=${{word#*=}} ;; esac; done\n\
         reserve() {{ echo \"ReservationName=$name StartTime=$start EndTime=9999999999 Nodes=n2 Users=$users\" > {d}/resv.new; mv {d}/resv.new {d}/resv; }}\n\
         case \"$*\" in\n\
         'show node -o') cat {d}/nodes ;;\n\
         'show reservation -o') cat {d}/resv ;;\n\
         'show step '*) echo 'job step not found' >&2; exit 1 ;;\n\
         'show config') echo 'SchedulerParameters = bf_interval=2,permit_job_expansion' ;;\n\
         'create reservation '*) reserve ;;\n\
         'update ReservationName='*) : ${{start:=$(sed 's/.*StartTime=\\([0-9]*\\).*/\\1/' {d}/resv)}}; reserve ;;\n\
         'delete '*) sed -i \"/^ReservationName=$name /d\" {d}/resv ;;\n\
         'update JobId=5_7 NodeList='*) sed -i \"s/NodeList=[^ ]*/$3/\" {d}/jobs ;;\n\
         'update JobId=5_7 TimeLimit='*) sed -i \"s/TimeLimit=[^ ]*/TimeLimit=00:$limit:00/\" {d}/jobs ;;\n\
         'update JobId=9 NumNodes=0') sed -i -e '/^JobId=9 /d' -e 's/NodeList=n1 /NodeList=n[1-2] /' {d}/jobs ;;\nesac\n"
    );
    let bin = site.dir.path().join("bin/scontrol");
    site.put("resv", "");
    let more = "JobState=RUNNING Reason=None Requeue=1 TimeLimit=00:10:00 EndTime=9999999999 OverSubscribe=NO";
    site.put("jobs", &job_line(7, ALICE, more));
    // Beside the old one and renamed: that may be running.
    let new = bin.with_extension("new");
    fs::copy(&bin, &new).expect("executable");
    fs::write(&new, script).expect("written");
    fs::rename(new, bin).expect("renamed");
}

fn ask(site: &Site, uid: u32, id: &str, node: &str) -> Result<Loan, Error> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
    let nodes = vec![node.to_string()];
    let (id, job, reason) = (id.to_string(), "7".to_string(), "it pays".to_string());
    let wish = LoanRequest { version: VERSION, id, job, nodes, return_s: now_s + 120.0, reason };
    site.as_user(uid, move |c| c.post("/v1/loans", &wish))
}

fn look(site: &Site, uid: u32, id: &str) -> Result<Loan, Error> {
    let path = format!("/v1/loans/{id}");
    site.as_user(uid, move |c| c.get(&path))
}

fn reach(site: &Site, id: &str, state: LoanState) -> Loan {
    until(state.as_str(), || look(site, ALICE, id).ok().filter(|l| l.state == state))
}

fn read(site: &Site, file: &str) -> String {
    fs::read_to_string(site.dir.path().join(file)).expect("read")
}

fn restart(site: &mut Site) {
    site.child.kill().expect("killed");
    site.child.wait().expect("waited");
    site.child = daemon(&site.dir.path().join("joulepoint.toml"), &["--role=controller"]);
    site.wait_until_well();
}

#[test]
fn a_loan_goes_its_way_through_a_kill_and_only_its_owner_steers_it() {
    if !is_root() {
        return;
    }
    let mut site = Site::start(1);
    teach_slurm(&site);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    refused(ask(&site, MALLORY, "his", "n2"), 404);
    refused(ask(&site, ALICE, "../a", "n2"), 400);
    refused(ask(&site, ALICE, "host", "n1"), 409);
    let first = ask(&site, ALICE, "a1", "n2").expect("allowed");
    assert_eq!((first.state, first.job, first.kept.len()), (LoanState::Asked, 7, 1));
    refused(ask(&site, ALICE, "a2", "n2"), 409);
    reach(&site, "a1", LoanState::Lent);
    assert_eq!(ask(&site, ALICE, "a1", "n2").expect("the same").asked_s, first.asked_s);
    assert!(read(&site, "resv").contains("Users=root\n"), "{}", read(&site, "resv"));
    restart(&mut site);
    reach(&site, "a1", LoanState::Lent);
    let now = LoanProgress { version: VERSION, return_s: 0.0 };
    refused(look(&site, MALLORY, "a1"), 404);
    refused(site.as_user(MALLORY, move |c| c.post::<_, Loan>("/v1/loans/a1/return", &now)), 404);
    let told: Loan = site.as_user(ALICE, move |c| c.post("/v1/loans/a1/return", &now)).expect("told");
    assert_eq!((told.return_s, told.promised_s), (0.0, first.return_s));
    until("the lender in the reservation", || read(&site, "resv").contains(&format!("u{ALICE}")).then_some(()));
    assert_eq!(reach(&site, "a1", LoanState::Returning).back, ["n2"]);
    let helper = format!(
        "JobId=9 JobName=joulepoint_a1 UserId=u{ALICE}({ALICE}) GroupId=g(1) JobState=RUNNING NodeList=n2 NumNodes=1\n"
    );
    site.put("jobs", &(read(&site, "jobs") + &helper));
    let closed = reach(&site, "a1", LoanState::Closed);
    assert_eq!(closed.back, ["n2"]);
    let jobs = read(&site, "jobs");
    assert!(jobs.contains("NodeList=n[1-2]") && jobs.contains("TimeLimit=00:11:00"), "{jobs}");
    assert_eq!(read(&site, "resv"), "");
    let all: Vec<Loan> = site.as_user(ALICE, |c| c.get("/v1/loans?job=7")).expect("hers");
    assert_eq!(all, [closed]);
    assert_eq!(site.as_user(MALLORY, |c| c.get::<Vec<Loan>>("/v1/loans")).expect("none"), []);

    // What a crash left is removed at the start; a name that no loan has is somebody else's.
    let line = |name: &str| format!("ReservationName={name} StartTime=5 EndTime=9999999999 Nodes=n2 Users=root\n");
    site.put("resv", &(line("joulepoint_a1") + &line("joulepoint_theirs")));
    restart(&mut site);
    until("the sweep", || (read(&site, "resv") == line("joulepoint_theirs")).then_some(()));
}
