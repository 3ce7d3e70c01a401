//! Kernels of the host: as they are declared, and prepared for one symbol of a program.

use fulgurite_kernels::view::{TensorMut, TensorRef};

use crate::argument::{Arg, map_arguments};
use crate::failure::Failure;

/// A host kernel, as declarations write it.
pub type HostRule = &'static (dyn Fn(&[Arg<TensorRef<'_>>], &mut [TensorMut<'_>]) -> Result<(), Failure> + Send + Sync);
/// A kernel prepared for one symbol of a program: data of the arguments in, data of the results out.
pub type HostKernel = Box<dyn Fn(&[TensorRef<'_>], &mut [TensorMut<'_>]) -> Result<(), Failure> + Send + Sync>;

/// The kernel that a rule is for these arguments.
pub fn of_rule<T>(rule: HostRule, arguments: &[Arg<T>]) -> HostKernel {
    // The form of the arguments is fixed; only the tensors change from run to run.
    let form: Vec<Arg<()>> = map_arguments(arguments, |_| ());
    Box::new(move |operands, results| {
        let mut operands = operands.iter();
        let arguments: Vec<Arg<TensorRef<'_>>> =
            map_arguments(&form, |()| *operands.next().unwrap_or_else(|| unreachable!("one for each tensor")));
        rule(&arguments, results)
    })
}
