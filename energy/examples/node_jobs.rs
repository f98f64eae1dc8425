//! Prints the jobs on this node with their processes and CPU time; with a node's name, Slurm's own figure for it.

fn main() -> Result<(), energy::Error> {
    if let Some(node) = std::env::args().nth(1) {
        std::process::exit(energy::slurm_energy::slurm_helper_main(&node));
    }
    let procs = energy::scan(std::path::Path::new("/proc"), energy::tick_hz())?;
    println!("{} processes, {:.2} CPU seconds, unrecognised {:?}", procs.count, procs.node_cpu_s, procs.unrecognised);
    for job in procs.jobs() {
        let steps: Vec<String> = job.steps.iter().map(|s| format!("{} {:.2} s", s.name, s.cpu_s)).collect();
        println!("job {}: {:.2} CPU seconds; {}; pids {:?}", job.job_id, job.cpu_s, steps.join(", "), job.pids);
        let uid = nix::unistd::getuid().as_raw();
        println!("  left its steps: {:?}", energy::orphans(std::path::Path::new("/proc"), &procs, job.job_id, uid)?);
    }
    Ok(())
}
