//! Holds ARCHITECTURE.md, the docs and the names of things to the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use suite::repository;

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Our own crates, by folder, and the rooms that each may use in its normal dependencies.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let workspace = read("Cargo.toml");
    let members: BTreeSet<String> = workspace
        .split("members = [")
        .nth(1)
        .and_then(|t| t.split(']').next())
        .expect("members")
        .split(',')
        .map(|m| m.trim().trim_matches('"').to_string())
        .filter(|m| !m.is_empty())
        .collect();
    let folder = |package: &str| if package == "suite" { "tests".to_string() } else { package.to_string() };
    members
        .iter()
        .map(|member| {
            let manifest = read(&format!("{member}/Cargo.toml"));
            let normal = manifest.split("[dependencies]").nth(1).unwrap_or("");
            let normal = normal.split("\n[").next().unwrap_or("");
            let used = normal
                .lines()
                .filter_map(|l| l.split(['.', ' ', '=']).next())
                .map(folder)
                .filter(|name| members.contains(name))
                .collect();
            (member.clone(), used)
        })
        .collect()
}

/// The rows of the map's table of rooms.
fn map() -> BTreeMap<String, BTreeSet<String>> {
    let text = read("ARCHITECTURE.md");
    let rooms = text.split("## The rooms").nth(1).expect("a table of rooms");
    let rooms = rooms.split("\n## ").next().expect("a table");
    rooms
        .lines()
        .filter(|l| l.starts_with("| `"))
        .map(|l| {
            let cells: Vec<&str> = l.split('|').map(str::trim).collect();
            let used = cells[3].split(',').map(str::trim).filter(|c| *c != "-").map(str::to_string).collect();
            (cells[1].trim_matches('`').to_string(), used)
        })
        .collect()
}

#[test]
fn every_room_is_on_the_map_and_uses_only_what_the_map_allows() {
    let (arrows, map) = (arrows(), map());
    assert_eq!(arrows.keys().collect::<Vec<_>>(), map.keys().collect::<Vec<_>>());
    for (room, used) in &arrows {
        let allowed = &map[room];
        assert!(used.is_subset(allowed), "{room} uses {used:?}, the map allows {allowed:?}");
    }
}

#[test]
fn the_pure_rooms_know_nothing_of_the_world() {
    for file in sources(&["policy/src"]) {
        let text = fs::read_to_string(&file).expect("readable");
        for word in ["std::fs", "std::time", "std::thread", "std::env", "std::net", "serde", "println!"] {
            assert!(!text.contains(word), "{} mentions {word}", file.display());
        }
    }
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    let rooms: Vec<String> = map().into_keys().collect();
    let folders: Vec<&str> = rooms.iter().map(String::as_str).collect();
    for file in sources(&folders) {
        let text = fs::read_to_string(&file).expect("readable");
        let first = text.lines().next().unwrap_or("");
        let generated = first.starts_with("/* automatically generated");
        assert!(first.starts_with("//! ") || generated, "{} begins with: {first}", file.display());
        assert!(!first.contains("Being built"), "{}", file.display());
    }
}

#[test]
fn every_file_that_meets_slurm_states_its_licence() {
    let mut files = sources(&["slurm-sys", "spank", "spank-plugin"]);
    files.push(repository().join("energy/src/slurm_energy.rs"));
    for file in files {
        let text = fs::read_to_string(&file).expect("readable");
        assert!(text.contains("\n// SPDX-License-Identifier: GPL-2.0-or-later\n"), "{}", file.display());
    }
}

#[test]
fn no_room_has_a_name_that_says_nothing() {
    let empty = ["util", "utils", "common", "helper", "helpers", "manager", "handler", "misc", "base", "data"];
    let rooms: Vec<String> = map().into_keys().collect();
    let folders: Vec<&str> = rooms.iter().map(String::as_str).collect();
    for file in sources(&folders) {
        let stem = file.file_stem().and_then(|s| s.to_str()).unwrap_or("");
        assert!(!empty.contains(&stem), "{}", file.display());
    }
}

#[test]
fn every_suite_is_run() {
    let script = read("packaging/test.sh");
    let named = |line| {
        let mut words = str::rsplit_once(line, '"')?.1.split_whitespace();
        words.next().map(|word| if word == "$suite" { words.next().unwrap_or("") } else { word })
    };
    let run: BTreeSet<&str> = script.lines().filter_map(named).collect();
    for file in fs::read_dir(repository().join("tests/tests")).expect("readable").flatten() {
        let path = file.path();
        let name = path.file_stem().expect("a name").to_string_lossy();
        let is_suite = path.is_file() || path.join("main.rs").exists();
        assert!(!is_suite || run.contains(&*name), "packaging/test.sh does not run the suite {name}");
    }
}

#[test]
fn no_test_is_ignored_and_nothing_is_left_undone() {
    // Written in parts, so that this file does not find itself.
    let words = [concat!("#[", "ignore"), concat!("todo", "!("), concat!("unimplemented", "!(")];
    for file in sources(&["."]) {
        let text = fs::read_to_string(&file).expect("readable");
        for word in words {
            assert!(!text.contains(word), "{} has {word}", file.display());
        }
    }
}

#[test]
fn every_option_is_in_the_page_of_options() {
    let page = read("docs/options.md");
    let table = read("options/src/table.rs");
    for line in table.lines().filter(|l| l.trim_start().starts_with("spec(\"ft-energy")) {
        let name = line.split('"').nth(1).expect("a name");
        assert!(page.contains(&format!("`--{name}")), "docs/options.md lacks --{name}");
    }
}

#[test]
fn every_site_key_is_in_the_shipped_file() {
    let shipped = read("conf/joulepoint.toml");
    let config = read("config/src/site.rs");
    let body = config.split("impl Default for Controller").next().expect("struct Site before it");
    assert!(body.contains("pub struct Site"));
    for section in ["[defaults]", "[controller]", "[node]", "[energy]", "[runs]", "[estimates]", "[hook]", "[wrapper]"]
    {
        assert!(shipped.contains(section), "conf/joulepoint.toml lacks {section}");
    }
}

/// Words that the glossary gives up: in code spans, as names of files and commands, they may stay.
#[test]
fn words_of_before_do_not_come_back_into_the_docs() {
    let glossary = read("docs/glossary.md");
    let table = glossary.split("## Words of before").nth(1).expect("a table of them");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let given_up: Vec<String> = rows.flat_map(|word| [word.to_string(), format!("{word}s")]).collect();
    assert!(!given_up.is_empty());
    let docs = repository().join("docs");
    for file in documents().into_iter().filter(|file| file.starts_with(&docs) && !file.ends_with("glossary.md")) {
        let text = fs::read_to_string(&file).expect("readable").replace("```", "");
        // Every other piece between back quotes is code.
        let prose = text.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
        let found = prose.split(|c: char| !c.is_alphanumeric()).find(|word| given_up.iter().any(|of| of == word));
        assert_eq!(found, None, "{} has a word of before: see docs/glossary.md", file.display());
    }
}

/// A symptom is searched for by the words that a program prints: each quoted piece of a first column stands in the code.
#[test]
fn symptoms_are_in_the_words_of_the_programs() {
    // What others print, and commands.
    let others = ["unrecognized option", "No space left", "sbatch"];
    let code: String = walk(&repository())
        .into_iter()
        .filter(|p| p.extension().is_some_and(|e| e == "rs" || e == "h") && !p.ends_with("tests/tests/tidy.rs"))
        .map(|p| printed(&fs::read_to_string(&p).expect("readable")))
        .collect();
    let page = read("docs/symptoms.md");
    let mut seen = 0;
    for cell in page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()) {
        for quoted in cell.split('`').skip(1).step_by(2).filter(|q| others.iter().all(|other| !q.starts_with(other))) {
            for piece in quoted.split("...").map(|piece| piece.trim().trim_start_matches("NOT PROTECTED: ")) {
                let piece = piece.trim_end_matches([' ', ':', ';', ',']);
                assert!(code.contains(piece), "docs/symptoms.md quotes {piece:?}, which no program prints");
                seen += 1;
            }
        }
    }
    assert!(seen > 80, "{seen} pieces: has the page another form?");
}

/// A source with its continued strings joined and without the places that `format!` fills.
fn printed(source: &str) -> String {
    let joined: String =
        source.split("\\\n").enumerate().map(|(i, s)| if i == 0 { s } else { s.trim_start() }).collect();
    let mut pieces = joined.split('{');
    let first = pieces.next().unwrap_or("").to_string();
    let is_place = |inside: &str| inside.chars().all(|c| c.is_alphanumeric() || "_.:?>#".contains(c));
    pieces.fold(first, |text, piece| match piece.split_once('}') {
        Some((inside, after)) if is_place(inside) => text + after,
        _ => text + "{" + piece,
    })
}

#[test]
fn links_between_documents_lead_somewhere() {
    for file in documents() {
        let text = fs::read_to_string(&file).expect("readable");
        for target in text.split("](").skip(1).filter_map(|t| t.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (target, anchor) = target.split_once('#').map_or((target, None), |(t, anchor)| (t, Some(anchor)));
            let path = match target {
                "" => file.clone(),
                other => file.parent().expect("a folder").join(other),
            };
            assert!(path.exists(), "{} links to {target}", file.display());
            if let Some(anchor) = anchor {
                let page = fs::read_to_string(&path).expect("readable");
                assert!(anchors(&page).contains(anchor), "{} links to {target}#{anchor}", file.display());
            }
        }
    }
}

/// What a page's headlines are called in links: small letters and digits, and dashes for blanks.
fn anchors(page: &str) -> BTreeSet<String> {
    let headlines = page.lines().filter_map(|l| Some(l.strip_prefix('#')?.trim_start_matches('#').trim()));
    let name = |c: char| match c {
        ' ' | '-' => Some('-'),
        c if c.is_alphanumeric() || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    headlines.map(|headline| headline.chars().filter_map(name).collect()).collect()
}

fn documents() -> Vec<PathBuf> {
    walk(&repository()).into_iter().filter(|p| p.extension().is_some_and(|e| e == "md")).collect()
}

fn sources(folders: &[&str]) -> Vec<PathBuf> {
    let all = folders.iter().flat_map(|f| walk(&repository().join(f)));
    all.filter(|p| p.extension().is_some_and(|e| e == "rs")).collect()
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != "target" && name != ".git" {
                    folders.push(path);
                }
            } else {
                found.push(path);
            }
        }
    }
    found
}
