//! Looks at a program early, before its first checkpoint: what stands in the way of a dump is told while there is time.

use able::{Answer, look};
use driver::ports::Happening;
use host::mail::{Post, Tries};
use host::processes;
use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;
use steps::script::Tree;

/// Waits before the looks, s: what is seen in two that follow each other is there to stay. Then the first checkpoint shows it.
const WAITS_S: [u64; 6] = [15, 15, 60, 15, 300, 15];

/// What serves a dump within the sandbox of a program.
const OURS: [&str; 2] = ["joulepoint", "criu"];

/// What surely keeps CRIU from dumping a program.
const SURE: [&str; 9] = ["gpu", "rdma", "tcp", "socket", "io_uring", "inotify", "sysv_shm", "namespace", "secret"];

/// What was seen in a look: the program, what it has, and what to do.
type Seen = BTreeSet<(i32, String, String)>;

/// The looks at the processes of a script.
pub struct Looks {
    tree: Tree,
    dumps_removed: bool,
    tries: Tries,
}

impl Looks {
    /// Looks at a script that is not started yet; `dumps_removed` as for [`look`].
    pub fn new(tree: Tree, dumps_removed: bool) -> Looks {
        Looks { tree, dumps_removed, tries: Tries::default() }
    }

    /// Begins anew with the script: the driver is told once.
    pub fn start(&self, post: &Post) {
        let (one, tree, post, dumps_removed) =
            (self.tries.begin(), self.tree.clone(), post.clone(), self.dumps_removed);
        threads::start(move || {
            let mut before = Seen::new();
            for wait_s in WAITS_S {
                thread::sleep(Duration::from_secs(wait_s));
                let script = tree.script();
                if !one.is_current() || script == 0 {
                    return;
                }
                let theirs = processes::below(script).into_iter().filter(|p| !OURS.contains(&p.name.as_str()));
                let pids: Vec<i32> = theirs.map(|p| p.pid).collect();
                let now = seen(look(Path::new("/proc"), &pids, dumps_removed));
                if let Some(reason) = lasting(&before, &now) {
                    return post.tell_of(&one, Happening::Hindered(reason));
                }
                before = now;
            }
        });
    }

    /// Nobody wants to know any more.
    pub fn end(&self) {
        self.tries.void();
    }
}

fn seen(answer: Answer) -> Seen {
    let sure = answer.obstacles.into_iter().filter(|o| SURE.contains(&o.kind));
    sure.map(|o| (o.pid, format!("{} has {}", o.program, o.found), o.instead.to_string())).collect()
}

/// What was there before and is there still, in words.
fn lasting(before: &Seen, now: &Seen) -> Option<String> {
    before.intersection(now).next().map(|(_, what, instead)| format!("{what}: {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use able::Obstacle;

    fn answer(kinds: &[&'static str]) -> Answer {
        let obstacle = |kind: &&'static str| Obstacle {
            pid: 7,
            program: "prog".into(),
            kind,
            found: format!("a {kind}"),
            instead: "use another",
        };
        Answer { obstacles: kinds.iter().map(obstacle).collect(), ..Answer::default() }
    }

    #[test]
    fn what_is_seen_twice_is_told_and_what_passes_or_may_be_dumped_is_not() {
        let (tcp, other) = (seen(answer(&["tcp", "seccomp"])), seen(answer(&["inotify", "device"])));
        assert_eq!(lasting(&Seen::new(), &tcp), None);
        assert_eq!(lasting(&tcp, &other), None);
        assert_eq!(lasting(&tcp, &tcp).unwrap(), "prog has a tcp: use another");
        let unsure = seen(answer(&["seccomp", "device", "mapping"]));
        assert_eq!(lasting(&unsure, &unsure), None);
    }
}
