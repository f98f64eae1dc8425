//! Words figures with their units, for the reasons that decisions carry.

/// A duration with three or four significant digits and a fitting unit.
pub(crate) fn duration(seconds: f64) -> String {
    let s = seconds.abs();
    if !seconds.is_finite() {
        "an unknown time".to_owned()
    } else if s < 1.0 {
        format!("{:.0} ms", seconds * 1e3)
    } else if s < 120.0 {
        format!("{seconds:.1} s")
    } else if s < 7_200.0 {
        format!("{:.1} min", seconds / 60.0)
    } else if s < 172_800.0 {
        format!("{:.1} h", seconds / 3_600.0)
    } else if s < 1e3 * 86_400.0 * 365.25 {
        format!("{:.1} days", seconds / 86_400.0)
    } else {
        format!("{:.2e} years", seconds / 86_400.0 / 365.25)
    }
}

/// An energy with a fitting unit.
pub(crate) fn energy(joules: f64) -> String {
    let j = joules.abs();
    if !joules.is_finite() {
        "an unknown energy".to_owned()
    } else if j < 1e4 {
        format!("{joules:.1} J")
    } else if j < 1e7 {
        format!("{:.1} kJ", joules / 1e3)
    } else if j < 1e10 {
        format!("{:.1} MJ", joules / 1e6)
    } else {
        format!("{:.2e} GJ", joules / 1e9)
    }
}

/// A fraction as per cent.
pub(crate) fn percent(fraction: f64) -> String {
    let p = fraction * 100.0;
    if p.abs() >= 1e6 { format!("{p:.1e} %") } else { format!("{p:.1} %") }
}
