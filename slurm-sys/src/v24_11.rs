//! Declarations of Slurm 24.11, made by `examples/generate.rs`; do not edit.
// SPDX-License-Identifier: GPL-2.0-or-later

pub type slurm_err_t = ::std::os::raw::c_uint;
pub type __time_t = ::std::os::raw::c_long;
pub type time_t = __time_t;
pub type acct_gather_energy_t = acct_gather_energy;
pub type spank_t = *mut spank_handle;
pub type spank_f = ::std::option::Option<
    unsafe extern "C" fn(
        spank: spank_t,
        ac: ::std::os::raw::c_int,
        argv: *mut *mut ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int,
>;
pub type spank_item = ::std::os::raw::c_uint;
pub type spank_context = ::std::os::raw::c_uint;
pub type spank_opt_cb_f = ::std::option::Option<
    unsafe extern "C" fn(
        val: ::std::os::raw::c_int,
        optarg: *const ::std::os::raw::c_char,
        remote: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int,
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct acct_gather_energy {
    pub ave_watts: u32,
    pub base_consumed_energy: u64,
    pub consumed_energy: u64,
    pub current_watts: u32,
    pub last_adjustment: u64,
    pub previous_consumed_energy: u64,
    pub poll_time: time_t,
    pub slurmd_start_time: time_t,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spank_handle {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct spank_option {
    pub name: *mut ::std::os::raw::c_char,
    pub arginfo: *mut ::std::os::raw::c_char,
    pub usage: *mut ::std::os::raw::c_char,
    pub has_arg: ::std::os::raw::c_int,
    pub val: ::std::os::raw::c_int,
    pub cb: spank_opt_cb_f,
}
pub const SLURM_SUCCESS: u32 = 0;
pub const SLURM_ERROR: i32 = -1;
pub const INFINITE16: u32 = 65535;
pub const INFINITE: u32 = 4294967295;
pub const NO_VAL16: u32 = 65534;
pub const NO_VAL: u32 = 4294967294;
pub const SLURM_PENDING_STEP: u32 = 4294967293;
pub const SLURM_EXTERN_CONT: u32 = 4294967292;
pub const SLURM_BATCH_SCRIPT: u32 = 4294967291;
pub const SLURM_INTERACTIVE_STEP: u32 = 4294967290;
pub const SPANK_OPTION_MAXLEN: u32 = 75;
pub const ESPANK_ERROR: slurm_err_t = 3000;
pub const ESPANK_BAD_ARG: slurm_err_t = 3001;
pub const ESPANK_NOT_TASK: slurm_err_t = 3002;
pub const ESPANK_ENV_EXISTS: slurm_err_t = 3003;
pub const ESPANK_ENV_NOEXIST: slurm_err_t = 3004;
pub const ESPANK_NOSPACE: slurm_err_t = 3005;
pub const ESPANK_NOT_REMOTE: slurm_err_t = 3006;
pub const ESPANK_NOEXIST: slurm_err_t = 3007;
pub const ESPANK_NOT_EXECD: slurm_err_t = 3008;
pub const ESPANK_NOT_AVAIL: slurm_err_t = 3009;
pub const ESPANK_NOT_LOCAL: slurm_err_t = 3010;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of acct_gather_energy",
    ][::std::mem::size_of::<acct_gather_energy>() - 64usize];
    [
        "Alignment of acct_gather_energy",
    ][::std::mem::align_of::<acct_gather_energy>() - 8usize];
    [
        "Offset of field: acct_gather_energy::ave_watts",
    ][::std::mem::offset_of!(acct_gather_energy, ave_watts) - 0usize];
    [
        "Offset of field: acct_gather_energy::base_consumed_energy",
    ][::std::mem::offset_of!(acct_gather_energy, base_consumed_energy) - 8usize];
    [
        "Offset of field: acct_gather_energy::consumed_energy",
    ][::std::mem::offset_of!(acct_gather_energy, consumed_energy) - 16usize];
    [
        "Offset of field: acct_gather_energy::current_watts",
    ][::std::mem::offset_of!(acct_gather_energy, current_watts) - 24usize];
    [
        "Offset of field: acct_gather_energy::last_adjustment",
    ][::std::mem::offset_of!(acct_gather_energy, last_adjustment) - 32usize];
    [
        "Offset of field: acct_gather_energy::previous_consumed_energy",
    ][::std::mem::offset_of!(acct_gather_energy, previous_consumed_energy) - 40usize];
    [
        "Offset of field: acct_gather_energy::poll_time",
    ][::std::mem::offset_of!(acct_gather_energy, poll_time) - 48usize];
    [
        "Offset of field: acct_gather_energy::slurmd_start_time",
    ][::std::mem::offset_of!(acct_gather_energy, slurmd_start_time) - 56usize];
};
pub const S_JOB_UID: spank_item = 0;
pub const S_JOB_GID: spank_item = 1;
pub const S_JOB_ID: spank_item = 2;
pub const S_JOB_STEPID: spank_item = 3;
pub const S_JOB_NNODES: spank_item = 4;
pub const S_JOB_NODEID: spank_item = 5;
pub const S_JOB_LOCAL_TASK_COUNT: spank_item = 6;
pub const S_JOB_TOTAL_TASK_COUNT: spank_item = 7;
pub const S_JOB_NCPUS: spank_item = 8;
pub const S_JOB_ARGV: spank_item = 9;
pub const S_JOB_ENV: spank_item = 10;
pub const S_TASK_ID: spank_item = 11;
pub const S_TASK_GLOBAL_ID: spank_item = 12;
pub const S_TASK_EXIT_STATUS: spank_item = 13;
pub const S_TASK_PID: spank_item = 14;
pub const S_JOB_PID_TO_GLOBAL_ID: spank_item = 15;
pub const S_JOB_PID_TO_LOCAL_ID: spank_item = 16;
pub const S_JOB_LOCAL_TO_GLOBAL_ID: spank_item = 17;
pub const S_JOB_GLOBAL_TO_LOCAL_ID: spank_item = 18;
pub const S_JOB_SUPPLEMENTARY_GIDS: spank_item = 19;
pub const S_SLURM_VERSION: spank_item = 20;
pub const S_SLURM_VERSION_MAJOR: spank_item = 21;
pub const S_SLURM_VERSION_MINOR: spank_item = 22;
pub const S_SLURM_VERSION_MICRO: spank_item = 23;
pub const S_STEP_CPUS_PER_TASK: spank_item = 24;
pub const S_JOB_ALLOC_CORES: spank_item = 25;
pub const S_JOB_ALLOC_MEM: spank_item = 26;
pub const S_STEP_ALLOC_CORES: spank_item = 27;
pub const S_STEP_ALLOC_MEM: spank_item = 28;
pub const S_SLURM_RESTART_COUNT: spank_item = 29;
pub const S_JOB_ARRAY_ID: spank_item = 30;
pub const S_JOB_ARRAY_TASK_ID: spank_item = 31;
pub const S_CTX_ERROR: spank_context = 0;
pub const S_CTX_LOCAL: spank_context = 1;
pub const S_CTX_REMOTE: spank_context = 2;
pub const S_CTX_ALLOCATOR: spank_context = 3;
pub const S_CTX_SLURMD: spank_context = 4;
pub const S_CTX_JOB_SCRIPT: spank_context = 5;
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of spank_option"][::std::mem::size_of::<spank_option>() - 40usize];
    ["Alignment of spank_option"][::std::mem::align_of::<spank_option>() - 8usize];
    [
        "Offset of field: spank_option::name",
    ][::std::mem::offset_of!(spank_option, name) - 0usize];
    [
        "Offset of field: spank_option::arginfo",
    ][::std::mem::offset_of!(spank_option, arginfo) - 8usize];
    [
        "Offset of field: spank_option::usage",
    ][::std::mem::offset_of!(spank_option, usage) - 16usize];
    [
        "Offset of field: spank_option::has_arg",
    ][::std::mem::offset_of!(spank_option, has_arg) - 24usize];
    [
        "Offset of field: spank_option::val",
    ][::std::mem::offset_of!(spank_option, val) - 28usize];
    [
        "Offset of field: spank_option::cb",
    ][::std::mem::offset_of!(spank_option, cb) - 32usize];
};
pub use self::spank_item as spank_item_t;
pub use self::slurm_err_t as spank_err_t;
pub use self::spank_context as spank_context_t;
unsafe extern "C" {
    pub fn slurm_api_version() -> ::std::os::raw::c_long;
    pub fn slurm_get_node_energy(
        host: *mut ::std::os::raw::c_char,
        context_id: u16,
        delta: u16,
        sensors_cnt: *mut u16,
        energy: *mut *mut acct_gather_energy_t,
    ) -> ::std::os::raw::c_int;
    pub fn spank_strerror(err: spank_err_t) -> *const ::std::os::raw::c_char;
    pub fn spank_symbol_supported(
        symbol: *const ::std::os::raw::c_char,
    ) -> ::std::os::raw::c_int;
    pub fn spank_remote(spank: spank_t) -> ::std::os::raw::c_int;
    pub fn spank_context() -> spank_context_t;
    pub fn spank_option_register(spank: spank_t, opt: *mut spank_option) -> spank_err_t;
    pub fn spank_option_getopt(
        spank: spank_t,
        opt: *mut spank_option,
        optarg: *mut *mut ::std::os::raw::c_char,
    ) -> spank_err_t;
    pub fn spank_get_item(spank: spank_t, item: spank_item_t, ...) -> spank_err_t;
    pub fn spank_getenv(
        spank: spank_t,
        var: *const ::std::os::raw::c_char,
        buf: *mut ::std::os::raw::c_char,
        len: ::std::os::raw::c_int,
    ) -> spank_err_t;
    pub fn spank_setenv(
        spank: spank_t,
        var: *const ::std::os::raw::c_char,
        val: *const ::std::os::raw::c_char,
        overwrite: ::std::os::raw::c_int,
    ) -> spank_err_t;
    pub fn spank_unsetenv(
        spank: spank_t,
        var: *const ::std::os::raw::c_char,
    ) -> spank_err_t;
    pub fn spank_job_control_setenv(
        sp: spank_t,
        name: *const ::std::os::raw::c_char,
        value: *const ::std::os::raw::c_char,
        overwrite: ::std::os::raw::c_int,
    ) -> spank_err_t;
    pub fn spank_job_control_getenv(
        sp: spank_t,
        name: *const ::std::os::raw::c_char,
        buf: *mut ::std::os::raw::c_char,
        len: ::std::os::raw::c_int,
    ) -> spank_err_t;
    pub fn spank_job_control_unsetenv(
        sp: spank_t,
        name: *const ::std::os::raw::c_char,
    ) -> spank_err_t;
    pub fn spank_prepend_task_argv(
        spank: spank_t,
        argc: ::std::os::raw::c_int,
        argv: *mut *const ::std::os::raw::c_char,
    ) -> spank_err_t;
    pub fn slurm_info(format: *const ::std::os::raw::c_char, ...);
    pub fn slurm_error(format: *const ::std::os::raw::c_char, ...);
    pub fn slurm_verbose(format: *const ::std::os::raw::c_char, ...);
    pub fn slurm_debug(format: *const ::std::os::raw::c_char, ...);
    pub fn slurm_debug2(format: *const ::std::os::raw::c_char, ...);
    pub fn slurm_debug3(format: *const ::std::os::raw::c_char, ...);
    pub fn slurm_spank_log(arg1: *const ::std::os::raw::c_char, ...);
}
