//! Asks the program's processes in steps for a checkpoint, on all nodes of a job: their services signal those that have a
//! handler. Slurm would signal all, and kill those that have none.

use crate::frequency::Services;
use crate::nodes::ask_all;
use protocol::{SignalReply, SignalRequest};
use std::sync::{Arc, Mutex, PoisonError};

/// Sends a signal to a job's steps on some nodes; how many processes have got it, or a sentence.
pub type AskSteps = Arc<dyn Fn(&[String], i32) -> Result<u32, String> + Send + Sync>;

/// The steps of a job.
pub fn of_job(job: u32, services: Services) -> AskSteps {
    let services = Mutex::new(services);
    Arc::new(move |nodes, signal| {
        let services = services.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<&String> = nodes.iter().collect();
        let question = || SignalRequest { version: protocol::VERSION, signal };
        let answers = ask_all::<_, SignalReply>(&services, &names, &format!("/v1/jobs/{job}/signal"), question);
        let silent: Vec<&str> =
            names.iter().zip(&answers).filter(|(_, a)| a.is_none()).map(|(n, _)| n.as_str()).collect();
        let asked = answers.iter().flatten().map(|answer| answer.asked).sum();
        match (asked, silent.as_slice()) {
            (0, []) => Ok(0),
            (0, silent) => Err(format!(
                "the node services of {} do not answer, so that nobody knows which processes there have a handler for \
                 signal {signal}",
                silent.join(",")
            )),
            (asked, silent) => {
                if !silent.is_empty() {
                    tracing::warn!(?silent, "node services did not answer: processes there were not asked");
                }
                Ok(asked)
            }
        }
    })
}
