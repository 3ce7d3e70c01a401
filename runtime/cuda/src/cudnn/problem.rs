//! What attention is wanted.

use fulgurite_kernels::DType;
use std::fmt;

/// Forward, or backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// Tensors of heads: query, key, value; out is written, and `log_sums`.
    Forward,
    /// Forward where nothing is differentiated. `log_sums` is not written, which makes the library's kernels faster.
    Alone,
    /// Tensors of heads: query, key, value, out, and the gradient of out; the gradients of query, key and value are
    /// written. `log_sums` is read.
    Backward,
}

/// A tensor of heads of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) name: &'static str,
    /// Whether it has the rows and heads of keys.
    pub(super) of_keys: bool,
    /// Whether it is written.
    pub(super) is_written: bool,
}

const fn read(name: &'static str, of_keys: bool) -> Role {
    Role { name, of_keys, is_written: false }
}

const fn written(name: &'static str, of_keys: bool) -> Role {
    Role { name, of_keys, is_written: true }
}

impl Pass {
    /// The tensors of heads, in order.
    pub(super) fn roles(self) -> &'static [Role] {
        const FORWARD: [Role; 4] =
            [read("query", false), read("key", true), read("value", true), written("out", false)];
        const BACKWARD: [Role; 8] = [
            read("query", false),
            read("key", true),
            read("value", true),
            read("out", false),
            read("d_out", false),
            written("d_query", false),
            written("d_key", true),
            written("d_value", true),
        ];
        match self {
            Pass::Forward | Pass::Alone => &FORWARD,
            Pass::Backward => &BACKWARD,
        }
    }

    /// Whether `log_sums` is written or read.
    pub(super) fn has_log_sums(self) -> bool {
        self != Pass::Alone
    }

    /// How many tensors of heads it has.
    pub fn tensors(self) -> usize {
        self.roles().len()
    }
}

/// From one batch entry, head and row to the next, in elements; the elements of a row are contiguous.
pub type Strides = [usize; 3];

/// `out = softmax(scale * query keyᵀ) value` for each head, or its gradients. Query, out and their gradients are
/// [batch, heads, queries, width]; key, value and theirs are [batch, shared_heads, keys, width]. All are of one type
/// and have any strides. `log_sums`, f32 [batch, heads, queries] and contiguous, are the logarithms of the sums of each
/// row's exponentials.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Forward, with sums for a gradient or alone, or backward.
    pub pass: Pass,
    /// bf16 or f16.
    pub dtype: DType,
    /// Batch entries.
    pub batch: usize,
    /// Heads of queries, a multiple of `shared_heads`.
    pub heads: usize,
    /// Heads of keys.
    pub shared_heads: usize,
    /// Rows of queries.
    pub queries: usize,
    /// Rows of keys.
    pub keys: usize,
    /// Width of heads.
    pub width: usize,
    /// Whether query i sees keys 0 to i.
    pub is_causal: bool,
    /// Of each tensor of heads, in the order that the pass says.
    pub strides: Vec<Strides>,
}

/// What the address of every operand is a multiple of, in bytes, and strides of more than one element.
pub const ALIGNMENT: usize = 16;

/// The widest heads, in elements. Not every architecture has engines for heads above 128; sm_90 has them for all
/// passes.
pub const WIDEST: usize = 256;

/// Workspace of any engine, in bytes.
const BESIDE: u64 = 1 << 20;

impl Problem {
    /// Extents of a tensor of heads.
    pub(super) fn extents(&self, role: &Role) -> [usize; 4] {
        let Problem { batch, heads, shared_heads, queries, keys, width, .. } = *self;
        if role.of_keys { [batch, shared_heads, keys, width] } else { [batch, heads, queries, width] }
    }

    /// Workspace for a plan, in bytes, known without the library: gradients of scores in the type of elements, with
    /// rows in multiples of 128, gradients of keys and values for each head where heads share them, and 1 MiB for what
    /// engines keep beside. Version 9.14 needs a little less for an H100.
    pub fn workspace_bytes(&self) -> u64 {
        let Problem { pass, batch, heads, shared_heads, queries, keys, width, .. } = *self;
        let of_heads = (batch * heads * self.dtype.size()) as u64;
        let padded = |rows: usize| rows.next_multiple_of(128) as u64;
        let scores = of_heads * padded(queries) * padded(keys);
        let of_each = if heads == shared_heads { 0 } else { 2 * of_heads * padded(keys) * width as u64 };
        BESIDE + if pass == Pass::Backward { scores + of_each } else { 0 }
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
        let Problem { batch, heads, shared_heads, queries, keys, width, .. } = *self;
        if [batch, heads, shared_heads, queries, keys, width].contains(&0) {
            return Some("an extent is zero: there is nothing to attend to".into());
        }
        if !matches!(self.dtype, DType::BF16 | DType::F16) {
            return Some(format!("elements are {}, takes bf16 and f16", self.dtype));
        }
        if !heads.is_multiple_of(shared_heads) {
            return Some(format!("{heads} heads are no multiple of the {shared_heads} of keys"));
        }
        let pack = ALIGNMENT / self.dtype.size();
        if !width.is_multiple_of(pack) || width > WIDEST {
            return Some(format!("heads are {width} wide, takes multiples of {pack} up to {WIDEST}"));
        }
        let roles = self.pass.roles();
        if self.strides.len() != roles.len() {
            return Some(format!("{} tensors of heads have strides, expected {}", self.strides.len(), roles.len()));
        }
        for (role, strides) in roles.iter().zip(&self.strides) {
            let extents = self.extents(role);
            for (stride, extent) in strides.iter().zip(extents) {
                if extent > 1 && !stride.is_multiple_of(pack) {
                    return Some(format!("{} has a stride of {stride} elements, no multiple of {pack}", role.name));
                }
                if role.is_written && extent > 1 && *stride < width {
                    return Some(format!("{} has a stride of {stride} elements, its rows overlap", role.name));
                }
            }
        }
        None
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { pass, dtype, batch, heads, shared_heads, queries, keys, width, is_causal, .. } = self;
        let pass = if *pass == Pass::Backward { "gradients of " } else { "" };
        let causal = if *is_causal { "causal " } else { "" };
        write!(
            f,
            "{pass}{causal}attention of {dtype}[{batch}, {heads}, {queries}, {width}] to [{batch}, {shared_heads}, \
             {keys}, {width}]"
        )
    }
}

/// Why there is no plan for attention.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cuDNN has no plan for {problem}: {reason}")]
pub struct ProblemError {
    /// The problem.
    pub problem: Problem,
    /// What is in the way.
    pub reason: String,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn good(pass: Pass) -> Problem {
        Problem {
            pass,
            dtype: DType::BF16,
            batch: 2,
            heads: 4,
            shared_heads: 2,
            queries: 256,
            keys: 128,
            width: 64,
            is_causal: true,
            strides: vec![[4 * 256 * 64, 256 * 64, 64]; pass.tensors()],
        }
    }

    #[test]
    fn what_the_library_does_not_take_is_refused_before() {
        for pass in [Pass::Forward, Pass::Alone, Pass::Backward] {
            assert_eq!(good(pass).check(), Ok(()));
            let refuse = |change: fn(&mut Problem), part: &str| {
                let mut problem = good(pass);
                change(&mut problem);
                let error = problem.check().unwrap_err().to_string();
                assert!(error.contains(part), "{error}");
            };
            refuse(|p| p.keys = 0, "nothing to attend to");
            refuse(|p| p.dtype = DType::F32, "elements are f32, takes bf16 and f16");
            refuse(|p| p.heads = 3, "3 heads are no multiple of the 2 of keys");
            refuse(|p| p.width = 60, "heads are 60 wide, takes multiples of 8 up to 256");
            refuse(|p| p.width = 264, "heads are 264 wide");
            refuse(|p| p.strides[1][2] = 68, "key has a stride of 68 elements, no multiple of 8");
            refuse(|p| p.strides[3][1] = 68, "out has a stride of 68 elements");
            refuse(|p| p.strides.truncate(2), "2 tensors of heads have strides, expected");
        }
        let mut problem = good(Pass::Forward);
        problem.strides[0][1] = 0;
        assert_eq!(problem.check(), Ok(()), "an operand may be repeated");
        problem.strides[3][1] = 0;
        assert!(problem.check().unwrap_err().reason.contains("rows overlap"));
    }

    /// The sizes that version 9.14 asks for on an H100.
    #[test]
    fn workspace_is_enough() {
        assert!(good(Pass::Forward).workspace_bytes() >= 256);
        assert!(good(Pass::Backward).workspace_bytes() >= 786_688);
        let one = Problem { batch: 16, heads: 12, shared_heads: 12, queries: 1024, keys: 1024, ..good(Pass::Backward) };
        assert!((402_653_440..404_000_000).contains(&one.workspace_bytes()));
        let shared =
            Problem { heads: 32, shared_heads: 8, queries: 8192, keys: 8192, width: 128, ..good(Pass::Backward) };
        assert!((8_858_370_304..8_860_000_000).contains(&shared.workspace_bytes()));
    }

    #[test]
    fn a_problem_prints_as_the_attention_that_it_is() {
        let expected = "gradients of causal attention of bf16[2, 4, 256, 64] to [2, 2, 128, 64]";
        assert_eq!(good(Pass::Backward).to_string(), expected);
    }
}
