//! Every source that fails in its own way is marked, replaced by the next, and never counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use energy::SourceKind::{self, Hwmon, Ipmi, PmCounters, Rapl, Slurm};
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

const DCMI: &str = "    Instantaneous power reading:                   220 Watts";

/// What a command prints at first and then (`None`: it fails), and what the mark says.
const COMMAND_FAULTS: [(SourceKind, &str, Option<&str>, &str); 7] = [
    (Ipmi, DCMI, None, "exit status: 1"),
    (Ipmi, DCMI, Some("    Instantaneous power reading:                 40000 Watts"), "40000 W"),
    (Ipmi, DCMI, Some("DCMI request failed because: Invalid command (c1)"), "cannot understand"),
    (Slurm, "{\"joules\":1000980}", None, "exit status: 1"),
    (Slurm, "{\"joules\":1000980}", Some("{\"joules\":1000979}"), "ran backwards"),
    (Slurm, "{\"joules\":1000980}", Some("{\"joules\":9000980}"), "jumped"),
    (Slurm, "{\"joules\":1000980}", Some("slurm_load_node: error"), "cannot understand"),
];

#[test]
fn a_command_that_fails_is_replaced_too() {
    for (kind, first, then, says) in COMMAND_FAULTS {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("answer");
        fs::write(&file, first).unwrap();
        let command = vec!["cat".to_string(), file.display().to_string()];
        let mut meter = energy::open(&Config {
            precedence: vec![kind],
            ipmi_command: command.clone(),
            slurm_command: command,
            ipmi_period_s: 0.02,
            slurm_period_s: 0.02,
            command_timeout_s: 60.0,
            model: Model { idle_w: 50.0, busy_w: 50.0 },
            ..Config::default()
        });
        let (mut now_s, mut before_j) = (0.0, 0.0);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut sample_until = |meter: &mut Meter, told: &dyn Fn(&Meter, &Sample) -> bool| loop {
            now_s += 0.001;
            let sample = at(meter, now_s);
            if told(meter, &sample) {
                return (sample.joules - before_j, sample);
            }
            before_j = sample.joules;
            assert!(Instant::now() < deadline, "{kind} {then:?}: {sample:?}");
            std::thread::sleep(Duration::from_millis(5));
        };
        sample_until(&mut meter, &|meter, _| meter.source() == kind);
        match then {
            None => fs::remove_file(&file).unwrap(),
            Some(then) => {
                fs::write(dir.path().join("new"), then).unwrap();
                fs::rename(dir.path().join("new"), &file).unwrap();
            }
        }
        let lost = |sample: &Sample| sample.marks.iter().any(|m| m.kind == MarkKind::Lost && m.text.contains(says));
        let (delta_j, sample) = sample_until(&mut meter, &|_, sample| lost(sample));
        assert_eq!((sample.source, meter.source()), (SourceKind::Model, SourceKind::Model));
        assert!((delta_j - 50.0 * 0.001).abs() < 1e-9, "{kind} {then:?}: {delta_j} J");
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
