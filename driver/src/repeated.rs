//! What a program did since its checkpoint that a restore does not undo: it will do that again.

/// Files and folders that were changed since a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// The first of them, relative to the job's folder.
    pub names: Vec<String>,
    /// How many there are.
    pub count: usize,
}

impl Repeated {
    /// One line for the user of a run that goes on from a checkpoint, or else begins anew; none if there is nothing.
    pub fn line(&self, goes_on: bool) -> Option<String> {
        let more = self.count.saturating_sub(self.names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let names = self.names.join(", ");
        (self.count > 0).then(|| match goes_on {
            true => format!(
                "changed since that checkpoint, which is not undone: {names}{more}; what the program did to them it does \
                 again (other files that it holds open, and those in $TMPDIR, go back with it)"
            ),
            false => format!(
                "changed in its folder since it first began: {names}{more}; what the script has done to them it does again"
            ),
        })
    }
}
