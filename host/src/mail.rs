//! The one queue by which threads tell the driver what happened, and the clock that reads it.

use driver::groups::ports::News;
use driver::ports::{Clock, Happening};
use nix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest single wait on the queue, s.
const LONGEST_WAIT_S: f64 = 3600.0;

/// Numbers the tries of something, so that news of an earlier try can be told from news of this one.
#[derive(Clone, Debug, Default)]
pub struct Tries(Arc<AtomicU64>);

/// One try.
#[derive(Clone, Debug)]
pub struct Try {
    all: Tries,
    mine: u64,
}

impl Tries {
    /// Begins a try and makes all earlier ones void.
    pub fn begin(&self) -> Try {
        let mine = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        Try { all: self.clone(), mine }
    }

    /// Makes all tries void.
    pub fn void(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Try {
    /// Whether no later try began and this one was not given up.
    pub fn is_current(&self) -> bool {
        self.all.0.load(Ordering::SeqCst) == self.mine
    }
}

/// The sending end, one for each thread.
#[derive(Clone, Debug)]
pub struct Post {
    to: Sender<(Option<Try>, Happening)>,
    group: Option<usize>,
}

impl Post {
    /// The post of an engine that serves one group.
    pub fn of_group(&self, group: usize) -> Post {
        Post { to: self.to.clone(), group: Some(group) }
    }

    /// Tells the driver.
    pub fn tell(&self, happening: Happening) {
        self.send(None, happening);
    }

    /// Tells the driver, unless the try has become void when it reads it.
    pub fn tell_of(&self, of: &Try, happening: Happening) {
        self.send(Some(of.clone()), happening);
    }

    fn send(&self, of: Option<Try>, happening: Happening) {
        let happening = match (self.group, happening) {
            (Some(group), Happening::Checkpointed(result)) => Happening::Group(News::Checkpointed { group, result }),
            (Some(group), Happening::GoesOn) => Happening::Group(News::GoesOn { group }),
            (Some(group), Happening::Appeared) => Happening::Group(News::Appeared { group }),
            (_, happening) => happening,
        };
        // The receiver is gone only when the driver has left; then nobody needs the news.
        let _ = self.to.send((of, happening));
    }
}

/// The receiving end, with the real time.
#[derive(Debug)]
pub struct MailClock(Receiver<(Option<Try>, Happening)>);

/// A new queue.
pub fn queue() -> (Post, MailClock) {
    let (sender, receiver) = channel();
    (Post { to: sender, group: None }, MailClock(receiver))
}

/// Seconds since the Unix epoch, as the clock of this host had them when this process asked first. From then on they go on
/// evenly: whoever sets the clock moves nothing that is waited for.
pub fn now_s() -> f64 {
    static BEGUN: OnceLock<(Duration, Duration)> = OnceLock::new();
    let (at, begun) = BEGUN.get_or_init(|| (wall(), since_boot()));
    (*at + since_boot().saturating_sub(*begun)).as_secs_f64()
}

/// A moment by the clock on the wall, of this host or of another that agrees with it, as [`now_s`] counts.
pub fn of_wall_s(at_s: f64) -> f64 {
    at_s - wall().as_secs_f64() + now_s()
}

fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Time since this host was started, also while it was suspended.
fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// The same moment on the clock on the wall, as seconds since its 1970.
pub fn local_s(at_s: f64) -> f64 {
    let moment = jiff::Timestamp::from_second(at_s as i64).unwrap_or_default();
    at_s + f64::from(jiff::tz::TimeZone::system().to_offset(moment).seconds())
}

impl Clock for MailClock {
    fn now_s(&self) -> f64 {
        now_s()
    }

    fn local_s(&self, at_s: f64) -> f64 {
        local_s(at_s)
    }

    fn wait(&mut self, until_s: f64) -> Option<Happening> {
        loop {
            let left_s = (until_s - now_s()).clamp(0.0, LONGEST_WAIT_S);
            match self.0.recv_timeout(Duration::from_secs_f64(left_s)) {
                Ok((Some(of), _)) if !of.is_current() => {}
                Ok((_, happening)) => return Some(happening),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}
