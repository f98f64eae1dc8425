//! Builds the engine that was chosen for a run.

use crate::app::{self, Announced, App, Ask, Files};
use crate::beside::Beside;
use crate::criu::{self, Criu};
use crate::criu_steps::{self, CriuSteps};
use crate::dmtcp::Dmtcp;
use crate::hook::{Commands, Hook};
use crate::looks::Looks;
use crate::scr::{Halting, Scr};
use crate::veloc::{self, Veloc};
use ::criu::tool;
use driver::ports::Engine;
use host::linked;
use host::mail::Post;
use job::asking::AskSteps;
use job::identity::Identity;
use job::writers;
use options::{Engine as Kind, Settings};
use run::Checkpoints;
use run::Placements;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use steps::calls::fingerprint;
use steps::script::{Script, Steps, Tree};

/// Names of nodes, as they are when it is asked.
pub type Live = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// What an engine may need.
pub struct Gear<'a> {
    /// What the user wants.
    pub settings: &'a Settings,
    /// Who and where we are.
    pub me: &'a Identity,
    /// Where its happenings go.
    pub post: Post,
    /// Where its checkpoints go.
    pub checkpoints: Checkpoints,
    /// Folder of the run.
    pub run: &'a Path,
    /// The job script with its arguments.
    pub argv: &'a [String],
    /// The processes of the script.
    pub tree: Tree,
    /// The steps of the job.
    pub steps: Option<Steps>,
    /// Asks the processes in them for a checkpoint.
    pub ask_steps: AskSteps,
    /// The job's nodes that are not known to be dead.
    pub live: Live,
    /// Commands of the engine `hook`.
    pub commands: Option<Commands>,
    /// CRIU of this node, if it was tried and works.
    pub criu: Option<PathBuf>,
    /// The placements of tasks of steps.
    pub placements: Placements,
    /// What the site says of it.
    pub dumps: &'a config::Criu,
    /// Address of this node for the tasks of steps, if the script starts some.
    pub host: Option<String>,
    /// Whether `srun` keeps what an output file has, if Slurm says so.
    pub appends: Option<bool>,
    /// The cluster's `MpiDefault`, as calls of `srun` see it.
    pub mpi: Option<(String, String)>,
    /// Launchers of MPI that the script names.
    pub launchers: Vec<&'static str>,
    /// When SCR is to halt the program.
    pub halt_s: Option<f64>,
    /// Longest time for a checkpoint.
    pub limit_s: f64,
    /// What the program announces.
    pub announced: Announced,
    /// Who may still write to its files.
    pub writers: writers::Ask,
}

/// The engine of this kind; `script` runs what the engine puts in the script's place.
///
/// # Errors
/// What the file system says.
pub fn equip(kind: Option<Kind>, gear: Gear<'_>, script: &mut Script) -> io::Result<Box<dyn Engine>> {
    let Gear { settings, me, post, checkpoints, run, argv, tree, steps, limit_s, .. } = gear;
    Ok(match (kind, gear.commands, gear.criu, gear.host) {
        (Some(Kind::Hook), Some(commands), ..) => Box::new(Hook::new(post, checkpoints, commands)),
        (Some(Kind::Criu), _, Some(criu), Some(host)) => {
            let (calls, run, node) = (script.calls.clone(), run.to_path_buf(), me.node.clone().unwrap_or_default());
            let (placements, dumps, appends) = (gear.placements, gear.dumps.clone(), gear.appends);
            let (mpi, launchers) = (gear.mpi, gear.launchers);
            let nodes = (me.nodes.len() as u32).saturating_sub(settings.spare).max(1);
            let parts = criu_steps::Parts {
                post,
                checkpoints,
                calls,
                steps,
                criu,
                run,
                folder: me.folder.clone(),
                host,
                node,
                limit_s,
                placements,
                dumps,
                appends,
                mpi,
                launchers,
                wishes: tree.wishes.clone(),
                of: criu_steps::Script { fingerprint: fingerprint(argv), nodes, beside: Beside::new(tree) },
            };
            Box::new(CriuSteps::listen(parts)?)
        }
        (Some(Kind::Criu), _, Some(criu), None) => {
            let words = linked::words(argv, &me.folder);
            let libraries = linked::libraries_of(&words, &me.folder);
            let own_network = criu::kept_network(run, criu::own_network(settings.network, &words, &libraries))?;
            if let Some(word) = criu::keeps_network(settings.network, &words, &libraries) {
                protocol::say!(
                    "joulepoint: the script asks others ({word}) and keeps the node's network: connections of its programs cannot be \
                     saved; --ft-energy-network=own gives it one with nobody else"
                );
            }
            let words = criu::within(&criu, run, argv, me.job.is_some(), limit_s, own_network)?;
            script.instead = Arc::new(Some(words).into());
            let (run, folder) = (run.to_path_buf(), me.folder.clone());
            let looks = Looks::new(tree, tool::is_patched(&criu));
            Box::new(Criu::new(post, checkpoints, run, folder, limit_s, gear.dumps.clone(), looks))
        }
        (Some(Kind::Scr), ..) => {
            let halting = gear.halt_s.map(|end_s| Halting { end_s, calls: script.calls.clone() });
            let prefix = std::env::var_os("SCR_PREFIX").map_or_else(|| me.folder.clone(), PathBuf::from);
            Box::new(Scr::new(post, checkpoints, prefix, me.job, halting))
        }
        (Some(Kind::Veloc), ..) => {
            let setup = veloc::of_script(argv, &me.folder).map_err(io::Error::other)?;
            let files = Files { folder: me.folder.clone(), patterns: Vec::new(), ours: None };
            let app = App::new(post.clone(), checkpoints, files, None, gear.announced.clone());
            let app = app.of_job(gear.writers.clone(), app::limit(limit_s));
            let of = veloc::Of { setup, run: run.to_path_buf(), writers: gear.writers };
            Box::new(Veloc::new(app, gear.announced, post, of))
        }
        (Some(Kind::Dmtcp), ..) => {
            let limit = Duration::from_secs_f64(limit_s);
            let dmtcp = Dmtcp::new(post, checkpoints, (run, me.folder.clone()), argv.to_vec(), tree, limit);
            script.instead = dmtcp.instead();
            Box::new(dmtcp)
        }
        _ => {
            let (ask_steps, live) = (gear.ask_steps, gear.live);
            let ask: Ask = Arc::new(move |signal| tree.ask(signal, &|| ask_steps(&live(), signal)));
            let signal = settings.signal.map(|s| (s.number, ask));
            let ours = run.parent().and_then(|runs| runs.canonicalize().ok());
            let files = Files { folder: me.folder.clone(), patterns: settings.done_of(0), ours };
            let app = App::new(post, checkpoints, files, signal, gear.announced);
            Box::new(app.of_job(gear.writers, app::limit(limit_s)))
        }
    })
}
