//! Reads the hardware monitoring channels that measure the whole node, and leaves the others alone.
//!
//! Known as the node's: the ACPI power meter; a channel labelled as the system's or the total; AMD's sockets
//! (`Esocket*`, added up), which are the node without its GPUs. Any other channel may be a GPU, a drive or a rail, so it counts only if the site
//! names it. Energy is preferred to power on the same chip.

use std::path::{Path, PathBuf};

use crate::counter::{Counter, Integral};
use crate::sysfs::{entries, leaf, number, text};
use crate::{Config, Coverage, Error, Source, SourceKind};

enum Reader {
    Energy(Counter),
    Power(Integral, f64),
}

struct Channel {
    file: PathBuf,
    name: String,
    reader: Reader,
}

/// The channels chosen on one node.
pub(crate) struct Hwmon {
    channels: Vec<Channel>,
    covers: Coverage,
    joules: f64,
}

/// A channel as found in the tree.
struct Found {
    file: PathBuf,
    chip: String,
    label: String,
    energy: bool,
}

impl Found {
    fn name(&self) -> String {
        format!("{}/{}", self.chip, leaf(&self.file))
    }

    fn is_socket(&self) -> bool {
        self.energy && self.label.starts_with("Esocket")
    }
}

impl Hwmon {
    pub(crate) fn open(config: &Config) -> Result<Hwmon, Error> {
        let mut found = Vec::new();
        for dir in entries(&config.hwmon_root)? {
            found.extend(channels_of(&dir));
        }
        let chosen = choose(found, &config.hwmon_channels, &config.hwmon_root)?;
        let named = !config.hwmon_channels.is_empty();
        let covers = match chosen.iter().any(Found::is_socket) && !named {
            true => Coverage::WithoutGpus,
            false => Coverage::Node,
        };
        let channels = chosen.into_iter().map(|f| open_channel(f, config.max_node_w)).collect::<Result<_, _>>()?;
        Ok(Hwmon { channels, covers, joules: 0.0 })
    }
}

fn channels_of(dir: &Path) -> Vec<Found> {
    let chip = text(&dir.join("name")).unwrap_or_default();
    let mut found = Vec::new();
    for file in entries(dir).unwrap_or_default() {
        let Some((stem, ending)) = leaf(&file).split_once('_') else { continue };
        let number_of = |kind| stem.strip_prefix(kind).is_some_and(|n: &str| n.parse::<u32>().is_ok());
        let energy = number_of("energy") && ending == "input";
        if energy || number_of("power") && matches!(ending, "input" | "average") {
            let label = text(&dir.join(format!("{stem}_label"))).unwrap_or_default();
            found.push(Found { chip: chip.clone(), label, energy, file });
        }
    }
    found
}

fn choose(found: Vec<Found>, named: &[String], root: &Path) -> Result<Vec<Found>, Error> {
    if !named.is_empty() {
        return choose_named(found, named, root);
    }
    let seen: Vec<String> = found.iter().map(Found::name).collect();
    let is_total =
        |f: &Found| matches!(f.label.to_ascii_lowercase().as_str(), "system" | "total" | "power total" | "node");
    // The first of these that is there: one channel for the node, energy before power.
    let tests: [&dyn Fn(&Found) -> bool; 4] =
        [&|f| f.energy && is_total(f), &|f| f.chip == "power_meter", &is_total, &Found::is_socket];
    for (place, test) in tests.iter().enumerate() {
        let sockets = place == 3;
        if found.iter().any(test) {
            let hits = found.into_iter().filter(|f| test(f));
            // An average over the chip's own interval is better than one instant, and sorts first.
            return Ok(if sockets { hits.collect() } else { hits.take(1).collect() });
        }
    }
    Err(Error::refused(match seen.len() {
        0 => format!("{}: no energy or power channel", root.display()),
        _ => format!(
            "{}: none of {} is known to measure the whole node; name it in hwmon_channels",
            root.display(),
            seen.join(", ")
        ),
    }))
}

fn choose_named(found: Vec<Found>, named: &[String], root: &Path) -> Result<Vec<Found>, Error> {
    for name in named {
        match found.iter().filter(|f| f.name() == *name).count() {
            0 => return Err(Error::refused(format!("{}: no channel {name}", root.display()))),
            1 => {}
            n => return Err(Error::refused(format!("{}: {n} channels are called {name}", root.display()))),
        }
    }
    Ok(found.into_iter().filter(|f| named.contains(&f.name())).collect())
}

fn open_channel(found: Found, limit_w: f64) -> Result<Channel, Error> {
    let name = found.name();
    let raw = number(&found.file)?;
    let reader = match found.energy {
        // These counters have 64 bits.
        true => Reader::Energy(Counter::absolute(name.clone(), raw, limit_w)),
        false => Reader::Power(Integral::default(), limit_w),
    };
    Ok(Channel { file: found.file, name, reader })
}

impl Channel {
    fn step(&mut self, now_s: f64) -> Result<f64, Error> {
        let raw = number(&self.file)?;
        match &mut self.reader {
            Reader::Energy(counter) => Ok(counter.advance(now_s, raw)?.joules),
            Reader::Power(integral, limit_w) => {
                let watts = raw as f64 / 1e6;
                if watts > *limit_w || raw == 0 {
                    return Err(Error::malformed(self.file.display().to_string(), &format!("{watts} W")));
                }
                let before_j = integral.joules();
                Ok(integral.advance(now_s, watts) - before_j)
            }
        }
    }
}

impl Source for Hwmon {
    fn kind(&self) -> SourceKind {
        SourceKind::Hwmon
    }

    fn covers(&self) -> Coverage {
        self.covers
    }

    fn joules(&mut self, now_s: f64) -> Result<f64, Error> {
        let mut sum_j = 0.0;
        for channel in &mut self.channels {
            sum_j += channel.step(now_s)?;
        }
        self.joules += sum_j;
        Ok(self.joules)
    }

    fn describe(&self) -> String {
        let names: Vec<&str> = self.channels.iter().map(|c| c.name.as_str()).collect();
        format!("hwmon: {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn chip(root: &Path, n: u32, name: &str, files: &[(&str, &str)]) {
        let dir = root.join(format!("hwmon{n}"));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("name"), format!("{name}\n")).unwrap();
        for (file, content) in files {
            fs::write(dir.join(file), format!("{content}\n")).unwrap();
        }
    }

    fn config(root: &Path, named: &[&str]) -> Config {
        Config {
            hwmon_root: root.into(),
            hwmon_channels: named.iter().map(|s| s.to_string()).collect(),
            ..Config::default()
        }
    }

    fn read(h: &mut Hwmon, now_s: f64) -> Result<f64, Error> {
        h.joules(now_s)
    }

    #[test]
    fn the_acpi_power_meter_is_integrated() {
        let dir = tempfile::tempdir().unwrap();
        chip(dir.path(), 0, "amdgpu", &[("power1_average", "300000000")]);
        chip(dir.path(), 1, "power_meter", &[("power1_average", "200000000"), ("power1_average_interval", "1000")]);
        let mut h = Hwmon::open(&config(dir.path(), &[])).unwrap();
        assert_eq!((h.describe().as_str(), h.covers()), ("hwmon: power_meter/power1_average", Coverage::Node));
        assert_eq!(read(&mut h, 0.0).unwrap(), 0.0);
        fs::write(dir.path().join("hwmon1/power1_average"), "300000000\n").unwrap();
        assert_eq!(read(&mut h, 2.0).unwrap(), 500.0);
        fs::write(dir.path().join("hwmon1/power1_average"), "0\n").unwrap();
        assert!(read(&mut h, 3.0).is_err(), "a node that draws nothing is not believed");
        fs::write(dir.path().join("hwmon1/power1_average"), "30001000000\n").unwrap();
        assert!(read(&mut h, 4.0).unwrap_err().to_string().contains("30001 W"));
    }

    #[test]
    fn sockets_are_added_and_cores_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("energy1_input", "5"),
            ("energy1_label", "Ecore000"),
            ("energy2_input", "1000000"),
            ("energy2_label", "Esocket0"),
            ("energy3_input", "1000000"),
            ("energy3_label", "Esocket1"),
        ];
        chip(dir.path(), 0, "amd_energy", &files);
        let mut h = Hwmon::open(&config(dir.path(), &[])).unwrap();
        assert_eq!(h.covers(), Coverage::WithoutGpus);
        read(&mut h, 0.0).unwrap();
        fs::write(dir.path().join("hwmon0/energy1_input"), "900000000\n").unwrap();
        fs::write(dir.path().join("hwmon0/energy2_input"), "41000000\n").unwrap();
        fs::write(dir.path().join("hwmon0/energy3_input"), "61000000\n").unwrap();
        assert_eq!(read(&mut h, 1.0).unwrap(), 100.0);
        fs::write(dir.path().join("hwmon0/energy3_input"), "60000000\n").unwrap();
        assert!(matches!(read(&mut h, 2.0), Err(Error::Backwards { .. })), "64 bits do not wrap");
        fs::write(dir.path().join("hwmon0/energy3_input"), "61000000000\n").unwrap();
        assert!(matches!(read(&mut h, 3.0), Err(Error::Jump { .. })));
    }

    #[test]
    fn the_system_label_wins_and_energy_goes_before_power() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("power1_input", "400000000"),
            ("power1_label", "System"),
            ("energy1_input", "7000000"),
            ("energy1_label", "System"),
            ("power2_input", "90000000"),
            ("power2_label", "Chip 0 Core"),
        ];
        chip(dir.path(), 0, "ibmpowernv", &files);
        let h = Hwmon::open(&config(dir.path(), &[])).unwrap();
        assert_eq!(h.describe(), "hwmon: ibmpowernv/energy1_input");
    }

    #[test]
    fn an_unknown_channel_is_refused_until_the_site_names_it() {
        let dir = tempfile::tempdir().unwrap();
        chip(dir.path(), 0, "ina226", &[("power1_input", "80000000"), ("in0_input", "12")]);
        let reason = Hwmon::open(&config(dir.path(), &[])).map(|_| ()).unwrap_err().to_string();
        assert!(reason.contains("none of ina226/power1_input"), "{reason}");
        assert!(Hwmon::open(&config(dir.path(), &["ina226/power1_input"])).is_ok());
        let reason = Hwmon::open(&config(dir.path(), &["ina226/power9_input"])).map(|_| ()).unwrap_err().to_string();
        assert!(reason.contains("no channel ina226/power9_input"), "{reason}");
        chip(dir.path(), 1, "ina226", &[("power1_input", "80000000")]);
        assert!(Hwmon::open(&config(dir.path(), &["ina226/power1_input"])).is_err(), "the name must be unique");
    }

    #[test]
    fn garbage_and_a_vanished_chip_are_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Hwmon::open(&config(dir.path(), &[])).is_err());
        chip(dir.path(), 0, "power_meter", &[("power1_average", "200000000")]);
        let mut h = Hwmon::open(&config(dir.path(), &[])).unwrap();
        fs::write(dir.path().join("hwmon0/power1_average"), "warm\n").unwrap();
        assert!(read(&mut h, 0.0).unwrap_err().to_string().contains("warm"));
        fs::remove_dir_all(dir.path().join("hwmon0")).unwrap();
        assert!(matches!(read(&mut h, 1.0), Err(Error::Absent { .. })));
    }
}
