//! Pictures of numbers: curves, bars and rooflines.
//!
//! A [`Series`] keeps the outline of a curve of any length in a few hundred points. [`Chart`] makes a figure of a page
//! from several of them, which a reader follows by pointer and by keyboard; [`picture`], [`bars`] and [`roofline`] make
//! files of SVG; [`terminal`] makes lines of text. [`page()`] is the frame of a page that holds everything that it
//! needs.

pub mod bars;
mod chart;
mod markup;
mod page;
pub mod picture;
pub mod roofline;
mod scale;
mod series;
pub mod terminal;

pub use chart::{Chart, Curve};
pub use markup::{escape_json, escape_text, plain};
pub use page::{Page, page};
pub use scale::number;
pub use series::{PARTS, Series};
