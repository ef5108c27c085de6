//! Parts of a session that most sessions never need: 8 bytes until they are first changed.

use std::ops::{Deref, DerefMut};

/// A value that is allocated when it is first changed, and reads as empty before.
#[derive(Debug)]
pub struct Seldom<T>(Option<Box<T>>);

/// What reads as nothing.
pub trait Empty: Default + 'static {
    /// One for each thread, never freed: it may hold what cannot be shared, though this one holds nothing.
    fn empty() -> &'static Self;
}

impl<T> Seldom<T> {
    /// The value, once it was changed: cheaper to ask than to read the empty one.
    pub fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }
}

impl<T> Default for Seldom<T> {
    fn default() -> Seldom<T> {
        Seldom(None)
    }
}

impl<T: Empty> Deref for Seldom<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.0 {
            Some(value) => value,
            None => T::empty(),
        }
    }
}

impl<T: Empty> DerefMut for Seldom<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}
