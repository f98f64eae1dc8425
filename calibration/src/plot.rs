//! Draws points, fits and R² of a calibration as SVG, or as one HTML page.

use crate::document::{at, coordinate, on_one_line};
use protocol::{Axis, Calibration, Measured, Operation, Point, Quantity, StoredFit};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 128.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 44.0;
const COLUMNS: usize = 2;
const COLOURS: [&str; 6] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#e08214", "#17becf"];

/// One panel: an operation over one axis.
struct Panel<'a> {
    title: String,
    axis: Axis,
    quantity: Quantity,
    lines: Vec<Line<'a>>,
}

struct Line<'a> {
    label: String,
    points: Vec<&'a Point>,
    fit: Option<&'a StoredFit>,
}

/// The whole calibration as one picture.
pub fn svg(calibration: &Calibration) -> String {
    let panels: Vec<Panel> = calibration.measured.iter().flat_map(panels).collect();
    let rows = panels.len().div_ceil(COLUMNS).max(1);
    let (width, height) = (WIDTH * COLUMNS as f64, HEIGHT * rows as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (i, panel) in panels.iter().enumerate() {
        let (x, y) = ((i % COLUMNS) as f64 * WIDTH, (i / COLUMNS) as f64 * HEIGHT);
        svg += &format!("<g transform=\"translate({x} {y})\">\n{}</g>\n", panel.draw());
    }
    svg + "</svg>\n"
}

/// The picture in a page that says what it shows.
pub fn html(calibration: &Calibration) -> String {
    let title = escape(&format!("Calibration of {} ({})", calibration.node_type, calibration.cluster));
    let cpu = escape(&format!("{}, kernel {}", calibration.fingerprint.cpu, calibration.fingerprint.kernel));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title></head>\n\
         <body style=\"font-family:sans-serif\">\n<h1>{title}</h1>\n<p>{cpu}. Energy by {}. Noise of one repetition: \
         {:.1} % of a duration, {:.1} W.</p>\n{}</body></html>\n",
        escape(&calibration.energy_source),
        100.0 * calibration.noise.time_fraction,
        calibration.noise.delta_w,
        svg(calibration)
    )
}

/// Durations over the volume, or else over what varies; extra power over the processes.
fn panels(measured: &Measured) -> Vec<Panel<'_>> {
    let name = measured.operation.as_str();
    let name = measured.storage.map_or(name.to_string(), |s| format!("{name} ({})", s.as_str()));
    let varies = |axis| measured.points.iter().any(|p| coordinate(p, axis) != coordinate(&measured.points[0], axis));
    let axis = [Axis::Bytes, Axis::Nodes, Axis::Processes].into_iter().find(|a| varies(*a));
    let time = axis.map(|axis| (axis, Quantity::TimeS, format!("{name}: time")));
    let power = varies(Axis::Processes).then(|| (Axis::Processes, Quantity::DeltaW, format!("{name}: extra power")));
    let panel = |(axis, quantity, title)| Panel { title, axis, quantity, lines: lines(measured, axis, quantity) };
    time.into_iter().chain(power).map(panel).collect()
}

fn lines(measured: &Measured, axis: Axis, quantity: Quantity) -> Vec<Line<'_>> {
    let mut found: Vec<Line> = Vec::new();
    for point in &measured.points {
        if let Some(line) = found.iter_mut().find(|l| on_one_line(l.points[0], point, axis)) {
            line.points.push(point);
            continue;
        }
        let is_ours =
            |f: &&StoredFit| f.over == axis && f.of == quantity && on_one_line(&measured.points[f.at], point, axis);
        found.push(Line {
            label: label(measured.operation, point, axis),
            points: vec![point],
            fit: measured.fits.iter().find(is_ours),
        });
    }
    found.retain(|l| l.points.len() > 1);
    // More lines than colours cannot be told apart: the ends and what lies between, evenly.
    let many = found.len();
    let shown: Vec<usize> = (0..many.min(COLOURS.len())).map(|i| i * (many - 1) / (COLOURS.len() - 1).max(1)).collect();
    let keep = |i: &usize| many <= COLOURS.len() || shown.contains(i);
    found.into_iter().enumerate().filter(|(i, _)| keep(i)).map(|(_, l)| l).collect()
}

fn label(operation: Operation, point: &Point, axis: Axis) -> String {
    let mut parts = Vec::new();
    if axis != Axis::Nodes && point.nodes > 1 {
        parts.push(format!("N={}", point.nodes));
    }
    if axis != Axis::Processes {
        parts.push(format!("p={}", point.processes));
    }
    if axis != Axis::Bytes && point.bytes > 0.0 {
        parts.push(format!("{:.2} MiB", point.bytes / 1_048_576.0));
    }
    if operation == Operation::Compute {
        parts.push(format!("{:.0} %", 100.0 * point.intensity));
    }
    parts.extend(point.frequency_hz.map(|f| format!("{:.2} GHz", f / 1e9)));
    if parts.is_empty() { "N=1".into() } else { parts.join(" ") }
}

impl Panel<'_> {
    fn value(&self, p: &Point) -> (f64, f64) {
        match self.quantity {
            Quantity::TimeS => (p.time_s, p.time_ci_s),
            Quantity::DeltaW => (p.delta_w, p.delta_ci_w.unwrap_or(0.0)),
        }
    }

    fn draw(&self) -> String {
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let (scale, x_name) = match self.axis {
            Axis::Bytes => (1_048_576.0, "volume of a node, MiB"),
            Axis::Nodes => (1.0, "nodes"),
            Axis::Processes => (1.0, "processes on a node"),
        };
        let x_most = points().map(|p| coordinate(p, self.axis)).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let y_most = points().map(|p| self.value(p).0 + self.value(p).1).fold(0.0, f64::max);
        let y_least = points().map(|p| self.value(p).0 - self.value(p).1).fold(0.0, f64::min);
        let (factor, unit) = match self.quantity {
            Quantity::DeltaW => (1.0, "W"),
            Quantity::TimeS if y_most < 1e-3 => (1e6, "µs"),
            Quantity::TimeS if y_most < 1.0 => (1e3, "ms"),
            Quantity::TimeS => (1.0, "s"),
        };
        let (x_ticks, y_ticks) = (Ticks::over(0.0, x_most / scale), Ticks::over(y_least * factor, y_most * factor));
        let (bottom, top) = (y_ticks.first() / factor, y_ticks.last() / factor);
        let x = |v: f64| LEFT + v / (x_ticks.last() * scale * 1.05) * (WIDTH - LEFT - RIGHT);
        let y = |v: f64| HEIGHT - BOTTOM - (v.clamp(bottom, top) - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM);
        let mut g = format!("<text x=\"{LEFT}\" y=\"18\" font-size=\"13\">{}</text>\n", escape(&self.title));
        for (at, told) in y_ticks.all() {
            let at_y = y(at / factor);
            g += &format!(
                "<path d=\"M{LEFT} {at_y:.1}H{:.1}\" stroke=\"#e4e4e4\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{told}</text>\n",
                WIDTH - RIGHT,
                LEFT - 5.0,
                at_y + 4.0,
            );
        }
        for (at, told) in x_ticks.all() {
            let (at_x, at_y) = (x(at * scale), HEIGHT - BOTTOM + 15.0);
            g += &format!("<text x=\"{at_x:.1}\" y=\"{at_y:.1}\" text-anchor=\"middle\">{told}</text>\n");
        }
        g += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_name}</text><text x=\"8\" y=\"{}\">{unit}</text>\n",
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 10.0,
            TOP - 4.0
        );
        for (i, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            for p in &line.points {
                let (at_x, (v, ci)) = (x(coordinate(p, self.axis)), self.value(p));
                g += &format!(
                    "<path d=\"M{at_x:.1} {:.1}V{:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.5\"/><circle \
                     cx=\"{at_x:.1}\" cy=\"{:.1}\" r=\"3.2\" fill=\"{colour}\"/>\n",
                    y(v - ci),
                    y(v + ci),
                    y(v)
                );
            }
            let told = line.fit.map_or(String::new(), |f| format!("{}, R² {:.4}", f.curve, f.r2));
            if let Some(fit) = line.fit {
                let first = coordinate(line.points[0], self.axis);
                let step = |k: i32| first + (x_most - first) * f64::from(k) / 60.0;
                let path: Vec<String> =
                    (0..=60).map(|k| format!("{:.1} {:.1}", x(step(k)), y(at(fit, step(k))))).collect();
                g += &format!("<path d=\"M{}\" stroke=\"{colour}\" fill=\"none\"/>\n", path.join("L"));
            }
            let at_y = TOP + 8.0 + 30.0 * i as f64;
            g += &format!(
                "<text x=\"{0:.1}\" y=\"{at_y}\" fill=\"{colour}\">{1}</text><text x=\"{0:.1}\" y=\"{2}\" \
                 font-size=\"9\" fill=\"#666\">{told}</text>\n",
                WIDTH - RIGHT + 8.0,
                escape(&line.label),
                at_y + 11.0
            );
        }
        g
    }
}

/// The next of 1, 2, 2.5 and 5 times a power of ten, so that ticks are round.
fn round_up(v: f64) -> f64 {
    let tens = 10_f64.powf(v.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * tens).into_iter().find(|r| *r >= v).unwrap_or(10.0 * tens)
}

/// Round numbers along an axis.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    step: f64,
    /// The first and the last, in steps from 0.
    from: i32,
    to: i32,
}

impl Ticks {
    /// As many as are needed to have a range between the first and the last: six at most.
    fn over(least: f64, most: f64) -> Ticks {
        let step = round_up((most - least).max(f64::MIN_POSITIVE) / 4.0);
        let (from, to) = ((least / step).floor() as i32, (most / step).ceil() as i32);
        Ticks { step, from, to: to.max(from + 1) }
    }

    fn first(self) -> f64 {
        f64::from(self.from) * self.step
    }

    fn last(self) -> f64 {
        f64::from(self.to) * self.step
    }

    /// Each with its text, which has as many decimals as the step.
    fn all(self) -> impl Iterator<Item = (f64, String)> {
        let whole = |decimals: &usize| {
            let scaled = self.step * 10_f64.powi(*decimals as i32);
            (scaled - scaled.round()).abs() < 1e-6 * scaled
        };
        let decimals = (0..12).find(whole).unwrap_or(12);
        (self.from..=self.to).map(move |n| {
            let at = f64::from(n) * self.step;
            (at, format!("{at:.decimals$}"))
        })
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::tests::generated;

    #[test]
    fn ticks_are_round_numbers_and_hold_the_range() {
        for (least, most, told) in [
            (-8.14, 31.9, "-20 0 20 40"),
            (0.0, 47.5, "0 20 40 60"),
            (0.0, 0.9, "0.00 0.25 0.50 0.75 1.00"),
            (0.0, 4096.0, "0 2000 4000 6000"),
            (0.0, 0.0, "0"),
        ] {
            let ticks = Ticks::over(least, most);
            let all: Vec<String> = ticks.all().map(|(_, text)| text).collect();
            assert!(ticks.first() <= least && ticks.last() >= most && all.len() <= 6, "{all:?}");
            if most > 0.0 {
                assert_eq!(all.join(" "), told);
            }
        }
    }

    #[test]
    fn every_point_and_fit_is_drawn_within_its_panel() {
        let mut calibration = generated(1);
        calibration.node_type = "<b>".into();
        let page = html(&calibration);
        assert_eq!(page.matches("<circle").count(), 30, "15 times and 15 powers");
        assert!(page.contains("linear, R² 0.99") && page.contains("&lt;b&gt;") && !page.contains("<b>"));
        let coordinate = |t: &str| t.split('"').next().and_then(|n| n.parse::<f64>().ok()).unwrap();
        assert!(page.split("cy=\"").skip(1).map(coordinate).all(|y| (0.0..=HEIGHT).contains(&y)));
    }
}
