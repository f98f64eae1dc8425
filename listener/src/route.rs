//! A service's table of routes, and the router that it makes.

use crate::gate::{self, Gate};
use crate::refusal::Refusal;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::MethodRouter;
use std::sync::Arc;

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody, without a credential: what a probe or a scraper reads.
    Open,
    /// Whoever shows who they are; the route itself decides what they see.
    Known,
}

/// One row of a service's route table.
pub struct Route<S> {
    /// The only method.
    pub method: &'static str,
    /// The path, with `{names}`.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
    /// What answers.
    pub answer: MethodRouter<S>,
}

impl<S> Route<S> {
    /// A row.
    pub fn new(method: &'static str, path: &'static str, access: Access, answer: MethodRouter<S>) -> Self {
        Route { method, path, access, answer }
    }
}

/// The router of a table: every known caller passes the gate, and every refusal is noted.
pub fn router<S: Clone + Send + Sync + 'static>(table: Vec<Route<S>>, gate: Arc<Gate>, state: S) -> Router {
    let (mut open, mut known) = (Router::new(), Router::new());
    for route in table {
        match route.access {
            Access::Open => open = open.route(route.path, route.answer),
            Access::Known => known = known.route(route.path, route.answer),
        }
    }
    known
        .route_layer(from_fn_with_state(gate.clone(), gate::admit))
        .merge(open)
        .fallback(unknown)
        // The gate's own limit is the one that is promised.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(gate, gate::note))
        .with_state(state)
}

async fn unknown() -> Refusal {
    Refusal(StatusCode::NOT_FOUND, format!("there is no such path; this service speaks /v{}", protocol::VERSION))
}
