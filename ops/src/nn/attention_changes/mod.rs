//! What the symbols of executors that attend in one kernel share beyond [`core::attention`](crate::core::attention).

mod changes;
mod forms;
mod mask_gradient;
mod reference;

pub use changes::ChangesMeta;
pub use forms::{FORMS, Form, Made, far_below};
pub use mask_gradient::Numbers;
pub use reference::{Marks, kept};

/// A call of attention with the changes that the fields of `$changes` say: mask, lengths, generator, window, cap and
/// dropout_p. Symbols of executors have these optional arguments, each in a builder of its own type.
#[macro_export]
macro_rules! with_changes {
    ($call:expr, $changes:expr) => {{
        let changes = $changes;
        let call = $call.mask(changes.mask).lengths(changes.lengths).generator(changes.generator);
        call.window(changes.window).cap(changes.cap).dropout_p(changes.dropout_p)
    }};
}
