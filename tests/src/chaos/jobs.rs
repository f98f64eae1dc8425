//! The protected jobs of a history: how each is submitted, and what its result is when nothing disturbs it.

use super::history::Program;
use crate::partitions::{check_result, check_writers};
use crate::transparent::{self, differs};
use crate::{Site, repository};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testbed::ALICE;

/// Steps of 50 ms, of 20 ms, and of 100 ms and more: about 40 s each.
const TALLY_STEPS: u32 = 800;
const HEAT_STEPS: u32 = 1600;
const OTHER_STEPS: u32 = 330;

/// A job of a history.
pub struct Job {
    /// What it runs.
    pub program: Program,
    /// Slurm's number.
    pub id: u32,
    /// Where it works.
    pub folder: PathBuf,
    beside: Option<(PathBuf, Child)>,
}

/// Builds what the jobs run into the site's folder of programs, and computes what needs to be computed only once.
///
/// # Errors
/// A compiler is missing, or says why not.
pub fn build(site: &Site) -> Result<()> {
    let bin = site.bin();
    transparent::build(&bin)?;
    fs::copy(repository().join("apps/tally/tally.py"), bin.join("tally.py"))?;
    let build = format!("BUILD={}", bin.display());
    let made = Command::new("make").args(["--silent", "-C"]).arg(repository().join("apps/heat")).arg(build).output()?;
    ensure!(made.status.success(), "heat: {}", String::from_utf8_lossy(&made.stderr));
    let folder = site.folder(ALICE, "heat-undisturbed")?;
    let heat = site.user_command(ALICE, &bin.join("heat").to_string_lossy(), &folder).args(heat_words(0)).output()?;
    ensure!(heat.status.success(), "heat: {}", String::from_utf8_lossy(&heat.stderr));
    Ok(())
}

fn heat_words(step_ms: u32) -> Vec<String> {
    let words = format!("--size 128 --steps {HEAT_STEPS} --report 0 --step-ms {step_ms}");
    words.split(' ').map(str::to_string).collect()
}

impl Job {
    /// Submits a program, which has its nodes for itself or shares them, and whose run's folder is below `runs`.
    ///
    /// # Errors
    /// What sbatch says.
    pub fn submit(site: &Site, name: &str, program: Program, alone: bool, runs: &Path) -> Result<Job> {
        let folder = site.folder(ALICE, name)?;
        let bin = site.bin();
        let path = |file: &str| bin.join(file).display().to_string();
        let mut beside = None;
        let script = match program {
            Program::Tally => format!("srun python3 {} --steps {TALLY_STEPS} --step-ms 50", path("tally.py")),
            Program::Heat => format!("srun --mpi=pmix {} {}", path("heat"), heat_words(20).join(" ")),
            Program::Groups => format!(
                "srun --mpi=pmix bash -c 'mkdir -p g$FT_ENERGY_GROUP; cd g$FT_ENERGY_GROUP; exec {} {}'",
                path("heat"),
                heat_words(20).join(" ")
            ),
            Program::State | Program::Tree | Program::Step => {
                let of = if program == Program::Tree { transparent::TREE } else { transparent::STATE };
                let argv = of.argv(&bin, OTHER_STEPS);
                beside = Some(undisturbed(site, name, &argv)?);
                let srun = if program == Program::Step { "srun " } else { "" };
                format!("echo begin\n{srun}{}\necho end $?", argv.join(" "))
            }
        };
        let nodes = program.nodes();
        let mut args = vec![format!("-N{nodes}"), format!("-n{nodes}"), "-t6".into(), "--open-mode=append".into()];
        args.extend(["--output=out", "--error=err", "--ft-energy=energy", "--ft-energy-interval=3s"].map(String::from));
        args.push(format!("--ft-energy-dir={}", runs.display()));
        args.extend(engine(program).iter().map(ToString::to_string));
        args.push(format!("--export=ALL,TMPDIR={}", folder.join("tmp").display()));
        args.extend((alone || program == Program::Groups).then(|| "--exclusive".to_string()));
        ensure!(site.user_command(ALICE, "mkdir", &folder).arg("tmp").status()?.success(), "{}/tmp", folder.display());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let id = site.submit(ALICE, &folder, &args, &script)?;
        Ok(Job { program, id, folder, beside })
    }

    /// Compares what it has left with what an undisturbed run leaves, bit for bit; of its output, up to so many lines more may
    /// stand between. How many there are.
    ///
    /// # Errors
    /// What differs.
    pub fn check_result(&mut self, site: &Site, more: usize) -> Result<usize> {
        let mut found_more = 0;
        match self.program {
            Program::Tally => check_result(&self.folder, self.program.nodes()),
            Program::Heat => {
                let undisturbed = site.folder(ALICE, "heat-undisturbed")?;
                differs("heat.out", &read(&self.folder, "heat.out")?, &read(&undisturbed, "heat.out")?)
            }
            Program::Groups => {
                let undisturbed = read(&site.folder(ALICE, "heat-undisturbed")?, "heat.out")?;
                let mut results = ["g0/heat.out", "g1/heat.out"].into_iter();
                results.try_for_each(|name| differs(name, &read(&self.folder, name)?, &undisturbed))
            }
            Program::State | Program::Tree | Program::Step => {
                let (beside, child) = self.beside.as_mut().context("an undisturbed run beside it")?;
                let code = child.wait()?.code().context("the undisturbed run was killed")?;
                let expected = format!("begin\n{}end {code}\n", read(beside, "out")?);
                let out = read(&self.folder, "out")?;
                match lines_more(&out, &expected).filter(|n| *n <= more) {
                    Some(n) => found_more = n,
                    None => differs("out", &out, &expected)?,
                }
                let of = if self.program == Program::Tree { transparent::TREE } else { transparent::STATE };
                of.files.iter().try_for_each(|name| differs(name, &read(&self.folder, name)?, &read(beside, name)?))
            }
        }?;
        Ok(found_more)
    }

    /// Whether nobody wrote after somebody else had begun to, where the program shows it.
    ///
    /// # Errors
    /// Who did.
    pub fn check_writers(&self, most: usize) -> Result<()> {
        let has_begun = self.folder.join("writers.0").exists() && self.folder.join("writers.1").exists();
        if has_begun { check_writers(&self.folder, self.program.nodes(), most) } else { Ok(()) }
    }

    /// Whether its script has noticed that its program was killed, and gone on.
    pub fn script_told_of_a_kill(&self) -> bool {
        read(&self.folder, "out").is_ok_and(|out| out.ends_with("end 137\n"))
    }

    /// Whether the shell has said that a command of the script was killed.
    pub fn shell_told_of_a_kill(&self) -> bool {
        read(&self.folder, "err").is_ok_and(|err| err.lines().any(|line| line.contains(" Killed ")))
    }

    /// Whether the shell has said that it could not read its script.
    pub fn script_told_of_its_storage(&self) -> bool {
        read(&self.folder, "err").is_ok_and(|err| err.contains("error reading input file"))
    }

    /// Whether Slurm has said in its output that it did not launch a step for a wrong clock.
    pub fn slurm_told_of_the_clock(&self) -> bool {
        read(&self.folder, "err").is_ok_and(|err| err.contains("Job credential expired"))
    }

    /// Whether Slurm has said in its output that its time was over.
    pub fn slurm_told_of_the_limit(&self) -> bool {
        read(&self.folder, "err").is_ok_and(|err| err.contains("DUE TO TIME LIMIT"))
    }

    /// The lines of its output that are ours, but for those on its protection, which every job has.
    pub fn said(&self) -> Vec<String> {
        let text = read(&self.folder, "err").unwrap_or_default();
        const USUAL: [&str; 9] = [
            "not proven",
            "protected by",
            "NOT PROTECTED",
            "goes on from",
            "begins anew",
            "begins again",
            "what was added to",
            "a checkpoint",
            "changed since",
        ];
        let ours = text.lines().filter(|line| line.starts_with("joulepoint"));
        let is_usual = |line: &str| {
            let said = line.trim_start_matches("joulepoint: ");
            USUAL.iter().any(|usual| said.starts_with(usual))
        };
        ours.filter(|line| !is_usual(line)).map(str::to_string).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some((_, child)) = &mut self.beside {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn engine(program: Program) -> &'static [&'static str] {
    match program {
        Program::Tally => &["--ft-energy-signal=USR1", "--ft-energy-done=state.?"],
        Program::Heat => &["--ft-energy-signal=USR1", "--ft-energy-done=heat.ckpt"],
        Program::State | Program::Tree | Program::Step => &["--ft-energy-engine=criu"],
        Program::Groups => &[
            "--no-kill",
            "--ft-energy-protocol=uncoordinated",
            "--ft-energy-groups=2",
            "--ft-energy-spare=1",
            "--ft-energy-signal=USR1",
            "--ft-energy-done=g{group}/heat.ckpt",
        ],
    }
}

/// Starts the same program beside the job, where nothing happens to it.
fn undisturbed(site: &Site, name: &str, argv: &[String]) -> Result<(PathBuf, Child)> {
    let beside = site.folder(ALICE, &format!("{name}-undisturbed"))?;
    let (program, args) = argv.split_first().context("a program")?;
    let out = fs::File::create(beside.join("out"))?;
    let mut command = site.user_command(ALICE, program, &beside);
    command.args(args).stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
    let child = command.spawn().with_context(|| program.clone())?;
    Ok((beside, child))
}

/// How many lines of a text are between those that are expected; none if one of these is not there, in its place.
fn lines_more(found: &str, expected: &str) -> Option<usize> {
    let mut expected = expected.lines().peekable();
    let more = found.lines().filter(|line| expected.next_if_eq(line).is_none()).count();
    expected.next().is_none().then_some(more)
}

fn read(folder: &Path, name: &str) -> Result<String> {
    fs::read_to_string(folder.join(name)).with_context(|| format!("{}/{name}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::lines_more;

    #[test]
    fn lines_between_are_counted_and_a_missing_one_is_found() {
        assert_eq!(lines_more("a\nb\n", "a\nb\n"), Some(0));
        assert_eq!(lines_more("a\nb\na\nc\n", "a\nb\nc\n"), Some(1));
        assert_eq!(lines_more("a\nc\nb\n", "a\nb\nc\n"), None);
    }
}
