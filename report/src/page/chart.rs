//! Bars of energy by phase, as inline SVG.

use super::{Set, energy};
use maud::{Markup, html};
use protocol::Phase;

const WIDTH: f64 = 1000.0;
const LABEL: f64 = 150.0;
const FIGURE: f64 = 110.0;
const ROW: f64 = 30.0;

/// One bar: its label, and the energy of each phase, J.
pub struct Bar {
    /// What it is of.
    pub label: String,
    /// Energy by phase, J.
    pub parts: Vec<(Phase, f64)>,
}

/// A phase's name for people.
pub fn spoken(phase: Phase) -> String {
    phase.as_str().replace('_', " ")
}

/// The head of a column of a phase's figures.
pub fn number_column(phase: Phase) -> (&'static str, Set) {
    let name = match phase {
        Phase::Compute => "Compute",
        Phase::Checkpoint => "Checkpoint",
        Phase::Restart => "Restart",
        Phase::LostWork => "Lost work",
        Phase::Idle => "Idle",
        Phase::Logging => "Logging",
    };
    (name, Set::Number)
}

/// The key to the colours of phases.
pub fn key(phases: &[Phase], more: &[(&str, &str)]) -> Markup {
    let phases = phases.iter().map(|p| (p.as_str(), spoken(*p)));
    let all: Vec<(&str, String)> = phases.chain(more.iter().map(|(class, name)| (*class, name.to_string()))).collect();
    html! {
        ul.key { @for (class, name) in all { li {
            svg viewBox="0 0 14 14" aria-hidden="true" { (mark(class)) } (name)
        } } }
    }
}

fn mark(class: &str) -> Markup {
    match class {
        "saved" => html! { path class="saved" d="M7 1 L13 7 L7 13 L1 7 Z" {} },
        "failed" => html! { path class="failed" d="M1 1 H13 L7 13 Z" {} },
        _ => html! { rect class=(class) width="14" height="14" rx="2" {} },
    }
}

/// Stacked bars on one scale; `title` says in words what they show.
pub fn stacked(id: &str, title: &str, bars: &[Bar]) -> Markup {
    let sum = |bar: &Bar| bar.parts.iter().map(|p| p.1.max(0.0)).sum::<f64>();
    let most = bars.iter().map(sum).fold(f64::MIN_POSITIVE, f64::max);
    let scale = (WIDTH - LABEL - FIGURE) / most;
    let height = bars.len() as f64 * ROW + 4.0;
    let chart = html! {
        svg id=(id) viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(title) {
            @for (n, bar) in bars.iter().enumerate() {
                @let y = n as f64 * ROW + 4.0;
                text x=(LABEL - 10.0) y=(y + 16.0) text-anchor="end" { (shortened(&bar.label)) title { (bar.label) } }
                (parts(bar, y, scale))
                text x=(format!("{:.1}", LABEL + sum(bar) * scale + 8.0)) y=(y + 16.0) { (energy(sum(bar))) }
            }
        }
    };
    super::scrolled(title, chart)
}

fn parts(bar: &Bar, y: f64, scale: f64) -> Markup {
    let mut x = LABEL;
    let placed = bar.parts.iter().filter(|p| p.1 > 0.0).map(|(phase, joules)| {
        let at = x;
        x += joules * scale;
        (at, *phase, *joules)
    });
    let placed: Vec<(f64, Phase, f64)> = placed.collect();
    html! {
        @for (at, phase, joules) in placed {
            rect class={ (phase.as_str()) " cut" } x=(format!("{at:.2}")) y=(y) height=(ROW - 8.0)
                width=(format!("{:.2}", joules * scale)) {
                title { (bar.label) ", " (spoken(phase)) ": " (energy(joules)) }
            }
        }
    }
}

/// A label that fits beside its bar.
pub fn shortened(text: &str) -> String {
    if text.chars().count() > 18 { text.chars().take(17).chain(['…']).collect() } else { text.to_string() }
}
