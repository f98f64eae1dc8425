//! A real node service gives each job the joules of the GPUs that Slurm gave it, whoever keeps the CPUs busy.

#[allow(dead_code)]
mod daemons;

use daemons::{Site, until};
use protocol::NodeReading;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What `scontrol show job -d ID --json` says of a job (`$4`), cut to what matters; its name claims the other GPU.
const SCONTROL: &str = r#"#!/bin/sh
[ "$1" != --version ] || { echo slurm 24.11.5; exit; }
case "$4" in 7) own=1 other=0;; *) own=0 other=1;; esac
cat <<END
{"jobs": [{"job_id": $4, "name": "x\", \"gres_detail\": [\"gpu:1(IDX:$other)\"]", "nodes": "n1",
  "gres_detail": ["gpu:1(IDX:$own)"]}]}
END
"#;

/// A step of a job that has used so many clock ticks, as the kernel shows it.
fn step(proc_root: &Path, pid: u32, job: u32, ticks: u64) {
    let folder = proc_root.join(pid.to_string());
    fs::create_dir_all(&folder).expect("folder");
    for (file, text) in [
        ("stat", format!("{pid} (slurmstepd) S 1 1 1 0 -1 4194560 1 2 3 4 0 0 {ticks} 0 20 0 1 0 {pid} 5 6 7\n")),
        ("cmdline", format!("slurmstepd: [{job}.batch]")),
        ("status", format!("Name:\tslurmstepd\nUid:\t{}\t0\t0\t0\n", nix::unistd::geteuid())),
    ] {
        fs::write(folder.join("new"), text).expect("written");
        fs::rename(folder.join("new"), folder.join(file)).expect("renamed");
    }
}

fn counters(dir: &Path, text: &str) {
    fs::write(dir.join("new"), text).expect("written");
    fs::rename(dir.join("new"), dir.join("counters")).expect("renamed");
}

#[test]
fn a_gpu_is_its_holders_and_not_whose_processes_compute() {
    let mut site = Site::new(None);
    let dir = site.dir.path().to_path_buf();
    let library = concat!(env!("CARGO_MANIFEST_DIR"), "/../energy/tests/data/nvml.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(dir.join("libnvidia-ml.so.1"));
    cc.arg(format!("-DCOUNTERS=\"{}\"", dir.join("counters").display())).arg(library);
    assert!(cc.status().expect("cc runs").success());
    site.environment.push(("LD_LIBRARY_PATH".into(), dir.display().to_string()));
    fs::write(dir.join("scontrol"), SCONTROL).expect("written");
    fs::set_permissions(dir.join("scontrol"), fs::Permissions::from_mode(0o755)).expect("may run");
    let conf = fs::read_to_string(dir.join("conf")).expect("conf");
    let metered = "sources = [\"nvml\", \"model\"]\nidle_w = 0.001\nbusy_w = 1.0\n";
    let conf = conf.replace("sources = [\"model\"]\n", metered).replace("\"/nonexistent\"", &format!("{dir:?}"));
    fs::write(dir.join("conf"), conf).expect("conf");
    let proc_root = dir.join("proc");
    for job in [7, 8] {
        step(&proc_root, 10 * job, job, 0);
    }
    counters(&dir, "1000000 0\n1000000 1\n");
    let _node = site.node_over(&proc_root);
    let joules = |job: u32| {
        let reading: NodeReading = site.node_client().get(&format!("/v1/jobs/{job}/energy")).expect("a reading");
        reading.job.map_or(0.0, |j| j.joules)
    };
    // Job 8 alone computes; whose the GPUs are has been asked when the counters of both go each to its own job.
    let mut ticks = 0;
    let mut mj = 1_000_000;
    until("each job to have its own GPU's joules", || {
        let before = [7, 8].map(joules);
        (ticks, mj) = (ticks + 10_000, mj + 2_000_000);
        step(&proc_root, 80, 8, ticks);
        counters(&dir, &format!("{} 0\n{mj} 1\n", 1_000_000 + (mj - 1_000_000) / 4));
        until("the counters to be read", || (joules(7) + joules(8) > before[0] + before[1] + 2000.0).then_some(()));
        let added =
            [7, 8].map(joules).iter().zip(before).map(|(now, before)| (now - before).round()).collect::<Vec<_>>();
        // The model's CPUs add at most 1 W to the one that computes.
        (added[0] == 2000.0 && (500.0..700.0).contains(&added[1])).then_some(())
    });
}
