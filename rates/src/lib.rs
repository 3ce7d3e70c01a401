//! What devices move and compute in a second at most: measured and recorded, or as their makers say.

pub mod bandwidth;
pub mod flops;
mod measured;
mod rates;
pub mod scaling;
pub mod too_low;

pub use rates::{Rates, ceilings};
