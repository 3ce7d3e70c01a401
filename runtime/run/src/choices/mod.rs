//! The best implementation wins: where several executors take a call, candidates are measured, and the winner is pinned
//! in a record that later compilations follow.
//!
//! A [`Ranking`] answers every stage of a compilation that asks which executor is to run a call: the recorded winner
//! first, then the list of executors. Where the answer comes from is a [`Choices`]: a [file](ChoicesFile) that is
//! shipped with a model, or the records of this machine, which are measured where they are missing.

mod budget;
mod candidates;
mod clock;
mod confirm;
mod file;
mod floor;
mod journal;
mod machine;
mod measure;
mod program;
mod records;
mod room;
mod rounds;
mod session;
mod standing;
mod text;

use fulgurite_compile::choices::{call, entry, ranking};

pub use fulgurite_compile::choices::{
    Call, Choices, DECOMPOSED, Entry, Found, Purpose, Question, Ranked, Ranking, Times, Told, Tried, Wanted,
};

pub use clock::{Clock, Untimed};
pub use confirm::{Confirmed, confirm};
pub use file::ChoicesFile;
pub use machine::{Machine, VERSION};
pub use records::{Blamed, CHOOSE_VARIABLE, Kept, Records};
pub use session::Bounded;
pub use standing::with_winner_of;
pub use text::{TextError, parse, print};
