//! The command line as its help, its manual pages and its completion show it.

use clap::{Command, CommandFactory};
use clap_complete::Shell;

/// What every subcommand's status means that does not say it itself.
const EXIT_STATUS: &str = "Exit status: 0 done; 1 a service, Slurm or a file failed; 2 wrong usage or input.";

/// The command line, with what the exit status means on every page.
pub fn command() -> Command {
    with_status(crate::Cli::command())
}

fn with_status(command: Command) -> Command {
    let command = command.mut_subcommands(with_status);
    let words = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    let told = words(command.get_long_about()) + &words(command.get_about());
    let known = ["Exit status", "xit status as for"].iter().any(|word| told.contains(word));
    let examples = command.get_after_help().map(|text| format!("{text}\n\n")).unwrap_or_default();
    if known { command } else { command.after_long_help(examples + EXIT_STATUS) }
}

/// The completion script of a shell: what people call, without what the parts call.
pub fn completion(shell: Shell) -> anyhow::Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut for_people(&command()), "joulepoint", &mut script);
    Ok(String::from_utf8(script)?)
}

/// The same without hidden subcommands, which clap cannot take out again.
fn for_people(command: &Command) -> Command {
    let kept: Vec<Command> = command.get_subcommands().filter(|c| !c.is_hide_set()).map(for_people).collect();
    // clap wants names that live as long as the program; they are few, and it ends after this.
    let same = Command::new(&*command.get_name().to_owned().leak()).args(command.get_arguments().cloned());
    let same = if command.get_version().is_some() { same.version(env!("CARGO_PKG_VERSION")) } else { same };
    let same = match command.get_about() {
        Some(about) => same.about(about.clone()),
        None => same,
    };
    same.subcommands(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_offers_what_people_call_and_nothing_else() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completion(shell).unwrap();
            for (word, offered) in [("report", true), ("recall", true), ("warden", false), ("conduct", false)] {
                assert_eq!(script.contains(word), offered, "{shell}: {word}");
            }
        }
    }
}
