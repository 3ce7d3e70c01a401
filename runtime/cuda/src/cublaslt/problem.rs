//! What product is wanted, in row-major terms.

use fulgurite_kernels::DType;
use std::fmt;

/// How products are computed and summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compute {
    /// In f32: IEEE products of f32, exact products of bf16 and f16; sums in f32.
    F32,
    /// Operands in f32 are rounded to TF32 (10 bits of fraction); sums in f32.
    Tf32,
    /// Products and sums in f64.
    F64,
}

/// Floating-point formats of 8 bits, whose elements are stored as `u8`. Products of them are exact, sums are in f32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// 4 bits of exponent, 3 of fraction: 448 at most, no infinities.
    E4M3,
    /// 5 bits of exponent, 2 of fraction: 57344 at most.
    E5M2,
}

impl Format {
    /// The largest finite number.
    pub const fn largest(self) -> f64 {
        match self {
            Format::E4M3 => 448.0,
            Format::E5M2 => 57344.0,
        }
    }
}

/// What extents of products of 8 bits that are rows in memory are a multiple of, in elements: rows start on 16 bytes.
pub const EIGHT_BIT_MULTIPLE: usize = 16;
/// The first architecture that has products of 8 bits.
const FIRST_OF_EIGHT_BITS: u32 = 89;

/// Whether an architecture (`sm_90a`) has products of 8 bits: those from sm_89 on have.
pub fn has_eight_bits(architecture: &str) -> bool {
    let digits = architecture.trim_start_matches("sm_");
    let number: String = digits.chars().take_while(char::is_ascii_digit).collect();
    number.parse::<u32>().is_ok_and(|number| number >= FIRST_OF_EIGHT_BITS)
}

/// What is done with the product before it is stored. The activation is the tanh approximation of GELU.
///
/// `bias` is a vector and `aux` a matrix of [`super::MatmulOperands`]. Vectors have the type of `d`, and so has `aux`,
/// which has the layout of `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Epilogue {
    /// `d = product`
    #[default]
    None,
    /// `d = product + bias`, with `n` values of bias.
    Bias,
    /// `d = gelu(product)`
    Gelu,
    /// `d = gelu(product + bias)`
    GeluBias,
    /// `aux = product; d = gelu(aux)`
    GeluAux,
    /// `aux = product + bias; d = gelu(aux)`
    GeluAuxBias,
    /// `d = product * gelu'(aux)`: aux is read.
    DGelu,
    /// As [`Epilogue::DGelu`], and `bias = sum of d over its rows`, `n` values: bias is written.
    DGeluBiasGrad,
    /// `bias = sum of op(a) over k`, `m` values: bias is written.
    BiasGradA,
    /// `bias = sum of op(b) over k`, `n` values: bias is written.
    BiasGradB,
}

impl Epilogue {
    /// Whether it reads or writes a vector.
    pub fn has_bias(self) -> bool {
        !matches!(self, Epilogue::None | Epilogue::Gelu | Epilogue::GeluAux | Epilogue::DGelu)
    }

    /// Whether it reads or writes a matrix beside `d`.
    pub fn has_aux(self) -> bool {
        matches!(self, Epilogue::GeluAux | Epilogue::GeluAuxBias | Epilogue::DGelu | Epilogue::DGeluBiasGrad)
    }
}

/// What an epilogue's vector or matrix of 16-bit elements must be aligned to, in bytes: the heuristics cannot be told
/// of less, and name algorithms that then refuse it when they run.
const EPILOGUE_ALIGNMENT: usize = 16;

/// Bytes: kernels read and write no more at once, and have no use for a larger alignment.
const ALIGNMENT: usize = 16;

/// The layout of a matrix in memory: rows of contiguous elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Element type.
    pub dtype: DType,
    /// Whether memory holds the transpose of the operand: its rows are the operand's columns.
    pub transposed: bool,
    /// From the start of one row in memory to that of the next, in elements.
    pub leading: usize,
    /// From one matrix of the batch to the next, in elements; 0 for an input that all share.
    pub batch_stride: usize,
    /// What the address is known to be a multiple of, in bytes: a power of two. More than 256 makes no difference.
    pub alignment: usize,
}

impl Operand {
    /// A contiguous `rows x columns` matrix, or a batch of them.
    pub fn contiguous(dtype: DType, rows: usize, columns: usize) -> Operand {
        Operand { dtype, transposed: false, leading: columns, batch_stride: rows * columns, alignment: 256 }
    }

    /// A contiguous `columns x rows` matrix that represents its transpose, `rows x columns`.
    pub fn contiguous_transposed(dtype: DType, rows: usize, columns: usize) -> Operand {
        Operand { transposed: true, leading: rows, ..Operand::contiguous(dtype, rows, columns) }
    }

    /// What the address of every matrix of a batch is known to be a multiple of, in bytes; 256 at most.
    pub(super) fn batch_alignment(&self, batch: usize) -> usize {
        let stride = if batch > 1 { self.batch_stride * self.dtype.size() } else { 0 };
        // The lowest bit of both that is set.
        1 << (stride | self.alignment | 256).trailing_zeros()
    }

    /// Rows and columns in memory of an operand of `rows x columns`.
    pub(super) fn stored(&self, rows: usize, columns: usize) -> (usize, usize) {
        if self.transposed { (columns, rows) } else { (rows, columns) }
    }
}

/// `d = epilogue(alpha * op(a) op(b) + beta * c)`, for each matrix of a batch. `c` has the layout of `d`; beta is 0 or
/// 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Rows of `op(a)` and `d`.
    pub m: usize,
    /// Columns of `op(b)` and `d`.
    pub n: usize,
    /// Columns of `op(a)`, rows of `op(b)`.
    pub k: usize,
    /// Number of products.
    pub batch: usize,
    /// The `m x k` operand.
    pub a: Operand,
    /// The `k x n` operand.
    pub b: Operand,
    /// The `m x n` result; not transposed.
    pub d: Operand,
    /// How it is computed.
    pub compute: Compute,
    /// The operation on the product, before it is written.
    pub epilogue: Epilogue,
    /// Whether `c` is added: beta = 1.
    pub accumulate: bool,
    /// What the address of the epilogue's vector is known to be a multiple of, in bytes: a power of two.
    pub bias_alignment: usize,
    /// The same of the epilogue's matrix.
    pub aux_alignment: usize,
    /// The formats of `a` and `b` if their `u8` are floating-point numbers. Each then has a factor in memory, which the
    /// product is multiplied by.
    pub formats: Option<[Format; 2]>,
}

impl Problem {
    /// One product of contiguous matrices of 8 bits to a result of type `d`. Both operands have rows of `k` elements in
    /// memory: `a` is `m x k`, and the memory of `b` is its transpose, `n x k`. The library has no others.
    pub fn eight_bit(formats: [Format; 2], d: DType, m: usize, n: usize, k: usize) -> Problem {
        Problem {
            b: Operand::contiguous_transposed(DType::U8, k, n),
            d: Operand::contiguous(d, m, n),
            formats: Some(formats),
            ..Problem::contiguous(DType::U8, m, n, k)
        }
    }

    /// One product of contiguous matrices of one type; in f64 computed in f64, else in f32.
    pub fn contiguous(dtype: DType, m: usize, n: usize, k: usize) -> Problem {
        Problem {
            m,
            n,
            k,
            batch: 1,
            a: Operand::contiguous(dtype, m, k),
            b: Operand::contiguous(dtype, k, n),
            d: Operand::contiguous(dtype, m, n),
            compute: if dtype == DType::F64 { Compute::F64 } else { Compute::F32 },
            epilogue: Epilogue::None,
            accumulate: false,
            bias_alignment: 256,
            aux_alignment: 256,
            formats: None,
        }
    }

    /// The same product wherever its operands start on multiples of [`ALIGNMENT`] bytes. What a memory plan gives them
    /// beyond that must not decide which algorithm is found the fastest: it adds in an order of its own, and a value
    /// that is kept would have other bits than one that is computed again.
    pub fn wherever_aligned(mut self) -> Problem {
        for operand in [&mut self.a, &mut self.b, &mut self.d] {
            operand.alignment = operand.alignment.min(ALIGNMENT);
        }
        self.bias_alignment = self.bias_alignment.min(ALIGNMENT);
        self.aux_alignment = self.aux_alignment.min(ALIGNMENT);
        self
    }

    /// How many values [`Epilogue`]'s vector has.
    pub fn bias_len(&self) -> usize {
        match self.epilogue {
            Epilogue::BiasGradA => self.m,
            epilogue if epilogue.has_bias() => self.n,
            _ => 0,
        }
    }

    /// What the addresses of all that is stored as the result is are multiples of: of the result itself, and of the
    /// epilogue's operands, for which the library has no preference of their own.
    pub(super) fn stored_alignment(&self) -> usize {
        let mut alignment = self.d.batch_alignment(self.batch);
        if self.epilogue.has_bias() {
            alignment = alignment.min(self.bias_alignment);
        }
        if self.epilogue.has_aux() {
            // It has the layout of the result.
            alignment = alignment.min(Operand { alignment: self.aux_alignment, ..self.d }.batch_alignment(self.batch));
        }
        alignment
    }

    /// What is wrong with it, before the library is asked.
    pub(super) fn check(&self) -> Result<(), Box<ProblemError>> {
        match self.fault() {
            Some(reason) => Err(self.refused(reason)),
            None => Ok(()),
        }
    }

    pub(super) fn refused(&self, reason: impl Into<String>) -> Box<ProblemError> {
        Box::new(ProblemError { problem: self.clone(), reason: reason.into() })
    }

    fn fault(&self) -> Option<String> {
        use DType::{BF16, F16, F32, F64};
        let Problem { m, n, k, batch, .. } = *self;
        if m == 0 || n == 0 || k == 0 || batch == 0 {
            return Some("a size is zero: there is nothing to multiply".into());
        }
        if batch > i32::MAX as usize {
            return Some(format!("a batch of {batch} is more than the library counts"));
        }
        let (a, b, d) = (self.a.dtype, self.b.dtype, self.d.dtype);
        if let Some(formats) = self.formats {
            return self.eight_bit_fault(formats);
        }
        let fits = match self.compute {
            Compute::F64 => a == F64 && b == F64 && d == F64,
            Compute::Tf32 => a == F32 && b == F32 && d == F32,
            Compute::F32 => a == b && (d == a || d == F32) && [F32, BF16, F16].contains(&a),
        };
        if !fits {
            return Some(format!("there is no product of {a} and {b} to {d} computed in {:?}", self.compute));
        }
        self.layout_fault()
    }

    /// What is wrong with a product of 8 bits.
    fn eight_bit_fault(&self, formats: [Format; 2]) -> Option<String> {
        let Problem { m, n, k, batch, epilogue, .. } = *self;
        let (a, b, d) = (self.a.dtype, self.b.dtype, self.d.dtype);
        let results = [DType::BF16, DType::F16, DType::F32];
        if a != DType::U8 || b != DType::U8 || !results.contains(&d) || self.compute != Compute::F32 {
            return Some(format!("there is no product of 8 bits of {a} and {b} to {d} in {:?}", self.compute));
        }
        if formats == [Format::E5M2; 2] {
            return Some("the library has no product of two matrices in E5M2".into());
        }
        if !k.is_multiple_of(EIGHT_BIT_MULTIPLE) || !n.is_multiple_of(EIGHT_BIT_MULTIPLE) {
            return Some(format!("products of 8 bits need k and n to be multiples of {EIGHT_BIT_MULTIPLE}: {k}, {n}"));
        }
        let rows_of_k = !self.a.transposed && self.b.transposed && self.a.leading == k && self.b.leading == k;
        let stores = epilogue == Epilogue::None || (epilogue == Epilogue::Bias && d.size() == 2);
        if !rows_of_k || batch != 1 || self.accumulate || !stores {
            return Some(format!(
                "products of 8 bits are of two contiguous matrices with rows of k = {k} elements, with a bias of 16 \
                 bits at most: batch {batch}, {epilogue:?} for m = {m}"
            ));
        }
        self.layout_fault()
    }

    /// What is wrong with where operands are in memory.
    fn layout_fault(&self) -> Option<String> {
        let Problem { m, n, k, batch, .. } = *self;
        if self.d.transposed {
            return Some("the result cannot be transposed: exchange a and b".into());
        }
        for (name, operand, rows, columns) in [("a", self.a, m, k), ("b", self.b, k, n), ("d", self.d, m, n)] {
            let (_, columns) = operand.stored(rows, columns);
            if operand.leading < columns {
                return Some(format!("{name} has rows of {columns} elements, {} apart", operand.leading));
            }
            if !operand.alignment.is_power_of_two() || operand.alignment < operand.dtype.size() {
                return Some(format!("{name} cannot be aligned to {} bytes", operand.alignment));
            }
        }
        let (has_bias, has_aux) = (self.epilogue.has_bias(), self.epilogue.has_aux());
        for (name, is_used, alignment) in
            [("bias", has_bias, self.bias_alignment), ("aux", has_aux, self.aux_alignment)]
        {
            if is_used && (!alignment.is_power_of_two() || alignment < self.d.dtype.size()) {
                return Some(format!("{name} cannot be aligned to {alignment} bytes"));
            }
            if is_used && self.d.dtype.size() == 2 && alignment < EPILOGUE_ALIGNMENT {
                return Some(format!(
                    "{name} is aligned to {alignment} bytes, the library takes one of 16 bits on a multiple of \
                     {EPILOGUE_ALIGNMENT}"
                ));
            }
        }
        // One after the other, or beside each other, as the heads of attention are.
        let (stride, leading) = (self.d.batch_stride, self.d.leading);
        if batch > 1 && stride < (m - 1) * leading + n && (stride < n || (batch - 1) * stride + n > leading) {
            return Some("the matrices of the result overlap".into());
        }
        let sums_a_product = matches!(self.epilogue, Epilogue::BiasGradA | Epilogue::BiasGradB);
        (batch > 1 && (sums_a_product || self.epilogue == Epilogue::DGeluBiasGrad))
            .then(|| "a bias gradient would be needed for each product of the batch".into())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operand = |operand: &Operand, rows, columns| {
            let (stored_rows, stored_columns) = operand.stored(rows, columns);
            let mark = if operand.transposed { "ᵀ" } else { "" };
            format!("{}[{stored_rows}, {stored_columns}]{mark}", operand.dtype)
        };
        let Problem { m, n, k, batch, .. } = *self;
        if batch > 1 {
            write!(f, "{batch} x ")?;
        }
        write!(f, "{} · {} -> {}", operand(&self.a, m, k), operand(&self.b, k, n), operand(&self.d, m, n))?;
        write!(f, " in {:?}", self.compute)?;
        if let Some([a, b]) = self.formats {
            write!(f, " of {a:?} and {b:?}")?;
        }
        if self.accumulate {
            write!(f, ", accumulated")?;
        }
        if self.epilogue == Epilogue::None { Ok(()) } else { write!(f, ", {:?}", self.epilogue) }
    }
}

/// Why there is no plan for a product.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no plan for the product {problem}: {reason}")]
pub struct ProblemError {
    /// The product.
    pub problem: Problem,
    /// What is in the way.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_library_would_misread_is_refused_before() {
        let good = Problem::contiguous(DType::BF16, 3, 5, 7);
        assert_eq!(good.check(), Ok(()));
        let refuse = |change: fn(&mut Problem), part: &str| {
            let mut problem = good.clone();
            change(&mut problem);
            let error = problem.check().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        refuse(|p| p.k = 0, "nothing to multiply");
        refuse(|p| p.a.leading = 6, "a has rows of 7 elements, 6 apart");
        refuse(|p| p.b.transposed = true, "b has rows of 7 elements, 5 apart");
        refuse(|p| p.d.transposed = true, "exchange");
        refuse(|p| p.d.dtype = DType::F16, "no product of bf16 and bf16 to f16");
        refuse(|p| p.compute = Compute::Tf32, "computed in Tf32");
        refuse(|p| (p.batch, p.d.batch_stride) = (2, 14), "overlap");
        refuse(|p| (p.batch, p.d.leading, p.d.batch_stride) = (3, 14, 5), "overlap");
        refuse(|p| (p.batch, p.epilogue) = (2, Epilogue::BiasGradB), "bias gradient");
        refuse(|p| p.a.alignment = 1, "aligned");
        refuse(|p| (p.epilogue, p.bias_alignment) = (Epilogue::Bias, 1), "bias cannot be aligned to 1");
        refuse(|p| (p.epilogue, p.aux_alignment) = (Epilogue::DGelu, 12), "aux cannot be aligned to 12");
        refuse(|p| (p.epilogue, p.bias_alignment) = (Epilogue::Bias, 8), "bias is aligned to 8 bytes");
    }

    #[test]
    fn the_matrices_of_a_batch_may_lie_beside_each_other() {
        let mut problem = Problem::contiguous(DType::F32, 3, 8, 7);
        (problem.batch, problem.d.leading, problem.d.batch_stride) = (3, 24, 8);
        assert_eq!(problem.check(), Ok(()));
        assert_eq!(problem.d.batch_alignment(3), 32);
        assert_eq!(problem.d.batch_alignment(1), 256);
    }

    #[test]
    fn what_is_stored_is_aligned_as_its_worst_operand() {
        let mut problem = Problem::contiguous(DType::BF16, 8, 16, 8);
        (problem.bias_alignment, problem.aux_alignment) = (4, 8);
        assert_eq!(problem.stored_alignment(), 256, "an epilogue without either");
        problem.epilogue = Epilogue::GeluAux;
        assert_eq!(problem.stored_alignment(), 8);
        problem.epilogue = Epilogue::GeluAuxBias;
        assert_eq!(problem.stored_alignment(), 4);
    }

    #[test]
    fn a_product_is_the_same_wherever_its_operands_start() {
        let placed = |alignment: usize| {
            let mut problem = Problem::contiguous(DType::BF16, 8, 16, 8);
            (problem.a.alignment, problem.b.alignment, problem.d.alignment) = (alignment, alignment, alignment);
            (problem.bias_alignment, problem.aux_alignment) = (alignment, alignment);
            problem.wherever_aligned()
        };
        assert_eq!(placed(256), placed(64));
        assert_eq!(placed(64), placed(16));
        assert_ne!(placed(16), placed(8), "kernels read less at once");
    }

    #[test]
    fn products_of_8_bits_have_rows_of_k() {
        let good = Problem::eight_bit([Format::E5M2, Format::E4M3], DType::BF16, 7, 32, 48);
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.to_string(), "u8[7, 48] · u8[32, 48]ᵀ -> bf16[7, 32] in F32 of E5M2 and E4M3");
        let refuse = |change: fn(&mut Problem), part: &str| {
            let mut problem = good.clone();
            change(&mut problem);
            let error = problem.check().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        refuse(|p| p.formats = Some([Format::E5M2; 2]), "two matrices in E5M2");
        refuse(|p| p.k = 40, "multiples of 16: 40, 32");
        refuse(|p| p.n = 8, "multiples of 16: 48, 8");
        refuse(|p| p.b.transposed = false, "rows of k = 48");
        refuse(|p| p.a.dtype = DType::BF16, "no product of 8 bits of bf16 and u8");
        refuse(|p| p.epilogue = Epilogue::Gelu, "Gelu");
        refuse(|p| p.formats = None, "no product of u8 and u8");
    }

    #[test]
    fn a_problem_prints_as_the_product_that_it_is() {
        let mut problem = Problem::contiguous(DType::BF16, 3, 5, 7);
        problem.b = Operand::contiguous_transposed(DType::BF16, 7, 5);
        problem.epilogue = Epilogue::GeluAuxBias;
        problem.accumulate = true;
        let expected = "bf16[3, 7] · bf16[5, 7]ᵀ -> bf16[3, 5] in F32, accumulated, GeluAuxBias";
        assert_eq!(problem.to_string(), expected);
        assert_eq!(problem.check(), Ok(()));
    }
}
