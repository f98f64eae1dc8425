//! Every source that fails in its own way is marked, replaced by the next, and never counted.

use std::fs;
use std::path::{Path, PathBuf};

use energy::SourceKind::{self, Hwmon, PmCounters, Rapl};
use energy::{Config, Load, MarkKind, Meter, Model, Sample};

/// The files of a node with every source that is made of files.
struct Node(tempfile::TempDir);

impl Node {
    fn new() -> Node {
        let node = Node(tempfile::tempdir().unwrap());
        for (file, content) in [
            ("powercap/intel-rapl:0/name", "package-0"),
            ("powercap/intel-rapl:0/max_energy_range_uj", "262143328850"),
            ("powercap/intel-rapl:0/energy_uj", "5000000000"),
            ("pm_counters/energy", "700000 J 1700000000000000 us"),
            ("pm_counters/freshness", "1"),
            ("pm_counters/startup", "1700000000"),
            ("hwmon/hwmon0/name", "power_meter"),
            ("hwmon/hwmon0/power1_average", "200000000"),
            ("hwmon/hwmon1/name", "node_energy"),
            ("hwmon/hwmon1/energy1_label", "System"),
            ("hwmon/hwmon1/energy1_input", "9000000"),
        ] {
            node.write(file, content);
        }
        node
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    fn write(&self, file: &str, content: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
    }

    fn meter(&self, precedence: &[SourceKind]) -> Meter {
        energy::open(&Config {
            precedence: precedence.to_vec(),
            rapl_root: self.path("powercap"),
            pm_counters_root: self.path("pm_counters"),
            hwmon_root: self.path("hwmon"),
            model: Model { idle_w: 50.0, busy_w: 50.0 },
            ..Config::default()
        })
    }
}

fn at(meter: &mut Meter, now_s: f64) -> Sample {
    meter.sample(now_s, &Load::default())
}

/// A source, what is done to it (`None`: the folder goes), and what its mark says.
type Fault = (SourceKind, &'static str, Option<&'static str>, &'static str);

const FAULTS: [Fault; 17] = [
    (Rapl, "powercap/intel-rapl:0", None, "not there"),
    (Rapl, "powercap/intel-rapl:0/energy_uj", Some("0"), "ran backwards"),
    (Rapl, "powercap/intel-rapl:0/energy_uj", Some("45000000000"), "jumped"),
    (Rapl, "powercap/intel-rapl:0/energy_uj", Some("N/A"), "cannot understand"),
    (PmCounters, "pm_counters", None, "not there"),
    (PmCounters, "pm_counters/energy", Some("699999 J"), "ran backwards"),
    (PmCounters, "pm_counters/energy", Some("800000 J"), "jumped"),
    (PmCounters, "pm_counters/energy", Some("800000"), "cannot understand"),
    (PmCounters, "pm_counters/startup", Some("1700009999"), "began anew"),
    (Hwmon, "hwmon/hwmon1", None, "not there"),
    (Hwmon, "hwmon/hwmon1/energy1_input", Some("8999999"), "ran backwards"),
    (Hwmon, "hwmon/hwmon1/energy1_input", Some("40009000000"), "jumped"),
    (Hwmon, "hwmon/hwmon1/energy1_input", Some(""), "cannot understand"),
    (Hwmon, "hwmon/hwmon0", None, "not there"),
    (Hwmon, "hwmon/hwmon0/power1_average", Some("0"), "0 W"),
    (Hwmon, "hwmon/hwmon0/power1_average", Some("30001000000"), "30001 W"),
    (Hwmon, "hwmon/hwmon0/power1_average", Some("-1"), "cannot understand"),
];

#[test]
fn a_fault_is_marked_and_bridged_and_the_next_source_goes_on() {
    for (kind, file, fault, says) in FAULTS {
        let node = Node::new();
        if file.contains("hwmon0") {
            fs::remove_dir_all(node.path("hwmon/hwmon1")).unwrap();
        }
        let next = if kind == PmCounters { Rapl } else { PmCounters };
        let mut meter = node.meter(&[kind, next]);
        assert_eq!(at(&mut meter, 0.0).source, kind);
        match fault {
            None => fs::remove_dir_all(node.path(file)).unwrap(),
            Some(content) => node.write(file, content),
        }
        let sample = at(&mut meter, 1.0);
        let case = format!("{kind} {file} {fault:?}: {:?}", sample.marks);
        let marks: Vec<_> = sample.marks.iter().map(|m| (m.kind, m.source)).filter(|m| m.0 != MarkKind::Note).collect();
        let expected = [(MarkKind::Lost, kind), (MarkKind::Switched, next), (MarkKind::Bridged, SourceKind::Model)];
        assert!(marks.ends_with(&expected), "{case}");
        assert!(sample.marks.iter().any(|m| m.kind == MarkKind::Lost && m.text.contains(says)), "{case}");
        assert_eq!((sample.joules, sample.source), (50.0, SourceKind::Model), "{case}");
        node.write("powercap/intel-rapl:0/energy_uj", "5100000000");
        node.write("pm_counters/energy", "700100 J");
        let sample = at(&mut meter, 2.0);
        assert_eq!((sample.joules, sample.source), (150.0, next), "{case}");
    }
}

#[test]
fn a_counter_that_stands_still_is_given_up() {
    for (kind, after_s) in [(Rapl, 121), (PmCounters, 11), (Hwmon, 121)] {
        let node = Node::new();
        let mut meter = node.meter(&[kind]);
        for now_s in 0..after_s {
            assert_eq!(at(&mut meter, f64::from(now_s)).joules, 0.0, "{kind}");
        }
        let sample = at(&mut meter, f64::from(after_s));
        assert!(sample.marks[0].text.contains(&format!("unchanged for {after_s} s")), "{kind}: {:?}", sample.marks);
        assert_eq!(meter.source(), SourceKind::Model, "{kind}");
    }
}

#[test]
fn a_node_without_anything_has_the_models_figure_and_every_reason() {
    let none = Path::new("/nonexistent");
    let mut meter = energy::open(&Config {
        rapl_root: none.into(),
        pm_counters_root: none.into(),
        hwmon_root: none.into(),
        ipmi_command: vec!["no-such-program-here".into()],
        nvml_library: none.join("libnvidia-ml.so.1"),
        ..Config::default()
    });
    at(&mut meter, 0.0);
    assert_eq!((at(&mut meter, 1.0).joules, meter.source()), (100.0, SourceKind::Model));
    let refused = meter.refused();
    assert_eq!(refused.len(), 6, "{refused:?}");
    assert!(refused.iter().all(|(_, reason)| !reason.is_empty()), "{refused:?}");
}
