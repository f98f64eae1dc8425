//! The page of a window of time: what resilience cost whom.

use super::chart::{self, Bar};
use super::{Cell, Set, Table, energy, known_energy, tile};
use crate::accounted::Joined;
use crate::columns::{percent, share, state};
use crate::moment::shown;
use crate::sums::{By, Sum, sums, total};
use maud::{Markup, html};
use protocol::Phase;
use tariff::KWH_J;

/// Most bars of a chart, and most runs of the table: a browser is slow beyond.
const MOST_BARS: usize = 31;
const MOST_RUNS: usize = 2000;

/// What resilience is made of.
const RESILIENCE: [Phase; 5] = [Phase::Checkpoint, Phase::Logging, Phase::Restart, Phase::LostWork, Phase::Idle];

/// Everything between head and foot.
pub fn body(lines: &[Joined], (start_s, end_s): (Option<f64>, Option<f64>), now_s: f64) -> Markup {
    let first_s = lines.iter().map(|l| l.run.start_s).reduce(f64::min);
    let moment = |at_s: f64| shown(at_s).replace('T', " ");
    let from = start_s.or(first_s).map_or("the beginning".to_string(), moment);
    let (accounts, users) = (sums(lines, None, &[By::Account]), sums(lines, None, &[By::User]));
    let mut days = sums(lines, None, &[By::Day]);
    days.sort_by(|a, b| a.of.cmp(&b.of));
    let total = total(lines, None);
    html! {
        h1 { "What resilience cost" }
        p.soft { "Runs between " (from) " and " (moment(end_s.unwrap_or(now_s))) }
        (tiles(&total))
        @if lines.is_empty() { p { "There is no run in this window." } } @else {
            h2 { "By day" }
            (by("days", "Day", &days, &total))
            h2 { "By account" }
            (by("accounts", "Account", &accounts, &total))
            h2 { "By user" }
            (by("users", "User", &users, &total))
            h2 { "Runs" }
            (runs(lines))
        }
    }
}

fn tiles(total: &Sum) -> Markup {
    let kwh = |joules: Option<f64>| joules.map_or_else(String::new, |j| format!(" ({:.3} kWh)", j / KWH_J));
    let part = percent(share(total.resilience_j, total.joules));
    let saved = total.expected_saving_j.map_or("unknown".to_string(), energy);
    html! {
        ul.tiles {
            (tile(&total.runs.to_string(), "protected runs"))
            (tile(&known_energy(total.joules), &format!("energy{}", kwh(total.joules))))
            (tile(&known_energy(total.resilience_j), &format!("resilience{}", kwh(total.resilience_j))))
            @if let Some(told) = total.cost.whole.and_then(|c| c.told(&total.cost.currency)) {
                (tile(&told, "what this energy costs"))
            }
            (tile(&part, "share of resilience in the energy"))
            (tile(&total.failures.to_string(), &format!("failures; {} of work lost", known_energy(total.lost_work_j))))
            (tile(&saved, "expected saving against the other objective"))
        }
    }
}

fn by(id: &str, what: &'static str, sums: &[Sum], total: &Sum) -> Markup {
    let name = |of: &str| if of.is_empty() { "(none)".to_string() } else { of.to_string() };
    let bar =
        |s: &Sum| Bar { label: name(&s.of), parts: RESILIENCE.map(|p| (p, s.of_phase(p).unwrap_or(0.0))).to_vec() };
    let bars: Vec<Bar> = sums.iter().take(MOST_BARS).map(bar).collect();
    let row = |s: &Sum| {
        let mut row = vec![
            Cell::text(name(&s.of)),
            Cell::count(s.runs),
            Cell::count(s.failures),
            Cell::known_joules(s.joules),
            Cell::known_joules(s.resilience_j),
            Cell::percent(share(s.resilience_j, s.joules)),
        ];
        row.extend(RESILIENCE.map(|p| Cell::known_joules(s.of_phase(p))));
        row.push(Cell::known_joules(s.expected_saving_j));
        row
    };
    let mut table = Table {
        caption: format!("Resilience by {}, energies in J", what.to_lowercase()),
        head: vec![
            (what, Set::Word),
            ("Runs", Set::Number),
            ("Failures", Set::Number),
            ("Energy", Set::Number),
            ("Resilience", Set::Number),
            ("Share", Set::Number),
        ],
        rows: sums.iter().map(row).collect(),
        foot: Some(row(total)),
        sorts: true,
    };
    table.head.extend(RESILIENCE.map(chart::number_column));
    table.head.push(("Saved", Set::Number));
    html! {
        (chart::key(&RESILIENCE, &[]))
        (chart::stacked(id, &format!("Energy of resilience by {} and kind", what.to_lowercase()), &bars))
        @if sums.len() > bars.len() { p.soft { "The first " (bars.len()) " of " (sums.len()) " are drawn." } }
        (table.markup())
    }
}

fn runs(lines: &[Joined]) -> Markup {
    let mut largest: Vec<&Joined> = lines.iter().collect();
    let resilience_j = |l: &&Joined| l.run.total.resilience_j.unwrap_or(-1.0);
    largest.sort_by(|a, b| resilience_j(b).total_cmp(&resilience_j(a)));
    largest.truncate(MOST_RUNS);
    let row = |l: &&Joined| {
        let (run, total) = (&l.run, &l.run.total);
        vec![
            Cell::number(run.job.into(), run.job_id.clone()),
            Cell::text(run.job_name.clone()),
            Cell::text(run.user.clone()),
            Cell::text(run.account.clone()),
            Cell::text(state(run)),
            Cell::moment(run.start_s),
            Cell::number(total.elapsed_s, options::format_time(total.elapsed_s)),
            Cell::known_joules(total.joules),
            Cell::known_joules(total.resilience_j),
            Cell::percent(total.energy_overhead),
            Cell::percent(total.expected_energy_overhead),
            Cell::count(total.failures),
            Cell::count(total.checkpoints),
            Cell::text(l.slurm.as_ref().map(|s| s.exit_code.clone()).unwrap_or_default()),
        ]
    };
    let table = Table {
        caption: "The largest resilience first; a heading sorts".into(),
        head: vec![
            ("Job", Set::Number),
            ("Name", Set::Text),
            ("User", Set::Word),
            ("Account", Set::Word),
            ("State", Set::Word),
            ("Start", Set::Word),
            ("Elapsed", Set::Number),
            ("Energy (J)", Set::Number),
            ("Resilience (J)", Set::Number),
            ("Overhead", Set::Number),
            ("Predicted", Set::Number),
            ("Failures", Set::Number),
            ("Checkpoints", Set::Number),
            ("Exit code", Set::Word),
        ],
        rows: largest.iter().map(row).collect(),
        foot: None,
        sorts: true,
    };
    html! {
        @if lines.len() > largest.len() { p.soft { "The largest " (largest.len()) " of " (lines.len()) " runs." } }
        div #runs { (table.markup()) }
    }
}
