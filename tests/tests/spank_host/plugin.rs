//! The plugin under test, built as it is delivered, and a folder that goes away with the test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds `libjoulepoint.so` beside the running test and returns its path.
pub fn build() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/test");
    let target = profile.parent().expect("target/PROFILE");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--package", "spank-plugin", "--lib"]);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.env("CARGO_TARGET_DIR", target).current_dir(root());
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "the plugin does not build");
    let plugin = profile.join("libjoulepoint.so");
    assert!(plugin.is_file(), "{} is missing", plugin.display());
    plugin
}

/// The repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A folder for one test.
pub struct Folder(PathBuf);

impl Folder {
    /// A new empty folder that everybody may enter.
    pub fn new(name: &str) -> Folder {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("joulepoint-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its permissions");
        Folder(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind: {error}", self.0.display());
        }
    }
}
