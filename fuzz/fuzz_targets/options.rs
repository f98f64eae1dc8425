//! Options as a user may write them: `name=value` lines. What is accepted must be accepted again as it is printed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use protocol::{Request, Setting, Source};

fuzz_target!(|text: &str| {
    let mut request = Request::default();
    for (number, line) in text.lines().enumerate() {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let name = match options::OPTIONS.get(number % options::OPTIONS.len()) {
            Some(spec) if name.is_empty() => spec.name,
            _ => name,
        };
        request.settings.insert(name.to_owned(), Setting { value: value.to_owned(), source: Source::Option });
    }
    let first = options::resolve(&request, &Default::default());
    let json = serde_json::to_string(&request).expect("a request is a document");
    let again: Request = serde_json::from_str(&json).expect("what was written can be read");
    let second = options::resolve(&again, &Default::default());
    assert_eq!(format!("{first:?}"), format!("{second:?}"));
    if let Ok(seconds) = options::parse_time(text) {
        let printed = options::format_time(seconds.as_secs_f64());
        let _ = options::parse_time(&printed).expect("a time is read as it is printed");
    }
    let _ = (options::parse_size(text), options::parse_percent(text), options::parse_signal(text));
});
