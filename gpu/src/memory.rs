//! How much memory GPUs have in use and left, as NVIDIA's management library tells.

use crate::driver::Gpu;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::path::Path;

/// Its file; the driver puts it beside its other library.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// How the number of a device begins: of a GPU, or of a part of one.
const KINDS: [&str; 2] = ["GPU", "MIG"];

/// The memory of a GPU, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// In use, by whomever.
    pub(crate) used_bytes: u64,
    /// Left.
    pub(crate) free_bytes: u64,
}

/// The memory of each of these GPUs; `driver` is the file of the driver's other library.
///
/// # Errors
/// What the management library says.
pub(crate) fn of(driver: &Path, gpus: &[Gpu]) -> Result<Vec<Memory>, NvmlError> {
    let beside = driver.with_file_name(LIBRARY);
    let library = if beside.exists() { beside.as_os_str() } else { LIBRARY.as_ref() };
    let library = Nvml::builder().lib_path(library).init()?;
    let of_one = |gpu: &Gpu| {
        let [whole, part] = KINDS.map(|kind| format!("{kind}-{}", gpu.uuid));
        let one = library.device_by_uuid(whole).or_else(|_| library.device_by_uuid(part))?.memory_info()?;
        Ok(Memory { used_bytes: one.used, free_bytes: one.free })
    };
    gpus.iter().map(of_one).collect()
}
