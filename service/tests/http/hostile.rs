//! Hostile requests at the real daemon: each is refused, each refusal is logged, and the service goes on.

use crate::site::{ALICE, MALLORY, Site, beat, ended, is_root, started, until};
use protocol::{Batch, Event, Record, RunKey};
use std::process::Command;

/// What a stranger sends, what is answered, and what the log says of it. Status 0: the connection ends unanswered.
struct Hostile {
    name: &'static str,
    request: Vec<u8>,
    status: u16,
    logged: &'static str,
}

fn hostile(name: &'static str, request: impl Into<Vec<u8>>, status: u16, logged: &'static str) -> Hostile {
    Hostile { name, request: request.into(), status, logged }
}

fn http(line: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = if headers.contains("ength") || headers.contains("hunked") {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}{length}\r\n");
    [head.as_bytes(), body].concat()
}

impl Site {
    /// A well-signed request of mallory's.
    fn signed(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        self.signed_by(MALLORY, method, path, body)
    }

    fn signed_by(&self, uid: u32, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let credential = self.credential_of(uid, wire::CONTROLLER, method, path, body);
        http(&format!("{method} {path}"), &[("Authorization", &credential)], body)
    }

    /// A request with a credential that was made for another one.
    fn misused(&self, line: &str, credential: &str, body: &[u8]) -> Vec<u8> {
        http(line, &[("Authorization", credential)], body)
    }

    /// A credential that lives for a second.
    fn short_lived(&self, path: &str) -> String {
        let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let made = Command::new("munge")
            .arg("--socket")
            .arg(self.munged.socket())
            .args(["--ttl=1", "--string", &format!("joulepoint/1 controller GET {path} {digest}")])
            .output()
            .expect("munge");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        format!("MUNGE {}", String::from_utf8_lossy(&made.stdout).trim())
    }
}

fn batch(run: &str, event: Event) -> Vec<u8> {
    let key = RunKey { cluster: "c".into(), run: run.into() };
    let records = vec![Record { seq: 1, at_s: 100.0, event }];
    serde_json::to_vec(&Batch { version: 1, key, holder: None, records }).expect("JSON")
}

fn order(field: &str) -> Vec<u8> {
    format!(r#"{{"version":1,"id":"a1","verb":"vacate","job":"7"{field}}}"#).into_bytes()
}

fn credentials(site: &Site) -> Vec<Hostile> {
    let report = "/v1/report";
    let line = "GET /v1/report";
    let used = site.credential(report);
    assert_eq!(site.raw("GET /v1/report HTTP/1.1", &used, b"").0, 200);
    let of = |audience: &str, method: &str, path: &str| site.credential_of(0, audience, method, path, b"");
    let twice = site.credential(report);
    vec![
        hostile("no credential", http(line, &[], b""), 401, "Authorization: MUNGE"),
        hostile("another scheme", site.misused(line, "Basic cm9vdDpyb290", b""), 401, "Authorization: MUNGE"),
        hostile("bad base64", site.misused(line, "MUNGE MUNGE:!!!:", b""), 401, "the credential is refused"),
        hostile(
            "an endless credential",
            site.misused(line, &format!("MUNGE {}", "A".repeat(12_000)), b""),
            401,
            "too long",
        ),
        hostile("replayed", site.misused(line, &used, b""), 401, "used before"),
        hostile("for another path", site.misused(line, &site.credential("/v1/plan"), b""), 401, "another request"),
        hostile(
            "for another query",
            site.misused("GET /v1/report?user=x", &site.credential(report), b""),
            401,
            "another",
        ),
        hostile(
            "for another method",
            site.misused("POST /v1/orders", &site.credential("/v1/orders"), b""),
            401,
            "another",
        ),
        hostile("for another body", site.misused(line, &site.credential(report), b"more"), 401, "another request"),
        hostile("for another audience", site.misused(line, &of("node:n1", "GET", report), b""), 401, "another request"),
        hostile("for another service", site.misused(line, &site.munge(0, "slurmctld"), b""), 401, "another request"),
        hostile(
            "two credentials",
            http(line, &[("Authorization", &twice), ("Authorization", "MUNGE x")], b""),
            400,
            "more than one Authorization",
        ),
    ]
}

fn other_peoples(site: &Site) -> Vec<Hostile> {
    let beat = serde_json::to_vec(&beat("n1")).expect("JSON");
    vec![
        hostile("a foreign run", site.signed("GET", "/v1/runs/c/7.1/health", b""), 404, "of yours is known"),
        hostile("a foreign run's journal", site.signed("POST", "/v1/records", &batch("7.1", ended())), 403, "write"),
        hostile("a foreign job", site.signed("POST", "/v1/records", &batch("7.2", started(7))), 403, "is not of user"),
        hostile("a foreign job to vacate", site.signed("POST", "/v1/orders", &order("")), 404, "of yours is known"),
        hostile("a foreign order", site.signed("GET", "/v1/orders/hers", b""), 404, "of yours is known"),
        hostile("a heartbeat of a user", site.signed("POST", "/v1/beats", &beat), 403, "send heartbeats"),
    ]
}

fn names_and_numbers(site: &Site) -> Vec<Hostile> {
    let run = |name: &str| site.signed("GET", &format!("/v1/runs/c/{name}/health"), b"");
    let job = |job: &str| {
        let body = format!(r#"{{"version":1,"id":"a1","verb":"vacate","job":"{job}"}}"#);
        site.signed("POST", "/v1/orders", body.as_bytes())
    };
    let wait = |wait: &str| site.signed("GET", &format!("/v1/orders/a1?wait_s={wait}"), b"");
    let nested = "[".repeat(100_000);
    vec![
        hostile("a run called ..", run("..%2F..%2Fetc"), 400, "a run's name"),
        hostile("a hidden run", run(".ssh"), 400, "a run's name"),
        hostile("a run with NUL", run("7%00.1"), 400, "a run's name"),
        hostile("a run in unicode", run("%E2%80%AE7.1"), 400, "a run's name"),
        hostile("a run that is no text", run("%FF%FE"), 400, "UTF-8"),
        hostile("a run with SQL", run("7'%20OR%20'1'='1"), 400, "a run's name"),
        hostile(
            "records under a path",
            site.signed("POST", "/v1/records", &batch("../../etc/x", ended())),
            400,
            "a run's name",
        ),
        hostile("a job with SQL", job("7; DROP TABLE runs"), 400, "a job is named"),
        hostile("a negative job", job("-7"), 400, "a job is named"),
        hostile("an overlong job", job("99999999999999999999999"), 400, "a job is named"),
        hostile("no number to wait", wait("NaN"), 400, "is no time"),
        hostile("an endless wait", wait("inf"), 400, "is no time"),
        hostile("a negative wait", wait("-1"), 400, "is no time"),
        hostile("an unknown field", site.signed("POST", "/v1/orders", &order(r#","as":"root""#)), 400, "unknown field"),
        hostile("an unknown question", site.signed("GET", "/v1/report?colour=red", b""), 400, "colour"),
        hostile("deep nesting", site.signed("POST", "/v1/orders", nested.as_bytes()), 400, "not understood"),
        hostile(
            "another version's order",
            site.signed("POST", "/v1/orders", br#"{"version":9,"id":"a","verb":"enable","job":"7"}"#),
            400,
            "version 9",
        ),
        hostile(
            "an id that is a path",
            site.signed("POST", "/v1/orders", br#"{"version":1,"id":"../x","verb":"enable","job":"7"}"#),
            400,
            "an order's id",
        ),
    ]
}

fn forms(site: &Site) -> Vec<Hostile> {
    let large = vec![b'x'; 5 << 20];
    let chunk = [b"10000\r\n".as_slice(), &vec![b'x'; 0x10000], b"\r\n"].concat();
    let endless = |credential: &str| {
        let headers = [("Authorization", credential), ("Transfer-Encoding", "chunked")];
        http("POST /v1/records", &headers, &chunk.repeat(100))
    };
    let chunked = site.credential_of(MALLORY, wire::CONTROLLER, "POST", "/v1/records", b"");
    let many: Vec<(String, String)> = (0..100).map(|i| (format!("x-{i}"), "y".to_owned())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    vec![
        hostile("a huge body", site.signed("POST", "/v1/records", &large), 413, "a body may have"),
        hostile("a body without end", endless(&chunked), 413, "a body may have"),
        hostile("an unsigned huge body", http("POST /v1/records", &[], &large), 401, "Authorization: MUNGE"),
        hostile("a long header", http("GET /v1/report", &[("x", &"y".repeat(40_000))], b""), 431, "no request"),
        hostile("a hundred headers", http("GET /v1/report", &many, b""), 431, "no request"),
        hostile("a long path", http(&format!("GET /v1/{}", "a".repeat(4000)), &[], b""), 414, "a path may have"),
        hostile(
            "two lengths",
            http("POST /v1/plan", &[("Content-Length", "2"), ("Content-Length", "4")], b"{}{}"),
            400,
            "no request",
        ),
        hostile("another version", http("GET /v9/report", &[], b""), 404, "this service speaks /v1"),
        hostile("a path that climbs", http("GET /v1/../../etc/passwd", &[], b""), 404, "there is no such path"),
        hostile("TRACE", http("TRACE /v1/report", &[], b""), 405, "only GET and POST"),
        hostile("CONNECT", http("CONNECT 10.0.0.1:22", &[], b""), 405, "only GET and POST"),
        hostile("DELETE", http("DELETE /v1/runs/c/7.1/health", &[], b""), 405, "only GET and POST"),
        hostile("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), 400, "no request"),
    ]
}

#[test]
fn hostile_requests_are_refused_and_each_is_logged() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    let old = site.short_lived("/v1/report");
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("hers");
    let hers = br#"{"version":1,"id":"hers","verb":"disable","job":"7"}"#;
    let given = site.bytes(&site.signed_by(ALICE, "POST", "/v1/orders", hers));
    assert!(given.starts_with("HTTP/1.1 200"), "{given}");
    let refusals =
        || site.log().lines().filter(|l| l.contains("a request is refused")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(refusals(), [""; 0], "nothing was refused so far");
    let mut all = credentials(&site);
    all.extend(other_peoples(&site));
    all.extend(names_and_numbers(&site));
    all.extend(forms(&site));
    all.push(hostile("expired", site.misused("GET /v1/report", &old, b""), 401, "time is not accepted"));
    for (before, one) in all.iter().enumerate() {
        if one.name == "expired" {
            std::thread::sleep(std::time::Duration::from_secs(3));
        }
        let answer = site.bytes(&one.request);
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        assert_eq!(status, one.status, "{}: {answer}", one.name);
        let lines = until(one.name, || Some(refusals()).filter(|l| l.len() > before));
        assert_eq!(lines.len(), before + 1, "{}: {:?}", one.name, &lines[before..]);
        assert!(lines[before].contains(one.logged), "{}: {}", one.name, lines[before]);
        assert!(lines[before].contains("from=\"127.0.0.1:"), "{}: {}", one.name, lines[before]);
        if one.logged.contains("of yours") || one.logged.contains("a run's name") {
            assert!(lines[before].contains(&format!("uid={MALLORY}")), "{}: {}", one.name, lines[before]);
        }
    }
    println!("{} hostile requests refused, each logged", all.len());
    assert_eq!(site.report(ALICE).len(), 1, "the service goes on");
}

#[test]
fn what_is_foreign_looks_like_what_is_not_there() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("hers");
    let text = |path: &str| {
        let answer = site.bytes(&site.signed("GET", path, b""));
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).expect("a body")
    };
    assert_eq!(text("/v1/runs/c/7.1/health"), text("/v1/runs/c/8.1/health"));
    let order = |job: &str| {
        let body = format!(r#"{{"version":1,"id":"a1","verb":"checkpoint","job":"{job}"}}"#);
        let answer = site.bytes(&site.signed("POST", "/v1/orders", body.as_bytes()));
        answer.split_once("\r\n\r\n").map(|(_, body)| body.replace(job, "N")).expect("a body")
    };
    assert_eq!(order("7"), order("8"));
}

#[test]
fn nobody_but_slurm_says_whose_account_pays_for_a_run() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    site.deliver(ALICE, "local-x.100", 1, vec![started(0), ended()]).expect("stored");
    // A job of which Slurm knows nothing.
    site.deliver(ALICE, "4711.100", 1, vec![started(4711), ended()]).expect("stored");
    let told = site.report(ALICE);
    assert_eq!(told.len(), 2);
    for run in &told {
        let words = (run.account.as_str(), run.partition.as_str(), run.verified);
        assert_eq!(words, ("", "", false), "{}", run.run);
    }
    let named = site.deliver(ALICE, "any-name", 1, vec![started(7), ended()]);
    assert!(named.expect_err("no name of a run").to_string().contains("JOBID.START"));
}
