//! Whether Slurm answers, is a series that was tried, and is set up so that runs can recover.

use crate::Findings;
use slurm::Slurm;
use std::collections::BTreeMap;

/// Series that the plugin was tried with (docs/admin.md).
const TRIED: [&str; 3] = ["22.05", "24.11", "26.05"];

/// Oldest and newest series that the plugin carries a number for.
const CARRIED: (&str, &str) = ("22.05", "26.05");

/// `scontrol show config`, by lower-case key.
pub(crate) type Settings = BTreeMap<String, String>;

/// Examines the settings and hands them on; nothing if slurmctld does not answer.
pub(crate) fn examine(slurm: &Slurm, findings: &mut Findings) -> Option<Settings> {
    let version = match slurm.version() {
        Ok(version) => version,
        Err(e) => {
            let cure = match e {
                slurm::Error::Start { .. } => "install Slurm's commands here, or set slurm_bin",
                _ => "make /etc/slurm/slurm.conf, name it in SLURM_CONF, or let the host find slurmctld's",
            };
            findings.fault("slurm-commands", e.to_string(), cure);
            return None;
        }
    };
    series(&version, findings);
    let settings = match slurm.config() {
        Ok(settings) => settings,
        Err(e) => {
            let cure = "start slurmctld; scontrol ping must say UP";
            findings.fault("slurm-controller", e.to_string(), cure);
            return None;
        }
    };
    findings.ok("slurm-controller", "slurmctld answers");
    let value = |key: &str| settings.get(key).map_or("", String::as_str);
    if value("authtype") == "auth/munge" {
        findings.ok("slurm-authentication", "AuthType=auth/munge");
    } else {
        let found = format!("AuthType={}", value("authtype"));
        findings.fault("slurm-authentication", found, "the services speak munge: run munged on all hosts");
    }
    let requeue = value("jobrequeue");
    wanted(
        findings,
        requeue == "1",
        "slurm-requeue",
        format!("JobRequeue={requeue}"),
        "set JobRequeue=1, or tell users to pass --requeue: a job whose batch host dies is lost otherwise",
    );
    let expansion = value("schedulerparameters").split(',').any(|word| word.trim() == "permit_job_expansion");
    wanted(
        findings,
        expansion,
        "slurm-expansion",
        format!("SchedulerParameters {} permit_job_expansion", if expansion { "has" } else { "lacks" }),
        "add it to SchedulerParameters: without it a run cannot take lent nodes back into its own job",
    );
    let accounting = value("accountingstoragetype");
    wanted(
        findings,
        accounting == "accounting_storage/slurmdbd",
        "slurm-accounting",
        format!("AccountingStorageType={accounting}"),
        "run slurmdbd: without it jobs cannot be resized, and report has nothing to join",
    );
    let tracking = value("proctracktype");
    wanted(
        findings,
        tracking == "proctrack/cgroup" || tracking == "proctrack/linuxproc",
        "slurm-tracking",
        format!("ProctrackType={tracking}"),
        "set proctrack/cgroup: processes that leave their group are neither metered nor ended otherwise",
    );
    let back = value("returntoservice");
    wanted(
        findings,
        back != "0",
        "slurm-return",
        format!("ReturnToService={back}"),
        "set ReturnToService=2, or a node that comes back stays down until somebody resumes it",
    );
    Some(settings)
}

/// Whether the broker is patient enough for a borrower's nodes: Slurm 22.05 may give a node from which a job was requeued
/// to nobody before its next ping, a third of `SlurmdTimeout` apart.
pub(crate) fn examine_patience(lend: &config::Lend, settings: &Settings, findings: &mut Findings) {
    let timeout = settings.get("slurmdtimeout").map_or("", String::as_str);
    let Some(timeout_s) = timeout.split_whitespace().next().and_then(|word| word.parse::<f64>().ok()) else { return };
    if lend.mode != protocol::LoanMode::Preempt || timeout_s <= 0.0 {
        return;
    }
    let (patience_s, ping_s) = (lend.patience_s, timeout_s / 3.0);
    wanted(
        findings,
        patience_s > ping_s,
        "slurm-patience",
        format!("lend.patience_s={patience_s:.0}, SlurmdTimeout={timeout_s:.0}"),
        &format!("set patience_s above {ping_s:.0}: Slurm may keep a borrower's node that long after its requeue"),
    );
}

fn series(version: &str, findings: &mut Findings) {
    let series = version.get(..5).unwrap_or(version);
    if TRIED.contains(&series) {
        findings.ok("slurm-series", format!("Slurm {version}"));
    } else if (CARRIED.0..=CARRIED.1).contains(&series) {
        let cure = format!("it should work; tried are {}", TRIED.join(", "));
        findings.warning("slurm-series", format!("Slurm {version} was not tried"), cure);
    } else {
        let cure = format!("use Slurm {} to {}, or a newer Joulepoint", CARRIED.0, CARRIED.1);
        findings.fault("slurm-series", format!("Slurm {version} will not load this plugin"), cure);
    }
}

/// A setting that recovery is better with.
fn wanted(findings: &mut Findings, as_it_should: bool, check: &'static str, found: String, cure: &str) {
    if as_it_should {
        findings.ok(check, found);
    } else {
        findings.warning(check, found, cure);
    }
}
