//! A convolution as a graph of one operation.

use super::super::super::error::Result;
use super::super::descriptor::Descriptor;
use super::super::graph::in_memory;
use super::super::sys::{Attribute, ConvolutionMode, DataType, Kind};
use super::problem::{ConvolutionPass, ConvolutionProblem, strides_of};
use fulgurite_kernels::DType;

/// Ids of tensors, in the order of [`ConvolutionProblem::tensors`].
pub(super) const IDS: [i64; 3] = [1, 2, 3];

fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::F64 => DataType::F64,
        DType::F16 => DataType::F16,
        DType::BF16 => DataType::BF16,
        _ => DataType::F32,
    }
}

fn signed(numbers: &[usize]) -> Vec<i64> {
    numbers.iter().map(|number| *number as i64).collect()
}

/// The library has convolutions of two and three dimensions. One dimension is the second of two, of which the first has
/// one element.
fn in_two_or_three(of_tensor: bool, numbers: &[usize], of_one: usize) -> Vec<usize> {
    let before = if of_tensor { 2 } else { 0 };
    match numbers.len() - before {
        1 => [&numbers[..before], &[of_one], &numbers[before..]].concat(),
        _ => numbers.to_vec(),
    }
}

/// The attributes of the operation of a pass: alpha, beta, convolution, weights, images, result.
fn operation_attributes(pass: ConvolutionPass) -> (Kind, [Attribute; 6]) {
    match pass {
        ConvolutionPass::Forward => (
            Kind::OperationConvolutionForward,
            [
                Attribute::OperationConvolutionForwardAlpha,
                Attribute::OperationConvolutionForwardBeta,
                Attribute::OperationConvolutionForwardDescriptor,
                Attribute::OperationConvolutionForwardW,
                Attribute::OperationConvolutionForwardX,
                Attribute::OperationConvolutionForwardY,
            ],
        ),
        ConvolutionPass::InputGradient => (
            Kind::OperationConvolutionBackwardData,
            [
                Attribute::OperationConvolutionBackwardDataAlpha,
                Attribute::OperationConvolutionBackwardDataBeta,
                Attribute::OperationConvolutionBackwardDataDescriptor,
                Attribute::OperationConvolutionBackwardDataW,
                Attribute::OperationConvolutionBackwardDataX,
                Attribute::OperationConvolutionBackwardDataY,
            ],
        ),
        ConvolutionPass::WeightGradient => (
            Kind::OperationConvolutionBackwardFilter,
            [
                Attribute::OperationConvolutionBackwardFilterAlpha,
                Attribute::OperationConvolutionBackwardFilterBeta,
                Attribute::OperationConvolutionBackwardFilterDescriptor,
                Attribute::OperationConvolutionBackwardFilterW,
                Attribute::OperationConvolutionBackwardFilterX,
                Attribute::OperationConvolutionBackwardFilterY,
            ],
        ),
    }
}

/// The operation of a problem that was checked.
pub(super) fn operation_of(problem: &ConvolutionProblem) -> Result<Descriptor> {
    let dtype = data_type(problem.dtype);
    let mut tensors = Vec::with_capacity(IDS.len());
    for (id, (name, extents, _)) in IDS.into_iter().zip(problem.tensors()) {
        let extents = in_two_or_three(true, extents, 1);
        let strides = strides_of(&extents, problem.channels_last);
        tensors.push(
            in_memory(id, dtype, &signed(&extents), &signed(&strides))
                .map_err(|error| error.about(&format!("{name} {extents:?}")))?,
        );
    }
    let placed = |numbers: &[usize], of_one: usize| signed(&in_two_or_three(false, numbers, of_one));
    let (strides, dilations) = (placed(&problem.stride, 1), placed(&problem.dilation, 1));
    let paddings = placed(&problem.padding, 0);
    let mut setting = Descriptor::new(Kind::Convolution)?;
    let precision = if problem.dtype == DType::F64 { DataType::F64 } else { DataType::F32 };
    setting.set(Attribute::ConvolutionPrecision, precision)?;
    setting.set(Attribute::ConvolutionMode, ConvolutionMode::CrossCorrelation)?;
    setting.set(Attribute::ConvolutionDimensions, strides.len() as i64)?;
    setting.set_all(Attribute::ConvolutionDilations, &dilations)?;
    setting.set_all(Attribute::ConvolutionStrides, &strides)?;
    setting.set_all(Attribute::ConvolutionPaddingsBefore, &paddings)?;
    setting.set_all(Attribute::ConvolutionPaddingsAfter, &paddings)?;
    setting.finalize()?;
    let (kind, [alpha, beta, convolution, w, x, y]) = operation_attributes(problem.pass);
    let mut operation = Descriptor::new(kind)?;
    operation.refer(convolution, &setting)?;
    let [image, weight, out] = [0, 1, 2].map(|i| &tensors[i]);
    for (attribute, tensor) in [(x, image), (w, weight), (y, out)] {
        operation.refer(attribute, tensor)?;
    }
    // One times the sum, and nothing of what is there.
    if problem.dtype == DType::F64 {
        operation.set(alpha, 1.0f64)?;
        operation.set(beta, 0.0f64)?;
    } else {
        operation.set(alpha, 1.0f32)?;
        operation.set(beta, 0.0f32)?;
    }
    operation.finalize()?;
    Ok(operation)
}

#[cfg(test)]
mod tests {
    use super::super::problem::tests::good;
    use super::*;
    use crate::probe;

    /// Needs the library, but no device.
    #[test]
    fn the_library_takes_the_operation_of_every_pass() {
        if !probe().cudnn.is_found() {
            return println!("skipped: {}", probe().cudnn);
        }
        let of = |image: &[usize], weight: &[usize], out: &[usize], pass| ConvolutionProblem {
            image: image.to_vec(),
            weight: weight.to_vec(),
            out: out.to_vec(),
            stride: vec![1; image.len() - 2],
            padding: vec![0; image.len() - 2],
            dilation: vec![1; image.len() - 2],
            ..good(pass)
        };
        for pass in [ConvolutionPass::Forward, ConvolutionPass::InputGradient, ConvolutionPass::WeightGradient] {
            for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
                for channels_last in [false, true] {
                    for problem in [
                        good(pass),
                        of(&[2, 3, 7], &[4, 3, 2], &[2, 4, 6], pass),
                        of(&[2, 3, 4, 5, 6], &[4, 3, 1, 2, 3], &[2, 4, 4, 4, 4], pass),
                    ] {
                        let problem = ConvolutionProblem { dtype, channels_last, ..problem };
                        problem.check().unwrap();
                        operation_of(&problem).unwrap_or_else(|error| panic!("{problem}: {error}"));
                    }
                }
            }
        }
    }

    #[test]
    fn one_dimension_is_the_second_of_two() {
        assert_eq!(in_two_or_three(true, &[2, 3, 7], 1), [2, 3, 1, 7]);
        assert_eq!(in_two_or_three(false, &[5], 0), [0, 5]);
        assert_eq!(in_two_or_three(true, &[2, 3, 7, 8], 1), [2, 3, 7, 8]);
    }
}
