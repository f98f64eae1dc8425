//! Reproduces the papers' figures, ElSayed14's from Los Alamos's failure records.

use simulator::published::{Cell, Paper, Source, System, Verdict, cells};
use simulator::trace::Trace;

fn system(id: u32) -> System {
    let path = format!("{}/../tests/data/lanl/system-{id}.csv", env!("CARGO_MANIFEST_DIR"));
    let trace = Trace::parse(&format!("system {id}"), &std::fs::read_to_string(path).unwrap()).unwrap();
    System { id, trace }
}

fn systems() -> Vec<System> {
    [2, 3, 12, 18, 20, 21].map(system).into()
}

#[test]
fn traces_have_the_published_gaps_and_means() {
    for (id, gaps, mttf_days) in
        [(2, 5396, 0.584), (3, 294, 2.463), (12, 255, 2.656), (18, 3917, 0.312), (20, 2400, 0.566), (21, 105, 0.998)]
    {
        let trace = system(id).trace;
        assert_eq!(trace.gaps_s.len(), gaps, "system {id}");
        assert!((trace.mean_s() / 86_400.0 - mttf_days).abs() < 6e-4, "system {id}: {}", trace.mean_s() / 86_400.0);
    }
}

#[test]
fn a_figure_reproduces_or_an_erratum_says_why_not() {
    let systems = systems();
    for (paper, yes, errata) in [
        (Paper::Aupy15, 15, vec!["A5", "A1", "A3"]),
        (Paper::ElSayed14, 14, vec![]),
        (Paper::Bouteiller13, 32, vec![]),
        (Paper::Balladini, 7, vec!["E2"]),
        (Paper::Mills, 5, vec!["F6", "F7"]),
    ] {
        let (mut reproduced, mut explained) = (0, Vec::new());
        for cell in cells(paper, &systems).unwrap() {
            match cell.verdict() {
                Verdict::Yes => reproduced += 1,
                Verdict::No(why) => {
                    let erratum = why.strip_prefix("erratum ").unwrap_or_else(|| panic!("{why}: {cell:#?}"));
                    explained.push(erratum[..2].to_owned());
                }
                Verdict::Cannot(why) => assert!(!why.is_empty()),
            }
        }
        assert_eq!((reproduced, explained), (yes, errata.into_iter().map(str::to_owned).collect()), "{paper:?}");
    }
}

#[test]
fn means_of_six_systems_are_not_held_to_those_of_ten() {
    let all = cells(Paper::ElSayed14, &systems()).unwrap();
    let means: Vec<&Cell> = all.iter().filter(|c| c.place.starts_with("means")).collect();
    assert_eq!(means.len(), 28);
    for cell in means {
        assert_eq!(cell.verdict(), Verdict::Cannot("6 of the paper's 10 systems".to_owned()));
    }
}

#[test]
fn means_of_ten_systems_are_compared() {
    let ten: Vec<System> = systems().into_iter().cycle().take(10).collect();
    let all = cells(Paper::ElSayed14, &ten).unwrap();
    let daly = all.iter().find(|c| c.place.starts_with("means") && c.quantity.starts_with("daly")).unwrap();
    assert_eq!(daly.verdict(), Verdict::No("no erratum explains it".to_owned()), "these are not the paper's ten");
}

#[test]
fn without_failure_logs_the_other_papers_are_still_told() {
    for paper in Paper::ALL {
        let told = cells(paper, &[]).unwrap();
        assert_eq!(told.is_empty(), paper == Paper::ElSayed14, "{paper:?}");
        assert!(told.iter().all(|c| c.ours.is_none_or(f64::is_finite)), "{told:#?}");
    }
}

#[test]
fn a_mended_figure_is_not_called_printed() {
    let aupy = cells(Paper::Aupy15, &[]).unwrap();
    let energy = |source| aupy.iter().find(|c| c.quantity == "period for energy, min" && c.source == source).unwrap();
    assert_eq!(energy(Source::Mended).published, Some(128.0673));
    assert_eq!(energy(Source::Printed).published, Some(155.18));
}
