//! Turns Slurm's node list expressions into names and back.

use crate::Error;

/// More names than any Slurm cluster has: an expression that expands to more is refused.
const MOST_NAMES: usize = 200_000;

/// The names that an expression such as `n[1-3,05],x2` or `r[1-2]n[1-4]` stands for, in its order.
pub fn expand_nodelist(expression: &str) -> Result<Vec<String>, Error> {
    let text = expression.trim();
    if matches!(text, "" | "(null)" | "None assigned" | "None") {
        return Ok(Vec::new());
    }
    let in_a_name = |c: char| c.is_ascii_alphanumeric() || "-_.[],".contains(c);
    if !text.chars().all(in_a_name) {
        return Err(Error::unreadable("node list", text));
    }
    let mut names = Vec::new();
    for item in split_outside_brackets(text)? {
        expand_item(item, expression, &mut names)?;
    }
    Ok(names)
}

/// Splits at the commas that stand outside brackets.
fn split_outside_brackets(text: &str) -> Result<Vec<&str>, Error> {
    let (mut items, mut depth, mut from) = (Vec::new(), 0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '[' if depth == 0 => depth = 1,
            ']' if depth == 1 => depth = 0,
            '[' | ']' => return Err(Error::unreadable("node list", text)),
            ',' if depth == 0 => {
                items.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    if depth != 0 {
        return Err(Error::unreadable("node list", text));
    }
    items.push(&text[from..]);
    Ok(items)
}

/// Expands one item with any number of bracket groups.
fn expand_item(item: &str, whole: &str, names: &mut Vec<String>) -> Result<(), Error> {
    let wrong = || Error::unreadable("node list", whole);
    if item.is_empty() {
        return Err(wrong());
    }
    let mut made = vec![String::new()];
    let mut rest = item;
    while let Some((before, after)) = rest.split_once('[') {
        let (group, behind) = after.split_once(']').ok_or_else(wrong)?;
        let numbers = expand_group(group).ok_or_else(wrong)?;
        if made.len().saturating_mul(numbers.len()) + names.len() > MOST_NAMES {
            return Err(wrong());
        }
        made = made.iter().flat_map(|m| numbers.iter().map(move |n| format!("{m}{before}{n}"))).collect();
        rest = behind;
    }
    names.extend(made.into_iter().map(|m| m + rest));
    Ok(())
}

/// The numbers of `1-3,05`, with their leading zeros.
fn expand_group(group: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for part in group.split(',') {
        match part.split_once('-') {
            None if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() => {
                numbers.push(part.to_owned());
            }
            None => return None,
            Some((first, last)) => {
                let (a, b): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
                if a > b || (b - a) as usize >= MOST_NAMES {
                    return None;
                }
                let width = first.len();
                numbers.extend((a..=b).map(|n| format!("{n:0width$}")));
            }
        }
    }
    Some(numbers)
}

/// The shortest expression that stands for these names, each once, in natural order.
pub fn compress_nodelist<S: AsRef<str>>(names: &[S]) -> String {
    // (prefix, width of the number, number); width 0 for a number without leading zeros.
    let mut keys: Vec<(&str, usize, Option<u64>)> = names.iter().map(|n| key(n.as_ref())).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    let mut at = 0;
    while at < keys.len() {
        let (prefix, width, number) = keys[at];
        let Some(first) = number else {
            groups.push((prefix, Vec::new()));
            at += 1;
            continue;
        };
        let mut last = first;
        while keys.get(at + 1) == Some(&(prefix, width, Some(last + 1))) {
            last += 1;
            at += 1;
        }
        at += 1;
        let text = if first == last { format!("{first:0width$}") } else { format!("{first:0width$}-{last:0width$}") };
        match groups.last_mut() {
            Some((p, ranges)) if *p == prefix && !ranges.is_empty() => ranges.push(text),
            _ => groups.push((prefix, vec![text])),
        }
    }
    let written: Vec<String> = groups
        .into_iter()
        .map(|(prefix, ranges)| match ranges.as_slice() {
            [] => prefix.to_owned(),
            [one] if !one.contains('-') => format!("{prefix}{one}"),
            _ => format!("{prefix}[{}]", ranges.join(",")),
        })
        .collect();
    written.join(",")
}

/// A name as prefix, width and number.
fn key(name: &str) -> (&str, usize, Option<u64>) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    // More than 18 digits do not fit a u64: such a name stands for itself.
    if digits == 0 || digits > 18 {
        return (name, 0, None);
    }
    let (prefix, number) = name.split_at(name.len() - digits);
    let width = if number.starts_with('0') && digits > 1 { digits } else { 0 };
    (prefix, width, number.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> String {
        expand_nodelist(text).expect(text).join(" ")
    }

    #[test]
    fn expressions_expand() {
        assert_eq!(expand("n[1-3,05],x2"), "n1 n2 n3 n05 x2");
        assert_eq!(expand("r[1-2]n[08-10]"), "r1n08 r1n09 r1n10 r2n08 r2n09 r2n10");
        assert_eq!(expand("n[1-2]-ib"), "n1-ib n2-ib");
        assert_eq!(expand("login"), "login");
        assert_eq!(expand("(null)"), "");
        assert_eq!(expand(""), "");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "n[1-",
            "n[3-1]",
            "n[a-b]",
            "n]1[",
            "n[[1]]",
            "n[0-99999999]",
            "a,,b",
            "n[]",
            "n[+1-2]",
            "a b",
            "n\u{1}",
            "n;rm",
        ] {
            assert!(expand_nodelist(text).is_err(), "{text}");
        }
        assert!(expand_nodelist(&"n[1-999]".repeat(4)).is_err(), "product too large");
    }

    #[test]
    fn names_compress() {
        assert_eq!(compress_nodelist(&["n3", "n1", "n2", "n05", "x2"]), "n[1-3,05],x2");
        assert_eq!(compress_nodelist(&["n1"]), "n1");
        assert_eq!(compress_nodelist(&["login", "n10", "n9"]), "login,n[9-10]");
        assert_eq!(compress_nodelist::<&str>(&[]), "");
    }

    #[test]
    fn what_is_compressed_expands_to_the_same_names() {
        let names = ["a", "a1", "a01", "a002", "a10", "b-7", "b-8", "z99999999999999999999"];
        let mut back = expand_nodelist(&compress_nodelist(&names)).expect("own expression");
        back.sort();
        let mut wanted: Vec<&str> = names.to_vec();
        wanted.sort_unstable();
        assert_eq!(back, wanted);
    }
}
