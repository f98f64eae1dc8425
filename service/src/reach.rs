//! Sees what of a node can be reached from this host, as the controller and every witness look at it.

use protocol::Seen;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Longest wait for a node that may be dead.
const LIMIT: Duration = Duration::from_secs(1);

/// Where a node is reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Places {
    /// Its node service, as `http://host:port`; empty if it is not known.
    pub url: String,
    /// Its slurmd, as `host:port`.
    pub slurmd: Option<String>,
}

/// What is seen of a node from here: connections are tried, and a refusal shows a host that lives.
pub(crate) fn see(places: &Places) -> Seen {
    let service = places.url.strip_prefix("http://").map(str::to_string);
    let (service, slurmd) = std::thread::scope(|scope| {
        let try_one = |place: Option<String>| scope.spawn(move || place.map_or(Answer::Nothing, |p| connect(&p)));
        let (a, b) = (try_one(service), try_one(places.slurmd.clone()));
        (a.join().unwrap_or(Answer::Nothing), b.join().unwrap_or(Answer::Nothing))
    });
    let host = service != Answer::Nothing || slurmd != Answer::Nothing;
    Seen { service: service == Answer::Accepted, slurmd: slurmd == Answer::Accepted, host }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Accepted,
    Refused,
    Nothing,
}

fn connect(place: &str) -> Answer {
    for address in place.to_socket_addrs().into_iter().flatten() {
        match TcpStream::connect_timeout(&address, LIMIT) {
            Ok(_) => return Answer::Accepted,
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionRefused => return Answer::Refused,
            Err(_) => {}
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
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = format!("http://{}", service.local_addr().unwrap());
        let all = Seen { service: true, slurmd: false, host: true };
        assert_eq!(see(&Places { url, slurmd: Some(closed.to_string()) }), all);
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
