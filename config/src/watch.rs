//! The section `[watch]`: how long silence may last, and what may be done about it.

use serde::Deserialize;

/// `[watch]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Watch {
    /// A node without proof for so long that the cluster can reach it freezes its protected programs, s.
    pub freeze_s: f64,
    /// After so long without proof they are taken to be frozen, and their runs may begin elsewhere, s.
    pub lease_s: f64,
    /// Most nodes that are set down in a minute.
    pub set_down_per_minute: u32,
    /// Most questions about jobs of open runs that slurmctld is asked in a minute, however many there are.
    pub questions_per_minute: u32,
    /// A power controller: any of the `fence_*` commands, `{node}` standing for a node's name; `-o status` is added. None if empty.
    pub power_command: Vec<String>,
    /// Whether a dead node's power may be taken away (`-o off`) where nothing else shows that it runs nothing any more.
    pub power_off: bool,
    /// File in which a node keeps its lease over restarts of its service, `{node}` standing for its name; it must not outlive a boot.
    pub lease_file: String,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            freeze_s: 5.0,
            lease_s: 8.0,
            set_down_per_minute: 10,
            questions_per_minute: 600,
            power_command: Vec::new(),
            power_off: false,
            lease_file: "/run/joulepoint/{node}.lease".to_string(),
        }
    }
}

/// Least time between the freezing of a node's programs and the moment at which they are taken to be frozen, s.
const SLACK_S: f64 = 2.0;

/// The longest lease, s: for the word on a dead node a script waits twice as long.
const LONGEST_LEASE_S: f64 = 20.0;

/// The longest time between heartbeats of a node, s.
const LONGEST_REST_S: f64 = 60.0;

/// Fewest questions a minute: a job that is being recovered is asked about each second.
const LEAST_QUESTIONS: u32 = 60;

impl Watch {
    /// Holds the times against each other.
    ///
    /// # Errors
    /// Which key is wrong, and what it may be.
    pub(crate) fn check(&self, detect_s: f64, [beat_s, idle_beat_s]: [f64; 2]) -> Result<(), String> {
        let Watch { freeze_s, lease_s, .. } = *self;
        for (key, value, least, why) in [
            ("watch.freeze_s", freeze_s, 2.0 * beat_s, "twice node.beat_s, so that one lost heartbeat freezes nothing"),
            ("watch.lease_s", lease_s, freeze_s + SLACK_S, "watch.freeze_s and 2 s more, for a slow node"),
            ("watch.lease_s", lease_s, detect_s, "controller.detect_s"),
        ] {
            if !(value.is_finite() && value >= least) {
                return Err(format!("{key} = {value} must be at least {least}: {why}"));
            }
        }
        if lease_s > LONGEST_LEASE_S {
            return Err(format!(
                "watch.lease_s = {lease_s} must be at most {LONGEST_LEASE_S}: a script whose node has died does not wait longer \
                 for the word on it"
            ));
        }
        if !(idle_beat_s >= beat_s && idle_beat_s <= LONGEST_REST_S) {
            return Err(format!("node.idle_beat_s = {idle_beat_s} must be from node.beat_s to {LONGEST_REST_S}"));
        }
        if self.set_down_per_minute == 0 {
            return Err("watch.set_down_per_minute = 0 would leave every node to Slurm; say at least 1".to_string());
        }
        if self.power_off && self.power_command.is_empty() {
            return Err("watch.power_off = true needs a watch.power_command that takes the power away".to_string());
        }
        if self.questions_per_minute < LEAST_QUESTIONS {
            let asked = self.questions_per_minute;
            return Err(format!(
                "watch.questions_per_minute = {asked} would make recoveries wait: say at least {LEAST_QUESTIONS}, one a second"
            ));
        }
        Ok(())
    }

    /// The file in which a node keeps its lease.
    pub fn lease_file_of(&self, node: &str) -> std::path::PathBuf {
        self.lease_file.replace("{node}", node).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_would_let_two_instances_run_are_refused() {
        assert_eq!(Watch::default().check(3.0, [1.0, 10.0]), Ok(()));
        for (freeze_s, lease_s, key) in
            [(1.5, 8.0, "watch.freeze_s"), (7.0, 8.0, "watch.lease_s"), (5.0, f64::NAN, "watch.lease_s")]
        {
            let why = Watch { freeze_s, lease_s, ..Watch::default() }.check(3.0, [1.0, 10.0]).unwrap_err();
            assert!(why.starts_with(key), "{why}");
        }
        assert!(Watch { lease_s: 21.0, ..Watch::default() }.check(3.0, [1.0, 10.0]).is_err());
        assert!(Watch::default().check(3.0, [1.0, 0.5]).is_err() && Watch::default().check(3.0, [1.0, 61.0]).is_err());
        assert!(Watch { set_down_per_minute: 0, ..Watch::default() }.check(3.0, [1.0, 10.0]).is_err());
        let power_off = |power_command: Vec<String>| Watch { power_off: true, power_command, ..Watch::default() };
        assert!(power_off(Vec::new()).check(3.0, [1.0, 10.0]).unwrap_err().contains("watch.power_command"));
        assert_eq!(power_off(vec!["fence_ipmilan".into()]).check(3.0, [1.0, 10.0]), Ok(()));
        assert!(Watch { questions_per_minute: 59, ..Watch::default() }.check(3.0, [1.0, 10.0]).is_err());
    }
}
