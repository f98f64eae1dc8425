//! Keeps Joulepoint's part of a job's AdminComment beside what the site wrote there.

/// How our part begins: the first key of `AdminSummary`.
const BEGIN: &str = "{\"joulepoint\":";

/// The longest AdminComment that is written, bytes: slurmdbd keeps 64 KiB.
const LONGEST: usize = 60_000;

/// The comment with our part put in place of an earlier one, or behind what the site wrote; nothing if it grows too
/// long.
pub fn beside(comment: &str, ours: &str) -> Option<String> {
    let text = match part(comment) {
        Some((begin, end)) => format!("{}{ours}{}", &comment[..begin], &comment[end..]),
        None if comment.trim().is_empty() => ours.to_string(),
        None => format!("{comment} {ours}"),
    };
    (text.len() <= LONGEST).then_some(text)
}

/// Where our part begins and ends: a whole JSON value, whatever stands around it.
fn part(comment: &str) -> Option<(usize, usize)> {
    comment.match_indices(BEGIN).find_map(|(begin, _)| {
        let mut values = serde_json::Deserializer::from_str(&comment[begin..]).into_iter::<serde_json::Value>();
        values.next()?.ok()?;
        Some((begin, begin + values.byte_offset()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_part_is_replaced() {
        let (one, two) = (r#"{"joulepoint":1,"run":"7.1","source":"a}b"}"#, r#"{"joulepoint":1,"run":"7.1"}"#);
        for (before, after) in [
            (String::new(), two.to_string()),
            (one.to_string(), two.to_string()),
            ("see ticket 5".to_string(), format!("see ticket 5 {two}")),
            (format!("see ticket 5 {one}; rack {{3}}"), format!("see ticket 5 {two}; rack {{3}}")),
            (r#"{"ticket":5}"#.to_string(), format!(r#"{{"ticket":5}} {two}"#)),
            (r#"{"joulepoint":1,"cut"#.to_string(), format!(r#"{{"joulepoint":1,"cut {two}"#)),
        ] {
            assert_eq!(beside(&before, two).as_deref(), Some(after.as_str()));
            assert_eq!(beside(&after, two).as_deref(), Some(after.as_str()), "again");
        }
    }

    #[test]
    fn a_comment_does_not_grow_without_end() {
        assert_eq!(beside(&"x".repeat(LONGEST), "{}"), None);
    }
}
