//! A program on a GPU is dumped, killed and brought back, and its output compared with that of an undisturbed run: for a
//! machine that has a GPU, without a Slurm.

use anyhow::{Context, Result, bail};
use criu::client::{self, Ask};
use energy::{Load, Meter, SourceKind};
use increments::Increments;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time of anything.
const LIMIT: Duration = Duration::from_secs(300);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// What is tried.
pub struct Trial {
    /// The file of `joulepoint`.
    pub joulepoint: PathBuf,
    /// The file of CRIU.
    pub criu: PathBuf,
    /// Dumps before the program is killed.
    pub dumps: u32,
    /// The program and its arguments; it writes a line now and then.
    pub command: Vec<String>,
}

impl Trial {
    /// Runs it undisturbed, and again with dumps, a death and a restore.
    pub fn run(&self) -> Result<()> {
        let dir = tempfile::tempdir_in(std::env::current_dir()?)?;
        let dir = dir.path();
        let mut energy = Energy::new();
        let begun = Instant::now();
        let undisturbed = self.undisturbed(dir)?;
        let lines = undisturbed.lines().count();
        println!("undisturbed: {lines} lines in {:.1} s, {}", begun.elapsed().as_secs_f64(), energy.since_last());
        let mut warden = self.start(dir, None)?;
        let mut base = None;
        for number in 1..=self.dumps {
            self.wait_for(dir, lines * number as usize / (self.dumps as usize + 2))?;
            let folder = dir.join(number.to_string());
            fs::create_dir(&folder)?;
            let ask = Ask {
                folder: folder.clone(),
                limit_s: LIMIT.as_secs_f64(),
                memory_share: 0.5,
                compress: false,
                increments: Some(Increments { base: base.replace(folder.clone()) }),
                overwritten_bytes: 0,
                keeps_leftovers: true,
                tells_going_on: false,
            };
            energy.since_last();
            let begun = Instant::now();
            match client::dump(dir, &ask, || true, || {}) {
                Err(reason) => bail!("dump {number}: {reason}"),
                Ok(stood_s) => println!(
                    "dump {number}: stood still for {stood_s:.2} s, on disk after {:.2} s, {} MiB, {}",
                    begun.elapsed().as_secs_f64(),
                    bytes_below(&folder)? >> 20,
                    energy.since_last()
                ),
            }
        }
        self.wait_for(dir, lines * (self.dumps as usize + 1) / (self.dumps as usize + 2))?;
        warden.kill()?;
        warden.wait()?;
        energy.since_last();
        let begun = Instant::now();
        let mut warden = self.start(dir, base.as_deref())?;
        if !client::is_back(dir, || begun.elapsed() < LIMIT) {
            bail!("it does not come back");
        }
        println!("killed, and back after {:.2} s, {}", begun.elapsed().as_secs_f64(), energy.since_last());
        let ended = warden.wait()?;
        let output = fs::read_to_string(dir.join("out"))?;
        match output == undisturbed && ended.success() {
            true => println!("the same {lines} lines"),
            false => bail!("it ended with {ended}, and its output is another:\n{output}\nin place of:\n{undisturbed}"),
        }
        Ok(())
    }

    fn undisturbed(&self, dir: &Path) -> Result<String> {
        let (name, arguments) = self.command.split_first().context("there is no program")?;
        let out = Command::new(name).args(arguments).current_dir(dir).stdin(Stdio::null()).output()?;
        if !out.status.success() {
            bail!("{name} ends with {}: {}", out.status, String::from_utf8_lossy(&out.stderr));
        }
        Ok(String::from_utf8(out.stdout)?)
    }

    fn start(&self, dir: &Path, restore: Option<&Path>) -> Result<Child> {
        let mut command = Command::new(&self.joulepoint);
        command.args(["warden", "--criu"]).arg(&self.criu).arg("--run").arg(dir);
        if let Some(folder) = restore {
            command.arg("--restore").arg(folder);
        }
        let out = OpenOptions::new().append(true).create(true).open(dir.join("out"))?;
        let err = File::create(dir.join("err"))?;
        command.arg("--").args(&self.command).current_dir(dir).stdin(Stdio::null()).stdout(out).stderr(err);
        command.spawn().with_context(|| self.joulepoint.display().to_string())
    }

    /// Waits until the program has written so many lines.
    fn wait_for(&self, dir: &Path, lines: usize) -> Result<()> {
        let begun = Instant::now();
        while fs::read_to_string(dir.join("out"))?.lines().count() < lines {
            if begun.elapsed() > LIMIT {
                bail!("it does not go on: {}", fs::read_to_string(dir.join("err"))?);
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// What the GPUs of this machine use, as NVIDIA's library counts it.
struct Energy {
    meter: Meter,
    begun: Instant,
}

impl Energy {
    fn new() -> Energy {
        let config = energy::Config { precedence: vec![SourceKind::Nvml], ..energy::Config::default() };
        let mut energy = Energy { meter: energy::open(&config), begun: Instant::now() };
        // The first reading comes from another thread.
        thread::sleep(Duration::from_secs(2));
        energy.since_last();
        energy
    }

    /// Since this was called last.
    fn since_last(&mut self) -> String {
        let sample = self.meter.sample(self.begun.elapsed().as_secs_f64(), &Load::default());
        let used_j: f64 = sample.gpus_j.iter().sum();
        match self.meter.has_gpus() {
            true => format!("{used_j:.0} J on GPUs"),
            false => format!("{:?}", self.meter.refused()),
        }
    }
}

/// What the files below a folder take that no earlier dump has, bytes.
fn bytes_below(folder: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let metadata = fs::symlink_metadata(&path)?;
        bytes += match metadata.is_dir() {
            true => bytes_below(&path)?,
            false if metadata.nlink() == 1 => metadata.len(),
            false => 0,
        };
    }
    Ok(bytes)
}
