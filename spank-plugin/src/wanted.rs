//! What a job wants, from everything that was said: options, environment twins, the site; pure.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::option_values::{Values, check};
use crate::site::Site;
use options::{Form, OPTIONS, REQUIRE, Spec};
use protocol::{Request, Setting, Source};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The option that asks for the plan instead of the job.
pub const EXPLAIN: &str = "ft-energy-explain";

/// What was said, where the plugin runs now.
pub struct Said<'a> {
    /// Options that Slurm delivered.
    pub options: Values,
    /// A variable of the job's (or the submitting) environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// What the submitting side had understood, for what Slurm lost on the way.
    pub carried: Option<Request>,
    /// The site's arguments.
    pub site: &'a Site,
}

impl Said<'_> {
    /// The request of a job that is to be protected; `None` if it is not to be.
    ///
    /// # Errors
    /// A sentence that names the value, the reason and the accepted form.
    pub fn request(&self) -> Result<Option<Request>, String> {
        let mut settings = BTreeMap::new();
        for spec in OPTIONS {
            if let Some(value) = self.options.get(spec.name) {
                let value = check(spec, &format!("--{}", spec.name), value)?;
                settings.insert(spec.name.to_owned(), Setting { value, source: Source::Option });
            }
        }
        self.add_carried(&mut settings);
        let main = options::find("ft-energy").ok_or("no option --ft-energy")?;
        self.add_twin(main, &mut settings)?;
        match settings.get(main.name).map(|setting| setting.value.as_str()).or(self.site.default) {
            // Off beats everything, also what could not be understood.
            Some("off") => return Ok(None),
            None if settings.is_empty() => return Ok(None),
            None => {}
            Some(_) => {
                for spec in OPTIONS {
                    self.add_twin(spec, &mut settings)?;
                }
            }
        }
        if let Some(default) = self.site.default {
            settings
                .entry(main.name.to_owned())
                .or_insert_with(|| Setting { value: default.to_owned(), source: Source::Site });
        }
        let request = Request { settings };
        let meaning = options::resolve(&request, &BTreeMap::new()).map_err(|refusal| refusal.to_string())?;
        Ok(meaning.objective.is_some().then_some(request))
    }

    /// Whether somebody asked for the plan instead of the job.
    pub fn explain(&self) -> bool {
        self.options.contains_key(EXPLAIN) || self.twin(EXPLAIN).is_some()
    }

    /// Whether somebody wants the job not to run without protection, however little else can be understood.
    pub fn requires(&self) -> bool {
        let is_carried = self.carried.iter().any(|request| request.settings.contains_key(REQUIRE));
        self.options.contains_key(REQUIRE) || self.twin(REQUIRE).is_some() || is_carried
    }

    /// Fills in what the submitting side knew: its environment twins, and its options if Slurm delivered none
    /// (`--export=NONE` loses the one, and in 22.05's batch step the other too).
    fn add_carried(&self, settings: &mut BTreeMap<String, Setting>) {
        for (name, setting) in self.carried.iter().flat_map(|request| &request.settings) {
            if setting.source == Source::Environment || self.options.is_empty() {
                settings.entry(name.clone()).or_insert_with(|| setting.clone());
            }
        }
    }

    fn add_twin(&self, spec: &Spec, settings: &mut BTreeMap<String, Setting>) -> Result<(), String> {
        if settings.contains_key(spec.name) {
            return Ok(());
        }
        if let Some(value) = self.twin(spec.name) {
            let value = check(spec, &options::env_twin(spec.name), &value)?;
            settings.insert(spec.name.to_owned(), Setting { value, source: Source::Environment });
        }
        Ok(())
    }

    /// The environment twin of an option; an empty one counts as not set, and that of a flag may be yes or no.
    fn twin(&self, name: &str) -> Option<OsString> {
        let value = (self.variable)(&options::env_twin(name)).filter(|value| !value.is_empty())?;
        let flag = options::find(name).is_some_and(|spec| matches!(spec.form, Form::Flag | Form::Explain));
        let is = |words: &[&str]| words.iter().any(|word| value == OsStr::new(word));
        match flag {
            true if is(&["0", "no", "off", "false"]) => None,
            true if is(&["1", "yes", "on", "true"]) => Some(OsString::new()),
            _ => Some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a=b` words with a dash are options, in capitals they are variables.
    fn ask(words: &[&str], site: &Site, carried: Option<Request>) -> Result<Option<Request>, String> {
        let mut options = Values::new();
        let mut variables = BTreeMap::new();
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match options::find(name) {
                Some(spec) => drop(options.insert(spec.name, OsString::from(value))),
                None => drop(variables.insert(name.to_owned(), OsString::from(value))),
            }
        }
        Said { options, variable: &|name| variables.get(name).cloned(), carried, site }.request()
    }

    fn plain(words: &[&str]) -> Result<Option<Request>, String> {
        ask(words, &Site::default(), None)
    }

    #[test]
    fn silence_and_off_want_nothing() {
        assert_eq!(plain(&[]), Ok(None));
        assert_eq!(plain(&["FT_ENERGY_KEEP=nonsense"]), Ok(None));
        let on = Site { default: Some("on"), ..Site::default() };
        assert_eq!(ask(&["ft-energy=off", "FT_ENERGY_KEEP=nonsense"], &on, None), Ok(None));
        assert_eq!(ask(&["FT_ENERGY=off"], &on, None), Ok(None));
    }

    #[test]
    fn the_command_line_beats_the_twin_and_the_twin_beats_the_site() {
        let on = Site { default: Some("energy"), ..Site::default() };
        let source = |words: &[&str]| {
            let request = ask(words, &on, None).unwrap().unwrap();
            let setting = &request.settings["ft-energy"];
            (setting.value.clone(), setting.source)
        };
        assert_eq!(source(&["ft-energy=time", "FT_ENERGY=energy"]), ("time".into(), Source::Option));
        assert_eq!(source(&["FT_ENERGY=time"]), ("time".into(), Source::Environment));
        assert_eq!(source(&[]), ("energy".into(), Source::Site));
    }

    #[test]
    fn a_wrong_twin_is_refused_by_its_own_name() {
        let refusal = plain(&["ft-energy", "FT_ENERGY_IO_BOUND=lots"]).unwrap_err();
        assert!(refusal.starts_with("FT_ENERGY_IO_BOUND: 'lots'"), "{refusal}");
        assert!(plain(&["FT_ENERGY=loud"]).unwrap_err().starts_with("FT_ENERGY: 'loud'"));
    }

    #[test]
    fn a_detail_alone_has_no_effect_and_says_so() {
        let refusal = plain(&["ft-energy-io-bound=5%"]).unwrap_err();
        assert!(
            refusal.contains("--ft-energy-io-bound") && refusal.contains("no effect without --ft-energy"),
            "{refusal}"
        );
    }

    #[test]
    fn what_slurm_lost_is_taken_from_what_was_carried() {
        let carried = plain(&["ft-energy=time", "FT_ENERGY_KEEP=3"]).unwrap();
        assert_eq!(ask(&[], &Site::default(), carried.clone()), Ok(carried.clone()));
        // Slurm delivered options: only the twins are filled in.
        let request = ask(&["ft-energy"], &Site::default(), carried).unwrap().unwrap();
        assert_eq!(request.settings["ft-energy"].value, "");
        assert_eq!(request.settings["ft-energy-keep"].value, "3");
    }

    #[test]
    fn the_twin_of_a_flag_is_yes_or_no() {
        assert!(
            plain(&["ft-energy", "FT_ENERGY_EXPLAIN=1"]).unwrap().unwrap().settings.contains_key("ft-energy-explain")
        );
        assert!(
            !plain(&["ft-energy", "FT_ENERGY_EXPLAIN=0"]).unwrap().unwrap().settings.contains_key("ft-energy-explain")
        );
        assert!(plain(&["ft-energy", "FT_ENERGY_EXPLAIN=perhaps"]).is_err());
        let full = plain(&["ft-energy", "FT_ENERGY_EXPLAIN=full"]).unwrap().unwrap();
        assert_eq!(full.settings["ft-energy-explain"].value, "full");
        assert!(plain(&["ft-energy", "FT_ENERGY_REQUIRE=full"]).is_err());
    }
}
