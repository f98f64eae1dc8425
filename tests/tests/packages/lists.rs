//! What the packages hold, beside what `make install` installs.

use crate::site::packages;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use suite::repository;

fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect()
}

/// Files as both ways name them: Debian compresses pages and documents, and adds its own papers to every package.
fn plain(paths: impl Iterator<Item = String>) -> BTreeSet<String> {
    let papers = ["/copyright", "/changelog.Debian", "/changelog"];
    paths
        .map(|p| p.trim_end_matches(".gz").trim_start_matches('.').to_string())
        .filter(|p| !p.ends_with('/'))
        .filter(|p| !p.starts_with("/usr/share/doc/") || !papers.iter().any(|e| p.ends_with(e)))
        .collect()
}

fn in_packages() -> BTreeSet<String> {
    let folder = packages().expect("the packages are built");
    let debs = std::fs::read_dir(folder).expect("a folder").flatten().map(|e| e.path());
    let debs = debs.filter(|p| p.extension().is_some_and(|e| e == "deb"));
    let files = debs.flat_map(|deb| {
        let listed = lines(Command::new("sh").args(["-c", "dpkg-deb --fsys-tarfile \"$1\" | tar -t", "list"]).arg(deb));
        listed.into_iter()
    });
    plain(files)
}

fn by_hand(destdir: &Path) -> BTreeSet<String> {
    let built = std::fs::read_to_string(packages().expect("the packages are built").join("built")).expect("a folder");
    let mut install = Command::new("sh");
    install.arg(repository().join("packaging/install.sh")).arg(built.trim()).arg(destdir);
    lines(&mut install);
    plain(lines(Command::new("find").args([".", "!", "-type", "d"]).current_dir(destdir)).into_iter())
}

#[test]
fn make_install_installs_the_files_of_the_packages() {
    let packaged = in_packages();
    let destdir = tempfile::tempdir().expect("a folder");
    let installed = by_hand(destdir.path());
    assert!(packaged.len() > 40, "{packaged:#?}");
    let missing: Vec<_> = packaged.difference(&installed).collect();
    let more: Vec<_> = installed.difference(&packaged).collect();
    assert!(missing.is_empty() && more.is_empty(), "only in the packages: {missing:#?}\nonly installed: {more:#?}");
}

#[test]
fn every_command_has_its_page_and_every_shell_its_completion() {
    let packaged = in_packages();
    let pages = |section: u8, name: &str| format!("/usr/share/man/man{section}/{name}.{section}");
    let mut wanted = BTreeSet::from([
        pages(1, "joulepoint"),
        pages(1, "joulepoint-relay"),
        pages(1, "joulepoint-mpi-relay"),
        pages(5, "joulepoint.toml"),
        pages(8, "joulepointd"),
        pages(8, "joulepoint-plugin"),
        "/usr/share/bash-completion/completions/joulepoint".to_string(),
        "/usr/share/zsh/vendor-completions/_joulepoint".to_string(),
        "/usr/share/fish/vendor_completions.d/joulepoint.fish".to_string(),
    ]);
    let help = lines(Command::new(suite::built().expect("a folder").join("joulepoint")).arg("--help"));
    let commands = help.iter().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    // Names are indented by two, what continues their words by more.
    let commands = commands.filter_map(|l| l.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
    let commands: Vec<&str> = commands.filter_map(|l| l.split_whitespace().next()).filter(|c| *c != "help").collect();
    assert!(commands.len() > 10, "{commands:?}");
    wanted.extend(commands.iter().map(|command| pages(1, &format!("joulepoint-{command}"))));
    let missing: Vec<_> = wanted.difference(&packaged).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn lintian_finds_no_error() {
    let folder = packages().expect("the packages are built");
    let changes = std::fs::read_dir(folder).expect("a folder").flatten().map(|e| e.path());
    let changes = changes.filter(|p| p.extension().is_some_and(|e| e == "changes"));
    let output = Command::new("lintian").args(["--fail-on", "error"]).args(changes).output().expect("lintian runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    println!("{said}");
}
