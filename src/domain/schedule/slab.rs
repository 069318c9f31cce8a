//! Items found by index, whose places are used again.
//!
//! A free place holds the item's default. Gives its memory back once the last item is taken.

use std::{
    mem,
    ops::{Index, IndexMut},
};

/// Above this many places an empty slab keeps none.
const KEPT: usize = 64;

#[derive(Debug)]
pub(super) struct Slab<T> {
    items: Vec<T>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slab<T> {
    /// Stores an item and returns its index.
    pub(super) fn insert(&mut self, item: T) -> usize {
        if let Some(index) = self.free.pop() {
            self.items[index] = item;
            index
        } else {
            self.items.push(item);
            self.items.len() - 1
        }
    }

    /// Takes an item out. The index must be in use.
    pub(super) fn take(&mut self, index: usize) -> T {
        let item = mem::take(&mut self.items[index]);
        self.free.push(index);
        if self.items.len() > KEPT && self.len() == 0 {
            *self = Self::default();
        }
        item
    }

    /// Returns how many items there are.
    pub(super) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Returns what lies at an index: the default if the place is free, `None` if there is no such place.
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.items.get(index)
    }

    /// Returns the items, and the default for each free place.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.items.capacity() + self.free.capacity()
    }
}

impl<T> Index<usize> for Slab<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        &self.items[index]
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        &mut self.items[index]
    }
}
