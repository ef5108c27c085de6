//! A part of a session that takes memory only from its first use on.

use std::ops::Deref;

/// A part that many sessions never use: 8 bytes until then. Before its first use it reads as an
/// empty part.
#[derive(Debug)]
pub struct OnDemand<T>(Option<Box<T>>);

/// A part that is empty at first.
pub trait Empty: Sized + 'static {
    /// A new part.
    const NEW: Self;
    /// A part that was never used, for readers.
    const UNUSED: &'static Self;
}

impl<T: Empty> OnDemand<T> {
    /// A part that is not in use yet.
    pub const UNUSED: OnDemand<T> = OnDemand(None);

    /// Returns the part if it is in use. A part that is not has nothing to change or to remove.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    /// Returns the part, which is in use from now on.
    #[inline]
    pub fn or_create(&mut self) -> &mut T {
        self.0.get_or_insert_with(|| Box::new(T::NEW))
    }
}

impl<T: Empty> Deref for OnDemand<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::UNUSED)
    }
}
