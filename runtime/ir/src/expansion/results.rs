//! Results of kernels by name: where each is, how a kernel gets it.

use fulgurite_kernels::view::TensorMut;

use crate::argument::Arg;
use crate::failure::Failure;

/// One result.
pub mod result {
    use super::*;

    /// Where it is among the results: at `INDEX`.
    pub struct At<const INDEX: usize>;

    impl<const INDEX: usize> At<INDEX> {
        /// The value of this type.
        pub const HERE: Self = At;

        /// The result of a planned symbol.
        pub fn planned<'a, V>(self, operands: &Operands<'a, V>) -> &'a V {
            &operands.results[INDEX]
        }

        /// The result, for the one parameter of a host kernel that writes it.
        pub fn written<'a, 'b>(self, outputs: &mut [Option<&'a mut TensorMut<'b>>]) -> &'a mut TensorMut<'b> {
            outputs[INDEX].take().unwrap_or_else(|| unreachable!("a kernel takes each result once"))
        }
    }
}

/// The results of a host kernel, each to be taken once.
///
/// # Errors
/// If the symbol has another number of results.
pub fn outputs<'a, 'b, const N: usize>(
    outputs: &'a mut [TensorMut<'b>],
) -> Result<[Option<&'a mut TensorMut<'b>>; N], Failure> {
    let given = outputs.len();
    match <&mut [TensorMut<'b>; N]>::try_from(outputs) {
        Ok(outputs) => Ok(outputs.each_mut().map(Some)),
        Err(_) => Err(result_count("kernel", N, given)),
    }
}

/// What a plan rule works on.
pub struct Operands<'a, V> {
    /// Arguments in the order of the signature.
    pub arguments: &'a [Arg<V>],
    /// Results in order.
    pub results: &'a [V],
}

impl<'a, V> Operands<'a, V> {
    /// The arguments and the results, which have these `names`.
    ///
    /// # Errors
    /// If the symbol has another number of results.
    pub fn of(arguments: &'a [Arg<V>], results: &'a [V], names: &[&str]) -> Result<Operands<'a, V>, Failure> {
        match results.len() == names.len() {
            true => Ok(Operands { arguments, results }),
            false => Err(result_count("plan", names.len(), results.len())),
        }
    }
}

fn result_count(what: &str, written: usize, given: usize) -> Failure {
    Failure::new("ResultCount", format!("the {what} writes {written} results, the symbol has {given}"))
}
