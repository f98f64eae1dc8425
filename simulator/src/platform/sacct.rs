//! Reads job logs as `sacct -P` prints them, by the names in their header.

use super::job::{Job, QueueFile};
use crate::Error;
use crate::failure_log::time_s;

/// The columns that are used, by place.
struct Columns {
    id: usize,
    submit: usize,
    elapsed: usize,
    nodes: usize,
    limit: Option<usize>,
}

/// Reads Submit, Elapsed, AllocNodes (or NNodes) and Timelimit of each job; steps are left out.
pub(super) fn parse(text: &str) -> Result<QueueFile, Error> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (number, header) = lines.next().unwrap_or((0, ""));
    let columns = Columns::of(number + 1, header)?;
    let (mut jobs, mut skipped) = (Vec::new(), 0);
    for (number, line) in lines {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let id = field(number + 1, &fields, columns.id)?;
        if id.contains('.') {
            continue;
        }
        match columns.job(number + 1, &fields)? {
            Some(job) => jobs.push(job),
            None => skipped += 1,
        }
    }
    Ok(QueueFile::of(jobs, skipped, None))
}

impl Columns {
    fn of(number: usize, header: &str) -> Result<Columns, Error> {
        let names: Vec<&str> = header.split('|').map(str::trim).collect();
        let place = |wanted: &[&str]| wanted.iter().find_map(|w| names.iter().position(|n| n.eq_ignore_ascii_case(w)));
        let needed = |wanted: &[&str]| {
            place(wanted).ok_or_else(|| Error::Line {
                number,
                problem: format!(
                    "the header has no column {}; make it with \
                     sacct -P -o JobID,Submit,Elapsed,AllocNodes,Timelimit",
                    wanted.join(" or ")
                ),
            })
        };
        Ok(Columns {
            id: needed(&["JobID", "JobIDRaw"])?,
            submit: needed(&["Submit"])?,
            elapsed: needed(&["Elapsed"])?,
            nodes: needed(&["AllocNodes", "NNodes"])?,
            limit: place(&["Timelimit"]),
        })
    }

    /// The job of a record; none if it did not run.
    fn job(&self, number: usize, fields: &[&str]) -> Result<Option<Job>, Error> {
        let wrong = |text: &str, what: &str| Error::Line { number, problem: format!("{text:?} is no {what}") };
        let submit = field(number, fields, self.submit)?;
        let submit_s = time_s(submit).ok_or_else(|| wrong(submit, "time of submission"))?;
        let elapsed = field(number, fields, self.elapsed)?;
        let work_s = duration_s(elapsed).ok_or_else(|| wrong(elapsed, "duration; valid: [DD-]HH:MM:SS"))?;
        let nodes = field(number, fields, self.nodes)?;
        let nodes: u32 = nodes.parse().map_err(|_| wrong(nodes, "number of nodes"))?;
        let limit_s = match self.limit.map(|place| field(number, fields, place)).transpose()? {
            None | Some("") => work_s,
            Some("UNLIMITED" | "Partition_Limit") => f64::INFINITY,
            Some(limit) => duration_s(limit).ok_or_else(|| wrong(limit, "time limit"))?,
        };
        Ok((nodes > 0 && work_s > 0.0).then_some(Job { submit_s, nodes, work_s, limit_s }))
    }
}

fn field<'a>(number: usize, fields: &[&'a str], place: usize) -> Result<&'a str, Error> {
    fields
        .get(place)
        .copied()
        .ok_or_else(|| Error::Line { number, problem: format!("{} fields, and the header has more", fields.len()) })
}

/// Seconds of `[DD-[HH:]]MM:SS`, with or without a fraction.
fn duration_s(text: &str) -> Option<f64> {
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    let days: u32 = days.parse().ok()?;
    let parts: Vec<f64> = clock.split(':').map(|p| p.parse().ok()).collect::<Option<_>>()?;
    let valid = (2..=3).contains(&parts.len()) && parts.iter().all(|p| (0.0..1e6).contains(p));
    valid.then(|| f64::from(days) * 86_400.0 + parts.iter().fold(0.0, |sum, part| sum * 60.0 + part))
}
