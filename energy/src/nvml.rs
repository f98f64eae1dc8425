//! Reads the energy counters of NVIDIA GPUs, through NVIDIA's library where there is one.
//!
//! The library is loaded at run time and asked in the background, since a GPU that has fallen off the bus can
//! hold a caller for ever. All GPUs must have a counter (Volta or newer): a part of them is no figure.

use nvml_wrapper::Nvml as Library;
use nvml_wrapper::error::NvmlError;

use crate::counter::Counter;
use crate::feed::Listener;
use crate::{Background, Config, Coverage, Error, Feed, Ready, Source, SourceKind};

/// Time between two readings of the counters.
const PERIOD_S: f64 = 1.0;
/// A reading takes milliseconds; after so long a GPU hangs.
const TIMEOUT_S: f64 = 10.0;
/// How long to wait for the library to load, so that its absence is known at once.
const LOADING_S: f64 = 0.5;

/// The GPUs of one node.
pub(crate) struct Nvml {
    feed: Listener<Vec<Reading>>,
    gpus: Vec<Counter>,
    /// What the last reading added, with the GPU's device file.
    added: Vec<(Option<u32>, f64)>,
    limit_w: f64,
    joules: f64,
}

/// One GPU as the library shows it.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The number of its device file (`/dev/nvidia0`); none for one that is cut into instances, which Slurm counts
    /// one by one.
    minor: Option<u32>,
    /// Millijoules since its driver was loaded.
    mj: u64,
}

impl Nvml {
    pub(crate) fn open(config: &Config) -> Result<Nvml, Error> {
        let path = config.nvml_library.clone();
        let mut library = None;
        let what = path.display().to_string();
        let feed = Background::ask(what, PERIOD_S, move || match &library {
            Some(library) => read(library),
            None => {
                let loaded = Library::builder().lib_path(path.as_os_str()).init();
                read(library.insert(loaded.map_err(|e| e.to_string())?))
            }
        })?;
        match feed.wait(LOADING_S) {
            first if first.runs > 0 && first.value.is_none() => {
                Err(Error::refused(format!("{}: {}", feed.describe(), first.error.unwrap_or_default())))
            }
            _ => Ok(Nvml::with(Box::new(feed), config)),
        }
    }

    fn with(feed: Box<dyn Feed<Vec<Reading>>>, config: &Config) -> Nvml {
        let feed = Listener::new(feed, PERIOD_S, TIMEOUT_S);
        Nvml { feed, gpus: Vec::new(), added: Vec::new(), limit_w: config.max_node_w, joules: 0.0 }
    }
}

/// Every GPU.
fn read(library: &Library) -> Result<Vec<Reading>, String> {
    let count = library.device_count().map_err(|e| e.to_string())?;
    if count == 0 {
        return Err("there is no GPU".into());
    }
    let one = |gpu| {
        let device = library.device_by_index(gpu)?;
        // GPUs before Ampere have no such mode, and say so.
        let is_cut = device.mig_mode().is_ok_and(|mode| mode.current != 0);
        let minor = device.minor_number().ok().filter(|_| !is_cut);
        Ok(Reading { minor, mj: device.total_energy_consumption()? })
    };
    let said = |e: NvmlError| e.to_string();
    (0..count).map(|gpu| one(gpu).map_err(said).map_err(|e| format!("energy counter of GPU {gpu}: {e}"))).collect()
}

impl Source for Nvml {
    fn kind(&self) -> SourceKind {
        SourceKind::Nvml
    }

    fn covers(&self) -> Coverage {
        Coverage::Gpus
    }

    fn ready(&mut self) -> Result<Ready, Error> {
        self.feed.ready()
    }

    fn joules(&mut self, now_s: f64) -> Result<f64, Error> {
        let now = self.feed.answer(now_s)?;
        let uj = |gpu: &Reading| gpu.mj.saturating_mul(1000);
        if self.gpus.is_empty() {
            let begin = |(i, gpu): (usize, &Reading)| Counter::absolute(format!("GPU {i}"), uj(gpu), self.limit_w);
            self.gpus = now.iter().enumerate().map(begin).collect();
        }
        if self.gpus.len() != now.len() {
            return Err(Error::refused(format!("{} GPUs have become {}", self.gpus.len(), now.len())));
        }
        let mut added = Vec::with_capacity(now.len());
        for (counter, gpu) in self.gpus.iter_mut().zip(&now) {
            added.push((gpu.minor, counter.advance(now_s, uj(gpu))?.joules));
        }
        self.joules += added.iter().map(|(_, joules)| joules).sum::<f64>();
        self.added = added;
        Ok(self.joules)
    }

    fn gpus_j(&self) -> Vec<f64> {
        let numbered = self.added.iter().map(|(minor, joules)| Some(((*minor)?, *joules)));
        let mut gpus = numbered.collect::<Option<Vec<_>>>().unwrap_or_default();
        gpus.sort_by_key(|(minor, _)| *minor);
        gpus.into_iter().map(|(_, joules)| joules).collect()
    }

    fn describe(&self) -> String {
        format!("{}: the GPUs", self.feed.describe())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::feed::tests::Scripted;

    const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/nvml.c");

    fn fake_library(dir: &Path) -> Config {
        let library = dir.join("libnvidia-ml.so.1");
        let counters = format!("-DCOUNTERS=\"{}\"", dir.join("counters").display());
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(counters).arg(FAKE);
        assert!(cc.status().unwrap().success());
        Config { nvml_library: library, ..Config::default() }
    }

    fn set(dir: &Path, counters: &str) {
        fs::write(dir.join("new"), counters).unwrap();
        fs::rename(dir.join("new"), dir.join("counters")).unwrap();
    }

    fn refusal(config: &Config) -> String {
        Nvml::open(config).map(|_| ()).unwrap_err().to_string()
    }

    /// What the source says once the background has looked again.
    fn until(gpus: &mut Nvml, told: impl Fn(&Result<f64, Error>) -> bool) -> Result<f64, Error> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let said = gpus.joules(0.0);
            if told(&said) {
                return said;
            }
            assert!(Instant::now() < deadline, "{said:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_loaded_library_gives_the_sum_of_its_gpus_until_one_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let config = fake_library(dir.path());
        set(dir.path(), "5000000\n7000000\n");
        let mut gpus = Nvml::open(&config).unwrap();
        assert_eq!(until(&mut gpus, Result::is_ok).unwrap(), 0.0);
        assert_eq!(gpus.describe(), format!("{}: the GPUs", config.nvml_library.display()));
        set(dir.path(), "5400250\n7100000\n");
        assert_eq!(until(&mut gpus, |said| !matches!(said, Ok(0.0))).unwrap(), 500.25);
        fs::remove_file(dir.path().join("counters")).unwrap();
        let error = until(&mut gpus, Result::is_err).unwrap_err().to_string();
        assert!(error.contains("off the bus"), "{error}");
    }

    #[test]
    fn gpus_are_told_apart_by_their_device_files_unless_one_is_cut_into_instances() {
        for (before, after, by_gpu) in [
            ("1000 1\n1000 0\n", "6000 1\n3000 0\n", vec![2.0, 5.0]),
            ("1000 1 0\n1000 0 0\n", "6000 1 0\n3000 0 0\n", vec![2.0, 5.0]),
            ("1000 1 0\n1000 0 1\n", "6000 1 0\n3000 0 1\n", vec![]),
            ("1000\n1000\n", "6000\n3000\n", vec![]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let config = fake_library(dir.path());
            set(dir.path(), before);
            let mut gpus = Nvml::open(&config).unwrap();
            until(&mut gpus, Result::is_ok).unwrap();
            set(dir.path(), after);
            assert_eq!(until(&mut gpus, |said| !matches!(said, Ok(0.0))).unwrap(), 7.0);
            assert_eq!(gpus.gpus_j(), by_gpu, "{before}");
        }
    }

    #[test]
    fn what_is_missing_is_named_and_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let none = Config { nvml_library: PathBuf::from("libnvidia-ml-absent.so.1"), ..Config::default() };
        assert!(refusal(&none).contains("libnvidia-ml-absent.so.1: cannot open shared object"), "{}", refusal(&none));
        let config = fake_library(dir.path());
        for (counters, word) in [(None, "driver"), (Some(""), "no GPU"), (Some("1\nold\n"), "energy counter of GPU 1")]
        {
            if let Some(counters) = counters {
                set(dir.path(), counters);
            }
            assert!(refusal(&config).contains(word), "{}", refusal(&config));
        }
    }

    #[test]
    fn a_counter_that_falls_or_leaps_and_a_gpu_that_vanishes_are_errors() {
        for (then, word) in [
            (vec![999, 2000], "GPU 0: ran backwards"),
            (vec![1000, 31_000_000_000], "GPU 1: jumped"),
            (vec![1000], "2 GPUs have become 1"),
        ] {
            let feed = Scripted::default();
            let mut gpus = Nvml::with(Box::new(feed.clone()), &Config::default());
            let read = |all: Vec<u64>| all.into_iter().map(|mj| Reading { minor: None, mj }).collect::<Vec<_>>();
            feed.say(1, Some((1, read(vec![1000, 2000]))), None);
            assert_eq!(gpus.joules(0.0).unwrap(), 0.0);
            feed.say(2, Some((2, read(then))), None);
            assert!(gpus.joules(1.0).unwrap_err().to_string().contains(word), "{word}");
        }
    }
}
