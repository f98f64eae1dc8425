//! Chromium without a screen, driven over WebDriver.

use base64::Engine;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1240,1400",
];

/// A browser, gone with this value.
pub struct Chrome {
    driver: Child,
    agent: ureq::Agent,
    session: String,
    _profile: tempfile::TempDir,
}

impl Drop for Chrome {
    fn drop(&mut self) {
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Whether browser and driver are installed; says so if not.
pub fn installed() -> bool {
    let there = |name: &str| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    let both = there("chromium") && there("chromedriver");
    if !both {
        println!("skipped: needs chromium and chromedriver (packaging/test-packages.sh)");
    }
    both
}

impl Chrome {
    /// Starts a browser with a profile of its own.
    pub fn start() -> Chrome {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = command.spawn().expect("chromedriver");
        let config = ureq::Agent::config_builder().http_status_as_error(false).proxy(None);
        let agent: ureq::Agent = config.timeout_global(Some(Duration::from_secs(120))).build().into();
        let url = format!("http://127.0.0.1:{port}");
        let deadline = Instant::now() + Duration::from_secs(60);
        while agent.get(format!("{url}/status")).call().is_err() {
            assert!(Instant::now() < deadline, "chromedriver does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        let profile = tempfile::tempdir().expect("a profile");
        let mut flags: Vec<String> = FLAGS.map(str::to_string).to_vec();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": flags},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }}});
        let mut chrome = Chrome { driver, agent, session: format!("{url}/session"), _profile: profile };
        let session = chrome.post("", &wanted);
        chrome.session += &format!("/{}", session["sessionId"].as_str().expect("a session"));
        chrome
    }

    #[track_caller]
    fn post(&self, what: &str, body: &Value) -> Value {
        let url = format!("{}{what}", self.session);
        let body = serde_json::to_vec(body).expect("JSON");
        let answer = self.agent.post(&url).header("content-type", "application/json").send(&body);
        let text =
            answer.expect("an answer").body_mut().with_config().limit(64 << 20).read_to_string().expect("a body");
        let answer: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert!(answer["value"]["error"].is_null(), "{what}: {answer}");
        answer["value"].clone()
    }

    /// Opens a file; what the browser's own first page asked for is forgotten.
    #[track_caller]
    pub fn open(&self, page: &Path) {
        self.post("/url", &json!({"url": "about:blank"}));
        for log in ["performance", "browser"] {
            self.log(log);
        }
        self.post("/url", &json!({"url": format!("file://{}", page.display())}));
    }

    /// What a script returns.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Types into what a selector finds first.
    #[track_caller]
    pub fn press(&self, selector: &str, keys: &str) {
        let found = self.post("/element", &json!({"using": "css selector", "value": selector}));
        let id = found.as_object().and_then(|o| o.values().next()).and_then(Value::as_str).expect("an element");
        self.post(&format!("/element/{id}/value"), &json!({"text": keys}));
    }

    /// A command of Chrome's own protocol.
    #[track_caller]
    pub fn command(&self, name: &str, params: Value) -> Value {
        self.post("/goog/cdp/execute", &json!({"cmd": name, "params": params}))
    }

    /// The entries of a log since it was last asked for.
    #[track_caller]
    pub fn log(&self, kind: &str) -> Vec<Value> {
        self.post("/se/log", &json!({"type": kind})).as_array().cloned().expect("a log")
    }

    /// The addresses that the browser asked for.
    pub fn requests(&self) -> Vec<String> {
        let messages = self.log("performance");
        let messages = messages.iter().filter_map(|e| serde_json::from_str::<Value>(e["message"].as_str()?).ok());
        let sent = messages.filter(|m| m["message"]["method"] == "Network.requestWillBeSent");
        sent.filter_map(|m| Some(m["message"]["params"]["request"]["url"].as_str()?.to_string())).collect()
    }

    /// Keeps a picture of the whole page.
    pub fn picture(&self, file: &Path) {
        let answer = self.command("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let data = answer["data"].as_str().expect("a picture");
        let bytes = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
        std::fs::write(file, bytes).expect("written");
    }
}
