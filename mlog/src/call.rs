//! Reaches a relay: connects, opens and joins, again and again while it is away.

use crate::frame::{Frame, Kind, LONGEST_BYTES};
use crate::link::{Link, Stream};
use crate::program::{Join, Opened};
use crate::{Error, system};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time between two looks at whether the relay still wants no program.
const LOOK: Duration = Duration::from_millis(20);

/// The file beside a relay's socket that is there while no program may connect, since a dump is under way. A file,
/// because a program that waits must not hold a socket.
pub(crate) fn rest(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".rest");
    path.into()
}

/// Connects, opens and joins; tries again while the relay is away. A rest does not count, nor the time for which the
/// program stood still or was only an image.
pub(crate) fn call(
    socket: &Path,
    wait_s: u64,
    checkpoint: u64,
    join: &mut dyn FnMut(&Opened) -> Join,
) -> Result<(Link, Opened, Vec<u64>), Error> {
    let (mut waited, mut pause) = (Duration::ZERO, Duration::from_millis(2));
    let rest = rest(socket);
    loop {
        while rest.exists() {
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
    let stream = UnixStream::connect(socket).map_err(system(socket.display()))?;
    let mut link = Link::new(Stream::Unix(stream), LONGEST_BYTES).map_err(system(socket.display()))?;
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
