//! What is tried with the packages on every series, in this order.

use crate::admin_page;
use crate::loan;
use crate::site::{CONTROLLER, DEBS, Site};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use suite::repository;

/// One thing that is tried; what the table says of it.
type Step = fn(&mut Site) -> Result<String>;

/// All of them; each builds on those before it.
pub const STEPS: [(&str, Step); 12] = [
    ("Slurm, before us: a job runs", plain_job),
    ("A store of the version before this one waits", old_store),
    ("docs/admin.md, command by command: install, first protected job, a node dies, it resumes", admin_page),
    ("The old store was brought up to date, its runs are still reported", migrated),
    ("A wrong option is refused, with the reason", refused),
    ("A job without the option is not touched", untouched),
    ("A checkpoint on order", ordered),
    ("Report: phases add up, the failure is counted once", reported),
    ("A loan: idle nodes of a run go to a queued job, and come back", loan::lent),
    ("Upgrade of all packages under a running protected job", upgraded),
    ("Remove: Slurm runs jobs, the store stays", removed),
    ("Purge: nothing of ours is left", purged),
];

const OLD_STORE: &str = "/var/lib/joulepoint/joulepoint.sqlite";

/// A program that counts until there is enough, saves its count on a signal, and goes on from what it saved.
const COUNTER: &str = "save() { echo $i > count.tmp && mv count.tmp count.state; }\ntrap save USR1\n\
    i=$(cat count.state 2> /dev/null || echo 0)\n\
    until [ -e enough ]; do sleep 0.2; i=$((i + 1)); done\necho counted to $i\n";
const PROTECTED: &str =
    "--ft-energy=energy --ft-energy-interval=3s --ft-energy-signal=USR1 --ft-energy-done=count.state";

fn done() -> Result<String> {
    Ok("ok".into())
}

fn plain_job(site: &mut Site) -> Result<String> {
    let job = site.submit("-o plain.out", "srun echo stepped")?;
    site.wait_state(job, "COMPLETED")?;
    ensure!(site.user("cat plain.out")?.contains("stepped"), "no step");
    Ok(site.root("slurmctld -V")?.trim().to_string())
}

fn old_store(site: &mut Site) -> Result<String> {
    let tables = fs::read_to_string(repository().join("service/tests/data/store-v1.sql"))?;
    let rows = "INSERT INTO runs VALUES ('monday', '7.1', 7, 2000, 'alice', 'physics', 'all', 'old', 'completed', 1.0, 9.0, 0, NULL);
        INSERT INTO records VALUES ('monday', '7.1', 0, 7, 1.0, 9.0, 'completed', '[\"n1\"]');";
    site.root("mkdir -m 750 /var/lib/joulepoint")?;
    let folder = tempfile::tempdir()?;
    let made = folder.path().join("made.sqlite");
    let mut sqlite = Command::new("sqlite3").arg(&made).stdin(Stdio::piped()).spawn()?;
    sqlite.stdin.take().context("a pipe")?.write_all((tables + rows).as_bytes())?;
    ensure!(sqlite.wait()?.success(), "sqlite3 ended with an error");
    fs::copy(&made, site.hosts.file(CONTROLLER, OLD_STORE)?)?;
    done()
}

fn admin_page(site: &mut Site) -> Result<String> {
    Ok(format!("ok, {} steps", admin_page::follow(site)?))
}

fn migrated(site: &mut Site) -> Result<String> {
    ensure!(site.root("joulepoint report -j 7 --json")?.contains("\"7.1\""), "the old run is gone");
    let log = site.root("journalctl --no-pager -u joulepoint-controller")?;
    ensure!(log.contains("the store's tables are brought up to date"), "{log}");
    done()
}

fn refused(site: &mut Site) -> Result<String> {
    for (options, reason) in [
        ("--ft-energy=power", "--ft-energy: 'power' is not known; accepted: energy, time, on, off"),
        ("--ft-energy-keep=2", "no effect without --ft-energy"),
    ] {
        let said = site.hosts.try_run(CONTROLLER, crate::site::USER, &format!("sbatch {options} --wrap true"))?;
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        ensure!(!said.status.success() && text.contains(reason), "{options}: {text}");
    }
    done()
}

fn untouched(site: &mut Site) -> Result<String> {
    let job = site.submit("-o untouched.out", "env | grep FT_ENERGY || echo untouched")?;
    site.wait_state(job, "COMPLETED")?;
    let said = site.user("cat untouched.out")?;
    ensure!(said == "untouched\n", "{said}");
    done()
}

fn ordered(site: &mut Site) -> Result<String> {
    site.user("rm -f count.state")?;
    let patient = PROTECTED.replace("interval=3s", "interval=60");
    let job = site.submit(&patient, COUNTER)?;
    site.wait_report(job, "the run's start", |run| (run["state"] == "running").then_some(()))?;
    let said = site.user(&format!("joulepoint checkpoint {job} --json"))?;
    ensure!(said.contains("\"state\": \"done\""), "{said}");
    site.wait_report(job, "the checkpoint", |run| (run["total"]["checkpoints"] == 1).then_some(()))?;
    site.user(&format!("scancel {job}"))?;
    site.all_idle()?;
    done()
}

/// The first protected job of the page lost its node.
fn reported(site: &mut Site) -> Result<String> {
    let job: u32 = site.user("cat first.id")?.trim().parse()?;
    let run = site.wait_report(job, "the run's end", |run| (run["state"] == "completed").then(|| run.clone()))?;
    let joules = run["total"]["joules"].as_f64().context("a total")?;
    let phases: f64 = run["phases"].as_array().context("phases")?.iter().filter_map(|p| p["joules"].as_f64()).sum();
    ensure!((joules - phases).abs() <= 1e-6 * joules, "{joules} J in all, {phases} J in phases");
    let failures = run["failures"].as_array().context("failures")?;
    ensure!(failures.len() == 1 && failures[0]["kind"] == "batch_host", "{failures:?}");
    done()
}

/// Packages of the next version: the same files under a higher number.
pub fn next_version(site: &Site) -> Result<()> {
    site.everywhere(&format!(
        "set -e; mkdir -p {DEBS}/next; cd {DEBS}
        for deb in joulepoint*.deb; do
            dpkg-deb -R $deb next/tree
            sed -i 's/\\(^Version: .*\\)/\\1+next/; s/(= \\([^)]*\\))/(= \\1+next)/' next/tree/DEBIAN/control
            dpkg-deb -Zgzip -z1 --root-owner-group -b next/tree next/$deb; rm -r next/tree
        done"
    ))
}

fn upgraded(site: &mut Site) -> Result<String> {
    next_version(site)?;
    site.user("rm -f count.state enough")?;
    let job = site.submit(&format!("-o upgraded.out {PROTECTED}"), COUNTER)?;
    site.wait_report(job, "a checkpoint", |run| (run["total"]["checkpoints"].as_u64()? >= 1).then_some(()))?;
    let pids = "systemctl show -p MainPID joulepoint-controller joulepoint-node";
    let before = site.root(pids)?;
    let installed = "dpkg-query -W -f '${Package}\\n' | grep ^joulepoint";
    site.everywhere(&format!("cd {DEBS}/next && dpkg -i $(for p in $({installed}); do echo ${{p}}_*.deb; done)"))?;
    ensure!(before != site.root(pids)?, "the controller service was not restarted");
    let version = site.root("dpkg-query -W -f '${Version}' joulepoint-service")?;
    ensure!(version.ends_with("+next"), "{version}");
    let checkpoints = |run: &serde_json::Value| run["total"]["checkpoints"].as_u64();
    let had = site.wait_report(job, "the run", checkpoints)?;
    site.wait_report(job, "one more checkpoint", |run| (checkpoints(run)? > had).then_some(()))?;
    site.user("touch enough")?;
    site.wait_state(job, "COMPLETED")?;
    ensure!(site.user("cat upgraded.out")?.contains("counted to"), "{}", site.user("cat upgraded.out")?);
    let run = site.wait_report(job, "the run's end", |run| (run["state"] == "completed").then(|| run.clone()))?;
    ensure!(run["records"].as_array().map(Vec::len) == Some(1), "it was started again: {run:#}");
    ensure!(site.user("grep -c '^#*url' /etc/joulepoint/joulepoint.toml")?.trim() == "1", "the site file changed");
    done()
}

fn removed(site: &mut Site) -> Result<String> {
    let job = site.submit("-o removed.out", "sleep 5; srun echo stepped")?;
    site.everywhere("apt-get remove -q -y 'joulepoint*'")?;
    site.wait_state(job, "COMPLETED")?;
    ensure!(site.user("cat removed.out")?.contains("stepped"), "the job that ran meanwhile");
    plain_job(site)?;
    site.root(&format!("test -s {OLD_STORE}"))?;
    done()
}

/// What hosts have more or less than before.
pub fn differences(site: &Site) -> Result<Vec<String>> {
    // What systems write by themselves, whoever is installed.
    let grows = ["log", "lib/slurm", "lib/apt", "lib/dpkg", "cache", "lib/systemd", "lib/mysql", "tmp"]
        .map(|f| format!("/var/{f}/"));
    let grown = |path: &str| path.starts_with("/tmp/") || grows.iter().any(|folder| path.starts_with(folder));
    let mut found = Vec::new();
    for ((name, before), (_, after)) in site.before.iter().zip(site.paths()?) {
        let new = after.iter().filter(|path| before.binary_search(path).is_err());
        let new = new.filter(|p| p.contains("joulepoint") || !grown(p));
        let gone = before.iter().filter(|path| after.binary_search(path).is_err()).filter(|p| !grown(p));
        found.extend(new.map(|p| format!("{name}: {p} is left")).chain(gone.map(|p| format!("{name}: {p} is gone"))));
    }
    Ok(found)
}

fn purged(site: &mut Site) -> Result<String> {
    site.everywhere("apt-get purge -q -y 'joulepoint*' && rm -r /root/joulepoint/next && systemctl daemon-reload")?;
    let found = differences(site)?;
    ensure!(found.is_empty(), "{}", found.join("\n"));
    plain_job(site)?;
    Ok("ok: no path more or less on five hosts".into())
}
