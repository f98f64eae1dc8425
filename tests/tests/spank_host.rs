//! The built plugin, loaded by a stand-in for Slurm that calls its hooks in every context with hostile values.

#[path = "spank_host/plugin.rs"]
mod plugin;

use plugin::Folder;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

const SRUN: &str = "1";
const SLURMSTEPD: &str = "2";
const SBATCH: &str = "3";
const CONTEXTS: [&str; 6] = ["0", SRUN, SLURMSTEPD, SBATCH, "4", "5"];

/// The plugin and the hosts: of Slurm 23.11 and later, and of an older one.
struct Built {
    plugin: PathBuf,
    host: PathBuf,
    old_host: PathBuf,
}

static BUILT: LazyLock<Built> = LazyLock::new(|| {
    let plugin = plugin::build();
    let folder = plugin.parent().expect("the plugin lies in a folder");
    let compile = |name: &str, define: &[&str]| {
        let out = folder.join(name);
        let status = Command::new("cc")
            .args(["-O1", "-Wall", "-rdynamic", "-o"])
            .arg(&out)
            .args(define)
            .arg(plugin::root().join("tests/tests/spank_host/host.c"))
            .arg("-ldl")
            .status();
        assert!(status.expect("cc runs").success(), "the host does not compile");
        out
    };
    Built { host: compile("spank-host", &[]), old_host: compile("spank-host-old", &["-DWITHOUT_PREPEND"]), plugin }
});

/// What a host printed, and how it ended.
struct Seen {
    text: String,
    code: Option<i32>,
}

impl Seen {
    /// Answers of all hooks and callbacks, with their names.
    fn answers(&self) -> Vec<(&str, i32)> {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("answer "));
        lines
            .map(|line| line.split_once(' ').expect("name and answer"))
            .map(|(name, code)| (name, code.parse().expect("a number")))
            .collect()
    }

    fn line(&self, start: &str) -> Option<&str> {
        self.text.lines().find(|line| line.starts_with(start))
    }
}

struct Host<'a> {
    old: bool,
    variables: Vec<(&'a str, &'a str)>,
    arguments: Vec<&'a str>,
}

/// A host in that context; its wrapper is a program that exists.
fn host(context: &str) -> Host<'_> {
    Host { old: false, variables: vec![("HOST_CONTEXT", context)], arguments: vec!["wrapper=/bin/true"] }
}

impl<'a> Host<'a> {
    fn old(mut self) -> Self {
        self.old = true;
        self
    }

    fn with(mut self, name: &'a str, value: &'a str) -> Self {
        self.variables.push((name, value));
        self
    }

    fn arguments(mut self, words: &[&'a str]) -> Self {
        self.arguments = words.to_vec();
        self
    }

    fn run(self) -> Seen {
        let program = if self.old { &BUILT.old_host } else { &BUILT.host };
        let output = Command::new(program)
            .arg(&BUILT.plugin)
            .args(&self.arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(self.variables.iter().copied())
            .output()
            .expect("the host runs");
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        assert!(output.status.code().is_some(), "the host was killed ({}):\n{text}", output.status);
        Seen { text, code: output.status.code() }
    }
}

/// Nothing crashed, and only 0 and -1 were answered, beside a job only 0; `srun` and `sbatch` may be left early.
fn assert_harmless(context: &str, seen: &Seen) {
    let submits = [SRUN, SBATCH].contains(&context);
    for (name, code) in seen.answers() {
        assert!(code == 0 || (code == -1 && submits), "context {context}: {name} answered {code}");
    }
    let left = ["end slurm_spank_init", "end slurm_spank_init_post_opt"].iter().any(|end| seen.text.contains(end));
    match seen.code {
        Some(0) => assert!(seen.text.contains("end done"), "context {context}:\n{}", seen.text),
        Some(1) => assert!(submits && left, "context {context} was left:\n{}", seen.text),
        code => panic!("context {context} ended with {code:?}:\n{}", seen.text),
    }
}

#[test]
fn exported_symbols_equal_the_list_and_binding_is_lazy() {
    let list = plugin::root().join("spank-plugin/exported-symbols.txt");
    let list = std::fs::read_to_string(list).expect("the list of symbols");
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).arg(&BUILT.plugin).output().expect("binutils");
        String::from_utf8(output.stdout).expect("text")
    };
    let symbols = run("nm", &["-D", "--defined-only"]);
    let mut symbols: Vec<_> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    symbols.sort_unstable();
    assert_eq!(symbols, list.lines().collect::<Vec<_>>());
    let wanted = run("nm", &["-D", "--undefined-only"]);
    assert!(!wanted.contains("slurm") && !wanted.contains("spank"), "links to Slurm:\n{wanted}");
    let dynamic = run("readelf", &["-d"]);
    assert!(!dynamic.contains("BIND_NOW") && !dynamic.contains("NOW"), "{dynamic}");
    assert!(!dynamic.contains("libslurm"), "{dynamic}");
}

#[test]
fn the_version_is_that_of_the_slurm_that_loads_it() {
    for (api, version) in
        [("38", "160500"), ("40", "170b00"), ("42", "180b00"), ("45", "1a0500"), ("99", "0"), ("0", "0")]
    {
        let seen = host(SLURMSTEPD).with("HOST_API", api).run();
        assert_eq!(seen.line("version"), Some(format!("version {version}").as_str()));
        assert_eq!(seen.line("name"), Some("name joulepoint type spank"));
    }
}

#[test]
fn a_job_without_the_option_is_not_touched() {
    for (context, old) in CONTEXTS.iter().flat_map(|context| [(context, false), (context, true)]) {
        let mut plain = host(context);
        plain.old = old;
        let seen = plain.run();
        assert_harmless(context, &seen);
        assert_eq!(seen.code, Some(0));
        for trace in ["prepended", "program", "set ", "slurm_"] {
            let touched = seen.text.lines().any(|line| line.starts_with(trace) && !line.contains("_spank_"));
            assert!(!touched, "context {context}: {trace}\n{}", seen.text);
        }
    }
}

#[test]
fn hostile_values_do_no_harm_in_any_context() {
    for context in CONTEXTS {
        for variables in [
            &[][..],
            &[("HOST_NULL", "1")],
            &[("HOST_ITEMS", "fail")],
            &[("HOST_ITEMS", "null"), ("HOST_SET_RC", "3001")],
            &[("HOST_REGISTER_RC", "3001")],
            &[("HOST_ENV", "fail")],
            &[("HOST_ENV", "big")],
        ] {
            for arguments in [&[][..], &["default=on"], &["", "=", "wrapper", "conf=\u{7f}", "default=\n"]] {
                let mut hostile = host(context).with("HOST_HOSTILE", "1").arguments(arguments);
                hostile.variables.extend(variables);
                assert_harmless(context, &hostile.run());
            }
        }
    }
}

#[test]
fn the_wrapper_is_put_in_front_of_the_batch_script() {
    let given = "ft-energy=time\nft-energy-io-bound=5%";
    let request = r#"{"settings":{"ft-energy":{"value":"time","source":"option"},"ft-energy-io-bound":{"value":"5%","source":"option"}}}"#;
    let wrapped = host(SLURMSTEPD).with("HOST_OPTIONS", given).arguments(&["wrapper=/bin/true", "conf=/etc/j.toml"]);
    let seen = wrapped.run();
    assert_eq!(
        seen.line("prepended"),
        Some(format!("prepended [/bin/true] [wrap] [--request] [{request}] [--]").as_str())
    );
    assert_eq!(seen.line("set "), Some("set JOULEPOINT_CONF=/etc/j.toml"));
    assert_harmless(SLURMSTEPD, &seen);

    let seen = host(SLURMSTEPD).old().with("HOST_OPTIONS", given).run();
    assert!(seen.line("program /proc/self/fd/").is_some(), "{}", seen.text);
    let exec = format!("exec '/bin/true' 'wrap' '--request' '{request}' '--' '/spool/slurm_script' \"$@\"");
    assert!(seen.text.contains(&exec), "{}", seen.text);
    assert_harmless(SLURMSTEPD, &seen);
}

#[test]
fn only_the_batch_step_is_wrapped() {
    for step in ["0", "17", "0xfffffffc", "0xfffffffa", "0xfffffffd", "0xfffffffe"] {
        let seen = host(SLURMSTEPD).with("HOST_OPTIONS", "ft-energy").with("HOST_STEP", step).run();
        assert!(seen.line("prepended").is_none(), "step {step}:\n{}", seen.text);
        assert_harmless(SLURMSTEPD, &seen);
    }
}

#[test]
fn whatever_fails_beside_the_job_lets_it_run_unprotected_and_says_so() {
    let deep = "[".repeat(100_000);
    /// What is wrong, the host's variables, and the plugin's arguments.
    type Fault<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str]);
    let faults: [Fault<'_>; 8] = [
        ("no wrapper", &[], &["wrapper=/nowhere/joulepoint"]),
        ("wrapper is a folder", &[], &["wrapper=/"]),
        ("wrong value", &[("HOST_OPTIONS", "ft-energy=energy\nft-energy-keep=many")], &["wrapper=/bin/true"]),
        ("wrong twin", &[("JOB_FT_ENERGY_KEEP", "\u{1b}[2J")], &["wrapper=/bin/true"]),
        ("conf cannot be set", &[("HOST_SET_RC", "3001")], &["wrapper=/bin/true", "conf=/c"]),
        ("prepend refused", &[("HOST_PREPEND_RC", "3001")], &["wrapper=/bin/true"]),
        ("later capability", &[("HOST_OPTIONS", "ft-energy\nft-energy-protocol=shadow")], &["wrapper=/bin/true"]),
        ("carried rubbish", &[("JOB_SLURM_JOULEPOINT_REQUEST", &deep)], &["wrapper=/nowhere"]),
    ];
    for (name, variables, arguments) in faults {
        let mut faulty = host(SLURMSTEPD).with("HOST_OPTIONS", "ft-energy").arguments(arguments);
        faulty.variables.extend(variables);
        let seen = faulty.run();
        assert!(seen.line("prepended").is_none(), "{name}:\n{}", seen.text);
        let said = seen.line("slurm_error: joulepoint: ").unwrap_or_else(|| panic!("{name}: silent\n{}", seen.text));
        assert!(said.ends_with("; the job runs unprotected"), "{name}: {said}");
        assert_harmless(SLURMSTEPD, &seen);
    }
    for items in ["null", "none", "huge"] {
        let seen = host(SLURMSTEPD).old().with("HOST_OPTIONS", "ft-energy").with("HOST_ITEMS", items).run();
        assert_eq!(seen.line("program").is_some(), items == "huge", "{items}:\n{}", seen.text);
        assert_harmless(SLURMSTEPD, &seen);
    }
}

#[test]
fn what_slurm_lost_arrives_by_the_carrier() {
    let carried = r#"{"settings":{"ft-energy":{"value":"time","source":"option"},"ft-energy-keep":{"value":"4","source":"environment"}}}"#;
    let seen = host(SLURMSTEPD).with("JOB_SLURM_JOULEPOINT_REQUEST", carried).run();
    assert!(seen.line("prepended").is_some_and(|line| line.contains(carried)), "{}", seen.text);
    assert!(seen.line("unset SLURM_JOULEPOINT_REQUEST").is_some());
    // A carrier that a user forged is checked like everything else.
    let forged = carried.replace("\"4\"", "\"0\"");
    let seen = host(SLURMSTEPD).with("JOB_SLURM_JOULEPOINT_REQUEST", &forged).run();
    assert!(seen.line("prepended").is_none() && seen.text.contains("unprotected"), "{}", seen.text);
}

#[test]
fn submitting_refuses_what_makes_no_sense_and_leaves_the_command() {
    for context in [SRUN, SBATCH] {
        for (given, says) in [
            ("ft-energy-keep=3", "no effect without --ft-energy"),
            ("ft-energy\nft-energy-lend=yes", "logged on disk"),
            ("ft-energy\nft-energy-energy-bound=5%", "--ft-energy=time"),
            ("ft-energy=off\nft-energy-explain", "nothing was submitted"),
        ] {
            let seen = host(context).with("HOST_OPTIONS", given).run();
            assert_eq!(seen.code, Some(1), "{given}:\n{}", seen.text);
            assert!(seen.text.contains("end slurm_spank_init_post_opt") && seen.text.contains(says), "{}", seen.text);
        }
    }
    // Inside a job, an srun with inherited options goes on.
    let seen = host(SRUN).with("HOST_OPTIONS", "ft-energy=loud").with("SLURM_JOB_ID", "7").run();
    assert_eq!(seen.code, Some(0), "{}", seen.text);
    assert!(seen.answers().iter().all(|(_, code)| *code == 0), "{}", seen.text);
}

#[test]
fn a_wrong_argument_of_the_site_stops_no_job_and_the_rest_of_the_line_counts() {
    let wrong = ["wraper=/nowhere", "default=enrgy", "wrapper=/bin/true", "default=on"];
    for context in [SRUN, SBATCH] {
        let seen = host(context).arguments(&wrong).run();
        assert_eq!(seen.code, Some(0), "{}", seen.text);
        assert!(seen.answers().iter().all(|(_, code)| *code == 0), "{}", seen.text);
        // Root mends it, so root is told; once.
        let told: Vec<&str> = seen.text.lines().filter(|line| line.starts_with("slurm_error")).collect();
        assert!(matches!(told[..], [line] if line.contains("did you mean 'wrapper='?")), "{}", seen.text);
    }
    let seen = host(SLURMSTEPD).arguments(&wrong).run();
    assert!(seen.line("prepended").is_some_and(|line| line.contains("/bin/true")), "default=on counts: {}", seen.text);
    assert_eq!(seen.text.matches("did you mean 'wrapper='?").count(), 1, "{}", seen.text);
    assert_harmless(SLURMSTEPD, &seen);
}

#[test]
fn explain_becomes_the_plan_or_refuses() {
    let folder = Folder::new("explain");
    let wrapper = folder.path().join("plan.sh");
    std::fs::write(&wrapper, "#!/bin/sh\necho \"plan: $*\"\n").expect("written");
    let made_executable = Command::new("chmod").arg("755").arg(&wrapper).status().expect("chmod runs");
    assert!(made_executable.success());
    let argument = format!("wrapper={}", wrapper.display());
    let seen = host(SBATCH).with("HOST_OPTIONS", "ft-energy\nft-energy-explain").arguments(&[&argument]).run();
    assert!(seen.text.contains("plan: plan --request {\"settings\":"), "{}", seen.text);
    let missing = host(SBATCH).with("HOST_OPTIONS", "ft-energy\nft-energy-explain").arguments(&["wrapper=/nowhere"]);
    let seen = missing.run();
    assert_eq!(seen.code, Some(1));
    assert!(seen.text.contains("cannot run /nowhere"), "{}", seen.text);
}
