//! The parsers on what Slurm 22.05, 24.11 and 26.05 really printed, with what a hostile user could put into it.

use slurm::{
    Exit, Job, JobState, parse_accounting, parse_events, parse_job, parse_jobs, parse_nodes, parse_partitions,
    parse_steps,
};

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("recorded/22.05/", $name, ".txt"))
    };
}

fn job(id: u32) -> Job {
    let (jobs, _) = parse_jobs(recorded!("jobs"));
    jobs.into_iter().find(|j| j.id == id).expect("recorded")
}

#[test]
fn a_running_job_on_two_nodes() {
    let job = job(2);
    assert_eq!(job.name, "spaces in name");
    assert_eq!((job.user.as_str(), job.uid, job.account.as_str()), ("jpalice", 999, "physics"));
    assert_eq!(job.state, JobState::Running);
    assert_eq!((job.nodes.join(" ").as_str(), job.batch_host.as_deref()), ("n1 n2", Some("n1")));
    assert_eq!((job.batch, job.requeue, job.restarts, job.num_cpus), (true, true, 0, 2));
    assert_eq!(job.time_limit_s, Some(((24 + 2) * 60 + 4) * 60));
    assert_eq!((job.start_s, job.end_s), (Some(1_795_239_487.0), Some(1_795_333_327.0)));
    assert_eq!((job.reason.as_str(), job.command.as_str(), job.work_dir.as_str()), ("", "", "/tmp"));
    assert_eq!(job.comment, "line one");
}

#[test]
fn a_waiting_job_has_no_nodes_and_no_end() {
    let job = job(3);
    assert_eq!((job.state, job.reason.as_str()), (JobState::Pending, "BeginTime"));
    assert_eq!((job.nodes.len(), job.batch_host, job.requeue), (0, None, false));
    assert_eq!((job.time_limit_s, job.end_s), (None, None));
    assert_eq!(job.eligible_s, Some(1_795_243_086.0));
    assert_eq!((job.required_nodes + &job.excluded_nodes + &job.features, job.asks_more), (String::new(), false));
}

#[test]
fn ends_are_told_apart() {
    assert_eq!((job(4).state, job(4).exit), (JobState::Failed, Exit { code: 3, signal: 0 }));
    assert_eq!((job(5).state, job(5).exit), (JobState::Failed, Exit { code: 0, signal: 9 }));
    assert_eq!(job(5).reason, "JobLaunchFailure");
    let cancelled = parse_job(recorded!("cancelled"), 2).expect("parses").expect("there");
    assert_eq!((cancelled.state, cancelled.exit.signal), (JobState::Cancelled, 15));
    let completing = parse_job(recorded!("completing"), 2).expect("parses").expect("there");
    assert_eq!(completing.state, JobState::Completing);
    assert!(completing.has_flag("COMPLETING"));
}

#[test]
fn array_tasks_are_jobs_of_their_own() {
    assert_eq!((job(8).state, job(8).name.as_str()), (JobState::Running, "array"));
    assert_eq!(job(6).state, JobState::Pending);
}

#[test]
fn a_name_that_forges_a_state_is_not_believed() {
    // JobName='x JobState=COMPLETED y', and a comment with 'UserId=root(0)'.
    let e = parse_job(recorded!("requeued"), 1).expect_err("forged").to_string();
    assert!(e.contains("job 1") && e.contains("it is not trusted"), "{e}");
}

#[test]
fn a_comment_that_forges_a_record_does_not_stand_in_for_the_true_one() {
    // The comment of job 2 holds a line 'JobId=1 JobName=forged UserId=root(0) JobState=RUNNING'.
    let (jobs, doubtful) = parse_jobs(recorded!("jobs"));
    assert!(jobs.iter().all(|j| j.id != 1 && j.name != "forged"));
    assert_eq!(doubtful.into_iter().collect::<Vec<_>>(), [1]);
    assert_eq!(jobs.len(), 7);
}

#[test]
fn nodes_with_states_reasons_and_ports() {
    let nodes = parse_nodes(recorded!("nodes")).expect("parses");
    let short: Vec<String> = nodes.iter().map(|n| format!("{} {}{}", n.name, n.state, n.flags.concat())).collect();
    assert_eq!(short, ["n1 ALLOCATED", "n2 MIXED", "n3 MIXEDDRAIN", "n4 DOWN"]);
    assert_eq!((nodes[0].addr.as_str(), nodes[0].port), ("127.0.0.1", Some(21502)));
    assert_eq!((nodes[0].cpus, nodes[0].memory_mib, nodes[0].version.as_str()), (2, 2000, "22.05.8"));
    assert_eq!((nodes[2].reason.as_str(), nodes[2].reason_by.as_str()), ("disk broken", "root"));
    assert_eq!(nodes[2].reason_s, Some(1_795_239_490.0));
}

#[test]
fn a_reason_that_reads_like_a_field_is_text() {
    let nodes = parse_nodes(recorded!("nodes")).expect("parses");
    assert_eq!(nodes[3].reason, "joulepoint: no slurmd = no work, State=IDLE");
    assert_eq!(nodes[3].state, "DOWN");
}

#[test]
fn node_states_with_marks() {
    let state = |text: &str| {
        let node = slurm::parse_node(&format!("NodeName=x State={text} ThreadsPerCore=1")).expect("parses");
        format!("{} {}", node.state, node.flags.join(","))
    };
    assert_eq!(state("DOWN*+DRAIN"), "DOWN NOT_RESPONDING,DRAIN");
    assert_eq!(state("IDLE+COMPLETING+NOT_RESPONDING"), "IDLE COMPLETING,NOT_RESPONDING");
    assert_eq!(state("IDLE~"), "IDLE POWERED_DOWN");
    assert_eq!(state("UNKNOWN"), "UNKNOWN ");
}

#[test]
fn partitions_with_limits_and_states() {
    let all = parse_partitions(recorded!("partitions")).expect("parses");
    let short: Vec<_> = all.iter().map(|p| (p.name.as_str(), p.is_default, p.is_up, p.max_time_s)).collect();
    let wanted = [
        ("debug", false, true, Some(1800)),
        ("main", true, true, Some(86_400)),
        ("gpu", false, true, None),
        ("scavenger", false, false, None),
    ];
    assert_eq!(short, wanted);
    assert!(all.iter().all(|p| !p.is_preemptible));
    let preempting = recorded!("partitions").replace("PreemptMode=OFF", "PreemptMode=GANG,REQUEUE");
    assert!(parse_partitions(&preempting).expect("parses").iter().all(|p| p.is_preemptible));
    let e = parse_partitions("PartitionName=x Default=NO State=UP PreemptMode=OFF").expect_err("no limit").to_string();
    assert!(e.contains("MaxTime"), "{e}");
}

/// The same small cluster on a newer series: jobs 1 (running, two nodes), 2 (exit 3), 3 (waits), 4 (killed).
fn newer(series: &str, text: [&str; 4]) {
    let [jobs, nodes, steps, requeued] = text;
    let (jobs, doubtful) = parse_jobs(jobs);
    assert!(doubtful.is_empty(), "{series}: {doubtful:?}");
    let short: Vec<String> = jobs
        .iter()
        .map(|j| {
            format!("{} {} {} {}:{} {}", j.id, j.name, j.state.as_str(), j.exit.code, j.exit.signal, j.nodes.len())
        })
        .collect();
    let wanted =
        ["1 spaces in name RUNNING 0:0 2", "2 fail FAILED 3:0 1", "3 pend PENDING 0:0 0", "4 killed FAILED 0:9 1"];
    assert_eq!(short, wanted, "{series}");
    assert_eq!((jobs[0].comment.as_str(), jobs[0].work_dir.as_str()), ("two words", "/tmp"), "{series}");
    assert_eq!(jobs[0].admin_comment, r#"{"joulepoint":1,"run":"1.2","joules":3.5}"#, "{series}");
    assert_eq!((jobs[0].account.as_str(), jobs[0].batch_host.as_deref()), ("", Some("n1")), "{series}");
    let nodes = parse_nodes(nodes).expect(series);
    assert_eq!((nodes[0].state.as_str(), nodes[0].port), ("MIXED", Some(7001)), "{series}");
    assert!(nodes[1].has_flag("DRAIN"), "{series}");
    assert_eq!(nodes[1].reason, "joulepoint: a b", "{series}");
    let steps = parse_steps(steps, 1).expect(series);
    assert_eq!((steps.len(), steps[1].id.as_str(), steps[1].nodes.len()), (2, "1.0", 2), "{series}");
    let requeued = parse_job(requeued, 1).expect(series).expect(series);
    assert_eq!((requeued.state, requeued.restarts, requeued.reason.as_str()), (JobState::Pending, 1, "BeginTime"));
    assert_eq!(requeued.eligible_s.zip(requeued.submit_s).map(|(e, s)| e - s), Some(121.0), "{series}");
}

#[test]
fn slurm_24_11_reads_the_same() {
    newer(
        "24.11",
        [
            include_str!("recorded/24.11/jobs.txt"),
            include_str!("recorded/24.11/nodes.txt"),
            include_str!("recorded/24.11/steps.txt"),
            include_str!("recorded/24.11/requeued.txt"),
        ],
    );
}

#[test]
fn slurm_26_05_reads_the_same() {
    newer(
        "26.05",
        [
            include_str!("recorded/26.05/jobs.txt"),
            include_str!("recorded/26.05/nodes.txt"),
            include_str!("recorded/26.05/steps.txt"),
            include_str!("recorded/26.05/requeued.txt"),
        ],
    );
}

#[test]
fn steps_of_a_job() {
    let steps = parse_steps(recorded!("steps"), 2).expect("parses");
    assert_eq!(steps.len(), 2);
    assert_eq!((steps[0].id.as_str(), steps[0].is_users()), ("2.batch", false));
    assert_eq!((steps[1].id.as_str(), steps[1].is_users()), ("2.0", true));
    assert_eq!((steps[1].nodes.join(" ").as_str(), steps[1].name.as_str()), ("n1 n2", "sleep"));
    assert!(parse_steps(recorded!("steps"), 20).expect("parses").is_empty(), "2.0 is not a step of job 20");
}

#[test]
fn accounting_keeps_the_lives_of_a_requeued_job_apart() {
    let lives = parse_accounting(recorded!("sacct")).expect("parses");
    let of = |job: u32| lives.iter().filter(|l| l.job == job).collect::<Vec<_>>();
    assert_eq!(of(1).len(), 2);
    assert_eq!(of(1)[0].state_text, "REQUEUED");
    assert_eq!((of(1)[1].state, of(1)[1].start_s), (JobState::Pending, None));
    assert_eq!((of(2)[0].state, of(2)[0].nodes.len()), (JobState::Cancelled, 2));
    assert_eq!(of(2)[0].state_text, "CANCELLED by 0");
    assert_eq!((of(5)[0].exit.signal, of(5)[0].consumed_j), (9, None));
    assert_eq!(of(3)[0].nodes.len(), 0, "'None assigned'");
    let newer = parse_accounting(include_str!("recorded/26.05/sacct.txt")).expect("parses");
    let consumed: Vec<_> = newer.iter().map(|l| (l.job, l.consumed_j)).collect();
    assert_eq!(consumed, [(1, Some(999.0)), (2, None)], "job 1's energy was set with sacctmgr");
}

#[test]
fn only_what_died_is_a_failure_and_the_record_begins_with_the_cluster() {
    let history = parse_events(recorded!("events")).expect("parses");
    assert_eq!(history.from_s, Some(1_795_245_194.0));
    let failures: Vec<_> =
        history.events.iter().map(|e| (e.node.as_str(), e.is_failure(), e.end_s.is_some())).collect();
    assert_eq!(failures, [("n1", true, true), ("n2", false, true), ("n3", true, false)]);
    assert_eq!(history.events[1].reason, "broken|disk fan");
    let newer = parse_events(include_str!("recorded/26.05/events.txt")).expect("parses");
    assert_eq!((newer.events.len(), newer.events[0].reason.as_str()), (1, "joulepoint: test|x"));
    assert!(parse_events("n1|soon|Unknown|DOWN|x").is_err());
}

#[test]
fn nothing_is_nothing() {
    let (jobs, doubtful) = parse_jobs("No jobs in the system\n");
    assert!(jobs.is_empty() && doubtful.is_empty());
    assert!(parse_nodes("").expect("parses").is_empty());
    assert!(parse_accounting("\n").expect("parses").is_empty());
    assert_eq!(parse_events("").expect("parses").from_s, None);
    assert_eq!(parse_job("", 1).expect("parses"), None);
}

#[test]
fn no_line_however_cut_makes_a_parser_panic() {
    for text in [recorded!("jobs"), recorded!("nodes"), recorded!("sacct"), recorded!("steps"), recorded!("events")] {
        for cut in (0..text.len()).step_by(13).filter(|c| text.is_char_boundary(*c)) {
            let _ = parse_jobs(&text[cut..]);
            let _ = parse_nodes(&text[..cut]);
            let _ = parse_accounting(&text[cut..]);
            let _ = parse_events(&text[cut..]);
            let _ = parse_steps(&text[..cut], 2);
        }
    }
}
