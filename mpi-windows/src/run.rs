//! Which bytes of a window are meant: a datatype's bytes, one after another as MPI packs them.
// SPDX-License-Identifier: GPL-2.0-or-later

use serde::{Deserialize, Serialize};

/// Bytes that lie one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// From the window's beginning, bytes.
    pub at: i64,
    /// How many.
    pub bytes: u64,
}

/// Joins runs that follow each other.
#[must_use]
pub fn joined(runs: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut out: Vec<Run> = Vec::new();
    for run in runs.into_iter().filter(|run| run.bytes > 0) {
        match out.last_mut() {
            Some(last) if last.at + last.bytes as i64 == run.at => last.bytes += run.bytes,
            _ => out.push(run),
        }
    }
    out
}

/// The runs of `count` elements, of which each has these and the next begins `extent` bytes later; moved by `at`.
#[must_use]
pub fn repeated(of_one: &[Run], count: usize, extent: i64, at: i64) -> Vec<Run> {
    joined((0..count as i64).flat_map(|i| of_one.iter().map(move |run| Run { at: run.at + at + i * extent, ..*run })))
}

/// The runs of an element, from where its packed bytes land: unpacked from a count from 1 on of which each pass has one byte (the
/// lowest first), each into zeros, it left `passes`. None if bytes land on others. `size` is how many are packed, and `lower`
/// where the first byte of each pass lies.
#[must_use]
pub fn of_element(passes: &[Vec<u8>], size: usize, lower: i64) -> Option<Vec<Run>> {
    let mut places = vec![None; size];
    for at in 0..passes.first()?.len() {
        let number = passes.iter().rev().fold(0_usize, |number, pass| number << 8 | usize::from(pass[at]));
        if let Some(place) = number.checked_sub(1) {
            *places.get_mut(place)? = Some(at as i64);
        }
    }
    let places: Option<Vec<i64>> = places.into_iter().collect();
    Some(joined(places?.into_iter().map(|at| Run { at: at + lower, bytes: 1 })))
}

/// How many passes tell `size` bytes apart.
#[must_use]
pub fn passes(size: usize) -> usize {
    (1..).find(|passes| passes * 8 >= usize::BITS as usize || size < 1 << (8 * passes)).unwrap_or(8)
}

/// The packed bytes of a pass.
#[must_use]
pub fn pass(size: usize, which: usize) -> Vec<u8> {
    (1..=size).map(|number| (number >> (8 * which)) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an element of these runs leaves, by pass.
    fn unpacked(runs: &[Run], size: usize, extent: usize) -> Vec<Vec<u8>> {
        (0..passes(size))
            .map(|which| {
                let (packed, mut out) = (pass(size, which), vec![0; extent]);
                let places = runs.iter().flat_map(|run| run.at..run.at + run.bytes as i64);
                packed.iter().zip(places).for_each(|(byte, at)| out[at as usize] = *byte);
                out
            })
            .collect()
    }

    #[test]
    fn an_elements_bytes_are_found_by_where_they_land() {
        let runs = [Run { at: 400, bytes: 300 }, Run { at: 8, bytes: 3 }, Run { at: 0, bytes: 4 }];
        assert_eq!(of_element(&unpacked(&runs, 307, 1000), 307, 0), Some(runs.to_vec()));
        let moved = of_element(&unpacked(&runs, 307, 1000), 307, -16).expect("runs");
        assert_eq!(moved[0], Run { at: 384, bytes: 300 });
        let twice = [Run { at: 0, bytes: 4 }, Run { at: 2, bytes: 4 }];
        assert_eq!(of_element(&unpacked(&twice, 8, 10), 8, 0), None, "bytes that land on others");
    }

    #[test]
    fn elements_without_gaps_are_one_run() {
        let of_one = [Run { at: 0, bytes: 4 }];
        assert_eq!(repeated(&of_one, 5, 4, 100), [Run { at: 100, bytes: 20 }]);
        assert_eq!(repeated(&of_one, 2, 8, 0), [Run { at: 0, bytes: 4 }, Run { at: 8, bytes: 4 }]);
        assert_eq!(repeated(&of_one, 0, 8, 0), []);
    }
}
