//! What is tried with the packages on every series, in this order.

use crate::admin_page;
use crate::before;
use crate::loan;
use crate::site::{CONTROLLER, Site};
use anyhow::{Context, Result, ensure};

/// One thing that is tried; what the table says of it.
type Step = fn(&mut Site) -> Result<String>;

/// All of them; each builds on those before it.
pub const STEPS: [(&str, Step); 11] = [
    ("Slurm, before us: a job runs", plain_job),
    (
        "Upgrade from the version before: a protected job that lost a node goes on, the store is brought up to date",
        before::upgraded,
    ),
    ("Purge: nothing of ours is left", purged),
    ("docs/admin.md, command by command: install, first protected job, a node dies, it resumes", admin_page),
    ("A wrong option is refused, with the reason", refused),
    ("A job without the option is not touched", untouched),
    ("A checkpoint on order", ordered),
    ("Report: phases add up, the failure is counted once", reported),
    ("A loan: idle nodes of a run go to a queued job, and come back", loan::lent),
    ("Remove: Slurm runs jobs, the store stays", removed),
    ("Purge after all this: nothing of ours is left", purged),
];

/// A program that counts until there is enough, saves its count on a signal, and goes on from what it saved.
pub const COUNTER: &str = "save() { echo $i > count.tmp && mv count.tmp count.state; }\ntrap save USR1\n\
    i=$(cat count.state 2> /dev/null || echo 0)\n\
    until [ -e enough ]; do sleep 0.2; i=$((i + 1)); done\necho counted to $i\n";
/// Options that protect it.
pub const PROTECTED: &str =
    "--ft-energy=energy --ft-energy-interval=3s --ft-energy-signal=USR1 --ft-energy-done=count.state";

/// What the table says of what has nothing more to say.
pub fn done() -> Result<String> {
    Ok("ok".into())
}

fn plain_job(site: &mut Site) -> Result<String> {
    let job = site.submit("-o plain.out", "srun echo stepped")?;
    site.wait_state(job, "COMPLETED")?;
    ensure!(site.user("cat plain.out")?.contains("stepped"), "no step");
    Ok(site.root("slurmctld -V")?.trim().to_string())
}

fn admin_page(site: &mut Site) -> Result<String> {
    Ok(format!("ok, {} steps", admin_page::follow_all(site)?))
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

fn removed(site: &mut Site) -> Result<String> {
    let job = site.submit("-o removed.out", "sleep 5; srun echo stepped")?;
    admin_page::take_away(site, 0)?;
    site.wait_state(job, "COMPLETED")?;
    ensure!(site.user("cat removed.out")?.contains("stepped"), "the job that ran meanwhile");
    plain_job(site)?;
    site.root("test -s /var/lib/joulepoint/joulepoint.sqlite")?;
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
    admin_page::take_away(site, 1)?;
    site.everywhere("systemctl daemon-reload")?;
    let found = differences(site)?;
    ensure!(found.is_empty(), "{}", found.join("\n"));
    plain_job(site)?;
    Ok("ok: no path more or less on five hosts".into())
}
