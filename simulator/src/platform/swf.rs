//! Reads job logs in the Standard Workload Format of the Parallel Workloads Archive.

use super::job::{Job, QueueFile};
use crate::Error;

/// Fields of a record; unknown ones are -1.
const FIELDS: usize = 18;

/// Reads the records: processors allocated (or else requested), run time, and time requested (or else the run time).
pub(super) fn parse(text: &str, processors_per_node: Option<u32>) -> Result<QueueFile, Error> {
    let (mut jobs, mut skipped) = (Vec::new(), 0);
    let (mut nodes, mut processors) = (None, None);
    let mut records = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix(';') {
            nodes = nodes.or(header(comment, "MaxNodes"));
            processors = processors.or(header(comment, "MaxProcs"));
        } else if !line.is_empty() {
            records.push(record(number + 1, line)?);
        }
    }
    let own = match (nodes, processors) {
        (Some(n), Some(p)) => (p / n).max(1),
        _ => 1,
    };
    let per_node = processors_per_node.unwrap_or(own).max(1);
    for r in records {
        let known = |value: f64, otherwise: f64| if value > 0.0 { value } else { otherwise };
        let (allocated, work_s) = (known(r[4], r[7]), r[3]);
        if allocated <= 0.0 || work_s <= 0.0 || r[1] < 0.0 {
            skipped += 1;
            continue;
        }
        let nodes = (allocated / f64::from(per_node)).ceil() as u32;
        jobs.push(Job { submit_s: r[1], nodes, work_s, limit_s: known(r[8], work_s) });
    }
    Ok(QueueFile::of(jobs, skipped, nodes.or(processors.map(|p| p.div_ceil(per_node)))))
}

fn record(number: usize, line: &str) -> Result<[f64; FIELDS], Error> {
    let refuse = |problem| Error::Line { number, problem };
    let mut values = [-1.0; FIELDS];
    let mut fields = line.split_whitespace();
    for (index, value) in values.iter_mut().enumerate() {
        let field = fields.next().ok_or_else(|| {
            refuse(format!("{index} fields instead of {FIELDS}; is it the Standard Workload Format, or sacct -P?"))
        })?;
        *value = field
            .parse()
            .ok()
            .filter(|v: &f64| v.is_finite())
            .ok_or_else(|| refuse(format!("field {} is {field:?}, not a number", index + 1)))?;
    }
    Ok(values)
}

/// The value of a header comment such as `; MaxNodes: 128`.
fn header(comment: &str, name: &str) -> Option<u32> {
    let (key, value) = comment.split_once(':')?;
    (key.trim() == name).then(|| value.split_whitespace().next()?.parse().ok())?.filter(|n| *n > 0)
}
