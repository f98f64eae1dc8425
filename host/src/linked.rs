//! What the programs of a script are linked to, as far as both can be found without running them.

use crate::{shell, tool};
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, File, FileKind, Object, ObjectSection, ObjectSymbol};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Largest script that is read, bytes.
const SCRIPT_LIMIT_BYTES: u64 = 1 << 20;

/// Largest program that is looked into, bytes.
const PROGRAM_LIMIT_BYTES: u64 = 256 << 20;

/// The libraries that a program names, such as `libmpi.so.40`; none if it is no ELF file.
pub fn libraries(program: &Path) -> BTreeSet<String> {
    let small = fs::metadata(program).is_ok_and(|m| m.is_file() && m.len() <= PROGRAM_LIMIT_BYTES);
    let Some(content) = small.then(|| read_elf(program).ok()).flatten() else { return BTreeSet::new() };
    let found = match FileKind::parse(&*content) {
        Ok(FileKind::Elf64) => needed::<FileHeader64<Endianness>>(&content),
        Ok(FileKind::Elf32) => needed::<FileHeader32<Endianness>>(&content),
        _ => None,
    };
    found.unwrap_or_default()
}

/// Longest time in which a loader lists libraries.
const LISTED: Duration = Duration::from_secs(10);

/// Libraries of compilers and of the system, by how their names begin: what has no others has nothing to do with MPI.
const COMMON: [&str; 15] = [
    "ld-linux",
    "libacl.",
    "libc.",
    "libdl.",
    "libgcc_s.",
    "libgfortran.",
    "libgomp.",
    "libm.",
    "libpcre",
    "libpthread.",
    "libquadmath.",
    "librt.",
    "libselinux.",
    "libstdc++.",
    "libtinfo.",
];

/// The same with those that its libraries name, as the program's own loader finds them. A program of Fortran names only the
/// library that calls MPI's for it, one of PETSc none of MPI's.
pub fn all_libraries(program: &Path) -> BTreeSet<String> {
    let mut all = libraries(program);
    if all.iter().all(|library| COMMON.iter().any(|common| library.starts_with(common))) {
        return all;
    }
    let Some(loader) = loader(program) else { return all };
    // It ends before the program begins (ld.so(8)).
    let listed = tool::output(Command::new(loader).arg("--list").arg(program).stderr(Stdio::null()), LISTED);
    let listed = listed.unwrap_or_default();
    all.extend(listed.lines().filter_map(|line| line.trim().split_once(" => ")).map(|(name, _)| name.to_string()));
    all
}

/// What loads a program and its libraries.
fn loader(program: &Path) -> Option<PathBuf> {
    let content = read_elf(program).ok()?;
    let named = match FileKind::parse(&*content) {
        Ok(FileKind::Elf64) => interpreter::<FileHeader64<Endianness>>(&content),
        Ok(FileKind::Elf32) => interpreter::<FileHeader32<Endianness>>(&content),
        _ => None,
    };
    // The system's: a file of somebody else's may name anything.
    let is_loader = |name: &OsStr| name.to_string_lossy().starts_with("ld");
    let is_roots = |loader: &PathBuf| fs::metadata(loader).is_ok_and(|m| m.uid() == 0);
    named.filter(|loader| loader.is_absolute() && loader.file_name().is_some_and(is_loader) && is_roots(loader))
}

fn interpreter<Elf: FileHeader<Endian = Endianness>>(content: &[u8]) -> Option<PathBuf> {
    let header = Elf::parse(content).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, content).ok()?;
    let path = segments.iter().find_map(|segment| segment.interpreter(endian, content).ok().flatten())?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// The content of a program, nothing of any other file.
fn read_elf(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut content = vec![0; 4];
    file.read_exact(&mut content)?;
    if content == *b"\x7fELF" {
        file.read_to_end(&mut content)?;
    }
    Ok(content)
}

fn needed<Elf: FileHeader<Endian = Endianness>>(content: &[u8]) -> Option<BTreeSet<String>> {
    let header = Elf::parse(content).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, content).ok()?;
    let (entries, strings) = sections.dynamic(endian, content).ok()??;
    let strings = sections.strings(endian, content, strings).ok()?;
    let names = entries.iter().filter(|d| d.tag(endian) == DT_NEEDED);
    Some(names.filter_map(|d| Some(String::from_utf8_lossy(d.string(endian, strings).ok()?).into_owned())).collect())
}

/// The functions and data that a program takes from others by name; none if it is no ELF file.
pub fn imports(program: &Path) -> BTreeSet<String> {
    let small = fs::metadata(program).is_ok_and(|m| m.is_file() && m.len() <= PROGRAM_LIMIT_BYTES);
    let Some(content) = small.then(|| read_elf(program).ok()).flatten() else { return BTreeSet::new() };
    let Ok(file) = File::parse(&*content) else { return BTreeSet::new() };
    let taken = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
    taken.filter_map(|symbol| symbol.name().ok().map(str::to_string)).collect()
}

/// Which of these words a program holds; a file that is no ELF file holds none.
pub fn says<const N: usize>(program: &Path, words: [&str; N]) -> [bool; N] {
    let small = fs::metadata(program).is_ok_and(|m| m.is_file() && m.len() <= PROGRAM_LIMIT_BYTES);
    let content = small.then(|| read_elf(program).ok()).flatten().unwrap_or_default();
    words.map(|words| content.windows(words.len()).any(|here| here == words.as_bytes()))
}

/// The folder in which a program itself, or `LD_LIBRARY_PATH`, has a library looked for and found.
pub fn folder_of(program: &Path, library: &str) -> Option<PathBuf> {
    let content = read_elf(program).ok()?;
    let named = match FileKind::parse(&*content) {
        Ok(FileKind::Elf64) => paths::<FileHeader64<Endianness>>(&content),
        Ok(FileKind::Elf32) => paths::<FileHeader32<Endianness>>(&content),
        _ => None,
    };
    let (first, later) = named.unwrap_or_default();
    let asked = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let program = fs::canonicalize(program).ok()?;
    let own = program.parent()?.to_string_lossy().into_owned();
    let all = [first, asked, later].join(":").replace("${ORIGIN}", &own).replace("$ORIGIN", &own);
    all.split(':').filter(|folder| folder.starts_with('/')).map(PathBuf::from).find(|f| f.join(library).is_file())
}

/// Where a program's libraries are looked for before and after those places that the environment names.
fn paths<Elf: FileHeader<Endian = Endianness>>(content: &[u8]) -> Option<(String, String)> {
    let header = Elf::parse(content).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, content).ok()?;
    let (entries, strings) = sections.dynamic(endian, content).ok()??;
    let strings = sections.strings(endian, content, strings).ok()?;
    let of = |tag: i64| {
        let found = entries.iter().find(|d| d.tag(endian) == tag)?;
        Some(String::from_utf8_lossy(found.string(endian, strings).ok()?).into_owned())
    };
    let later = of(DT_RUNPATH);
    // One that is new enough has the old one ignored.
    let first = if later.is_some() { None } else { of(DT_RPATH) };
    Some((first.unwrap_or_default(), later.unwrap_or_default()))
}

/// What a library holds under a name, if it has that.
pub fn held(library: &Path, name: &str) -> Option<Vec<u8>> {
    let content = read_elf(library).ok()?;
    let file = File::parse(&*content).ok()?;
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name))?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    section.data_range(symbol.address(), symbol.size()).ok().flatten().map(<[u8]>::to_vec)
}

/// The libraries that all programs among words name, here or in the `PATH`.
pub fn libraries_of(words: &[String], folder: &Path) -> BTreeSet<String> {
    programs(words, folder).iter().flat_map(|p| libraries(p)).collect()
}

/// The same with those that the libraries name.
pub fn all_libraries_of(words: &[String], folder: &Path) -> BTreeSet<String> {
    programs(words, folder).iter().flat_map(|p| all_libraries(p)).collect()
}

/// Whether a word of a call of Python is that module, or a program that imports it.
pub fn is_mpi4py(word: &str, folder: &Path) -> bool {
    let file = folder.join(word);
    let is_short = || fs::metadata(&file).is_ok_and(|m| m.is_file() && m.len() <= SCRIPT_LIMIT_BYTES);
    let imports =
        |line: &str| ["import mpi4py", "from mpi4py"].iter().any(|words| line.trim_start().starts_with(words));
    let names_it = || fs::read_to_string(&file).is_ok_and(|text| text.lines().any(imports));
    word == "mpi4py" || word.ends_with(".py") && is_short() && names_it()
}

fn programs(words: &[String], folder: &Path) -> BTreeSet<PathBuf> {
    words.iter().filter_map(|word| program(word, folder)).collect()
}

/// Most scripts that are read.
const SCRIPTS: usize = 64;

/// What a command says, with the scripts that it names, and those that these name; without their comments.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// All words.
    pub words: Vec<String>,
    /// The texts of those scripts that a shell reads.
    pub shell: Vec<String>,
}

/// The words of a command, of the scripts that it names, and of those that these name, without their comments.
pub fn words(argv: &[String], folder: &Path) -> Vec<String> {
    read(argv, folder).words
}

/// Reads a command and its scripts.
pub fn read(argv: &[String], folder: &Path) -> Script {
    let mut all = Script { words: argv.to_vec(), ..Script::default() };
    let by_shell = argv.first().is_some_and(|program| is_shell(program));
    let text_at = argv.iter().position(|word| word == "-c").filter(|_| by_shell).map(|at| at + 1);
    all.shell.extend(text_at.and_then(|at| argv.get(at)).cloned());
    let (words, mut variables) = (&mut all.words, Variables::default());
    let mut seen: BTreeSet<PathBuf> = BTreeSet::new();
    let mut at = 0;
    while at < words.len() && seen.len() < SCRIPTS {
        let path = folder.join(&words[at]);
        let is_named = at < argv.len() || words[at].contains(['/', '.']);
        let is_script = |text: &String| at < argv.len() || text.starts_with("#!");
        if is_named
            && !seen.contains(&path)
            && let Some(script) = text(&path).filter(is_script)
        {
            let code: Vec<&str> = script.lines().filter(|l| !l.trim_start().starts_with('#')).collect();
            let interpreter = script.strip_prefix("#!").and_then(|rest| rest.lines().next());
            let is_shells = interpreter.map_or(by_shell, |line| line.split_whitespace().any(is_shell));
            let said = code.iter().flat_map(|line| match is_shells {
                true => shell::unprinted(line),
                false => line.split_whitespace().collect(),
            });
            words.extend(said.map(|word| variables.word(word)));
            match is_shells {
                true => all.shell.push(code.join("\n")),
                // Other languages name what they start in quotes: `run(['srun','-n1','./app'])`.
                false => {
                    let quoted = code.iter().flat_map(|line| quoted(line)).flat_map(str::split_whitespace);
                    words.extend(quoted.map(|word| variables.word(word)));
                }
            }
            seen.insert(path);
        }
        at += 1;
    }
    all
}

/// What stands in quotes in a line.
fn quoted(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(begin) = rest.find(['\'', '"']) {
        let quote = if rest[begin..].starts_with('"') { '"' } else { '\'' };
        let inside = &rest[begin + 1..];
        let Some(end) = inside.find(quote) else { break };
        let before = rest[..begin].trim_end();
        // What is compared, or one of many words, starts nothing.
        if before.ends_with(['(', '[', ',']) || before.ends_with('=') && !before.ends_with("==") {
            found.push(&inside[..end]);
        }
        rest = &inside[end + 1..];
    }
    found
}

/// Longest value of a variable that is kept, bytes: the longest path.
const LONGEST_BYTES: usize = 4096;

/// What the scripts that are read have set so far.
#[derive(Default)]
struct Variables(BTreeMap<String, String>);

impl Variables {
    /// A word of a script with the home folder and the variables that it names, as far as they are known; without quotes and
    /// what else stands around it.
    fn word(&mut self, word: &str) -> String {
        const AROUND: [char; 7] = ['"', '\'', ';', '`', '(', ')', '&'];
        let bare = word.trim_matches(AROUND);
        let (known, home) = (
            |name: &str| self.0.get(name).cloned().or_else(|| std::env::var(name).ok()),
            || std::env::var("HOME").ok(),
        );
        let word = shellexpand::full_with_context_no_errors(bare, home, known).into_owned();
        if let Some((name, value)) = word.split_once('=').filter(|_| shell::is_assignment(&word)) {
            let value = shellexpand::tilde_with_context(value.trim_matches(AROUND), home);
            // What doubles itself line by line would have no end.
            let value = if value.len() > LONGEST_BYTES { String::new() } else { value.into_owned() };
            self.0.insert(name.to_string(), value);
        }
        word.trim_matches(AROUND).trim_matches(['$', '(', ')']).to_string()
    }
}

/// Whether a program reads the language of the shell, by its name.
fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or(program);
    ["sh", "bash", "dash", "ksh", "mksh", "zsh", "csh", "tcsh", "fish"].contains(&name)
}

/// What a small text file holds.
fn text(path: &Path) -> Option<String> {
    let small = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= SCRIPT_LIMIT_BYTES);
    small.then(|| fs::read_to_string(path).ok()).flatten()
}

/// The file of a program: by its path, or in the `PATH`.
pub fn program(word: &str, folder: &Path) -> Option<PathBuf> {
    if word.contains('/') { Some(folder.join(word)).filter(|p| p.is_file()) } else { tool::find(word) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_of_another_language_names_what_it_starts_in_quotes() {
        let dir = tempfile::tempdir().unwrap();
        let script = "#!/usr/bin/env python3\n# 'ssh'\nimport subprocess\nsubprocess.run(['srun','-n1',\"./app\"])\n";
        std::fs::write(dir.path().join("job.py"), script).unwrap();
        let words = words(&["job.py".to_string()], dir.path());
        for word in ["srun", "-n1", "./app"] {
            assert!(words.iter().any(|w| w == word), "{word}: {words:?}");
        }
        assert!(!words.iter().any(|w| w == "ssh"));
        assert_eq!(quoted("run('a b'); x == 'c'; y = \"d\"; 'e"), ["a b", "d"]);
    }

    #[test]
    fn the_libraries_of_a_scripts_programs_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let us = std::env::current_exe().unwrap();
        fs::write(dir.path().join("job.sh"), format!("#!/bin/bash\n# {0}\nsrun \"./prog\" --flag\n", us.display()))
            .unwrap();
        let of = || libraries_of(&words(&["bash".into(), "job.sh".into()], dir.path()), dir.path());
        let before = of();
        assert!(before.iter().any(|l| l.starts_with("libc.so")), "bash itself: {before:?}");
        assert!(!before.iter().any(|l| l.starts_with("libgcc_s")), "a comment is no program: {before:?}");
        std::os::unix::fs::symlink(&us, dir.path().join("prog")).unwrap();
        assert!(of().iter().any(|l| l.starts_with("libgcc_s")), "{:?}", of());
    }

    #[test]
    fn a_program_that_a_variable_or_the_home_folder_names_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let script = "#!/bin/bash\nexport APP=~/bin\nEXE=\"$APP/lmp\" RUN='mpirun -n 4'\n$RUN ${EXE} -in $UNKNOWN/in; (srun $(which x))\n";
        fs::write(dir.path().join("job.sh"), script).unwrap();
        let words = words(&["./job.sh".into()], dir.path());
        let home = std::env::var("HOME").unwrap();
        let expected = ["mpirun".to_string(), format!("{home}/bin/lmp"), "-in".to_string(), "$UNKNOWN/in".to_string()];
        let at = words.iter().rposition(|word| *word == "mpirun").unwrap();
        assert_eq!(words[at..at + 4], expected.map(|word| word.trim_matches('$').to_string()), "{words:?}");
        assert_eq!(words[at + 4..], ["srun", "which", "x"], "{words:?}");
    }

    #[test]
    fn words_of_any_kind_are_read() {
        let pieces = ["$", "{", "}", "~", "\u{e9}", "\\", ":-", "a", "=", "(", "'", "/", "1", "$HOME", "${"];
        let mut variables = Variables::default();
        for number in 0..pieces.len().pow(4) {
            let word: String = (0..4).map(|at| pieces[number / pieces.len().pow(at) % pieces.len()]).collect();
            variables.word(&word);
        }
        (0..100).for_each(|_| drop(variables.word("A=$A$A/bin")));
        assert!(variables.word("$A").len() <= LONGEST_BYTES);
    }

    #[test]
    fn a_script_that_the_script_calls_is_read_too() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("job.sh"), "#!/bin/bash\n./inner.sh && . ./inner.sh\n").unwrap();
        fs::write(dir.path().join("inner.sh"), "#!/bin/bash\n./inner.sh; srun -n1 prog\n").unwrap();
        let words = words(&["./job.sh".into()], dir.path());
        assert!(words.contains(&"srun".to_string()), "{words:?}");
        fs::write(dir.path().join("a.py"), "#!/usr/bin/python3\nmount = 3\n").unwrap();
        let of = |argv: &[&str]| {
            let argv: Vec<String> = argv.iter().map(|w| w.to_string()).collect();
            read(&argv, dir.path()).shell.len()
        };
        assert_eq!(
            [of(&["./job.sh"]), of(&["./a.py"]), of(&["sh", "./a.py"]), of(&["sh", "-c", "a"])],
            [2, 0, 0, 1],
            "a shell's"
        );
    }

    #[test]
    fn what_a_program_takes_by_name_and_what_a_library_holds_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let build = "echo 'const char held[4] = \"a\\0b\"; int taken(void) { return held[0]; }' >l.c && \
                     cc -shared -o libl.so l.c && \
                     echo 'int taken(void); int main(void) { return taken(); }' >p.c && cc -o p p.c libl.so";
        let built = std::process::Command::new("sh").args(["-c", build]).current_dir(dir.path()).status().unwrap();
        assert!(built.success());
        let taken = imports(&dir.path().join("p"));
        assert!(taken.contains("taken") && !taken.contains("main"), "{taken:?}");
        assert_eq!(held(&dir.path().join("libl.so"), "held").as_deref(), Some(&b"a\0b\0"[..]));
        assert_eq!(held(&dir.path().join("libl.so"), "other"), None);
        assert!(imports(&dir.path().join("l.c")).is_empty() && held(&dir.path().join("l.c"), "held").is_none());
    }

    #[test]
    fn what_a_program_says_and_where_it_finds_its_libraries_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let build = "mkdir lib bin && echo 'int taken(void) { return 0; }' >l.c && cc -shared -o lib/libl.so l.c && \
                     echo 'int taken(void); const char *s = \"such words\"; int main(void) { return taken() + !s; }' >p.c && \
                     for n in new old; do t=--enable-new-dtags; [ $n = new ] || t=--disable-new-dtags; \
                     cc -o bin/$n p.c lib/libl.so -Wl,$t '-Wl,-rpath,/nowhere:$ORIGIN/../lib'; done; cc -o bin/bare p.c lib/libl.so";
        let built = std::process::Command::new("sh").args(["-c", build]).current_dir(dir.path()).status().unwrap();
        assert!(built.success());
        for (name, expected) in [("new", true), ("old", true), ("bare", false)] {
            let program = dir.path().join("bin").join(name);
            assert_eq!(says(&program, ["such words", "other words"]), [true, false]);
            let found = folder_of(&program, "libl.so").map(|folder| fs::canonicalize(folder).unwrap());
            assert_eq!(found, expected.then(|| fs::canonicalize(dir.path().join("lib")).unwrap()), "{name}");
            assert_eq!(folder_of(&program, "libm.so"), None);
        }
        assert_eq!(says(&dir.path().join("p.c"), ["such words"]), [false]);
    }

    #[test]
    fn what_is_no_program_links_to_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        for content in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff"]
        {
            fs::write(&path, content).unwrap();
            assert_eq!(libraries(&path), BTreeSet::new());
        }
        assert_eq!(libraries(Path::new("/nowhere")), BTreeSet::new());
    }
}
