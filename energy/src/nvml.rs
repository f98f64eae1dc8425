//! Reads the energy counters of NVIDIA GPUs, through NVIDIA's library where there is one.
//!
//! The library is loaded at run time and asked in the background, since a GPU that has fallen off the bus can
//! hold a caller for ever. All GPUs must have a counter (Volta or newer): a part of them is no figure.

use nvml_wrapper::Nvml as Library;

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
    feed: Listener<Vec<u64>>,
    gpus: Vec<Counter>,
    limit_w: f64,
    joules: f64,
}

impl Nvml {
    pub(crate) fn open(config: &Config) -> Result<Nvml, Error> {
        let path = config.nvml_library.clone();
        let mut library = None;
        let what = path.display().to_string();
        let feed = Background::ask(what, PERIOD_S, move || match &library {
            Some(library) => read_mj(library),
            None => {
                let loaded = Library::builder().lib_path(path.as_os_str()).init();
                read_mj(library.insert(loaded.map_err(|e| e.to_string())?))
            }
        })?;
        match feed.wait(LOADING_S) {
            first if first.runs > 0 && first.value.is_none() => {
                Err(Error::refused(format!("{}: {}", feed.describe(), first.error.unwrap_or_default())))
            }
            _ => Ok(Nvml::with(Box::new(feed), config)),
        }
    }

    fn with(feed: Box<dyn Feed<Vec<u64>>>, config: &Config) -> Nvml {
        let feed = Listener::new(feed, PERIOD_S, TIMEOUT_S);
        Nvml { feed, gpus: Vec::new(), limit_w: config.max_node_w, joules: 0.0 }
    }
}

/// Millijoules of each GPU since its driver was loaded.
fn read_mj(library: &Library) -> Result<Vec<u64>, String> {
    let count = library.device_count().map_err(|e| e.to_string())?;
    if count == 0 {
        return Err("there is no GPU".into());
    }
    let read = |gpu| library.device_by_index(gpu).and_then(|device| device.total_energy_consumption());
    (0..count).map(|gpu| read(gpu).map_err(|e| format!("energy counter of GPU {gpu}: {e}"))).collect()
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
        let now_uj: Vec<u64> = self.feed.answer(now_s)?.into_iter().map(|mj| mj.saturating_mul(1000)).collect();
        if self.gpus.is_empty() {
            let begin = |(gpu, uj): (usize, &u64)| Counter::absolute(format!("GPU {gpu}"), *uj, self.limit_w);
            self.gpus = now_uj.iter().enumerate().map(begin).collect();
        }
        if self.gpus.len() != now_uj.len() {
            return Err(Error::refused(format!("{} GPUs have become {}", self.gpus.len(), now_uj.len())));
        }
        let mut sum_j = 0.0;
        for (gpu, uj) in self.gpus.iter_mut().zip(now_uj) {
            sum_j += gpu.advance(now_s, uj)?.joules;
        }
        self.joules += sum_j;
        Ok(self.joules)
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

    /// NVIDIA's library as far as we use it; each line of `COUNTERS` is a GPU, a number its counter in mJ.
    const FAKE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int line(unsigned want, char *out) {
    FILE *f = fopen(COUNTERS, "r");
    if (!f) return -1;
    unsigned n = 0; char text[64]; int found = 0;
    while (fgets(text, sizeof text, f)) { if (n == want && out) { strcpy(out, text); found = 1; } n++; }
    fclose(f);
    return out ? found : (int)n;
}
int nvmlInit_v2(void) { return line(0, NULL) < 0 ? 9 /* driver not loaded */ : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { int n = line(0, NULL); *count = n; return n < 0 ? 15 /* lost */ : 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(size_t)(index + 1); return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj) {
    char text[64];
    if (line((unsigned)(size_t)device - 1, text) != 1) return 15 /* GPU is lost */;
    if (!strncmp(text, "old", 3)) return 3 /* not supported */;
    *mj = strtoull(text, NULL, 10);
    return 0;
}
"#;

    fn fake_library(dir: &Path) -> Config {
        let (source, library) = (dir.join("fake.c"), dir.join("libnvidia-ml.so.1"));
        fs::write(&source, FAKE).unwrap();
        let counters = format!("-DCOUNTERS=\"{}\"", dir.join("counters").display());
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(counters).arg(&source);
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
            feed.say(1, Some((1, vec![1000, 2000])), None);
            assert_eq!(gpus.joules(0.0).unwrap(), 0.0);
            feed.say(2, Some((2, then)), None);
            assert!(gpus.joules(1.0).unwrap_err().to_string().contains(word), "{word}");
        }
    }
}
