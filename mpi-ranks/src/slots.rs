//! Objects that the program holds by a handle: a table with places that are used again.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::cell::RefCell;

/// How many objects of one kind there may be at a time.
pub const SLOTS: usize = 1 << 20;

/// A table of at most [`SLOTS`] objects.
pub struct Slots<T>(RefCell<Table<T>>);

struct Table<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots(RefCell::new(Table { places: Vec::new(), free: Vec::new() }))
    }
}

impl<T: Clone> Slots<T> {
    /// Keeps an object, and says under which index.
    ///
    /// # Panics
    /// If there are too many.
    pub fn insert(&self, value: T) -> u32 {
        let mut table = self.0.borrow_mut();
        if let Some(index) = table.free.pop() {
            table.places[index as usize] = Some(value);
            return index;
        }
        assert!(table.places.len() < SLOTS, "more than {SLOTS} handles of one kind at a time");
        table.places.push(Some(value));
        (table.places.len() - 1) as u32
    }

    /// The object under an index.
    pub fn get(&self, index: u32) -> Option<T> {
        self.0.borrow().places.get(index as usize)?.clone()
    }

    /// Gives the object up.
    pub fn remove(&self, index: u32) -> Option<T> {
        let mut table = self.0.borrow_mut();
        let value = table.places.get_mut(index as usize)?.take()?;
        table.free.push(index);
        Some(value)
    }
}
