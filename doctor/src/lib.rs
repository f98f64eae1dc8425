//! Says what is wrong with an installation, and how to mend it.
//!
//! Each file examines one part and reports findings; nothing here changes anything. The checks run in the order
//! in which an administrator would mend what they find: what a fault hides is not reported beside it.

mod controller;
mod folder;
mod munge;
mod node;
mod plugin;
mod plugstack;
mod runs;
mod slurm_settings;
mod tariff;

use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Only root may look.
    Skipped,
    /// As it should be.
    Ok,
    /// It works, and something is lost.
    Warning,
    /// Jobs are not protected, or not accounted.
    Fault,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Skipped => "skipped",
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Fault => "FAULT",
        })
    }
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's stable name.
    pub check: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do; empty when there is nothing to do.
    pub cure: String,
}

/// What this host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// People submit jobs here.
    Login,
    /// `joulepointd --role=controller` runs here.
    Controller,
    /// Jobs run here.
    Node,
}

/// What is examined.
#[derive(Clone, Debug)]
pub struct Patient {
    /// The site file.
    pub conf: PathBuf,
    /// What this host is.
    pub side: Side,
    /// The version of the command that asks.
    pub version: &'static str,
}

/// Collects findings.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.0.push(Finding { check, level: Level::Ok, found: found.into(), cure: String::new() });
    }

    /// Nothing is known of it here, and nothing is wrong by that.
    fn skipped(&mut self, check: &'static str, what: &str) {
        let found = format!("{what}: not looked at (as root only)");
        self.0.push(Finding { check, level: Level::Skipped, found, cure: String::new() });
    }

    fn warning(&mut self, check: &'static str, found: impl Into<String>, cure: impl Into<String>) {
        self.0.push(Finding { check, level: Level::Warning, found: found.into(), cure: cure.into() });
    }

    fn fault(&mut self, check: &'static str, found: impl Into<String>, cure: impl Into<String>) {
        self.0.push(Finding { check, level: Level::Fault, found: found.into(), cure: cure.into() });
    }
}

/// Runs all checks that make sense on this side.
pub fn examine(patient: &Patient) -> Vec<Finding> {
    let mut findings = Findings::default();
    let shown = patient.conf.display();
    let site = match config::read(&patient.conf) {
        Ok(site) => site,
        Err(e) => {
            let cure = match patient.conf.exists() {
                true => "mend that line; every key stands in the shipped file",
                false => "copy the shipped joulepoint.toml there, or name the right file",
            };
            findings.fault("configuration", e.to_string(), cure);
            return findings.0;
        }
    };
    if patient.conf.exists() {
        findings.ok("configuration", format!("{shown} is valid"));
    } else {
        let cure = "copy the shipped joulepoint.toml there, or set JOULEPOINT_CONF";
        findings.warning("configuration", format!("{shown} is not there; defaults are used"), cure);
    }
    let slurm = slurm::Slurm::new(site.slurm_bin.clone());
    if let Some(settings) = slurm_settings::examine(&slurm, &mut findings) {
        slurm_settings::examine_patience(&site.lend, &settings, &mut findings);
        plugin::examine(patient, &slurm, &settings, &mut findings);
    }
    munge::examine(&site, &mut findings);
    if patient.side == Side::Controller {
        folder::examine_store(&site.controller.store, &mut findings);
        tariff::examine(&site.accounting, &mut findings);
    }
    controller::examine(&site, &mut findings);
    if patient.side == Side::Node {
        node::examine(&site, &mut findings);
    }
    runs::examine(&site, &mut findings);
    findings.0
}

/// The side that the host seems to be on: the controller if a store is there, a node if a slurmd runs.
pub fn guess_side(conf: &std::path::Path) -> Side {
    let site = config::read(conf).unwrap_or_default();
    if site.controller.store.exists() {
        return Side::Controller;
    }
    let runs_slurmd =
        std::fs::read_dir("/proc").into_iter().flatten().flatten().any(|entry| {
            std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.trim_end() == "slurmd")
        });
    if runs_slurmd { Side::Node } else { Side::Login }
}
