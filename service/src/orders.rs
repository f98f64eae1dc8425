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
            let mut entry = Entry { status, restart_count, owner, asked_s: now_s, settled_s: None };
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
        let entry = Entry { status: status.clone(), restart_count, owner, asked_s: now_s, settled_s: None };
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
        self.orders.retain(|_, e| e.settled_s.is_none_or(|at| now_s - at < REMEMBERED_S));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Verb;

    fn key(run: &str) -> RunKey {
        RunKey { cluster: "c".into(), run: run.into() }
    }

    fn status(id: &str, run: &str) -> OrderStatus {
        OrderStatus {
            order: Order { id: id.into(), verb: Verb::Checkpoint, by: "alice".into() },
            key: key(run),
            job: 7,
            at_s: 100.0,
            state: OrderState::Waiting,
            text: String::new(),
            checkpoint: None,
        }
    }

    fn kept(_: &OrderStatus) -> Result<()> {
        Ok(())
    }

    fn noted(_: &str) -> Result<()> {
        Ok(())
    }

    fn record(seq: u64, event: Event) -> Record {
        Record { seq, at_s: 100.0, event }
    }

    fn ended(seq: u64, state: &str) -> Record {
        record(seq, Event::Ended { state: state.into(), exit_code: 0 })
    }

    fn ordered(seq: u64, id: &str) -> Record {
        let event = Event::Ordered {
            id: id.into(),
            verb: Verb::Checkpoint,
            by: "alice".into(),
            state: OrderState::Done,
            text: "made".into(),
            checkpoint: None,
        };
        record(seq, event)
    }

    #[test]
    fn an_order_goes_to_its_wrapper_and_comes_back_answered() {
        let orders = Orders::new(100.0);
        orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap();
        assert_eq!(
            orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap().order.id,
            "a",
            "the same again is the same"
        );
        assert_eq!(orders.post(100.0, status("a", "7.2"), (1, Giver::Owner), 0, kept), Err(NotTaken::OtherOrder));
        assert!(orders.hand_out(101.0, &key("7.2"), None, noted).unwrap().1.is_empty());
        assert_eq!(orders.hand_out(101.0, &key("7.1"), None, noted).unwrap().1.len(), 1);
        assert_eq!(orders.get(101.0, "a").unwrap().0.state, OrderState::Taken);
        orders.heard(102.0, &key("7.2"), [&ordered(1, "a")]);
        assert_eq!(orders.get(102.0, "a").unwrap().0.state, OrderState::Taken, "only its own run answers it");
        orders.heard(102.0, &key("7.1"), [&ordered(1, "a")]);
        assert_eq!(orders.get(102.0, "a").unwrap().0.state, OrderState::Done);
        assert!(orders.hand_out(102.0, &key("7.1"), None, noted).unwrap().1.is_empty());
        assert!(orders.get(102.0 + REMEMBERED_S, "a").is_none());
    }

    #[test]
    fn no_user_can_keep_others_from_giving_orders() {
        let orders = Orders::new(100.0);
        let post = |i: usize, owner: u32, giver: Giver| {
            let run = format!("{owner}.{}", i / MOST_OF_RUN);
            orders.post(100.0, status(&format!("{owner}-{i}-{giver:?}"), &run), (owner, giver), 0, kept)
        };
        for owner in 1..=8 {
            assert!((0..MOST_OF_USER).all(|i| post(i, owner, Giver::Owner).is_ok()), "{owner}");
            assert!(matches!(post(MOST_OF_USER, owner, Giver::Owner), Err(NotTaken::TooMany(_))));
        }
        assert!(matches!(post(0, 9, Giver::Owner), Err(NotTaken::TooMany(why)) if why.contains("all users")));
        assert!((0..MOST_OF_RUN).all(|i| post(i, 1, Giver::Operator).is_ok()), "on a run with as many as may be");
        assert!(post(0, 9, Giver::Operator).is_ok());
    }

    #[test]
    fn an_order_is_for_the_life_of_the_job_that_it_was_given_for() {
        let orders = Orders::new(100.0);
        orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap();
        let heard = |life| orders.hand_out(101.0, &key("7.1"), Some(life), noted).unwrap().1.len();
        assert_eq!(heard(1), 0, "it was requeued, and its start is on its way");
        assert_eq!(orders.get(101.0, "a").unwrap().0.state, OrderState::Waiting);
        assert_eq!(heard(0), 1);
    }

    #[test]
    fn no_order_is_lost_in_silence() {
        let ended = ended(1, "completed");
        type Fate = fn(&Orders, &Record);
        let fates: [(Fate, &str); 3] = [
            (|o, _| drop(o.get(161.0, "a")), "the run's wrapper did not ask for orders within 60 s"),
            (|o, ended| o.heard(101.0, &key("7.1"), [ended]), "the run ended before: completed"),
            (|o, _| o.close(101.0, &key("7.1")), "the run ended without its wrapper's word"),
        ];
        for (fate, text) in fates {
            let orders = Orders::new(100.0);
            orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap();
            fate(&orders, &ended);
            let (after, owner) = orders.get(161.0, "a").unwrap();
            assert_eq!((after.state, after.text.as_str(), owner), (OrderState::Failed, text, 1));
        }
    }

    #[test]
    fn a_journal_that_is_sent_again_fails_nothing() {
        let orders = Orders::new(100.0);
        let journal = [record(1, Event::CheckpointFailed { reason: "full".into() }), ended(2, "requeued")];
        orders.heard(100.0, &key("7.1"), &journal);
        orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 1, kept).unwrap();
        orders.heard(101.0, &key("7.1"), &journal);
        assert_eq!(orders.get(101.0, "a").unwrap().0.state, OrderState::Waiting);
        orders.heard(102.0, &key("7.1"), [&ended(3, "completed")]);
        assert_eq!(orders.get(102.0, "a").unwrap().0.state, OrderState::Failed);
    }

    #[test]
    fn an_order_that_is_not_kept_is_not_given_and_one_that_is_not_noted_is_not_handed_out() {
        let orders = Orders::new(100.0);
        let fails = || Err(store::Error::NoWriter);
        assert_eq!(orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, |_| fails()), Err(NotTaken::NotKept));
        assert!(orders.get(100.0, "a").is_none());
        orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap();
        assert!(orders.hand_out(100.0, &key("7.1"), None, |_| fails()).is_err());
        assert_eq!(orders.get(100.0, "a").unwrap().0.state, OrderState::Waiting);
    }

    #[test]
    fn a_start_of_the_service_finds_every_order_as_it_stands() {
        let of = |id: &str, state, records, is_open| {
            let status = OrderStatus { state, ..status(id, &format!("{id}.1")) };
            KeptOrder { status, owner: 1, restart_count: 1, records, is_open }
        };
        let started = |restart_count| Event::Started {
            job: 7,
            restart_count,
            user: "alice".into(),
            account: String::new(),
            partition: String::new(),
            job_name: String::new(),
            nodes: Vec::new(),
            resumed_from: None,
            dir: String::new(),
        };
        use OrderState::{Done, Failed, Taken, Waiting};
        let orders = Orders::new(150.0);
        orders.take_up(
            150.0,
            vec![
                of("waits", Waiting, vec![], true),
                of("taken", Taken, vec![record(5, started(1))], true),
                of("done", Taken, vec![record(5, ordered(5, "done").event)], true),
                of("requeued", Waiting, vec![record(5, started(2))], true),
                of("over", Taken, vec![], false),
            ],
        );
        for (id, state) in
            [("waits", Waiting), ("taken", Taken), ("done", Done), ("requeued", Failed), ("over", Failed)]
        {
            assert_eq!(orders.get(150.0, id).unwrap().0.state, state, "{id}");
        }
        assert_eq!(orders.hand_out(150.0, &key("waits.1"), None, noted).unwrap().1.len(), 1);
        assert_eq!(
            orders.hand_out(150.0, &key("taken.1"), None, noted).unwrap().1.len(),
            1,
            "its wrapper knows it by its id"
        );
        orders.heard(151.0, &key("taken.1"), [&record(4, started(0))]);
        assert_eq!(orders.get(151.0, "taken").unwrap().0.state, Taken, "a journal that is sent again fails nothing");
        assert_eq!(orders.get(151.0 + HEARD_S, "waits").unwrap().0.state, Taken);
        // A wrapper that is stopped answers no more; one that works on an order asks for the next.
        assert_eq!(orders.hand_out(300.0, &key("waits.1"), None, noted).unwrap().1.len(), 1);
        assert_eq!(orders.get(151.0 + SILENT_S, "taken").unwrap().0.state, Failed);
        assert_eq!(orders.get(151.0 + SILENT_S, "waits").unwrap().0.state, Taken);
    }

    #[test]
    fn what_waits_is_bounded() {
        let orders = Orders::new(100.0);
        for i in 0..MOST_OF_RUN {
            orders.post(100.0, status(&i.to_string(), "7.1"), (1, Giver::Owner), 0, kept).unwrap();
        }
        let more = orders.post(100.0, status("more", "7.1"), (1, Giver::Owner), 0, kept);
        assert!(matches!(more, Err(NotTaken::TooMany(_))));
        orders.post(100.0, status("other", "8.1"), (1, Giver::Owner), 0, kept).unwrap();
        for seq in 1..=MOST as u64 + 100 {
            let id = format!("n{seq}");
            orders.post(100.0, status(&id, "9.1"), (1, Giver::Owner), 0, kept).unwrap();
            orders.heard(100.0 + seq as f64 / 1e4, &key("9.1"), [&ordered(seq, &id)]);
        }
        assert_eq!(orders.book.lock().orders.len(), MOST);
        assert!(orders.get(101.0, "n1").is_none(), "the first answered is forgotten first");
        assert!(orders.get(101.0, "0").is_some(), "an unanswered one is not");
    }

    #[tokio::test]
    async fn whoever_waits_hears_at_once() {
        let orders = std::sync::Arc::new(Orders::new(100.0));
        let (since, _) = orders.hand_out(100.0, &key("7.1"), None, noted).unwrap();
        let waiting = tokio::spawn({
            let orders = orders.clone();
            async move { orders.news(&key("7.1"), since, Duration::from_secs(3600)).await }
        });
        orders.post(100.0, status("other", "8.1"), (1, Giver::Owner), 0, kept).unwrap();
        orders.post(100.0, status("a", "7.1"), (1, Giver::Owner), 0, kept).unwrap();
        waiting.await.unwrap();
        let (news, _) = orders.hand_out(100.0, &key("7.1"), None, noted).unwrap();
        assert_ne!(news, since);
        orders.close(101.0, &key("7.1"));
        orders.settled("a", Duration::from_secs(3600)).await;
    }
}
