//! Draws energy against time as SVG (as in ElSayed14 Fig. 2).

use crate::comparison::Row;
use policy::interval::Objective;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 520.0;
const MARGIN: f64 = 64.0;

/// A scatter of wasted energy against wasted time, one mark per row.
pub fn energy_against_time(rows: &[Row]) -> String {
    let range = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((0.0_f64, 0.0_f64), |(l, h), v| (l.min(v), h.max(v)));
        let pad = 0.08 * (high - low).max(0.01);
        (low - pad, high + pad)
    };
    let (x0, x1) = range(&mut rows.iter().map(|r| r.time));
    let (y0, y1) = range(&mut rows.iter().map(|r| r.energy));
    let x = |v: f64| MARGIN + (v - x0) / (x1 - x0) * (WIDTH - 2.0 * MARGIN);
    let y = |v: f64| HEIGHT - MARGIN - (v - y0) / (y1 - y0) * (HEIGHT - 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for i in 0..=5 {
        let (tx, ty) = (x0 + (x1 - x0) * f64::from(i) / 5.0, y0 + (y1 - y0) * f64::from(i) / 5.0);
        svg += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:+.1} %</text>\n<text x=\"{:.1}\" y=\"{:.1}\" \
             text-anchor=\"end\">{:+.1} %</text>\n",
            x(tx),
            HEIGHT - MARGIN + 18.0,
            tx * 100.0,
            MARGIN - 6.0,
            y(ty) + 4.0,
            ty * 100.0
        );
    }
    svg += &format!(
        "<path d=\"M{:.1} {:.1}H{:.1}M{:.1} {:.1}V{:.1}\" stroke=\"#999\" fill=\"none\"/>\n",
        MARGIN,
        y(0.0),
        WIDTH - MARGIN,
        x(0.0),
        HEIGHT - MARGIN,
        MARGIN
    );
    for row in rows {
        let fill = match (row.policy.as_str(), row.objective) {
            ("auto", _) => "#c0392b",
            (_, Objective::Time) => "#2c7fb8",
            (_, Objective::Energy) => "#2e8b57",
        };
        let label = escape(&format!("{} {}", row.policy, row.trace));
        svg += &format!(
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{fill}\"><title>{label}</title></circle>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"9\" fill=\"#444\">{}</text>\n",
            x(row.time),
            y(row.energy),
            x(row.time) + 6.0,
            y(row.energy) + 3.0,
            escape(&row.policy)
        );
    }
    svg += &format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">wasted time against Young</text>\n\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">wasted energy against Young</text>\n\
         </svg>\n",
        WIDTH / 2.0,
        HEIGHT - 16.0,
        HEIGHT / 2.0
    );
    svg
}

/// Text that is safe inside markup.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
