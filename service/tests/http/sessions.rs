//! Heartbeats that are signed by the key of a session: as well authenticated as by munge, once for each node and boot.

use crate::site::{MALLORY, PATIENCE, Site, beat, is_root, refused};
use protocol::{Beat, BeatReply};
use std::time::Duration;
use wire::session::{Key, PATH, SessionClient, SessionReply, SessionRequest};
use wire::{CONTROLLER, Client};

fn request() -> SessionRequest {
    SessionRequest { version: protocol::VERSION, node: "n1".into(), boot_id: "boot".into() }
}

/// One heartbeat by hand; its status.
fn sent(site: &Site, key: &Key, number: u64, path: &str, beat: &Beat) -> u16 {
    let body = serde_json::to_vec(beat).expect("a heartbeat");
    let header = key.authorization("n1", number, [CONTROLLER, "POST", path], &body);
    let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/json");
    site.raw(&head, &header, &body).0
}

#[test]
fn a_session_is_of_one_node_and_boot_and_each_number_counts_once() {
    if !is_root() {
        return;
    }
    let mut site = Site::start(1);
    let reply: SessionReply = site.client().post(PATH, &request()).expect("a session");
    let sealed = reply.key.clone();
    let theirs = site.as_user(MALLORY, |_| site.munged.munge().decode(&sealed));
    assert!(theirs.is_err(), "another user reads the key");
    let key = Key::unsealed(&site.munged.munge(), &reply.key, "n1", "boot").expect("the key");
    let own = beat("n1");
    assert_eq!(sent(&site, &key, 1, "/v1/beats", &own), 200);
    assert_eq!(sent(&site, &key, 1, "/v1/beats", &own), 401, "a replay");
    assert_eq!(sent(&site, &key, 7, "/v1/beats", &own), 200);
    assert_eq!(sent(&site, &key, 6, "/v1/beats", &own), 401, "an older number");
    assert_eq!(sent(&site, &key, 8, "/v1/beats", &beat("n2")), 403, "a beat of another node");
    assert_eq!(sent(&site, &key, 9, "/v1/beats", &Beat { boot_id: "other".into(), ..beat("n1") }), 403);
    assert_eq!(sent(&site, &key, 10, "/v1/plan", &own), 401, "another path");
    assert_eq!(sent(&site, &Key::new([7; 32]), 11, "/v1/beats", &own), 401, "another key");
    let opened = site.as_user(MALLORY, |c| c.post::<_, SessionReply>(PATH, &request()));
    refused(opened, 403);
    site.restart();
    assert_eq!(sent(&site, &key, 12, "/v1/beats", &own), 401, "a restart revokes");
}

#[test]
fn a_node_opens_its_session_again_when_the_controller_has_forgotten_it() {
    if !is_root() {
        return;
    }
    let mut site = Site::start(1);
    let client = SessionClient::new(site.client(), site.munged.munge(), request());
    let beats = || client.post::<Beat, BeatReply>("/v1/beats", &beat("n1")).map(|reply| reply.epoch);
    for _ in 0..3 {
        beats().expect("heard");
    }
    site.restart();
    beats().expect("heard again, within one call");
    site.munged.restart().expect("munged");
    beats().expect("munge is not asked");
}

/// A controller of a version before sessions answers their path as any other that it does not know.
#[test]
fn a_node_speaks_to_an_older_controller_by_munge_alone() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    let asked = |path: &str| site.raw(&format!("POST {path} HTTP/1.1"), "", b"{}");
    assert_eq!(asked("/v1/no-such-path").0, 404, "an unknown path is refused before anybody is asked who they are");
    let before = older(&site.url);
    let client = Client::new(&before, Some(site.munged.socket()), Duration::from_secs(10).min(PATIENCE));
    let client = SessionClient::new(client, site.munged.munge(), request());
    for _ in 0..2 {
        client.post::<Beat, BeatReply>("/v1/beats", &beat("n1")).expect("heard");
    }
}

/// Passes everything on to a controller but what asks for a session, which it answers as one that knows none; where it
/// listens.
fn older(url: &str) -> String {
    use std::io::{Read, Write};
    let controller = url.trim_start_matches("http://").to_owned();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let here = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut text = Vec::new();
            let mut part = [0; 65_536];
            // One request comes whole: its length is in its head.
            let whole = |text: &[u8]| {
                let head = String::from_utf8_lossy(text).into_owned();
                let end = head.find("\r\n\r\n")?;
                let length = head.to_lowercase().split("content-length: ").nth(1)?.split("\r\n").next()?.parse().ok();
                Some(text.len() >= end + 4 + length.unwrap_or(0usize))
            };
            while whole(&text) != Some(true) {
                match stream.read(&mut part) {
                    Ok(n) if n > 0 => text.extend_from_slice(&part[..n]),
                    _ => break,
                }
            }
            let answer = match text.starts_with(b"POST /v1/session ") {
                true => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
                false => {
                    let mut there = std::net::TcpStream::connect(&controller).expect("the controller");
                    there.write_all(&text).expect("passed on");
                    there.set_read_timeout(Some(Duration::from_millis(500))).expect("a limit");
                    let mut answer = Vec::new();
                    while let Ok(n) = there.read(&mut part) {
                        if n == 0 {
                            break;
                        }
                        answer.extend_from_slice(&part[..n]);
                    }
                    answer
                }
            };
            let _ = stream.write_all(&answer);
        }
    });
    here
}
