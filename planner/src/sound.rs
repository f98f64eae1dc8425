//! Checks a calibration from a file or over the wire: somebody may have edited it.

use protocol::{CALIBRATION_VERSION, Calibration, Measured, Point};

/// Why a calibration cannot be used; nothing where it can.
///
/// # Errors
/// A sentence with the place and the value.
pub fn check(c: &Calibration) -> Result<(), String> {
    if c.version != CALIBRATION_VERSION {
        return Err(format!("version {} is not known here, only {CALIBRATION_VERSION}", c.version));
    }
    let plain = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    if !plain(&c.node_type) || !plain(&c.cluster) {
        return Err(format!("'{}' of cluster '{}' cannot name a folder", c.node_type, c.cluster));
    }
    let at_least = |what: &str, value: f64, least: f64| match value.is_finite() && value >= least {
        true => Ok(()),
        false => Err(format!("{what} = {value} is outside its range: finite, >= {least}")),
    };
    at_least("at_s", c.at_s, 0.0)?;
    if c.power.idle_w.is_empty() {
        return Err("the idle power of no node is known".to_string());
    }
    c.power.idle_w.iter().try_for_each(|(node, w)| at_least(&format!("power.idle_w.{node}"), *w, 0.0))?;
    c.power.switches_idle_w.iter().try_for_each(|w| at_least("power.switches_idle_w", *w, 0.0))?;
    at_least("power.switch_delta_w", c.power.switch_delta_w, 0.0)?;
    at_least("noise.time_fraction", c.noise.time_fraction, 0.0)?;
    at_least("noise.delta_w", c.noise.delta_w, 0.0)?;
    for m in &c.measured {
        let of = |name: &str, i: usize| format!("{}, point {i}: {name}", m.operation.as_str());
        for (i, p) in m.points.iter().enumerate() {
            let figures = [("bytes", p.bytes), ("time_ci_s", p.time_ci_s), ("delta_ci_w", p.delta_ci_w.unwrap_or(0.0))];
            figures.iter().try_for_each(|(name, v)| at_least(&of(name, i), *v, 0.0))?;
            at_least(&of("time_s", i), p.time_s, f64::MIN_POSITIVE)?;
            // Noise may bring a power a little below idle.
            at_least(&of("delta_w", i), p.delta_w, -1e9)?;
            at_least(&of("nodes", i), f64::from(p.nodes), 1.0)?;
            at_least(&of("processes", i), f64::from(p.processes), 1.0)?;
            at_least(&of("frequency_hz", i), p.frequency_hz.unwrap_or(1.0), 1.0)?;
        }
        is_told_once(m)?;
        if let Some(fit) = m.fits.iter().find(|f| f.at >= m.points.len()) {
            return Err(format!("{}: a fit is at point {}, of {}", m.operation.as_str(), fit.at, m.points.len()));
        }
    }
    Ok(())
}

/// Refuses two points at one place: a table over them would be twice as long.
fn is_told_once(m: &Measured) -> Result<(), String> {
    let place = |p: &Point| (p.nodes, p.processes, p.bytes, p.intensity, p.frequency_hz);
    let twice = (1..m.points.len()).find(|i| m.points[..*i].iter().any(|p| place(p) == place(&m.points[*i])));
    twice.map_or(Ok(()), |i| Err(format!("{}: point {i} is there twice", m.operation.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> Calibration {
        Calibration::clone(&crate::published::calibration(100.0).stored.calibration)
    }

    /// The expected message, and the edit that causes it.
    type Case = (&'static str, fn(&mut Calibration));

    #[test]
    fn what_makes_no_sense_is_refused_by_its_name() {
        check(&published()).unwrap();
        let cases: [Case; 9] = [
            ("version 9 is not known", |c| c.version = 9),
            ("cannot name a folder", |c| c.node_type = "../x".into()),
            ("the idle power of no node", |c| c.power.idle_w.clear()),
            ("power.idle_w.aupy15 = -1 ", |c| c.power.idle_w.values_mut().for_each(|w| *w = -1.0)),
            ("checkpoint_write, point 1: time_s = 0 ", |c| c.measured[0].points[1].time_s = 0.0),
            ("checkpoint_write, point 0: bytes = -5 ", |c| c.measured[0].points[0].bytes = -5.0),
            ("checkpoint_write, point 2: nodes = 0 ", |c| c.measured[0].points[2].nodes = 0),
            ("a fit is at point 7, of 3", |c| {
                let of = protocol::StoredFit {
                    of: protocol::Quantity::TimeS,
                    over: protocol::Axis::Bytes,
                    at: 7,
                    curve: "linear".into(),
                    alpha: 1.0,
                    beta: 0.0,
                    r2: 1.0,
                    residual: 0.0,
                    degenerate: false,
                };
                c.measured[0].fits.push(of);
            }),
            ("point 3 is there twice", |c| {
                let again = c.measured[0].points[0].clone();
                c.measured[0].points.push(again);
            }),
        ];
        for (word, spoil) in cases {
            let mut c = published();
            spoil(&mut c);
            let why = check(&c).unwrap_err();
            assert!(why.contains(word), "{word}: {why}");
        }
    }
}
