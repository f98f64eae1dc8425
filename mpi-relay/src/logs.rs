//! The logs of a group's ranks: one of `mlog`'s stores for each, in a folder of its own.

use crate::Error;
use crate::heart::Log;
use crate::layout::Layout;
use crate::prints::Print;
use mlog::Medium;
use mlog::frame::{Frame, Header};
use mlog::store::Store;
use std::path::{Path, PathBuf};

/// One store for each rank, by place.
#[derive(Debug)]
pub struct Logs {
    stores: Vec<Store>,
    ranks: Vec<u32>,
    medium: Medium,
}

/// The folder of a rank's log.
pub fn folder(logs: &Path, rank: u32) -> PathBuf {
    logs.join(rank.to_string())
}

impl Logs {
    /// Opens the logs of a group; the second part says what was damaged.
    ///
    /// # Errors
    /// What the file system says, or another relay holds them.
    pub fn open(
        logs: &Path,
        layout: &Layout,
        group: usize,
        medium: Medium,
        takes_over: bool,
    ) -> Result<(Logs, Vec<String>), Error> {
        let (mut stores, mut damages) = (Vec::new(), Vec::new());
        for rank in layout.ranks(group) {
            // The bound is that of all together, and the relay's to keep.
            let open = Store::open(&folder(logs, *rank), layout.world(), medium, u64::MAX, takes_over);
            let (store, damage) = open?;
            stores.push(store);
            damages.extend(damage);
        }
        Ok((Logs { stores, ranks: layout.ranks(group).to_vec(), medium }, damages))
    }

    /// Bytes that all logs take.
    pub fn bytes(&self) -> u64 {
        self.stores.iter().map(Store::bytes).sum()
    }

    /// Where they are kept.
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Time spent logging, and the part of it that was spent syncing, s.
    pub fn seconds(&self) -> (f64, f64) {
        let sum = |time: fn(&Store) -> std::time::Duration| self.stores.iter().map(|s| time(s).as_secs_f64()).sum();
        (sum(|s| s.logging), sum(|s| s.syncing))
    }

    /// Messages that the ranks have to send again until they are where they were.
    pub fn behind(&self) -> u64 {
        self.stores.iter().map(Store::behind).sum()
    }

    /// Of the channels to some ranks: how many messages are logged, and given up by their receivers.
    pub fn numbers(&self, to: &[u32]) -> (u64, u64) {
        let each = |store: &Store| -> Vec<_> { to.iter().filter_map(|rank| store.channel(*rank as usize)).collect() };
        let all = self.stores.iter().flat_map(each);
        all.fold((0, 0), |(logged, collected), n| (logged + n.logged, collected + n.collected.min(n.logged)))
    }

    /// Makes all durable that is on disk.
    ///
    /// # Errors
    /// What the disk says.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.stores.iter_mut().try_for_each(Store::sync).map_err(Error::from)
    }

    /// Writes all into a folder from which another relay can serve them.
    ///
    /// # Errors
    /// What the disk says, or the folder holds a log already.
    pub fn save(&mut self, to: &Path) -> Result<(), Error> {
        for (rank, store) in self.ranks.iter().zip(&mut self.stores) {
            store.save(&folder(to, *rank))?;
        }
        Ok(())
    }

    fn at(&mut self, place: usize) -> Result<&mut Store, Error> {
        self.stores.get_mut(place).ok_or_else(|| Error::Usage(format!("rank {place} of a group that has fewer")))
    }
}

impl Log for Logs {
    fn logged(&self, place: usize) -> Vec<u64> {
        self.stores.get(place).map(Store::logged).unwrap_or_default()
    }

    fn gone(&self, place: usize, to: usize) -> u64 {
        self.stores.get(place).and_then(|store| store.channel(to)).map_or(0, |numbers| numbers.gone)
    }

    fn append(&mut self, place: usize, messages: Vec<Frame>) -> Result<(), Error> {
        Ok(self.at(place)?.log(messages).map(drop)?)
    }

    fn cut(&mut self, place: usize, to: usize, goes: impl Fn(&Header) -> bool) -> Result<(), Error> {
        Ok(self.at(place)?.cut(to, goes)?)
    }

    fn join(&mut self, place: usize, to: usize, held: u64) -> Result<(), Error> {
        Ok(self.at(place)?.join(to, held)?)
    }

    fn want(&mut self, place: usize, to: usize, from: u64) {
        if let Some(store) = self.stores.get_mut(place) {
            store.want(to, from);
        }
    }

    fn due(&self, place: usize, to: usize) -> Option<u64> {
        self.stores.get(place)?.channel(to)?.due
    }

    fn take_due(&mut self, place: usize, to: usize) -> Result<Option<Frame>, Error> {
        // The relay writes sender and receiver into the header.
        Ok(self.at(place)?.next_due(to, 0)?)
    }

    fn lost(&self, place: usize, to: usize) -> Option<u64> {
        self.stores.get(place)?.channel(to)?.lost
    }

    fn collect(&mut self, place: usize, to: usize, upto: u64) -> Result<(), Error> {
        Ok(self.at(place)?.collect(to, upto)?)
    }

    fn prints(&mut self, place: usize, to: usize) -> Result<Vec<(u64, Print)>, Error> {
        let mut prints = Vec::new();
        self.at(place)?.show(to, |header, body| {
            prints.extend(Print::of_body(body, header.rest).map(|print| (header.number, print)));
        })?;
        Ok(prints)
    }

    fn forgets(&self) -> bool {
        self.medium == Medium::None
    }
}
