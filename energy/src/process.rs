//! Reads what the kernel's files say of one process, whatever its name holds.

pub(crate) mod environ;

/// What we need of one process.
#[derive(Clone, Copy)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) ppid: i32,
    pub(crate) own_ticks: u64,
    pub(crate) reaped_ticks: u64,
    pub(crate) start_ticks: u64,
    pub(crate) stepd: bool,
    /// Whether it is a slurmd that lives.
    pub(crate) slurmd: bool,
    /// Whether it is a thread of the kernel's own.
    pub(crate) kernel: bool,
    /// Whether it is a step's process or stands below one, once that is looked at.
    pub(crate) in_step: bool,
}

/// The kernel's flag of its own threads, the same in every version.
const PF_KTHREAD: u64 = 0x0020_0000;

/// The name in parentheses may hold anything, so the fields begin after the last closing one.
pub(crate) fn parse_stat(pid: i32, stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|b| *b == b'(')?;
    let close = stat.iter().rposition(|b| *b == b')')?;
    let comm = stat.get(open + 1..close)?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(20).collect();
    // proc(5) counts from 1 and the first two fields are gone.
    let field = |n: usize| fields.get(n - 3).copied();
    let ticks = |n: usize| field(n)?.parse::<u64>().ok();
    // Children's times are signed in the kernel's format.
    let signed = |n: usize| Some(u64::try_from(field(n)?.parse::<i64>().ok()?).unwrap_or(0));
    Some(Process {
        pid,
        ppid: field(4)?.parse().ok()?,
        own_ticks: ticks(14)?.saturating_add(ticks(15)?),
        reaped_ticks: signed(16)?.saturating_add(signed(17)?),
        start_ticks: ticks(22)?,
        stepd: comm == b"slurmstepd",
        slurmd: comm == b"slurmd" && field(3) != Some("Z"),
        kernel: ticks(9)? & PF_KTHREAD != 0,
        in_step: false,
    })
}

/// What the title of a step process says.
pub(crate) enum Title {
    Step(u32, String),
    Odd(String),
    NoStep,
}

/// Reads the title in a `cmdline` file.
pub(crate) fn title(cmdline: &[u8]) -> Title {
    let text = String::from_utf8_lossy(cmdline);
    let text = text.trim_end_matches(['\0', ' ']);
    let Some(id) = text.strip_prefix("slurmstepd: [").and_then(|r| r.split_once(']')).map(|(id, _)| id) else {
        return Title::NoStep;
    };
    // Array tasks show their own job number; a heterogeneous part may stand on either side (`123.0+1`, `123+1.0`).
    let (job, step) = id.split_once('.').unwrap_or((id, ""));
    match job.split('+').next().unwrap_or_default().parse() {
        // `extern stepmgr`: what else a slurmstepd does is no part of its name.
        Ok(job_id) => Title::Step(job_id, step.split(' ').next().unwrap_or_default().chars().take(40).collect()),
        Err(_) => Title::Odd(id.chars().take(60).collect()),
    }
}

/// The real user in a `status` file.
pub(crate) fn real_uid(status: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(status);
    let line = text.lines().find_map(|l| l.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles() {
        let step = |text: &str| match title(text.as_bytes()) {
            Title::Step(job, step) => format!("{job} {step}"),
            Title::Odd(text) => format!("odd {text}"),
            Title::NoStep => "none".into(),
        };
        assert_eq!(step("slurmstepd: [123.batch]"), "123 batch");
        assert_eq!(step("slurmstepd: [123.interactive]\0\0"), "123 interactive");
        assert_eq!(step("slurmstepd: [123.extern stepmgr]"), "123 extern");
        assert_eq!(step("slurmstepd: [123.4+1]"), "123 4+1");
        assert_eq!(step("slurmstepd: [123+1.4]"), "123 4");
        assert_eq!(step("slurmstepd: [123]"), "123 ");
        assert_eq!(step("slurmstepd: [sABC.0]"), "odd sABC.0");
        assert_eq!(step("slurmstepd: [99999999999.0]"), "odd 99999999999.0");
        assert_eq!(step("/usr/sbin/slurmstepd"), "none");
        assert_eq!(step("slurmstepd infinity"), "none");
        assert_eq!(step(""), "none");
    }
}
