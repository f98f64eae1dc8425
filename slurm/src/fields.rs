//! Splits a `Key=Value Key=Value` line of `scontrol -o` whose values may hold spaces.
//!
//! Slurm quotes nothing: a job's name may be `x JobState=RUNNING`. A value therefore ends where the next *known*
//! key begins, and a key that decides something must occur exactly once, else the record is refused. Of a node, whose
//! texts only operators write, a key counts where it comes first.

use crate::Error;

/// Reads a user id. `squeue` of 22.05 prints those above 2^31, as directories give them, as negative numbers.
pub(crate) fn uid(what: &'static str, text: &str) -> Result<u32, Error> {
    let number: i64 = text.trim().parse().map_err(|_| Error::unreadable(what, text))?;
    let signed = || i32::try_from(number).ok().map(i32::cast_unsigned);
    u32::try_from(number).ok().or_else(signed).ok_or_else(|| Error::unreadable(what, text))
}

/// One record as the values of its known keys.
pub(crate) struct Fields<'a> {
    what: String,
    values: Vec<(&'static str, &'a str)>,
}

impl<'a> Fields<'a> {
    /// Splits `line` at the known keys.
    pub(crate) fn split(what: String, line: &'a str, known: &'static [&'static str]) -> Self {
        let starts = Self::starts(line, known);
        Fields { what, values: Self::values(line, &starts) }
    }

    /// Splits `line` like [`Fields::split`], but takes a key that occurs again for a part of the text before it.
    pub(crate) fn split_first(what: String, line: &'a str, known: &'static [&'static str]) -> Self {
        let mut starts = Self::starts(line, known);
        let mut seen = std::collections::HashSet::new();
        starts.retain(|(_, _, key)| seen.insert(*key));
        Fields { what, values: Self::values(line, &starts) }
    }

    /// Where known keys begin, where their values do, and which they are.
    fn starts(line: &str, known: &'static [&'static str]) -> Vec<(usize, usize, &'static str)> {
        let mut starts = Vec::new();
        let bytes = line.as_bytes();
        for (at, _) in line.match_indices('=') {
            let begin = bytes[..at]
                .iter()
                .rposition(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'/')))
                .map_or(0, |p| p + 1);
            let preceded = begin == 0 || bytes[begin - 1] == b' ';
            if preceded && let Some(key) = known.iter().find(|k| **k == &line[begin..at]) {
                starts.push((begin, at + 1, *key));
            }
        }
        starts
    }

    fn values(line: &'a str, starts: &[(usize, usize, &'static str)]) -> Vec<(&'static str, &'a str)> {
        starts
            .iter()
            .enumerate()
            .map(|(i, (_, from, key))| {
                let to = starts.get(i + 1).map_or(line.len(), |(begin, _, _)| *begin);
                (*key, line[*from..to].trim_end())
            })
            .collect()
    }

    /// The value of a key, nothing if absent; refused when it occurs twice.
    pub(crate) fn get(&self, key: &'static str) -> Result<Option<&'a str>, Error> {
        let mut found = self.values.iter().filter(|(k, _)| *k == key).map(|(_, v)| *v);
        let first = found.next();
        if found.next().is_some() {
            return Err(Error::Ambiguous { what: self.what.clone(), key });
        }
        Ok(first)
    }

    /// The value of a key that must be there.
    pub(crate) fn need(&self, key: &'static str) -> Result<&'a str, Error> {
        self.get(key)?.ok_or_else(|| Error::unreadable(key, "(absent)"))
    }

    /// The value as text, empty when Slurm says that there is none.
    pub(crate) fn text(&self, key: &'static str) -> Result<String, Error> {
        Ok(self.get(key)?.filter(|v| !is_none(v)).unwrap_or_default().to_owned())
    }

    /// The value as a number, `None` when Slurm says that there is none.
    pub(crate) fn number<T: std::str::FromStr>(&self, key: &'static str) -> Result<Option<T>, Error> {
        match self.get(key)?.filter(|v| !is_none(v)) {
            None => Ok(None),
            Some(v) => v.parse().map(Some).map_err(|_| Error::unreadable(key, v)),
        }
    }

    /// The value as seconds since the epoch.
    pub(crate) fn time(&self, key: &'static str) -> Result<Option<f64>, Error> {
        self.get(key)?.map_or(Ok(None), |v| time(key, v))
    }
}

/// Whether Slurm's text means "nothing".
pub(crate) fn is_none(value: &str) -> bool {
    matches!(value, "" | "(null)" | "N/A" | "n/a" | "Unknown" | "None" | "NONE" | "NOT_SET")
}

/// A moment as seconds since the epoch (the commands run with `SLURM_TIME_FORMAT=%s`).
pub(crate) fn time(key: &'static str, value: &str) -> Result<Option<f64>, Error> {
    if is_none(value) {
        return Ok(None);
    }
    value.parse().map(Some).map_err(|_| Error::unreadable(key, value))
}

/// A duration `[days-]hours:minutes:seconds` in seconds; `None` for no limit.
pub(crate) fn duration(key: &'static str, value: &str) -> Result<Option<u64>, Error> {
    if is_none(value) || matches!(value, "UNLIMITED" | "Partition_Limit" | "INVALID") {
        return Ok(None);
    }
    let wrong = || Error::unreadable(key, value);
    let (days, rest) = value.split_once('-').unwrap_or(("0", value));
    let mut seconds: u64 = days.parse::<u64>().map_err(|_| wrong())? * 86_400;
    let parts: Vec<&str> = rest.split(':').collect();
    let weights: &[u64] = match parts.len() {
        3 => &[3600, 60, 1],
        2 => &[60, 1],
        _ => return Err(wrong()),
    };
    for (part, weight) in parts.iter().zip(weights) {
        let whole = part.split('.').next().unwrap_or(part);
        seconds += whole.parse::<u64>().map_err(|_| wrong())? * weight;
    }
    Ok(Some(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_where_the_next_known_key_begins() {
        let f = Fields::split("x".into(), "A=one two=2 B=three", &["A", "B"]);
        assert_eq!(f.need("A").expect("A"), "one two=2");
        assert_eq!(f.need("B").expect("B"), "three");
    }

    #[test]
    fn a_key_that_occurs_twice_is_refused() {
        let f = Fields::split("x".into(), "A=a B=forged B=true", &["A", "B"]);
        assert!(matches!(f.get("B"), Err(Error::Ambiguous { key: "B", .. })));
    }

    #[test]
    fn durations() {
        for (text, seconds) in [
            ("01:00:00", Some(3600)),
            ("1-00:00:05", Some(86_405)),
            ("05:00", Some(300)),
            ("UNLIMITED", None),
            ("Partition_Limit", None),
            ("N/A", None),
        ] {
            assert_eq!(duration("t", text).expect(text), seconds, "{text}");
        }
        assert!(duration("t", "soon").is_err());
    }
}
