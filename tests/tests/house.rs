//! Holds the shape of the code: sizes of files, functions, folders and crates, circles of modules, and types of errors.
//!
//! What is not yet as it should be stands in the tables of exceptions, which may only become shorter and smaller.

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use suite::repository;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Longest function, lines.
const FUNCTION_LINES: usize = 80;

/// Longest file, lines with its tests.
const FILE_LINES: usize = 600;

/// Most source files directly in one folder.
const FOLDER_FILES: usize = 20;

/// Largest crate, lines in its `src`.
const CRATE_LINES: usize = 6000;

/// Largest circle of modules that use each other, files.
const CIRCLE_FILES: usize = 3;

/// Functions that are longer, lines.
const LONG_FUNCTIONS: &[(&str, usize)] = &[("store/src/apply.rs change", 111), ("steps/src/groups/shim.rs serve", 98)];

/// Folders that have more files.
const FULL_FOLDERS: &[(&str, usize)] =
    &[("energy/src", 28), ("mlog/src", 22), ("policy/src", 21), ("run/src", 26), ("testbed/src", 21)];

/// Crates that are larger, lines.
const LARGE_CRATES: &[(&str, usize)] = &[];

/// Circles that are larger, files, by crate.
const LARGE_CIRCLES: &[(&str, usize)] = &[("mpi", 13)];

/// How often a crate's `src` has text for an error type (`Result<_, String>`).
const ERRORS_OF_TEXT: &[(&str, usize)] = &[
    ("calibration", 3),
    ("cli", 21),
    ("config", 1),
    ("criu", 41),
    ("doctor", 4),
    ("driver", 13),
    ("energy", 10),
    ("engines", 20),
    ("groups", 11),
    ("host", 3),
    ("job", 5),
    ("model", 33),
    ("mpi-relay", 2),
    ("node", 4),
    ("options", 1),
    ("planner", 7),
    ("policy", 2),
    ("report", 2),
    ("site", 1),
    ("spank", 2),
    ("spank-plugin", 19),
    ("steps", 18),
    ("tests", 4),
    ("worlds", 5),
    ("xtask", 8),
];

/// Rooms whose code runs within a job, as its user: a thread that finds no room must not end what protects the job.
const WITHIN_A_JOB: &[&str] = &[
    "archive",
    "criu",
    "driver",
    "engines",
    "groups",
    "host",
    "increments",
    "job",
    "mlog",
    "mpi-relay",
    "openfiles",
    "run",
    "slurm",
    "steps",
    "wire",
    "worlds",
    "wrapper",
];

/// A source file, parsed.
struct Source {
    /// From the repository's root.
    path: String,
    /// Module path in its crate, such as `["groups", "board"]`; empty for the root.
    module: Vec<String>,
    lines: usize,
    syntax: syn::File,
}

/// The sources of each crate, by folder of the crate.
fn crates() -> BTreeMap<String, Vec<Source>> {
    let root = repository();
    let manifests = glob::glob(&root.join("*/Cargo.toml").to_string_lossy()).expect("a pattern");
    let folders =
        manifests.flatten().filter_map(|m| m.parent().map(Path::to_path_buf)).filter(|f| f.join("src").is_dir());
    folders
        .map(|folder| {
            let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
            let files = glob::glob(&folder.join("src/**/*.rs").to_string_lossy()).expect("a pattern").flatten();
            // Declarations that bindgen has made are nobody's to read.
            let ours = files.map(|file| source(&root, &folder, &file)).filter(|s| !is_generated(s));
            (name, ours.collect())
        })
        .collect()
}

fn source(root: &Path, folder: &Path, file: &Path) -> Source {
    let text = fs::read_to_string(file).expect("readable");
    let syntax = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let within: PathBuf = file.strip_prefix(folder.join("src")).expect("below").with_extension("");
    let mut module: Vec<String> = within.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        module.pop();
    }
    let path = file.strip_prefix(root).expect("below").to_string_lossy().into_owned();
    Source { path, module, lines: text.lines().count(), syntax }
}

fn is_generated(source: &Source) -> bool {
    let text = fs::read_to_string(repository().join(&source.path)).expect("readable");
    text.lines().take(10).any(|line| line.contains("automatically generated") || line.ends_with("do not edit."))
}

/// Whether these attributes leave an item out of what is delivered.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| match &a.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string().trim() == "test",
        syn::Meta::NameValue(_) => false,
    })
}

/// Fails for what is above the limit and not excepted, or above its exception.
fn hold(what: &str, limit: usize, exceptions: &[(&str, usize)], found: impl Iterator<Item = (String, usize)>) {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for (name, size) in found {
        let exception = exceptions.iter().find(|(n, _)| *n == name);
        if size > exception.map_or(limit, |(_, most)| *most) {
            wrong.push(format!("(\"{name}\", {size}),"));
        }
        if size > limit {
            seen.insert(name);
        }
    }
    let mended =
        exceptions.iter().filter(|(n, _)| !seen.contains(*n)).map(|(n, _)| format!("{n} is no exception any more"));
    wrong.extend(mended);
    assert!(wrong.is_empty(), "{what}, {limit} at most:\n{}", wrong.join("\n"));
}

/// Collects functions with their lines.
struct Functions<'a> {
    path: &'a str,
    found: Vec<(String, usize)>,
}

impl Functions<'_> {
    fn add(&mut self, name: &syn::Ident, whole: proc_macro2::Span) {
        let lines = whole.end().line - whole.start().line + 1;
        self.found.push((format!("{} {name}", self.path), lines));
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.add(&item.sig.ident, item.block.span());
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig.ident, item.block.span());
        visit::visit_impl_item_fn(self, item);
    }
}

#[test]
fn a_function_fits_on_a_screen_or_two() {
    let all = crates();
    let found = all.values().flatten().filter(|s| !s.path.ends_with("tests.rs")).flat_map(|source| {
        let mut functions = Functions { path: &source.path, found: Vec::new() };
        functions.visit_file(&source.syntax);
        functions.found
    });
    hold("lines of a function", FUNCTION_LINES, LONG_FUNCTIONS, found);
}

#[test]
fn a_file_is_read_in_one_sitting() {
    let all = crates();
    hold("lines of a file", FILE_LINES, &[], all.values().flatten().map(|s| (s.path.clone(), s.lines)));
}

#[test]
fn a_folder_is_overseen() {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for source in crates().values().flatten() {
        let folder = Path::new(&source.path).parent().expect("a folder").to_string_lossy().into_owned();
        *folders.entry(folder).or_default() += 1;
    }
    hold("files in a folder", FOLDER_FILES, FULL_FOLDERS, folders.into_iter());
}

#[test]
fn a_crate_is_known_whole() {
    let sizes = crates().into_iter().map(|(name, sources)| (name, sources.iter().map(|s| s.lines).sum()));
    hold("lines of a crate", CRATE_LINES, LARGE_CRATES, sizes);
}

/// Collects the modules of the same crate that a file names.
struct Uses<'a> {
    from: &'a Source,
    modules: &'a BTreeMap<Vec<String>, usize>,
    /// Indices of the files used.
    found: BTreeSet<usize>,
}

impl Uses<'_> {
    /// A path as it is written, from `crate`, `super` or `self`.
    fn add(&mut self, words: &[String]) {
        let mut path = match words.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("self" | "super") => self.from.module.clone(),
            _ => return,
        };
        let mut rest = words;
        while let Some(word) = rest.first().filter(|w| matches!(w.as_str(), "crate" | "self" | "super")) {
            if word == "super" {
                path.pop();
            }
            rest = &rest[1..];
        }
        path.extend_from_slice(rest);
        // What a path names may be an item: the longest beginning that is a file has it.
        while !self.modules.contains_key(&path) {
            if path.pop().is_none() {
                return;
            }
        }
        self.found.insert(self.modules[&path]);
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| before.iter().cloned().chain([name.to_string()]).collect::<Vec<_>>();
        match tree {
            syn::UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(before, item)),
            syn::UseTree::Name(name) => self.add(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.add(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.add(before),
        }
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // A name that is only handed on is used by those who take it.
        if matches!(item.vis, syn::Visibility::Inherited) && !is_for_tests(&item.attrs) {
            self.tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.add(&words);
        visit::visit_path(self, path);
    }
}

/// The largest set of files of a crate that all use each other, directly or not.
fn circle(sources: &[Source]) -> Vec<String> {
    let delivered: Vec<&Source> = sources.iter().filter(|s| !s.path.ends_with("tests.rs")).collect();
    // Programs and the library of a crate have each a root; the root itself only puts the modules together.
    let modules = delivered.iter().enumerate().filter(|(_, s)| !s.module.is_empty());
    let modules: BTreeMap<Vec<String>, usize> = modules.map(|(i, s)| (s.module.clone(), i)).collect();
    let mut graph: DiGraphMap<usize, ()> = DiGraphMap::new();
    for (from, source) in delivered.iter().enumerate().filter(|(_, s)| !s.module.is_empty()) {
        let mut uses = Uses { from: source, modules: &modules, found: BTreeSet::new() };
        uses.visit_file(&source.syntax);
        for to in uses.found {
            graph.add_edge(from, to, ());
        }
    }
    let largest = tarjan_scc(&graph).into_iter().max_by_key(Vec::len).unwrap_or_default();
    largest.into_iter().map(|i| delivered[i].path.clone()).collect()
}

#[test]
fn modules_do_not_go_round_in_circles() {
    let circles: BTreeMap<String, Vec<String>> = crates().iter().map(|(name, s)| (name.clone(), circle(s))).collect();
    for (name, files) in circles.iter().filter(|(_, files)| files.len() > CIRCLE_FILES) {
        println!("{name}: {}", files.join(" "));
    }
    hold(
        "files in a circle",
        CIRCLE_FILES,
        LARGE_CIRCLES,
        circles.into_iter().map(|(name, files)| (name, files.len())),
    );
}

/// Counts results whose error is text.
#[derive(Default)]
struct Texts(usize);

impl<'ast> Visit<'ast> for Texts {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
        if let syn::PathArguments::AngleBracketed(of) = &segment.arguments
            && segment.ident == "Result"
            && matches!(of.args.last(), Some(syn::GenericArgument::Type(syn::Type::Path(p))) if p.path.is_ident("String"))
            && of.args.len() == 2
        {
            self.0 += 1;
        }
        visit::visit_path_segment(self, segment);
    }
}

#[test]
fn errors_are_types_and_not_texts() {
    let counts = crates().into_iter().map(|(name, sources)| {
        let mut texts = Texts::default();
        sources.iter().for_each(|s| texts.visit_file(&s.syntax));
        (name, texts.0)
    });
    hold("results with a text for an error", 0, ERRORS_OF_TEXT, counts);
}

/// Calls of `thread::spawn`, and of `spawn` on what a scope gives, outside of tests.
#[derive(Default)]
struct Threads(usize);

impl<'ast> Visit<'ast> for Threads {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let words: Vec<String> = path.path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.0 += usize::from(words.ends_with(&["thread".to_string(), "spawn".to_string()]));
        visit::visit_expr_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        // A command's `spawn` takes nothing, and that of a `Builder` tells when there is no room.
        let of_a_scope = call.args.len() == 1 && matches!(&*call.receiver, syn::Expr::Path(_));
        self.0 += usize::from(call.method == "spawn" && of_a_scope);
        visit::visit_expr_method_call(self, call);
    }
}

#[test]
fn threads_within_a_job_are_started_as_soon_as_there_is_room() {
    let crates = crates();
    for room in WITHIN_A_JOB {
        let sources = crates.get(*room).unwrap_or_else(|| panic!("no room {room}"));
        for source in sources.iter().filter(|s| !s.path.ends_with("tests.rs")) {
            let mut threads = Threads::default();
            threads.visit_file(&source.syntax);
            assert_eq!(threads.0, 0, "{}: use threads::start or threads::start_in", source.path);
        }
    }
}
