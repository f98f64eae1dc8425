//! The site file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match config::parse(text, "joulepoint.toml") {
        Ok(site) => drop(site.energy.sources()),
        Err(e) => assert!(e.to_string().starts_with("joulepoint.toml"), "{e}"),
    }
});
