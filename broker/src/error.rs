//! Why the broker cannot do something.

/// What the broker says in place of an answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Slurm does not, or refuses.
    #[error(transparent)]
    Slurm(#[from] slurm::Error),
    /// A loan is not allowed, and why.
    #[error("{0}")]
    Refused(String),
    /// A return is expected later than the site allows.
    #[error("return_s = {return_s} is later than lend.longest_s = {longest_s} allows")]
    LateReturn {
        /// When, s since the epoch.
        return_s: f64,
        /// The site's limit, s.
        longest_s: f64,
    },
    /// A job to which something is to be done is not among the chosen ones.
    #[error("the borrower was not chosen")]
    NotChosen,
    /// Of a loan's helper jobs not every line of Slurm's is understood.
    #[error("not every job named {0} is understood, and nothing is done for its loan meanwhile")]
    Unclear(String),
    /// A borrower's wrapper cannot be given its order.
    #[error("the order is not taken: {0}")]
    NotOrdered(crate::ports::NotOrdered),
}

/// What the broker answers.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;
