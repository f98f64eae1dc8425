//! What a program did since its checkpoint that a restore does not undo: it will do that again.

/// Files and folders that were changed since a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// The first of them, relative to the job's folder.
    pub names: Vec<String>,
    /// How many there are.
    pub count: usize,
    /// Whether there was too much to look at all of it.
    pub is_partial: bool,
}

impl Repeated {
    /// One line for the user of a run that goes on from a checkpoint, or else begins anew; none if there is nothing.
    pub fn line(&self, goes_on: bool) -> Option<String> {
        if self.count == 0 && !self.is_partial {
            return None;
        }
        let partial = "not all files could be looked at";
        let names = match (self.count, self.count.saturating_sub(self.names.len())) {
            (0, _) => return Some(format!("no change of files since then was found, but {partial}")),
            (_, 0) => self.names.join(", "),
            (_, more) => format!("{} and {more} more", self.names.join(", ")),
        };
        let partial = if self.is_partial { format!(" ({partial})") } else { String::new() };
        Some(match goes_on {
            true => format!(
                "changed since that checkpoint, which is not undone: {names}{partial}; what the program did to files it \
                 does again, and what it took from them (a queue, a counter) may be left out: check the result (other \
                 files that it holds open, and those in a $TMPDIR of its own, go back with it)"
            ),
            false => format!(
                "changed in its folder since it first began: {names}{partial}; what the script has done to them it does \
                 again"
            ),
        })
    }
}
