//! The page of `joulepoint report --html`, made from a real store and opened in a real browser.
//!
//! It needs root, chromium and chromedriver; without them the tests say so and pass.

#[path = "browser/chrome.rs"]
mod chrome;
#[path = "browser/story.rs"]
mod story;

use chrome::Chrome;
use planner::History;
use protocol::{Plan, PlanRequest, Request, Setting, Source};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use store::Store;
use wire::private::PrivateMunged;

/// A controller over a filled store, with a `sacct` that knows job 7 only.
struct Site {
    dir: tempfile::TempDir,
    _munged: PrivateMunged,
}

/// The plan that the planner makes for such a run.
fn plan(site: &config::Site) -> Plan {
    let on = Setting { value: String::new(), source: Source::Option };
    let request = Request { settings: [("ft-energy".to_string(), on)].into() };
    let (user, job_name) = ("alice".to_string(), "heat".to_string());
    let question = PlanRequest { request, nodes: 2, cpus_per_node: 16, user, job_name, ..PlanRequest::default() };
    let history = History { node_failures: 40, node_seconds: 4.0e6, checkpoint_s: Some(60.0), ..History::default() };
    planner::make_plan(&question, &history, site).expect("a plan")
}

impl Site {
    fn start() -> Option<Site> {
        if !nix::unistd::geteuid().is_root() {
            println!("skipped: needs root");
            return None;
        }
        let dir = tempfile::tempdir().expect("folder");
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("munge")).expect("folder");
        let munged = PrivateMunged::start(&path("munge")).expect("munged");
        let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").to_string();
        std::fs::create_dir(path("bin")).expect("folder");
        let begin = story::BEGIN_S;
        let line = format!(
            "7|NODE_FAIL|0:0|{begin}|{begin}|{}|1000|alice|n[1-2]|1800000\n7|COMPLETED|0:0|{begin}|{}|{}|1000|alice|n[1,3]|700000",
            begin + 3000.0,
            begin + 3100.0,
            begin + 5400.0
        );
        let sacct = format!("#!/bin/sh\necho \"$@\" >> {}\ncat <<'X'\n{line}\nX\n", path("asked").display());
        std::fs::write(path("bin/sacct"), sacct).expect("script");
        std::fs::set_permissions(path("bin/sacct"), PermissionsExt::from_mode(0o755)).expect("executable");
        let text = format!(
            "munge_socket = {:?}\nslurm_bin = {:?}\n[controller]\nurl = \"http://{address}\"\nlisten = \"{address}\"\nstore = {:?}\n",
            munged.socket(),
            path("bin"),
            path("store.sqlite")
        );
        std::fs::write(path("joulepoint.toml"), text).expect("conf");
        let site = config::read(&path("joulepoint.toml")).expect("site file");
        let mut store = Store::open(&path("store.sqlite")).expect("store");
        story::with_a_death_and_a_loan(plan(&site)).store(&mut store);
        store.save_lending(&story::loan()).expect("a loan");
        story::quiet(8, ("bob", "chemistry", "md\"&<b>"), 5, plan(&site)).store(&mut store);
        story::quiet(9, ("carol", "physics", "lattice"), 2, plan(&site)).store(&mut store);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("tokio");
        std::thread::spawn(move || runtime.block_on(service::controller::serve(site)));
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(&address).is_err() {
            assert!(Instant::now() < deadline, "the controller does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Site { dir, _munged: munged })
    }

    fn report(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
        command.arg("report").args(args).arg("--conf").arg(self.dir.path().join("joulepoint.toml"));
        command.env("TZ", "UTC").output().expect("joulepoint runs")
    }

    #[track_caller]
    fn text(&self, args: &[&str]) -> String {
        let output = self.report(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    fn page(&self, name: &str, args: &[&str]) -> PathBuf {
        let file = self.dir.path().join(name);
        self.text(&[args, &["--html", file.to_str().expect("a path")]].concat());
        file
    }
}

/// Nothing was asked for but the page, and the console is empty.
#[track_caller]
fn is_quiet(chrome: &Chrome, page: &Path) {
    let own = format!("file://{}", page.display());
    assert_eq!(chrome.requests(), [own], "requests");
    assert_eq!(chrome.log("browser"), Vec::<Value>::new(), "console");
}

/// Every way in which the page must be usable, in the browser as it stands.
#[track_caller]
fn is_accessible(chrome: &Chrome) {
    let wrong = chrome.run(
        "const wrong = [];
         if (!document.documentElement.lang) wrong.push('no language');
         if (document.querySelectorAll('h1').length != 1) wrong.push('not one h1');
         for (const s of document.querySelectorAll('svg:not([aria-hidden])'))
           if (s.getAttribute('role') != 'img' || !s.getAttribute('aria-label')) wrong.push('a chart without words');
         for (const t of document.querySelectorAll('table'))
           if (!t.caption || !t.querySelector('th[scope=col]')) wrong.push('a table without caption or headings');
         for (const d of document.querySelectorAll('.scroll'))
           if (d.tabIndex != 0 || !d.getAttribute('aria-label')) wrong.push('a scroller without keyboard');
         if (document.documentElement.scrollWidth > window.innerWidth) wrong.push('wider than the window');
         return wrong;",
    );
    assert_eq!(wrong, json!([]));
}

#[test]
fn the_page_of_a_run_shows_its_time_line_and_runs_nothing_of_its_user() {
    let Some(site) = chrome::installed().then(Site::start).flatten() else { return };
    let page = site.page("run.html", &["-j", "7"]);
    let chrome = Chrome::start();
    chrome.open(&page);
    let count = |selector: &str| chrome.run(&format!("return document.querySelectorAll(\"{selector}\").length"));
    // n1: compute, checkpoint, compute, checkpoint, lost work | idle, compute, checkpoint, compute.
    for (node, phase, bars) in [
        ("n1", "compute", 4),
        ("n1", "checkpoint", 3),
        ("n1", "lost_work", 1),
        ("n1", "idle", 1),
        ("n2", "compute", 2),
        ("n2", "lost_work", 1),
        ("n3", "restart", 1),
        ("n3", "compute", 2),
    ] {
        assert_eq!(count(&format!("#timeline rect.{phase}[data-node={node}]")), bars, "{node} {phase}");
    }
    for (mark, marks) in [("path.saved", 3), ("path.failed", 1), ("line.fail", 1), ("rect.lent", 1), ("rect.away", 1)] {
        assert_eq!(count(&format!("#timeline {mark}")), marks, "{mark}");
    }
    let on_bars = chrome.run("return [...document.querySelectorAll('#timeline text.on')].map(t => t.textContent)");
    assert_eq!(on_bars, json!(["group 0", "group 1", "group 1 again"]));
    let wide = chrome.run("return [...document.querySelectorAll('#timeline rect')].every(r => r.getBBox().width > 0)");
    assert_eq!(wide, true);
    let heading = chrome.run("return document.querySelector('h1').textContent");
    assert_eq!(heading, format!("Job 7: {}", story::NAME));
    assert_eq!(chrome.run("return document.title"), "Job 7 · Joulepoint", "the name's script did not run");
    let text = chrome.run("return document.body.innerText");
    let text = text.as_str().expect("text");
    for part in [
        "Prediction beside measurement",
        "the interval shrinks",
        "job 9",
        "500 node-seconds were lent",
        "S_Plat",
        "no slurmd and no heartbeat",
        "2.50 MJ",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    is_accessible(&chrome);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    chrome.picture(&folder.join("report-run.png"));
    chrome.command(
        "Emulation.setEmulatedMedia",
        json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]}),
    );
    assert_ne!(chrome.run("return getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
    chrome.picture(&folder.join("report-run-dark.png"));
    let phone = json!({"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": true});
    chrome.command("Emulation.setDeviceMetricsOverride", phone);
    is_accessible(&chrome);
    chrome.picture(&folder.join("report-run-phone.png"));
    is_quiet(&chrome, &page);
}

#[test]
fn the_page_of_a_month_sorts_by_mouse_and_by_keyboard() {
    let Some(site) = chrome::installed().then(Site::start).flatten() else { return };
    let page = site.page("month.html", &["-S", "2026-11-01", "-E", "2026-12-01"]);
    let chrome = Chrome::start();
    chrome.open(&page);
    let jobs = || chrome.run("return [...document.querySelectorAll('#runs tbody tr')].map(r => +r.cells[0].innerText)");
    assert_eq!(jobs(), json!([7, 8, 9]), "the largest resilience first");
    let sorted = |n: u32| chrome.run(&format!("return document.querySelectorAll('#runs th')[{n}].ariaSort"));
    chrome.run("document.querySelectorAll('#runs th button')[0].click()");
    assert_eq!((jobs(), sorted(0)), (json!([9, 8, 7]), json!("descending")));
    chrome.press("#runs th:nth-child(1) button", "\u{e007}");
    assert_eq!((jobs(), sorted(0)), (json!([7, 8, 9]), json!("ascending")));
    chrome.press("#runs th:nth-child(3) button", " ");
    assert_eq!((jobs(), sorted(0)), (json!([9, 8, 7]), Value::Null), "by user, from the end");
    let names = chrome.run("return [...document.querySelectorAll('#runs tbody tr')].map(r => r.cells[1].innerText)");
    assert_eq!(names, json!(["lattice", "md\"&<b>", story::NAME]));
    let bars = chrome.run("return document.querySelectorAll('#accounts rect.lost_work').length");
    assert_eq!(bars, 1, "only physics lost work");
    is_accessible(&chrome);
    let laptop = json!({"width": 1200, "height": 800, "deviceScaleFactor": 1, "mobile": false});
    chrome.command("Emulation.setDeviceMetricsOverride", laptop);
    let cut = "return [...document.querySelectorAll('.scroll')].filter(d => d.scrollWidth > d.clientWidth).map(d => [d.ariaLabel, d.scrollWidth, d.clientWidth])";
    assert_eq!(chrome.run(cut), json!([]), "no column is cut on a laptop");
    chrome.picture(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("report-month.png"));
    is_quiet(&chrome, &page);
}

#[test]
fn the_report_has_the_habits_of_sacct() {
    let Some(site) = Site::start() else { return };
    let window = ["-S", "2026-11-01", "-E", "2026-12-01"];
    let with = |more: &[&str]| site.text(&[&window, more].concat());
    assert_eq!(
        with(&["-n", "-P", "-o", "jobid,user,exitcode,nnodes,consumedenergy"]),
        "7|alice|0:0|2|2500000.0\n8|bob|||\n9|carol|||\n"
    );
    assert_eq!(
        with(&["-n", "-p", "-o", "jobid,start", "-u", "bob,carol"]),
        "8|2026-11-20T10:20:00|\n9|2026-11-20T10:30:00|\n"
    );
    assert_eq!(with(&["-n", "-o", "user%-3,account%4", "-s", "CD", "-A", "chemistry"]), "bob che+\n");
    assert_eq!(with(&["--csv", "-o", "jobid,jobname", "-u", "bob"]), "JobID,JobName\n8,\"md\"\"&<b>\"\n");
    assert_eq!(site.text(&["-n", "-P", "-o", "jobid", "-j", "9.0,7"]), "7\n9\n");
    assert_eq!(with(&["-n", "-P", "-o", "jobid", "-E", "2026-11-02", "-s", "R"]), "", "the last one counts");
    assert_eq!(
        with(&["-n", "-P", "-o", "jobid,lent,used,usedenergy,wouldidle"]),
        "7|500.0|500.0|120000.0|50000.0\n8||||\n9||||\n"
    );
    let asked = std::fs::read_to_string(site.dir.path().join("asked")).expect("sacct was asked");
    assert!(asked.lines().next().is_some_and(|l| l.contains("-j 7,8,9 ")), "one call for all: {asked}");
    let by: Vec<Value> = serde_json::from_str(&with(&["--by", "account", "--json"])).expect("JSON");
    let sums: Vec<_> = by.iter().map(|s| (s["of"].as_str().expect("a name"), s["runs"].clone())).collect();
    assert_eq!(sums, [("physics", json!(2)), ("chemistry", json!(1)), ("total", json!(3))]);
    let total = |key: &str| by[2][key].as_f64().expect("a number");
    for of in [0, 2] {
        let lending =
            ["node_seconds", "used_node_seconds", "used_j", "would_idle_j"].map(|k| by[of]["lending"][k].clone());
        assert_eq!(lending, [json!(500.0), json!(500.0), json!(120000.0), json!(50000.0)]);
    }
    assert_eq!(by[1]["lending"]["loans"], 0, "chemistry lent nothing");
    assert!(with(&["--by", "user", "--csv"]).starts_with("User,Runs,"), "{}", with(&["--by", "user", "--csv"]));
    assert!(
        (by[0]["joules"].as_f64().expect("J") + by[1]["joules"].as_f64().expect("J") - total("joules")).abs() < 1e-6
    );
    let parts = ["checkpoint_j", "logging_j", "restart_j", "lost_work_j", "idle_j"].map(total).iter().sum::<f64>();
    assert!((parts - total("resilience_j")).abs() < 1e-6);
    let all: Vec<Value> = serde_json::from_str(&with(&["--json"])).expect("JSON");
    assert_eq!(
        (all[0]["slurm"]["exit_code"].as_str(), all[0]["loans"][0]["borrower"].as_u64()),
        (Some("0:0"), Some(9))
    );
    assert_eq!(all[0]["lending"]["would_idle_j"], 50_000.0);
    assert_eq!((&all[0]["version"], &all[0]["job_id"]), (&json!(1), &json!("7")));
    let parts: Vec<Value> = serde_json::from_str(&with(&["--by=account,month", "--json"])).expect("JSON");
    assert_eq!(parts[0]["by"], json!({ "account": "physics", "month": "2026-11" }));
    assert_eq!((&parts[0]["of"], &parts[0]["version"]), (&json!("physics, 2026-11"), &json!(1)));
    let plain = with(&["--csv", "-n", "-o", "share,elapsed,energy,predicted"]);
    let is_plain = |cell: &str| cell.is_empty() || cell.parse::<f64>().is_ok();
    assert!(plain.lines().flat_map(|l| l.split(',')).all(is_plain), "{plain}");
    for narrow in [&[][..], &["--by=user"], &["--by=account,month"]] {
        let text = with(narrow);
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    }
    let output = site.report(&[&window[..], &["--by=user", "--all-jobs"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("the energy of all jobs is not told"), "{said}");
    let told = site.text(&["-j", "7"]);
    assert!(
        told.starts_with("Job ID:     7 on ") && told.contains("\nState:      COMPLETED (exit code 0:0)\n"),
        "{told}"
    );
    assert!(told.contains("platform, with what was lent") && told.contains("beyond the break-even"), "{told}");
    for wrong in
        [&["-S", "soon"][..], &["-j", "x"], &["-o", "enrgy"], &["-s", "XX"], &["-S", "now", "-E", "2026-01-01"]]
    {
        assert_eq!(site.report(wrong).status.code(), Some(2), "{wrong:?}");
    }
    std::fs::remove_file(site.dir.path().join("bin/sacct")).expect("gone");
    let output = site.report(&[&window[..], &["-n", "-P", "-o", "jobid,exitcode"]].concat());
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"7|\n8|\n9|\n".to_vec()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Slurm's accounting does not answer"));
}

#[test]
fn the_report_names_what_it_leaves_out_and_what_is_a_users_word_alone() {
    let Some(site) = Site::start() else { return };
    let store = Store::open_again(&site.dir.path().join("store.sqlite")).expect("the store");
    for sql in [
        "UPDATE phases SET joules = 9e999 WHERE run = (SELECT run FROM runs WHERE job = 9)",
        "UPDATE runs SET verified = 0 WHERE job = 8",
    ] {
        store.connection().execute(sql, &[]).expect("written");
    }
    drop(store);
    let window = ["-S", "2026-11-01", "-E", "2026-12-01", "-n", "-P"];
    let output = site.report(&[&window[..], &["-o", "jobid,user,verified"]].concat());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "7|alice|yes\n8|bob|no\n");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("of carol is left out, its records cannot be added up: the energy"), "{told}");
    assert!(told.contains("of 1 run Slurm does not say whose they are"), "{told}");
    let total: Vec<Value> =
        serde_json::from_str(&site.text(&[&window[..4], &["--by", "user", "--json"]].concat())).expect("JSON");
    assert!(total.iter().all(|sum| sum["joules"].as_f64().is_some_and(f64::is_finite)), "{total:?}");
    let all: Vec<Value> = serde_json::from_str(&site.text(&[&window[..4], &["--json"]].concat())).expect("JSON");
    assert!(all.iter().any(|run| run["job"] == 9 && run["trouble"] != ""), "{all:?}");
    let of_one = site.text(&["-j", "8"]);
    let words = of_one.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("all of this is the user's word"), "{of_one}");
}
