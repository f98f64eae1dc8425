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
    /// One line for the user; none if there is nothing.
    pub fn line(&self) -> Option<String> {
        let more = self.count.saturating_sub(self.names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (self.count > 0).then(|| {
            format!("changed since that checkpoint, which is not undone: {}{more}; what the program did to them it does again", self.names.join(", "))
        })
    }
}
