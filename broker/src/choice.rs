//! Says which waiting jobs that need longer than the window may borrow which nodes: pure.
//!
//! Slurm comes first: only nodes that its backfill has left free for a while are offered, to one job after the other in
//! the order of its priorities.

use crate::seen::Seen;
use protocol::Loan;
use slurm::{Job, JobState, Node, expand_nodelist};

/// Lent nodes that nobody uses, on which backfill plans nothing before the return, and that no reservation but the
/// loan's wants.
pub(crate) fn free_nodes<'a>(loan: &Loan, seen: &'a Seen) -> Vec<&'a Node> {
    let is_ours = |name: &str| name == loan.name;
    let taken = |node: &str| {
        let holds = |j: &&Job| matches!(j.state, JobState::Running | JobState::Suspended | JobState::Completing);
        let is_planned = |j: &Job| {
            let soon = j.state == JobState::Pending && j.start_s.is_some_and(|start_s| start_s < loan.return_s);
            soon && j.planned_nodes.iter().any(|n| n == node)
        };
        seen.jobs.iter().any(is_planned)
            || seen.jobs.iter().filter(holds).any(|j| j.nodes.iter().any(|n| n == node))
            || seen.reservations.iter().any(|r| !is_ours(&r.name) && r.nodes.iter().any(|n| n == node))
    };
    let is_free = |n: &&Node| {
        loan.nodes.contains(&n.name) && n.state == "IDLE" && n.flags.iter().all(|f| f == "PLANNED") && !taken(&n.name)
    };
    seen.nodes.iter().filter(is_free).collect()
}

/// What a waiting job asks for that the queue's listing does not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Unlisted {
    pub excluded_nodes: Vec<String>,
    pub has_burst_buffer: bool,
}

/// As many of the free nodes of one of its partitions as a job needs, if they are enough and it is known that they can
/// serve it.
pub(crate) fn room(job: &Job, unlisted: &Unlisted, free: &[&Node]) -> Option<Vec<String>> {
    job.partition.split(',').find_map(|partition| room_in(partition, job, unlisted, free))
}

fn room_in(partition: &str, job: &Job, unlisted: &Unlisted, free: &[&Node]) -> Option<Vec<String>> {
    let required = expand_nodelist(&job.required_nodes).ok()?;
    let excluded = &unlisted.excluded_nodes;
    let features = features(job).filter(|_| !job.asks_more && !unlisted.has_burst_buffer)?;
    let fits = |n: &&&Node| {
        n.partitions.iter().any(|of| of == partition)
            && !excluded.contains(&n.name)
            && features.iter().all(|f| n.features.iter().any(|has| has == f))
    };
    let mut fitting: Vec<&&Node> = free.iter().filter(fits).collect();
    fitting.sort_by_key(|n| !required.contains(&n.name));
    let least = required.len().max(job.num_nodes.max(1) as usize);
    let (mut cpus, mut nodes) = (0, Vec::new());
    for node in fitting {
        if nodes.len() >= least && cpus >= job.num_cpus {
            break;
        }
        cpus += node.cpus;
        nodes.push(node.name.clone());
    }
    let has_all = nodes.len() >= least && cpus >= job.num_cpus && required.iter().all(|n| nodes.contains(n));
    has_all.then_some(nodes)
}

/// The features that a job wants of each node; none if it is not as simple as that (`a|b`, `[a*2]`).
fn features(job: &Job) -> Option<Vec<&str>> {
    let is_plain = |f: &&str| f.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.=:".contains(&b));
    let words: Vec<&str> = job.features.split('&').filter(|f| !f.is_empty()).collect();
    words.iter().all(is_plain).then_some(words)
}

/// Jobs that wait for nothing but nodes and would not end before the return, the highest priority first; by all that the
/// listing tells there is room for them.
pub(crate) fn candidates<'a>(now_s: f64, loan: &Loan, jobs: &'a [Job], free: &[&Node]) -> Vec<(&'a Job, Vec<String>)> {
    let nothing = Unlisted::default();
    let waits = |j: &&Job| {
        let for_nodes = matches!(j.reason.as_str(), "Resources" | "Priority" | "");
        j.state == JobState::Pending && for_nodes && j.reservation.is_empty()
    };
    let may = |j: &&Job| j.batch && j.requeue && j.alone && loan.chosen.iter().all(|c| c.job != j.id);
    let is_long = |j: &&Job| j.time_limit_s.is_some_and(|limit_s| now_s + limit_s as f64 > loan.return_s);
    let mut found: Vec<_> = jobs
        .iter()
        .filter(waits)
        .filter(may)
        .filter(is_long)
        .filter_map(|j| Some((j, room(j, &nothing, free)?)))
        .collect();
    found.sort_by_key(|(j, _)| (std::cmp::Reverse(j.priority), j.id));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Chosen, ChosenState};
    use slurm::{parse_job, parse_nodes, parse_reservations};

    fn job(id: u32, more: &str) -> Job {
        let usual = "JobName=j UserId=u(1) GroupId=g(1) BatchFlag=1 Requeue=1 Partition=all,gpu NumCPUs=2";
        let fields = ["JobState=PENDING", "Reason=Resources", "TimeLimit=01:00:00", "Priority=10", "NumNodes=1"];
        let named = |field: &&&str| !more.contains(field.split_once('=').map_or(**field, |(key, _)| key));
        let rest: Vec<&str> = fields.iter().filter(named).copied().collect();
        parse_job(&format!("JobId={id} {usual} {} {more}", rest.join(" ")), id).unwrap().unwrap()
    }

    fn node(name: &str, state: &str) -> String {
        format!("NodeName={name} Arch=x86_64 CPUTot=2 RealMemory=1 State={state} Partitions=all\n")
    }

    fn loan(nodes: &[&str]) -> Loan {
        let loan = serde_json::json!({
            "id": "a", "name": "joulepoint_a", "key": { "cluster": "c", "run": "7.1" }, "job": 7, "restart_count": 0,
            "uid": 1000, "user": "alice", "account": "physics", "mode": "preempt", "state": "lent", "state_s": 0.0,
            "reason": "it pays", "nodes": nodes, "kept": ["n1"], "asked_s": 0.0, "return_s": 1000.0,
            "promised_s": 1000.0, "lent_s": 1.0, "back_s": null, "back": [], "time_limit_s": 1800, "idle_w": 100.0,
            "stays": []
        });
        serde_json::from_value(loan).unwrap()
    }

    #[test]
    fn the_highest_priority_of_those_that_need_longer_and_may_be_requeued_comes_first() {
        let jobs = [
            job(1, "Priority=5"),
            job(2, "Priority=50"),
            job(3, "Priority=50 NumNodes=2"),
            job(4, "JobState=RUNNING NodeList=n9"),
            job(5, "Reason=Dependency"),
            job(6, "Reservation=school"),
            job(7, "TimeLimit=00:01:00"),
            job(8, "TimeLimit=UNLIMITED"),
            job(9, "ArrayJobId=9 ArrayTaskId=1-5"),
        ];
        let nodes = parse_nodes(&(node("n2", "IDLE") + &node("n3", "IDLE"))).unwrap();
        let free: Vec<&Node> = nodes.iter().collect();
        let mut loan = loan(&["n2", "n3"]);
        let ids = |loan: &Loan, free: &[&Node]| {
            let found = candidates(0.0, loan, &jobs, free);
            found.into_iter().map(|(j, nodes)| (j.id, nodes.join(","))).collect::<Vec<_>>()
        };
        let named = |all: &[(u32, &str)]| all.iter().map(|(id, n)| (*id, n.to_string())).collect::<Vec<_>>();
        assert_eq!(ids(&loan, &free), named(&[(2, "n2"), (3, "n2,n3"), (1, "n2")]));
        assert_eq!(ids(&loan, &free[..1]), named(&[(2, "n2"), (1, "n2")]));
        assert_eq!(ids(&loan, &[]), named(&[]));
        loan.chosen.push(Chosen {
            job: 2,
            uid: 1,
            user: "u".into(),
            restart_count: 0,
            name: "joulepoint_a_2".into(),
            nodes: vec!["n2".into()],
            state: ChosenState::Over,
            state_s: 0.0,
            reason: "it did not begin".into(),
        });
        assert_eq!(ids(&loan, &free[..1]), named(&[(1, "n2")]), "nobody is called twice");
    }

    #[test]
    fn a_job_is_called_only_to_nodes_that_can_serve_it() {
        let plain = ["n2", "n3"].map(|n| node(n, "IDLE"));
        let fast = node("n4", "IDLE").replace("Partitions", "ActiveFeatures=fast,ib Partitions");
        let other = node("n5", "IDLE").replace("Partitions=all", "Partitions=gpu");
        let nodes = parse_nodes(&(plain.concat() + &fast + &other)).unwrap();
        let free: Vec<&Node> = nodes.iter().collect();
        let cases = [
            ("Features=(null) Contiguous=0 Licenses=(null)", Some("n2")),
            ("NumNodes=3", Some("n2,n3,n4")),
            // No partition of its has four.
            ("NumNodes=4", None),
            ("Features=fast", Some("n4")),
            ("Features=fast&ib", Some("n4")),
            ("Features=fast&gold", None),
            ("Features=fast NumNodes=2", None),
            ("Features=fast|gold", None),
            ("Features=[fast*1&ib*1]", None),
            ("ExcNodeList=n[2-3]", Some("n4")),
            ("ExcNodeList=n2 NumNodes=3", None),
            ("ReqNodeList=n4", Some("n4")),
            ("ReqNodeList=n4 NumNodes=2", Some("n4,n2")),
            ("ReqNodeList=n[3-4]", Some("n3,n4")),
            ("ReqNodeList=n[4-5]", None),
            ("TresPerTask=cpu=2", Some("n2")),
            ("TresPerTask=cpu=2,gres/gpu=1", None),
            ("TresPerNode=gres:gpu:1", None),
            ("TresPerJob=gres/shard:4", None),
            ("Licenses=matlab:1", None),
            ("BurstBuffer=#BB_LUA x", None),
            ("Switches=1@00:05:00", None),
            ("Contiguous=1", None),
        ];
        for (asks, nodes) in cases {
            let value = |key: &str| asks.split(' ').find_map(|w| w.strip_prefix(key));
            let unlisted = Unlisted {
                excluded_nodes: expand_nodelist(value("ExcNodeList=").unwrap_or_default()).unwrap(),
                has_burst_buffer: value("BurstBuffer=").is_some(),
            };
            assert_eq!(room(&job(1, asks), &unlisted, &free).map(|n| n.join(",")).as_deref(), nodes, "{asks}");
        }
    }

    #[test]
    fn only_nodes_that_nobody_uses_or_has_reserved_are_free() {
        let all = ["n2", "n3", "n4", "n5", "n6"];
        let nodes: String = all.map(|n| node(n, if n == "n5" { "IDLE+DRAIN" } else { "IDLE+PLANNED" })).concat();
        let reservation = |name: &str, node: &str| {
            format!("ReservationName={name} StartTime=9000 EndTime=9999 Nodes={node} Users=x Accounts=(null)\n")
        };
        let reservations = reservation("joulepoint_a", "n[2-6]") + &reservation("school", "n4");
        let seen = Seen {
            jobs: vec![
                job(4, "JobState=COMPLETING NodeList=n3"),
                job(5, "StartTime=999 SchedNodeList=n6"),
                job(6, "StartTime=1000 SchedNodeList=n2"),
            ],
            nodes: parse_nodes(&(nodes + &node("n9", "IDLE"))).unwrap(),
            reservations: parse_reservations(&reservations).unwrap(),
            ..Seen::default()
        };
        let free: Vec<&str> = free_nodes(&loan(&all), &seen).iter().map(|n| n.name.as_str()).collect();
        assert_eq!(free, ["n2"]);
    }
}
