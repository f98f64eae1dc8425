//! Programs and relays die, are suspended and come back: the result keeps every bit, and only the group that died goes back.

mod run;

use nix::sys::signal::Signal;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use run::{Process, Run, wait_for};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

const GROUPS: usize = 4;
const LONG: [&str; 4] = ["--step-ms", "1", "--steps", "400"];

/// What the groups compute when nothing happens.
fn undisturbed() -> &'static Vec<String> {
    static RESULTS: OnceLock<Vec<String>> = OnceLock::new();
    RESULTS.get_or_init(|| {
        let run = Run::new(GROUPS, "memory");
        let _relays = run.relays();
        let mut programs: Vec<Process> = (0..GROUPS).map(|g| run.stencil(g, &["--steps", "400"])).collect();
        programs.iter_mut().for_each(|p| assert_eq!(p.code(), Some(0)));
        run.results()
    })
}

/// A run that is disturbed by `strike` until all programs have ended well. The struck group is started again by it.
fn survives(run: &Run, relays: &mut [Process], strike: impl FnMut(&mut [Process], &mut [Process])) {
    survives_with(&LONG, run, relays, strike);
}

/// The same with programs that are started otherwise.
fn survives_with(
    words: &[&str],
    run: &Run,
    relays: &mut [Process],
    mut strike: impl FnMut(&mut [Process], &mut [Process]),
) {
    let mut programs: Vec<Process> = (0..GROUPS).map(|g| run.stencil(g, words)).collect();
    strike(&mut programs, relays);
    for (group, program) in programs.iter_mut().enumerate() {
        let said = || std::fs::read_to_string(run.path(&format!("{group}.program"))).unwrap_or_default();
        assert_eq!(program.code(), Some(0), "group {group}: {}{}", said(), run.errors(group));
    }
    assert_eq!(&run.results(), undisturbed());
}

fn pause(random: &mut ChaCha8Rng) {
    std::thread::sleep(Duration::from_millis(random.random_range(5..250)));
}

#[test]
fn a_program_is_killed_at_random_moments_and_the_others_never_go_back() {
    for seed in 0..20 {
        println!("SEED={seed}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let run = Run::new(GROUPS, if seed % 2 == 0 { "memory" } else { "disk" });
        let mut relays = run.relays();
        let struck = random.random_range(0..GROUPS);
        survives(&run, &mut relays, |programs, _| {
            for _ in 0..1 + seed % 3 {
                pause(&mut random);
                if programs[struck].ended().is_none() {
                    programs[struck].kill();
                    programs[struck] = run.stencil(struck, &LONG);
                }
            }
        });
        for group in (0..GROUPS).filter(|g| *g != struck) {
            let status = run.known(group);
            assert_eq!((status.counts.repeated, status.lost.len()), (0, 0), "group {group} did not go back");
        }
    }
}

#[test]
fn a_relay_with_its_log_on_disk_is_killed_and_its_program_does_not_notice() {
    for seed in 0..6 {
        println!("SEED={seed}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let run = Run::new(GROUPS, "disk");
        let mut relays = run.relays();
        survives(&run, &mut relays, |_, relays| {
            for _ in 0..3 {
                pause(&mut random);
                let struck = random.random_range(0..GROUPS);
                relays[struck].kill();
                pause(&mut random);
                relays[struck] = run.relay(struck);
            }
        });
    }
}

#[test]
fn a_program_and_its_relay_are_killed_together_and_come_back_in_any_order() {
    for seed in 0..6 {
        println!("SEED={seed}");
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let run = Run::new(GROUPS, "disk");
        let mut relays = run.relays();
        let struck = random.random_range(0..GROUPS);
        survives(&run, &mut relays, |programs, relays| {
            wait_for("a checkpoint", || run.has_checkpoint(struck));
            pause(&mut random);
            relays[struck].kill();
            if programs[struck].ended().is_none() {
                programs[struck].kill();
                if seed % 2 == 0 {
                    relays[struck] = run.relay(struck);
                }
                programs[struck] = run.stencil(struck, &LONG);
            }
            if relays[struck].ended().is_some() {
                pause(&mut random);
                relays[struck] = run.relay(struck);
            }
        });
    }
}

#[test]
fn a_parked_program_has_its_log_served_and_goes_on_where_it_was() {
    // After its last checkpoint, too, there are messages that a group wants again.
    const RARE: [&str; 6] = ["--step-ms", "1", "--steps", "400", "--every", "150"];
    let run = Run::new(GROUPS, "memory");
    let mut relays = run.relays();
    survives_with(&RARE, &run, &mut relays, |programs, _| {
        wait_for("messages since a checkpoint, and none near", || {
            programs[2].signal(Signal::SIGSTOP);
            let channel = *run.status(2)?.peers.iter().find(|p| p.group == 3)?;
            let is_between = channel.collected > 0 && (5..130).contains(&(channel.logged - channel.collected));
            if !is_between {
                programs[2].signal(Signal::SIGCONT);
            }
            is_between.then_some(())
        });
        programs[3].kill();
        programs[3] = run.stencil(3, &RARE);
        // Group 3 gets again what the suspended group had sent to it since its checkpoint, and catches up with it.
        wait_for("replay from the suspended group", || run.status(2).filter(|s| s.counts.replayed > 0));
        wait_for("its messages again", || run.status(3).filter(|s| s.counts.repeated > 0 && s.behind == 0));
        std::thread::sleep(Duration::from_millis(100));
        programs[2].signal(Signal::SIGCONT);
    });
}

#[test]
fn a_log_in_memory_that_is_handed_over_is_served_by_another_relay() {
    let run = Run::new(GROUPS, "memory");
    let mut relays = run.relays();
    let parked = run.path("shared");
    survives(&run, &mut relays, |programs, relays| {
        wait_for("a checkpoint", || run.has_checkpoint(1));
        // The program ends and gives its node away; its log goes to shared storage.
        programs[1].kill();
        let output = run.ask("handover", 1, &["--to", parked.to_str().expect("a path")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(relays[1].code(), Some(0));
        relays[1] = run.relay_with(1, &["--log-dir", parked.to_str().expect("a path")]);
        programs[0].kill();
        programs[0] = run.stencil(0, &LONG);
        std::thread::sleep(Duration::from_millis(100));
        programs[1] = run.stencil(1, &LONG);
    });
}

#[test]
fn a_log_in_memory_that_is_lost_is_reported_and_never_silent() {
    let run = Run::new(2, "memory");
    let mut relays = run.relays();
    let more = ["--step-ms", "10", "--steps", "4000", "--every", "0"];
    let mut programs: Vec<Process> = (0..2).map(|g| run.stencil(g, &more)).collect();
    wait_for("messages", || run.status(0).filter(|s| s.counts.delivered > 100));
    relays[0].kill();
    relays[0] = run.relay(0);
    // Group 1 begins again and wants messages that only the dead relay had.
    programs[1].kill();
    let status = wait_for("a relay", || run.status(0).filter(|s| s.program));
    assert!(status.counts.messages < 100_000);
    programs[1] = run.stencil(1, &more);
    assert_eq!(programs[1].code(), Some(17), "10 + MLOG_LOST");
    let said = std::fs::read_to_string(run.path("1.program")).expect("words");
    assert!(said.contains("the recovery line must go back"), "{said}");
    let reported = wait_for("the report", || run.status(0).filter(|s| !s.lost.is_empty()));
    assert_eq!((reported.lost[0].from, reported.lost[0].to, reported.lost[0].number), (0, 1, 1));
    assert!(run.errors(0).contains("the recovery line must go back"));

    // The line goes back: the sender begins again first, and its new log has all that is wanted.
    programs[0].kill();
    let quick = &more[2..];
    let sender = run.stencil(0, quick);
    wait_for("the sender's return", || run.status(0).filter(|s| s.lost.is_empty()));
    let mut programs = [sender, run.stencil(1, quick)];
    programs.iter_mut().for_each(|p| assert_eq!(p.code(), Some(0)));
    assert!(run.known(0).lost.is_empty());
}

#[test]
fn whoever_wants_what_is_lost_waits_until_its_sender_has_gone_back_far_enough() {
    const MORE: [&str; 6] = ["--step-ms", "1", "--steps", "400", "--every", "50"];
    for log in ["memory", "disk"] {
        let run = Run::new(GROUPS, log);
        let patient = |group| run.relay_with(group, &["--lost", "wait"]);
        let mut relays: Vec<Process> = (0..GROUPS).map(patient).collect();
        let mut programs: Vec<Process> = (0..GROUPS).map(|g| run.stencil(g, &MORE)).collect();
        for group in 0..GROUPS {
            let collected = |s: &mlog::Status| s.peers.iter().all(|p| p.collected > 0 || p.logged == 0);
            wait_for("collections", || run.status(group).filter(|s| s.counts.messages > 0 && collected(s)));
        }
        // One group has lost its checkpoint, too: it begins anew, and all others have to.
        for group in 0..GROUPS {
            programs[group].kill();
            if log == "memory" {
                relays[group].kill();
                relays[group] = patient(group);
            }
        }
        std::fs::remove_file(run.path("1.ckpt")).expect("removed");
        let mut programs: Vec<Process> = (0..GROUPS).map(|g| run.stencil(g, &MORE)).collect();
        let mut seen = [0.0; GROUPS];
        wait_for("the end of all", || {
            for group in 0..GROUPS {
                let lacks = |s: &mlog::Status| s.joined_s != seen[group] && s.lost.iter().any(|l| l.from == group);
                if let Some(status) = run.status(group).filter(lacks) {
                    seen[group] = status.joined_s;
                    programs[group].kill();
                    let _ = std::fs::remove_file(run.path(&format!("{group}.ckpt")));
                    programs[group] = run.stencil(group, &MORE);
                }
            }
            programs.iter_mut().all(|p| p.ended().is_some()).then_some(())
        });
        assert!(seen.iter().filter(|s| **s > 0.0).count() >= GROUPS - 1, "{log}: {seen:?}");
        assert_eq!(&run.results(), undisturbed());
    }
}

#[test]
fn without_a_log_groups_that_all_go_back_together_get_the_same_bits() {
    const MORE: [&str; 6] = ["--step-ms", "1", "--steps", "400", "--every", "0"];
    let run = Run::new(GROUPS, "none");
    let _relays: Vec<Process> = (0..GROUPS).map(|g| run.relay_with(g, &["--lost", "wait"])).collect();
    let start = || (0..GROUPS).map(|g| run.stencil(g, &MORE)).collect::<Vec<Process>>();
    for _ in 0..3 {
        let before = run.status(0).map_or(0, |s| s.counts.delivered);
        let mut programs = start();
        wait_for("messages", || run.status(0).filter(|s| s.counts.delivered > before + 20));
        programs.iter_mut().for_each(Process::kill);
        (0..GROUPS).for_each(|g| drop(wait_for("its end", || run.status(g).filter(|s| !s.program))));
    }
    let mut programs = start();
    programs.iter_mut().for_each(|p| assert_eq!(p.code(), Some(0)));
    assert_eq!(&run.results(), undisturbed());
}

#[test]
fn groups_that_are_mpi_jobs_get_the_same_bits_also_after_a_kill() {
    if Command::new("mpicc").arg("--version").output().is_err() {
        println!("skipped: no mpicc");
        return;
    }
    let program = run::build("stencil-mpi");
    let run = Run::new(GROUPS, "memory");
    let _relays = run.relays();
    let start = |group: usize, script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&program).arg(run.folder.path()).arg(group.to_string());
        run.spawn(&mut command, group)
    };
    let mpi = "exec mpirun --allow-run-as-root --oversubscribe -n 2 $0 --steps 400 --group $2 --dir $1";
    // All ranks of the group die at once, as on a node that is lost.
    let dying = "mpirun --allow-run-as-root --oversubscribe -n 2 $0 --steps 400 --step-ms 5 --group $2 --dir $1 & \
        while [ ! -e $1/0.ckpt ]; do sleep 0.1; done; pkill -9 -P $!; wait";
    let mut programs: Vec<_> = (1..GROUPS).map(|g| start(g, mpi)).collect();
    start(0, dying).code();
    programs.push(start(0, mpi));
    programs.iter_mut().for_each(|p| assert_eq!(p.code(), Some(0)));
    assert_eq!(&run.results(), undisturbed());
}
