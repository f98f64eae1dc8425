//! What the real daemons do over the real wire: events, plans, reports, and their own cost.

use super::store::{ASKING, BEGIN_S, DAY_S, RUNS, batch, per_s};
use super::{cpu_s, get, peak_mib, quantile, row};
use anyhow::{Context, Result, bail};
use protocol::{Batch, Delivered, Plan, PlanRequest, Request, Setting, Source};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::Client;
use wire::private::PrivateMunged;

/// Clients at the same time.
const CLIENTS: u64 = 64;

/// Plans that each of them asks for.
const PLANS: usize = 50;

/// How long the node service is watched, s.
const WATCH_S: u64 = 30;

/// What many clients saw who asked at the same time.
struct Asked {
    median_ms: f64,
    /// 99 % were answered within it.
    most_ms: f64,
    /// CPU time of an answer at the controller, at munged, which makes and reads four credentials, and at the client.
    cpu_us: [f64; 3],
}

/// A controller and a node service without Slurm.
pub struct Daemons {
    munged: PrivateMunged,
    conf: PathBuf,
    controller: String,
    children: Vec<Child>,
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Daemons {
    /// Starts both, the controller over a store.
    pub fn start(dir: &Path, store: &Path) -> Result<Daemons> {
        let munge = dir.join("munge");
        std::fs::create_dir(&munge)?;
        let munged = PrivateMunged::start(&munge)?;
        let address = || Ok::<_, std::io::Error>(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string());
        let (controller, node, conf) = (address()?, address()?, dir.join("conf"));
        let text = format!(
            "munge_socket = {:?}\nslurm_bin = \"/nonexistent\"\n[controller]\nurl = \"http://{controller}\"\n\
             listen = \"{controller}\"\nstore = {store:?}\n[node]\nlisten = \"{node}\"\nsocket = \"\"\nspool = {:?}\n[watch]\nlease_file = {:?}\n",
            munged.socket(),
            dir.join("spool"),
            dir.join("lease"),
        );
        std::fs::write(&conf, text)?;
        let mut daemons = Daemons { munged, conf, controller, children: Vec::new() };
        for (role, address) in [("controller", daemons.controller.clone()), ("node", node)] {
            let mut command = Command::new(suite::built()?.join("joulepointd"));
            command.arg(format!("--role={role}")).arg("--conf").arg(&daemons.conf).env("JOULEPOINT_LOG", "off");
            daemons.children.push(command.stdin(Stdio::null()).spawn().context("joulepointd")?);
            let deadline = Instant::now() + Duration::from_secs(60);
            while TcpStream::connect(&address).is_err() {
                if Instant::now() > deadline {
                    bail!("the {role} does not answer");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(daemons)
    }

    fn client(&self) -> Client {
        let url = format!("http://{}", self.controller);
        Client::new(&url, Some(self.munged.socket()), Duration::from_secs(60))
    }

    /// CPU time so far of the controller, of munged, and of the clients, which are threads of this process, s.
    fn cpu_s(&self) -> Result<[f64; 3]> {
        let munged = std::fs::read_to_string(self.munged.socket().with_file_name("pid"))?.trim().parse()?;
        let controller = self.children.first().context("a controller")?.id();
        let all = [i32::try_from(controller)?, munged, i32::try_from(std::process::id())?];
        let times: Vec<f64> = all.iter().filter_map(|pid| cpu_s(*pid)).collect();
        times.try_into().map_err(|_| anyhow::anyhow!("the controller or munged has ended"))
    }

    /// What each of some clients does at the same time; all their answers, and the seconds it took.
    fn together<T: Send>(&self, clients: u64, act: impl Fn(u64, Client) -> Result<T> + Sync) -> Result<(Vec<T>, f64)> {
        let start = Instant::now();
        let all = std::thread::scope(|scope| {
            let acts: Vec<_> = (0..clients).map(|n| (n, self.client())).collect();
            let acts: Vec<_> = acts
                .into_iter()
                .map(|(n, client)| {
                    scope.spawn({
                        let act = &act;
                        move || act(n, client)
                    })
                })
                .collect();
            acts.into_iter().map(|a| a.join().map_err(|_| anyhow::anyhow!("a client panicked"))?).collect::<Result<_>>()
        })?;
        Ok((all, start.elapsed().as_secs_f64()))
    }

    /// Durable events a second over HTTP, each request signed and checked by munge.
    pub fn events(&self) -> Result<()> {
        for (clients, requests, together) in [(8, 20, 500), (CLIENTS, 50, 1)] {
            let (_, seconds) = self.together(clients, |n, client| {
                for request in 0..requests {
                    let some = batch(&format!("load{together}.{n}"), 1 + request * together, together);
                    let Delivered { upto } = client.post::<Batch, Delivered>("/v1/records", &some)?;
                    if upto != (request + 1) * together {
                        bail!("stored up to {upto} after request {request}");
                    }
                }
                Ok(())
            })?;
            let what = format!("events over HTTP, {clients} clients, {together} to a request");
            let target = if together > 1 { ">= 10000/s" } else { "" };
            row(&what, &per_s((clients * requests * together) as f64 / seconds), "", target);
        }
        Ok(())
    }

    /// Plans for many at the same time: over the wire beside an answer that needs no thought, and inside the service.
    pub fn plans(&self) -> Result<()> {
        let setting = Setting { value: "energy".into(), source: Source::Option };
        let request = Request { settings: [("ft-energy".to_string(), setting)].into() };
        let question = PlanRequest {
            request,
            nodes: 8,
            cpus_per_node: 2,
            job_name: format!("job{ASKING}"),
            ..PlanRequest::default()
        };
        let time = |ask: &(dyn Fn(&Client) -> Result<(), wire::Error> + Sync)| -> Result<Asked> {
            let before = self.cpu_s()?;
            let (times, _) = self.together(CLIENTS, |_, client| {
                let mut times = Vec::with_capacity(PLANS);
                for _ in 0..PLANS {
                    let start = Instant::now();
                    ask(&client)?;
                    times.push(start.elapsed().as_secs_f64() * 1e3);
                }
                Ok(times)
            })?;
            let (mut times, after) = (times.concat(), self.cpu_s()?);
            let cpu_us = [0, 1, 2].map(|of| 1e6 * (after[of] - before[of]) / times.len() as f64);
            Ok(Asked { median_ms: quantile(&mut times, 0.5), most_ms: quantile(&mut times, 0.99), cpu_us })
        };
        let bare = time(&|c| c.get::<Vec<protocol::RunAccount>>("/v1/report?job=1&brief=true").map(drop))?;
        let plan = time(&|c| c.post::<PlanRequest, Plan>("/v1/plan", &question).map(drop))?;
        for (what, asked) in [("no plan", &bare), ("plan", &plan)] {
            let row_of = |which: &str, value: f64, unit: &str, of: f64| {
                let ratio = format!("{:.2}", value / of);
                row(&format!("{what}, 64 clients, {which}"), &format!("{value:.1} {unit}"), &ratio, "");
            };
            row_of("over the wire, median", asked.median_ms, "ms", bare.median_ms);
            row_of("over the wire, 99 %", asked.most_ms, "ms", bare.most_ms);
            for (of, who) in ["the controller", "munged", "a client"].iter().enumerate() {
                row_of(&format!("CPU of {who}"), asked.cpu_us[of], "us", bare.cpu_us[of]);
            }
        }
        let many = self.planned()?;
        for _ in 0..10 * PLANS {
            self.client().post::<PlanRequest, Plan>("/v1/plan", &question)?;
        }
        let one: Vec<_> = self.planned()?.iter().zip(&many).map(|(now, then)| (now.0, now.1 - then.1)).collect();
        for (who, buckets) in [("1 client", &one), ("64 clients", &many)] {
            for (what, share, target) in [("median", 0.5, ""), ("99 %", 0.99, "< 1000 us")] {
                let all = buckets.last().context("the service counts no plans")?.1;
                let bucket = buckets.iter().find(|(_, count)| *count >= share * all).context("a bound")?;
                let bound = format!("<= {:.0} us", bucket.0 * 1e6);
                row(&format!("plan, {who}, in the service, {what}"), &bound, "", target);
            }
        }
        Ok(())
    }

    /// The bounds of `joulepoint_plan_seconds`, and how many plans lie below each.
    fn planned(&self) -> Result<Vec<(f64, f64)>> {
        let text = get(&*self.controller, "/metrics")?;
        Ok(text
            .lines()
            .filter_map(|l| l.strip_prefix("joulepoint_plan_seconds_bucket{le=\"")?.split_once("\"} "))
            .filter_map(|(bound, count)| Some((bound.replace("+Inf", "inf").parse().ok()?, count.parse().ok()?)))
            .collect())
    }

    /// The command's report of one day, and of the whole year.
    pub fn report(&self) -> Result<()> {
        self.report_of(180.0, 181.0, "< 1 s")?;
        self.report_of(-1.0, 366.0, "")
    }

    fn report_of(&self, first_day: f64, last_day: f64, target: &str) -> Result<()> {
        let at = |day: f64| {
            let seconds = format!("@{}", BEGIN_S + day * DAY_S);
            let out = Command::new("date").args(["-d", &seconds, "+%Y-%m-%dT%H:%M:%S"]).output()?;
            Ok::<_, anyhow::Error>(String::from_utf8(out.stdout)?.trim().to_string())
        };
        let mut command = Command::new(suite::built()?.join("joulepoint"));
        command
            .args(["report", "-n", "-P", "-S", &at(first_day)?, "-E", &at(last_day)?])
            .env("JOULEPOINT_CONF", &self.conf);
        let start = Instant::now();
        let out = command.output()?;
        let seconds = start.elapsed().as_secs_f64();
        if !out.status.success() {
            bail!("joulepoint report: {}", String::from_utf8_lossy(&out.stderr));
        }
        let runs = String::from_utf8_lossy(&out.stdout).lines().count();
        row(&format!("report -S -E, {runs} runs of {RUNS}"), &format!("{seconds:.3} s"), "", target);
        Ok(())
    }

    /// What the node service costs while it reads its sources and beats every second.
    pub fn node(&self) -> Result<()> {
        let pid = i32::try_from(self.children.last().context("a node service")?.id())?;
        let before = cpu_s(pid).context("the node service has ended")?;
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs(WATCH_S));
        let used = cpu_s(pid).context("the node service has ended")? - before;
        let share = 100.0 * used / start.elapsed().as_secs_f64();
        let processes = energy::scan(Path::new("/proc"), energy::tick_hz())?.count;
        let what = format!("node service at 1 Hz, {processes} processes, CPU");
        row(&what, &format!("{share:.3} %"), "", "< 0.2 %");
        row("node service, peak memory", &format!("{:.1} MiB", peak_mib(pid).unwrap_or(f64::NAN)), "", "");
        Ok(())
    }
}
