//! Figures and texts as people read them on a terminal.

pub use options::counted;

/// Energy: `1.23 MJ`.
pub fn energy(joules: f64) -> String {
    scaled(joules, "J")
}

/// A volume: `1.23 MB`, powers of 1000.
pub fn volume(bytes: f64) -> String {
    if bytes < 1e3 { format!("{bytes:.0} B") } else { scaled(bytes, "B") }
}

fn scaled(amount: f64, unit: &str) -> String {
    let (value, unit) = match amount.abs() {
        a if a >= 1e9 => (amount / 1e9, format!("G{unit}")),
        a if a >= 1e6 => (amount / 1e6, format!("M{unit}")),
        a if a >= 1e3 => (amount / 1e3, format!("k{unit}")),
        _ => (amount, unit.to_string()),
    };
    let decimals = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

/// The widest line that is printed unless more is asked for.
pub const WIDTH: usize = 80;

/// A label with its text beside it, whose further lines stand below its first.
pub fn hanging(label: &str, text: &str) -> String {
    const INDENT: usize = 12;
    let mut lines = format!("{label:<width$}", width = INDENT - 1);
    let mut used = INDENT - 1;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used >= INDENT && used + 1 + length > WIDTH {
            lines += &format!("\n{:INDENT$}{word}", "");
            used = INDENT + length;
        } else {
            lines += &format!(" {word}");
            used += 1 + length;
        }
    }
    lines.trim_end().to_string() + "\n"
}

/// A line, gone on below itself where it is wider than [`WIDTH`]: between words, and in lists of names behind a comma.
pub fn folded(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_string();
    }
    let own = line.len() - line.trim_start().len();
    let indent = own + 2;
    let (mut lines, mut used) = (" ".repeat(own), own);
    let mut between = "";
    for word in line[own..].split(' ') {
        let parts: Vec<&str> = match own + word.chars().count() > WIDTH {
            true => word.split_inclusive(',').collect(),
            false => vec![word],
        };
        for part in parts {
            let length = part.chars().count();
            if used > indent && used + between.len() + length > WIDTH {
                lines.truncate(lines.trim_end().len());
                lines += &format!("\n{:indent$}{part}", "");
                used = indent + length;
            } else {
                lines += &format!("{between}{part}");
                used += between.len() + length;
            }
            between = "";
        }
        between = " ";
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energies_are_readable() {
        let shown = [0.0, 12.345, 999.0, 2_617_640.0, -1234.5, 3.6e9].map(energy);
        assert_eq!(shown, ["0.00 J", "12.3 J", "999 J", "2.62 MJ", "-1.23 kJ", "3.60 GJ"]);
        assert_eq!([0.0, 12.0, 1234.0, 12e9].map(volume), ["0 B", "12 B", "1.23 kB", "12.0 GB"]);
    }

    #[test]
    fn wide_lines_are_folded_between_words_and_names() {
        let nodes = (1..=30).map(|n| format!("node{n:03}")).collect::<Vec<_>>().join(",");
        let text = folded(&format!("  restart 0 on {nodes}: completed (2 h, and a word more)"));
        assert!(text.lines().count() == 4 && text.lines().all(|l| l.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.replace("\n    ", ""), format!("  restart 0 on {nodes}: completed (2 h, and a word more)"));
        let words = folded(&format!("  node: {}", "the node is away, ".repeat(9)));
        assert!(words.lines().all(|l| l.chars().count() <= WIDTH) && words.contains("\n    "), "{words}");
        assert_eq!(words.split_whitespace().count(), 1 + 36, "no word is lost: {words}");
        assert_eq!(folded("  short:     as it is"), "  short:     as it is");
        let longest = "x".repeat(100);
        assert_eq!(folded(&longest), longest, "what has no place to fold stays");
    }

    #[test]
    fn long_texts_go_on_below_their_first_line() {
        let text = "a failure costs all work, and so does the next, unless the program writes checkpoints";
        let told = hanging("Protection:", &format!("NOT PROTECTED: {text}"));
        assert!(told.starts_with("Protection: NOT PROTECTED: a failure") && told.contains("\n            "), "{told}");
        assert!(told.lines().all(|l| l.chars().count() <= WIDTH), "{told}");
        assert_eq!(hanging("State:", "RUNNING"), "State:      RUNNING\n");
        assert_eq!(hanging("Job name:", ""), "Job name:\n");
        let word = "x".repeat(100);
        assert_eq!(hanging("Job name:", &word), format!("Job name:   {word}\n"));
    }
}
