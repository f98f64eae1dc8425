//! What Slurm's commands print, users' own words in it included.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = slurm::parse_job(text, 1);
    let (jobs, doubtful) = slurm::parse_jobs(text);
    for job in &jobs {
        assert!(!doubtful.contains(&job.id), "an id that is claimed twice is not believed");
    }
    let _ = (slurm::parse_nodes(text), slurm::parse_steps(text, 1), slurm::parse_accounting(text));
    if let Ok(names) = slurm::expand_nodelist(text) {
        if names.iter().any(|name| name == "None") {
            return; // Slurm's word for no node
        }
        let again = slurm::expand_nodelist(&slurm::compress_nodelist(&names)).expect("a list is read as it is written");
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names.dedup();
            names
        };
        assert_eq!(sorted(names), sorted(again));
    }
});
