//! Reads `joulepoint.toml`: what a site says once, for all its jobs.
//!
//! Unknown keys are refused with the line and the nearest key. A missing file at the default place is a site that
//! says nothing.

mod calibration;
mod lend;
mod limits;
mod site;
mod watch;

pub use calibration::Calibration;
pub use lend::Lend;
pub use limits::Limits;
pub use site::{Accounting, Compress, Controller, Criu, Energy, Estimates, Hook, Node, Runs, Site, Slurm, Wrapper};
pub use watch::Watch;

use std::fmt;
use std::path::Path;

/// Where the file is, unless `JOULEPOINT_CONF` names another.
pub const DEFAULT_PATH: &str = "/etc/joulepoint/joulepoint.toml";

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Reads a file; at the [`DEFAULT_PATH`] a missing one gives the defaults.
///
/// # Errors
/// A sentence with the path, the line, and the nearest key or the valid range.
pub fn read(path: &Path) -> Result<Site, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text, &path.display().to_string()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && path == Path::new(DEFAULT_PATH) => Ok(Site::default()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(Error(format!("{}: there is no such site file; mend --conf or JOULEPOINT_CONF", path.display())))
        }
        Err(e) => Err(Error(format!("{}: {e}", path.display()))),
    }
}

/// Reads the text of a file that is called `name` in messages.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, name: &str) -> Result<Site, Error> {
    let site: Site = toml::from_str(text).map_err(|e| Error(explain(&e, text, name)))?;
    check(&site, name)?;
    Ok(site)
}

fn explain(error: &toml::de::Error, text: &str, name: &str) -> String {
    let line = error.span().map_or(1, |s| text[..s.start.min(text.len())].matches('\n').count() + 1);
    let message = error.message();
    // toml says: unknown field `kep`, expected one of `keep`, ...
    let mut quoted = message.split('`').skip(1).step_by(2);
    let near = match (message.starts_with("unknown field"), quoted.next()) {
        (true, Some(word)) => options::nearest(word, quoted),
        _ => None,
    };
    match near {
        Some(near) => {
            let word = message.split('`').nth(1).unwrap_or("");
            format!("{name}, line {line}: unknown key '{word}'; did you mean '{near}'?")
        }
        None => format!("{name}, line {line}: {message}"),
    }
}

fn check(site: &Site, name: &str) -> Result<(), Error> {
    let positive = [
        ("controller.detect_s", site.controller.detect_s),
        ("node.beat_s", site.node.beat_s),
        ("energy.idle_w", site.energy.idle_w),
        ("energy.busy_w", site.energy.busy_w),
        ("energy.ipmi_period_s", site.energy.ipmi_period_s),
        ("estimates.node_mtbf_s", site.estimates.node_mtbf_s),
        ("energy.max_node_w", site.energy.max_node_w),
        ("estimates.checkpoint_s", site.estimates.checkpoint_s),
        ("estimates.write_bytes_per_s", site.estimates.write_bytes_per_s),
        ("estimates.restart_s", site.estimates.restart_s),
        ("wrapper.checkpoint_limit_s", site.wrapper.checkpoint_limit_s),
        ("lend.shortest_s", site.lend.shortest_s),
        ("lend.longest_s", site.lend.longest_s),
        ("lend.patience_s", site.lend.patience_s),
        ("calibration.largest_checkpoint_mib", f64::from(site.calibration.largest_checkpoint_mib)),
        ("calibration.largest_message_mib", f64::from(site.calibration.largest_message_mib)),
    ];
    for (key, value) in positive {
        if !(value.is_finite() && value > 0.0) {
            return Err(Error(format!("{name}: {key} = {value} must be a number above 0")));
        }
    }
    site.watch
        .check(site.controller.detect_s, [site.node.beat_s, site.node.idle_beat_s])
        .map_err(|why| Error(format!("{name}: {why}")))?;
    if let Some(why) = site.controller.urls().find_map(|url| check_url(url).err()) {
        let url = &site.controller.url;
        return Err(Error(format!("{name}: controller.url = '{url}' {why}; write http://HOST:PORT")));
    }
    let kept_days = [
        ("controller.retention_days", site.controller.retention_days),
        ("runs.keep_completed_days", site.runs.keep_completed_days),
        ("runs.keep_failed_days", site.runs.keep_failed_days),
        ("runs.keep_records_days", site.runs.keep_records_days),
    ];
    for (key, days) in kept_days {
        if !(days.is_finite() && days >= 0.0) {
            return Err(Error(format!("{name}: {key} = {days} must be 0 (for ever) or above")));
        }
    }
    let longest_s = site.wrapper.longest_interval_s;
    if !(longest_s.is_finite() && longest_s >= 0.0) {
        return Err(Error(format!("{name}: wrapper.longest_interval_s = {longest_s} must be 0 (any) or above")));
    }
    let of_parts = [site.controller.wrong(), site.limits.wrong(), site.slurm.wrong(), site.accounting.wrong()];
    if let Some(wrong) = of_parts.into_iter().flatten().next() {
        return Err(Error(format!("{name}: {wrong}")));
    }
    let share = site.criu.memory_share;
    if !(0.0..=0.9).contains(&share) {
        return Err(Error(format!("{name}: criu.memory_share = {share} must be from 0 (straight to disk) to 0.9")));
    }
    if site.energy.busy_w < site.energy.idle_w {
        return Err(Error(format!(
            "{name}: energy.busy_w = {} must not be below energy.idle_w = {}",
            site.energy.busy_w, site.energy.idle_w
        )));
    }
    for source in &site.energy.sources {
        if source.parse::<energy::SourceKind>().is_err() {
            let known = energy::SourceKind::ALL.map(|k| k.as_str());
            let near = options::nearest(source, known).map(|n| format!("; did you mean '{n}'?")).unwrap_or_default();
            let known = known.join(", ");
            return Err(Error(format!("{name}: energy.sources: '{source}' is not one of {known}{near}")));
        }
    }
    for (key, value) in &site.defaults {
        let Some(spec) = options::find(key) else {
            let near = options::nearest(key, options::OPTIONS.iter().map(|s| s.name))
                .map(|n| format!("; did you mean '{n}'?"))
                .unwrap_or_default();
            return Err(Error(format!("{name}: defaults.{key} is not an option{near}")));
        };
        options::check_at(spec, &format!("{name}: defaults.{key}"), value)
            .map_err(|refusal| Error(refusal.to_string()))?;
    }
    Ok(())
}

/// Whether a URL names a host, and a port perhaps, by plain HTTP, which munge signs.
fn check_url(url: &str) -> Result<(), &'static str> {
    let uri: http::Uri = url.parse().map_err(|_| "is no URL")?;
    let authority =
        uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or("does not begin with http://")?;
    let port = authority.as_str().strip_prefix(authority.host()).ok_or("names a user")?;
    match port.strip_prefix(':').map(str::parse::<u16>) {
        None | Some(Ok(1..)) => Ok(()),
        Some(_) => Err("has no port from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_empty_file_says_nothing_and_a_named_one_that_is_missing_is_refused() {
        assert_eq!(parse("", "x").unwrap(), Site::default());
        assert_eq!(read(Path::new("/dev/null")).unwrap(), Site::default());
        let e = read(Path::new("/nonexistent/x.toml")).unwrap_err().to_string();
        assert!(e.contains("/nonexistent/x.toml") && e.contains("JOULEPOINT_CONF"), "{e}");
    }

    #[test]
    fn a_url_names_a_host_by_http() {
        let with = |url: &str| parse(&format!("[controller]\nurl = \"{url}\"\n"), "f").map_err(|e| e.to_string());
        for good in
            ["http://head", "http://head:6820/", "http://10.0.0.1:1", "http://[::1]:6820", "http://a:1, http://b:1"]
        {
            assert!(with(good).is_ok(), "{good}: {:?}", with(good));
        }
        for (bad, why) in [
            ("ftp://x", "http://"),
            ("https://x", "http://"),
            ("head:6820", "http://"),
            ("", "is no URL"),
            ("http://x y:9999999", "is no URL"),
            ("http://x:9999999", "port"),
            ("http://x:0", "port"),
            ("http://me@x", "user"),
            ("http://a,", "is no URL"),
        ] {
            let said = with(bad).unwrap_err();
            assert!(said.contains("controller.url") && said.contains(bad) && said.contains(why), "{said}");
        }
    }

    #[test]
    fn a_store_is_a_file_by_its_whole_path_or_a_mariadb() {
        let with = |store: &str| parse(&format!("[controller]\nstore = \"{store}\"\n"), "f").map_err(|e| e.to_string());
        for good in ["/var/lib/joulepoint/joulepoint.sqlite", "mysql://joulepoint@db/joulepoint"] {
            assert!(with(good).is_ok(), "{good}: {:?}", with(good));
        }
        for (bad, shown) in [
            ("postgres://x/y", "postgres://x/y"),
            ("mariadb://me:secret@db/jp", "mariadb://...@db/jp"),
            ("joulepoint.sqlite", "joulepoint.sqlite"),
            ("", "''"),
        ] {
            let said = with(bad).unwrap_err();
            let named = ["controller.store", shown, "mysql://"].iter().all(|part| said.contains(part));
            assert!(named && !said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn an_unknown_key_names_line_and_nearest() {
        let e = parse("[controller]\ndetect = 3\n", "joulepoint.toml").unwrap_err();
        assert_eq!(e.to_string(), "joulepoint.toml, line 2: unknown key 'detect'; did you mean 'detect_s'?");
    }

    #[test]
    fn wrong_values_name_key_and_range() {
        let e = parse("[estimates]\nnode_mtbf_s = -1.0\n", "f").unwrap_err();
        assert!(e.to_string().contains("estimates.node_mtbf_s = -1"), "{e}");
        let e = parse("[runs]\nkeep_failed_days = -3\n", "f").unwrap_err();
        assert!(e.to_string().contains("runs.keep_failed_days = -3"), "{e}");
        let e = parse("[criu]\nmemory_share = 1.5\n", "f").unwrap_err();
        assert!(e.to_string().contains("criu.memory_share = 1.5"), "{e}");
        for (text, key) in [
            ("price_per_kwh = -0.3\ncurrency = \"EUR\"", "accounting.price_per_kwh = -0.3"),
            ("price_per_kwh = 0.3", "accounting.currency"),
            ("co2_g_per_kwh = inf", "accounting.co2_g_per_kwh"),
            (
                "tariff = \"tariff.csv\"\ncurrency = \"EUR\"",
                "accounting.tariff = 'tariff.csv' must be an absolute path",
            ),
            ("tariff = \"/etc/joulepoint/tariff.csv\"", "accounting.currency"),
            ("wait_for = \"wind\"", "wind"),
        ] {
            let e = parse(&format!("[accounting]\n{text}\n"), "f").unwrap_err();
            assert!(e.to_string().contains(key), "{e}");
        }
        let e = parse("[defaults]\nft-energy-keep = \"0\"\n", "f").unwrap_err();
        assert!(e.to_string().contains("defaults.ft-energy-keep"), "{e}");
        let e = parse("[defaults]\nft-enrgy-keep = \"1\"\n", "f").unwrap_err();
        assert!(e.to_string().contains("did you mean 'ft-energy-keep'"), "{e}");
    }

    #[test]
    fn an_unknown_energy_source_is_refused() {
        let e = parse("[energy]\nsources = [\"rapel\"]\n", "f").unwrap_err();
        assert!(e.to_string().contains("'rapel' is not one of") && e.to_string().contains("'rapl'?"), "{e}");
    }

    #[test]
    fn the_shipped_file_is_valid_and_says_the_defaults() {
        let shipped = include_str!("../../conf/joulepoint.toml");
        assert_eq!(parse(shipped, "conf/joulepoint.toml").unwrap(), Site::default());
        let uncommented: String = shipped
            .lines()
            .map(|l| l.strip_prefix('#').filter(|r| !r.starts_with(' ')).unwrap_or(l).to_string() + "\n")
            .collect();
        let all = parse(&uncommented, "conf/joulepoint.toml, uncommented").unwrap();
        assert_eq!(
            Site {
                defaults: BTreeMap::new(),
                hook: Hook::default(),
                criu: Criu::default(),
                munge_socket: None,
                slurm_bin: None,
                accounting: Accounting::default(),
                ..all
            },
            Site::default()
        );
    }
}
