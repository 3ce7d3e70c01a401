//! The best implementation wins: where several executors take a call, candidates are measured, and the winner is pinned
//! in a record that later compilations follow.
//!
//! A [`Ranking`] answers every stage of a compilation that asks who is to run a call: the recorded winner first, then
//! the list of executors. Where the answer comes from is a [`Choices`]: a [file](ChoicesFile) that is shipped with a
//! model, or the records of this machine, which are measured where they are missing.

mod budget;
mod call;
mod candidates;
mod clock;
mod confirm;
mod entry;
mod file;
mod floor;
mod journal;
mod machine;
mod measure;
mod program;
mod ranking;
mod records;
mod room;
mod rounds;
mod session;
mod standing;
mod text;

pub use call::{Call, Purpose};
pub use clock::{Clock, Untimed};
pub use confirm::{Confirmed, confirm};
pub use entry::{DECOMPOSED, Entry, Times, Tried};
pub use file::ChoicesFile;
pub use machine::{Machine, VERSION};
pub use ranking::{Choices, Found, Question, Ranked, Ranking, Told, Wanted};
pub use records::{Blamed, CHOOSE_VARIABLE, Kept, Records};
pub(crate) use session::Bounded;
pub use text::{TextError, parse, print};
