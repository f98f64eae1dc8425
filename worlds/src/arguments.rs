//! The words by which our program is told which ranks to start ([`crate::ranks::words`] writes them).

use crate::ranks::{Ranks, Spread};
use std::ffi::OsString;
use std::path::PathBuf;

/// What [`Ranks`] are made of.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The program that starts them.
    #[arg(long, value_name = "FILE")]
    launcher: PathBuf,
    /// The library that makes one world of all groups.
    #[arg(long, value_name = "FILE")]
    library: PathBuf,
    /// Socket of the group's relay.
    #[arg(long, value_name = "FILE", requires = "world")]
    relay: Option<PathBuf>,
    /// World ranks of each group, such as `0-1/2-3`; without it this group has all.
    #[arg(long, value_name = "RANKS", requires = "relay")]
    world: Option<String>,
    /// How many there are in this group.
    #[arg(long, value_name = "N", default_value_t = 0, required_unless_present = "spread")]
    count: u32,
    /// How many each node has, of which this task's (SLURM_PROCID) are started.
    #[arg(long, value_name = "N,N", value_delimiter = ',', conflicts_with = "count")]
    spread: Vec<u32>,
    /// How the names of their relays' sockets begin.
    #[arg(long, value_name = "FILE", requires = "spread")]
    sockets: Option<PathBuf>,
    /// CPUs of each, if the user says it.
    #[arg(long, value_name = "N")]
    cpus_per_task: Option<u32>,
    /// Only the first of all reads standard input.
    #[arg(long)]
    first_reads: bool,
    /// A variable of theirs; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", allow_hyphen_values = true)]
    set: Vec<String>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Arguments {
    /// Becomes the launcher of the ranks; only returns with an exit code, when it has said why it cannot.
    pub fn start(self) -> i32 {
        let ranks = self.ranks();
        let e = ranks.run();
        protocol::say!("joulepoint: {}: {e}", ranks.launcher.display());
        126
    }

    fn ranks(self) -> Ranks {
        let Arguments { launcher, library, relay, world, count, cpus_per_task, .. } = self;
        let Arguments { spread, sockets, first_reads, set, command, .. } = self;
        let spread = (!spread.is_empty()).then_some(Spread { counts: spread, sockets });
        let ranks = Ranks { launcher, library, relay, world, count, cpus_per_task, ..Ranks::default() };
        Ranks { spread, first_reads, set, command, ..ranks }
    }
}
