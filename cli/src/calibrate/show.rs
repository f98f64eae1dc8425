//! `joulepoint calibrate show`: what is known of a type of node, in words or drawn, and whether it still holds.

use super::{ShowArgs, of_type};
use crate::out;
use ::report::moment;
use anyhow::{Context, bail};
use calibration::{campaign, inquiry, plot};
use config::Site;
use planner::calibrated::stale;
use protocol::{Calibration, Quantity, StoredCalibration};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Shows calibrations, or draws one.
pub(super) fn show(args: &ShowArgs, all: &[StoredCalibration], site: &Site, conf: &Path) -> anyhow::Result<()> {
    if all.is_empty() && !args.json {
        bail!("nothing is calibrated{}; see `calibrate run`", of_type(args.node_type.as_deref()));
    }
    if args.plot.is_some() || args.html.is_some() {
        let [one] = all else { bail!("{} calibrations: name one type for a picture", all.len()) };
        for (file, draw) in [(&args.plot, plot::svg as fn(&Calibration) -> String), (&args.html, plot::html)] {
            if let Some(file) = file {
                fs::write(file, draw(&one.calibration)).with_context(|| file.display().to_string())?;
            }
        }
        return Ok(());
    }
    if args.json {
        return out::json(&all);
    }
    if args.history {
        let line = |s: &StoredCalibration| {
            let c = &s.calibration;
            let (at, how) = (moment::shown(c.at_s), if c.fast { "fast" } else { "full" });
            format!("{:<6}{at:<21}{how:<6}{}\n", s.id, c.node_type)
        };
        return Ok(out::print(all.iter().map(line).collect::<String>())?);
    }
    let now = match args.no_check || args.file.is_some() {
        true => BTreeMap::new(),
        false => {
            let root = campaign::root(site)?;
            inquiry::ask_again(site, conf, &root, &all.iter().map(|s| &s.calibration).collect::<Vec<_>>())?
        }
    };
    let mut text = String::new();
    for s in all {
        text += &describe(&s.calibration);
        for c in &s.corrections {
            let at = c.storage.map_or(String::new(), |t| format!(" ({})", t.as_str()));
            let what = if c.of == Quantity::TimeS { "takes" } else { "draws, above idle," };
            text += &format!(
                "corrected   {}{at} {what} {:.3} of the estimate, as {} of runs have shown\n",
                c.operation.as_str(),
                c.factor,
                c.count
            );
        }
        let asked = now.get(&s.calibration.node_type);
        let (changes, holds) = match asked {
            Some(Ok(facts)) => (inquiry::changes(&s.calibration, facts), "yes".to_string()),
            // The node services tell by themselves, all but what only a job sees.
            Some(Err(why)) => (s.stale.clone(), format!("as far as the node services tell ({why})")),
            None => (s.stale.clone(), "not asked".to_string()),
        };
        let holds = if changes.is_empty() { holds } else { "no, it is stale".to_string() };
        text += &format!("holds       {holds}\n");
        changes.iter().for_each(|c| text += &format!("            {c}\n"));
        text += "\n";
    }
    Ok(out::print(text)?)
}

/// A calibration in words.
pub(super) fn describe(c: &Calibration) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12}{value}\n"));
    line("node type", format!("{} of {}", c.node_type, c.cluster));
    line("measured", format!("{}, {}", moment::shown(c.at_s), if c.fast { "in a hurry" } else { "in full" }));
    let f = &c.fingerprint;
    line("on", format!("{}, {} CPUs, kernel {}, {}", f.cpu, f.cores, f.kernel, f.mpi.as_deref().unwrap_or("no MPI")));
    f.storage.iter().for_each(|(target, kind)| line("storage", format!("{:<8}{kind}", target.as_str())));
    for (node, own) in &c.differing {
        line("but", format!("{node}: {}", stale(f, own).join("; ")));
    }
    line("energy by", c.energy_source.clone());
    let idle: Vec<String> = c.power.idle_w.iter().map(|(node, w)| format!("{node} {w:.1}")).collect();
    line("idle W", idle.join(", "));
    line("noise", format!("{:.1} % of a duration, {:.1} W", 100.0 * c.noise.time_fraction, c.noise.delta_w));
    for m in &c.measured {
        let target = m.storage.map_or(String::new(), |s| format!(" ({})", s.as_str()));
        let _ = writeln!(text, "{}{target}", m.operation.as_str());
        let _ = writeln!(
            text,
            "{:>5} {:>4} {:>10} {:>4} {:>5} {:>13} {:>7} {:>9} {:>7} {:>5}",
            "N", "p", "MiB", "%", "GHz", "time s", "+-", "extra W", "+-", "kept"
        );
        for p in &m.points {
            let ghz = p.frequency_hz.map_or("-".into(), |f| format!("{:.2}", f / 1e9));
            let ci = p.delta_ci_w.map_or("-".into(), |w| format!("{w:.1}"));
            let _ = writeln!(
                text,
                "{:>5} {:>4} {:>10} {:>4.0} {:>5} {:>13} {:>6.1}% {:>9.1} {:>7} {:>5}",
                p.nodes,
                p.processes,
                significant(p.bytes / 1_048_576.0),
                100.0 * p.intensity,
                ghz,
                significant(p.time_s),
                100.0 * p.time_ci_s / p.time_s.max(f64::MIN_POSITIVE),
                p.delta_w,
                ci,
                format!("{}/{}", p.count, p.count + p.outliers)
            );
        }
        for fit in &m.fits {
            let p = &m.points[fit.at.min(m.points.len() - 1)];
            let (over, at) = match fit.over {
                protocol::Axis::Bytes => ("volume", format!("N={} p={}", p.nodes, p.processes)),
                protocol::Axis::Processes => ("p", format!("N={} {:.3} MiB", p.nodes, p.bytes / 1_048_576.0)),
                protocol::Axis::Nodes => ("N", format!("p={} {:.3} MiB", p.processes, p.bytes / 1_048_576.0)),
            };
            let of = if fit.of == protocol::Quantity::TimeS { "time" } else { "extra power" };
            let _ = writeln!(
                text,
                "  {of} over {over} at {at}: {} a={:.4e} b={:.4e}, R2 {:.4}{}, residual {:.3e}",
                fit.curve,
                fit.alpha,
                fit.beta,
                fit.r2,
                if fit.degenerate { " (constant)" } else { "" },
                fit.residual
            );
        }
    }
    for s in &c.skipped {
        let target = s.storage.map_or(String::new(), |t| format!(" ({})", t.as_str()));
        let _ = writeln!(text, "not measured: {}{target}: {}", s.operation.as_str(), s.why);
    }
    text
}

/// A number with six figures that are not zero: narrow, whatever its size.
fn significant(value: f64) -> String {
    let digits = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    match digits {
        -3..=5 => format!("{value:.*}", (5 - digits) as usize),
        _ => format!("{value:.4e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_size_leave_room_for_their_neighbours() {
        let shown = [0.0, 1.0, 123_456.7, 0.001_234_567, 1.5e-9, 8_388_608.0].map(significant);
        assert_eq!(shown, ["0.00000", "1.00000", "123457", "0.00123457", "1.5000e-9", "8.3886e6"]);
        assert!(shown.iter().all(|s| s.len() <= 10));
    }
}
