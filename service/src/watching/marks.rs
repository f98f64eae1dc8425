//! What goes on about single nodes beside the watch: about each once at a time.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::Builder;

/// Nodes about which something goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks(Arc<Mutex<BTreeSet<String>>>);

/// One of them, until this is dropped.
struct Mark {
    of: Marks,
    node: String,
}

impl Marks {
    /// Begins something about a node on a thread of its own, unless it goes on there.
    pub(super) fn begin(&self, node: &str, work: impl FnOnce() + Send + 'static) {
        if self.0.lock().insert(node.to_string()) {
            let mark = Mark { of: self.clone(), node: node.to_string() };
            beside(move || {
                let _until_it_ends = mark;
                work();
            });
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> BTreeSet<String> {
        self.0.lock().clone()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.of.0.lock().remove(&self.node);
    }
}

/// Does something on a thread of its own; where none can be started it is dropped.
pub(super) fn beside(work: impl FnOnce() + Send + 'static) {
    if let Err(e) = Builder::new().spawn(work) {
        tracing::error!(%e, "no thread can be started; it will be tried again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    #[test]
    fn a_node_is_marked_once_and_until_its_work_ends_however_it_ends() {
        let marks = Marks::default();
        for panics in [false, true] {
            let (go, waits) = channel::<()>();
            marks.begin("n1", move || {
                let _ = waits.recv();
                assert!(!panics, "on purpose");
            });
            let (told, hears) = channel::<()>();
            marks.begin("n1", move || {
                let _ = told.send(());
            });
            assert!(hears.recv().is_err(), "it goes on there");
            assert_eq!(marks.all(), BTreeSet::from(["n1".to_string()]));
            drop(go);
            let end = Instant::now() + Duration::from_secs(10);
            while !marks.all().is_empty() {
                assert!(Instant::now() < end, "it is still marked");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
