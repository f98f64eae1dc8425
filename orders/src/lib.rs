//! Orders of people for runs, from the moment they are given until the run's wrapper tells what came of them.
//!
//! An order is in the store before it is answered for and before its wrapper hears of it; what came of it stands in the
//! run's records. So a start of this service finds all of them again.

use parking_lot::{Mutex, MutexGuard};
use protocol::{Event, Order, OrderState, OrderStatus, Record, RunKey};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use store::Result;
use store::{KeptOrder, OpenRun, Store, concerns_orders};
use tokio::sync::watch;

/// Most unanswered orders of one run, of the runs of one user, and of all. Who may steer the runs of others, and the broker of
/// loans, may give as many again: no user can keep them from it.
const MOST_OF_RUN: usize = 8;
const MOST_OF_USER: usize = 128;
const MOST: usize = 1024;

/// Who gives an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giver {
    /// The owner of the run.
    Owner,
    /// An operator, or the broker of loans.
    Operator,
}

/// Most runs of which the last record is remembered.
const MOST_RUNS: usize = 65_536;

/// How long a wrapper may take to hear of an order, s; it asks all the time.
const HEARD_S: f64 = 60.0;

/// How long a wrapper that has taken an order may be silent, s: it asks for more while it carries one out.
const SILENT_S: f64 = 180.0;

/// How long an answered order is remembered, s.
const REMEMBERED_S: f64 = 3600.0;

/// Why an order has failed whose run is over and has not said so.
const WORDLESS: &str = "the run ended without its wrapper's word";

/// Why an order is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// Another order has this id.
    #[error("another order has this id")]
    OtherOrder,
    /// Too many are waiting.
    #[error("{0} already, and no more are taken; they end when they are answered, or with their runs")]
    TooMany(&'static str),
    /// The store did not keep it.
    #[error("the store did not keep the order")]
    NotKept,
}

#[derive(Clone, Debug)]
struct Entry {
    status: OrderStatus,
    restart_count: u32,
    owner: u32,
    /// When its wrapper asked for orders last, or it was taken up.
    asked_s: f64,
    settled_s: Option<f64>,
    /// Slurm knows when the run is to begin again.
    is_begin_told: bool,
}

impl Entry {
    /// Takes in what its run tells.
    fn hear(&mut self, now_s: f64, event: &Event) {
        match event {
            Event::Ordered { id, state, text, checkpoint, .. } if *id == self.status.order.id => {
                self.settled_s = Some(now_s);
                self.status.state = *state;
                self.status.text.clone_from(text);
                self.status.checkpoint.clone_from(checkpoint);
            }
            Event::Started { restart_count, .. } if self.restart_count != *restart_count => {
                self.fail(now_s, "the job was requeued");
            }
            Event::Ended { state, .. } => self.fail(now_s, &format!("the run ended before: {state}")),
            _ => {}
        }
    }

    fn fail(&mut self, now_s: f64, text: &str) {
        if self.settled_s.is_none() {
            self.settled_s = Some(now_s);
            self.status.state = OrderState::Failed;
            self.status.text = text.to_string();
        }
    }
}

#[derive(Default)]
struct Book {
    orders: BTreeMap<String, Entry>,
    /// The last news of runs that had any.
    news: BTreeMap<RunKey, u64>,
    last: u64,
    /// The last record that was heard of each run: a driver that is started again sends the whole journal.
    upto: BTreeMap<RunKey, u64>,
}

/// How many bells there are: news of a run wake only those who wait by the same one.
const BELLS: usize = 64;

/// All orders, and the bells that ring for those who wait for news of a run.
pub struct Orders {
    book: Mutex<Book>,
    /// Orders are given one after the other, so that none is kept beyond what may wait.
    giving: Mutex<()>,
    bells: [watch::Sender<u64>; BELLS],
    first: u64,
}

impl Orders {
    /// No orders; `now_s` sets the count of news apart from that of an earlier life of this service.
    pub fn new(now_s: f64) -> Orders {
        let first = (now_s * 1000.0) as u64;
        let bells = std::array::from_fn(|_| watch::Sender::new(first));
        Orders { book: Mutex::new(Book { last: first, ..Book::default() }), giving: Mutex::default(), bells, first }
    }

    /// Takes up the orders that an earlier life of this service has kept.
    pub fn take_up(&self, now_s: f64, kept: Vec<KeptOrder>) {
        let mut book = self.book.lock();
        for KeptOrder { status, owner, restart_count, records, is_open } in kept {
            let key = status.key.clone();
            let mut entry =
                Entry { status, restart_count, owner, asked_s: now_s, settled_s: None, is_begin_told: false };
            records.iter().for_each(|r| entry.hear(now_s, &r.event));
            if !is_open {
                entry.fail(now_s, WORDLESS);
            }
            book.orders.insert(entry.status.order.id.clone(), entry);
            if let Some(last) = records.last() {
                book.upto.insert(key, last.seq);
            }
        }
    }

    /// Takes an order for the record `restart_count` of a run of `owner`, once `keep` has it in the store; the same
    /// order again is the same.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn post(
        &self,
        now_s: f64,
        status: OrderStatus,
        (owner, giver): (u32, Giver),
        restart_count: u32,
        keep: impl FnOnce(&OrderStatus) -> Result<()>,
    ) -> Result<OrderStatus, NotTaken> {
        let _one_by_one = self.giving.lock();
        {
            let mut book = self.book.lock();
            book.tidy(now_s);
            if let Some(known) = book.orders.get(&status.order.id) {
                let same = (&known.status.order, &known.status.key) == (&status.order, &status.key);
                return if same { Ok(known.status.clone()) } else { Err(NotTaken::OtherOrder) };
            }
            book.check_room(&status.key, owner, giver)?;
        }
        // Everybody who waits for news looks into the book: it is free while the store takes its time.
        keep(&status).map_err(|e| {
            tracing::error!(error = format!("{e:#}"), "an order was not kept");
            NotTaken::NotKept
        })?;
        let mut book = self.book.lock();
        let entry = Entry {
            status: status.clone(),
            restart_count,
            owner,
            asked_s: now_s,
            settled_s: None,
            is_begin_told: false,
        };
        book.orders.insert(status.order.id.clone(), entry);
        self.ring(book, &status.key);
        Ok(status)
    }

    /// Keeps an order for a run and lets its wrapper know; the same again is the same order.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn give(
        &self,
        now_s: f64,
        store: &Mutex<Store>,
        run: &OpenRun,
        giver: Giver,
        order: Order,
    ) -> Result<OrderStatus, NotTaken> {
        let status = OrderStatus {
            order,
            key: run.key.clone(),
            job: run.job,
            at_s: now_s,
            state: OrderState::Waiting,
            text: String::new(),
            checkpoint: None,
        };
        let keep = |status: &OrderStatus| store.lock().keep_order(status, run.uid, run.restart_count);
        self.post(now_s, status, (run.uid, giver), run.restart_count, keep)
    }

    /// Tells Slurm when a run is to begin again that was vacated in its life `restart_count`, s since the epoch: once, since
    /// whoever changes that afterwards means it. None if nobody said when.
    ///
    /// # Errors
    /// What `tell` says; it is told again the next time.
    pub fn tell_begin<E>(
        &self,
        key: &RunKey,
        restart_count: u32,
        tell: impl FnOnce(f64) -> std::result::Result<(), E>,
    ) -> Option<std::result::Result<(), E>> {
        let begins_s = |e: &Entry| {
            let is_it = e.status.state == OrderState::Done && e.restart_count == restart_count && e.status.key == *key;
            e.status.order.begin_s.filter(|_| is_it)
        };
        let last = |book: &Book| book.orders.values().filter_map(|e| Some((begins_s(e)?, e.is_begin_told))).next_back();
        let (begin_s, is_told) = last(&self.book.lock())?;
        if is_told {
            return Some(Ok(()));
        }
        let told = tell(begin_s);
        if told.is_ok() {
            let mut book = self.book.lock();
            book.orders.values_mut().filter(|e| begins_s(e).is_some()).for_each(|e| e.is_begin_told = true);
        }
        Some(told)
    }

    /// An order, and who owns its run.
    pub fn get(&self, now_s: f64, id: &str) -> Option<(OrderStatus, u32)> {
        let mut book = self.book.lock();
        book.tidy(now_s);
        book.orders.get(id).map(|e| (e.status.clone(), e.owner))
    }

    /// The unanswered orders for a record of a run (`restart_count`, or any if it does not say which it is), for its
    /// wrapper, and the count of the run's news; `taken` notes each that it has not had before.
    ///
    /// # Errors
    /// What `taken` says; the order is handed out the next time.
    pub fn hand_out(
        &self,
        now_s: f64,
        key: &RunKey,
        restart_count: Option<u32>,
        mut taken: impl FnMut(&str) -> Result<()>,
    ) -> Result<(u64, Vec<Order>)> {
        let is_for = |e: &Entry| {
            e.settled_s.is_none() && e.status.key == *key && restart_count.is_none_or(|n| n == e.restart_count)
        };
        let mut noted = BTreeSet::new();
        loop {
            let mut book = self.book.lock();
            book.tidy(now_s);
            let is_new =
                |e: &&Entry| is_for(e) && e.status.state == OrderState::Waiting && !noted.contains(&e.status.order.id);
            let new: Vec<String> = book.orders.values().filter(is_new).map(|e| e.status.order.id.clone()).collect();
            if new.is_empty() {
                let mut orders = Vec::new();
                for entry in book.orders.values_mut().filter(|e| is_for(e)) {
                    entry.status.state = OrderState::Taken;
                    entry.asked_s = now_s;
                    orders.push(entry.status.order.clone());
                }
                return Ok((book.news(key).unwrap_or(self.first), orders));
            }
            drop(book);
            for id in new {
                taken(&id)?;
                noted.insert(id);
            }
        }
    }

    /// Takes in records of a run's journal that are stored, in their order; the bell rings once for all of them.
    pub fn heard<'a>(&self, now_s: f64, key: &RunKey, records: impl IntoIterator<Item = &'a Record>) {
        let mut book = self.book.lock();
        let mut is_news = false;
        for record in records {
            let upto = book.upto.entry(key.clone()).or_default();
            if record.seq <= *upto {
                continue;
            }
            *upto = record.seq;
            if concerns_orders(&record.event) {
                is_news = true;
                book.orders.values_mut().filter(|e| e.status.key == *key).for_each(|e| e.hear(now_s, &record.event));
            }
        }
        if book.upto.len() > MOST_RUNS {
            book.upto.pop_first();
        }
        if is_news {
            self.ring(book, key);
        }
    }

    /// Tells everybody who waits that something happened to a run.
    pub fn tell(&self, key: &RunKey) {
        self.ring(self.book.lock(), key);
    }

    /// A run is over, and its wrapper cannot say so.
    pub fn close(&self, now_s: f64, key: &RunKey) {
        let mut book = self.book.lock();
        book.fail(now_s, |e| e.status.key == *key, WORDLESS);
        book.upto.remove(key);
        self.ring(book, key);
        self.book.lock().news.remove(key);
    }

    /// The bell rings when the book is free again: who waits for it looks into the book while holding the bell.
    fn ring(&self, mut book: MutexGuard<'_, Book>, key: &RunKey) {
        book.last += 1;
        let last = book.last;
        book.news.insert(key.clone(), last);
        if book.news.len() > MOST_RUNS {
            // Whoever waits for those is told once too often.
            book.news.pop_first();
        }
        drop(book);
        self.bell_of(key).send_replace(last);
    }

    fn bell_of(&self, key: &RunKey) -> &watch::Sender<u64> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.bells[hasher.finish() as usize % BELLS]
    }

    /// Waits until a run has news other than `since`, at most for `limit`.
    pub async fn news(&self, key: &RunKey, since: u64, limit: Duration) {
        let mut bell = self.bell_of(key).subscribe();
        let is_new = |_: &u64| self.book.lock().news(key).unwrap_or(self.first) != since;
        let _ = tokio::time::timeout(limit, bell.wait_for(is_new)).await;
    }

    /// Waits until an order is answered, at most for `limit`.
    pub async fn settled(&self, id: &str, limit: Duration) {
        let key = self.book.lock().orders.get(id).map(|e| e.status.key.clone());
        let Some(key) = key else { return };
        let mut bell = self.bell_of(&key).subscribe();
        let is_settled = |_: &u64| self.book.lock().orders.get(id).is_none_or(|e| e.settled_s.is_some());
        let _ = tokio::time::timeout(limit, bell.wait_for(is_settled)).await;
    }
}

impl Book {
    fn news(&self, key: &RunKey) -> Option<u64> {
        self.news.get(key).copied()
    }

    fn fail(&mut self, now_s: f64, which: impl Fn(&Entry) -> bool, text: &str) {
        self.orders.values_mut().filter(|e| which(e)).for_each(|e| e.fail(now_s, text));
    }

    /// Whether one more order may be given for a run; forgets the one that was answered first, if there is no room for it.
    fn check_room(&mut self, key: &RunKey, owner: u32, giver: Giver) -> Result<(), NotTaken> {
        let share = if giver == Giver::Operator { 2 } else { 1 };
        let open =
            |which: &dyn Fn(&Entry) -> bool| self.orders.values().filter(|e| e.settled_s.is_none() && which(e)).count();
        if open(&|e| e.status.key == *key) >= MOST_OF_RUN * share {
            return Err(NotTaken::TooMany("as many orders as may be wait for this run"));
        }
        if giver == Giver::Owner && open(&|e| e.owner == owner) >= MOST_OF_USER {
            return Err(NotTaken::TooMany("as many orders as one user may give wait for your runs"));
        }
        if open(&|_| true) >= MOST * share {
            return Err(NotTaken::TooMany("as many orders as may be wait for runs of all users"));
        }
        if self.orders.len() >= MOST * share {
            let answered = self.orders.iter().filter_map(|(id, e)| e.settled_s.map(|at| (at, id.clone())));
            if let Some((_, first)) = answered.min_by(|a, b| a.0.total_cmp(&b.0)) {
                self.orders.remove(&first);
            }
        }
        Ok(())
    }

    /// Gives up what no wrapper heard of, and forgets what was answered long ago.
    fn tidy(&mut self, now_s: f64) {
        let unheard = |e: &Entry| e.status.state == OrderState::Waiting && now_s - e.status.at_s > HEARD_S;
        self.fail(now_s, unheard, &format!("the run's wrapper did not ask for orders within {HEARD_S} s"));
        let silent = |e: &Entry| e.status.state == OrderState::Taken && now_s - e.asked_s > SILENT_S;
        self.fail(now_s, silent, &format!("the run's wrapper took it and has not asked for orders for {SILENT_S} s"));
        let is_to_begin = |e: &Entry| !e.is_begin_told && e.status.order.begin_s.is_some_and(|at_s| at_s > now_s);
        self.orders.retain(|_, e| is_to_begin(e) || e.settled_s.is_none_or(|at| now_s - at < REMEMBERED_S));
    }
}

#[cfg(test)]
mod tests;
