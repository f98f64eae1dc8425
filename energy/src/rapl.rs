//! Reads the processor's energy counters from the powercap tree, each joule once.
//!
//! A top-level zone named `package-*` counts, and a `dram` zone below it. `core` and `uncore` are parts of
//! their package and never added. `intel-rapl-mmio` repeats the packages and is left out. `psys` contains the
//! packages and, where the board maker wired it up, the rest of the node: it is taken instead of them until it
//! gives less than they do for 5 s, and then left out for good.

use std::path::{Path, PathBuf};

use crate::counter::Counter;
use crate::sysfs::{entries, leaf, number, text};
use crate::{Config, Coverage, Error, Source, SourceKind};

struct Zone {
    file: PathBuf,
    counter: Counter,
    platform: bool,
}

/// The counters do not move at the same instant; a `psys` that is behind the packages for longer is not wired up.
const LEVEL_WITHIN_S: f64 = 5.0;

/// How far `psys` is behind the packages and dram, and when it was level with them last.
#[derive(Default)]
struct Platform {
    behind_j: f64,
    level_s: Option<f64>,
}

impl Platform {
    /// Whether `psys` is still believed after it and its parts gave so much.
    fn believed(&mut self, now_s: f64, platform_j: f64, parts_j: f64) -> bool {
        self.behind_j = (self.behind_j + parts_j - platform_j).max(0.0);
        if self.behind_j == 0.0 {
            self.level_s = Some(now_s);
        }
        now_s - *self.level_s.get_or_insert(now_s) <= LEVEL_WITHIN_S
    }
}

/// The powercap tree of one node.
pub(crate) struct Rapl {
    zones: Vec<Zone>,
    /// Some while a `psys` is believed.
    platform: Option<Platform>,
    joules: f64,
    notes: Vec<String>,
}

impl Rapl {
    pub(crate) fn open(config: &Config) -> Result<Rapl, Error> {
        let root = &config.rapl_root;
        let mut zones = Vec::new();
        let mut notes = Vec::new();
        for path in entries(root)? {
            let Some(depth) = depth(leaf(&path)) else { continue };
            let name = text(&path.join("name"))?;
            let platform = depth == 1 && name == "psys";
            if !(platform || depth == 1 && name.starts_with("package") || depth == 2 && name == "dram") {
                continue;
            }
            let what = format!("{} ({name})", leaf(&path));
            let range_uj = range_uj(&path, &what, &mut notes);
            let file = path.join("energy_uj");
            let raw_uj = number(&file)?;
            let counter = Counter::new(what, raw_uj, range_uj, config.max_node_w);
            zones.push(Zone { file, counter, platform });
        }
        if zones.is_empty() {
            return Err(Error::refused(format!("{}: no package zone", root.display())));
        }
        let platform = zones.iter().any(|z| z.platform).then(Platform::default);
        Ok(Rapl { zones, platform, joules: 0.0, notes })
    }

    /// The joules of an interval in which `psys` and its parts gave so much.
    fn interval_j(&mut self, now_s: f64, platform_j: f64, parts_j: f64) -> f64 {
        let Some(platform) = &mut self.platform else { return parts_j };
        if platform.believed(now_s, platform_j, parts_j) {
            return platform_j;
        }
        // What the packages gave since it was level is counted now, as it was not before.
        let behind_j = platform.behind_j;
        self.platform = None;
        self.zones.retain(|zone| !zone.platform);
        self.notes.push(format!("psys is {behind_j:.0} J behind packages and dram: left out"));
        platform_j + behind_j
    }
}

/// Where a zone's counter wraps, or a note that it is not known.
fn range_uj(zone: &Path, what: &str, notes: &mut Vec<String>) -> Option<u64> {
    let unknown = match number(&zone.join("max_energy_range_uj")) {
        Ok(0) => "max_energy_range_uj is 0".into(),
        Ok(range_uj) => return Some(range_uj),
        Err(error) => format!("range unknown ({error})"),
    };
    notes.push(format!("{what}: {unknown}, so a wrap can only be bridged"));
    None
}

/// `intel-rapl:0` is 1 deep, `intel-rapl:0:1` 2; other names are not zones of ours.
fn depth(leaf: &str) -> Option<usize> {
    let numbers = leaf.strip_prefix("intel-rapl:").or_else(|| leaf.strip_prefix("amd-rapl:"))?;
    let parts: Vec<&str> = numbers.split(':').collect();
    parts.iter().all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit())).then_some(parts.len())
}

impl Source for Rapl {
    fn kind(&self) -> SourceKind {
        SourceKind::Rapl
    }

    fn covers(&self) -> Coverage {
        if self.platform.is_some() { Coverage::Node } else { Coverage::WithoutGpus }
    }

    fn joules(&mut self, now_s: f64) -> Result<f64, Error> {
        let (mut parts_j, mut platform_j) = (0.0, 0.0_f64);
        for zone in &mut self.zones {
            let step = zone.counter.advance(now_s, number(&zone.file)?)?;
            self.notes.extend(step.note);
            if zone.platform {
                platform_j = platform_j.max(step.joules);
            } else {
                parts_j += step.joules;
            }
        }
        self.joules += self.interval_j(now_s, platform_j, parts_j);
        Ok(self.joules)
    }

    fn describe(&self) -> String {
        let names: Vec<&str> = self.zones.iter().map(|z| z.counter.what()).collect();
        let root = self.zones.first().and_then(|z| z.file.parent()?.parent()).unwrap_or(Path::new("?"));
        format!("{}: {}", root.display(), names.join(", "))
    }

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const RANGE_UJ: &str = "262143328850\n";

    fn zone(root: &Path, id: &str, name: &str, uj: &str) -> PathBuf {
        let dir = root.join(id);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("name"), format!("{name}\n")).unwrap();
        fs::write(dir.join("max_energy_range_uj"), RANGE_UJ).unwrap();
        fs::write(dir.join("enabled"), "0\n").unwrap();
        fs::write(dir.join("energy_uj"), uj).unwrap();
        dir
    }

    /// Two sockets with core and dram below, the mmio twin, and the control type's own folder.
    fn server(root: &Path) {
        fs::create_dir_all(root.join("intel-rapl")).unwrap();
        for s in 0..2 {
            zone(root, &format!("intel-rapl:{s}"), &format!("package-{s}"), "1000000\n");
            zone(root, &format!("intel-rapl:{s}:0"), "core", "900000\n");
            zone(root, &format!("intel-rapl:{s}:1"), "dram", "500000\n");
        }
        zone(root, "intel-rapl-mmio:0", "package-0", "1000000\n");
    }

    fn set(root: &Path, id: &str, uj: u64) {
        fs::write(root.join(id).join("energy_uj"), format!("{uj}\n")).unwrap();
    }

    fn open(root: &Path) -> Result<Rapl, Error> {
        Rapl::open(&Config { rapl_root: root.into(), ..Config::default() })
    }

    fn joules(r: &mut Rapl, now_s: f64) -> Result<f64, Error> {
        r.joules(now_s)
    }

    #[test]
    fn packages_and_dram_are_added_and_their_parts_are_not() {
        let dir = tempfile::tempdir().unwrap();
        server(dir.path());
        let mut r = open(dir.path()).unwrap();
        assert_eq!(joules(&mut r, 0.0).unwrap(), 0.0);
        for id in ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl-mmio:0"] {
            set(dir.path(), id, 101_000_000);
        }
        set(dir.path(), "intel-rapl:1:1", 10_500_000);
        assert_eq!(joules(&mut r, 1.0).unwrap(), 110.0);
        assert!(r.describe().contains("intel-rapl:1:1 (dram)"), "{}", r.describe());
        assert!(!r.describe().contains("core") && !r.describe().contains("mmio"));
    }

    #[test]
    fn psys_is_taken_instead_of_the_packages_while_it_gives_more() {
        let dir = tempfile::tempdir().unwrap();
        server(dir.path());
        zone(dir.path(), "intel-rapl:2", "psys", "0\n");
        let mut r = open(dir.path()).unwrap();
        joules(&mut r, 0.0).unwrap();
        set(dir.path(), "intel-rapl:0", 101_000_000);
        set(dir.path(), "intel-rapl:2", 250_000_000);
        assert_eq!((joules(&mut r, 1.0).unwrap(), r.covers()), (250.0, Coverage::Node));
        // It is late once, and then gives both intervals' joules: nothing counts twice.
        set(dir.path(), "intel-rapl:0", 201_000_000);
        assert_eq!((joules(&mut r, 2.0).unwrap(), r.covers()), (250.0, Coverage::Node));
        set(dir.path(), "intel-rapl:0", 301_000_000);
        set(dir.path(), "intel-rapl:2", 750_000_000);
        assert_eq!(joules(&mut r, 3.0).unwrap(), 750.0);
        // It stands still: the packages count from where it stopped.
        for (now_s, uj, sum_j) in [(5.0, 401_000_000, 750.0), (8.0, 501_000_000, 750.0), (9.0, 601_000_000, 1050.0)] {
            set(dir.path(), "intel-rapl:0", uj);
            assert_eq!(joules(&mut r, now_s).unwrap(), sum_j);
        }
        assert_eq!(r.covers(), Coverage::WithoutGpus);
        assert!(r.take_notes()[0].contains("psys is 300 J behind"));
        assert!(!r.describe().contains("psys"), "{}", r.describe());
        set(dir.path(), "intel-rapl:2", 0);
        set(dir.path(), "intel-rapl:0", 651_000_000);
        assert_eq!(joules(&mut r, 10.0).unwrap(), 1100.0, "it is left out for good");
    }

    #[test]
    fn a_psys_that_was_never_wired_up_costs_nothing() {
        let dir = tempfile::tempdir().unwrap();
        server(dir.path());
        zone(dir.path(), "intel-rapl:2", "psys", "0\n");
        let mut r = open(dir.path()).unwrap();
        for (now_s, uj) in [(0.0, 1_000_000), (1.0, 51_000_000), (3.0, 151_000_000), (6.0, 201_000_000)] {
            set(dir.path(), "intel-rapl:1", uj);
            joules(&mut r, now_s).unwrap();
        }
        assert_eq!((joules(&mut r, 7.0).unwrap(), r.covers()), (200.0, Coverage::WithoutGpus));
    }

    /// A socket at about 180 W, second by second over the end of its range: 262,143,328,850 uJ is 2^32 steps of
    /// 61 uJ, less what the kernel rounds off.
    #[test]
    fn the_sequence_of_a_wrap_adds_up() {
        let dir = tempfile::tempdir().unwrap();
        server(dir.path());
        let values = [261_612_407_318, 261_793_150_011, 261_972_889_764, 262_141_336_070, 179_601_312, 358_822_790];
        set(dir.path(), "intel-rapl:0", values[0]);
        let mut r = open(dir.path()).unwrap();
        let mut before_j = 0.0;
        for (t, uj) in (0_u32..).zip(values) {
            set(dir.path(), "intel-rapl:0", uj);
            let now_j = joules(&mut r, f64::from(t)).unwrap();
            let power_w = now_j - before_j;
            assert!(t == 0 || (168.0..182.0).contains(&power_w), "{t}: {power_w} W");
            before_j = now_j;
        }
        let whole_uj = 262_143_328_850 - values[0] + values[5];
        assert!((before_j - whole_uj as f64 / 1e6).abs() < 1e-6, "{before_j}");
        assert_eq!(r.take_notes(), [""; 0]);
    }

    #[test]
    fn a_leap_above_what_a_node_can_draw_is_an_error_not_energy() {
        let dir = tempfile::tempdir().unwrap();
        server(dir.path());
        let mut r = open(dir.path()).unwrap();
        joules(&mut r, 0.0).unwrap();
        set(dir.path(), "intel-rapl:0", 40_000_000_000);
        assert!(matches!(joules(&mut r, 1.0), Err(Error::Jump { .. })));
    }

    #[test]
    fn amd_has_the_same_tree_with_a_smaller_range() {
        let dir = tempfile::tempdir().unwrap();
        let z = zone(dir.path(), "intel-rapl:0", "package-0", "65532000000\n");
        zone(dir.path(), "intel-rapl:0:0", "core", "1\n");
        fs::write(z.join("max_energy_range_uj"), "65532610987\n").unwrap();
        let mut r = open(dir.path()).unwrap();
        joules(&mut r, 0.0).unwrap();
        set(dir.path(), "intel-rapl:0", 89_389_013);
        assert!((joules(&mut r, 1.0).unwrap() - 90.0).abs() < 1e-9);
    }

    #[test]
    fn a_missing_or_garbled_range_is_noted_and_a_wrap_bridged() {
        for broken in [None, Some("garbage\n"), Some("0\n")] {
            let dir = tempfile::tempdir().unwrap();
            let z = zone(dir.path(), "intel-rapl:0", "package-0", "4000000000\n");
            match broken {
                None => fs::remove_file(z.join("max_energy_range_uj")).unwrap(),
                Some(text) => fs::write(z.join("max_energy_range_uj"), text).unwrap(),
            }
            let mut r = open(dir.path()).unwrap();
            assert_eq!(r.take_notes().len(), 1, "{broken:?}");
            joules(&mut r, 0.0).unwrap();
            set(dir.path(), "intel-rapl:0", 4_080_000_000);
            joules(&mut r, 1.0).unwrap();
            set(dir.path(), "intel-rapl:0", 5);
            assert_eq!(joules(&mut r, 2.0).unwrap(), 160.0);
            assert_eq!(r.take_notes().len(), 1);
        }
    }

    #[test]
    fn a_reset_counter_is_an_error_not_energy() {
        let dir = tempfile::tempdir().unwrap();
        server(dir.path());
        set(dir.path(), "intel-rapl:0", 90_000_000_000);
        let mut r = open(dir.path()).unwrap();
        joules(&mut r, 0.0).unwrap();
        set(dir.path(), "intel-rapl:0", 0);
        assert!(matches!(joules(&mut r, 1.0), Err(Error::Backwards { .. })));
    }

    #[test]
    fn a_vanished_zone_and_a_garbled_value_are_named() {
        let dir = tempfile::tempdir().unwrap();
        server(dir.path());
        let mut r = open(dir.path()).unwrap();
        fs::write(dir.path().join("intel-rapl:1/energy_uj"), "-3\n").unwrap();
        assert!(joules(&mut r, 0.0).unwrap_err().to_string().contains("intel-rapl:1/energy_uj"));
        fs::remove_dir_all(dir.path().join("intel-rapl:1")).unwrap();
        assert!(matches!(joules(&mut r, 1.0), Err(Error::Absent { .. })));
        fs::write(dir.path().join("intel-rapl:0/energy_uj"), "").unwrap();
        assert!(open(dir.path()).is_err());
    }

    #[test]
    fn a_counter_for_root_only_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        server(dir.path());
        // Whatever the umask is.
        assert!(std::process::Command::new("chmod").args(["-R", "a+rX"]).arg(dir.path()).status().unwrap().success());
        let file = dir.path().join("intel-rapl:0/energy_uj");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        let root = dir.path().to_path_buf();
        // The file system identity belongs to the thread, so the other tests keep theirs.
        let refused = std::thread::spawn(move || {
            if nix::unistd::geteuid().is_root() {
                nix::unistd::setfsuid(65534.into());
            } else {
                fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
            }
            open(&root).map(|_| ()).unwrap_err()
        });
        let reason = refused.join().unwrap().to_string();
        assert!(
            reason.contains("intel-rapl:0/energy_uj: permission denied") && reason.contains("run it as root"),
            "{reason}"
        );
    }

    #[test]
    fn no_tree_and_an_empty_tree_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        assert!(open(dir.path()).map(|_| ()).unwrap_err().to_string().contains("no package zone"));
        assert!(matches!(open(&dir.path().join("x")), Err(Error::Absent { .. })));
    }
}
