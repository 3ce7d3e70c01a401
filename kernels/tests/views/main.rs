//! Every kernel of the host that reads and writes through views, at widths around every tile and vector length and in layouts
//! with gaps: each element has the bits that it has in a contiguous result, and the gaps keep what they held.

mod along;
mod elementwise;
mod indices;
mod layouts;
mod made;
mod products;
mod rows;
