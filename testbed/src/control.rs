//! Takes orders from outside on a socket in the cluster's folder: from people, and from the cluster's power controller.

use crate::cables::End;
use crate::machines::Machines;
use crate::parts::Part;
use crate::{clock, conf};
use anyhow::{Context, Result, bail};
use nix::unistd::Uid;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What can be said, one order a line.
pub const ORDERS: &str = "\
power on|off|status NODE     a node gets its power, or loses it at once and silently
suspend NODE, resume NODE    as a virtual machine that is paused
cut ENDS ENDS                no frame passes between them, and nobody is told
cut-one-way ENDS ENDS        no frame passes from the first to the second
lose PERCENT ENDS ENDS       so many frames are lost between them
slow BYTES_PER_S END         so much passes the cable of an end each way; 0 is no limit
heal [ENDS ENDS]             ends cuts and losses between them; without words everything of the four above
stop DAEMON, continue DAEMON SIGSTOP and SIGCONT
restart-slurmd NODE          as systemctl restart slurmd: what runs goes on
clock NODE SECONDS           a node's daemons see a clock that is so much ahead (needs own clocks)
ENDS are joined by commas: slurmctld, service, login, n1, ..., nodes, all.
DAEMON is slurmctld, slurmdbd, mariadb, munged, n1/slurmd, n1/munged, n1/command.";

/// Longest wait for the words of whoever has connected.
const SILENCE: Duration = Duration::from_secs(5);

/// Takes orders as long as this value lives.
#[derive(Debug)]
pub(crate) struct Control {
    socket: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens in the folder of `machines`, for root alone.
    pub(crate) fn listen(machines: Arc<Machines>) -> Result<Control> {
        let socket = socket_in(&machines.dir);
        let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
        let fence = fence(&machines.dir);
        std::fs::write(&fence, include_str!("fence_testbed.py"))?;
        std::fs::set_permissions(&fence, std::fs::Permissions::from_mode(0o755))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                // Who goes away before the answer is not waited for.
                let _ = stream.map_err(Into::into).and_then(|stream| answer(&machines, stream));
            }
        });
        Ok(Control { socket, is_over, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(&self.socket);
        let _ = self.thread.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Lets a user give orders as well as root; everybody may pass the folders above the socket.
pub(crate) fn let_order(dir: &Path, user: Uid) -> Result<()> {
    let socket = socket_in(dir);
    std::os::unix::fs::chown(&socket, Some(user.as_raw()), None).with_context(|| socket.display().to_string())
}

/// Gives an order to the cluster in `dir`, whoever runs it; what it answers.
///
/// # Errors
/// Its refusal, or that nobody takes orders there.
pub fn order(dir: &Path, words: &[String]) -> Result<String> {
    let socket = socket_in(dir);
    let mut stream = UnixStream::connect(&socket).with_context(|| socket.display().to_string())?;
    writeln!(stream, "{}", words.join(" "))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    match line.strip_prefix("ok") {
        Some(text) => Ok(text.trim().to_string()),
        None => bail!("{}", line.trim()),
    }
}

/// The cluster's power controller.
pub(crate) fn fence(dir: &Path) -> PathBuf {
    dir.join("etc/fence_testbed")
}

fn socket_in(dir: &Path) -> PathBuf {
    dir.join("run/control")
}

fn answer(machines: &Machines, mut stream: UnixStream) -> Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let said = match obey(machines, &words) {
        Ok(text) => format!("ok {text}"),
        Err(e) => format!("error {e:#}").replace('\n', " "),
    };
    Ok(writeln!(stream, "{said}")?)
}

fn obey(machines: &Machines, words: &[&str]) -> Result<String> {
    let network = &machines.network;
    let both = |a: &str, b: &str| Ok::<_, anyhow::Error>((ends(machines, a)?, ends(machines, b)?));
    match words {
        ["power", what, node] => return power(machines, what, node),
        ["suspend", node] => machines.set_suspended(known(machines, node)?, true)?,
        ["resume", node] => machines.set_suspended(known(machines, node)?, false)?,
        ["cut", a, b] => {
            let (a, b) = both(a, b)?;
            network.change(|cables| cables.cut(&a, &b))?;
        }
        ["cut-one-way", from, to] => {
            let (from, to) = both(from, to)?;
            network.change(|cables| cables.cut_one_way(&from, &to))?;
        }
        ["lose", percent, a, b] => {
            let (percent, (a, b)) = (percent.parse()?, both(a, b)?);
            network.change(|cables| cables.lose(&a, &b, percent))?;
        }
        ["slow", rate, end] => {
            let rate: u64 = rate.parse()?;
            network.slow(&end.parse::<End>()?, (rate > 0).then_some(rate))?;
        }
        ["heal"] => network.heal()?,
        ["heal", a, b] => {
            let (a, b) = both(a, b)?;
            network.change(|cables| cables.heal(&a, &b))?;
        }
        ["stop", part] => machines.set_stopped(&part.parse()?, true)?,
        ["continue", part] => machines.set_stopped(&part.parse()?, false)?,
        ["restart-slurmd", node] => machines.restart(&Part::Slurmd(known(machines, node)?.to_string()))?,
        ["clock", node, ahead_s] => clock::set(&machines.dir, known(machines, node)?, ahead_s.parse()?)?,
        _ => bail!("not understood: {}", words.join(" ")),
    }
    Ok(String::new())
}

fn power(machines: &Machines, what: &str, node: &str) -> Result<String> {
    let node = known(machines, node)?;
    if !machines.answers_for_power() {
        bail!("the power controller does not answer");
    }
    match what {
        "status" => return Ok(if machines.has_power(node) { "on" } else { "off" }.to_string()),
        "off" => machines.power_off(node)?,
        "on" => {
            machines.boot(node)?;
            machines.start_node(node)?;
        }
        _ => bail!("power on, off or status, not {what:?}"),
    }
    Ok(String::new())
}

/// The name, if it is a node's of this cluster.
fn known<'a>(machines: &Machines, node: &'a str) -> Result<&'a str> {
    let is_one = conf::node_names(machines.options.nodes).iter().any(|name| name == node);
    is_one.then_some(node).with_context(|| format!("there is no node {node:?}"))
}

fn ends(machines: &Machines, words: &str) -> Result<Vec<End>> {
    let all = conf::ends(machines.options.nodes);
    let mut found = Vec::new();
    for word in words.split(',') {
        match word {
            "all" => found.extend(all.iter().cloned()),
            "nodes" => found.extend(all.iter().filter(|end| matches!(end, End::Node(_))).cloned()),
            one => {
                let end: End = one.parse()?;
                all.contains(&end).then_some(()).with_context(|| format!("there is no {one}"))?;
                found.push(end);
            }
        }
    }
    Ok(found)
}
