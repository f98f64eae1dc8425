//! Nodes that lose their power and cables that are cut, on a real Slurm: one writer at any time, and nobody else harmed.
//!
//! Each kind of trouble once; `xtask partitions` plays as many as are wanted, and says how long it took.

use anyhow::Result;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use suite::partitions::{Trouble, back_on_the_same_node, off_by_a_persons_word, play};
use suite::{Site, Wanted};

/// The site of all tests, and how many histories were begun.
static SITE: Mutex<(Option<Site>, u32)> = Mutex::new((None, 0));

fn start(number: u32) -> Result<Site> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-partitions-{}-{number}", std::process::id()));
    // Slurm itself is not to decide while the trouble lasts.
    let wanted = Wanted { slurmd_timeout_s: 900, ..Wanted::default() };
    Site::start(&dir, &wanted, &mut |text| println!("  {text}"))
}

/// Does something on the site; one with which it fails is left to nobody.
fn with_site<T>(act: impl FnOnce(&mut Site) -> Result<T>) -> Result<T> {
    let mut held = SITE.lock().unwrap_or_else(PoisonError::into_inner);
    let (kept, begun) = &mut *held;
    *begun += 1;
    let mut site = kept.take().map_or_else(|| start(*begun), Ok)?;
    let done = act(&mut site)?;
    *kept = Some(site);
    Ok(done)
}

fn once(trouble: Trouble, lasts_s: u64) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(lasts_s);
    let history = with_site(|site| play(site, trouble, Duration::from_secs(lasts_s), &mut rng))?;
    println!("  {history:?}");
    Ok(())
}

#[test]
fn a_node_without_power_is_noticed_and_its_run_goes_on() -> Result<()> {
    once(Trouble::Power, 15)
}

#[test]
fn slurmds_that_are_restarted_again_and_again_end_nothing() -> Result<()> {
    once(Trouble::SlurmdsRestart, 15)
}

#[test]
fn the_node_of_the_script_without_power_is_noticed_and_its_run_goes_on() -> Result<()> {
    once(Trouble::BatchHostPower, 15)
}

#[test]
fn a_node_that_is_cut_off_from_all_freezes_what_it_runs_before_it_begins_elsewhere() -> Result<()> {
    once(Trouble::CutFromAll, 25)
}

#[test]
fn the_node_of_the_script_that_is_cut_off_freezes_what_it_runs_before_it_begins_elsewhere() -> Result<()> {
    once(Trouble::BatchHostCutFromAll, 25)
}

#[test]
fn a_job_that_may_run_on_one_node_only_goes_on_there_when_the_node_is_back() -> Result<()> {
    with_site(|site| back_on_the_same_node(site, Duration::from_secs(25)))
}

#[test]
fn a_job_whose_node_died_with_half_of_all_waits_for_a_persons_word() -> Result<()> {
    with_site(|site| off_by_a_persons_word(site, Duration::from_secs(15)))
}

#[test]
fn a_node_that_only_the_controller_does_not_reach_goes_on() -> Result<()> {
    once(Trouble::CutFromController, 20)
}

#[test]
fn cables_that_carry_one_direction_only_make_no_second_writer() -> Result<()> {
    once(Trouble::OneWayOut, 20)?;
    once(Trouble::OneWayIn, 20)
}

#[test]
fn two_halves_make_no_second_writer() -> Result<()> {
    once(Trouble::Halves, 20)
}

#[test]
fn a_switch_that_reboots_ends_nothing() -> Result<()> {
    once(Trouble::Switch, 60)
}

#[test]
fn a_controller_that_is_cut_off_ends_nothing() -> Result<()> {
    once(Trouble::ServiceCut, 20)?;
    once(Trouble::ControllerCut, 20)
}

#[test]
fn a_network_that_loses_packets_makes_no_second_writer() -> Result<()> {
    once(Trouble::Lossy, 20)
}

#[test]
fn stopped_slurmds_end_nothing() -> Result<()> {
    once(Trouble::Slurmds, 20)
}
