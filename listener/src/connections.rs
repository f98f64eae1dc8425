//! Says who may stay when there is no more room for connections: pure, with numbers in place of times.
//!
//! Whoever has not shown who they are goes first, the oldest of them; then the least active connection of the user who
//! has the most. Root's connections never go: a user with many idle ones on a host does not keep that host's service
//! out, and many hosts together do not keep anybody out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// Root's user id.
const ROOT: u32 = 0;

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// In all.
    pub all: usize,
    /// From one connection.
    pub of_one: usize,
    /// In all, of those who have not shown who they are.
    pub unknown: usize,
}

/// The connections that are open, each with what ends it.
#[derive(Debug)]
pub struct Connections<W, T> {
    bounds: Bounds,
    next: u64,
    open: HashMap<u64, Connection<W, T>>,
    unknown: BTreeSet<u64>,
    known: Known,
    sources: HashMap<W, Source>,
}

#[derive(Debug)]
struct Connection<W, T> {
    from: W,
    uid: Option<u32>,
    active: u64,
    end: T,
}

/// What comes from one connection.
#[derive(Debug, Default)]
struct Source {
    unknown: BTreeSet<u64>,
    known: Known,
}

/// Connections by user, each user's by when they were active last.
#[derive(Debug, Default)]
struct Known(BTreeMap<u32, BTreeSet<(u64, u64)>>);

impl Known {
    fn insert(&mut self, uid: u32, active: u64, id: u64) {
        self.0.entry(uid).or_default().insert((active, id));
    }

    fn remove(&mut self, uid: u32, active: u64, id: u64) {
        if let Some(of_user) = self.0.get_mut(&uid) {
            of_user.remove(&(active, id));
            if of_user.is_empty() {
                self.0.remove(&uid);
            }
        }
    }

    fn count(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    fn of(&self, uid: u32) -> usize {
        self.0.get(&uid).map_or(0, BTreeSet::len)
    }

    /// The least active connection of a user.
    fn least_active(&self, uid: u32) -> Option<u64> {
        self.0.get(&uid)?.first().map(|(_, id)| *id)
    }

    /// That of the user who has the most; never root's.
    fn of_most(&self) -> Option<u64> {
        let users = self.0.iter().filter(|(uid, _)| **uid != ROOT);
        users.max_by_key(|(_, of_user)| of_user.len())?.1.first().map(|(_, id)| *id)
    }
}

impl Source {
    fn count(&self) -> usize {
        self.unknown.len() + self.known.count()
    }

    fn first_to_go(&self) -> Option<u64> {
        self.unknown.first().copied().or_else(|| self.known.of_most())
    }
}

impl<W: Copy + Eq + Hash, T> Connections<W, T> {
    /// No connections yet.
    pub fn new(bounds: Bounds) -> Connections<W, T> {
        Connections {
            bounds,
            next: 0,
            open: HashMap::new(),
            unknown: BTreeSet::new(),
            known: Known::default(),
            sources: HashMap::new(),
        }
    }

    /// Takes a connection in, of somebody unknown or of a user; its number, and what ends those that go for it. Nothing
    /// if nobody may go.
    pub fn enter(&mut self, from: W, uid: Option<u32>, end: T) -> Option<(u64, Vec<T>)> {
        let mut gone = Vec::new();
        let Bounds { all, of_one, unknown } = self.bounds;
        if self.sources.get(&from).map_or(0, Source::count) >= of_one {
            let first = self.sources.get(&from).and_then(Source::first_to_go);
            gone.extend(self.leave(first?));
        }
        if uid.is_none() && self.unknown.len() >= unknown {
            let first = self.unknown.first().copied();
            gone.extend(self.leave(first?));
        }
        if self.open.len() >= all {
            let first = self.unknown.first().copied().or_else(|| self.known.of_most());
            gone.extend(self.leave(first?));
        }
        let id = self.tick();
        self.open.insert(id, Connection { from, uid, active: id, end });
        self.sort_in(id);
        gone.extend(uid.and_then(|uid| self.share(from, uid)));
        Some((id, gone))
    }

    /// Notes that a connection is used, and by whom if they have shown it; what ends another of theirs, where they have
    /// more than their share from one connection.
    pub fn active(&mut self, id: u64, uid: Option<u32>) -> Option<T> {
        let active = self.tick();
        self.sort_out(id)?;
        let connection = self.open.get_mut(&id)?;
        connection.active = active;
        connection.uid = uid.or(connection.uid);
        let (from, uid) = (connection.from, connection.uid);
        self.sort_in(id);
        uid.and_then(|uid| self.share(from, uid))
    }

    /// A connection has ended, or has to; what ends it.
    pub fn leave(&mut self, id: u64) -> Option<T> {
        self.sort_out(id);
        self.open.remove(&id).map(|connection| connection.end)
    }

    /// One user has half of what one place may have.
    fn share(&mut self, from: W, uid: u32) -> Option<T> {
        let source = self.sources.get(&from)?;
        let is_over = uid != ROOT && source.known.of(uid) > self.bounds.of_one.div_ceil(2);
        let first = source.known.least_active(uid).filter(|_| is_over)?;
        self.leave(first)
    }

    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn sort_in(&mut self, id: u64) {
        let Some(connection) = self.open.get(&id) else { return };
        let source = self.sources.entry(connection.from).or_default();
        match connection.uid {
            Some(uid) => {
                source.known.insert(uid, connection.active, id);
                self.known.insert(uid, connection.active, id);
            }
            None => {
                source.unknown.insert(id);
                self.unknown.insert(id);
            }
        }
    }

    fn sort_out(&mut self, id: u64) -> Option<()> {
        let connection = self.open.get(&id)?;
        let source = self.sources.get_mut(&connection.from)?;
        match connection.uid {
            Some(uid) => {
                source.known.remove(uid, connection.active, id);
                self.known.remove(uid, connection.active, id);
            }
            None => {
                source.unknown.remove(&id);
                self.unknown.remove(&id);
            }
        }
        if source.count() == 0 {
            self.sources.remove(&connection.from);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(all: usize, of_one: usize, unknown: usize) -> Connections<&'static str, u32> {
        Connections::new(Bounds { all, of_one, unknown })
    }

    #[test]
    fn a_users_idle_connections_do_not_keep_their_hosts_root_out() {
        let mut room = room(1000, 8, 1000);
        for n in 0..50 {
            let (id, gone) = room.enter("host", None, n).expect("there is always room for one more");
            assert!(
                gone.len() <= usize::from(n >= 8),
                "nobody goes before there is need, and no more than one: {gone:?}"
            );
            // Some of them even show who they are.
            if n % 2 == 0 {
                room.active(id, Some(1000));
            }
        }
        let (root, _) = room.enter("host", None, 99).expect("root comes in");
        room.active(root, Some(ROOT));
        for n in 100..200 {
            let (id, gone) = room.enter("host", None, n).expect("room");
            assert!(!gone.contains(&99), "root's connection stays");
            assert!(room.active(id, Some(1000)).is_none_or(|gone| gone != 99));
        }
    }

    #[test]
    fn many_hosts_together_keep_nobody_out() {
        let mut room = room(16, 8, 16);
        let hosts = ["a", "b", "c", "d"];
        for n in 0..200 {
            room.enter(hosts[n as usize % 4], None, n).expect("room");
        }
        assert_eq!(room.open.len(), 16);
        let (id, gone) = room.enter("e", None, 500).expect("room");
        assert_eq!(gone.len(), 1);
        room.active(id, Some(7));
        for n in 600..700 {
            let (_, gone) = room.enter(hosts[n as usize % 4], None, n).expect("room");
            assert!(!gone.contains(&500), "who has shown who they are stays, while unknown ones can go");
        }
    }

    #[test]
    fn of_those_who_are_known_the_one_with_the_most_gives_way_and_the_least_active_of_theirs() {
        let mut room = room(6, 6, 6);
        let mut ids = Vec::new();
        for (n, uid) in [(0, 1), (1, 2), (2, 2), (3, 2), (4, 1), (5, ROOT)] {
            ids.push(room.enter("a", Some(uid), n).expect("room").0);
        }
        room.active(ids[1], None);
        let (_, gone) = room.enter("b", None, 9).expect("room");
        assert_eq!(gone, [2], "the first of user 2 was used again");
    }

    #[test]
    fn one_user_has_half_of_what_comes_from_one_place() {
        let mut room = room(100, 4, 100);
        assert!(room.enter("a", Some(7), 0).is_some_and(|(_, gone)| gone.is_empty()));
        assert!(room.enter("a", Some(7), 1).is_some_and(|(_, gone)| gone.is_empty()));
        assert_eq!(room.enter("a", Some(7), 2).map(|(_, gone)| gone), Some(vec![0]));
        for n in 3..7 {
            assert!(room.enter("a", Some(ROOT), n).is_some(), "root has as many as it needs");
        }
        assert!(room.enter("a", Some(ROOT), 7).is_none(), "but nobody can go for more");
    }

    #[test]
    fn unknown_ones_in_all_are_few() {
        let mut room = room(100, 10, 5);
        for n in 0..20 {
            room.enter(["a", "b", "c"][n as usize % 3], None, n).expect("room");
        }
        assert_eq!(room.open.len(), 5);
    }

    #[test]
    fn what_has_left_leaves_nothing() {
        let mut room = room(10, 10, 10);
        let (a, _) = room.enter("a", None, 1).expect("room");
        let (b, _) = room.enter("a", Some(3), 2).expect("room");
        room.active(a, Some(3));
        assert_eq!((room.leave(a), room.leave(b), room.leave(b)), (Some(1), Some(2), None));
        assert!(room.open.is_empty() && room.sources.is_empty() && room.unknown.is_empty() && room.known.0.is_empty());
        assert_eq!(room.active(a, Some(5)), None);
    }
}
