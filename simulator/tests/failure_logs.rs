//! Every form of failure log is read, and what cannot be read is refused with its line.

use proptest::prelude::*;
use simulator::Error;
use simulator::failure_log;
use simulator::trace::Trace;

/// LA-UR-05-7318 as released, with a heading of two lines; the first row is the one that its README shows.
const PUBLISHED: &str = "\
System,machine type,nodes,procstot,procsinnode,nodenum,nodenumz,node install,node prod,node decom,fru type,mem,cputype,memtype,num intercon,purpose,Prob Started,Prob Fixed,Down Time,Facilities,Hardware,Human Error,Network,Undetermined,Software,Same Event\r
,,,,,,,,,,,,,,,,(mm/dd/yy hh:mm),(mm/dd/yy hh:mm),,,,,,,,\r
2,cluster,49,6152,80,0,0,5-Apr,5-Jun,current,part,80,1,1,0,graphics.fe,6/21/2005 10:54,6/21/2005 11:00,6,,Graphics Accel Hdwr,,,,,No\r
2,cluster,49,6152,80,3,3,5-Apr,5-Jun,current,part,80,1,1,0,compute,6/21/2005 12:54,6/21/2005 13:00,6,,\"CPU, both\",,,,,No\r
20,cluster,512,2048,4,9,9,1-Nov,1-Dec,current,part,16,3,2,1,compute,12/31/2001 23:00,1/1/2002 1:00,120,,,,,,DST,No\r
2,cluster,49,6152,80,1,1,5-Apr,5-Jun,current,part,80,1,1,0,compute,6/22/2005 0:54,6/22/2005 1:00,6,,Memory Dimm,,,,,No\r
20,cluster,512,2048,4,8,8,1-Nov,1-Dec,current,part,16,3,2,1,compute,1/1/2002 0:00,1/1/2002 1:00,60,,,,,,DST,No\r
20,cluster,512,2048,4,7,7,1-Nov,1-Dec,current,part,16,3,2,1,compute,1/1/02 0:30,1/1/2002 1:00,60,,,,,,DST,No\r
7,cluster,1,8,8,0,0,1-Nov,1-Dec,current,part,16,3,2,1,compute,1/1/2002 0:30,1/1/2002 1:00,60,,,,,,DST,No\r
";

fn read(name: &str, text: &str, system: Option<u32>) -> Result<Vec<Trace>, Error> {
    failure_log::read(name, text, system).map(|log| log.traces)
}

fn gaps(text: &str) -> Vec<f64> {
    let traces = read("log", text, None).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(traces.len(), 1, "{text}");
    traces[0].gaps_s.clone()
}

#[test]
fn los_alamos_published_form_gives_a_trace_for_each_system() {
    let traces = read("log", PUBLISHED, None).unwrap();
    let found: Vec<_> = traces.iter().map(|t| (t.name.as_str(), t.system(), t.gaps_s.as_slice())).collect();
    assert_eq!(
        found,
        [("system-2", Some(2), [7_200.0, 43_200.0].as_slice()), ("system-20", Some(20), [3_600.0, 1_800.0].as_slice())]
    );
    let left_out = failure_log::read("log", PUBLISHED, None).unwrap().left_out;
    assert_eq!(left_out, [(7, Error::TooShort { gaps: 0 })], "one failure is too few");
    assert_eq!(read("log", PUBLISHED, Some(20)).unwrap(), traces[1..]);
    let error = read("log", PUBLISHED, Some(5)).unwrap_err().to_string();
    assert_eq!(error, "the log's systems are [2, 7, 20]; one of them is needed");
    let two = "System,time\n2,0\n2,100\n2,300\n7,50\n";
    for (log, known) in [(PUBLISHED, "[2, 20, 7]"), (two, "[2, 7]")] {
        let error = Trace::parse("log", log).unwrap_err().to_string();
        assert!(error.contains(known), "one of several is wanted: {error}");
    }
}

#[test]
fn the_copied_logs_are_read_as_published() {
    let text = include_str!("../../tests/data/lanl/system-20.csv");
    assert_eq!(Trace::parse("system-20", text).unwrap().gaps_s.len(), 2_400);
}

#[test]
fn plain_times_need_no_heading_and_no_order() {
    for text in [
        "time,node\n0,a\n100,b\n100,c\n250,a\n",
        "0,a\n250,a\n100,b\n",
        "\u{feff}TIME , node\n\n0\n# a remark\n100\n250",
        "node,time\na,250\nb,100\nc,0\n",
        "1970-01-01T00:00,a\n1970-01-01 00:01:40,b\n1970-01-01T00:04:10Z,c\n",
        "1970-01-01T01:00+01:00\n1970-01-01T00:01:40\n01/01/1970 00:04:10\n"
            .replace("01/01/1970 00:04:10", "250")
            .as_str(),
    ] {
        assert_eq!(gaps(text), [100.0, 150.0], "{text}");
    }
    assert_eq!(gaps("time\n1996-02-28T23:59\n1996-03-01T00:00\n1996-03-01T00:02\n"), [86_460.0, 120.0], "a leap day");
}

#[test]
fn what_sacct_prints_is_a_log() {
    let iso = "JobID|End|NodeList\n7|2026-03-01T10:00:00|n[1-8]\n9|2026-03-01T12:00:00|n1\n9|2026-03-01T12:30:00|n2\n";
    assert_eq!(gaps(iso), [7_200.0, 1_800.0]);
    assert_eq!(gaps(&format!("{iso}11|Unknown|n3\n")), [7_200.0, 1_800.0], "a job that still runs has not failed");
    assert_eq!(gaps("JobID|End|NodeList\n7|1000|n[1-8]\n8|1000|n1\n9|1600|n1\n10|1700|n2\n"), [600.0, 100.0]);
}

#[test]
fn what_cannot_be_read_is_refused_with_its_line() {
    for (text, expected) in [
        ("time,node\n0,a\nsoon,b\n", "line 3: \"soon\" is no time; valid: seconds"),
        ("time,node\n\n0,a\n1,b\n,c\n", "line 5: \"\" is no time"),
        ("node,when\na,0\n", "line 1: \"node,when\" is no time (seconds, 1996-12-31T23:59[:59], or 12/31/1996 23:59)"),
        ("\u{7f}ELF\u{fffd}\u{2}\u{1}, \u{1b}[2J", "line 1: \"ELF,[2J\" is no time"),
        ("time\n0\nUnknown\n", "line 3: \"Unknown\" is no time"),
        ("time\n1e99\n2\n", "line 2: \"1e99\" is no time"),
        ("time\n1996-02-30T00:00\n", "line 2: \"1996-02-30T00:00\" is no time"),
        ("System,Prob Started\n2,1/1/2000 0:00\nx,1/1/2000 0:01\n", "line 3: \"x\" is no system number"),
        ("", "the log is empty; a line for each failure is needed, with its time"),
        ("# nothing\n", "the log is empty"),
        ("time\n", "there is no gap between failures; three failures at different times are needed"),
        ("time\n5\n5\n9\n", "there is one gap between failures"),
    ] {
        let error = read("log", text, None).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
    let error = read("log", "0\n1\n3\n", Some(2)).unwrap_err().to_string();
    assert!(error.starts_with("the log has no column System"), "{error}");
    let long = format!("node,{}\n", "x".repeat(1_000));
    assert!(read("log", &long, None).unwrap_err().to_string().len() < 250);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = read("any", &text, None);
    }

    #[test]
    fn any_rows_are_read_or_refused(
        heading in prop::sample::select(vec!["time,node", "System,Prob Started", "JobID|End", "failure_start", ""]),
        rows in prop::collection::vec("[-0-9/:T ,|\"e.+a]{0,30}", 0..20),
    ) {
        if let Ok(traces) = read("any", &format!("{heading}\n{}", rows.join("\n")), None) {
            for trace in traces {
                prop_assert!(trace.gaps_s.len() >= 2 && trace.gaps_s.iter().all(|g| g.is_finite() && *g > 0.0));
            }
        }
    }

    #[test]
    fn order_and_doubles_do_not_matter(mut times in prop::collection::btree_set(0..2_000_000_000_u32, 3..50)) {
        let first = times.pop_first().unwrap();
        let rising: Vec<u32> = std::iter::once(first).chain(times).collect();
        let lines = |times: &[u32]| times.iter().map(|t| format!("{t},n\n")).collect::<String>();
        let falling: Vec<u32> = rising.iter().rev().flat_map(|t| [*t, *t]).collect();
        prop_assert_eq!(read("a", &lines(&rising), None), read("a", &lines(&falling), None));
    }
}
