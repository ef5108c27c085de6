//! Dead letters: messages that their receiver did not get.
//!
//! | file | concern |
//! |---|---|
//! | [`dead_letters`] | which drops become letters, and those that wait to be published |
//! | [`stored_letters`] | the letters in the store, with their bounds |

pub mod dead_letters;
pub mod stored_letters;
