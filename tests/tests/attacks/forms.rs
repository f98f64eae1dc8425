//! Requests that are no honest requests: none is taken for one, and the service goes on.

use crate::{ALICE, BOB, Field, as_user, attack, request, uid};
use anyhow::{Result, ensure};
use std::io::Write;

/// Whether something was refused, or its connection closed.
fn is_refused(status: u16) -> bool {
    status == 0 || (400..500).contains(&status)
}

/// A signed request of alice's over a body, with headers in place of the usual ones.
fn alices(field: &Field, method: &str, path: &str, body: &[u8], headers: &str) -> (u16, String) {
    as_user(uid(ALICE), || field.signed(method, path, body, headers))
}

#[test]
fn a_request_has_one_length_and_ends_where_it_says() -> Result<()> {
    attack("smuggled requests", |field| {
        let hidden = b"GET /v1/report HTTP/1.1\r\nHost: x\r\n\r\n";
        let chunks = [b"0\r\n\r\n", hidden.as_slice()].concat();
        for (name, headers, body) in [
            ("a length and chunks", "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", chunks.as_slice()),
            ("two lengths", "Content-Length: 0\r\nContent-Length: 36\r\n", hidden.as_slice()),
            ("a list of lengths", "Content-Length: 0, 36\r\n", hidden),
            ("a negative length", "Content-Length: -1\r\n", b""),
            ("a signed length", "Content-Length: +4\r\n", b"{}{}"),
            ("an endless length", "Content-Length: 18446744073709551616\r\n", b"{}"),
            ("a length in words", "Content-Length: two\r\n", b"{}"),
            ("unknown coding", "Transfer-Encoding: identity, x\r\n", b"{}"),
            ("coding after chunks", "Transfer-Encoding: chunked, identity\r\n", &chunks),
            ("an overflowing chunk", "Transfer-Encoding: chunked\r\n", b"FFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n"),
            ("a negative chunk", "Transfer-Encoding: chunked\r\n", b"-2\r\n{}\r\n0\r\n\r\n"),
            ("a folded header", "X: a\r\n Content-Length: 36\r\n", hidden),
            ("a header with NUL", "X: a\0b\r\n", b""),
            ("a header without a name", ": x\r\n", b""),
            ("a name with a blank", "Content-Length : 36\r\n", hidden),
        ] {
            let (status, said) = alices(field, "POST", "/v1/orders", body, headers);
            ensure!(is_refused(status), "{name}: {status} {said}");
        }
        // What comes behind a well-signed request on its connection is asked for its own credential.
        let credential = as_user(uid(ALICE), || field.credential("controller", "GET", "/v1/failures", b""));
        let first = format!("GET /v1/failures HTTP/1.1\r\nHost: x\r\nAuthorization: {credential}\r\n\r\n");
        let last = request("GET", "/v1/report", "", b"");
        let said = field.conversation(&[first.as_bytes(), &last].concat());
        let statuses: Vec<&str> = said.split("HTTP/1.1 ").skip(1).map(|a| &a[..3]).collect();
        ensure!(statuses == ["200", "401"], "{said}");
        Ok(())
    })
}

#[test]
fn a_credential_serves_once_for_one_request_to_one_service() -> Result<()> {
    attack("credentials of others", |field| {
        let path = format!("/v1/runs/{}/{}/health", field.cluster.name, field.bobs.1);
        let bobs = |audience: &str, method: &str, path: &str, body: &[u8]| {
            as_user(uid(BOB), || field.credential(audience, method, path, body))
        };
        let with = |credential: &str, method: &str, path: &str, body: &[u8]| {
            field.raw(&request(method, path, &format!("Authorization: {credential}\r\n"), body)).0
        };
        let used = bobs("controller", "GET", &path, b"");
        ensure!(with(&used, "GET", &path, b"") == 200, "bob's own");
        ensure!(with(&used, "GET", &path, b"") == 401, "replayed");
        ensure!(with(&bobs("node:n1", "GET", &path, b""), "GET", &path, b"") == 401, "made for a node");
        ensure!(with(&bobs("controller", "GET", "/v1/loans", b""), "GET", &path, b"") == 401, "made for another path");
        ensure!(
            with(&bobs("controller", "GET", &path, b""), "GET", &format!("{path}?wait_s=1"), b"") == 401,
            "another query"
        );
        let order = br#"{"version":1,"id":"a1","verb":"vacate","job":"1"}"#;
        ensure!(
            with(&bobs("controller", "POST", "/v1/orders", b"{}"), "POST", "/v1/orders", order) == 401,
            "another body"
        );
        ensure!(with("MUNGE MUNGE:AwQDAAA=:", "GET", &path, b"") == 401, "no credential of munge");
        ensure!(with(&format!("MUNGE {}", "A".repeat(12_000)), "GET", &path, b"") == 401, "an endless one");
        Ok(())
    })
}

#[test]
fn bodies_that_are_packed_or_endless_are_not_unpacked_or_waited_for() -> Result<()> {
    attack("packed and endless bodies", |field| {
        // Ten megabytes of zeros, packed.
        let mut gzip = std::process::Command::new("gzip")
            .arg("-9")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()?;
        let mut into = gzip.stdin.take().expect("a pipe");
        let writer = std::thread::spawn(move || into.write_all(&vec![0; 10 << 20]));
        let packed = gzip.wait_with_output()?.stdout;
        writer.join().expect("no panic")?;
        for coding in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
            let (status, said) =
                alices(field, "POST", "/v1/records", &packed, &format!("Content-Encoding: {coding}\r\n"));
            ensure!(is_refused(status), "{coding}: {status} {said}");
        }
        let chunk = [b"10000\r\n".as_slice(), &vec![b'x'; 0x10000], b"\r\n"].concat();
        let credential = as_user(uid(ALICE), || field.credential("controller", "POST", "/v1/records", b""));
        let headers = format!("Authorization: {credential}\r\nTransfer-Encoding: chunked\r\n");
        let endless = request("POST", "/v1/records", &headers, &chunk.repeat(200));
        ensure!(field.raw(&endless).0 == 413, "a body without end");
        for body in [
            "[".repeat(1 << 20),
            "{\"a\":".repeat(1 << 18),
            format!("[{}]", "0,".repeat(1 << 20)),
            "\"\\ud800\"".into(),
        ] {
            let (status, said) = alices(field, "POST", "/v1/records", body.as_bytes(), "");
            ensure!(is_refused(status), "{status} {said}");
        }
        Ok(())
    })
}

#[test]
fn heads_have_bounds() -> Result<()> {
    attack("huge heads", |field| {
        let many: String = (0..10_000).map(|n| format!("x-{n}: y\r\n")).collect();
        let long = format!("X: {}\r\n", "y".repeat(1 << 20));
        for (name, path, headers) in [
            ("many headers", "/v1/report", many.as_str()),
            ("a long header", "/v1/report", long.as_str()),
            ("a long path", &format!("/v1/{}", "a".repeat(60_000)), ""),
            ("two credentials", "/v1/report", "Authorization: MUNGE x\r\n"),
        ] {
            let (status, said) = alices(field, "GET", path, b"", headers);
            ensure!(is_refused(status), "{name}: {status} {said}");
        }
        Ok(())
    })
}

#[test]
fn names_and_numbers_are_what_they_say() -> Result<()> {
    attack("odd names and numbers", |field| {
        for name in [
            "..%2F..%2Fetc",
            ".ssh",
            "7%00.1",
            "%E2%80%AE7.1",
            "%FF%FE",
            "7'%20OR%20'1'='1",
            "a%0d%0aX:%20y",
            "n1%0a",
            "%2e%2e",
            "7.1~0",
            "a%3Bb",
        ] {
            for path in [format!("/v1/runs/c/{name}/health"), format!("/v1/runs/{name}/7.1/health")] {
                let (status, said) = alices(field, "GET", &path, b"", "");
                ensure!(is_refused(status), "{path}: {status} {said}");
            }
        }
        for job in [
            "-1",
            "+1",
            "1e3",
            "0x10",
            " 1",
            "1 ",
            "1\\n2",
            "4294967294",
            "4294967295",
            "4294967296",
            "99999999999999999999",
            "1_-1",
            "1_4294967295",
            "[1-9999999]",
            "1_[1-9999999]",
            "1,2",
            "1;id",
            "$(id)",
            "\\u0661",
        ] {
            let order = format!(r#"{{"version":1,"id":"a1","verb":"checkpoint","job":"{job}"}}"#);
            let (status, said) = alices(field, "POST", "/v1/orders", order.as_bytes(), "");
            ensure!(is_refused(status), "{job}: {status} {said}");
        }
        for query in
            ["start=NaN", "start=1e999", "job=1,-1", "job=1;2", "user=%27", "start=1&start=2", "since=-1", "brief=2"]
        {
            let (status, said) = alices(field, "GET", &format!("/v1/report?{query}"), b"", "");
            let is_own = |run: &serde_json::Value| run["user"] == ALICE;
            let has_own = || serde_json::from_str::<Vec<_>>(&said).is_ok_and(|all| all.iter().all(is_own));
            ensure!(is_refused(status) || status == 200 && has_own(), "{query}: {status} {said}");
        }
        Ok(())
    })
}
