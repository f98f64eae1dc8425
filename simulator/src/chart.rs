//! Draws panels of points and lines as SVG: nice ticks, labels that avoid each other, light and dark.

use std::fmt::Write as _;

/// Width and height in pixels of a plot that stands alone, and of one beside others.
const ALONE: Size = (780.0, 460.0);
const BESIDE: Size = (560.0, 380.0);
/// The room around a plot, above the first and for a line of the legend, in pixels.
const LEFT: f64 = 84.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 62.0;
const RIGHT: f64 = 28.0;
const HEAD: f64 = 34.0;
const LEGEND_LINE: f64 = 22.0;

/// Colours that readers with any colour vision tell apart (Okabe and Ito), on light and on dark ground.
const STYLE: &str = "\
svg{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;background:#fff;color:#1c1e21}\
text{fill:currentColor}.ground{fill:#fff}.halo{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}\
.grid{stroke:#e4e6ea}.axis{stroke:#7b8087}.quiet{fill:#5a5f66}\
.c0{color:#55595f}.c1{color:#0072b2}.c2{color:#009e73}.c3{color:#d55e00}.c4{color:#aa4499}\
@media(prefers-color-scheme:dark){svg{background:#16181c;color:#e8e9eb}.ground{fill:#16181c}.halo{stroke:#16181c}\
.grid{stroke:#30343a}.axis{stroke:#8b9098}.quiet{fill:#a9aeb6}\
.c0{color:#b4b8be}.c1{color:#56b4e9}.c2{color:#2fc79a}.c3{color:#ff8a3d}.c4{color:#e59ad6}}";

type Size = (f64, f64);

/// One of five colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Grey.
    Grey,
    /// Blue.
    Blue,
    /// Green.
    Green,
    /// Vermilion.
    Vermilion,
    /// Purple.
    Purple,
}

/// The mark of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    None,
    /// A small, pale dot.
    Dot,
    /// A circle.
    Circle,
    /// A diamond.
    Diamond,
}

/// Points of one kind.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its colour.
    pub colour: Colour,
    /// The mark of its points.
    pub mark: Mark,
    /// Whether a line joins them: none, or one drawn with these dashes (empty for none).
    pub line: Option<&'static str>,
    /// The points, each with its tooltip.
    pub points: Vec<(f64, f64, String)>,
    /// What is written beside the last point.
    pub label: Option<String>,
}

/// A vertical line with its name at the top.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its position on the x axis.
    pub x: f64,
    /// Its name.
    pub label: String,
    /// Its colour.
    pub colour: Colour,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What it shows, with the unit.
    pub label: &'static str,
    /// Whether it is logarithmic.
    pub logarithmic: bool,
    /// Whether its numbers carry a sign.
    pub signed: bool,
}

/// One plot.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Title above the plot.
    pub title: String,
    /// The x axis.
    pub x: Axis,
    /// The y axis; it always shows zero.
    pub y: Axis,
    /// The series.
    pub series: Vec<Series>,
    /// Vertical lines.
    pub rules: Vec<Rule>,
}

/// A line of the legend: a sample of a series, and its name.
pub type Legend = (Colour, Mark, Option<&'static str>, &'static str);

/// Panels in rows of `columns`, under a title, above a legend and a note.
pub fn document(title: &str, panels: &[Panel], columns: usize, legend: &[Legend], note: &str) -> String {
    let columns = columns.clamp(1, panels.len().max(1));
    let plot = if columns == 1 { ALONE } else { BESIDE };
    let (wide, high) = (LEFT + plot.0 + RIGHT, TOP + plot.1 + BOTTOM);
    let rows = panels.len().div_ceil(columns) as f64;
    let width = wide * columns as f64;
    let (legend, legend_high) = draw_legend(legend, width);
    let below = HEAD + rows * high;
    let height = below + legend_high + 30.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{0}\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"600\">{0}</text>\n",
        escape(title)
    );
    for (i, panel) in panels.iter().enumerate() {
        let (x, y) = (wide * (i % columns) as f64 + LEFT, HEAD + high * (i / columns) as f64 + TOP);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">\n{}</g>", draw_panel(panel, plot));
    }
    let _ = writeln!(svg, "<g transform=\"translate({LEFT} {below})\">\n{legend}</g>");
    let _ = writeln!(
        svg,
        "<text class=\"quiet\" x=\"{LEFT}\" y=\"{:.0}\" font-size=\"11\">{}</text>\n</svg>",
        height - 12.0,
        escape(note)
    );
    svg
}

/// The legend's drawing and its height.
fn draw_legend(lines: &[Legend], width: f64) -> (String, f64) {
    let (mut svg, mut x, mut y) = (String::new(), 0.0, 8.0);
    for (colour, mark, line, name) in lines {
        let wide = 46.0 + text_width(name, 13.0);
        if x > 0.0 && x + wide > width - LEFT {
            (x, y) = (0.0, y + LEGEND_LINE);
        }
        let _ = write!(svg, "<g class=\"{}\">", class(*colour));
        if let Some(dashes) = line {
            svg += &path(&[(x, y), (x + 22.0, y)], dashes);
        }
        svg += &draw_mark(*mark, x + 11.0, y, "");
        let _ = writeln!(svg, "</g><text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 28.0, y + 4.5, escape(name));
        x += wide;
    }
    (svg, y + LEGEND_LINE)
}

/// Values to pixels.
struct Scale {
    low: f64,
    high: f64,
    pixels: f64,
    logarithmic: bool,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let of = |v: f64| if self.logarithmic { v.max(f64::MIN_POSITIVE).ln() } else { v };
        (of(value) - of(self.low)) / (of(self.high) - of(self.low)) * self.pixels
    }

    /// Round values within the range, not many.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
            let steps: &[f64] = if self.high / self.low > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades.flat_map(|d| steps.iter().map(move |s| s * 10f64.powi(d)));
            return all.filter(|t| (self.low..=self.high).contains(t)).collect();
        }
        let step = nice_step((self.high - self.low) / (self.pixels / 50.0));
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|i| i as f64 * step).collect()
    }
}

/// The next larger value of 1, 2 or 5 times a power of ten.
fn nice_step(raw: f64) -> f64 {
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().find(|s| s * power >= raw).unwrap_or(10.0);
    step * power
}

fn scale(axis: &Axis, values: impl Iterator<Item = f64>, pixels: f64, with_zero: bool) -> Scale {
    let finite = values.filter(|v| v.is_finite() && (!axis.logarithmic || *v > 0.0));
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
    let (low, high) = if low <= high { (low, high) } else { (1.0, 2.0) };
    if axis.logarithmic {
        return Scale { low: low / 1.08, high: high * 1.08, pixels, logarithmic: true };
    }
    let (low, high) = if with_zero { (low.min(0.0), high.max(0.0)) } else { (low, high) };
    let pad = 0.06 * (high - low).max(1e-6);
    let low = if low == 0.0 && !axis.signed { 0.0 } else { low - pad };
    Scale { low, high: high + pad, pixels, logarithmic: false }
}

fn draw_panel(panel: &Panel, plot: Size) -> String {
    let points = || panel.series.iter().flat_map(|s| &s.points);
    let x = scale(&panel.x, points().map(|p| p.0).chain(panel.rules.iter().map(|r| r.x)), plot.0, true);
    let y = scale(&panel.y, points().map(|p| p.1), plot.1, true);
    let place = |p: &(f64, f64, String)| (x.at(p.0), plot.1 - y.at(p.1));
    let mut svg = draw_axes(panel, plot, &x, &y);
    let mut taken: Vec<Area> = Vec::new();
    let leftmost = panel.rules.iter().map(|rule| rule.x).fold(f64::INFINITY, f64::min);
    for rule in &panel.rules {
        svg += &draw_rule(rule, x.at(rule.x), rule.x == leftmost, plot.1);
    }
    for series in &panel.series {
        let _ = writeln!(svg, "<g class=\"{}\">", class(series.colour));
        if let Some(dashes) = series.line {
            let line: Vec<_> = series.points.iter().map(place).collect();
            svg += &path(&line, dashes);
            taken.extend(line.windows(2).flat_map(|ends| along(ends[0], ends[1])));
        }
        for point in series.points.iter().filter(|_| series.mark != Mark::None) {
            let (px, py) = place(point);
            svg += &draw_mark(series.mark, px, py, &point.2);
            if series.mark != Mark::Dot {
                taken.push(Area { x: px - 6.0, y: py - 6.0, wide: 12.0, high: 12.0 });
            }
        }
        svg += "</g>\n";
    }
    for series in &panel.series {
        if let (Some(label), Some(last)) = (&series.label, series.points.last()) {
            svg += &draw_label(label, series.colour, place(last), plot, &mut taken);
        }
    }
    svg
}

/// A line from top to bottom; the name of the leftmost stands on its left.
fn draw_rule(rule: &Rule, x: f64, leftmost: bool, high: f64) -> String {
    let (beside, anchor) = if leftmost { (x - 6.0, "end") } else { (x + 6.0, "start") };
    format!(
        "<g class=\"{}\"><path d=\"M{x:.1} 0V{high}\" stroke=\"currentColor\" stroke-width=\"1.6\" \
         stroke-dasharray=\"2 3\"/><text class=\"halo\" style=\"fill:currentColor\" x=\"{beside:.1}\" y=\"14\" \
         text-anchor=\"{anchor}\">{}</text></g>\n",
        class(rule.colour),
        escape(&rule.label)
    )
}

fn draw_axes(panel: &Panel, (wide, high): Size, x: &Scale, y: &Scale) -> String {
    let mut svg =
        format!("<text x=\"0\" y=\"-14\" font-weight=\"600\" font-size=\"14\">{}</text>\n", escape(&panel.title));
    for tick in x.ticks() {
        let (at, name) = (x.at(tick), number(tick, &panel.x));
        let class = if tick == 0.0 { "axis" } else { "grid" };
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"M{at:.1} 0V{high}\"/><text x=\"{at:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{name}</text>",
            high + 19.0
        );
    }
    for tick in y.ticks() {
        let (at, name) = (high - y.at(tick), number(tick, &panel.y));
        let class = if tick == 0.0 { "axis" } else { "grid" };
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"M0 {at:.1}H{wide}\"/><text x=\"-9\" y=\"{:.1}\" \
             text-anchor=\"end\">{name}</text>",
            at + 4.5
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text transform=\"translate(-58 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        wide / 2.0,
        high + 43.0,
        escape(panel.x.label),
        high / 2.0,
        escape(panel.y.label)
    );
    svg
}

/// A tick's number, with as many decimals as it needs, a true minus, and a plus where the axis is signed.
fn number(value: f64, axis: &Axis) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    let sign = if rounded < 0.0 {
        "\u{2212}"
    } else if axis.signed && rounded > 0.0 {
        "+"
    } else {
        ""
    };
    format!("{sign}{}", rounded.abs())
}

fn class(colour: Colour) -> String {
    format!("c{}", colour as u8)
}

fn path(points: &[(f64, f64)], dashes: &str) -> String {
    let mut line = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        let _ = write!(line, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
    }
    format!(
        "<path d=\"{line}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2\" stroke-linejoin=\"round\" \
         stroke-dasharray=\"{}\"/>\n",
        if dashes.is_empty() { "none" } else { dashes }
    )
}

fn draw_mark(mark: Mark, x: f64, y: f64, title: &str) -> String {
    let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) };
    match mark {
        Mark::None => String::new(),
        Mark::Dot => format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"currentColor\" fill-opacity=\"0.4\">{title}</circle>\n"
        ),
        Mark::Circle => {
            format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"currentColor\">{title}</circle>\n")
        }
        Mark::Diamond => format!(
            "<path d=\"M{x:.1} {:.1}l6.4 6.4l-6.4 6.4l-6.4 -6.4z\" fill=\"currentColor\">{title}</path>\n",
            y - 6.4
        ),
    }
}

/// A box in pixels.
#[derive(Clone, Copy)]
struct Area {
    x: f64,
    y: f64,
    wide: f64,
    high: f64,
}

impl Area {
    fn overlap(&self, other: &Area) -> f64 {
        let span = |a: f64, b: f64, c: f64, d: f64| ((a + b).min(c + d) - a.max(c)).max(0.0);
        span(self.x, self.wide, other.x, other.wide) * span(self.y, self.high, other.y, other.high)
    }

    /// How much of it lies outside the plot.
    fn outside(&self, plot: Size) -> f64 {
        let plot = Area { x: 0.0, y: 0.0, wide: plot.0, high: plot.1 };
        self.wide * self.high - self.overlap(&plot)
    }
}

/// Small boxes on the way from one point to another, so that labels keep off lines.
fn along(from: (f64, f64), to: (f64, f64)) -> impl Iterator<Item = Area> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let steps = (dx.hypot(dy) / 8.0).clamp(1.0, 200.0) as u32;
    (0..steps).map(move |i| {
        let share = f64::from(i) / f64::from(steps);
        Area { x: from.0 + share * dx - 2.0, y: from.1 + share * dy - 2.0, wide: 4.0, high: 4.0 }
    })
}

/// Writes a label where it covers least, near its point, with a line to the point where it had to move away.
fn draw_label(label: &str, colour: Colour, (x, y): (f64, f64), plot: Size, taken: &mut Vec<Area>) -> String {
    let (wide, high) = (text_width(label, 12.0), 14.0);
    let mut best = (f64::INFINITY, Area { x, y, wide, high }, 0.0);
    for distance in [10.0, 16.0, 26.0, 40.0, 58.0, 80.0] {
        for step in 0..16 {
            let (sin, cos) = (f64::from(step) * std::f64::consts::TAU / 16.0).sin_cos();
            let centre = (x + cos * (distance + wide / 2.0), y - sin * (distance + high / 2.0));
            let area = Area { x: centre.0 - wide / 2.0, y: centre.1 - high / 2.0, wide, high };
            let covered: f64 = taken.iter().map(|t| area.overlap(t)).sum();
            let cost = covered + 4.0 * area.outside(plot) + 0.15 * distance;
            if cost < best.0 {
                best = (cost, area, distance);
            }
        }
    }
    let (_, area, distance) = best;
    taken.push(area);
    let mut svg = format!("<g class=\"{}\">", class(colour));
    if distance > 20.0 {
        let (near_x, near_y) = (x.clamp(area.x, area.x + wide), y.clamp(area.y, area.y + high));
        let _ = write!(
            svg,
            "<path d=\"M{x:.1} {y:.1}L{near_x:.1} {near_y:.1}\" stroke=\"currentColor\" stroke-opacity=\"0.5\"/>"
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"halo\" style=\"fill:currentColor\" font-size=\"12\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
        area.x,
        area.y + 11.0,
        escape(label)
    );
    svg
}

/// About how wide a text is.
fn text_width(text: &str, size: f64) -> f64 {
    0.62 * size * text.chars().count() as f64
}

/// Text that is safe inside markup.
pub fn escape(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().map(plain).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
