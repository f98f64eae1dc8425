//! Decides protocol, interval and lending, and says why.
//!
//! Every function here is pure: the time, the measured costs and the failure history are arguments.
//! Nothing in this crate knows Slurm, a clock, a file, a format or a thread.
//!
//! | module | holds |
//! |---|---|
//! | [`adaptive`] | the policy `auto`: checkpoints placed by a hazard that learns |
//! | [`interval`] | which interval to use, under which bounds, and why |
//! | [`choice`] | which protocol to use: time and energy of the whole run under each, with their uncertainty |
//! | [`decide`] | whether to checkpoint now, wait, or rest, and which checkpoints of groups are a line of all |
//! | [`lending`] | whether survivors of a failure go to a queued job |
//! | [`mtbf`] | estimators of the mean time between failures |
//! | [`periods`] | periods for time and for energy (Aupy15 §1.2), Young, Daly, Meneses |
//! | [`memoryless`] | the exact renewal model that is used where Aupy15's expansion has no solution |
//! | [`calibration`] | calibration fits and energy estimation (Aupy15 §1.3) |
//! | [`estimate`] | duration, power and energy of an operation from measured points, with their uncertainty |
//! | [`repeated`] | repeated measurements: outliers, mean, confidence interval |
//! | [`refine`] | corrections of estimates by real runs |
//! | [`bounds`] | energy-optimal intervals with runtime and I/O bounds (ElSayed14) |
//! | [`waste`] | application and platform waste, and the lending decision (Bouteiller13) |
//! | [`frequency`] | checkpoint energy by size and CPU frequency (Balladini) |
//! | [`shadow`] | shadow replication (Mills) |
//! | [`special`] | the special functions that the models need |

pub mod adaptive;
pub mod bounds;
pub mod calibration;
pub mod choice;
pub mod decide;
pub mod estimate;
pub mod frequency;
pub mod interval;
mod invalid;
pub mod lending;
pub mod memoryless;
pub mod mtbf;
pub mod periods;
mod phrase;
pub mod refine;
pub mod repeated;
mod residual;
pub mod shadow;
pub mod special;
pub mod waste;

pub use invalid::Invalid;
