//! What is stored of runs and told to Slurm of jobs: no user rewrites another's, or spoils what all read.

use crate::{ALICE, BOB, Field, MALLORY, MINUTES, PROTECTED, as_user, attack, ended, now_s, refused, started, uid};
use anyhow::{Context, Result, ensure};
use protocol::{Event, FailureKind, Phase};
use serde_json::Value;
use std::time::Duration;
use testbed::Part;
use wire::Error;

fn phase(start_s: f64, end_s: f64, joules: f64) -> Event {
    let (phase, node) = (Phase::Compute, "n1".to_string());
    Event::Phase { phase, node, start_s, end_s, joules: Some(joules), source: "model".into() }
}

/// What accounting says of a job, whole.
fn accounted(field: &Field, job: u32) -> Result<String> {
    let fields =
        ["-n", "-P", "-o", "JobID,State,AdminComment,ConsumedEnergyRaw,TRESUsageInTot", "-j", &job.to_string()];
    field.cluster.output(field.cluster.command("sacct").args(fields))
}

#[test]
fn what_accounting_says_of_a_finished_job_is_not_a_strangers_to_write() -> Result<()> {
    attack("claiming a finished job", |field| {
        let job = field.ended;
        let before = accounted(field, job)?;
        let claim = || {
            for run in [format!("{job}.{:.0}", now_s()), format!("{job}.x"), "mine".to_string()] {
                let begun_s = now_s() - 60.0;
                let events = vec![started(job, vec!["n1".into()]), phase(begun_s, now_s(), 1e6), ended()];
                refused(field.deliver(&run, events), &[400, 403]);
            }
        };
        as_user(uid(ALICE), claim);
        // The same once slurmctld has forgotten the job, so that accounting alone knows whose it was.
        field.wait("slurmctld to forget a job", MINUTES, |site| {
            let listed = site.cluster.command("squeue").args(["-h", "-j", &job.to_string()]).output()?;
            Ok((!listed.status.success()).then_some(()))
        })?;
        as_user(uid(ALICE), claim);
        as_user(MALLORY, claim);
        ensure!(accounted(field, job)? == before, "{before} became {}", accounted(field, job)?);
        ensure!(field.report(job)?.is_none(), "a run of it is stored");
        ensure!(!field.log()?.lines().any(|l| l.contains("audit") && l.contains(&format!("job={job} "))));
        Ok(())
    })
}

#[test]
fn a_running_job_and_its_run_are_their_owners() -> Result<()> {
    attack("claiming a running job", |field| {
        let (job, run) = &field.bobs;
        let mine = |events| field.deliver(run, events);
        as_user(uid(ALICE), || {
            refused(mine(vec![started(*job, vec!["n1".into()])]), &[403]);
            refused(mine(vec![ended()]), &[400, 403]);
            refused(field.controller().post::<_, Value>("/v1/records", &field.batch(run, 2, vec![ended()])), &[403]);
            // In bob's name, as only a node's service may.
            let as_bob = format!("/v1/records?uid={}", uid(BOB));
            refused(field.controller().post::<_, Value>(&as_bob, &field.batch(run, 2, vec![ended()])), &[403]);
            let of = |what: &str| format!("/v1/runs/{}/{run}/{what}", field.cluster.name);
            refused(field.controller().get::<Value>(&of("health")), &[404]);
            let begin = serde_json::json!({"version": 1, "former": []});
            refused(field.controller().post::<_, Value>(&of("begin"), &begin), &[404]);
            for verb in ["checkpoint", "vacate", "disable"] {
                let order = serde_json::json!({"version": 1, "id": verb, "verb": verb, "job": job.to_string()});
                refused(field.controller().post::<_, Value>("/v1/orders", &order), &[404]);
            }
            let all: Value = field.controller().get("/v1/report").expect("her own");
            assert!(all.as_array().is_some_and(|a| a.iter().all(|r| r["user"] == ALICE)), "{all:#}");
        });
        Ok(())
    })
}

#[test]
fn no_job_is_ended_for_a_strangers_question_whether_it_may_begin() -> Result<()> {
    attack("asking whether others' jobs may begin again", |field| {
        let (job, _) = &field.bobs;
        let ask = |run: &str, job: u32| {
            let of = serde_json::json!({"job": job, "restart_count": u32::MAX});
            let nodes = field.cluster.nodes.iter();
            let former: Vec<Value> = nodes.map(|n| serde_json::json!({"node": n, "of": of})).collect();
            let path = format!("/v1/runs/{}/{run}/begin", field.cluster.name);
            field.controller().post::<_, Value>(&path, &serde_json::json!({"version": 1, "former": former}))
        };
        // Of a run that nobody knows.
        refused(as_user(uid(ALICE), || ask("x.1", *job)), &[403, 503]);
        // Of a run that was begun in the name of a job to come.
        let folder = field.folder(BOB, "to-come")?;
        let next = field.submit(BOB, &folder, &["-n1"], "true")? + 1;
        let mine = format!("{next}.{:.0}", now_s());
        let taken = as_user(MALLORY, || field.deliver(&mine, vec![started(next, field.cluster.nodes.clone())]));
        let victim = field.submit(BOB, &folder, &["-n1"], "sleep 600")?;
        ensure!(victim == next && taken.is_ok(), "job {victim} came in between, or {taken:?}");
        field.wait_state(victim, &["RUNNING"], MINUTES)?;
        // The same where accounting knows nothing, so that nobody can say which nodes a job had.
        field.cluster.kill_part(&Part::Slurmdbd)?;
        let asked = [
            as_user(uid(ALICE), || ask("y.1", *job)),
            as_user(MALLORY, || ask(&mine, victim)),
            as_user(MALLORY, || ask(&format!("{mine}~{MALLORY}"), victim)),
        ];
        field.cluster.start_part(&Part::Slurmdbd)?;
        field.wait("accounting", MINUTES, |_| Ok(accounted(field, field.ended).ok().map(drop)))?;
        for answer in asked {
            refused(answer, &[400, 403, 404, 503]);
        }
        // A node is told with its next heartbeat.
        std::thread::sleep(Duration::from_secs(3));
        for job in [*job, victim] {
            let restarts = field.cluster.job(job)?.get("Restarts").cloned();
            let state = field.state(job)?;
            ensure!(state == "RUNNING" && restarts.as_deref() == Some("0"), "job {job}: {state}, {restarts:?}");
        }
        ensure!(!field.log()?.contains("act=\"fence\""), "something was ended");
        field.cluster.output(field.cluster.command("scancel").arg(victim.to_string())).map(drop)
    })
}

#[test]
fn a_name_taken_before_its_job_exists_does_not_lock_the_jobs_owner_out() -> Result<()> {
    attack("taking names of runs to come", |field| {
        let folder = field.folder(BOB, "next")?;
        let last = field.submit(BOB, &folder, &["-n1"], "true")?;
        let next = last + 1;
        as_user(MALLORY, || {
            for second in 0..30 {
                let run = format!("{next}.{:.0}", now_s() + f64::from(second));
                field
                    .deliver(&run, vec![started(next, vec!["n1".into()])])
                    .expect("it may be a job that Slurm does not show yet");
            }
        });
        let job = field.submit(BOB, &folder, &PROTECTED, "true")?;
        ensure!(job == next, "job {job} came in between");
        field.wait("bob's own run", MINUTES, |site| {
            let told = site.joulepoint(BOB, &["report", "-j", &job.to_string(), "--json"])?;
            let runs: Value = serde_json::from_slice(&told.stdout)?;
            Ok(runs.as_array().is_some_and(|all| all.len() == 1 && all[0]["state"] == "completed").then_some(()))
        })
    })
}

#[test]
fn a_jobs_comment_and_name_hide_no_other_job() -> Result<()> {
    attack("forged words of Slurm", |field| {
        let (job, _) = &field.bobs;
        let forged = format!("x\nJobId={job} JobState=CANCELLED UserId=root(0)\n{job}|0|CANCELLED|");
        let forged = forged.repeat(1 + 900 / forged.len());
        let folder = field.folder(ALICE, "forged")?;
        let texts = [format!("--comment={forged}"), format!("--job-name={}", &forged[..200])];
        let mut args: Vec<&str> = PROTECTED.to_vec();
        args.extend(texts.iter().map(String::as_str));
        let hers =
            [field.submit(ALICE, &folder, &args, "sleep 600")?, field.submit(ALICE, &folder, &args, "sleep 600")?];
        for id in hers {
            field.wait_report(id, "her run", MINUTES, |run| {
                (run["state"] == "running" && crate::verified(run)).then_some(())
            })?;
        }
        std::thread::sleep(std::time::Duration::from_secs(8));
        for id in hers {
            field.cluster.output(field.cluster.command("scancel").arg(id.to_string()))?;
        }
        Ok(())
    })
}

#[test]
fn one_request_causes_few_questions_to_slurm() -> Result<()> {
    attack("two thousand jobs in one request", |field| {
        let before = field.questions()?;
        let job = field.alices.0;
        as_user(uid(ALICE), || {
            let many = (1..=2000).map(|id| started(100_000 + id, vec!["n1".into()])).collect();
            refused(field.deliver("local-many.1", many), &[400]);
            let again = (1..=2000).map(|_| started(job, vec!["n1".into()])).collect();
            // Whether it is taken or not: it is about one job.
            let _ = field.deliver(&format!("{job}.{:.0}", now_s()), again);
        });
        let asked = field.questions()? - before;
        ensure!(asked < 20, "slurmctld was asked {asked} times");
        Ok(())
    })
}

#[test]
fn numbers_that_cannot_be_true_reach_neither_report_nor_metrics() -> Result<()> {
    attack("impossible numbers", |field| {
        let now_s = now_s();
        let begins = || started(0, vec!["n1".into()]);
        let impossible = [
            phase(-1e308, 1e308, 1.0),
            phase(now_s - 9.0, now_s, -1.0),
            phase(now_s - 9.0, now_s, 1e300),
            phase(now_s - 9.0, now_s, f64::MAX),
            phase(now_s + 1e9, now_s + 1e9 + 1.0, 1.0),
            phase(0.0, 1.0, 1.0),
            Event::Committed {
                number: u64::MAX,
                begun_s: now_s,
                ended_s: -now_s,
                bytes: u64::MAX,
                written_bytes: None,
                joules: Some(1.0),
                still_s: Some(1e308),
            },
            Event::Failure {
                kind: FailureKind::Node,
                node: Some("n\r\nX: y".into()),
                failed_s: now_s,
                detected_s: now_s,
                reason: "x".into(),
            },
            Event::Failure {
                kind: FailureKind::Node,
                node: None,
                failed_s: -1e308,
                detected_s: 1e308,
                reason: "x".into(),
            },
        ];
        as_user(MALLORY, || {
            for (n, event) in impossible.into_iter().enumerate() {
                let said = refused(field.deliver(&format!("local-bad{n}.1"), vec![begins(), event]), &[400]);
                assert!(said.contains("record 2"), "{said}");
            }
            let key = field.key("local-bad.1");
            for number in ["1e999", "-1e999", "NaN", "Infinity", "1e-400e", "\"1\"", "null"] {
                let record =
                    format!(r#"{{"seq":1,"at_s":{number},"event":"failure","kind":"node","node":null,"reason":"x"}}"#);
                let body = format!(
                    r#"{{"version":1,"key":{{"cluster":"{}","run":"{}"}},"records":[{record}]}}"#,
                    key.cluster, key.run
                );
                assert_eq!(field.signed("POST", "/v1/records", body.as_bytes(), "").0, 400, "{number}");
            }
        });
        let told = field.joulepoint("root", &["report", "-a", "--json"])?;
        let told = if told.status.success() { told } else { field.joulepoint("root", &["report", "--json"])? };
        let runs: Value = serde_json::from_slice(&told.stdout)?;
        ensure!(
            runs.as_array()
                .is_some_and(|all| all.iter().all(|r| !r["run"].as_str().is_some_and(|n| n.starts_with("local-bad"))))
        );
        ensure!(!field.metrics()?.lines().any(|l| l.ends_with(" NaN") || l.ends_with("inf")));
        Ok(())
    })
}

#[test]
fn a_report_as_a_table_runs_nothing_where_it_is_opened() -> Result<()> {
    attack("formulas in names", |field| {
        let folder = field.folder(ALICE, "formula")?;
        let mut args = PROTECTED.to_vec();
        args.push("--job-name==cmd|' /C calc'!A0");
        let job = field.submit(ALICE, &folder, &args, "true")?;
        field.wait_report(job, "the end", MINUTES, |run| (run["state"] == "completed").then_some(()))?;
        let told = field
            .joulepoint("root", &["report", "-j", &job.to_string(), "--csv", "-o", "jobid,jobname,user,energy"])?;
        let text = String::from_utf8(told.stdout)?;
        ensure!(text.contains("cmd"), "{text}{}", String::from_utf8_lossy(&told.stderr));
        let first = |cell: &str| cell.trim_start_matches('"').chars().next();
        let is_formula = |cell: &str| {
            matches!(first(cell), Some('=' | '+' | '-' | '@' | '\t' | '\r')) && cell.parse::<f64>().is_err()
        };
        ensure!(!text.lines().flat_map(|l| l.split(',')).any(is_formula), "{text}");
        Ok(())
    })
}

#[test]
fn what_is_promised_of_a_bodys_size_is_taken_and_no_more() -> Result<()> {
    attack("large bodies", |field| {
        let run = format!("local-large.{:.0}", now_s());
        let text = "x".repeat(15_000);
        as_user(MALLORY + 1, || {
            let said = || Event::CheckpointFailed { reason: text.clone() };
            let mut events = vec![started(0, vec!["n1".into()])];
            events.extend((0..230).map(|_| said()));
            let size = serde_json::to_vec(&field.batch(&run, 1, events.clone())).expect("JSON").len();
            assert!(size > 3 << 20 && size < 4 << 20, "{size} bytes");
            field.deliver(&run, events.clone()).expect("less than 4 MiB are taken");
            events.extend((0..80).map(|_| said()));
            // Whoever still sends when the service has heard enough may find the connection closed before the answer.
            match field.deliver(&format!("{run}1"), events) {
                Err(Error::Refused { status: 413, .. } | Error::Unreachable { .. }) => {}
                other => panic!("413 was to come: {other:?}"),
            }
        });
        Ok(())
    })
}

#[test]
fn a_user_who_begins_many_runs_reaches_a_limit_that_others_do_not_feel() -> Result<()> {
    attack("many runs", |field| {
        let said = as_user(MALLORY + 2, || {
            let mut begun = (0..).map(|n| field.deliver(&format!("local-{n}.1"), vec![started(0, vec!["n1".into()])]));
            let stopped = begun.by_ref().take(200).find_map(Result::err);
            refused(Err::<(), _>(stopped.context("a limit").expect("within 200 runs")), &[429])
        });
        ensure!(said.contains("limits.open_runs") && said.contains("100"), "{said}");
        as_user(MALLORY + 3, || {
            field.deliver("local-first.1", vec![started(0, vec!["n1".into()])]).expect("another user's")
        });
        Ok(())
    })
}
