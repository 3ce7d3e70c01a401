//! Traces as one page of HTML that needs no network: the program of every stage with its names as links, the executor
//! of each line and its refusals, the memory plan as a picture, and two programs side by side.
//!
//! [`page`] writes it. A page is three things: data
//! made from traces (`stage`, `line`, `memory`, `comparison`), whose parts that stages share are written once (`pool`);
//! scripts and styles (`assets/`), which are embedded as they are; and the frame around both (`page`).

mod comparison;
mod line;
mod live;
mod memory;
mod order;
mod page;
mod pool;
mod stage;
mod subject;
#[cfg(test)]
mod tests;
mod time;

pub use live::live;
pub use order::{Order, Reordered};
pub use page::page;
pub use subject::{Shown, Subject, Unread};
pub use time::{Activity, RATES, Span, Timing};
