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

/// The runs of an element, from what is packed of it: of memory in which each byte has its own number, of which each pass has one byte
/// (the lowest first). `lower` is where the byte of number 0 lies.
#[must_use]
pub fn of_element(passes: &[Vec<u8>], lower: i64) -> Vec<Run> {
    let packed = passes.first().map_or(0, Vec::len);
    let number = |at: usize| passes.iter().rev().fold(0_i64, |number, pass| number << 8 | i64::from(pass[at]));
    joined((0..packed).map(|at| Run { at: lower + number(at), bytes: 1 }))
}

/// How many passes tell so many bytes of memory apart.
#[must_use]
pub fn passes(bytes: usize) -> usize {
    (1..8).find(|passes| bytes <= 1 << (8 * passes)).unwrap_or(8)
}

/// The memory of a pass.
#[must_use]
pub fn pass(bytes: usize, which: usize) -> Vec<u8> {
    (0..bytes).map(|number| (number >> (8 * which)) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is packed of an element of these runs, by pass.
    fn packed(runs: &[Run], extent: usize) -> Vec<Vec<u8>> {
        let of = |which| {
            let memory = pass(extent, which);
            runs.iter().flat_map(|run| memory[run.at as usize..][..run.bytes as usize].to_vec()).collect()
        };
        (0..passes(extent)).map(of).collect()
    }

    #[test]
    fn an_elements_bytes_are_found_by_what_is_packed_of_it() {
        let runs = [Run { at: 400, bytes: 300 }, Run { at: 8, bytes: 3 }, Run { at: 0, bytes: 4 }];
        assert_eq!(of_element(&packed(&runs, 1000), 0), runs);
        assert_eq!(of_element(&packed(&runs, 1000), -16)[0], Run { at: 384, bytes: 300 });
        let twice = [Run { at: 0, bytes: 4 }, Run { at: 2, bytes: 4 }];
        assert_eq!(of_element(&packed(&twice, 10), 0), twice, "bytes that stand twice");
        assert_eq!((passes(256), passes(257), passes(1 << 16)), (1, 2, 2));
    }

    #[test]
    fn elements_without_gaps_are_one_run() {
        let of_one = [Run { at: 0, bytes: 4 }];
        assert_eq!(repeated(&of_one, 5, 4, 100), [Run { at: 100, bytes: 20 }]);
        assert_eq!(repeated(&of_one, 2, 8, 0), [Run { at: 0, bytes: 4 }, Run { at: 8, bytes: 4 }]);
        assert_eq!(repeated(&of_one, 0, 8, 0), []);
    }
}
