//! Reads `scontrol show step -o`, of which only what stands before a step's name is Slurm's own word.

use crate::Error;
use crate::fields::time;
use crate::nodelist::expand_nodelist;

/// Where the first text of a user begins, which may hold anything; it ends at the last [`BEHIND_NAME`].
const NAME: &str = " Name=";
const BEHIND_NAME: &str = " Network=";

/// A running step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its id, such as `12.0`, `12.batch`, or `12_3.0` in an array.
    pub id: String,
    /// Nodes it runs on.
    pub nodes: Vec<String>,
    /// Slurm's word for what it is doing.
    pub state: String,
    /// Its name: the program, or what its user wrote.
    pub name: String,
    /// When it started, s since the epoch.
    pub start_s: Option<f64>,
}

impl Step {
    /// Whether a user's `srun` made it (not Slurm itself: batch, extern, interactive).
    pub fn is_users(&self) -> bool {
        self.id.rsplit('.').next().is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    }
}

/// The steps of a job, `12` or `12_3`, in the output of `scontrol show step -o JOB`. A name with a line break may add a
/// step to them, but to those of the same job only, and can neither change nor hide another.
pub fn parse_steps(text: &str, job: &str) -> Result<Vec<Step>, Error> {
    let mine = format!("StepId={job}.");
    text.lines().filter(|l| l.starts_with(&mine)).map(parse_step).collect()
}

fn parse_step(line: &str) -> Result<Step, Error> {
    let wrong = || Error::unreadable("step", line);
    let (facts, rest) = line.split_once(NAME).ok_or_else(wrong)?;
    let fact = |key: &'static str| {
        let mut pairs = facts.split(' ').filter_map(|word| word.split_once('='));
        pairs.find(|(k, _)| *k == key).map(|(_, value)| value).ok_or_else(|| Error::unreadable(key, "(absent)"))
    };
    Ok(Step {
        id: fact("StepId")?.to_owned(),
        nodes: expand_nodelist(fact("NodeList")?)?,
        state: fact("State")?.to_owned(),
        name: rest.rsplit_once(BEHIND_NAME).map_or(rest, |(name, _)| name).to_owned(),
        start_s: time("StartTime", fact("StartTime")?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_changes_nothing_of_its_step() {
        let name = "x State=COMPLETED NodeList=n9 Network=ib";
        let line = format!(
            "StepId=12.0 UserId=1 StartTime=5 TimeLimit=UNLIMITED State=RUNNING Partition=all NodeList=n1 Nodes=1 CPUs=1 \
             Tasks=1 Name={name} Network=(null) TRES=cpu=1"
        );
        let steps = parse_steps(&line, "12").expect("read");
        assert_eq!((steps[0].state.as_str(), steps[0].nodes.join(" ").as_str()), ("RUNNING", "n1"));
        assert_eq!((steps[0].name.as_str(), steps[0].start_s), (name, Some(5.0)));
    }

    #[test]
    fn steps_of_an_arrays_task_are_named_by_array_and_task() {
        let line = "StepId=2_1.batch UserId=1 StartTime=5 TimeLimit=UNLIMITED State=RUNNING Partition=all NodeList=n1 \
                    Nodes=1 CPUs=0 Tasks=1 Name=batch Network=(null)";
        assert_eq!(parse_steps(line, "2_1").expect("read").len(), 1);
        assert!(parse_steps(line, "2").expect("read").is_empty());
        assert!(parse_steps("StepId=2_1.0 UserId=1 Name=x", "2_1").is_err(), "a fact is missing");
    }
}
