//! A plan in six lines, for whoever is about to submit.

use super::submission::Submission;
use options::{Settings, spoken};
use protocol::{Capabilities, Plan};

/// An overhead above this is not told in figures, as a fraction.
const MOST_TOLD: f64 = 1.0;

/// What would protect the job, what a failure would cost, and what the protection is expected to cost.
///
/// `capabilities`: what the nodes have, if that is known.
pub fn summary(
    plan: &Plan,
    settings: &Settings,
    nodes: u32,
    job: &Submission,
    capabilities: Option<&Capabilities>,
) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12}{value}\n"));
    let has_command = std::env::var_os(options::CHECKPOINT_COMMAND).is_some_and(|command| !command.is_empty());
    let prospect = options::prospect(
        settings,
        &options::Job { commands: &job.commands, nodes: Some(nodes) },
        has_command,
        capabilities,
    );
    let lost =
        format!("{}; at most {} of work is lost", goes_back(plan), spoken(plan.interval_s + plan.checkpoint_s.value));
    let failure = match prospect.starts_with("NOT PROTECTED") {
        true => "all work is lost".to_string(),
        false if job.stays_away => format!("with a lost node the job ends for good (--no-requeue); else {lost}"),
        false => lost,
    };
    line("protection", prospect);
    line("failure", failure);
    line("interval", format!("{} between checkpoints of {}, {}", spoken(plan.interval_s), checkpoint(plan), why(plan)));
    line(
        "cost",
        format!(
            "{} more time and {} more energy than without failures and checkpoints, as expected",
            percent(plan.expected_time_overhead),
            percent(plan.expected_energy_overhead)
        ),
    );
    line("based on", based_on(plan, nodes));
    line("more", "--ft-energy-explain=full has every figure, its source, and what was not taken".to_string());
    text
}

fn goes_back(plan: &Plan) -> &'static str {
    match plan.protocol.as_str() {
        "coordinated" => "the job goes back to its last checkpoint as a whole",
        "shadow" => "the replica of the lost part takes over",
        _ => "the lost group alone goes back to its last checkpoint",
    }
}

fn checkpoint(plan: &Plan) -> String {
    spoken(plan.checkpoint_s.value)
}

fn why(plan: &Plan) -> String {
    let longest = plan.longest_interval_s.is_some_and(|longest_s| plan.interval_s >= 0.999 * longest_s);
    match (plan.interval_fixed, longest) {
        (true, _) => "as you asked".to_string(),
        (false, true) => "the longest that this site lets a job of this time limit have".to_string(),
        (false, false) => format!("for the least {}", plan.objective),
    }
}

fn based_on(plan: &Plan, nodes: u32) -> String {
    let of = if nodes == 1 { "its node".to_string() } else { format!("its {nodes} nodes") };
    let unmeasured = [&plan.checkpoint_s, &plan.busy_w].iter().all(|figure| figure.from == "site");
    format!(
        "a failure of {of} every {} (from: {}), checkpoints of {} (from: {}){}",
        spoken(plan.mtbf_s.value),
        plan.mtbf_s.from,
        checkpoint(plan),
        plan.checkpoint_s.from,
        if unmeasured { "; nothing is calibrated, so these are estimates" } else { "" }
    )
}

fn percent(share: f64) -> String {
    if share > MOST_TOLD { "more than 100 %".to_string() } else { format!("{:.1} %", 100.0 * share) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Figure;
    use std::collections::BTreeMap;

    fn plan(settings: &Settings) -> Plan {
        let figure = |value: f64| Figure { value, from: "site".to_string() };
        Plan {
            interval_s: 3600.0,
            longest_interval_s: Some(3600.0),
            mtbf_s: figure(47_336_400.0),
            checkpoint_s: figure(30.0),
            expected_time_overhead: 0.0084,
            expected_energy_overhead: 0.0061,
            ..planner::plan_without_history(settings, &Default::default(), &Default::default())
        }
    }

    #[test]
    fn a_plan_is_told_in_six_lines() {
        let settings = options::resolve(&options::written(&["--ft-energy".to_string()], ""), &BTreeMap::new()).unwrap();
        let nodes = Capabilities { nodes: 4, engines: [("criu".to_string(), 4)].into(), at_s: 0.0, site_wide: false };
        let job = |stays_away| Submission { commands: "srun python3 a.py".into(), stays_away, ..Submission::default() };
        let told = |plan: &Plan| summary(plan, &settings, 2, &job(false), Some(&nodes));
        assert_eq!(
            told(&plan(&settings)),
            "protection  to be protected by images of its tasks (CRIU); MPI under srun: if the program is linked to Open MPI or \
             MPICH\n\
             failure     the job goes back to its last checkpoint as a whole; at most 1 h of work is lost\n\
             interval    1 h between checkpoints of 30 s, the longest that this site lets a job of this time limit have\n\
             cost        0.8 % more time and 0.6 % more energy than without failures and checkpoints, as expected\n\
             based on    a failure of its 2 nodes every 547 days 21 h (from: site), checkpoints of 30 s (from: site); \
             nothing is calibrated, so these are estimates\n\
             more        --ft-energy-explain=full has every figure, its source, and what was not taken\n"
        );
        let other = Plan { interval_fixed: true, protocol: "uncoordinated-disk".to_string(), ..plan(&settings) };
        assert!(told(&other).contains("as you asked") && told(&other).contains("lost group alone"));
        let away = summary(&plan(&settings), &settings, 2, &job(true), Some(&nodes));
        assert!(away.contains("ends for good (--no-requeue); else the job goes back"), "{away}");
        let best = Plan { longest_interval_s: None, ..plan(&settings) };
        assert!(told(&best).contains("for the least energy"));
    }
}
