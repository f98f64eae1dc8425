//! `joulepoint confirm-off`: a person says that silent nodes have no power.

use crate::{Failure, out};
use protocol::{OffReply, OffRequest};
use std::collections::BTreeMap;
use wire::Client;

/// Arguments of `joulepoint confirm-off`.
#[derive(clap::Args)]
pub struct ConfirmOffArgs {
    /// Names of nodes.
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What came of one node.
#[derive(serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Confirmed,
    Known,
    Refused(String),
}

/// Says it of each node and tells what came of it; exit code 1 if one was refused.
pub fn run(args: &ConfirmOffArgs, client: &Client) -> Result<i32, Failure> {
    let mut outcomes = BTreeMap::new();
    for node in &args.nodes {
        if !node.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) {
            return Err(Failure::Usage(format!("'{node}' is no name of a node; write n3, or n3 n4 for several")));
        }
        let request = OffRequest { version: protocol::VERSION };
        let outcome = match client.post::<_, OffReply>(&format!("/v1/nodes/{node}/off"), &request) {
            Ok(OffReply { is_new: true }) => Outcome::Confirmed,
            Ok(OffReply { is_new: false }) => Outcome::Known,
            Err(wire::Error::Refused { text, .. }) => Outcome::Refused(text),
            Err(e) => Outcome::Refused(e.to_string()),
        };
        outcomes.insert(node, outcome);
    }
    if args.json {
        out::json(&outcomes)?;
    } else {
        out::print(outcomes.iter().map(|(node, outcome)| line(node, outcome)).collect::<String>())?;
    }
    Ok(i32::from(outcomes.values().any(|o| matches!(o, Outcome::Refused(_)))))
}

fn line(node: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Confirmed => format!("{node}: off; runs that waited for it go on elsewhere\n"),
        Outcome::Known => format!("{node}: off, as is known already\n"),
        Outcome::Refused(why) => format!("{node}: refused: {why}\n"),
    }
}
