//! Sets the papers' figures beside ours, and says of each whether it reproduces.

mod aupy;
mod balladini;
mod bouteiller;
mod elsayed;
mod mills;

use crate::Error;
use crate::trace::Trace;

/// A paper whose figures are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// Aupy, Benoit, Diouri, Glück, Lefèvre, *Energy-aware checkpointing strategies*.
    Aupy15,
    /// El-Sayed, Schroeder, *To checkpoint or not to checkpoint*.
    ElSayed14,
    /// Bouteiller et al., *Multi-criteria checkpointing strategies*.
    Bouteiller13,
    /// Balladini, Morán, Rexachs, Luque, *Metodología para predecir el consumo energético de checkpoints*.
    Balladini,
    /// Mills, Znati, Melhem, *Shadow computing*.
    Mills,
}

impl Paper {
    /// Every paper.
    pub const ALL: [Paper; 5] = [Paper::Aupy15, Paper::ElSayed14, Paper::Bouteiller13, Paper::Balladini, Paper::Mills];

    /// The name that options and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Paper::Aupy15 => "aupy15",
            Paper::ElSayed14 => "elsayed14",
            Paper::Bouteiller13 => "bouteiller13",
            Paper::Balladini => "balladini",
            Paper::Mills => "mills",
        }
    }
}

/// The failures of one Los Alamos system.
#[derive(Clone, Debug)]
pub struct System {
    /// Its number in the release.
    pub id: u32,
    /// Its failures.
    pub trace: Trace,
}

/// Who gives the figure that ours is set beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The paper prints it.
    Printed,
    /// Recomputed from the paper's model with its errata mended, by others than us; the paper does not print it so.
    Mended,
}

/// What is expected of a cell before its figures are compared.
#[derive(Clone, Debug, PartialEq)]
enum Expectation {
    Reproduces,
    Differs(String),
    Incomparable(String),
}

/// Whether a figure reproduces.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Within the tolerance.
    Yes,
    /// Not, and why: the erratum, where one explains it.
    No(String),
    /// There is nothing to compare, and why.
    Cannot(String),
}

/// One figure of a paper and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The paper.
    pub paper: Paper,
    /// Where in the paper.
    pub place: String,
    /// What it is, with its unit.
    pub quantity: String,
    /// The figure that ours is set beside, where it is known.
    pub published: Option<f64>,
    /// Who gives it.
    pub source: Source,
    /// Ours, where it can be computed.
    pub ours: Option<f64>,
    /// How far apart they may be: half a unit of the last digit printed, unless said otherwise.
    pub tolerance: f64,
    expectation: Expectation,
}

impl Cell {
    fn printed(paper: Paper, place: impl Into<String>, quantity: impl Into<String>, printed: f64, ours: f64) -> Cell {
        Cell {
            paper,
            place: place.into(),
            quantity: quantity.into(),
            published: Some(printed),
            source: Source::Printed,
            ours: Some(ours),
            tolerance: 0.0,
            expectation: Expectation::Reproduces,
        }
    }

    fn mended(paper: Paper, place: impl Into<String>, quantity: impl Into<String>, known: f64, ours: f64) -> Cell {
        Cell { source: Source::Mended, ..Cell::printed(paper, place, quantity, known, ours) }
    }

    /// Ours alone: what the paper prints is not known here.
    fn ours(paper: Paper, place: impl Into<String>, quantity: impl Into<String>, ours: f64) -> Cell {
        Cell { published: None, ..Cell::printed(paper, place, quantity, 0.0, ours) }
            .incomparable("printed figure unknown")
    }

    fn within(self, tolerance: f64) -> Cell {
        Cell { tolerance, ..self }
    }

    fn erratum(self, erratum: &str) -> Cell {
        self.may_differ(format!("erratum {erratum}"))
    }

    fn may_differ(self, why: impl Into<String>) -> Cell {
        Cell { expectation: Expectation::Differs(why.into()), ..self }
    }

    fn incomparable(self, why: impl Into<String>) -> Cell {
        Cell { expectation: Expectation::Incomparable(why.into()), ..self }
    }

    /// Ours minus the published figure.
    pub fn difference(&self) -> Option<f64> {
        Some(self.ours? - self.published?)
    }

    /// Whether the figure reproduces.
    pub fn verdict(&self) -> Verdict {
        let close = self.difference().is_some_and(|d| d.abs() <= self.tolerance);
        match &self.expectation {
            Expectation::Incomparable(why) => Verdict::Cannot(why.clone()),
            _ if close => Verdict::Yes,
            Expectation::Differs(why) => Verdict::No(why.clone()),
            Expectation::Reproduces => Verdict::No("no erratum explains it".to_owned()),
        }
    }
}

/// The cells of one paper. ElSayed14's need failure logs; the others ignore them.
pub fn cells(paper: Paper, systems: &[System]) -> Result<Vec<Cell>, Error> {
    match paper {
        Paper::Aupy15 => Ok(aupy::cells()?),
        Paper::ElSayed14 => elsayed::cells(systems),
        Paper::Bouteiller13 => Ok(bouteiller::cells()),
        Paper::Balladini => Ok(balladini::cells()?),
        Paper::Mills => Ok(mills::cells()),
    }
}
