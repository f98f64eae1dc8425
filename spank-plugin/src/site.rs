//! What the site wrote behind the plugin's path in `plugstack.conf`.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The site's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// `default=off|on|energy|time`: what `--ft-energy` is for jobs that do not say.
    pub default: Option<&'static str>,
    /// `wrapper=PATH`: the program in front of batch scripts.
    pub wrapper: PathBuf,
    /// `conf=PATH`: the configuration file, passed on to the wrapper.
    pub conf: Option<PathBuf>,
    /// `capabilities=PATH`: where a service of this host writes down what the nodes have (`node.capabilities`).
    pub capabilities: PathBuf,
}

impl Default for Site {
    fn default() -> Site {
        Site {
            default: None,
            wrapper: PathBuf::from("/usr/bin/joulepoint"),
            conf: None,
            capabilities: PathBuf::from("/run/joulepoint/capabilities.json"),
        }
    }
}

const KEYS: [&str; 4] = ["default", "wrapper", "conf", "capabilities"];

impl Site {
    /// Reads the arguments; with an error, the second part says what is wrong and the first keeps the rest.
    pub fn parse(words: &[&OsStr]) -> (Site, Result<(), String>) {
        let mut site = Site::default();
        let mut wrong = Ok(());
        for word in words {
            if let Err(reason) = site.take(word) {
                wrong = wrong.and(Err(format!("plugstack argument {reason}")));
            }
        }
        (site, wrong)
    }

    fn take(&mut self, word: &OsStr) -> Result<(), String> {
        let shown = word.to_string_lossy();
        let word = word.to_str().ok_or_else(|| format!("'{shown}' is not UTF-8"))?;
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "default" => {
                self.default = match value {
                    "off" => None,
                    "on" => Some("on"),
                    "energy" => Some("energy"),
                    "time" => Some("time"),
                    _ => return Err(format!("'{shown}': accepted: default=off, on, energy or time")),
                }
            }
            "wrapper" => self.wrapper = absolute(word, value)?,
            "conf" => self.conf = Some(absolute(word, value)?),
            "capabilities" => self.capabilities = absolute(word, value)?,
            _ => {
                let near = options::nearest(key, KEYS).map(|near| format!(" (did you mean '{near}='?)"));
                return Err(format!(
                    "'{shown}' is not known{}; accepted: default=, wrapper=, conf=, capabilities=",
                    near.unwrap_or_default()
                ));
            }
        }
        Ok(())
    }
}

fn absolute(word: &str, value: &str) -> Result<PathBuf, String> {
    if value.starts_with('/') {
        return Ok(PathBuf::from(value));
    }
    Err(format!("'{word}': accepted: an absolute path"))
}

static SITE: Mutex<Option<Site>> = Mutex::new(None);

/// Keeps what `init` read for the later hooks of this process.
pub fn keep(site: Site) {
    *SITE.lock().unwrap_or_else(PoisonError::into_inner) = Some(site);
}

/// What `init` read.
pub fn get() -> Site {
    SITE.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> (Site, Result<(), String>) {
        Site::parse(&words.iter().map(OsStr::new).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_written_means_off_and_the_packaged_wrapper() {
        assert_eq!(parse(&[]), (Site::default(), Ok(())));
    }

    #[test]
    fn all_arguments_are_read() {
        let (site, wrong) = parse(&["default=time", "wrapper=/opt/jp", "conf=/etc/jp.toml", "capabilities=/x"]);
        assert_eq!(wrong, Ok(()));
        assert_eq!(site.default, Some("time"));
        assert_eq!(site.wrapper, PathBuf::from("/opt/jp"));
        assert_eq!(site.conf, Some(PathBuf::from("/etc/jp.toml")));
        assert_eq!(site.capabilities, PathBuf::from("/x"));
    }

    #[test]
    fn a_wrong_argument_is_named_with_its_neighbour_and_the_rest_still_counts() {
        let (site, wrong) = parse(&["warpper=/x", "conf=/c"]);
        assert!(wrong.unwrap_err().contains("did you mean 'wrapper='?"));
        assert_eq!(site.conf, Some(PathBuf::from("/c")));
        assert!(parse(&["default=maybe"]).1.is_err());
        assert!(parse(&["wrapper=bin/jp"]).1.is_err());
        assert!(parse(&[""]).1.is_err());
    }
}
