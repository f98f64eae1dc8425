//! Third-party programs with one option each lose their node at half time; the table is `docs/testing/programs.md`.

use anyhow::{Context, Result, bail, ensure};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use suite::programs::{self, PROGRAMS, Program, Verdict, is_here, play};
use suite::repository;
use suite::transparent::site;

/// Nodes of the cluster.
const NODES: u32 = 8;

/// Runs those whose name contains `only`, or all, and writes the table of all; or the scripts of a folder.
///
/// # Errors
/// One of them ended wrong, or began anew without a word.
pub fn run(only: Option<&str>, scripts: Option<&Path>) -> Result<()> {
    let own = scripts.map(of_folder).transpose()?;
    let programs = own.as_deref().unwrap_or(PROGRAMS);
    let wanted = |p: &&Program| only.is_none_or(|only| p.name.contains(only));
    let (here, absent): (Vec<&Program>, Vec<&Program>) = programs.iter().filter(wanted).partition(|p| is_here(p));
    let dir = programs::place();
    let mut site = match site(&dir, NODES, &mut |text| println!("  {text}"))? {
        Ok(site) => site,
        Err(reason) => bail!("without CRIU there is nothing to show: {reason}"),
    };
    let verdicts = play(&mut site, &here, &mut |text| println!("  {text}"))?;
    drop(site);
    fs::remove_dir_all(&dir)?;
    let _ = fs::remove_dir_all(dir.with_extension("criu"));
    let table = table(&here, &verdicts);
    println!("\n{table}");
    absent.iter().for_each(|p| println!("not here: {} (needs {})", p.name, p.needs.join(", ")));
    if only.is_none() && own.is_none() && absent.is_empty() {
        fs::write(repository().join("docs/testing/programs.md"), page(&table))?;
    }
    let wrong = verdicts.iter().filter(|v| matches!(v, Verdict::Wrong(_))).count();
    ensure!(wrong == 0, "{wrong} programs ended wrong");
    Ok(())
}

/// A script of each file `NAME.sh` in a folder.
fn of_folder(folder: &Path) -> Result<Vec<Program>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|e| e == "sh"));
    files.sort();
    let program = |file: PathBuf| {
        let name = file.file_stem().context("a name")?.to_string_lossy().into_owned();
        Ok(Program { name: name.leak(), needs: &[], script: fs::read_to_string(&file)?.leak(), options: &[] })
    };
    files.into_iter().map(program).collect()
}

fn table(programs: &[&Program], verdicts: &[Verdict]) -> String {
    let mut text = "| program | after the loss of its node |\n|---|---|\n".to_string();
    for (program, verdict) in programs.iter().zip(verdicts) {
        let _ = writeln!(text, "| {} | {verdict} |", program.name);
    }
    let count = |of: fn(&Verdict) -> bool| verdicts.iter().filter(|v| of(v)).count();
    let _ = writeln!(
        text,
        "\n{} programs: {} with the same result from a checkpoint, {} with the same result from the beginning and told so, \
         {} with work done twice and told so, {} wrong.",
        verdicts.len(),
        count(|v| *v == Verdict::Same),
        count(|v| matches!(v, Verdict::Anew(_))),
        count(|v| matches!(v, Verdict::Repeated(_))),
        count(|v| matches!(v, Verdict::Wrong(_))),
    );
    text
}

fn page(table: &str) -> String {
    format!(
        "# Programs that were tried\n\n\
         Each of these scripts was submitted with `--ft-energy` and nothing else, and lost its node at half time, on a\n\
         private Slurm. What it left was compared with an undisturbed run without the option. The scripts are in\n\
         `tests/src/programs.rs`; `make programs` makes this page, and needs the programs installed.\n\n{table}"
    )
}
