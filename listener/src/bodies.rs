//! Bounds the memory that bodies of requests take, in all and of one user, while they come and are worked on.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Most bytes of all bodies; what is made of them takes several times as much.
const MOST: usize = 12 << 20;

/// Most bytes of one user's.
const MOST_OF_ONE: usize = 5 << 20;

/// Why there is no room for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Crowded {
    /// Of this user.
    #[error("user {0} sends more than {MOST_OF_ONE} bytes at the same time; send it again when the rest is answered")]
    One(u32),
    /// In all.
    #[error("all users together send more than {MOST} bytes at the same time; send it again in a moment")]
    All,
}

/// Bytes that are held at the moment.
#[derive(Debug, Default)]
pub struct Bodies(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    all: usize,
    of: HashMap<u32, usize>,
}

/// The bytes of one request, given back when dropped.
#[derive(Debug)]
pub struct Held {
    bodies: Arc<Bodies>,
    uid: u32,
    bytes: usize,
}

impl Bodies {
    /// Nothing yet, for a request of a user.
    pub fn hold(self: &Arc<Self>, uid: u32) -> Held {
        Held { bodies: self.clone(), uid, bytes: 0 }
    }
}

impl Held {
    /// Takes room for more; root always has some, since the site's services speak as root.
    ///
    /// # Errors
    /// Why there is none.
    pub fn more(&mut self, bytes: usize) -> Result<(), Crowded> {
        let mut sums = self.bodies.0.lock();
        let own = sums.of.get(&self.uid).copied().unwrap_or(0);
        if self.uid != 0 && own + bytes > MOST_OF_ONE {
            return Err(Crowded::One(self.uid));
        }
        if self.uid != 0 && sums.all + bytes > MOST {
            return Err(Crowded::All);
        }
        sums.all += bytes;
        sums.of.insert(self.uid, own + bytes);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut sums = self.bodies.0.lock();
        sums.all -= self.bytes.min(sums.all);
        if let Some(own) = sums.of.get_mut(&self.uid) {
            *own -= self.bytes.min(*own);
            if *own == 0 {
                sums.of.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_holds_a_part_and_gives_it_back() {
        let bodies = Arc::new(Bodies::default());
        let mut held: Vec<Held> = (1..=3).map(|uid| bodies.hold(uid)).collect();
        for one in &mut held[..2] {
            assert_eq!(one.more(MOST_OF_ONE), Ok(()));
            assert_eq!(one.more(1), Err(Crowded::One(one.uid)));
        }
        assert_eq!(held[2].more(MOST - 2 * MOST_OF_ONE), Ok(()));
        assert_eq!(held[2].more(1), Err(Crowded::All));
        assert_eq!(bodies.hold(0).more(1 << 20), Ok(()), "root's heartbeats are heard");
        held.remove(0);
        assert_eq!(held[1].more(1), Ok(()));
        drop(held);
        let sums = bodies.0.lock();
        assert!(sums.all == 0 && sums.of.is_empty(), "{sums:?}");
    }
}
