//! `/metrics` of both roles, held to OpenMetrics by a strict parser, and the dashboard held to `/metrics`.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A daemon, gone with this value.
struct Daemon {
    child: Child,
    address: String,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn start(dir: &Path, role: &str) -> Daemon {
        let address = testbed::own_address().to_string();
        let conf = dir.join(format!("{role}.toml"));
        let (controller, node) =
            if role == "controller" { (address.as_str(), "127.0.0.1:0") } else { ("127.0.0.1:1", address.as_str()) };
        let text = format!(
            "munge_socket = {:?}\nslurm_bin = {dir:?}\n[controller]\nurl = \"http://{controller}\"\nlisten = \"{controller}\"\n\
             store = {:?}\n[node]\nlisten = \"{node}\"\n[energy]\nsources = [\"model\"]\n",
            dir.join("no-munge"),
            dir.join("store.sqlite"),
        );
        std::fs::write(&conf, text).expect("conf");
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulepointd"));
        command.args([&format!("--role={role}"), "--node=n1", "--conf"]).arg(&conf).env_remove("JOULEPOINT_CONF");
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("the daemon starts");
        Daemon { child, address }
    }

    /// Head and body of `/metrics`.
    fn metrics(&self) -> (String, String) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(mut stream) = TcpStream::connect(&self.address) {
                write!(stream, "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("asked");
                let mut answer = String::new();
                stream.read_to_string(&mut answer).expect("answered");
                let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
                return (head.to_lowercase(), body.to_string());
            }
            assert!(Instant::now() < deadline, "{} does not answer", self.address);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Names of all samples, after a strict parser has read the text.
fn names(text: &str) -> BTreeSet<String> {
    let parsed = openmetrics_parser::openmetrics::parse_openmetrics(text);
    parsed.unwrap_or_else(|e| panic!("not OpenMetrics: {e}\n{text}"));
    for line in text.lines().filter_map(|l| l.strip_prefix("# UNIT ")) {
        let (name, unit) = line.split_once(' ').expect("name and unit");
        assert!(name.ends_with(&format!("_{unit}")) && ["joules", "seconds", "bytes"].contains(&unit), "{line}");
    }
    let samples = text.lines().filter(|l| !l.starts_with('#'));
    samples.filter_map(|l| l.split(['{', ' ']).next()).map(str::to_owned).collect()
}

#[test]
fn metrics_are_openmetrics_and_the_dashboard_asks_only_for_what_there_is() {
    let dir = tempfile::tempdir().expect("folder");
    let mut known = BTreeSet::new();
    for role in ["controller", "node"] {
        let daemon = Daemon::start(dir.path(), role);
        let (head, body) = daemon.metrics();
        assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
        assert!(body.ends_with("# EOF\n"), "{body}");
        for label in ["job=", "user=", "run="] {
            assert!(!body.contains(label), "a label without bound: {label}");
        }
        known.extend(names(&body));
    }
    let asked = asked();
    assert!(asked.len() > 8, "{asked:?}");
    let missing: Vec<&String> = asked.difference(&known).collect();
    assert!(missing.is_empty(), "the dashboard asks for {missing:?}; there are {known:?}");
}

/// The metrics that the dashboard's expressions name.
fn asked() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conf/grafana/joulepoint.json");
    let text = std::fs::read_to_string(path).expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|p| p["targets"].as_array().cloned().unwrap_or_default());
    let exprs = targets.map(|t| t["expr"].as_str().expect("an expression").to_string());
    let words = |expr: String| {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        expr.split(|c| !word(c)).map(str::to_owned).collect::<Vec<_>>()
    };
    exprs.flat_map(words).filter(|w| w.starts_with("joulepoint_") || w.starts_with("process_")).collect()
}

#[test]
fn the_parser_is_strict() {
    for wrong in ["# TYPE a counter\na 1\n# EOF\n", "# TYPE a gauge\na 1\n", "# TYPE a gauge\na 1\na 2\n# EOF\n"] {
        assert!(openmetrics_parser::openmetrics::parse_openmetrics(wrong).is_err(), "{wrong}");
    }
}
