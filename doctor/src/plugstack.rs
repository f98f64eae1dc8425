//! Reads `plugstack.conf` as Slurm does, and finds our lines in it.

use std::path::{Path, PathBuf};

/// How deep files may include each other.
const DEEPEST: u32 = 8;

/// A line that loads our plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Where it stands.
    pub place: String,
    /// Whether a plugin that cannot be loaded stops the job.
    pub required: bool,
    /// The shared object.
    pub so: PathBuf,
    /// What is written behind it.
    pub arguments: Vec<String>,
}

/// All lines that load our plugin; relative paths are looked up in `plugin_dir` (colon separated).
///
/// # Errors
/// A sentence about the file that cannot be read.
pub(crate) fn entries(path: &Path, plugin_dir: &str) -> Result<Vec<Entry>, String> {
    let mut found = Vec::new();
    read(path, plugin_dir, DEEPEST, &mut found)?;
    Ok(found)
}

fn read(path: &Path, plugin_dir: &str, depth: u32, found: &mut Vec<Entry>) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    for (number, line) in text.lines().enumerate() {
        let mut words = line.split('#').next().unwrap_or("").split_whitespace();
        let (Some(keyword), Some(target)) = (words.next(), words.next()) else { continue };
        if keyword == "include" && depth > 0 {
            let pattern = path.parent().unwrap_or(Path::new("/")).join(target);
            for file in glob::glob(&pattern.to_string_lossy()).into_iter().flatten().flatten() {
                read(&file, plugin_dir, depth - 1, found)?;
            }
        } else if (keyword == "required" || keyword == "optional") && is_ours(target) {
            found.push(Entry {
                place: format!("{}, line {}", path.display(), number + 1),
                required: keyword == "required",
                so: in_plugin_dir(target, plugin_dir),
                arguments: words.map(str::to_owned).collect(),
            });
        }
    }
    Ok(())
}

fn is_ours(target: &str) -> bool {
    Path::new(target).file_name().is_some_and(|name| name == "joulepoint.so" || name == "libjoulepoint.so")
}

fn in_plugin_dir(target: &str, plugin_dir: &str) -> PathBuf {
    let candidates: Vec<PathBuf> = plugin_dir.split(':').map(|dir| Path::new(dir).join(target)).collect();
    let there = candidates.iter().find(|path| path.exists()).or(candidates.first());
    there.cloned().unwrap_or_else(|| PathBuf::from(target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_comments_and_relative_paths_are_read_as_slurm_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("plugstack.conf");
        std::fs::create_dir(folder.path().join("plugstack.conf.d")).unwrap();
        std::fs::write(&conf, "# optional joulepoint.so\noptional other.so\ninclude plugstack.conf.d/*.conf\n")
            .unwrap();
        let inner = folder.path().join("plugstack.conf.d/joulepoint.conf");
        std::fs::write(&inner, "required joulepoint.so default=on # ours\noptional /opt/joulepoint.so\n").unwrap();
        let found = entries(&conf, "/a:/b").unwrap();
        let expected = Entry {
            place: format!("{}, line 1", inner.display()),
            required: true,
            so: "/a/joulepoint.so".into(),
            arguments: vec!["default=on".into()],
        };
        assert_eq!(found[0], expected);
        assert_eq!(found[1].so, Path::new("/opt/joulepoint.so"));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn a_file_that_includes_itself_comes_to_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("plugstack.conf");
        std::fs::write(&conf, "include plugstack.conf\n").unwrap();
        assert_eq!(entries(&conf, "/a"), Ok(Vec::new()));
    }
}
