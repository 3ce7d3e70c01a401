//! Which executors are asked for a call. A [`Ranking`] answers every stage of a compilation: the recorded winner first,
//! then the list of executors. Where a record comes from is a [`Choices`]; it may measure, which is done a floor above.

pub mod call;
pub mod entry;
pub mod ranking;

pub use call::{Call, Purpose};
pub use entry::{DECOMPOSED, Entry, Times, Tried};
pub use ranking::{Choices, Found, Question, Ranked, Ranking, Told, Wanted};
