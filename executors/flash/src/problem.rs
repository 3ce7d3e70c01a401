//! A problem of attention, and how it is multiplied.

use fulgurite_runtime::DType;
use fulgurite_runtime::rules::{DeviceTensor, Parameter};

/// The widest heads that the kernels hold of elements of 16 bits, and those of f32.
pub(super) const WIDEST: usize = 256;
pub(super) const WIDEST_OF_F32: usize = 128;

/// Bytes of shared memory that a thread fills at once.
pub(super) const WIDEST_ACCESS: usize = 16;

/// The problem as the kernels see it: [batch, heads, queries, width] against [batch, shared_heads, keys, width].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Problem {
    pub batch: usize,
    pub heads: usize,
    pub shared_heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
    pub dtype: DType,
    pub products: Products,
}

impl Problem {
    /// Of tensors whose metas were checked; with `tf32` operands of f32 are rounded.
    pub fn of(query: &DeviceTensor, key: &DeviceTensor, tf32: bool) -> Problem {
        let [batch, heads, queries, width] = [0, 1, 2, 3].map(|dim| query.shape()[dim]);
        let (shared_heads, keys) = (key.shape()[1], key.shape()[2]);
        Problem {
            batch,
            heads,
            shared_heads,
            queries,
            keys,
            width,
            dtype: query.dtype(),
            products: Products::of(query.dtype(), width, tf32),
        }
    }

    /// The width with zeros behind it.
    pub fn padded(&self) -> usize {
        if self.is_wide() { self.width.next_multiple_of(64) } else { self.width.next_power_of_two().max(32) }
    }

    /// Whether registers do not hold what they hold of narrower heads.
    pub fn is_wide(&self) -> bool {
        self.width > WIDEST_OF_F32
    }

    /// In how many parts blocks compute the gradients of keys.
    pub fn parts_of_keys(&self) -> usize {
        if self.is_wide() { 2 } else { 1 }
    }

    /// Whether rows are of `pack` elements, several times over.
    pub fn has_whole(&self, pack: usize) -> bool {
        self.width.is_multiple_of(pack)
    }

    /// Whether rows are of as many elements as warps read at once, several times over.
    pub fn has_whole_packs(&self) -> bool {
        self.has_whole(self.products.pack())
    }

    /// The extents that kernels take, and the factor of scores.
    pub fn extents(&self, scale: f64) -> Vec<Parameter> {
        let counts = [self.heads, self.shared_heads, self.queries, self.keys];
        let mut parameters: Vec<Parameter> = counts.iter().map(|count| Parameter::from(*count as i32)).collect();
        parameters.push((scale as f32).into());
        parameters
    }
}

/// How elements are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Products {
    /// By the tensor cores, elements of 16 bits as they are.
    Halves,
    /// By the tensor cores in TF32: f32 rounded; f16 for its range, which the gradients of scores may leave.
    Tf32,
    /// In f32, not by the tensor cores.
    F32,
}

impl Products {
    /// Elements of f16 as wide heads have are as they are: there is no room for more bits.
    fn of(dtype: DType, width: usize, tf32: bool) -> Products {
        match dtype {
            DType::BF16 => Products::Halves,
            DType::F16 if width > WIDEST_OF_F32 => Products::Halves,
            DType::F32 if !tf32 => Products::F32,
            _ => Products::Tf32,
        }
    }

    /// Bytes of an element in shared memory.
    pub fn size(self) -> usize {
        match self {
            Products::Halves => DType::BF16.size(),
            Products::Tf32 | Products::F32 => DType::F32.size(),
        }
    }

    /// Neighbours that are read at once.
    pub fn pack(self) -> usize {
        WIDEST_ACCESS / self.size()
    }
}
