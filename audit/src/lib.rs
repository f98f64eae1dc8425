//! Writes one line for each privileged act: who asked, what was done to whom, and what came of it.
//!
//! The lines are those of the tracing target `audit`; `JOULEPOINT_LOG=info,audit=info` keeps them whatever else is left
//! out. They hold no text of a user but the reason of an act, escaped.

use std::convert::Infallible;
use std::fmt::Display;
use wire::Peer;

/// Who wants an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The service itself: what it saw asks for it.
    Service,
    /// A user, by a request.
    User(Peer),
    /// The owner of a run, by its records or its loan.
    Owner(u32),
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A node is set down.
    NodeDown,
    /// A node is put back into service.
    NodeResume,
    /// A job is put back into the queue.
    Requeue,
    /// A requeued job starts without waiting.
    StartNow,
    /// A requeued job starts at a moment, and not before.
    StartAt,
    /// A job is let go that Slurm holds since its launch failed.
    Release,
    /// What is left of a job on a node is ended.
    Fence,
    /// A protected job's processes on a node are stopped, since nobody reaches the node.
    Freeze,
    /// They go on.
    Thaw,
    /// A dead node's power is taken away.
    PowerOff,
    /// A person says that a silent node has no power.
    ConfirmOff,
    /// A job's AdminComment is written.
    AdminComment,
    /// A job's energy is set in accounting.
    SetEnergy,
    /// A reservation is made, moved or removed, or a job is moved into or out of one.
    Reservation,
    /// A job's nodes or its time limit are changed.
    Resize,
    /// A job is cancelled.
    Cancel,
    /// The CPU frequency of a node is held or given back.
    Frequency,
    /// An order for a run is taken.
    Order,
    /// A calibration is stored.
    Calibration,
}

impl Act {
    /// The name in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            Act::NodeDown => "node_down",
            Act::NodeResume => "node_resume",
            Act::Requeue => "requeue",
            Act::Release => "release",
            Act::StartNow => "start_now",
            Act::StartAt => "start_at",
            Act::Fence => "fence",
            Act::Freeze => "freeze",
            Act::Thaw => "thaw",
            Act::PowerOff => "power_off",
            Act::ConfirmOff => "confirm_off",
            Act::AdminComment => "admin_comment",
            Act::SetEnergy => "set_energy",
            Act::Reservation => "reservation",
            Act::Resize => "resize",
            Act::Cancel => "cancel",
            Act::Frequency => "frequency",
            Act::Order => "order",
            Act::Calibration => "calibration",
        }
    }
}

/// Notes an act on a job, `job` being 0 for none, or on a node, empty for none, with why, and what came of it; the
/// outcome is handed on.
pub fn note<T, E: Display>(
    by: By,
    act: Act,
    (job, node): (u32, &str),
    why: &str,
    outcome: Result<T, E>,
) -> Result<T, E> {
    let (who, uid) = match by {
        By::Service => ("service", 0),
        By::User(peer) => ("user", peer.uid),
        By::Owner(uid) => ("owner", uid),
    };
    let act = act.as_str();
    match &outcome {
        Ok(_) => tracing::info!(target: "audit", act, who, uid, job, node, ?why, outcome = "done"),
        Err(e) => {
            let e = e.to_string();
            tracing::warn!(target: "audit", act, who, uid, job, node, ?why, outcome = ?e);
        }
    }
    outcome
}

/// Notes an act that has been done.
pub fn done(by: By, act: Act, of: (u32, &str), why: &str) {
    let Ok(()) = note::<(), Infallible>(by, act, of, why, Ok(()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::io::{self, Write};
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_act_is_one_line_with_who_asked_and_what_came_of_it() {
        let lines = Lines::default();
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || to.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let asked = By::User(Peer { uid: 1000, gid: 1000 });
            let done: Result<u32, String> = note(asked, Act::Order, (7, ""), "vacate\noutcome=\"x\"", Ok(5));
            assert_eq!(done, Ok(5));
            let failed: Result<(), &str> = note(By::Service, Act::NodeDown, (0, "n1"), "silent", Err("no such node"));
            assert_eq!(failed, Err("no such node"));
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        for word in ["audit: ", "act=\"order\"", "who=\"user\"", "uid=1000", "job=7", "outcome=\"done\"", "vacate\\n"] {
            assert!(lines[0].contains(word), "{word}: {}", lines[0]);
        }
        for word in ["act=\"node_down\"", "node=\"n1\"", "outcome=\"no such node\""] {
            assert!(lines[1].contains(word), "{word}: {}", lines[1]);
        }
    }
}
