//! Convolutions, and their gradients by images and by weights.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::kernels::cuda::cudnn::ConvolutionPass;
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::strided::Channels;
use fulgurite_runtime::{DType, Tensor, refuse_unless};

use super::convolution_launch::{self as launch, Tensors, has_windows, suits_channels_innermost};
use super::cudnn;
use super::geometry::{Extents, Geometry, extents_of, images_of, numbers_of, result_of, shape_of, summed};

/// The most elements of a tensor, and the largest number of a list.
const MOST: usize = i32::MAX as usize;

/// The element types that are taken: in TF32 that alone whose elements would be rounded.
pub(super) fn takes(precision: Precision, dtype: DType) -> Claim {
    match precision {
        Precision::Tf32 => refuse_unless!(dtype == DType::F32, "rounds operands of f32, not of {dtype}"),
        _ => {
            let exact = matches!(dtype, DType::F32 | DType::F64 | DType::BF16 | DType::F16);
            refuse_unless!(exact, "takes f32, f64, bf16 and f16, not {dtype}");
        }
    }
    Ok(())
}

/// What the library takes of tensors that fit together.
pub(super) fn library_fits(of: &Extents, geometry: &Geometry<'_>) -> Claim {
    let out = geometry.out_of(of);
    for (name, extents) in [("image", &of.image), ("weight", &of.weight), ("result", &out)] {
        refuse_unless!(!extents.contains(&0), "the {name} is {extents:?}: has nothing to multiply");
        let elements = extents.iter().fold(1usize, |all, extent| all.saturating_mul(*extent));
        refuse_unless!(elements <= MOST, "the {name} is {extents:?}: takes at most {MOST} elements");
    }
    let Geometry { stride, padding, dilation, .. } = geometry;
    let small = [stride, padding, dilation].into_iter().all(|list| list.iter().all(|number| *number <= MOST));
    refuse_unless!(small, "stride is {stride:?}, padding {padding:?}, dilation {dilation:?}: takes at most {MOST}");
    Ok(())
}

/// Multiplications and additions of a convolution, and as many of each gradient of it.
fn operations(of: &Extents, geometry: &Geometry<'_>) -> u64 {
    let product = |extents: &[usize]| extents.iter().fold(1u64, |all, extent| all.saturating_mul(*extent as u64));
    product(&geometry.out_of(of)).saturating_mul(product(&of.weight[1..])).saturating_mul(2)
}

/// Whether the library would rather have channels innermost, of the tensors and results that are `images`.
fn channels_of(dtype: DType, weight: &[usize], groups: usize, images: &'static [bool]) -> Option<Channels> {
    suits_channels_innermost(dtype, weight, groups).then(|| Channels { images, gains: has_windows(weight) })
}

/// The extents of the dimensions that windows are placed in.
pub(super) fn placed_extents(tensor: Tensor) -> Vec<usize> {
    tensor.shape().to_vec().split_off(2)
}

/// The convolution of `input` [N, C, L1, ...] and `weight` [K, C / groups, I1, ...] of one to three dimensions: [N, K,
/// O1, ...]. Lists have a number for each dimension; `padding` zeros are before and behind each. With
/// `channels_innermost` the input is [N, L1, ..., C], and the result [N, O1, ..., K].
#[operator(
    executor = cudnn,
    dtypes(f32, f64, bf16, f16),
    strided,
    strided_results = 0,
    no_grad = "the implementation that uses it has a gradient of its own",
    waive(tf32 = "the definition rounds nothing")
)]
pub mod convolution {
    fn convolution(
        input: Tensor<Floating>,
        weight: Tensor<Floating>,
        stride: Vec<usize>,
        padding: Vec<usize>,
        dilation: Vec<usize>,
        groups: usize,
        #[default(false)] tf32: bool,
        #[default(false)] channels_innermost: bool,
    ) -> Tensor;

    fn meta(
        Args { input, weight, stride, padding, dilation, groups, channels_innermost, .. }: Args<&TensorMeta>,
    ) -> Result<TensorMeta> {
        require!(
            input.dtype() == weight.dtype(),
            SameDType,
            "input is {}, weight {}, expected equal dtypes",
            input.dtype(),
            weight.dtype()
        );
        let geometry = Geometry { stride: &stride, padding: &padding, dilation: &dilation, groups };
        let of = Extents {
            image: extents_of(input.shape(), channels_innermost),
            weight: weight.shape().to_vec(),
            out: Vec::new(),
        };
        geometry.check(&of, [Code::Rank, Code::Lists, Code::Channels, Code::Windows, Code::MemorySize])?;
        library_fits(&of, &geometry).map_err(|reason| Failure::new(Code::Library.name(), reason))?;
        Ok(input.with_shape(shape_of(&geometry.out_of(&of), channels_innermost)))
    }

    fn flops(
        Args { input, weight, stride, padding, dilation, groups, channels_innermost, .. }: Args<&TensorMeta>,
    ) -> u64 {
        let geometry = Geometry { stride: &stride, padding: &padding, dilation: &dilation, groups };
        operations(
            &Extents {
                image: extents_of(input.shape(), channels_innermost),
                weight: weight.shape().to_vec(),
                out: Vec::new(),
            },
            &geometry,
        )
    }

    fn channels(input: &TensorMeta, weight: &TensorMeta, groups: usize) -> Option<Channels> {
        channels_of(input.dtype(), weight.shape(), groups, &[true, false, true])
    }

    fn reference(
        input: &ArrayD<f64>,
        weight: &ArrayD<f64>,
        stride: &[usize],
        padding: &[usize],
        dilation: &[usize],
        groups: usize,
        channels_innermost: bool,
    ) -> ArrayD<f64> {
        let input = &numbers_of(input, channels_innermost);
        let geometry = Geometry { stride, padding, dilation, groups };
        let of = Extents { image: input.shape().to_vec(), weight: weight.shape().to_vec(), out: Vec::new() };
        let product = |i: &[usize], w: &[usize], _: &[usize]| input[IxDyn(i)] * weight[IxDyn(w)];
        result_of(summed(&geometry.out_of(&of), &geometry, &of, product, |_, _, out| out), channels_innermost)
    }

    fn plan(
        plan: &mut Plan,
        Args { input, weight, stride, padding, dilation, groups, tf32, channels_innermost }: Args<&DeviceTensor>,
        out: &DeviceTensor,
    ) -> Result<()> {
        let geometry = Geometry { stride: &stride, padding: &padding, dilation: &dilation, groups };
        let [image, out] = [input, out].map(|images| images_of(images, channels_innermost));
        let tensors = Tensors { image: &image, weight, out: &out, channels_innermost };
        launch::plan(plan, ConvolutionPass::Forward, &tensors, &geometry, tf32)
    }

    fn samples(s: &mut Samples) {
        for Case { image, weight, stride, padding, dilation, groups, innermost } in cases() {
            let image = shape_of(&image, innermost);
            let call = with(s.normal(image), s.normal(weight), stride, padding, dilation, groups);
            s.case(call.channels_innermost(innermost));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |image: &[usize], weight: &[usize]| {
            let ones = vec![1; image.len() - 2];
            with(e.normal(image), e.normal(weight), ones.clone(), ones.clone(), ones, 1)
        };
        let plain = || call(&[2, 4, 5, 5], &[2, 4, 3, 3]);
        e.case(Rank, call(&[2, 4, 5, 5], &[2, 4, 3]), "have [4, 3, 0] dimensions");
        e.case(Rank, call(&[2, 4, 5, 5, 5, 5], &[2, 4, 1, 1, 1, 1]), "from 3 to 5");
        e.case(Lists, ARGUMENTS.stride.set(plain(), vec![1]), "stride is [1]");
        e.case(Lists, ARGUMENTS.dilation.set(plain(), vec![0, 1]), "dilation [0, 1]");
        e.case(Channels, ARGUMENTS.groups.set(plain(), 0), "groups is 0");
        e.case(Channels, ARGUMENTS.groups.set(plain(), 2), "expected 8 channels");
        e.case(
            Windows,
            ARGUMENTS.padding.set(ARGUMENTS.dilation.set(plain(), vec![3, 1]), vec![0, 0]),
            "windows in each",
        );
        e.case(Windows, call(&[2, 4, 5, 5], &[2, 4, 0, 3]), "with windows in each");
        e.case(MemorySize, ARGUMENTS.padding.set(plain(), vec![1 << 50, 0]), "too large");
        e.case(Library, call(&[0, 4, 5, 5], &[2, 4, 3, 3]), "the image is [0, 4, 5, 5]: has nothing to multiply");
        let other = if e.dtype() == DType::F64 { DType::F32 } else { DType::F64 };
        e.case(SameDType, ARGUMENTS.weight.set(plain(), e.of(other, [2, 4, 3, 3])), "expected equal dtypes");
    }
}

/// The gradient by the images of [`mod@convolution`], [N, C, L1, ...] with the extents `extents` of L1, ..., from that
/// by its result, `d_out` [N, K, O1, ...], and `weight` [K, C / groups, I1, ...]. With `channels_innermost` that by the
/// result is [N, O1, ..., K], and the gradient [N, L1, ..., C].
#[operator(
    executor = cudnn,
    dtypes(f32, f64, bf16, f16),
    strided,
    strided_results = 0,
    no_grad = "a gradient is not differentiated again",
    waive(tf32 = "the definition rounds nothing")
)]
pub mod convolution_input_gradient {
    fn convolution_input_gradient(
        d_out: Tensor<Floating>,
        weight: Tensor<Floating>,
        extents: Vec<usize>,
        stride: Vec<usize>,
        padding: Vec<usize>,
        dilation: Vec<usize>,
        groups: usize,
        #[default(false)] tf32: bool,
        #[default(false)] channels_innermost: bool,
    ) -> Tensor;

    fn meta(
        Args { d_out, weight, extents, stride, padding, dilation, groups, channels_innermost, .. }: Args<&TensorMeta>,
    ) -> Result<TensorMeta> {
        require!(
            d_out.dtype() == weight.dtype(),
            SameDType,
            "d_out is {}, weight {}, expected equal dtypes",
            d_out.dtype(),
            weight.dtype()
        );
        let geometry = Geometry { stride: &stride, padding: &padding, dilation: &dilation, groups };
        let of = extents_by_image(&extents_of(d_out.shape(), channels_innermost), weight.shape(), &extents, groups);
        geometry.check(&of, [Code::Rank, Code::Lists, Code::Channels, Code::Windows, Code::MemorySize])?;
        library_fits(&of, &geometry).map_err(|reason| Failure::new(Code::Library.name(), reason))?;
        Ok(d_out.with_shape(shape_of(&of.image, channels_innermost)))
    }

    fn flops(
        Args { d_out, weight, extents, stride, padding, dilation, groups, channels_innermost, .. }: Args<&TensorMeta>,
    ) -> u64 {
        let geometry = Geometry { stride: &stride, padding: &padding, dilation: &dilation, groups };
        operations(
            &extents_by_image(&extents_of(d_out.shape(), channels_innermost), weight.shape(), &extents, groups),
            &geometry,
        )
    }

    fn channels(d_out: &TensorMeta, weight: &TensorMeta, groups: usize) -> Option<Channels> {
        channels_of(d_out.dtype(), weight.shape(), groups, &[true, false, true])
    }

    fn reference(
        d_out: &ArrayD<f64>,
        weight: &ArrayD<f64>,
        extents: &[usize],
        stride: &[usize],
        padding: &[usize],
        dilation: &[usize],
        groups: usize,
        channels_innermost: bool,
    ) -> ArrayD<f64> {
        let d_out = &numbers_of(d_out, channels_innermost);
        let geometry = Geometry { stride, padding, dilation, groups };
        let of = extents_by_image(d_out.shape(), weight.shape(), extents, groups);
        let product = |_: &[usize], w: &[usize], o: &[usize]| d_out[IxDyn(o)] * weight[IxDyn(w)];
        result_of(summed(&of.image, &geometry, &of, product, |image, _, _| image), channels_innermost)
    }

    fn plan(
        plan: &mut Plan,
        Args { d_out, weight, extents: _, stride, padding, dilation, groups, tf32, channels_innermost }: Args<
            &DeviceTensor,
        >,
        out: &DeviceTensor,
    ) -> Result<()> {
        let geometry = Geometry { stride: &stride, padding: &padding, dilation: &dilation, groups };
        let [image, out] = [out, d_out].map(|images| images_of(images, channels_innermost));
        let tensors = Tensors { image: &image, weight, out: &out, channels_innermost };
        launch::plan(plan, ConvolutionPass::InputGradient, &tensors, &geometry, tf32)
    }

    fn samples(s: &mut Samples) {
        for case in cases() {
            let (out, extents) = (case.out(), case.image[2..].to_vec());
            let Case { weight, stride, padding, dilation, groups, innermost, .. } = case;
            let out = shape_of(&out, innermost);
            let call = with(s.normal(out), s.normal(weight), extents, stride, padding, dilation, groups);
            s.case(call.channels_innermost(innermost));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |d_out: &[usize], weight: &[usize], extents: &[usize]| {
            let ones = vec![1; extents.len()];
            with(e.normal(d_out), e.normal(weight), extents, ones.clone(), ones.clone(), ones, 1)
        };
        let plain = || call(&[2, 2, 5, 5], &[2, 4, 3, 3], &[5, 5]);
        e.case(Rank, call(&[2, 2, 5, 5], &[2, 4, 3, 3], &[5]), "have [3, 4, 4] dimensions");
        e.case(Rank, call(&[2], &[2, 4, 3, 3], &[5, 5]), "dimensions");
        e.case(Lists, ARGUMENTS.padding.set(plain(), vec![1]), "padding [1]");
        e.case(Channels, ARGUMENTS.groups.set(plain(), 0), "groups is 0");
        e.case(Channels, ARGUMENTS.groups.set(plain(), 3), "groups is 3");
        e.case(Windows, ARGUMENTS.extents.set(plain(), vec![5, 6]), "expected [2, 2, 5, 6]");
        e.case(Windows, call(&[2, 3, 5, 5], &[2, 4, 3, 3], &[5, 5]), "expected [2, 2, 5, 5]");
        let far = ARGUMENTS.padding.set(plain(), vec![(1 << 50) + 1, 1]);
        let far = ARGUMENTS.stride.set(far, vec![1 << 49, 1]);
        e.case(MemorySize, far, "too large");
        e.case(Library, call(&[0, 2, 5, 5], &[2, 4, 3, 3], &[5, 5]), "the image is [0, 4, 5, 5]: has nothing");
        let other = if e.dtype() == DType::F64 { DType::F32 } else { DType::F64 };
        e.case(SameDType, ARGUMENTS.weight.set(plain(), e.of(other, [2, 4, 3, 3])), "expected equal dtypes");
    }
}

/// The extents of the tensors of a gradient by images. Of too few dimensions they do not fit together.
fn extents_by_image(d_out: &[usize], weight: &[usize], extents: &[usize], groups: usize) -> Extents {
    let channels = weight.get(1).map_or(0, |each| each.saturating_mul(groups));
    let image = [d_out.first().copied().unwrap_or(0), channels].into_iter().chain(extents.iter().copied()).collect();
    Extents { image, weight: weight.to_vec(), out: d_out.to_vec() }
}

/// The gradient by the weights of [`mod@convolution`], [K, C / groups, I1, ...] with the extents `sizes` of I1, ...,
/// from that by its result, `d_out` [N, K, O1, ...], and `input` [N, C, L1, ...]. With `channels_innermost` these are
/// [N, O1, ..., K] and [N, L1, ..., C].
#[operator(
    executor = cudnn,
    dtypes(f32, f64, bf16, f16),
    strided,
    strided_results = 0,
    no_grad = "a gradient is not differentiated again",
    waive(tf32 = "the definition rounds nothing")
)]
pub mod convolution_weight_gradient {
    fn convolution_weight_gradient(
        d_out: Tensor<Floating>,
        input: Tensor<Floating>,
        sizes: Vec<usize>,
        stride: Vec<usize>,
        padding: Vec<usize>,
        dilation: Vec<usize>,
        groups: usize,
        #[default(false)] tf32: bool,
        #[default(false)] channels_innermost: bool,
    ) -> Tensor;

    fn meta(
        Args { d_out, input, sizes, stride, padding, dilation, groups, channels_innermost, .. }: Args<&TensorMeta>,
    ) -> Result<TensorMeta> {
        require!(
            d_out.dtype() == input.dtype(),
            SameDType,
            "d_out is {}, input {}, expected equal dtypes",
            d_out.dtype(),
            input.dtype()
        );
        let geometry = Geometry { stride: &stride, padding: &padding, dilation: &dilation, groups };
        let [d_out_of, image] = [d_out, input].map(|images| extents_of(images.shape(), channels_innermost));
        let of = extents_by_weight(&d_out_of, &image, &sizes, groups);
        geometry.check(&of, [Code::Rank, Code::Lists, Code::Channels, Code::Windows, Code::MemorySize])?;
        library_fits(&of, &geometry).map_err(|reason| Failure::new(Code::Library.name(), reason))?;
        Ok(d_out.with_shape(of.weight.clone()))
    }

    fn flops(
        Args { d_out, input, sizes, stride, padding, dilation, groups, channels_innermost, .. }: Args<&TensorMeta>,
    ) -> u64 {
        let geometry = Geometry { stride: &stride, padding: &padding, dilation: &dilation, groups };
        let [d_out, image] = [d_out, input].map(|images| extents_of(images.shape(), channels_innermost));
        operations(&extents_by_weight(&d_out, &image, &sizes, groups), &geometry)
    }

    fn channels(d_out: &TensorMeta, input: &TensorMeta, sizes: &[usize], groups: usize) -> Option<Channels> {
        let of = extents_by_weight(d_out.shape(), input.shape(), sizes, groups);
        channels_of(d_out.dtype(), &of.weight, groups, &[true, true, false])
    }

    fn reference(
        d_out: &ArrayD<f64>,
        input: &ArrayD<f64>,
        sizes: &[usize],
        stride: &[usize],
        padding: &[usize],
        dilation: &[usize],
        groups: usize,
        channels_innermost: bool,
    ) -> ArrayD<f64> {
        let [d_out, input] = &[d_out, input].map(|images| numbers_of(images, channels_innermost));
        let geometry = Geometry { stride, padding, dilation, groups };
        let of = extents_by_weight(d_out.shape(), input.shape(), sizes, groups);
        let product = |i: &[usize], _: &[usize], o: &[usize]| d_out[IxDyn(o)] * input[IxDyn(i)];
        summed(&of.weight, &geometry, &of, product, |_, weight, _| weight)
    }

    fn plan(
        plan: &mut Plan,
        Args { d_out, input, sizes: _, stride, padding, dilation, groups, tf32, channels_innermost }: Args<
            &DeviceTensor,
        >,
        out: &DeviceTensor,
    ) -> Result<()> {
        let geometry = Geometry { stride: &stride, padding: &padding, dilation: &dilation, groups };
        let [image, d_out] = [input, d_out].map(|images| images_of(images, channels_innermost));
        let tensors = Tensors { image: &image, weight: out, out: &d_out, channels_innermost };
        launch::plan(plan, ConvolutionPass::WeightGradient, &tensors, &geometry, tf32)
    }

    fn samples(s: &mut Samples) {
        for case in cases() {
            let (out, sizes) = (case.out(), case.weight[2..].to_vec());
            let Case { image, stride, padding, dilation, groups, innermost, .. } = case;
            let [out, image] = [out, image].map(|extents| shape_of(&extents, innermost));
            let call = with(s.normal(out), s.normal(image), sizes, stride, padding, dilation, groups);
            s.case(call.channels_innermost(innermost));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |d_out: &[usize], input: &[usize], sizes: &[usize]| {
            let ones = vec![1; sizes.len()];
            with(e.normal(d_out), e.normal(input), sizes, ones.clone(), ones.clone(), ones, 1)
        };
        let plain = || call(&[2, 2, 5, 5], &[2, 4, 5, 5], &[3, 3]);
        e.case(Rank, call(&[2, 2, 5, 5], &[2, 4, 5, 5], &[3]), "have [4, 3, 4] dimensions");
        e.case(Rank, call(&[2], &[2, 4, 5, 5], &[3, 3]), "dimensions");
        e.case(Lists, ARGUMENTS.stride.set(plain(), vec![1, 0]), "stride is [1, 0]");
        e.case(Channels, ARGUMENTS.groups.set(plain(), 0), "groups is 0");
        e.case(Channels, ARGUMENTS.groups.set(plain(), 4), "groups is 4");
        e.case(Windows, ARGUMENTS.sizes.set(plain(), vec![3, 2]), "expected [2, 2, 5, 6]");
        e.case(Windows, call(&[3, 2, 5, 5], &[2, 4, 5, 5], &[3, 3]), "expected [2, 2, 5, 5]");
        let far = ARGUMENTS.padding.set(plain(), vec![(1 << 50) + 1, 1]);
        let far = ARGUMENTS.stride.set(far, vec![1 << 49, 1]);
        e.case(MemorySize, far, "too large");
        e.case(Library, call(&[0, 2, 5, 5], &[0, 4, 5, 5], &[3, 3]), "the image is [0, 4, 5, 5]: has nothing");
        let other = if e.dtype() == DType::F64 { DType::F32 } else { DType::F64 };
        e.case(SameDType, ARGUMENTS.input.set(plain(), e.of(other, [2, 4, 5, 5])), "expected equal dtypes");
    }
}

/// The extents of the tensors of a gradient by weights. Of too few dimensions they do not fit together.
fn extents_by_weight(d_out: &[usize], input: &[usize], sizes: &[usize], groups: usize) -> Extents {
    let each = input.get(1).and_then(|channels| channels.checked_div(groups)).unwrap_or(0);
    let weight = [d_out.get(1).copied().unwrap_or(0), each].into_iter().chain(sizes.iter().copied()).collect();
    Extents { image: input.to_vec(), weight, out: d_out.to_vec() }
}

/// A convolution of the samples.
struct Case {
    image: Vec<usize>,
    weight: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<usize>,
    dilation: Vec<usize>,
    groups: usize,
    /// Whether channels are innermost in the program; extents are those with channels before rows.
    innermost: bool,
}

impl Case {
    fn out(&self) -> Vec<usize> {
        let Case { image, weight, stride, padding, dilation, groups, .. } = self;
        let geometry = Geometry { stride, padding, dilation, groups: *groups };
        geometry.out_of(&Extents { image: image.clone(), weight: weight.clone(), out: Vec::new() })
    }
}

/// The convolutions of the samples.
fn cases() -> Vec<Case> {
    let case = |image: &[usize], weight: &[usize], lists: [&[usize]; 3], groups: usize| {
        let [stride, padding, dilation] = lists.map(<[usize]>::to_vec);
        Case { image: image.to_vec(), weight: weight.to_vec(), stride, padding, dilation, groups, innermost: false }
    };
    let innermost = |image: &[usize], weight: &[usize], lists: [&[usize]; 3], groups: usize| Case {
        innermost: true,
        ..case(image, weight, lists, groups)
    };
    vec![
        case(&[2, 3, 5, 6], &[4, 3, 2, 3], [&[1, 1], &[0, 0], &[1, 1]], 1),
        case(&[2, 3, 7], &[4, 3, 3], [&[2], &[1], &[1]], 1),
        case(&[1, 2, 3, 4, 5], &[2, 2, 2, 1, 3], [&[1, 2, 1], &[1, 0, 2], &[1, 1, 2]], 1),
        // Groups; elements behind the last window; windows of padding alone.
        case(&[2, 6, 8, 7], &[9, 2, 3, 2], [&[2, 3], &[1, 0], &[2, 1]], 3),
        case(&[2, 4, 5, 5], &[4, 1, 1, 1], [&[1, 2], &[1, 1], &[1, 1]], 4),
        // As many windows with other strides, paddings and dilations.
        case(&[2, 3, 6], &[4, 3, 2], [&[3], &[0], &[2]], 1),
        // Channels that tensor cores take whole.
        case(&[2, 16, 9, 9], &[16, 16, 3, 3], [&[1, 1], &[1, 1], &[1, 1]], 1),
        case(&[2, 16, 5, 6], &[16, 8, 3, 2], [&[2, 1], &[1, 0], &[1, 2]], 2),
        case(&[3, 8, 9], &[16, 8, 4], [&[2], &[1], &[1]], 1),
        case(&[2, 8, 4, 3, 5], &[8, 8, 2, 1, 3], [&[1, 1, 2], &[1, 0, 1], &[1, 1, 1]], 1),
        case(&[1, 1, 1], &[1, 1, 1], [&[1], &[0], &[1]], 1),
        innermost(&[2, 3, 5, 6], &[4, 3, 2, 3], [&[1, 1], &[0, 0], &[1, 1]], 1),
        innermost(&[2, 16, 9, 8], &[24, 16, 3, 3], [&[1, 1], &[1, 1], &[1, 1]], 1),
        innermost(&[2, 16, 5, 6], &[16, 8, 3, 2], [&[2, 1], &[1, 0], &[1, 2]], 2),
        innermost(&[2, 16, 5, 6], &[24, 16, 1, 1], [&[1, 2], &[0, 0], &[1, 1]], 1),
        innermost(&[3, 8, 9], &[16, 8, 4], [&[2], &[1], &[1]], 1),
        innermost(&[2, 8, 4, 3, 5], &[8, 8, 2, 1, 3], [&[1, 1, 2], &[1, 0, 1], &[1, 1, 1]], 1),
        // As many channels as elements: these images could have either order.
        innermost(&[2, 4, 4], &[3, 4, 2], [&[1], &[0], &[1]], 1),
    ]
}
