//! What a script says to `srun` in a run of groups: files, codes and refusals are those of the same script without.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use suite::{Site, Wanted};

const USER: &str = "jpalice";
const MINUTES: Duration = Duration::from_secs(180);

/// Three groups of one node, and a spare.
const GROUPS: [&str; 8] = [
    "-N4",
    "-n4",
    "--no-kill",
    "--ft-energy=energy",
    "--ft-energy-protocol=uncoordinated",
    "--ft-energy-groups=3",
    "--ft-energy-spare=1",
    "--ft-energy-done=run.{group}.cpt",
];

/// The same nodes for the script, unprotected.
const PLAIN: [&str; 2] = ["-N3", "-n3"];

/// Runs a script to its end; its exit code as Slurm shows it, and the files that it leaves, without the names of nodes and
/// the job's number.
fn ran(site: &Site, name: &str, args: &[&str], script: &str) -> Result<(String, BTreeMap<String, String>)> {
    let folder = site.folder(USER, name)?;
    let args = [args, &["--exclusive", "--output=said", "--error=warned", "-Jcalls of groups"]].concat();
    let job = site.submit(USER, &folder, &args, script)?;
    let state = site.wait_state(job, &["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"], MINUTES)?;
    let mut files = BTreeMap::new();
    for file in fs::read_dir(&folder)?.flatten() {
        let name = file.file_name().to_string_lossy().replace(&format!("job{job}."), "JOB.");
        if !["job.sh", "warned"].contains(&name.as_str()) {
            files.insert(name, fs::read_to_string(file.path())?);
        }
    }
    Ok((state, files))
}

/// What this user's jobs said on standard error.
fn warned(site: &Site, name: &str) -> Result<String> {
    Ok(fs::read_to_string(site.folder(USER, name)?.join("warned"))?)
}

fn as_without(site: &Site, name: &str, script: &str) -> Result<String> {
    let plain = ran(site, &format!("{name}-plain"), &PLAIN, script)?;
    let grouped = ran(site, name, &GROUPS, script)?;
    let said = warned(site, name)?;
    ensure!(plain == grouped, "without groups: {plain:#?}\nwith groups: {grouped:#?}\n{said}");
    ensure!(!said.contains("WARN"), "{said}");
    Ok(said)
}

/// Each file is written by one task, and says which.
const FILES: &str = r#"
export LATIN=$'\xe9t\xe9'
srun -n6 -o 'out.%t' -e 'err.%3t' sh -c 'echo rank $SLURM_PROCID; echo error $SLURM_PROCID >&2'
srun -o 'step.%s.%x.job%j.%u.%n.%2t' sh -c 'echo rank $SLURM_PROCID; echo error >&2'
srun -o 1 sh -c 'echo only $SLURM_PROCID'
SLURM_STDOUTMODE='said by a variable.%t' srun sh -c 'echo rank $SLURM_PROCID'
for name in again.0 again.2 again.all more.1; do echo old >$name; done
srun -o 'again.%t' sh -c 'echo new $SLURM_PROCID'
srun -n1 -N1 -o again.all echo new
srun -o 'more.%t' --open-mode=append sh -c 'echo new $SLURM_PROCID'
for rank in 0 1 2; do echo "read by $rank" >in.$rank; done
for rank in 0 1 2; do srun -n1 -N1 -i in.$rank -o "copy.$rank" cat; done
"#;

/// What `srun` would refuse of three nodes of two CPUs, and how it ends.
const REFUSED: &str = r#"
srun -N9 -n9 hostname; echo "nine nodes $?"
srun -n7 hostname; echo "seven tasks $?"
srun -n2 -c4 hostname; echo "four CPUs $?"
srun -n7 --overcommit true; echo "overcommitted $?"
echo "as many as there are: $(srun -N2-9 hostname | wc -l)"
echo "two nodes, $(srun -N2 hostname | wc -l) tasks"
srun -N1 -n1 test -n $'\xe9t\xe9'; echo "Latin words $?"
srun -w n99 true; echo "no such node $?"
srun --version
srun sh -c 'exit $((SLURM_PROCID + 3))'; echo "the highest of all $?"
set -e
srun sh -c 'test $SLURM_PROCID != 1'
echo not reached
"#;

#[test]
fn files_codes_and_refusals_are_those_of_the_script_without_groups() -> Result<()> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-calls-{}", std::process::id()));
    let site = Site::start(&dir, &Wanted { nodes: 4, ..Wanted::default() }, &mut |text| println!("  {text}"))?;
    as_without(&site, "files", FILES)?;
    let said = as_without(&site, "refused", REFUSED)?;
    let once = |words: &str| said.matches(words).count() == 1;
    ensure!(once("srun: error: Only allocated 3 nodes asked for 9"), "{said}");
    ensure!(said.matches("More processors requested than permitted").count() == 2, "{said}");
    ensure!(!said.contains("names no program"), "{said}");
    spreads(&site)?;
    refuses_too_many_groups(&site, &dir)
}

/// Calls side by side go to one group each.
fn spreads(site: &Site) -> Result<()> {
    let begun = "srun -N1 -n1 sh -c 'echo $FT_ENERGY_GROUP; sleep 2' & ";
    let (_, files) = ran(site, "sweep", &GROUPS, &format!("{}wait", begun.repeat(3)))?;
    let mut groups: Vec<&str> = files.get("said").context("said")?.lines().collect();
    groups.sort_unstable();
    ensure!(groups == ["0", "1", "2"], "{groups:?}: {}", warned(site, "sweep")?);
    Ok(())
}

/// More groups than the job can have nodes are refused where that is said.
fn refuses_too_many_groups(site: &Site, dir: &Path) -> Result<()> {
    let folder = site.folder(USER, "many")?;
    let sbatch = |nodes: &str, script: &str| {
        let args = [&GROUPS[3..5], &[nodes, "--ft-energy-groups=1000", "--hold"]].concat();
        site.sbatch(USER, &folder, &args, script)
    };
    for (nodes, script) in [("-N4", "true"), ("-n4", "#SBATCH --nodes=2-4\ntrue")] {
        let output = sbatch(nodes, script)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && said.contains("4 nodes are too few to make 1000 groups"),
            "{nodes}: {said}"
        );
    }
    // Slurm finds the number of nodes.
    let output = sbatch("-n4", "true")?;
    ensure!(output.status.success(), "{}: {}", dir.display(), String::from_utf8_lossy(&output.stderr));
    Ok(())
}
