//! The device's library call: products of matrices, in a type that no other backend knows.

use std::sync::Arc;

use fulgurite::DType;
use fulgurite::device::{Address, Command, LibraryCall};

use crate::kernels::{read, written};

/// The longest sums that the library has.
pub const LONGEST: usize = 256;

/// `a · b` for each of `batch` pairs: a [m, k], b [k, n], contiguous, sums in f64. Operands of the call: a, b, the
/// result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Product {
    /// Pairs.
    pub batch: usize,
    /// Rows of a.
    pub m: usize,
    /// Columns of b.
    pub n: usize,
    /// Columns of a.
    pub k: usize,
    /// Of a and b.
    pub dtype: DType,
    /// Element type of the result.
    pub out: DType,
}

impl Product {
    /// The command. `instead` is done if the library has no sums as long.
    pub fn command(self, operands: [Address; 3], instead: Vec<Command>) -> Command {
        let operands = operands.into_iter().map(Some).collect();
        Command::Library(Box::new(LibraryCall { payload: Arc::new(self), operands, instead }))
    }

    /// Bytes of a, b and the result.
    pub fn bytes(&self) -> [usize; 3] {
        let bytes = |count: usize, dtype: DType| self.batch * count * dtype.size();
        [bytes(self.m * self.k, self.dtype), bytes(self.k * self.n, self.dtype), bytes(self.m * self.n, self.out)]
    }

    /// The result's bytes.
    pub fn compute(&self, a: &[u8], b: &[u8]) -> Vec<u8> {
        let (a, b) = (read(self.dtype, a), read(self.dtype, b));
        let Product { batch, m, n, k, .. } = *self;
        let mut out = Vec::with_capacity(batch * m * n);
        for pair in 0..batch {
            let (a, b) = (&a[pair * m * k..], &b[pair * k * n..]);
            for row in 0..m {
                out.extend((0..n).map(|column| (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum::<f64>()));
            }
        }
        written(self.out, &out)
    }
}
