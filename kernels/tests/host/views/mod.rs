//! Every kernel of the host that reads and writes through views, at widths around every tile and vector length and in
//! layouts with gaps: each element has the bits that it has in a contiguous result, and the gaps keep what they held.
//! Where a result is in the memory of an operand it has the same bits, or the call is refused.

mod along;
mod elementwise;
mod indices;
mod layouts;
mod made;
mod products;
mod rows;
mod scans;
mod shared;
