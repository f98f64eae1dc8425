//! Connects a program to its relay and joins; tries again while the relay is away.

use crate::door::connect;
use crate::frame::{Frame, Kind};
use crate::link::Link;
use crate::program::{Join, Opened};
use crate::{Error, system};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::path::Path;
use std::time::Duration;

/// Time between two looks whether the relay admits a program again.
const LOOK: Duration = Duration::from_millis(20);

/// Connects, opens and joins; tries again while the relay is away. Time does not count while the file `rest` exists
/// (a dump is under way), nor while the program stood still or existed only as an image.
pub(crate) fn call(
    socket: &Path,
    rest: Option<&Path>,
    wait_s: u64,
    checkpoint: u64,
    join: &mut dyn FnMut(&Opened) -> Join,
) -> Result<(Link, Opened, Vec<u64>), Error> {
    let (mut waited, mut pause) = (Duration::ZERO, Duration::from_millis(2));
    loop {
        while rest.is_some_and(Path::exists) {
            std::thread::sleep(LOOK);
        }
        let reason = match try_call(socket, checkpoint, join) {
            Err(Error::System { source, .. }) => source.to_string(),
            other => return other,
        };
        if waited.as_secs() >= wait_s {
            return Err(Error::Away { socket: socket.display().to_string(), waited_s: wait_s, reason });
        }
        std::thread::sleep(pause);
        waited += pause;
        pause = (2 * pause).min(Duration::from_millis(200));
    }
}

fn try_call(
    socket: &Path,
    checkpoint: u64,
    join: &mut dyn FnMut(&Opened) -> Join,
) -> Result<(Link, Opened, Vec<u64>), Error> {
    let mut link = connect(socket)?;
    let opened: Opened = exchange(&mut link, Frame::number(Kind::Open, checkpoint), Kind::Opened)?.parse()?;
    let join = join(&opened);
    let known = exchange(&mut link, Frame::json(Kind::Join, 0, &join)?, Kind::Welcome)?.parse()?;
    Ok((link, opened, known))
}

/// Sends a frame and waits for the answer, on a connection that carries nothing else yet.
///
/// # Errors
/// What the relay says, and what the socket says.
pub fn exchange(link: &mut Link, question: Frame, answer: Kind) -> Result<Frame, Error> {
    link.push(question);
    loop {
        link.flush().map_err(system("the relay"))?;
        if let Some(frame) = link.next_frame()? {
            return match frame.header.kind {
                kind if kind == answer => Ok(frame),
                Kind::Trouble => {
                    let text = String::from_utf8_lossy(&frame.body).into_owned();
                    Err(Error::told(frame.header.tag, text, frame.header.number))
                }
                kind => Err(Error::Garbage(format!("{kind:?} for {answer:?}"))),
            };
        }
        let mut fds = [PollFd::new(link.fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(system("poll")(e.into())),
        }
        if !link.receive().map_err(system("the relay"))? {
            return Err(system("the relay")(std::io::ErrorKind::UnexpectedEof.into()));
        }
    }
}
