//! Manual pages, made from the definitions that the programs themselves use.

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use roff::{Roff, bold, italic, roman};
use std::fs;
use std::path::Path;

/// The shipped site file: its comments are the documentation of its keys.
const SITE_FILE: &str = include_str!("../../conf/joulepoint.toml");

/// Who publishes a page, and in which version.
const SOURCE: &str = concat!("joulepoint ", env!("CARGO_PKG_VERSION"));

/// The page of the command, or of one subcommand (`simulate` or `simulate replay`).
///
/// # Errors
/// The word that is no subcommand.
pub fn page(mut command: Command, words: &[String]) -> Result<String> {
    command.build();
    let mut shown = &command;
    for word in words {
        shown = shown.find_subcommand(word).with_context(|| format!("there is no subcommand '{word}'"))?;
    }
    let mut text = Vec::new();
    of(shown).render(&mut text)?;
    Ok(String::from_utf8(text)?)
}

fn of(command: &Command) -> Man {
    Man::new(command.clone()).source(SOURCE).manual("Joulepoint")
}

/// Writes all pages into a folder.
pub fn write_all(command: Command, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    // disable_help_subcommand keeps clap from a page for each "help".
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write(&command, folder)?;
    fs::write(folder.join("joulepoint.toml.5"), site_file())?;
    fs::write(folder.join("joulepoint-plugin.8"), plugin())?;
    Ok(())
}

/// The page of a command and those of what people call below it.
fn write(command: &Command, folder: &Path) -> Result<()> {
    command.get_subcommands().filter(|c| !c.is_hide_set()).try_for_each(|c| write(c, folder))?;
    of(command).generate_to(folder).with_context(|| folder.display().to_string())?;
    Ok(())
}

fn head(name: &str, section: &str, one_line: &str) -> Roff {
    let mut page = Roff::new();
    page.control("TH", [name, section, "", SOURCE, "Joulepoint"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {one_line}"))]);
    page
}

/// joulepoint.toml(5): sections, keys with their defaults, and the comments above them.
fn site_file() -> String {
    let mut page = head("joulepoint.toml", "5", "site file of Joulepoint");
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("/etc/joulepoint/joulepoint.toml, or the file that "),
        bold("JOULEPOINT_CONF"),
        roman(
            " names, says once what holds for all jobs of a site; a file that is named must be there. Every key may be left \
             out; its default is shown. An unknown key is refused, with its line and the nearest known key.",
        ),
    ]);
    let mut comment = String::new();
    for line in SITE_FILE.lines() {
        if line.starts_with('[') {
            page.control("SH", [line]);
            if !comment.is_empty() {
                page.text([roman(std::mem::take(&mut comment))]);
            }
        } else if let Some(text) = line.strip_prefix("# ") {
            comment = format!("{comment}{}{text}", if comment.is_empty() { "" } else { " " });
        } else if let Some((key, default)) = line.strip_prefix('#').and_then(|l| l.split_once(" = ")) {
            page.control("TP", []);
            page.text([bold(key), roman(" = "), italic(default)]);
            page.text([roman(std::mem::take(&mut comment))]);
        } else {
            comment.clear();
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("joulepoint(1), joulepointd(8), joulepoint-plugin(8)")]);
    page.render()
}

/// joulepoint-plugin(8): the options that the plugin adds, and its own arguments.
fn plugin() -> String {
    let mut page = head("joulepoint-plugin", "8", "SPANK plugin that protects jobs");
    page.control("SH", ["SYNOPSIS"]);
    page.text([
        bold("optional joulepoint.so"),
        roman(" [default=off|on|energy|time] [wrapper=PATH] [conf=PATH] [capabilities=PATH]"),
    ]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(
        "A line of plugstack.conf(5), on login hosts and on compute nodes. sbatch, salloc and srun then have the options \
         below; a wrong value is refused at submit, and a job that names none of them is left alone. Write 'optional': \
         with 'required' a node that lacks the file fails every job.",
    )]);
    page.control("SH", ["ARGUMENTS"]);
    for (argument, text) in [
        ("default=off|on|energy|time", "What --ft-energy is for jobs that do not say (off)."),
        ("wrapper=PATH", "The program in front of protected batch scripts (/usr/bin/joulepoint)."),
        ("conf=PATH", "The site file for that program (/etc/joulepoint/joulepoint.toml)."),
        ("capabilities=PATH", "Which checkpoint engines the nodes have (/run/joulepoint/capabilities.json)."),
    ] {
        page.control("TP", []);
        page.text([bold(argument)]);
        page.text([roman(text)]);
    }
    page.control("SH", ["OPTIONS OF SBATCH, SALLOC AND SRUN"]);
    page.text([roman(
        "Each has a twin in the environment: FT_ENERGY_IO_BOUND for --ft-energy-io-bound. The command line wins over the \
         environment, which wins over the site file.",
    )]);
    for option in options::OPTIONS {
        page.control("TP", []);
        let name = format!("--{}", option.name);
        match option.takes {
            options::Takes::None => page.text([bold(name)]),
            options::Takes::Optional => page.text([bold(name), roman("[="), italic(option.arginfo), roman("]")]),
            options::Takes::Required => page.text([bold(name), roman("="), italic(option.arginfo)]),
        };
        page.text([roman(option.help)]);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("joulepoint(1), joulepoint.toml(5), spank(7), sbatch(1)")]);
    page.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_site_file_has_its_words_and_its_default() {
        let page = site_file();
        let keys =
            SITE_FILE.lines().filter_map(|l| l.strip_prefix('#')?.split_once(" = ").filter(|_| !l.starts_with("# ")));
        let keys: Vec<_> = keys.collect();
        assert!(keys.len() > 30, "{}", keys.len());
        for (key, _) in keys {
            assert!(page.contains(&format!("\\fB{}\\fR", key.replace('-', "\\-"))), "{key}");
        }
    }

    #[test]
    fn every_page_has_its_whole_name_its_version_and_what_its_exit_status_means() {
        let folder = tempfile::tempdir().unwrap();
        write_all(crate::pages::command(), folder.path()).unwrap();
        for words in [vec![], vec!["simulate", "platform"], vec!["loans", "ask"], vec!["report"], vec!["run"]] {
            let name = [&["joulepoint"], words.as_slice()].concat().join("-");
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let shown = page(crate::pages::command(), &words).unwrap();
            assert!(shown.contains(&format!(".TH {name} 1  \"{SOURCE}\"")), "{shown}");
            assert!(shown.to_lowercase().contains("exit status"), "{name}: {shown}");
            assert!(folder.path().join(format!("{name}.1")).exists(), "{name}");
        }
        assert!(page(crate::pages::command(), &["nope".to_string()]).is_err());
    }

    #[test]
    fn every_option_is_in_the_plugin_s_page() {
        let page = plugin();
        for option in options::OPTIONS {
            assert!(page.contains(&format!("\\-\\-{}", option.name.replace('-', "\\-"))), "{}", option.name);
        }
    }
}
