//! Reaches a relay: waits while it rests, connects, enters and joins, again and again while it is away.

use super::rest_file;
use super::state::Shared;
use crate::Error;
use crate::ranks::{MESSAGES, QUESTIONS};
use crate::words::{Progress, Welcome};
use mlog::frame::{Frame, Kind};
use mlog::{Link, connect, exchange};
use std::thread::sleep;
use std::time::Duration;

/// Time between two looks at whether ranks are still kept away.
const LOOK: Duration = Duration::from_millis(10);

/// First and longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

/// Both connections of a rank that has joined.
pub(super) struct Reached {
    pub(super) messages: Link,
    pub(super) questions: Link,
    pub(super) welcome: Welcome,
}

/// Tries until it works. A rest does not count, nor the time for which the rank stood still or was only an image.
///
/// # Errors
/// [`Error::Away`] after so long, or what the relay says.
pub(super) fn reach(shared: &Shared, progress: &Progress) -> Result<Reached, Error> {
    let (mut waited, mut pause) = (Duration::ZERO, PAUSES.0);
    let rest = rest_file(&shared.socket);
    loop {
        while rest.exists() {
            if shared.lock().ended.is_some() {
                return Err(Error::Usage("this rank has left its relay".into()));
            }
            sleep(LOOK);
        }
        if shared.lock().ended.is_some() {
            return Err(Error::Usage("this rank has left its relay".into()));
        }
        let reason = match attempt(shared, progress) {
            Err(mlog::Error::System { source, .. }) => source.to_string(),
            Err(mlog::Error::Garbage(text)) if text.is_empty() => "a rest begins".to_string(),
            Err(e) => return Err(e.into()),
            Ok(reached) => return Ok(reached),
        };
        if waited.as_secs() >= shared.wait_s {
            let socket = shared.socket.display().to_string();
            return Err(Error::Away { socket, waited_s: shared.wait_s, reason });
        }
        sleep(pause);
        waited += pause;
        pause = (2 * pause).min(PAUSES.1);
    }
}

fn attempt(shared: &Shared, progress: &Progress) -> Result<Reached, mlog::Error> {
    let questions = enter(shared, QUESTIONS)?;
    let mut messages = enter(shared, MESSAGES)?;
    let join = Frame::json(Kind::Join, 0, progress)?;
    let welcome = exchange(&mut messages, join, Kind::Welcome)?.parse()?;
    Ok(Reached { messages, questions, welcome })
}

fn enter(shared: &Shared, tag: i32) -> Result<Link, mlog::Error> {
    let mut link = connect(&shared.socket)?;
    if rest_file(&shared.socket).exists() {
        // A dump may begin at once: no socket may be held.
        return Err(mlog::Error::Garbage(String::new()));
    }
    let frame = Frame::new(Kind::Enter, 0, tag, u64::from(shared.rank), Vec::new());
    exchange(&mut link, frame, Kind::Opened)?;
    Ok(link)
}
