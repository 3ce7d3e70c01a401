//! What the symbols of executors that attend in one kernel share beyond [`core::attention`](crate::core::attention).

mod changes;
mod forms;
mod mask_gradient;
mod reference;

pub use changes::ChangesMeta;
pub use forms::{FORMS, Form, Made};
pub use mask_gradient::Numbers;
pub use reference::{Marks, kept};
