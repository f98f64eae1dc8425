//! Prints what one sample of this machine costs: the pass over the process tree, and the meter with the books.

use std::path::Path;
use std::time::Instant;

const ROUNDS: u32 = 200;

fn main() -> Result<(), energy::Error> {
    let config = energy::Config::default();
    let mut meter = energy::open(&config);
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let mut accounts = energy::Accounts::new(cpus, config.model.idle_w);
    let begun = Instant::now();
    let mut procs = energy::Processes::default();
    for _ in 0..ROUNDS {
        procs = energy::scan(Path::new("/proc"), energy::tick_hz())?;
    }
    let scan_us = begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
    let begun = Instant::now();
    for round in 0..ROUNDS {
        accounts.sample(f64::from(round), &mut meter, &procs);
    }
    let book_us = begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
    println!("source {}: {}", meter.source(), meter.describe());
    for (kind, reason) in meter.refused() {
        println!("  not {kind}: {reason}");
    }
    println!(
        "scan   {scan_us:8.1} us for {} processes, {:.2} us each",
        procs.count,
        scan_us / procs.count.max(1) as f64
    );
    println!("sample {book_us:8.1} us");
    println!("at 1 Hz {:.4} % of one CPU", (scan_us + book_us) / 1e4);
    Ok(())
}
