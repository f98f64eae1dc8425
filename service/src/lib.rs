//! `joulepointd`, on the controller: plans, watches, and answers wrappers, nodes and people.

mod access;
mod accounting;
mod asked;
mod calibrations;
mod capabilities;
mod claim;
pub mod controller;
mod history;
mod loans;
mod metrics;
mod parts;
mod plausible;
mod refusal;
mod routes;
mod sessions;
mod steering;
mod watching;
mod words;

/// Method and path of every route of both roles, for the test that holds `docs/openapi.json` to them.
pub fn routes() -> Vec<(&'static str, &'static str)> {
    let of_controller = routes::controller().into_iter().map(|r| (r.method, r.path));
    of_controller.chain(node::paths()).collect()
}
