//! A run's time line: a row for each node, a bar for each phase, marks for failures, checkpoints and loans.

use super::chart::{key, shortened, spoken};
use super::energy;
use crate::accounted::Joined;
use crate::words::counted;
use maud::{Markup, html};
use protocol::{Loan, Phase, PhaseSpan, RunAccount};
use std::collections::BTreeMap;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 120.0;
const TOP: f64 = 52.0;
const ROW: f64 = 34.0;
const BAR: f64 = 22.0;

/// Most rows that are drawn; the table beside the chart has all.
const MOST_NODES: usize = 64;

/// Most bars that are drawn; a browser is slow beyond.
const MOST_BARS: usize = 20_000;

/// Bars closer than this are one, s.
const GAP_S: f64 = 1e-3;

/// Lengths between two ticks, s.
const STEPS_S: [f64; 22] = [
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    900.0,
    1800.0,
    3600.0,
    7200.0,
    10_800.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    432_000.0,
    864_000.0,
    2_592_000.0,
];

/// Moments to places.
struct Scale {
    start_s: f64,
    end_s: f64,
}

impl Scale {
    fn of(run: &RunAccount, now_s: f64) -> Scale {
        let ends = run.spans.iter().map(|s| s.end_s).chain(run.loans.iter().filter_map(|l| l.end_s));
        let starts = run.spans.iter().map(|s| s.start_s).filter(|s| *s > 0.0);
        let end_s = ends.fold(run.end_s.unwrap_or(now_s.min(run.start_s + run.total.elapsed_s)), f64::max);
        let start_s = starts.fold(run.start_s, f64::min);
        Scale { start_s, end_s: end_s.max(start_s + 1.0) }
    }

    fn x(&self, at_s: f64) -> f64 {
        let at_s = at_s.clamp(self.start_s, self.end_s);
        LEFT + (WIDTH - LEFT - 20.0) * (at_s - self.start_s) / (self.end_s - self.start_s)
    }

    fn ticks(&self) -> Vec<f64> {
        let length_s = self.end_s - self.start_s;
        let step_s = STEPS_S.into_iter().find(|s| length_s / s <= 8.0).unwrap_or(length_s / 8.0);
        (0..=(length_s / step_s) as usize).map(|n| n as f64 * step_s).collect()
    }
}

/// The chart with its key, in words for those who cannot see it.
pub fn timeline(line: &Joined, now_s: f64) -> Markup {
    let run = &line.run;
    let lent: &[Loan] = line.lending.as_ref().map_or(&[], |l| &l.loans);
    let scale = Scale::of(run, now_s);
    let placed = placed(run);
    let mut rows: Vec<(&str, Vec<PhaseSpan>)> = rows(run).into_iter().collect();
    let first = |node: &str| placed.iter().enumerate().find(|(_, p)| p.node == node);
    rows.sort_by_key(|(node, _)| (first(node).map_or((u32::MAX, 0), |(n, p)| (p.group, n)), by_number(node)));
    let drawn = rows.len().min(MOST_NODES);
    let bottom = TOP + drawn as f64 * ROW;
    let words = format!(
        "Time line of {} over {}: {}, {}, {}. The tables below hold all of it.",
        counted(rows.len(), "node"),
        options::spoken((scale.end_s - scale.start_s).round()),
        counted(run.total.failures, "failure"),
        counted(run.checkpoints.len(), "checkpoint"),
        counted(run.loans.len(), "loan")
    );
    let chart = html! {
        svg id="timeline" viewBox=(format!("0 0 {WIDTH} {}", bottom + 30.0)) role="img" aria-label=(words) {
            defs { pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                line class="hatch" x1="0" y1="0" x2="0" y2="6" {}
            } }
            text.soft x=(LEFT - 10.0) y="18" text-anchor="end" { "records" }
            (records(run, &scale))
            @for tick in scale.ticks() {
                @let x = format!("{:.1}", scale.x(scale.start_s + tick));
                line.grid x1=(x) x2=(x) y1=(TOP - 6.0) y2=(bottom) {}
                text.soft x=(x) y=(bottom + 18.0) text-anchor="middle" { (options::format_time(tick)) }
            }
            @for (n, (node, spans)) in rows.iter().take(MOST_NODES).enumerate() {
                @let y = TOP + n as f64 * ROW;
                text x=(LEFT - 10.0) y=(y + 16.0) text-anchor="end" { (shortened(node)) }
                (bars(spans, &scale, y))
                (away(lent, node, &scale, y))
                (loans(run, node, &scale, y))
                (groups(&placed, node, &scale, y))
            }
            (marks(run, &scale, bottom))
        }
    };
    html! {
        (key(&Phase::ALL, &[("away", "lent"), ("lent", "used by another job"), ("saved", "checkpoint complete"), ("failed", "failure")]))
        (super::scrolled("Time line", chart))
        @if rows.len() > drawn { p.soft { "The first " (drawn) " of " (rows.len()) " nodes are drawn." } }
        @if run.spans.len() > MOST_BARS { p.soft { "The first " (MOST_BARS / drawn.max(1)) " bars of each node are drawn." } }
    }
}

/// A group that comes to a node.
struct Placed<'a> {
    at_s: f64,
    group: u32,
    node: &'a str,
    again: bool,
}

/// Where groups were, as the run's decisions tell it, in order of time.
fn placed(run: &RunAccount) -> Vec<Placed<'_>> {
    let mut at: BTreeMap<&str, u32> = BTreeMap::new();
    let mut placed = Vec::new();
    for decision in run.decisions.iter().filter(|d| matches!(d.action.as_str(), "place group" | "restart group")) {
        let told = decision.reason.strip_prefix("group ").and_then(|r| r.split_once(" on "));
        let Some((group, rest)) = told else { continue };
        let (Ok(group), Some((nodes, _))) = (group.parse(), rest.split_once(':')) else { continue };
        for node in nodes.split(',').filter(|node| at.insert(node, group) != Some(group)) {
            placed.push(Placed { at_s: decision.at_s, group, node, again: decision.action == "restart group" });
        }
    }
    placed
}

/// Says on a node's bar which group came to it.
fn groups(placed: &[Placed<'_>], node: &str, scale: &Scale, y: f64) -> Markup {
    html! {
        @for p in placed.iter().filter(|p| p.node == node) {
            text.on x=(format!("{:.2}", scale.x(p.at_s) + 5.0)) y=(y + 15.0) {
                "group " (p.group) @if p.again { " again" }
            }
        }
    }
}

/// What nodes are ordered by: n9 comes before n10.
pub fn by_number(node: &str) -> (&str, u64, &str) {
    let name = node.trim_end_matches(|c: char| c.is_ascii_digit());
    (name, node[name.len()..].parse().unwrap_or(0), node)
}

/// Each node's spans in order of time, neighbours of one phase joined.
fn rows(run: &RunAccount) -> BTreeMap<&str, Vec<PhaseSpan>> {
    let mut rows: BTreeMap<&str, Vec<PhaseSpan>> = BTreeMap::new();
    for span in &run.spans {
        let row = rows.entry(&span.node).or_default();
        match row.last_mut() {
            Some(last) if last.phase == span.phase && (span.start_s - last.end_s).abs() < GAP_S => {
                last.end_s = span.end_s;
                last.joules = last.joules.zip(span.joules).map(|(a, b)| a + b);
            }
            _ => row.push(span.clone()),
        }
    }
    for loan in &run.loans {
        rows.entry(&loan.node).or_default();
    }
    let most = MOST_BARS / rows.len().clamp(1, MOST_NODES);
    rows.values_mut().for_each(|row| row.truncate(most));
    rows
}

fn bars(spans: &[PhaseSpan], scale: &Scale, y: f64) -> Markup {
    html! {
        rect.lane x=(LEFT) y=(y) width=(WIDTH - LEFT - 20.0) height=(BAR) {}
        @for span in spans {
            @let (x, end) = (scale.x(span.start_s), scale.x(span.end_s));
            rect class={ (span.phase.as_str()) " cut" } data-node=(span.node) x=(format!("{x:.2}")) y=(y) height=(BAR)
                width=(format!("{:.2}", (end - x).max(0.75))) {
                title {
                    (span.node) ", " (spoken(span.phase)) " from " (options::format_time(span.start_s - scale.start_s))
                    " for " (format!("{:.1}", span.end_s - span.start_s)) " s: "
                    (span.joules.map_or("not measured".to_string(), energy))
                }
            }
        }
    }
}

/// The time for which a node was out of the run's hands, whether somebody used it or not.
fn away(lent: &[Loan], node: &str, scale: &Scale, y: f64) -> Markup {
    html! {
        @for loan in lent.iter().filter(|l| l.nodes.iter().any(|n| n == node)) {
            @let (x, end) = (scale.x(loan.lent_s.unwrap_or(scale.end_s)), scale.x(loan.back_s.unwrap_or(scale.end_s)));
            rect.away x=(format!("{x:.2}")) y=(y) width=(format!("{:.2}", (end - x).max(0.75))) height=(BAR) {
                title { (node) " lent: " (loan.reason) }
            }
        }
    }
}

fn loans(run: &RunAccount, node: &str, scale: &Scale, y: f64) -> Markup {
    html! {
        @for loan in run.loans.iter().filter(|l| l.node == node) {
            @let (x, end) = (scale.x(loan.start_s), scale.x(loan.end_s.unwrap_or(scale.end_s)));
            @let width = format!("{:.2}", (end - x).max(0.75));
            rect.lent x=(format!("{x:.2}")) y=(y) width=(width) height=(BAR) {}
            rect fill="url(#hatch)" x=(format!("{x:.2}")) y=(y) width=(width) height=(BAR) {
                title {
                    (node) " lent to " (borrower(loan.borrower)) " from "
                    (options::format_time(loan.start_s - scale.start_s))
                }
            }
        }
    }
}

/// Who has, or had, a lent node.
pub fn borrower(job: Option<u32>) -> String {
    job.map_or_else(|| "nobody".to_string(), |job| format!("job {job}"))
}

fn records(run: &RunAccount, scale: &Scale) -> Markup {
    html! {
        @for record in &run.records {
            @let (x, end) = (scale.x(record.start_s), scale.x(record.end_s.unwrap_or(scale.end_s)));
            rect.idle x=(format!("{x:.2}")) y="24" width=(format!("{:.2}", (end - x).max(0.75))) height="4" rx="2" {
                title { "record " (record.restart_count) " on " (record.nodes.join(", ")) ": " (record.state) }
            }
            text.soft x=(format!("{x:.2}")) y="18" { "start " (record.restart_count + 1) }
        }
    }
}

fn marks(run: &RunAccount, scale: &Scale, bottom: f64) -> Markup {
    html! {
        @for checkpoint in &run.checkpoints {
            @let x = scale.x(checkpoint.begun_s + checkpoint.seconds);
            path.saved d=(format!("M{x:.2} 34 l5 5 l-5 5 l-5 -5 Z")) {
                title { "checkpoint " (checkpoint.number) " complete after " (format!("{:.1}", checkpoint.seconds)) " s" }
            }
        }
        @for failure in &run.failures {
            @let x = scale.x(failure.at_s);
            line.fail x1=(format!("{x:.2}")) x2=(format!("{x:.2}")) y1="34" y2=(bottom) {}
            path.failed d=(format!("M{x:.2} 44 l-6 -11 h12 Z")) {
                title { (failure.kind) " failure" @if let Some(node) = &failure.node { " of " (node) } ": " (failure.reason) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_in_the_order_of_their_numbers() {
        let mut nodes = vec!["n10", "n9", "gpu2", "n010", "login", "n1"];
        nodes.sort_by_key(|node| by_number(node));
        assert_eq!(nodes, ["gpu2", "login", "n1", "n9", "n010", "n10"]);
    }
}
