//! The parsers on what Slurm 22.05, 24.11 and 26.05 really printed, with what a hostile user could put into it.

use slurm::{
    Exit, Job, JobState, Jobs, parse_accounting, parse_events, parse_gpus_json, parse_jobs, parse_nodes,
    parse_partitions, parse_steps,
};

macro_rules! recorded {
    ($name:literal) => {
        include_str!(concat!("recorded/22.05/", $name, ".txt"))
    };
}

fn one(text: &str) -> Job {
    let Jobs { mut jobs, unreadable } = parse_jobs(text);
    assert!(unreadable.is_empty() && jobs.len() == 1, "{unreadable:?} {jobs:?}");
    jobs.remove(0)
}

fn job(id: u32) -> Job {
    parse_jobs(recorded!("squeue")).jobs.into_iter().find(|j| j.id == id).expect("recorded")
}

#[test]
fn a_running_job_on_two_nodes() {
    let job = job(1);
    assert_eq!((job.user.as_str(), job.uid, job.array, job.alone), ("jpalice", 999, None, true));
    assert_eq!(job.state, JobState::Running);
    assert_eq!((job.nodes.join(" ").as_str(), job.batch_host.as_deref()), ("n1 n2", Some("n1")));
    assert_eq!((job.batch, job.requeue, job.restarts, job.num_cpus, job.num_nodes), (true, true, 1, 4, 2));
    assert_eq!((job.time_limit_s, job.exclusive, job.asks_more), (Some(((24 + 2) * 60 + 4) * 60), true, false));
    assert_eq!((job.start_s, job.end_s), (Some(1_795_363_488.0), Some(1_795_457_328.0)));
    assert_eq!((job.reason.as_str(), job.reservation.as_str(), job.preempted), ("", "", false));
}

#[test]
fn a_waiting_job_has_no_nodes_and_no_end() {
    let job = job(3);
    assert_eq!((job.state, job.reason.as_str()), (JobState::Pending, "BeginTime"));
    assert_eq!((job.nodes.len(), job.batch_host, job.requeue, job.exclusive), (0, None, false, false));
    assert_eq!((job.time_limit_s, job.end_s), (None, None));
    assert_eq!(job.eligible_s, Some(1_795_366_945.0));
    assert_eq!((job.required_nodes + &job.features, job.asks_more), (String::new(), false));
}

#[test]
fn what_a_job_wants_of_its_nodes_is_read() {
    let job = job(10);
    assert_eq!((job.required_nodes.as_str(), job.asks_more, job.num_cpus, job.num_nodes), ("n1", true, 4, 2));
    assert_eq!(recorded!("excluded").trim(), "n2");
}

#[test]
fn ends_are_told_apart() {
    assert_eq!((job(2).state, job(2).exit), (JobState::Failed, Exit { code: 3, signal: 0 }));
    assert_eq!((job(4).state, job(4).exit), (JobState::Failed, Exit { code: 0, signal: 9 }));
    assert_eq!(job(4).reason, "JobLaunchFailure");
    let completing = one(recorded!("completing"));
    assert_eq!(completing.state, JobState::Completing);
    assert!(completing.has_flag("COMPLETING"));
    let requeued = one(recorded!("requeued"));
    assert_eq!((requeued.state, requeued.restarts, requeued.reason.as_str()), (JobState::Pending, 1, "BeginTime"));
    assert_eq!(requeued.eligible_s.zip(requeued.submit_s).map(|(e, s)| e - s), Some(121.0));
}

#[test]
fn array_tasks_are_jobs_of_their_own() {
    let tasks = [6, 7, 5].map(|id| job(id).array);
    assert_eq!(tasks, [Some((5, 0)), Some((5, 1)), Some((5, 2))]);
    assert!([5, 6, 7].iter().all(|id| !job(*id).alone));
}

#[test]
fn what_a_user_writes_into_name_and_comment_is_in_no_answer() {
    // Name and comment of job 1 hold a whole line of squeue and of scontrol, in which job 2 is root's and runs.
    for (series, text, name) in [
        ("22.05", recorded!("squeue"), recorded!("name")),
        ("24.11", include_str!("recorded/24.11/squeue.txt"), include_str!("recorded/24.11/name.txt")),
        ("26.05", include_str!("recorded/26.05/squeue.txt"), include_str!("recorded/26.05/name.txt")),
    ] {
        let forged = name.lines().find(|l| l.starts_with("2|0|root|")).expect("the name forges a line");
        assert_eq!(parse_jobs(forged).jobs.len(), 1, "{series}: what is forged would be believed");
        let Jobs { jobs, unreadable } = parse_jobs(text);
        assert!(unreadable.is_empty(), "{series}: {unreadable:?}");
        assert!(jobs.iter().all(|j| j.uid != 0 && !j.nodes.contains(&"n9".to_string())), "{series}");
        assert_eq!(jobs.iter().filter(|j| j.id == 2).map(|j| j.state).collect::<Vec<_>>(), [JobState::Failed]);
    }
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

#[test]
fn a_node_that_was_out_of_service_is_told_from_one_that_was_taken_out_after_its_death() {
    let was = |state: &str, reason: &str, at_s: f64| {
        let line = format!("NodeName=n1 State={state} CPUTot=4 Reason={reason}\n");
        parse_nodes(&line).expect("parses")[0].was_out_of_service(at_s)
    };
    let told = "bad memory [root@1795887936]";
    let at_s =
        parse_nodes(&format!("NodeName=n1 State=IDLE+DRAIN CPUTot=4 Reason={told}\n")).expect("parses")[0].reason_s;
    let at_s = at_s.expect("a time");
    for state in ["IDLE+DRAIN", "DOWN", "DOWN*+DRAIN"] {
        assert!(was(state, told, at_s + 60.0), "{state}");
        assert!(!was(state, told, at_s - 5.0), "{state}: after it was heard of last");
    }
    for state in ["MIXED+DRAIN", "ALLOCATED", "IDLE", "IDLE*", "ALLOCATED@", "MIXED+MAINTENANCE"] {
        assert!(!was(state, told, at_s + 60.0), "{state}");
    }
    for state in ["IDLE~", "IDLE%", "IDLE+MAINTENANCE", "IDLE+REBOOT_ISSUED", "IDLE@"] {
        assert!(was(state, "(null)", at_s), "{state}");
    }
}

/// The same small cluster on a newer series: jobs 2 (exit 3), 4 (killed), an array 5 and a job that wants much.
fn newer(series: &str, text: [&str; 5]) {
    let [jobs, nodes, steps, of_array, requeued] = text;
    let Jobs { jobs, unreadable } = parse_jobs(jobs);
    assert!(unreadable.is_empty(), "{series}: {unreadable:?}");
    let of = |id: u32| jobs.iter().find(|j| j.id == id).expect(series);
    let ends = [2, 4].map(|id| (of(id).state, of(id).exit.code, of(id).exit.signal));
    assert_eq!(ends, [(JobState::Failed, 3, 0), (JobState::Failed, 0, 9)], "{series}");
    assert_eq!([7, 8, 5].map(|id| of(id).array), [Some((5, 0)), Some((5, 1)), Some((5, 2))], "{series}");
    assert_eq!((of(10).required_nodes.as_str(), of(10).asks_more), ("n1", true), "{series}");
    assert_eq!((of(1).exclusive, of(2).exclusive, of(7).exclusive), (true, false, false), "{series}");
    assert_eq!((of(1).user.as_str(), of(1).uid, of(1).restarts), ("alice", 1000, 1), "{series}");
    let nodes = parse_nodes(nodes).expect(series);
    assert_eq!((nodes[0].state.as_str(), nodes[0].port), ("MIXED", Some(7001)), "{series}");
    assert!(nodes[1].has_flag("DRAIN"), "{series}");
    assert_eq!(nodes[1].reason, "joulepoint: a b", "{series}");
    let steps = parse_steps(steps, "1").expect(series);
    assert_eq!((steps.len(), steps[1].id.as_str(), steps[1].nodes.len()), (2, "1.0", 2), "{series}");
    assert_eq!(steps[1].name, "st State=X Network=a", "{series}");
    assert_eq!(parse_steps(of_array, "5_1").expect(series)[0].id, "5_1.batch", "{series}");
    let requeued = one(requeued);
    assert_eq!((requeued.state, requeued.restarts, requeued.reason.as_str()), (JobState::Pending, 1, "BeginTime"));
    assert_eq!(requeued.eligible_s.zip(requeued.submit_s).map(|(e, s)| e - s), Some(121.0), "{series}");
}

macro_rules! newer {
    ($name:ident, $series:literal) => {
        #[test]
        fn $name() {
            newer(
                $series,
                [
                    include_str!(concat!("recorded/", $series, "/squeue.txt")),
                    include_str!(concat!("recorded/", $series, "/nodes.txt")),
                    include_str!(concat!("recorded/", $series, "/steps.txt")),
                    include_str!(concat!("recorded/", $series, "/steps_array.txt")),
                    include_str!(concat!("recorded/", $series, "/requeued.txt")),
                ],
            );
        }
    };
}
newer!(slurm_24_11_reads_the_same, "24.11");
newer!(slurm_26_05_reads_the_same, "26.05");

#[test]
fn gpus_are_read_from_json_whatever_the_jobs_name_says() {
    let two_nodes = include_str!("recorded/24.11/gpus.json");
    let held = |node| parse_gpus_json(two_nodes, 13, node);
    assert_eq!((held("n1").expect("read"), held("n2").expect("read")), (Some(vec![2]), Some(vec![0])));
    assert!(held("n3").is_err() && parse_gpus_json(two_nodes, 14, "n1").is_err());
    // The name of this one is 'x Nodes=n1 GRES=gpu:4(IDX:0-3) CoreSpec=1'.
    let forging = include_str!("recorded/26.05/gpus.json");
    assert!(forging.contains("IDX:0-3"));
    assert_eq!(parse_gpus_json(forging, 9, "n1").expect("read"), Some(vec![0, 1]));
}

#[test]
fn steps_of_a_job() {
    let steps = parse_steps(recorded!("steps"), "1").expect("parses");
    assert_eq!(steps.len(), 2);
    assert_eq!((steps[0].id.as_str(), steps[0].is_users()), ("1.batch", false));
    assert_eq!((steps[1].id.as_str(), steps[1].is_users()), ("1.0", true));
    assert_eq!((steps[1].nodes.join(" ").as_str(), steps[1].state.as_str()), ("n1 n2", "RUNNING"));
    assert_eq!(steps[1].name, "st State=X Network=a", "the name stands for itself");
    assert!(parse_steps(recorded!("steps"), "10").expect("parses").is_empty(), "1.0 is not a step of job 10");
    assert_eq!(parse_steps(recorded!("steps_array"), "5_0").expect("parses").len(), 1);
}

#[test]
fn accounting_keeps_the_lives_of_a_requeued_job_apart() {
    let lives = parse_accounting(recorded!("sacct")).expect("parses");
    let of = |job: u32| lives.iter().filter(|l| l.job == job).collect::<Vec<_>>();
    assert_eq!(of(1).len(), 2);
    assert_eq!((of(1)[0].state_text.as_str(), of(1)[0].uid, of(1)[0].nodes.len()), ("REQUEUED", 999, 2));
    assert_eq!((of(1)[1].state, of(1)[1].start_s), (JobState::Pending, None));
    assert_eq!((of(4)[0].exit.signal, of(4)[0].consumed_j), (9, None));
    assert_eq!(of(3)[0].nodes.len(), 0, "'None assigned'");
    let newer = parse_accounting(include_str!("recorded/26.05/sacct.txt")).expect("parses");
    let consumed: Vec<_> =
        newer.iter().filter(|l| l.state == JobState::Failed).map(|l| (l.job, l.consumed_j)).collect();
    assert_eq!(consumed, [(2, Some(88.0)), (4, None)], "job 2's energy was set with sacctmgr");
}

#[test]
fn a_job_of_the_same_number_from_before_stands_beside_the_present_one() {
    // Both clusters were made anew; their accounting remembers the first ones.
    for text in [include_str!("recorded/24.11/sacct_reused.txt"), include_str!("recorded/26.05/sacct_reused.txt")] {
        let lives = parse_accounting(text).expect("parses");
        let starts: Vec<_> = lives.iter().filter(|l| l.job == 2).filter_map(|l| l.start_s).collect();
        assert_eq!(starts.len(), 2);
        assert!(starts[1] - starts[0] > 1000.0, "{starts:?}");
    }
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
    let nothing = parse_jobs("");
    assert!(nothing.jobs.is_empty() && nothing.unreadable.is_empty());
    assert!(parse_nodes("").expect("parses").is_empty());
    assert!(parse_accounting("\n").expect("parses").is_empty());
    assert_eq!(parse_events("").expect("parses").from_s, None);
}

#[test]
fn a_line_that_is_not_understood_hides_no_other() {
    let text = format!("{}7|1|x|\n{}", recorded!("requeued"), recorded!("completing"));
    let Jobs { jobs, unreadable } = parse_jobs(&text);
    assert_eq!(jobs.iter().map(|j| j.id).collect::<Vec<_>>(), [1, 9]);
    assert_eq!(unreadable.len(), 1);
}

#[test]
fn no_line_however_cut_makes_a_parser_panic() {
    for text in [recorded!("squeue"), recorded!("nodes"), recorded!("sacct"), recorded!("steps"), recorded!("events")] {
        for cut in (0..text.len()).step_by(13).filter(|c| text.is_char_boundary(*c)) {
            let _ = parse_jobs(&text[cut..]);
            let _ = parse_jobs(&text[..cut]);
            let _ = parse_nodes(&text[..cut]);
            let _ = parse_accounting(&text[cut..]);
            let _ = parse_events(&text[cut..]);
            let _ = parse_steps(&text[..cut], "1");
            let _ = parse_gpus_json(&text[cut..], 1, "n1");
        }
    }
}
