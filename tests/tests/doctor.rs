//! `joulepoint doctor` meets each fault that it knows, on an installation that is otherwise sound.
//!
//! Plugin, command, services and munge are the real ones; Slurm's commands are scripts, so that any setting can be
//! had. The cluster suite examines a whole real site.

use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::private::PrivateMunged;

/// A sound installation in one folder.
struct Installation {
    folder: tempfile::TempDir,
    munged: Option<PrivateMunged>,
    /// Where the controller and the node service listen.
    addresses: [SocketAddr; 2],
    controller: Option<Child>,
    node: Option<Child>,
}

impl Drop for Installation {
    fn drop(&mut self) {
        for mut service in self.controller.take().into_iter().chain(self.node.take()) {
            let _ = service.kill();
            let _ = service.wait();
        }
    }
}

impl Installation {
    fn sound() -> Installation {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("munge")).unwrap();
        let munged = PrivateMunged::start(&folder.path().join("munge")).unwrap();
        let addresses = [(); 2].map(|()| testbed::own_address());
        let mut made = Installation { folder, munged: Some(munged), addresses, controller: None, node: None };
        for (name, from) in [("joulepoint", "joulepoint"), ("joulepoint.so", "libjoulepoint.so")] {
            fs::copy(suite::built().unwrap().join(from), made.path(name)).unwrap();
        }
        fs::create_dir(made.path("bin")).unwrap();
        made.script("scontrol", &scontrol(&made.path("plugstack.conf"), "22.05.8", ""));
        made.script("sbatch", "echo '      --ft-energy[=energy|time|on|off]'");
        made.write("plugstack.conf", &format!("include {}\n", made.path("plugstack.d/*.conf").display()));
        fs::create_dir(made.path("plugstack.d")).unwrap();
        made.write("plugstack.d/joulepoint.conf", &made.line(""));
        made.write("joulepoint.toml", &made.site(""));
        made.controller = Some(made.service(&["--role=controller"]));
        made.node = Some(made.service(&["--role=node", "--node=n1"]));
        addresses.into_iter().for_each(listening);
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// A tariff of one hour that begins at a moment.
    fn tariff(&self, start: &str) {
        let text = format!("start,end,price_per_kwh\n{start},2020-01-01T01:00Z,0.3\n");
        self.write("tariff.csv", &text);
        let accounting = format!("[accounting]\ntariff = {:?}\ncurrency = \"EUR\"", self.path("tariff.csv"));
        self.write("joulepoint.toml", &self.site(&accounting));
    }

    /// Put in place whole: a service may just be running the one before.
    fn script(&self, name: &str, text: &str) {
        let new = self.path("new");
        fs::write(&new, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).unwrap();
        fs::rename(new, self.path("bin").join(name)).unwrap();
    }

    /// The line of plugstack.conf, with more arguments.
    fn line(&self, more: &str) -> String {
        let [so, wrapper, conf] = ["joulepoint.so", "joulepoint", "joulepoint.toml"].map(|name| self.path(name));
        format!("optional {} wrapper={} conf={} {more}\n", so.display(), wrapper.display(), conf.display())
    }

    /// The site file, with other lines at its end.
    fn site(&self, more: &str) -> String {
        let path = |name: &str| self.path(name).display().to_string();
        format!(
            "munge_socket = {:?}\nslurm_bin = {:?}\n[controller]\nurl = \"http://{}\"\n\
             listen = \"{}\"\nstore = {:?}\n[node]\nlisten = \"{}\"\n\
             [runs]\ndir = {:?}\n[energy]\nsources = [\"model\"]\n{more}\n",
            path("munge/socket"),
            path("bin"),
            self.addresses[0],
            self.addresses[0],
            path("store.sqlite"),
            self.addresses[1],
            path("runs"),
        )
    }

    fn service(&self, role: &[&str]) -> Child {
        let mut command = Command::new(suite::built().unwrap().join("joulepointd"));
        command.args(role).arg("--conf").arg(self.path("joulepoint.toml"));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// What the doctor says on one side: status and findings.
    fn examined(&self, side: &str, uid: Option<u32>) -> (i32, Vec<Value>) {
        let mut command = Command::new(self.path("joulepoint"));
        command.args(["doctor", "--json", "--side", side, "--conf"]).arg(self.path("joulepoint.toml"));
        command.env("JOULEPOINT_LOG", "off");
        if let Some(uid) = uid {
            command.uid(uid);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let said: Value = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{e}: {text} {}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code().unwrap(), said["findings"].as_array().unwrap().clone())
    }
}

fn listening(address: SocketAddr) {
    let end = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < end, "nobody listens at {address}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A `scontrol` that knows its version and its configuration; later keys win.
fn scontrol(plugstack: &Path, version: &str, more: &str) -> String {
    format!(
        "case \"$1\" in --version) echo 'slurm-wlm {version}';; *) cat <<'END'\n\
         Configuration data as of 2026-11-21T10:00:00\n\
         AccountingStorageType   = accounting_storage/slurmdbd\nAuthType                = auth/munge\n\
         JobRequeue              = 1\nPluginDir               = /usr/lib/slurm\n\
         PlugStackConfig         = {}\nProctrackType           = proctrack/cgroup\n\
         ReturnToService         = 2\nSchedulerParameters     = bf_interval=2,permit_job_expansion\n{more}\nEND\nesac",
        plugstack.display()
    )
}

/// One fault: on which side, how it is provoked, which check names it how, with what words.
type Case = (&'static str, fn(&mut Installation), &'static str, &'static str, &'static str);

const CASES: &[Case] = &[
    (
        "login",
        |i| i.write("joulepoint.toml", "[runs]\ndri = \"/x\"\n"),
        "configuration",
        "fault",
        "line 2: unknown key",
    ),
    ("login", |i| fs::remove_dir_all(i.path("bin")).unwrap(), "slurm-commands", "fault", "cannot run scontrol"),
    (
        "login",
        |i| i.script("scontrol", "echo 'scontrol: fatal: Could not establish a configuration source' >&2; exit 1"),
        "slurm-commands",
        "fault",
        "configuration source",
    ),
    (
        "login",
        |i| {
            i.script("scontrol", "[ \"$1\" = --version ] && exec echo slurm-wlm 22.05.8; echo 'Unable to contact slurm controller' >&2; exit 1")
        },
        "slurm-controller",
        "fault",
        "Unable to contact",
    ),
    ("login", |i| configured(i, "21.08.8", ""), "slurm-series", "fault", "will not load"),
    ("login", |i| configured(i, "23.11.4", ""), "slurm-series", "warning", "was not tried"),
    ("login", |i| configured(i, "22.05.8", "JobRequeue = 0"), "slurm-requeue", "warning", "JobRequeue=0"),
    ("login", |i| configured(i, "22.05.8", "SchedulerParameters = (null)"), "slurm-expansion", "warning", "lacks"),
    ("login", |i| configured(i, "22.05.8", "AuthType = auth/slurm"), "slurm-authentication", "fault", "auth/slurm"),
    (
        "login",
        |i| configured(i, "22.05.8", "AccountingStorageType = accounting_storage/none"),
        "slurm-accounting",
        "warning",
        "none",
    ),
    ("login", |i| configured(i, "22.05.8", "ProctrackType = proctrack/pgid"), "slurm-tracking", "warning", "pgid"),
    ("login", |i| configured(i, "22.05.8", "ReturnToService = 0"), "slurm-return", "warning", "ReturnToService=0"),
    ("login", impatient, "slurm-patience", "warning", "lend.patience_s=300, SlurmdTimeout=1200"),
    (
        "login",
        |i| i.write("plugstack.d/joulepoint.conf", "optional auks.so\n"),
        "plugin-line",
        "fault",
        "does not load",
    ),
    ("login", |i| i.write("plugstack.d/second.conf", &i.line("")), "plugin-once", "fault", "loaded twice"),
    (
        "login",
        |i| i.write("plugstack.d/joulepoint.conf", &i.line("").replace("optional", "required")),
        "plugin-optional",
        "warning",
        "'required'",
    ),
    ("login", |i| fs::remove_file(i.path("joulepoint.so")).unwrap(), "plugin-file", "fault", "No such file"),
    ("login", |i| i.write("joulepoint.so", "<html>not found</html>"), "plugin-file", "fault", "no shared object"),
    (
        "login",
        |i| assert!(fs::copy("/bin/true", i.path("joulepoint.so")).is_ok()),
        "plugin-file",
        "fault",
        "not Joulepoint's plugin",
    ),
    ("login", older_plugin, "plugin-file", "warning", "has version 0.0.9"),
    ("login", |i| i.script("sbatch", "echo '  --nodes'"), "plugin-options", "fault", "does not show"),
    (
        "login",
        |i| i.write("plugstack.d/joulepoint.conf", &i.line("warpper=/x")),
        "plugin-arguments",
        "fault",
        "'warpper=/x'",
    ),
    (
        "login",
        |i| i.write("plugstack.d/joulepoint.conf", &i.line("wrapper=/nonexistent/joulepoint")),
        "plugin-wrapper",
        "fault",
        "/nonexistent/joulepoint",
    ),
    (
        "login",
        |i| i.write("plugstack.d/joulepoint.conf", &i.line("conf=/etc/else.toml")),
        "plugin-conf",
        "warning",
        "else",
    ),
    ("login", |i| drop(i.munged.take()), "munge", "fault", "does not answer"),
    ("login", |i| stop(i.controller.take()), "controller", "fault", "refused"),
    ("login", ailing, "controller", "fault", "answers 503: slurm: cannot run squeue"),
    ("login", another_key, "access", "fault", ""),
    ("login", wrong_clock, "clock", "fault", "ahead of"),
    (
        "login",
        |i| i.write("joulepoint.toml", &i.site("").replace("/runs\"", "/joulepoint/runs\"")),
        "runs-folder",
        "fault",
        "is no folder",
    ),
    ("controller", |i| i.tariff("2020-01-01T00:00Z"), "tariff", "warning", "nothing of now"),
    ("controller", |i| i.tariff("soon"), "tariff", "fault", "line 2: start = 'soon'"),
    ("controller", damaged_store, "store", "fault", ""),
    ("controller", |i| mounted(i, "size=4m,ro"), "store", "fault", "read-only"),
    ("controller", |i| mounted(i, "size=4m"), "store-room", "warning", "MiB left"),
    ("node", |i| stop(i.node.take()), "node-service", "fault", "refused"),
    ("node", unreadable_rapl, "energy-source", "warning", "rapl"),
];

fn configured(i: &mut Installation, version: &str, more: &str) {
    i.script("scontrol", &scontrol(&i.path("plugstack.conf"), version, more));
}

fn stop(service: Option<Child>) {
    let mut service = service.unwrap();
    service.kill().unwrap();
    service.wait().unwrap();
}

fn older_plugin(i: &mut Installation) {
    let mut bytes = fs::read(i.path("joulepoint.so")).unwrap();
    let mark = format!("joulepoint plugin {}", env!("CARGO_PKG_VERSION"));
    let place = bytes.windows(mark.len()).position(|w| w == mark.as_bytes()).unwrap() + mark.len() - 5;
    bytes[place..place + 5].copy_from_slice(b"0.0.9");
    fs::write(i.path("joulepoint.so"), bytes).unwrap();
}

/// From now on the doctor's munged has another key than the controller's.
fn another_key(i: &mut Installation) {
    fs::create_dir(i.path("other")).unwrap();
    let other = PrivateMunged::start(&i.path("other")).unwrap();
    i.write("joulepoint.toml", &i.site("").replace("/munge/socket", "/other/socket"));
    std::mem::forget(i.munged.replace(other));
}

/// A broker that gives a loan up before Slurm gives a borrower's node away.
fn impatient(i: &mut Installation) {
    configured(i, "22.05.8", "SlurmdTimeout = 1200 sec");
    i.write("joulepoint.toml", &i.site("[lend]\nmode = \"preempt\""));
}

/// A controller whose clock stopped long ago.
fn wrong_clock(i: &mut Installation) {
    answering(i, "200 OK\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\ncontent-length: 3\r\n", "ok\n");
}

/// A controller that cannot run Slurm's commands.
fn ailing(i: &mut Installation) {
    let health =
        r#"{"ok":false,"parts":{"munge":{"ok":true,"text":"well"},"slurm":{"ok":false,"text":"cannot run squeue"}}}"#;
    answering(i, "503 Service Unavailable\r\n", health);
}

/// Somebody in the controller's place, who always answers the same.
fn answering(i: &mut Installation, head: &'static str, body: &'static str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let there = i.site("").replace(&format!("http://{}", i.addresses[0]), &format!("http://{address}"));
    i.write("joulepoint.toml", &there);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(stream, "HTTP/1.1 {head}connection: close\r\n\r\n{body}");
        }
    });
}

fn damaged_store(i: &mut Installation) {
    stop(i.controller.take());
    let _ = fs::remove_file(i.path("store.sqlite-wal"));
    let mut bytes = fs::read(i.path("store.sqlite")).unwrap();
    for byte in bytes.iter_mut().skip(100) {
        *byte ^= 0x5a;
    }
    fs::write(i.path("store.sqlite"), bytes).unwrap();
}

/// The store lies on a file system of its own.
fn mounted(i: &mut Installation, options: &str) {
    let place = i.path("var");
    fs::create_dir(&place).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&place).status().unwrap();
    assert!(mounted.success(), "these tests run as root");
    i.write("joulepoint.toml", &i.site("").replace("/store.sqlite", "/var/store.sqlite"));
}

/// A counter that only root may read, and a doctor that is not root.
fn unreadable_rapl(i: &mut Installation) {
    let zone = i.path("powercap/intel-rapl:0");
    fs::create_dir_all(&zone).unwrap();
    fs::write(zone.join("name"), "package-0\n").unwrap();
    fs::write(zone.join("max_energy_range_uj"), "262143328850\n").unwrap();
    fs::write(zone.join("energy_uj"), "12345678\n").unwrap();
    fs::set_permissions(zone.join("energy_uj"), PermissionsExt::from_mode(0o400)).unwrap();
    let more = format!("rapl_root = {:?}\n", i.path("powercap").display().to_string());
    i.write("joulepoint.toml", &i.site(&more).replace("[\"model\"]", "[\"rapl\", \"model\"]"));
}

#[test]
fn a_sound_installation_has_no_fault() {
    let installation = Installation::sound();
    for side in ["login", "controller", "node"] {
        let (status, findings) = installation.examined(side, None);
        let bad: Vec<&Value> = findings.iter().filter(|f| f["level"] != "ok").collect();
        let known = |f: &&Value| f["check"] == "runs-shared";
        assert!(bad.iter().all(known), "{side}: {bad:#?}");
        assert!(status == 0 || status == 3, "{side}: {status}");
        assert!(findings.len() > 15, "{side}: {findings:#?}");
    }
}

#[test]
fn each_fault_is_named_with_its_cure() {
    for (number, (side, provoke, check, level, words)) in CASES.iter().enumerate() {
        let mut installation = Installation::sound();
        provoke(&mut installation);
        let uid = (*check == "energy-source").then_some(65_534);
        let (status, findings) = installation.examined(side, uid);
        let mounted = installation.path("var");
        if mounted.exists() {
            Command::new("umount").arg(&mounted).status().unwrap();
        }
        let finding = findings.iter().find(|f| f["check"] == *check && f["level"] == *level);
        let finding = finding.unwrap_or_else(|| panic!("case {number}, {check}: {findings:#?}"));
        assert!(finding["found"].as_str().unwrap().contains(words), "case {number}: {finding}");
        assert!(!finding["cure"].as_str().unwrap().is_empty(), "case {number}: {finding}");
        let any_fault = findings.iter().any(|f| f["level"] == "fault");
        assert_eq!(status == 1, any_fault, "case {number}: status {status}");
    }
}

#[test]
fn a_site_file_that_is_named_and_missing_is_a_fault() {
    let output = Command::new(suite::built().unwrap().join("joulepoint"))
        .args(["doctor", "--json", "--side", "login", "--conf", "/nonexistent/joulepoint.toml"])
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["findings"][0]["level"], "fault", "{said}");
    assert!(said["findings"][0]["found"].as_str().unwrap().contains("no such site file"), "{said}");
}
