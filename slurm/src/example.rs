//! Jobs made from a few words, and a squeue that is a script: for tests of rooms that look at jobs.

use crate::job::parse_one;
use crate::{Error, Job};
use std::path::Path;

/// The job with this id of a line such as `JobId=7 UserId=alice(1000) JobState=RUNNING NodeList=n[1-2]`, in the words
/// of `scontrol show job`; what is not named is as of a job that asked for nothing.
///
/// # Errors
/// As of what `squeue` prints.
pub fn parse_job(line: &str, id: u32) -> Result<Option<Job>, Error> {
    columns(line).map_or(Ok(None), |columns| parse_one(&columns, id))
}

/// The words of such lines, by the columns of squeue that show them, with what stands there otherwise.
const WORDS: [(&str, &str, &str); 36] = [
    ("JobID", "JobId", ""),
    ("UserID", "UserId", "0"),
    ("UserName", "UserName", "nobody"),
    ("ArrayJobID", "ArrayJobId", "0"),
    ("ArrayTaskID", "ArrayTaskId", "N/A"),
    ("HetJobID", "HetJobId", "N/A"),
    ("State", "JobState", ""),
    ("Partition", "Partition", ""),
    ("NodeList", "NodeList", ""),
    ("BatchHost", "BatchHost", "n/a"),
    ("BatchFlag", "BatchFlag", "0"),
    ("Requeue", "Requeue", "0"),
    ("RestartCnt", "Restarts", "0"),
    ("exit_code", "ExitCode", "0:0"),
    ("PreemptTime", "PreemptTime", "N/A"),
    ("SubmitTime", "SubmitTime", "N/A"),
    ("EligibleTime", "EligibleTime", "N/A"),
    ("StartTime", "StartTime", "N/A"),
    ("EndTime", "EndTime", "NONE"),
    ("TimeLimit", "TimeLimit", "UNLIMITED"),
    ("NumCPUs", "NumCPUs", "0"),
    ("NumNodes", "NumNodes", "0"),
    ("OverSubscribe", "OverSubscribe", "OK"),
    ("ReqNodes", "ReqNodeList", ""),
    ("SchedNodes", "SchedNodeList", ""),
    ("PriorityLong", "Priority", "0"),
    ("Reservation", "Reservation", "(null)"),
    ("Contiguous", "Contiguous", "0"),
    ("ReqSwitch", "Switches", "0"),
    ("Licenses", "Licenses", "(null)"),
    ("tres-per-job", "TresPerJob", "N/A"),
    ("tres-per-node", "TresPerNode", "N/A"),
    ("tres-per-socket", "TresPerSocket", "N/A"),
    ("tres-per-task", "TresPerTask", "N/A"),
    ("Reason", "Reason", "None"),
    ("Feature", "Features", "(null)"),
];

/// The same for columns that stand alone in an answer.
const TEXTS: [(&str, &str, &str); 7] = [
    ("Name", "JobName", "(null)"),
    ("Account", "Account", "(null)"),
    ("Command", "Command", "(null)"),
    ("admin_comment", "AdminComment", ""),
    ("BurstBuffer", "BurstBuffer", "(null)"),
    ("QOS", "QOS", "(null)"),
    ("Deadline", "Deadline", "N/A"),
];

fn columns(line: &str) -> Option<String> {
    let value = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value("JobId")?;
    let shown = |(column, key, otherwise): &(&str, &str, &str)| {
        let user = || value("UserId").and_then(|u| u.trim_end_matches(')').split_once('('));
        match *column {
            "UserID" => user().map_or(otherwise.to_string(), |(_, uid)| uid.to_string()),
            "UserName" => user().map_or(otherwise.to_string(), |(name, _)| name.to_string()),
            _ => value(key).unwrap_or(otherwise).to_string(),
        }
    };
    Some(WORDS.iter().map(|word| shown(word) + "|").collect())
}

/// The body of a shell script that answers as `squeue` does about the jobs whose lines, as for [`parse_job`], stand in a
/// file: by `--jobs`, `--user` and `--name`, and with the columns that are asked for.
pub fn squeue(jobs: &Path) -> String {
    let table = |words: &[(&str, &str, &str)]| -> String {
        words.iter().map(|(column, key, otherwise)| format!("{column};{key};{otherwise}\\n")).collect()
    };
    let awk = r#"
BEGIN {
    n = split(table, rows, "\n")
    for (i = 1; i <= n; i++) { split(rows[i], part, ";"); key[part[1]] = part[2]; otherwise[part[1]] = part[3] }
    columns = split(format, column, ",")
}
{
    delete has
    for (i = 1; i <= NF; i++) { at = index($i, "="); has[substr($i, 1, at - 1)] = substr($i, at + 1) }
    split(has["UserId"], user, /[()]/)
    task = has["ArrayJobId"] "_" has["ArrayTaskId"]
    if (jobs != "" && jobs != has["JobId"] && jobs != task && jobs != has["ArrayJobId"]) next
    if (of != "" && of != user[2]) next
    if (name != "" && index("," name ",", "," has["JobName"] ",") == 0) next
    found = 1
    line = ""
    for (i = 1; i <= columns; i++) {
        split(column[i], part, ":")
        c = part[1]
        value = (key[c] in has) ? has[key[c]] : otherwise[c]
        if (c == "UserID") value = user[2]
        if (c == "UserName") value = user[1]
        line = line value (part[2] ~ /\|/ ? "|" : "")
    }
    print line
}
END {
    if (jobs != "" && !found) { print "slurm_load_jobs error: Invalid job id specified" > "/dev/stderr"; exit 1 }
}
"#;
    format!(
        "[ \"$1\" != --helpFormat ] || exit 0\njobs= of= name= columns=\n\
         while [ $# -gt 0 ]; do case $1 in --jobs) jobs=$2 ;; --user) of=$2 ;; --name) name=$2 ;; --Format) columns=$2 ;; \
         --format=*) columns=None:0 ;; esac; shift; done\n\
         exec awk -v table='{}' -v format=\"$columns\" -v jobs=\"$jobs\" -v of=\"$of\" -v name=\"$name\" '{awk}' {}\n",
        table(&WORDS) + &table(&TEXTS),
        jobs.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::columns;

    #[test]
    fn the_words_are_those_of_the_columns() {
        assert_eq!(WORDS.map(|(column, _, _)| column), columns());
    }
}
