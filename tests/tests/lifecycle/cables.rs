//! A cut is a cut, in the directions that it names and in no other, and tells nobody.

use super::{SOON, small};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use suite::{Site, Wanted};
use testbed::{ALICE, Cluster, End};

const PORT: u16 = 7000;
/// Long enough for a frame to cross the switch on a busy machine.
const A_MOMENT: Duration = Duration::from_millis(300);

/// Which datagrams arrive, each end having sent some to each other: from, to. Returns once all of `expected` have.
fn heard(cluster: &Cluster, expected: &BTreeSet<(End, End)>) -> Result<BTreeSet<(End, End)>> {
    let ends = cluster.ends();
    let mut sockets = BTreeMap::new();
    for end in &ends {
        let socket = cluster.in_network_of(end, || UdpSocket::bind((cluster.address(end), PORT)))??;
        socket.set_nonblocking(true)?;
        sockets.insert(end, socket);
    }
    let (mut heard, deadline) = (BTreeSet::new(), Instant::now() + SOON);
    loop {
        for (socket, to) in sockets.values().flat_map(|socket| ends.iter().map(move |to| (socket, to))) {
            // An address that nobody answers for is no error of this one.
            let _ = socket.send_to(b"?", (cluster.address(to), PORT));
        }
        std::thread::sleep(A_MOMENT);
        for (to, socket) in &sockets {
            loop {
                match socket.recv_from(&mut [0; 8]) {
                    Ok((_, SocketAddr::V4(from))) => {
                        let from = ends.iter().find(|end| cluster.address(end) == *from.ip()).context("a stranger")?;
                        heard.extend((from != *to).then(|| (from.clone(), (*to).clone())));
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    // What earlier datagrams came to.
                    _ => {}
                }
            }
        }
        if heard.is_superset(expected) || Instant::now() > deadline {
            return Ok(heard);
        }
    }
}

/// All pairs of ends but those that `lost` names.
fn all_but(cluster: &Cluster, lost: impl Fn(&End, &End) -> bool) -> BTreeSet<(End, End)> {
    let ends = cluster.ends();
    let pairs = ends.iter().flat_map(|from| ends.iter().map(move |to| (from, to)));
    pairs.filter(|(from, to)| from != to && !lost(from, to)).map(|(a, b)| (a.clone(), b.clone())).collect()
}

fn expect(cluster: &Cluster, what: &str, lost: impl Fn(&End, &End) -> bool) -> Result<()> {
    let expected = all_but(cluster, lost);
    let heard = heard(cluster, &expected)?;
    let missing: Vec<_> = expected.difference(&heard).collect();
    let strange: Vec<_> = heard.difference(&expected).collect();
    ensure!(heard == expected, "{what}: missing {missing:?}, and yet heard {strange:?}");
    Ok(())
}

#[test]
fn each_cut_stops_what_it_names_in_each_direction_and_nothing_else() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let cluster = Cluster::start(&dir.path().join("c"), &small(4), &mut |_| ())?;
    let n = End::Node;
    expect(&cluster, "nothing cut", |_, _| false)?;

    cluster.cut(&[n(1)], &[End::Service])?;
    expect(&cluster, "a node from the service", |a, b| [a, b].contains(&&n(1)) && [a, b].contains(&&End::Service))?;
    cluster.cut(&[n(1)], &[End::Slurmctld])?;
    let is_head = |end: &End| matches!(end, End::Service | End::Slurmctld);
    expect(&cluster, "a node from service and slurmctld", |a, b| *a == n(1) && is_head(b) || *b == n(1) && is_head(a))?;
    cluster.heal(&[n(1)], &[End::Service])?;
    let of_slurmctld = |a: &End, b: &End| [a, b].contains(&&n(1)) && [a, b].contains(&&End::Slurmctld);
    expect(&cluster, "healed in part", of_slurmctld)?;
    cluster.heal_all()?;
    expect(&cluster, "healed", |_, _| false)?;

    cluster.cut(&[n(2)], &cluster.ends())?;
    expect(&cluster, "a node from all", |a, b| [a, b].contains(&&n(2)))?;
    cluster.heal_all()?;
    cluster.cut(&[n(2)], &[n(3), n(4)])?;
    expect(&cluster, "a node from some", |a, b| {
        *a == n(2) && [n(3), n(4)].contains(b) || *b == n(2) && [n(3), n(4)].contains(a)
    })?;
    cluster.heal_all()?;
    let (one, other) = ([n(1), n(2), End::Slurmctld], [n(3), n(4), End::Service]);
    cluster.cut(&one, &other)?;
    expect(&cluster, "two halves", |a, b| {
        one.contains(a) && other.contains(b) || other.contains(a) && one.contains(b)
    })?;
    cluster.heal_all()?;
    cluster.cut_one_way(&[n(1)], &[End::Slurmctld, n(2)])?;
    expect(&cluster, "one way", |a, b| *a == n(1) && [End::Slurmctld, n(2)].contains(b))?;
    cluster.heal_all()?;
    cluster.cut(&cluster.ends(), &cluster.ends())?;
    expect(&cluster, "a switch without power", |_, _| true)?;
    cluster.heal_all()?;
    expect(&cluster, "healed in the end", |_, _| false)
}

#[test]
fn a_site_is_cut_where_its_calls_say() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("joulepoint-cables-{}", std::process::id()));
    let site = Site::start(&dir, &Wanted { nodes: 2, ..Wanted::default() }, &mut |_| ())?;
    let is_node = |end: &End| matches!(end, End::Node(_));
    let is_head = |end: &End| matches!(end, End::Service | End::Slurmctld);
    let between = |a: &End, b: &End, one: &dyn Fn(&End) -> bool, other: &dyn Fn(&End) -> bool| {
        one(a) && other(b) || other(a) && one(b)
    };
    let is_first = |end: &End| *end == End::Node(1);
    site.cut_controller()?;
    expect(&site.cluster, "the controller", |a, b| between(a, b, &is_head, &is_node))?;
    site.heal()?;
    site.cut_service()?;
    expect(&site.cluster, "the service", |a, b| {
        between(a, b, &|end| *end == End::Service, &|end| is_node(end) || *end == End::Slurmctld)
    })?;
    site.heal()?;
    site.cut_from_controller("n1")?;
    expect(&site.cluster, "a node from the controller", |a, b| between(a, b, &is_first, &is_head))?;
    site.heal()?;
    site.cut_node("n1")?;
    expect(&site.cluster, "a node from all", |a, b| between(a, b, &is_first, &|_| true))?;
    site.cut_all()?;
    expect(&site.cluster, "the switch", |_, _| true)?;
    site.heal()?;
    expect(&site.cluster, "healed", |_, _| false)?;
    drop(site);
    Ok(std::fs::remove_dir_all(&dir)?)
}

/// A connection from `from` to `to`: the two ends of it, both in the hands of this process.
fn connected(cluster: &Cluster, from: &End, to: &End) -> Result<(TcpStream, TcpStream)> {
    let listener = cluster.in_network_of(to, || TcpListener::bind((cluster.address(to), PORT)))??;
    let client = cluster.in_network_of(from, || TcpStream::connect((cluster.address(to), PORT)))??;
    Ok((client, listener.accept()?.0))
}

/// How a try to connect from `from` ends within a second.
fn refused(cluster: &Cluster, from: &End, to: Ipv4Addr) -> Result<Option<ErrorKind>> {
    let tried = cluster
        .in_network_of(from, || TcpStream::connect_timeout(&SocketAddr::from((to, PORT)), Duration::from_secs(1)))?;
    Ok(tried.err().map(|e| e.kind()))
}

#[test]
fn a_cut_is_silent_and_a_connection_outlives_it() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let cluster = Cluster::start(&dir.path().join("c"), &small(2), &mut |_| ())?;
    let (one, two) = (End::Node(1), End::Node(2));
    let (mut client, mut server) = connected(&cluster, &one, &two)?;
    // Nobody listens any more: that is said at once, where it can be.
    ensure!(refused(&cluster, &one, cluster.address(&two))? == Some(ErrorKind::ConnectionRefused));
    cluster.cut(std::slice::from_ref(&one), std::slice::from_ref(&two))?;
    ensure!(refused(&cluster, &one, cluster.address(&two))? == Some(ErrorKind::TimedOut), "the cut was told");
    client.write_all(b"late")?;
    server.set_read_timeout(Some(A_MOMENT))?;
    let mut said = [0; 4];
    ensure!(server.read(&mut said).is_err_and(|e| e.kind() == ErrorKind::WouldBlock), "it arrived, or was reset");
    cluster.heal_all()?;
    server.set_read_timeout(Some(SOON))?;
    server.read_exact(&mut said)?;
    ensure!(&said == b"late");
    Ok(())
}

#[test]
fn a_lossy_cable_loses_about_as_much_as_asked() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let cluster = Cluster::start(&dir.path().join("c"), &small(2), &mut |_| ())?;
    let (one, two) = (End::Node(1), End::Node(2));
    let bind = |end: &End| cluster.in_network_of(end, || UdpSocket::bind((cluster.address(end), PORT)));
    let (from, to) = (bind(&one)??, bind(&two)??);
    // Made before anything is lost: accept() would wait for ever, and from now on the addresses are known.
    let (mut client, mut server) = connected(&cluster, &one, &two)?;
    cluster.lose(std::slice::from_ref(&one), std::slice::from_ref(&two), 30)?;
    to.set_read_timeout(Some(Duration::from_millis(5)))?;
    let mut arrived = 0;
    // In small bursts: a full buffer would lose, too.
    for _ in 0..100 {
        for _ in 0..10 {
            from.send_to(b"?", (cluster.address(&two), PORT))?;
        }
        while to.recv(&mut [0; 8]).is_ok() {
            arrived += 1;
        }
    }
    ensure!((550..=800).contains(&arrived), "{arrived} of 1000 arrived");
    // TCP gets through all the same.
    client.write_all(&[7; 20_000])?;
    drop(client);
    let mut all = Vec::new();
    server.read_to_end(&mut all)?;
    ensure!(all.len() == 20_000, "{} bytes arrived", all.len());
    Ok(())
}

#[test]
fn a_slow_cable_is_slow_each_way_until_it_is_healed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let cluster = Cluster::start(&dir.path().join("c"), &small(2), &mut |_| ())?;
    let (one, two) = (End::Node(1), End::Node(2));
    const BYTES: usize = 400_000;
    /// The least that they take on the slow cable, part of them being on their way.
    const SLOW_S: f64 = 1.5;
    let seconds = |from: &End, to: &End| -> Result<f64> {
        let (mut client, mut server) = connected(&cluster, from, to)?;
        let begin = Instant::now();
        let writing = std::thread::spawn(move || client.write_all(&[7; BYTES]));
        let mut all = Vec::new();
        server.read_to_end(&mut all)?;
        writing.join().map_err(|_| anyhow::anyhow!("a panic"))??;
        ensure!(all.len() == BYTES);
        Ok(begin.elapsed().as_secs_f64())
    };
    cluster.slow(&one, Some(200_000))?;
    for (from, to) in [(&one, &two), (&two, &one), (&one, &End::Login)] {
        let slow_s = seconds(from, to)?;
        ensure!((SLOW_S..10.0).contains(&slow_s), "{from} to {to}: {slow_s} s for 400 kB at 200 kB/s");
    }
    let other_s = seconds(&two, &End::Slurmctld)?;
    ensure!(other_s < SLOW_S, "another cable took {other_s} s");
    cluster.heal_all()?;
    let healed_s = seconds(&one, &two)?;
    ensure!(healed_s < SLOW_S, "healed, it took {healed_s} s");
    Ok(())
}

#[test]
fn slurm_sees_a_node_that_is_cut_off_and_has_it_back_when_the_cable_is_mended() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let cluster = Cluster::start(&dir.path().join("c"), &small(2), &mut |_| ())?;
    let job = cluster.submit(ALICE, &["-w", "n1", "--wrap", "until [ -e go ]; do sleep 0.1; done"])?;
    cluster.wait_job(job, &["RUNNING"], SOON)?;
    cluster.cut(&[End::Node(1)], &[End::Slurmctld])?;
    let no_answer = |fields: &BTreeMap<String, String>| fields["State"].contains("NOT_RESPONDING");
    cluster.wait_until("slurmctld to miss n1", SOON, || Ok(no_answer(&cluster.node("n1")?).then_some(())))?;
    cluster.heal_all()?;
    cluster.wait_until("slurmctld to see n1", SOON, || Ok((!no_answer(&cluster.node("n1")?)).then_some(())))?;
    Ok(())
}
