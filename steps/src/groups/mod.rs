//! What is one call of `srun` for the script is one for each recovery group: [`split`] says what these calls are, and the
//! program in [`shim`], which an `srun` of the script meets, starts them as the groups' driver tells it, in [`words`].

mod files;
pub mod shim;
pub mod split;
pub mod words;
