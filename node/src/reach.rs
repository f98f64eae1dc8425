//! Sees what of a node can be reached from this host, as the controller and every witness look at it.

use protocol::Seen;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long is waited for each try to reach a node that may be dead: a single lost packet says nothing.
const LIMITS: [Duration; 3] = [Duration::from_millis(300), Duration::from_millis(300), Duration::from_millis(600)];

/// How long a service may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_millis(600);

/// Where a node is reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places {
    /// Its node service, as `http://host:port`; empty if it is not known.
    pub url: String,
    /// Its slurmd, as `host:port`.
    pub slurmd: Option<String>,
}

/// What is seen of a node from here: connections are tried, and a refusal shows a host that lives. A service must answer
/// as well: the kernel accepts connections also for one that is stopped.
pub fn see(places: &Places) -> Seen {
    let service = places.url.strip_prefix("http://");
    let (service, slurmd) = std::thread::scope(|scope| {
        let service = scope.spawn(|| service.map_or((Answer::Nothing, false), ask));
        let slurmd = scope.spawn(|| places.slurmd.as_deref().map_or(Answer::Nothing, connect));
        (service.join().unwrap_or((Answer::Nothing, false)), slurmd.join().unwrap_or(Answer::Nothing))
    });
    let host = !matches!((&service.0, &slurmd), (Answer::Nothing, Answer::Nothing));
    Seen { service: service.1, slurmd: matches!(slurmd, Answer::Accepted(_)), host }
}

#[derive(Debug)]
enum Answer {
    Accepted(TcpStream),
    Refused,
    Nothing,
}

/// Connects to a node service, and tells whether it answers.
fn ask(place: &str) -> (Answer, bool) {
    let answer = connect(place);
    let answers = match &answer {
        Answer::Accepted(stream) => says_something(stream).unwrap_or(false),
        _ => false,
    };
    (answer, answers)
}

fn says_something(mut stream: &TcpStream) -> std::io::Result<bool> {
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
    Ok(stream.read(&mut [0; 1])? > 0)
}

fn connect(place: &str) -> Answer {
    let addresses: Vec<SocketAddr> = place.to_socket_addrs().into_iter().flatten().collect();
    for limit in LIMITS {
        for address in &addresses {
            match TcpStream::connect_timeout(address, limit) {
                Ok(stream) => return Answer::Accepted(stream),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => return Answer::Refused,
                Err(_) => {}
            }
        }
    }
    Answer::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_host_that_refuses_lives_and_one_that_is_silent_is_not_seen() {
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        let answering = service.try_clone().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = answering.accept().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        });
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("http://{}", service.local_addr().unwrap());
        let all = Seen { service: true, slurmd: false, host: true };
        assert_eq!(see(&Places { url, slurmd: Some(closed.to_string()) }), all);
        let url = format!("http://{}", service.local_addr().unwrap());
        let stopped = Seen { service: false, slurmd: false, host: true };
        assert_eq!(see(&Places { url, slurmd: None }), stopped, "its kernel accepts, nobody answers");
        let refused = Seen { service: false, slurmd: false, host: true };
        assert_eq!(see(&Places { url: String::new(), slurmd: Some(closed.to_string()) }), refused);
        // Whoever has as many waiting as it will take drops what comes then, as a host without power does.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        nix::sys::socket::listen(&silent, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let (address, mut waiting) = (silent.local_addr().unwrap(), Vec::new());
        while let Ok(one) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            waiting.push(one);
        }
        assert_eq!(see(&Places { url: format!("http://{address}"), slurmd: None }), Seen::default());
    }
}
