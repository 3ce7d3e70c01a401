//! What convolution is wanted.

use fulgurite_kernels::DType;
use std::fmt;

/// Which of the three tensors is written. The others are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConvolutionPass {
    /// The result.
    Forward,
    /// The gradient of the images, from that of the result.
    InputGradient,
    /// The gradient of the weights, from that of the result.
    WeightGradient,
}

/// `out[n, k, o] = sum over c, i of image[n, c, o * stride + i * dilation - padding] * weight[k, c, i]`, where images
/// are 0 outside of their extents and `k` sees the channels of its own group; or a gradient of it. Sums are f32, of f64
/// f64.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ConvolutionProblem {
    /// Which of the three tensors is computed from the other two.
    pub pass: ConvolutionPass,
    /// The element type of all three tensors: f32, f64, bf16 or f16.
    pub dtype: DType,
    /// Whether operands of f32 are rounded to TF32.
    pub tf32: bool,
    /// Whether channels are beside each other in memory, of all three tensors; otherwise tensors are contiguous.
    pub channels_last: bool,
    /// Extents of images, or of their gradient: [N, C, L1, ...].
    pub image: Vec<usize>,
    /// Extents of weights, or of their gradient: [K, C / groups, I1, ...].
    pub weight: Vec<usize>,
    /// Extents of the result, or of its gradient: [N, K, O1, ...].
    pub out: Vec<usize>,
    /// Elements from one window to the next, of each dimension.
    pub stride: Vec<usize>,
    /// Elements of 0 before the images, and as many behind them.
    pub padding: Vec<usize>,
    /// Elements from one element of a window to the next.
    pub dilation: Vec<usize>,
}

/// The most dimensions that windows are placed in.
pub const MOST_DIMENSIONS: usize = 3;

/// Workspace of any engine beside copies of the operands, in bytes: 1 MiB, and as many bytes as sixteen times the
/// operands, but no more than 32 MiB.
const BESIDE: u64 = 1 << 20;
const MOST_BESIDE: u64 = 32 << 20;
/// Engines copy operands with channels of such multiples.
const CHANNELS_TOGETHER: usize = 8;

/// Strides of a tensor without gaps, in elements: contiguous, or with the second dimension, that of channels,
/// innermost.
pub fn strides_of(extents: &[usize], channels_last: bool) -> Vec<usize> {
    let rank = extents.len();
    let inwards: Vec<usize> = match channels_last {
        true => [0].into_iter().chain(2..rank).chain([1]).collect(),
        false => (0..rank).collect(),
    };
    let mut strides = vec![1; rank];
    let mut stride = 1usize;
    for dim in inwards.into_iter().rev().filter(|dim| *dim < rank) {
        strides[dim] = stride;
        stride = stride.saturating_mul(extents[dim].max(1));
    }
    strides
}

impl ConvolutionProblem {
    /// Dimensions that windows are placed in.
    pub(super) fn dimensions(&self) -> usize {
        self.stride.len()
    }

    /// Images, weights and result, with what messages call them and whether they are written.
    pub(super) fn tensors(&self) -> [(&'static str, &[usize], bool); 3] {
        let is = |pass| self.pass == pass;
        [
            ("image", &self.image, is(ConvolutionPass::InputGradient)),
            ("weight", &self.weight, is(ConvolutionPass::WeightGradient)),
            ("out", &self.out, is(ConvolutionPass::Forward)),
        ]
    }

    /// The groups of channels.
    pub fn groups(&self) -> usize {
        self.image[1] / self.weight[1].max(1)
    }

    /// Multiplications.
    pub(super) fn products(&self) -> usize {
        let [outputs, terms] = [&self.out[..], &self.weight[1..]].map(|extents| extents.iter().product::<usize>());
        outputs.saturating_mul(terms)
    }

    /// Bytes of a tensor.
    pub(super) fn bytes(&self, extents: &[usize]) -> u64 {
        extents.iter().fold(self.dtype.size() as u64, |bytes, extent| bytes.saturating_mul(*extent as u64))
    }

    /// Workspace for a plan, in bytes, known without the library: a copy of each operand with channels innermost, in
    /// multiples of eight, and what engines keep beside. Of the engines that version 9.19 names first for an H200 none
    /// needs more.
    pub fn workspace_bytes(&self) -> u64 {
        let copies = self.tensors().into_iter().map(|(_, extents, _)| {
            let mut extents = extents.to_vec();
            if let Some(channels) = extents.get_mut(1) {
                *channels = channels.next_multiple_of(CHANNELS_TOGETHER);
            }
            self.bytes(&extents)
        });
        let copies = copies.fold(0u64, u64::saturating_add);
        copies.saturating_add(BESIDE.saturating_add(copies.saturating_mul(16)).min(MOST_BESIDE))
    }

    /// What is wrong with it, before the library is asked.
    pub(super) fn check(&self) -> Result<(), Box<ConvolutionProblemError>> {
        match self.fault() {
            Some(reason) => Err(self.refused(reason)),
            None => Ok(()),
        }
    }

    pub(super) fn refused(&self, reason: impl Into<String>) -> Box<ConvolutionProblemError> {
        Box::new(ConvolutionProblemError { problem: self.clone(), reason: reason.into() })
    }

    fn fault(&self) -> Option<String> {
        let ConvolutionProblem { image, weight, out, stride, padding, dilation, dtype, .. } = self;
        let dimensions = self.dimensions();
        let lists = [stride.len(), padding.len(), dilation.len()];
        let ranks = [image.len(), weight.len(), out.len()];
        if !(1..=MOST_DIMENSIONS).contains(&dimensions) || lists != [dimensions; 3] || ranks != [dimensions + 2; 3] {
            return Some(format!("lists of {lists:?} numbers for tensors of {ranks:?} dimensions"));
        }
        if !matches!(dtype, DType::F32 | DType::F64 | DType::BF16 | DType::F16) {
            return Some(format!("elements are {dtype}, takes f32, f64, bf16 and f16"));
        }
        if self.tf32 && *dtype != DType::F32 {
            return Some(format!("elements are {dtype}, only f32 is rounded to TF32"));
        }
        for (name, extents, _) in self.tensors() {
            if extents.contains(&0) {
                return Some(format!("{name} is {extents:?}: it has no elements"));
            }
            let elements = extents.iter().fold(1usize, |all, extent| all.saturating_mul(*extent));
            if elements > i32::MAX as usize {
                return Some(format!("{name} is {extents:?}: more than {} elements", i32::MAX));
            }
        }
        let groups = image[1] / weight[1];
        if !image[1].is_multiple_of(weight[1]) || !weight[0].is_multiple_of(groups) {
            return Some(format!("{} channels, weight is {weight:?}: no groups of equal sizes", image[1]));
        }
        if out[0] != image[0] || out[1] != weight[0] {
            return Some(format!("image is {image:?}, weight {weight:?}, out {out:?}"));
        }
        for i in 0..dimensions {
            let span = (weight[2 + i] - 1).saturating_mul(dilation[i]).saturating_add(1);
            let padded = image[2 + i].saturating_add(padding[i].saturating_mul(2));
            let count = match stride[i] {
                0 => None,
                stride => padded.checked_sub(span).map(|rest| rest / stride + 1),
            };
            if count != Some(out[2 + i]) || dilation[i] == 0 {
                return Some(format!("out is {out:?}, dimension {i} has {} windows", count.unwrap_or(0)));
            }
        }
        None
    }
}

impl fmt::Display for ConvolutionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConvolutionProblem { pass, dtype, image, weight, stride, padding, dilation, .. } = self;
        let pass = match pass {
            ConvolutionPass::Forward => "convolution",
            ConvolutionPass::InputGradient => "gradient of the input of the convolution",
            ConvolutionPass::WeightGradient => "gradient of the weight of the convolution",
        };
        let layout = if self.channels_last { ", channels last" } else { "" };
        let tf32 = if self.tf32 { " in TF32" } else { "" };
        write!(
            f,
            "{pass} of {dtype}{image:?} by {weight:?}{tf32}, stride {stride:?}, padding {padding:?}, dilation \
             {dilation:?}{layout}"
        )
    }
}

/// Why there is no plan for a convolution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cuDNN has no plan for the {problem}: {reason}")]
pub struct ConvolutionProblemError {
    /// The problem.
    pub problem: ConvolutionProblem,
    /// What is in the way.
    pub reason: String,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn good(pass: ConvolutionPass) -> ConvolutionProblem {
        ConvolutionProblem {
            pass,
            dtype: DType::BF16,
            tf32: false,
            channels_last: false,
            image: vec![2, 6, 9, 8],
            weight: vec![4, 3, 3, 2],
            out: vec![2, 4, 5, 9],
            stride: vec![2, 1],
            padding: vec![1, 1],
            dilation: vec![1, 1],
        }
    }

    const PASSES: [ConvolutionPass; 3] =
        [ConvolutionPass::Forward, ConvolutionPass::InputGradient, ConvolutionPass::WeightGradient];

    #[test]
    fn what_the_library_does_not_take_is_refused_before() {
        for pass in PASSES {
            assert_eq!(good(pass).check(), Ok(()));
            let refuse = |change: fn(&mut ConvolutionProblem), part: &str| {
                let mut problem = good(pass);
                change(&mut problem);
                let error = problem.check().unwrap_err().to_string();
                assert!(error.contains(part), "{error}");
            };
            refuse(|p| p.image[0] = 0, "image is [0, 6, 9, 8]: it has no elements");
            refuse(|p| p.dtype = DType::I32, "elements are i32, takes f32, f64, bf16 and f16");
            refuse(|p| p.tf32 = true, "only f32 is rounded to TF32");
            refuse(|p| p.weight[1] = 4, "6 channels, weight is [4, 4, 3, 2]: no groups");
            refuse(|p| p.weight[0] = 3, "no groups of equal sizes");
            refuse(|p| p.out[1] = 8, "out [2, 8, 5, 9]");
            refuse(|p| p.out[2] = 6, "dimension 0 has 5 windows");
            refuse(|p| p.dilation[1] = 9, "dimension 1 has 1 windows");
            refuse(|p| p.padding.truncate(1), "lists of [2, 1, 2] numbers");
            refuse(|p| p.image[0] = 1 << 40, "more than 2147483647 elements");
        }
    }

    #[test]
    fn the_last_channels_are_innermost() {
        assert_eq!(strides_of(&[2, 3, 4, 5], false), [60, 20, 5, 1]);
        assert_eq!(strides_of(&[2, 3, 4, 5], true), [60, 1, 15, 3]);
        assert_eq!(strides_of(&[2, 3, 4], true), [12, 1, 3]);
    }

    /// The sizes that version 9.19 asks for on an H200: the first convolution of ResNet-50, and those of samples.
    #[test]
    fn workspace_is_enough() {
        let first = ConvolutionProblem {
            image: vec![64, 3, 224, 224],
            weight: vec![64, 3, 7, 7],
            out: vec![64, 64, 112, 112],
            stride: vec![2, 2],
            padding: vec![3, 3],
            ..good(ConvolutionPass::WeightGradient)
        };
        assert!(first.workspace_bytes() >= 152 << 20 && first.workspace_bytes() < 200 << 20);
        for pass in PASSES {
            assert!((67_063..2 << 20).contains(&good(pass).workspace_bytes()));
        }
    }

    #[test]
    fn a_problem_prints_as_the_convolution_that_it_is() {
        let expected = "gradient of the weight of the convolution of bf16[2, 6, 9, 8] by [4, 3, 3, 2], stride [2, 1], \
                        padding [1, 1], dilation [1, 1]";
        assert_eq!(good(ConvolutionPass::WeightGradient).to_string(), expected);
    }
}
