//! Jobs that leave their nodes until a moment: on order, or because they may wait for cheaper hours.

use super::{MINUTES, USER, at_work, ended, heat, patient, site};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use suite::Site;

fn now_s() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64())
}

/// Starts the test program for half a minute of work.
fn started(site: &Site, name: &str, more: &[&str]) -> Result<(u32, PathBuf)> {
    let folder = site.folder(USER, name)?;
    let args: Vec<&str> = patient().into_iter().chain(["--time=10"]).chain(more.iter().copied()).collect();
    let script = format!("srun --mpi=pmix {} --size 96 --steps 3000 --step-ms 10 --report 0", heat(site));
    let job = site.submit(USER, &folder, &args, &script)?;
    at_work(site, job)?;
    Ok((job, folder))
}

/// Waits until a job is in the queue and starts at a moment.
fn starts_at(site: &Site, job: u32, begin_s: f64) -> Result<()> {
    site.wait("the moment at which it starts", MINUTES, |site| {
        let mut show = site.cluster.command("squeue");
        show.args(["-h", "-j", &job.to_string(), "-t", "PD", "-O", "StartTime"]).env("SLURM_TIME_FORMAT", "%s");
        let show = show.output()?;
        let starts_s = String::from_utf8_lossy(&show.stdout).trim().parse::<f64>().ok();
        Ok(starts_s.is_some_and(|starts_s| (starts_s - begin_s).abs() < 2.0).then_some(()))
    })
}

/// Waits for the end of a job that has waited until `begin_s`; its report, and what its output says.
fn ended_after(site: &Site, job: u32, folder: &Path, begin_s: f64) -> Result<(Value, String)> {
    assert_eq!(site.wait_report(job, "the end", MINUTES, ended)?, "completed");
    let run = site.report(job)?.context("a report")?;
    let lives = run["records"].as_array().context("records")?;
    assert_eq!((lives.len(), run["total"]["failures"].as_u64()), (2, Some(0)), "{run:#}");
    assert!(lives[1]["start_s"].as_f64() >= Some(begin_s - 1.0), "{run:#}");
    let said = fs::read_to_string(folder.join(format!("slurm-{job}.out")))?;
    assert!(said.contains("goes on from checkpoint 1"), "{said}");
    Ok((run, said))
}

#[test]
fn a_job_that_is_vacated_until_a_moment_begins_then_and_not_before() -> Result<()> {
    let site = site();
    let (job, folder) = started(&site, "until", &[])?;
    let id = job.to_string();
    let refused = site.joulepoint(USER, &["vacate", "--begin=now-1hour", &id])?;
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("'now-1hour' has passed"), "{refused:?}");
    let begin_s = now_s()? + 240.0;
    let vacated = site.joulepoint(USER, &["vacate", &format!("--begin=uts{begin_s:.0}"), &id])?;
    assert!(vacated.status.success(), "{vacated:?}");
    starts_at(&site, job, begin_s)?;
    // Whoever does not want to wait any more says so to Slurm.
    let sooner_s = now_s()? + 5.0;
    let update = ["update", &format!("jobid={id}"), &format!("StartTime=uts{sooner_s:.0}")];
    assert!(site.cluster.command_as(USER, "scontrol").args(update).status()?.success());
    ended_after(&site, job, &folder, sooner_s)?;
    Ok(())
}

#[test]
fn a_job_that_may_wait_leaves_dear_hours_and_comes_back_in_cheap_ones() -> Result<()> {
    let site = site();
    let begin_s = now_s()? + 90.0;
    let row = |from_s: f64, until_s: f64, price: f64| {
        let moment = |at_s: f64| jiff::Timestamp::from_second(at_s as i64).map(|at| at.to_string());
        Ok::<_, anyhow::Error>(format!("{},{},{price}\n", moment(from_s)?, moment(until_s)?))
    };
    let dear = row(begin_s - 7200.0, begin_s, 0.9)?;
    let text = format!("start,end,price_per_kwh\n{dear}{}", row(begin_s, begin_s + 36_000.0, 0.1)?);
    let (new, tariff) = (site.conf.with_file_name("tariff.new"), site.conf.with_file_name("tariff.csv"));
    fs::write(&new, text)?;
    fs::rename(&new, &tariff)?;
    let (stays, _) = started(&site, "stays", &[])?;
    let (job, folder) = started(&site, "waits", &["--ft-energy-flexible=1"])?;
    starts_at(&site, job, begin_s)?;
    let (run, said) = ended_after(&site, job, &folder, begin_s)?;
    assert!(said.contains("it may wait for other hours, 1 h in all at most"), "{said}");
    assert!(said.contains("vacated on the order of the site's tariff, until "), "{said}");
    let per_kwh = |run: &Value| {
        let whole = &run["cost"]["whole"];
        whole["price"].as_f64().zip(whole["kwh"].as_f64()).map(|(price, kwh)| price / kwh)
    };
    let paid = per_kwh(&run).context("a price")?;
    assert!((0.1..0.5).contains(&paid), "most of it was done at 0.1: {run:#}");
    site.wait_report(stays, "its end", MINUTES, ended)?;
    let other = site.report(stays)?.context("a report")?;
    assert_eq!(other["records"].as_array().map(Vec::len), Some(1), "it was not asked to wait: {other:#}");
    fs::remove_file(tariff)?;
    Ok(())
}
