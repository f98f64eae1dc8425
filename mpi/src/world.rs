//! Who is where: the ranks of all groups, and everything that this rank keeps.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::communicator::{Comm, Message};
use crate::file::Files;
use crate::operation::Operation;
use crate::outcome::Outcomes;
use crate::probe::Taken;
use crate::progress::Progress;
use crate::slots::Slots;
use crate::transport::Transport;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The ranks of each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// This group.
    pub group: u32,
    /// The world ranks of each group, in the order of the group's native world.
    pub groups: Vec<Vec<u32>>,
    /// For each world rank its group, and its rank in that group's native world.
    places: Vec<(u32, u32)>,
}

/// Why a layout cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LayoutError {
    /// A part of the list is neither a rank nor a range.
    #[error("JOULEPOINT_MPI_RANKS: \"{0}\" is neither a rank nor a range such as 0-3")]
    NotARange(String),
    /// The ranks are not those from 0 on, each once.
    #[error("JOULEPOINT_MPI_RANKS: world rank {0} is missing or there twice")]
    NotAWorld(u32),
    /// The group has no ranks in the list.
    #[error("FT_ENERGY_GROUP: {0} is not one of the groups of JOULEPOINT_MPI_RANKS")]
    NoSuchGroup(String),
}

impl Layout {
    /// Reads a list such as `0-1,4/2-3`: the ranks of two groups.
    pub fn parse(ranks: &str, group: &str) -> Result<Layout, LayoutError> {
        let groups = ranks.split('/').map(one_group).collect::<Result<Vec<_>, _>>()?;
        let size = groups.iter().map(Vec::len).sum::<usize>();
        let mut places = vec![None; size];
        for (index, members) in groups.iter().enumerate() {
            for (at, rank) in members.iter().enumerate() {
                match places.get_mut(*rank as usize) {
                    Some(place @ None) => *place = Some((index as u32, at as u32)),
                    _ => return Err(LayoutError::NotAWorld(*rank)),
                }
            }
        }
        let places = places.into_iter().map(|place| place.expect("as many places as ranks, each taken once")).collect();
        let this = group.trim().parse::<u32>().ok().filter(|this| (*this as usize) < groups.len());
        let group = this.ok_or_else(|| LayoutError::NoSuchGroup(group.to_owned()))?;
        Ok(Layout { group, groups, places })
    }

    /// Ranks of the world.
    #[must_use]
    pub fn size(&self) -> usize {
        self.places.len()
    }

    /// The group of a world rank.
    #[must_use]
    pub fn group_of(&self, rank: u32) -> u32 {
        self.places[rank as usize].0
    }

    /// The rank in this group's native world of a world rank, if it is of this group.
    #[must_use]
    pub fn native(&self, rank: u32) -> Option<Int> {
        let (group, at) = self.places[rank as usize];
        (group == self.group).then_some(at as Int)
    }

    /// The world rank of a rank of this group's native world.
    #[must_use]
    pub fn world_rank(&self, native: Int) -> u32 {
        self.groups[self.group as usize][native as usize]
    }
}

fn one_group(text: &str) -> Result<Vec<u32>, LayoutError> {
    let mut ranks = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last < SLOTS as u32 => ranks.extend(first..=last),
            _ => return Err(LayoutError::NotARange(part.to_owned())),
        }
    }
    Ok(ranks)
}

/// Everything that this rank keeps between two calls.
pub struct World {
    /// Who is where.
    pub layout: Layout,
    /// This rank.
    pub rank: u32,
    /// The way to the other groups.
    pub transport: Box<dyn Transport>,
    /// Communicators of several groups, and those with a topology of ours, by their handle.
    comms: RefCell<HashMap<MPI_Comm, Rc<Comm>>>,
    /// Native communicators of which a receive from anybody must be known, by their handle.
    thin: RefCell<HashMap<MPI_Comm, Rc<Comm>>>,
    /// All communicators with messages of ours, by their context.
    pub contexts: RefCell<HashMap<u64, Weak<Comm>>>,
    /// Messages whose communicator this rank has yet to create.
    pub early: RefCell<HashMap<u64, VecDeque<Message>>>,
    /// Requests that the program holds.
    pub requests: Slots<Rc<Operation>>,
    /// Groups that the program holds.
    pub groups: Slots<Rc<Vec<u32>>>,
    /// Messages that a matched probe took.
    pub messages: Slots<Rc<Taken>>,
    /// How often a group of processes has created a communicator without their parent's others.
    pub created: RefCell<HashMap<u64, u64>>,
    /// Synchronous sends whose receiver has not begun, by number.
    pub synchronous: RefCell<HashMap<u32, Rc<Operation>>>,
    /// The number of the last synchronous send.
    pub last_synchronous: Cell<u32>,
    /// What drives messages and collectives.
    pub progress: Progress,
    /// What came of calls that depend on time.
    pub outcomes: Outcomes,
    /// Files that several groups have open.
    pub files: Files,
    /// The value of the attribute `MPI_UNIVERSE_SIZE`.
    pub universe: Box<Int>,
}

impl World {
    /// A world without communicators.
    pub fn new(layout: Layout, rank: u32, transport: Box<dyn Transport>) -> World {
        let universe = Box::new(layout.size() as Int);
        World {
            layout,
            rank,
            transport,
            comms: RefCell::default(),
            thin: RefCell::default(),
            contexts: RefCell::default(),
            early: RefCell::default(),
            requests: Slots::default(),
            groups: Slots::default(),
            messages: Slots::default(),
            created: RefCell::default(),
            synchronous: RefCell::default(),
            last_synchronous: Cell::new(0),
            progress: Progress::default(),
            outcomes: Outcomes::default(),
            files: Files::default(),
            universe,
        }
    }

    /// The communicator of ours under a handle, or `None` if it is native.
    pub fn find(&self, handle: MPI_Comm) -> Option<Rc<Comm>> {
        self.comms.borrow().get(&handle).cloned()
    }

    /// The communicator under a handle, native ones too.
    pub fn find_any(&self, handle: MPI_Comm) -> Option<Rc<Comm>> {
        if let Some(found) = self.find(handle).or_else(|| self.thin.borrow().get(&handle).cloned()) {
            return Some(found);
        }
        let comm = Rc::new(Comm::thin(self, handle)?);
        self.thin.borrow_mut().insert(handle, comm.clone());
        Some(comm)
    }

    /// Makes a communicator known; messages that came before it are handed to it.
    pub fn register(&self, comm: Comm) -> Rc<Comm> {
        let comm = Rc::new(comm);
        self.comms.borrow_mut().insert(comm.handle, comm.clone());
        self.contexts.borrow_mut().insert(comm.context, Rc::downgrade(&comm));
        for lane in 0..2 {
            if let Some(messages) = self.early.borrow_mut().remove(&(comm.context | lane)) {
                comm.lanes[lane as usize].unexpected.borrow_mut().extend(messages);
            }
        }
        comm
    }

    /// Forgets the communicator under a handle, which its owner has freed.
    pub fn forget(&self, handle: MPI_Comm) -> Option<Rc<Comm>> {
        self.thin.borrow_mut().remove(&handle);
        self.comms.borrow_mut().remove(&handle)
    }

    /// All communicators in which receives may be posted.
    pub fn all(&self) -> Vec<Rc<Comm>> {
        self.comms.borrow().values().chain(self.thin.borrow().values()).cloned().collect()
    }
}

static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());

/// This rank's world, or `None` if the program does not run over groups, before `MPI_Init` and after `MPI_Finalize`.
#[inline]
pub fn get() -> Option<&'static World> {
    // SAFETY: set once from a leaked box and never freed. One thread at a time is inside MPI: the thread level is
    // capped at MPI_THREAD_SERIALIZED, which makes it the program's duty.
    unsafe { WORLD.load(Ordering::Acquire).as_ref() }
}

/// Begins to answer for the world; `None` ends it. It is never freed: requests of the program's may still name it.
pub fn set(world: Option<World>) {
    let at = world.map_or(std::ptr::null_mut(), |world| Box::into_raw(Box::new(world)));
    WORLD.store(at, Ordering::Release);
}

/// Ends all ranks of all groups, with a word on why.
pub fn end(code: Int, why: &str) -> ! {
    match get() {
        Some(world) => {
            eprintln!("joulepoint: rank {}: {why}; the program ends", world.rank);
            world.transport.abort(code);
        }
        None => eprintln!("joulepoint: {why}; the program ends"),
    }
    native().MPI_Abort(handles().world, code);
    std::process::exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_says_where_each_rank_is() {
        let layout = Layout::parse("0-1,4/2-3", "1").expect("two groups");
        assert_eq!(layout.groups, [vec![0, 1, 4], vec![2, 3]]);
        assert_eq!((layout.size(), layout.group_of(4), layout.native(4), layout.native(3)), (5, 0, None, Some(1)));
        assert_eq!(layout.world_rank(0), 2);
    }

    #[test]
    fn what_is_no_layout_is_refused_with_the_part_that_is_wrong() {
        assert_eq!(Layout::parse("0-x", "0"), Err(LayoutError::NotARange("0-x".into())));
        assert_eq!(Layout::parse("", "0"), Err(LayoutError::NotARange(String::new())));
        assert_eq!(Layout::parse("0-4294967295", "0"), Err(LayoutError::NotARange("0-4294967295".into())));
        assert_eq!(Layout::parse("0-1/1-2", "0"), Err(LayoutError::NotAWorld(1)));
        assert_eq!(Layout::parse("0/2", "0"), Err(LayoutError::NotAWorld(2)));
        assert_eq!(Layout::parse("0/1", "2"), Err(LayoutError::NoSuchGroup("2".into())));
    }
}
