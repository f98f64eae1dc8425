//! What the controller is made of; each handler has those parts that it needs.

use crate::access::Access;
use crate::accounting::Accounting;
use crate::calibrations::Calibrations;
use crate::capabilities::Counter;
use crate::claim::Claims;
use crate::metrics::Ended;
use crate::metrics::exposed::{Counts, Planning};
use crate::steering::Steering;
use crate::watching::{Looks, Watching};
use axum::extract::FromRef;
use broker::Broker;
use config::Site;
use listener::health::SelfLook;
use listener::{Sessions, Turns, Users};
use orders::Orders;
use parking_lot::Mutex;
use std::sync::Arc;
use store::{Readers, Store, Writer};
use tariff::TariffFile;

/// The connection for reports, which may take long, so that plans do not wait for them.
pub(crate) struct Reporter {
    pub store: Mutex<Store>,
    /// Each user's turns.
    pub turns: Turns,
    /// What energy costs when, where the site says so.
    pub tariff: Option<Arc<TariffFile>>,
}

macro_rules! parts {
    ($($part:ident: $kind:ty),* $(,)?) => {
        /// All parts.
        pub(crate) struct All {
            $(pub $part: Arc<$kind>),*
        }

        $(impl FromRef<Parts> for Arc<$kind> {
            fn from_ref(parts: &Parts) -> Arc<$kind> {
                parts.0.$part.clone()
            }
        })*
    };
}
parts! {
    site: Site,
    store: Mutex<Store>,
    readers: Readers,
    reporter: Reporter,
    writer: Writer,
    watching: Watching,
    looks: Looks,
    access: Access,
    users: Users,
    orders: Orders,
    steering: Steering,
    broker: Broker,
    claims: Claims,
    calibrations: Calibrations,
    counter: Counter,
    accounting: Accounting,
    ended: Ended,
    planning: Planning,
    counts: Counts,
    self_look: SelfLook,
    sessions: Sessions,
}

/// The state of the routes.
#[derive(Clone)]
pub(crate) struct Parts(pub Arc<All>);

/// Two of them.
impl<A: FromRef<Parts>, B: FromRef<Parts>> FromRef<Parts> for (A, B) {
    fn from_ref(parts: &Parts) -> (A, B) {
        (A::from_ref(parts), B::from_ref(parts))
    }
}
