//! Reads the commands out of a page, so that a test can follow it to the letter.

/// The page whose scripts are to be copied, from the repository's folder.
pub const RECIPES: &str = "docs/recipes.md";

/// One fenced block of a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The headline above it.
    pub step: String,
    /// What stands behind the fence, as `sh controller`.
    pub words: Vec<String>,
    /// What is in it.
    pub text: String,
}

/// All fenced blocks of a page, in their order.
pub fn blocks(page: &str) -> Vec<Block> {
    let (mut found, mut step, mut open) = (Vec::new(), String::new(), None::<Block>);
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(words)) => {
                let words = words.split_whitespace().map(str::to_string).collect();
                open = Some(Block { step: step.clone(), words, text: String::new() });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) if line.starts_with('#') => step = line.trim_start_matches('#').trim().to_string(),
            (None, None) => {}
        }
    }
    found
}

/// The files of a page, by name: blocks that say a language and a name, as `bash python.sh`.
pub fn files(page: &str) -> Vec<(String, String)> {
    let file = |block: Block| match block.words.as_slice() {
        [_, name] if name.contains('.') => Some((name.clone(), block.text)),
        _ => None,
    };
    blocks(page).into_iter().filter_map(file).collect()
}
