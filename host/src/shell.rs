//! Words of the shell: a text as one of them, and the simple commands of a script, as far as they are seen without running it.

/// A text as one word of the shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Words that may stand before a command.
const BEFORE: [&str; 10] = ["if", "then", "else", "elif", "while", "until", "do", "!", "{", "("];

/// Programs that start the command that they are given.
const STARTERS: [&str; 17] = [
    "time", "exec", "command", "env", "nohup", "nice", "ionice", "timeout", "stdbuf", "setsid", "taskset", "numactl",
    "xargs", "parallel", "chrt", "unbuffer", "watch",
];

/// The simple commands of a script, each with its arguments; what another program starts is one, too.
///
/// Text in here-documents is none. What is in quotes may be taken for one where a line begins within them.
pub fn commands(script: &str) -> Vec<Vec<String>> {
    let script = script.replace("\\\n", " ");
    let mut all = Vec::new();
    let mut ends_with: Option<String> = None;
    for line in script.lines() {
        match &ends_with {
            Some(end) if line.trim() == end => ends_with = None,
            Some(_) => {}
            None => {
                of_line(line, &mut all);
                ends_with = here_document(line);
            }
        }
    }
    let started: Vec<Vec<String>> = all.iter().filter_map(|command| started(command)).map(<[String]>::to_vec).collect();
    all.extend(started);
    all
}

/// The command that another program starts: the first word behind it that is no option, no number and no variable.
fn started(command: &[String]) -> Option<&[String]> {
    let is_option = |word: &str| word.starts_with(['-', '{']) || word.starts_with(|c: char| c.is_ascii_digit());
    let mut at = 0;
    while STARTERS.contains(&base(command.get(at)?)) {
        at += 1;
        while is_option(command.get(at)?) || is_assignment(&command[at]) {
            at += 1;
        }
    }
    (at > 0).then(|| &command[at..])
}

/// The last part of a path.
pub fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn of_line(line: &str, all: &mut Vec<Vec<String>>) {
    let mut command: Vec<String> = Vec::new();
    let mut flush = |command: &mut Vec<String>| {
        if !command.is_empty() {
            all.push(std::mem::take(command));
        }
    };
    for raw in line.split_whitespace() {
        let mut word = raw;
        // A substitution begins a command of its own.
        let begins = [word.rfind("$(").map(|at| at + 2), word.find('`').map(|at| at + 1)];
        if let Some(at) = begins.into_iter().flatten().max().filter(|at| *at < word.len()) {
            flush(&mut command);
            word = &word[at..];
        } else if command.is_empty() {
            word = word.trim_start_matches('(');
        }
        let ends = [';', '|', '&', ')', '`'];
        let plain = word.trim_end_matches(['"', '\'']).trim_end_matches(ends);
        let name = plain.trim_matches(['"', '\'']);
        let skips = command.is_empty() && (BEFORE.contains(&name) || is_assignment(name));
        if !name.is_empty() && !skips {
            command.push(name.to_string());
        }
        if word[plain.len()..].contains(ends) {
            flush(&mut command);
        }
    }
    flush(&mut command);
}

/// The words of a line without those that it only prints (`echo running without srun`).
pub(crate) fn unprinted(line: &str) -> Vec<&str> {
    let (mut found, mut begins, mut prints) = (Vec::new(), true, false);
    for word in line.split_whitespace() {
        let bare = word.trim_start_matches(['(', '{']);
        prints = prints && !word.contains(['`', ';', '|', '&']) && !word.contains("$(");
        if !prints {
            found.push(word);
        }
        prints |= begins && ["echo", "printf"].contains(&bare);
        begins = word.ends_with([';', '|', '&', '(', '{']) || begins && BEFORE.contains(&word);
    }
    found
}

/// Whether a word sets a variable.
pub(crate) fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// The word that ends a here-document that begins in a line.
fn here_document(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("<<").filter(|(_, rest)| !rest.starts_with('<'))?;
    let rest = rest.trim_start_matches('-').trim_start();
    // A number is shifted, not ended with.
    let word = rest.split(|c: char| c.is_whitespace() || ";|&)<>".contains(c)).next()?;
    let end = word.replace(['"', '\'', '\\'], "");
    end.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_').then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_where_a_shell_would_start_them_and_text_is_none() {
        let script = "cd x && A=1 chgrp -R lab out; echo done at $(date)\nif ! ping -c1 h; then\n  x=\"$(sudo -n id)\"\nfi\n\
                      cat <<'EOF' >a\nsudo rm\nEOF\nnice -n 5 timeout 9 /usr/bin/podman run \\\n  image || (su -c true)\n";
        let found: Vec<String> = commands(script).into_iter().map(|c| c.join(" ")).collect();
        let expected = [
            "cd x",
            "chgrp -R lab out",
            "echo done at",
            "date",
            "ping -c1 h",
            "sudo -n id",
            "fi",
            "/usr/bin/podman run image",
            "su -c true",
        ];
        for one in expected {
            assert!(found.iter().any(|c| c == one), "{one}: {found:?}");
        }
        assert!(!found.iter().any(|c| c.starts_with("sudo rm") || c.starts_with("at")), "{found:?}");
    }

    #[test]
    fn what_is_only_printed_starts_nothing() {
        for (line, words) in [
            ("echo running without srun", "echo"),
            ("  if true; then echo srun >log; srun ./a; fi", "if true; then echo >log; srun ./a; fi"),
            ("echo $(srun hostname) srun", "echo $(srun hostname) srun"),
            ("./a echo srun || printf srun && srun b", "./a echo srun || printf && srun b"),
        ] {
            assert_eq!(unprinted(line).join(" "), words);
        }
    }

    #[test]
    fn only_the_first_word_behind_a_starter_is_a_command_and_a_shifted_number_ends_no_text() {
        let script = "exec ./prog --data /scratch/shifter\nenv CONF=/etc/docker -i ./prog\nN=$((1 << 20))\nsudo x\n\
                      cat << 'END-OF'\nsudo y\nEND-OF\ntaskset -c 0-3 nohup ./run su\n";
        let found: Vec<String> = commands(script).into_iter().map(|c| c[0].clone()).collect();
        assert_eq!(found.iter().filter(|name| *name == "sudo").count(), 1, "{found:?}");
        assert!(!found.iter().any(|name| ["shifter", "docker", "su"].contains(&base(name))), "{found:?}");
        assert_eq!(found.iter().filter(|name| *name == "./prog").count(), 2, "{found:?}");
        let many = format!("parallel ./run {{}} ::: {}", "word ".repeat(100_000));
        assert_eq!(commands(&many).len(), 2, "what a starter is given is no command each");
    }
}
