//! What plans of hand-written kernels share.

use fulgurite_runtime::DType;
pub use fulgurite_runtime::kernels::cuda::headers::type_of;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape};

/// The type that arithmetic on elements is carried out in.
pub fn wide_of(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 | DType::BF16 | DType::F16 => "float",
        DType::Bool => "i64",
        DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 | DType::I32 | DType::I64 => "i64",
        DType::C64 | DType::C128 => unreachable!("programs of devices compute with the parts of complex numbers"),
    }
}

/// A dimension as kernels see it: its extent, and its stride in each of N tensors, in elements.
pub type Dimension<const N: usize> = (usize, [isize; N]);

/// The dimensions of a shape with the strides of N tensors.
pub fn dimensions<const N: usize>(shape: &[usize], strides: [&[isize]; N]) -> Vec<Dimension<N>> {
    shape.iter().enumerate().map(|(i, extent)| (*extent, strides.map(|strides| strides[i]))).collect()
}

/// Neighbouring dimensions that are adjacent in all tensors are merged; extents of one are removed.
pub fn collapsed<const N: usize>(dims: impl IntoIterator<Item = Dimension<N>>) -> Vec<Dimension<N>> {
    let mut merged: Vec<Dimension<N>> = Vec::new();
    for (extent, strides) in dims.into_iter().filter(|(extent, _)| *extent != 1) {
        match merged.last_mut() {
            Some((outer, outer_strides)) if *outer_strides == strides.map(|stride| stride * extent as isize) => {
                *outer *= extent;
                *outer_strides = strides;
            }
            _ => merged.push((extent, strides)),
        }
    }
    merged
}

/// A C++ literal. Where it can be, it has 32 bits, so that the index beside it decides how wide arithmetic is.
pub fn literal(number: usize) -> String {
    let suffix = if u32::try_from(number).is_ok() { "u" } else { "ULL" };
    format!("{number}{suffix}")
}

/// The C++ expressions of the coordinates of element `index`, counted row-major over these extents.
pub fn coordinates(extents: &[usize], index: &str) -> Vec<String> {
    let mut inner = 1usize;
    let mut all: Vec<String> = Vec::with_capacity(extents.len());
    for (i, extent) in extents.iter().enumerate().rev() {
        let quotient = if inner == 1 { format!("({index})") } else { format!("(({index})/{})", literal(inner)) };
        all.push(if i == 0 { quotient } else { format!("({quotient}%{})", literal(*extent)) });
        inner *= extent;
    }
    all.reverse();
    all
}

/// The C++ expression of the offset in a tensor of element `index`, counted row-major over these dimensions.
pub fn offset<const N: usize>(dims: &[Dimension<N>], tensor: usize, index: &str) -> String {
    let extents: Vec<usize> = dims.iter().map(|(extent, _)| *extent).collect();
    let terms = coordinates(&extents, index).into_iter().zip(dims).filter(|(_, (_, strides))| strides[tensor] != 0);
    let terms: Vec<String> = terms.map(|(at, (_, strides))| format!("(i64){at}*({}LL)", strides[tensor])).collect();
    if terms.is_empty() { "(0*1LL)".into() } else { format!("({})", terms.join("+")) }
}

/// The number of index positions that these dimensions have.
pub fn positions<const N: usize>(dims: &[Dimension<N>]) -> usize {
    dims.iter().map(|(extent, _)| extent).product()
}

/// The C++ type that counts `count` things: divisions of 32 bits take a fraction of the time of those of 64.
pub fn index_type(count: usize) -> &'static str {
    if count < 1 << 31 { "u32" } else { "u64" }
}

/// The C++ type of this many bytes, for elements that are only moved.
pub fn bits_of(bytes: usize) -> &'static str {
    match bytes {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        8 => "u64",
        _ => "uint4",
    }
}

/// The most bytes that one thread reads or writes at once.
pub const WIDEST: usize = 16;

/// How many neighbouring elements of `size` bytes can be read and written at once; the innermost dimension is then
/// counted in packs of so many. For each tensor its alignment is given, or `None` for one that is read by element: its
/// innermost stride must be zero. `further` are strides by which addresses move besides.
pub fn packed<const N: usize>(
    dims: &mut [Dimension<N>],
    size: usize,
    alignments: [Option<usize>; N],
    further: &[isize],
) -> usize {
    let Some(((extent, strides), outer)) = dims.split_last_mut() else { return 1 };
    let moved: Vec<usize> = (0..N).filter(|tensor| alignments[*tensor].is_some()).collect();
    if (0..N).any(|tensor| strides[tensor] != isize::from(alignments[tensor].is_some())) {
        return 1;
    }
    let fits = |pack: usize| {
        let whole = |stride: isize| stride.unsigned_abs().is_multiple_of(pack);
        extent.is_multiple_of(pack)
            && alignments.iter().flatten().all(|alignment| alignment.is_multiple_of(pack * size))
            && outer.iter().all(|(_, strides)| moved.iter().all(|tensor| whole(strides[*tensor])))
            && further.iter().all(|stride| whole(*stride))
    };
    let mut pack = WIDEST / size;
    while pack > 1 && !fits(pack) {
        pack /= 2;
    }
    *extent /= pack;
    moved.iter().for_each(|tensor| strides[*tensor] = pack as isize);
    pack
}

/// Threads of a block of kernels that handle one thing a thread.
pub const THREADS: u32 = 256;

/// A launch of one thread for each of `count` things; kernels go round if there are more than a launch can have.
pub fn one_thread_each(count: usize) -> LaunchShape {
    LaunchShape::linear(count.div_ceil(THREADS as usize).min(i32::MAX as usize) as u32, THREADS)
}

/// Whether kernels of floating-point rows are written for elements of this type.
pub fn has_kernels_for(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::BF16 | DType::F16)
}

/// How many neighbouring elements of rows of `columns` elements can be read and written at once in all of `tensors`,
/// the smallest of which are `size` bytes large.
pub fn pack_of(columns: usize, size: usize, tensors: &[&DeviceTensor]) -> usize {
    let mut pack = pack_anywhere(columns, size);
    while pack > 1 && !are_aligned(pack, tensors) {
        pack /= 2;
    }
    pack
}

/// How many neighbouring elements of rows of `columns` elements of `size` bytes a thread of a reduction handles
/// together, wherever the rows are: the order of sums depends on the number, so it must not depend on addresses. Rows
/// that are not aligned for so many (`ALIGNED` of the sources) are read and written by element.
pub fn pack_anywhere(columns: usize, size: usize) -> usize {
    let mut pack = WIDEST / size;
    while !columns.is_multiple_of(pack) {
        pack /= 2;
    }
    pack
}

/// Whether `pack` elements of each of `tensors` can be read and written at once where rows start at multiples of as
/// many.
pub fn are_aligned(pack: usize, tensors: &[&DeviceTensor]) -> bool {
    tensors.iter().all(|tensor| tensor.alignment.is_multiple_of((pack * tensor.dtype().size()).min(WIDEST)))
}
