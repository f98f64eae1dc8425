//! The role `controller`: puts its parts together, and looks whether it has what it needs.

mod lead;

use crate::access::Access;
use crate::accounting::Accounting;
use crate::accounting::energy_tres::EnergyTres;
use crate::calibrations::Calibrations;
use crate::capabilities::{Counter, Engines};
use crate::claim::Claims;
use crate::loans::Around;
use crate::metrics::Ended;
use crate::metrics::exposed::{Counts, Planning};
use crate::metrics::latency::Latency;
use crate::parts::{All, Parts, Reporter};
use crate::routes;
use crate::steering::Steering;
use crate::watching::{Acts, Books, Flexible, Looks, Watcher, Watching};
use crate::words::Words;
use anyhow::{Context, Result};
use broker::Broker;
use config::Site;
use lead::Lead;
use listener::health::{SelfLook, part};
use listener::{Gate, Limits, Listener, Sessions, Turns, Users, for_ever, now_s};
use orders::Orders;
use parking_lot::Mutex;
use protocol::{Health, Part};
use slurm::Slurm;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::{Readers, Store, Writer};
use tariff::TariffFile;
use wire::Munge;

/// Time between two looks at what this service itself needs.
const LOOK_AT_SELF: Duration = Duration::from_secs(10);

/// For how long what it saw counts.
const LOOKED_FOR: Duration = Duration::from_secs(30);

/// After how many of those slurmctld is asked for its user, and accounting for its operators.
const ASK_SLURM: u64 = 6;

/// Connections that may wait to be taken.
const BACKLOG: u32 = 1024;

/// Serves until told to stop; on a MariaDB, as soon as no other controller does.
///
/// # Errors
/// When the store cannot be opened or the address not be bound.
pub async fn serve(site: Site) -> Result<()> {
    let address = &site.controller.listen.clone();
    let socket = lead::bind(address).await?;
    let lead = Arc::new(Lead::take(&site.controller).await?);
    let slurm = lead.over(Slurm::new(site.slurm_bin.clone()).with_budget(site.slurm.budget));
    let site = Arc::new(site);
    let munge = Munge::new(site.munge_socket.clone());
    let store = Arc::new(Mutex::new(Store::open_led(&site.controller.store, lead.leadership())?));
    let reader = Arc::new(Mutex::new(store.lock().another(&site.controller.store)?));
    let parts = Arc::new(all(&site, &slurm, &store, &reader)?);
    let listener = socket.listen(BACKLOG).with_context(|| format!("controller.listen = {address}"))?;
    let books = Books {
        watching: parts.watching.clone(),
        slurm: slurm.clone(),
        store: store.clone(),
        accounting: parts.accounting.clone(),
        keep_days: site.controller.retention_days,
    };
    let flexible = parts.reporter.tariff.clone().map(|tariff| Flexible {
        watching: parts.watching.clone(),
        slurm: slurm.clone(),
        store: store.clone(),
        readers: parts.readers.clone(),
        orders: parts.orders.clone(),
        tariff,
        aim: site.accounting.wait_for,
    });
    let acts = Acts {
        watching: parts.watching.clone(),
        looks: parts.looks.clone(),
        slurm: slurm.clone(),
        store,
        reader,
        broker: parts.broker.clone(),
        orders: parts.orders.clone(),
        accounting: parts.accounting.clone(),
        start_requeued_at_once: site.controller.start_requeued_at_once,
    };
    let watcher = Watcher { watching: parts.watching.clone(), acts: Arc::new(acts) };
    let (looking, signing, lending, leading) = (parts.clone(), munge.clone(), parts.broker.clone(), lead.clone());
    let acting = watcher.clone();
    for_ever("looking", move || watcher.look_for_ever())?;
    for_ever("acting", move || acting.act_for_ever())?;
    for_ever("books", move || books.keep_for_ever())?;
    if let Some(flexible) = flexible {
        for_ever("flexible", move || flexible.look_for_ever())?;
    }
    for_ever("self", move || look_at_self_for_ever(&looking, &signing, &slurm, &leading))?;
    for_ever("loans", move || lending.lend_for_ever())?;
    let gate = Gate::new(munge, wire::CONTROLLER.to_string(), Limits::default(), parts.users.clone());
    let gate = Arc::new(gate.with_sessions(parts.sessions.clone()));
    let app = listener::router(routes::controller(), gate.clone(), Parts(parts));
    tracing::info!(listen = address, "the controller serves");
    listener::serve(vec![Listener::Tcp(listener)], app, gate.limits, gate.refusals.clone(), listener::stopping()).await;
    lead.give_up();
    Ok(())
}

/// Opens what is needed, and takes up what an earlier life of the service has left.
fn all(site: &Arc<Site>, slurm: &Slurm, store: &Arc<Mutex<Store>>, reader: &Arc<Mutex<Store>>) -> Result<All> {
    let place = &site.controller.store;
    let (store, reader, slurm) = (store.clone(), reader.clone(), slurm.clone());
    let readers = Arc::new(Readers::open(place)?);
    let tariff = site.accounting.tariff.as_ref().map(|path| Arc::new(TariffFile::new(path, site.accounting.rates())));
    let reporter = Reporter { store: Mutex::new(store.lock().another(place)?), turns: Turns::new(1), tariff };
    let orders = Arc::new(Orders::new(now_s()));
    orders.take_up(now_s(), store.lock().kept_orders(now_s())?);
    let watching = Arc::new(Watching::new(site, store.clone())?);
    let (ended, users) = (Arc::new(Ended::default()), Arc::new(Users::new(site.limits)));
    let access = Arc::new(Access::new(&site.controller.operators));
    let around =
        Around { watching: watching.clone(), orders: orders.clone(), store: store.clone(), ended: ended.clone() };
    let broker = Broker::new(broker::Parts {
        site: site.lend.clone(),
        defaults: site.defaults.clone(),
        idle_w: site.energy.idle_w,
        slurm: slurm.clone(),
        store: store.clone(),
        reader: reader.clone(),
        readers: readers.clone(),
        ports: Arc::new(around),
    });
    Ok(All {
        steering: Arc::new(Steering {
            readers: readers.clone(),
            access: access.clone(),
            users: users.clone(),
            slurm: slurm.clone(),
        }),
        claims: Arc::new(Claims {
            site: site.clone(),
            store: store.clone(),
            reader: reader.clone(),
            readers: readers.clone(),
            access: access.clone(),
            users: users.clone(),
            words: Words::new(slurm.clone(), users.clone()),
        }),
        calibrations: Arc::new(Calibrations {
            store: store.clone(),
            reader: reader.clone(),
            readers: readers.clone(),
            access: access.clone(),
            known: Mutex::default(),
            fingerprints: Mutex::default(),
        }),
        looks: Arc::new(Looks {
            watching: watching.clone(),
            slurm: slurm.clone(),
            munge_socket: site.munge_socket.clone(),
        }),
        counter: Arc::new(Counter { engines: Engines::default(), site: site.clone(), watching: watching.clone() }),
        accounting: Arc::new(Accounting {
            slurm,
            reader,
            users: users.clone(),
            sums: ended.clone(),
            tells_energy: site.controller.energy_tres,
            energy_tres: EnergyTres::default(),
            commented_s: Mutex::default(),
            ending: Mutex::default(),
        }),
        site: site.clone(),
        writer: Arc::new(Writer::start(store.clone())),
        planning: Arc::new(Planning { turns: Turns::new(1), latency: Latency::default() }),
        counts: Arc::new(Counts::default()),
        self_look: Arc::new(SelfLook::new(LOOKED_FOR)),
        broker: Arc::new(broker),
        sessions: Arc::new(Sessions::new(routes::BEATS)),
        reporter: Arc::new(reporter),
        store,
        readers,
        watching,
        access,
        users,
        orders,
        ended,
    })
}

fn look_at_self_for_ever(of: &All, munge: &Munge, slurm: &Slurm, lead: &Lead) {
    let mut slurm_is = part(Err::<String, _>("not asked yet"));
    for look in 0_u64.. {
        if look.is_multiple_of(ASK_SLURM) || !slurm_is.ok {
            slurm_is = part(look_at_slurm(&of.access, slurm));
        }
        let mut parts = BTreeMap::from([
            ("store".to_string(), part(of.store.lock().probe().map(|()| "writable".to_string()))),
            ("munge".to_string(), part(munge.encode(b"").map(|_| "answers".to_string()))),
            ("slurm".to_string(), slurm_is.clone()),
            ("nodes".to_string(), Part { ok: true, text: of.watching.in_words() }),
        ]);
        parts.extend(lead.standby().map(|standby| ("standby".to_string(), standby)));
        of.self_look.keep(Health { ok: parts.values().all(|p| p.ok), parts });
        if let Err(e) = of.calibrations.refresh() {
            tracing::warn!(error = format!("{e:#}"), "the calibrations cannot be read");
        }
        if look.is_multiple_of(ASK_SLURM) {
            of.access.refresh(slurm);
            if let Err(e) = of.claims.look_at_unverified() {
                tracing::warn!(error = format!("{e:#}"), "unverified runs cannot be looked at");
            }
        }
        std::thread::sleep(LOOK_AT_SELF);
    }
}

fn look_at_slurm(access: &Access, slurm: &Slurm) -> Result<String> {
    let slurm_user = slurm.config_value("SlurmUser")?;
    access.slurm_user(slurm_user.as_deref().unwrap_or_default());
    Ok("slurmctld answers".to_string())
}
