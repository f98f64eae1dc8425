//! What Slurm's commands print, users' own words in it included.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = (slurm::parse_jobs(text), slurm::parse_gpus(text, 1, "n1"), slurm::parse_gpus_json(text, 1, "n1"));
    let _ = (slurm::parse_nodes(text), slurm::parse_steps(text, "1"), slurm::parse_accounting(text));
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
