//! Prints the CPU time that one sample of this machine costs: the pass over the process tree, and the meter with
//! the books.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

const ROUNDS: u32 = 200;

fn main() -> Result<(), energy::Error> {
    let config = energy::Config::default();
    let mut meter = energy::open(&config);
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let mut accounts = energy::Accounts::new(cpus, config.model.idle_w);
    let mut scanner = energy::Scanner::new("/proc", energy::tick_hz());
    let begun_s = cpu_s();
    let mut procs = energy::Processes::default();
    for round in 0..ROUNDS {
        procs = scanner.scan(f64::from(round))?;
    }
    let scan_us = (cpu_s() - begun_s) * 1e6 / f64::from(ROUNDS);
    let begun_s = cpu_s();
    for round in 0..ROUNDS {
        accounts.sample(f64::from(round), &mut meter, &procs);
    }
    let book_us = (cpu_s() - begun_s) * 1e6 / f64::from(ROUNDS);
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

/// CPU seconds of this thread.
fn cpu_s() -> f64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default().as_secs_f64()
}
