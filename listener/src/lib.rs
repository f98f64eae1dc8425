//! Answers over HTTP: routes behind one gate, bounded in everything that an unauthenticated peer can send.

mod bodies;
mod bucket;
mod clock;
mod connections;
mod gate;
pub mod health;
mod listen;
pub mod metrics;
mod part;
mod refusal;
mod refusals;
mod route;
mod seen;
mod sessions;
mod stop;
mod turns;
mod users;

pub use bucket::{Bucket, Rate};
pub use clock::now_s;
pub use gate::{BodyBytes, Gate, Hidden};
pub use listen::{Limits, Listener, Origin, serve};
pub use part::for_ever;
pub use refusal::{Answer, Document, Refusal, absent, forbidden, version};
pub use refusals::Lines;
pub use route::{Access, Route, router};
pub use sessions::{NotOpened, OfSession, Sessions};
pub use stop::stopping;
pub use turns::{Turns, blocking};
pub use users::{TooMuch, Users};
