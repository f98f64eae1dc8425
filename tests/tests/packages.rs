//! The Debian packages on five real hosts: installed to the letter of `docs/admin.md`, used, upgraded, taken away.
//!
//! Each series of Slurm has a Debian of its own, with a controller and four nodes that can lose power. What was tried
//! and what came of it becomes a row each in `target/matrix`, and `make matrix` makes `docs/testing/matrix.md` of them.
//! Needs root, `mmdebstrap` and the machine's mirror; without them it says that it skipped.

#[path = "packages/admin_page.rs"]
mod admin_page;
#[path = "packages/before.rs"]
mod before;
#[path = "packages/life.rs"]
mod life;
#[path = "packages/lists.rs"]
mod lists;
#[path = "packages/loan.rs"]
mod loan;
#[path = "packages/site.rs"]
mod site;
#[path = "packages/steps.rs"]
mod steps;
#[path = "packages/table.rs"]
mod table;

use site::Site;
use std::time::Instant;

#[test]
fn slurm_22_05_on_debian_12() {
    series("bookworm", "22.05", "Debian 12");
}

#[test]
fn slurm_24_11_on_debian_13() {
    series("trixie", "24.11", "Debian 13");
}

#[test]
fn slurm_26_05_on_debian_forky() {
    series("forky", "26.05", "Debian forky");
}

/// Tries every step on one series; one that fails does not keep the others from being tried.
fn series(release: &str, series: &str, debian: &str) {
    let mut column = table::Column::new(series, debian);
    let debian = match site::debian(release, true) {
        Ok(debian) => debian,
        Err(reason) => {
            println!("skipped: Slurm {series}: {reason}");
            steps::STEPS.iter().for_each(|(name, _)| column.add(name, &format!("skipped: {reason}")));
            return column.write();
        }
    };
    let mut site = Site::boot(debian, series).expect("five hosts and a Slurm");
    let mut failures = Vec::new();
    for (name, step) in steps::STEPS {
        let begin = Instant::now();
        let said = step(&mut site);
        println!("  Slurm {series}: {name}: {said:#?} ({:.0} s)", begin.elapsed().as_secs_f64());
        match said {
            Ok(cell) => column.add(name, &cell),
            Err(reason) => {
                column.add(name, "FAILED");
                failures.push(format!("{name}: {reason:#}"));
            }
        }
    }
    column.write();
    assert!(failures.is_empty(), "Slurm {series}:\n{}", failures.join("\n"));
    println!("tried: the packages with Slurm {series}");
}
