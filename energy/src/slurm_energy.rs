//! Asks a node's slurmd for its energy, in a child process that libslurm may end.
//!
//! libslurm's `fatal()` ends the process and its structures change with every series, so no daemon links it:
//! this is the body of a hidden subcommand that lives for one question. The slurmd answers only root and
//! SlurmUser. Its answer is a cached structure or a fresh one; `base_consumed_energy + consumed_energy` is
//! the absolute counter in both.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::ffi::{CStr, CString, c_char, c_int, c_void};

/// The libraries of the series 22.05 to 26.05, newest first.
const SERIES: std::ops::RangeInclusive<u32> = 38..=45;

/// A cached answer may be so old; below the usual AcctGatherNodeFreq this asks for a fresh one.
const DELTA_S: u16 = 1;

/// The beginning of `acct_gather_energy_t`, the same in every series from 22.05 to 26.05. Only the first
/// element of the answer is read, so the rest of the structure, which does change, does not matter.
#[repr(C)]
struct EnergyHead {
    ave_watts: u32,
    base_consumed_energy: u64,
    consumed_energy: u64,
    current_watts: u32,
}

type Init = unsafe extern "C" fn(*const c_char);
type GetNodeEnergy = unsafe extern "C" fn(*mut c_char, u16, u16, *mut u16, *mut *mut EnergyHead) -> c_int;

/// Slurm's word for "no value".
const NO_VAL64: u64 = 0xffff_ffff_ffff_fffe;
const NO_VAL: u32 = 0xffff_fffe;

/// Prints the joules of `node` as one line of JSON; 0, or 1 with a reason on stderr.
pub fn slurm_helper_main(node: &str) -> i32 {
    match ask(node) {
        Ok(line) => {
            println!("{line}");
            0
        }
        Err(reason) => {
            eprintln!("slurm energy of {node}: {reason}");
            1
        }
    }
}

fn ask(node: &str) -> Result<String, String> {
    let name = CString::new(node).map_err(|_| "the node's name holds a zero byte".to_string())?;
    let library = open_library()?;
    let init = symbol(library, c"slurm_init").ok();
    let get = symbol(library, c"slurm_get_node_energy")?;
    // SAFETY: the address is that of libslurm's function of this name, whose declaration is the same in all
    // series opened here.
    let get: GetNodeEnergy = unsafe { std::mem::transmute::<*mut c_void, GetNodeEnergy>(get) };
    if let Some(init) = init {
        // SAFETY: as above: `void slurm_init(const char *conf)`.
        let init: Init = unsafe { std::mem::transmute::<*mut c_void, Init>(init) };
        // SAFETY: a null name asks for the default configuration. It may end this process, which is why this
        // process exists.
        unsafe { init(std::ptr::null()) };
    }
    let (mut count, mut list) = (0_u16, std::ptr::null_mut::<EnergyHead>());
    // SAFETY: the name lives through the call and is not written to; both results point to live variables.
    let code = unsafe { get(name.as_ptr().cast_mut(), 0, DELTA_S, &mut count, &mut list) };
    if code != 0 {
        return Err(describe_errno(library));
    }
    if count == 0 || list.is_null() {
        return Err("slurmd has no energy sensor (AcctGatherEnergyType is not set)".into());
    }
    // SAFETY: libslurm has put `count` > 0 structures there, each of which begins with our fields; it came from
    // its allocator, which aligns for any type. It is not freed: the process ends now.
    let head = unsafe { list.read() };
    answer(node, count, &head)
}

fn answer(node: &str, sensors: u16, head: &EnergyHead) -> Result<String, String> {
    let EnergyHead { base_consumed_energy: base_j, consumed_energy: since_j, .. } = *head;
    if base_j >= NO_VAL64 || since_j >= NO_VAL64 || base_j.saturating_add(since_j) == 0 {
        return Err("slurmd's energy plugin gives no value".into());
    }
    let watts = |w: u32| if w >= NO_VAL { "null".to_string() } else { w.to_string() };
    let joules = base_j.saturating_add(since_j);
    Ok(format!(
        "{{\"joules\":{joules},\"base_j\":{base_j},\"consumed_j\":{since_j},\"current_w\":{},\"ave_w\":{},\"sensors\":{sensors},\"node\":{node:?}}}",
        watts(head.current_watts),
        watts(head.ave_watts),
    ))
}

fn open_library() -> Result<*mut c_void, String> {
    let mut last = String::new();
    for series in SERIES.rev() {
        let Ok(name) = CString::new(format!("libslurm.so.{series}")) else { continue };
        // SAFETY: the name is a C string; running the library's constructors is what we are here for. Its
        // symbols are global because Slurm's plugins, which it loads, look there for them.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if !library.is_null() {
            return Ok(library);
        }
        // SAFETY: dlerror gives null or a C string that lives until the next call of this thread.
        let text = unsafe { libc::dlerror() };
        if !text.is_null() {
            // SAFETY: not null, see above.
            last = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        }
    }
    Err(format!("no libslurm.so.38 to .45 can be loaded: {last}"))
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the library is open and the name is a C string.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() { Err(format!("libslurm has no {}", name.to_string_lossy())) } else { Ok(address) }
}

/// Slurm's message for its last error.
fn describe_errno(library: *mut c_void) -> String {
    let number = std::io::Error::last_os_error().raw_os_error().unwrap_or(-1);
    let Ok(address) = symbol(library, c"slurm_strerror") else { return format!("error {number}") };
    // SAFETY: `char *slurm_strerror(int)` in every series.
    let strerror = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> *const c_char>(address) };
    // SAFETY: it gives a static text, or null.
    let text = unsafe { strerror(number) };
    if text.is_null() {
        return format!("error {number}");
    }
    // SAFETY: not null, and static.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    format!("{text} (error {number})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(base_consumed_energy: u64, consumed_energy: u64) -> EnergyHead {
        EnergyHead { ave_watts: NO_VAL, base_consumed_energy, consumed_energy, current_watts: 350 }
    }

    #[test]
    fn the_counter_is_base_and_consumed_together() {
        let line = answer("n1", 1, &head(1_000_000, 980)).unwrap();
        assert!(line.starts_with("{\"joules\":1000980,"), "{line}");
        assert!(line.contains("\"current_w\":350,\"ave_w\":null,\"sensors\":1,\"node\":\"n1\""), "{line}");
    }

    #[test]
    fn no_value_is_no_joules() {
        for (base, since) in [(NO_VAL64, 0), (0, NO_VAL64), (u64::MAX, 0), (0, 0)] {
            assert!(answer("n1", 1, &head(base, since)).is_err());
        }
    }

    #[test]
    fn a_name_with_a_zero_byte_is_refused() {
        assert_eq!(slurm_helper_main("n\0x"), 1);
    }

    #[test]
    fn the_fields_lie_where_every_series_has_them() {
        assert_eq!(std::mem::offset_of!(EnergyHead, base_consumed_energy), 8);
        assert_eq!(std::mem::offset_of!(EnergyHead, consumed_energy), 16);
        assert_eq!(std::mem::offset_of!(EnergyHead, current_watts), 24);
    }
}
