//! Notes what this library does not serve, for who has started the ranks: the program is started again without it then.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names the file in which it is noted; without it nobody would start the program again.
const VARIABLE: &str = "JOULEPOINT_FALLBACK";

/// For so long a note is new: a program may ask again and again for what it does not get.
const NEW: Duration = Duration::from_secs(10);

/// Notes what is in the way: if the program ends soon, it was for that.
pub fn note(reason: &str) {
    static LAST: Mutex<Option<(Instant, String)>> = Mutex::new(None);
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if last.as_ref().is_none_or(|(at, said)| said != reason || at.elapsed() > NEW) {
        *last = Some((Instant::now(), reason.to_owned()));
        // The program hears of it in any case. Nothing is taken out before: the first rank that ends has the others killed,
        // perhaps between two calls of the system here.
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let _ = opened.and_then(|mut file| file.write_all(format!("{reason}\n").as_bytes()));
    }
}
