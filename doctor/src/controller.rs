//! Whether the controller service can be reached, is well, and has the same time.

use crate::Findings;
use std::time::{Duration, SystemTime};

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(5);

/// Clocks further apart than this confuse accounts; munge refuses credentials at 300 s.
const SKEW: Duration = Duration::from_secs(5);

/// Asks the service how it is, then as a user.
pub(crate) fn examine(site: &config::Site, findings: &mut Findings) {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(LIMIT))
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into();
    let mut unreached = Vec::new();
    // Of two places one answers.
    let answered = site.controller.urls().find_map(|base| {
        let answer = agent.get(format!("{base}/healthz")).call();
        answer.map_err(|e| unreached.push(format!("{base}: {e}"))).ok().map(|answer| (base, answer))
    });
    let Some((base, mut answer)) = answered else {
        let cure = "start it: systemctl start joulepoint-controller; or mend controller.url";
        return findings.fault("controller", unreached.join("; "), cure);
    };
    let date = answer.headers().get("date").and_then(|v| v.to_str().ok()?.parse::<httpdate::HttpDate>().ok());
    let status = answer.status().as_u16();
    let text = answer.body_mut().read_to_string().unwrap_or_default();
    if status == 200 {
        findings.ok("controller", format!("{base} is well"));
    } else {
        let what = format!("{base} answers {status}: {}", ailing(&text));
        findings.fault("controller", what, "see its log: journalctl -u joulepoint-controller");
    }
    clock(date.map(SystemTime::from), findings);
    access(site, findings);
    calibrations(site, findings);
}

/// The parts of a service that do not work, and why; what somebody else answered as it is.
fn ailing(text: &str) -> String {
    let Ok(health) = serde_json::from_str::<protocol::Health>(text) else { return text.trim().to_string() };
    let ailing = health.parts.iter().filter(|(_, part)| !part.ok);
    ailing.map(|(name, part)| format!("{name}: {}", part.text)).collect::<Vec<_>>().join("; ")
}

fn clock(there: Option<SystemTime>, findings: &mut Findings) {
    let Some(there) = there else { return };
    let (skew, side) = match SystemTime::now().duration_since(there) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    if skew > SKEW {
        let what = format!("this host's clock is {} s {side} the controller's", skew.as_secs());
        findings.fault("clock", what, "run chrony or systemd-timesyncd on all hosts");
    } else {
        findings.ok("clock", "agrees with the controller's");
    }
}

/// Asks for the running runs, as any user may.
fn access(site: &config::Site, findings: &mut Findings) {
    let client = wire::Client::new(&site.controller.url, site.munge_socket.clone(), LIMIT);
    match client.get::<Vec<serde::de::IgnoredAny>>("/v1/report?state=running") {
        Ok(runs) => {
            findings.ok("access", format!("the controller knows us; {} of ours", options::counted(runs.len(), "run")))
        }
        Err(e @ wire::Error::Unreachable { .. }) => {
            findings.fault("access", e.to_string(), "munged must run here and there");
        }
        Err(e @ (wire::Error::Refused { .. } | wire::Error::Unproven { .. })) => {
            let cure = "all hosts need the same munge.key, and clocks that agree";
            findings.fault("access", e.to_string(), cure);
        }
        Err(e @ wire::Error::Invalid { .. }) => {
            findings.fault("access", e.to_string(), "command and service must have the same version");
        }
    }
}

/// A calibration as far as it matters here.
#[derive(serde::Deserialize)]
struct Calibrated {
    calibration: OfType,
    stale: Vec<String>,
}

#[derive(serde::Deserialize)]
struct OfType {
    node_type: String,
}

/// Whether the calibrations still hold, as far as the nodes tell.
fn calibrations(site: &config::Site, findings: &mut Findings) {
    let client = wire::Client::new(&site.controller.url, site.munge_socket.clone(), LIMIT);
    // That it does not answer was found above.
    let Ok(all) = client.get::<Vec<Calibrated>>("/v1/calibrations") else { return };
    const CURE: &str = "measure with `joulepoint calibrate run`";
    if all.is_empty() {
        return findings.ok("calibration", format!("none yet: plans rest on the site's estimates; {CURE}"));
    }
    for one in &all {
        let of = &one.calibration.node_type;
        match one.stale.is_empty() {
            true => findings.ok("calibration", format!("that of '{of}' holds")),
            false => {
                findings.warning("calibration", format!("that of '{of}' is stale: {}", one.stale.join("; ")), CURE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_named() {
        let mut findings = Findings::default();
        clock(Some(SystemTime::now() - Duration::from_secs(100)), &mut findings);
        clock(Some(SystemTime::now()), &mut findings);
        clock(Some(SystemTime::now() + Duration::from_secs(100)), &mut findings);
        assert_eq!(findings.0[0].level, crate::Level::Fault);
        assert!(findings.0[0].found.contains("100 s ahead of"), "{:?}", findings.0[0]);
        assert_eq!(findings.0[1].level, crate::Level::Ok);
        assert!(findings.0[2].found.contains("s behind the"), "{:?}", findings.0[2]);
    }
}
