//! Any layout gives the same result: permuted, stepped, offset and zero-stride arrays.

use std::sync::Arc;

use fulgurite_kernels::buffer::POISON;
use fulgurite_kernels::{Buffer, DType};

use crate::array::{Array, Strides};
use crate::interpret::compare_rounded_below;
use crate::operator::OperatorDef;
use crate::problem::{Check, Problem};
use crate::samples::ErrorSamples;
use crate::subject::Subject;
use crate::test::{Context, Outcome, PASSED};
use crate::tolerance::{Expected, same_bits};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Arrangement {
    /// Dimensions stored in the reverse order.
    Permuted,
    /// Every other element of a row twice as long, starting at the second.
    Stepped,
    /// At an offset in a larger buffer.
    Offset,
    /// The first element along the last dimension, repeated with stride 0.
    Expanded,
}

const ARRANGEMENTS: [Arrangement; 4] =
    [Arrangement::Permuted, Arrangement::Stepped, Arrangement::Offset, Arrangement::Expanded];

/// See the module. An arrangement is given to all tensors at once, and to every other one.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    for arrangement in ARRANGEMENTS {
        for every in [1, 2] {
            if every == 2 && subject.arrays.len() < 2 {
                continue;
            }
            let arrays = subject
                .arrays
                .iter()
                .enumerate()
                .map(|(i, array)| if i % every == 0 { arrange(array, arrangement) } else { Ok(array.clone()) })
                .collect::<Check<Vec<Array>>>()?;
            if arrays.iter().all(Array::is_contiguous) && arrangement != Arrangement::Offset {
                continue;
            }
            run(context, subject, arrays, arrangement)
                .map_err(|problem| problem.within(format!("with {arrangement:?} arrays").to_lowercase()))?;
        }
    }
    PASSED
}

fn run(context: &Context, subject: &Subject, arrays: Vec<Array>, arrangement: Arrangement) -> Check {
    let list = context.list()?;
    let mut trace = subject.trace()?.clone();
    for (input, array) in trace.inputs.iter_mut().zip(&arrays) {
        input.strides = (!array.is_contiguous()).then(|| array.strides().to_vec());
    }
    let dense = arrays.iter().map(Array::to_contiguous).collect::<Result<Vec<Array>, _>>()?;
    let forward = subject.forward(&list);
    let ran = forward.as_ref().as_ref().map_err(Problem::clone)?.program.run(dense.clone());
    // A device tells of data that it refuses when results are read.
    let read = ran.and_then(|outputs| {
        outputs.iter().try_for_each(|output| output.to_host().map(drop))?;
        Ok(outputs)
    });
    let contiguous = match read {
        // Elements that are repeated may be what the operator says it refuses when it runs, a singular matrix.
        Err(error) if arrangement == Arrangement::Expanded && refuses(subject.def, error.code()) => return Ok(()),
        contiguous => contiguous?,
    };
    let program = list.compile(&trace)?;
    for (i, (output, expected)) in program.run(arrays)?.iter().zip(&contiguous).enumerate() {
        if same_bits(output, expected).is_ok() {
            continue;
        }
        // Kernels may go through memory in another order; where they reduce, that rounds differently.
        let expected = Expected::rounded(expected.to_f64()?, expected.dtype())
            .with_relative(context.tolerance.factor * 8.0 * expected.dtype().epsilon())
            .with_relative(context.tolerance.scaled_of(expected.dtype()));
        compare_rounded_below(subject.trace()?, &dense, i, &expected, output).map_err(|problem| {
            problem.within(format!("{}, against contiguous arrays", subject.def.results.describe(i)))
        })?;
    }
    Ok(())
}

/// Whether an error sample of the operator fails with this code when it runs.
fn refuses(def: &'static OperatorDef, code: &str) -> bool {
    ErrorSamples::of_data(def, DType::F32).iter().any(|sample| sample.code == code)
}

/// The same values (but for [`Arrangement::Expanded`]) in another arrangement.
fn arrange(array: &Array, arrangement: Arrangement) -> Check<Array> {
    let shape = array.shape();
    let rank = shape.len();
    if array.meta().is_empty() {
        return Ok(array.clone());
    }
    let (strides, offset): (Vec<isize>, usize) = match arrangement {
        Arrangement::Permuted => {
            let mut step = 1;
            let strides = shape.iter().map(|extent| {
                let stride = step;
                step *= *extent as isize;
                stride
            });
            (strides.collect(), 0)
        }
        Arrangement::Stepped => {
            let mut strides = vec![0; rank];
            let mut step = 2;
            for (stride, extent) in strides.iter_mut().zip(shape).rev() {
                *stride = step;
                step *= *extent as isize;
                if step > 2 {
                    step += 2;
                }
            }
            (strides, 1)
        }
        Arrangement::Offset => (fulgurite_kernels::view::contiguous_strides(shape), 3),
        Arrangement::Expanded => {
            if rank == 0 {
                return Ok(array.clone());
            }
            let first = array.slice(rank - 1, 0, 1, 1)?.to_contiguous()?;
            return Ok(first.expand(shape)?);
        }
    };
    let reach: usize = shape.iter().zip(&strides).map(|(extent, stride)| (extent - 1) * *stride as usize).sum();
    let size = array.dtype().size();
    // Gaps between the elements are poison: a kernel that reads them shows it.
    let mut buffer = Buffer::zeroed((offset + reach + 1 + 3) * size).map_err(crate::Error::from)?;
    buffer.as_bytes_mut().fill(POISON);
    let bytes = array.to_bytes()?;
    let mut elements = bytes.chunks_exact(size);
    fulgurite_kernels::access::for_each_offset(shape, &strides, |at| {
        let start = (offset as isize + at) as usize * size;
        if let Some(element) = elements.next() {
            buffer.as_bytes_mut()[start..start + size].copy_from_slice(element);
        }
    });
    Ok(Array::from_shared(Arc::new(buffer), array.meta().clone(), Strides::from_slice(&strides), offset))
}
