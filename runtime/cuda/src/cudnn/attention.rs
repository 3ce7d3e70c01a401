//! Attention as graphs of operations, in the form that the library's engines recognize as one kernel.

use super::super::error::Result;
use super::graph::{Form, Graph, Node, Pointwise};
use super::problem::{Pass, Problem, Role};
use super::sys::{DataType, PointwiseMode, ReductionOperator};
use fulgurite_kernels::DType;

/// Ids of tensors; those of heads are numbered from 1 on, in the order of their roles.
pub(super) mod ids {
    pub(in super::super) const FIRST_HEADS: i64 = 1;
    pub(in super::super) const LOG_SUMS: i64 = 20;
    /// Backward: the sum of each row of `d_out * out`, f32 [batch, heads, queries].
    pub(in super::super) const ROW_SUMS: i64 = 21;
    pub(in super::super) const SCALE: i64 = 30;
    /// What scores that are not seen become.
    pub(in super::super) const UNSEEN: i64 = 31;
    /// Backward: 1, where dropout has a factor.
    pub(in super::super) const ONE: i64 = 32;
}

/// What scores that are not seen become.
pub(super) const UNSEEN: f32 = f32::NEG_INFINITY;

fn data_type(dtype: DType) -> DataType {
    if dtype == DType::F16 { DataType::F16 } else { DataType::BF16 }
}

/// The graph of a problem that was checked.
pub(super) fn graph_of(problem: &Problem) -> Result<Graph> {
    let mut writer = Writer { graph: Graph::default(), problem, dtype: data_type(problem.dtype) };
    match problem.pass {
        Pass::Forward | Pass::Alone => writer.forward()?,
        Pass::Backward => writer.backward()?,
    }
    Ok(writer.graph)
}

struct Writer<'a> {
    graph: Graph,
    problem: &'a Problem,
    dtype: DataType,
}

fn signed<const N: usize>(extents: [usize; N]) -> [i64; N] {
    extents.map(|extent| extent as i64)
}

impl Writer<'_> {
    /// The form of a tensor of heads.
    fn form(&self, index: usize) -> Form {
        let role: &Role = &self.problem.pass.roles()[index];
        let [batch, head, row] = signed(self.problem.strides[index]);
        Form { extents: signed(self.problem.extents(role)), strides: [batch, head, row, 1] }
    }

    fn heads(&mut self, index: usize) -> Result<Node> {
        self.graph.stored(ids::FIRST_HEADS + index as i64, self.dtype, self.form(index))
    }

    /// A tensor of heads with width before rows.
    fn heads_transposed(&mut self, index: usize) -> Result<Node> {
        self.graph.stored(ids::FIRST_HEADS + index as i64, self.dtype, self.form(index).transposed())
    }

    /// The form of scores: [batch, heads, queries, keys].
    fn scores(&self) -> Form {
        let Problem { batch, heads, queries, keys, .. } = *self.problem;
        Form::contiguous(signed([batch, heads, queries, keys]))
    }

    /// One number for each query: [batch, heads, queries, 1].
    fn rows(&self) -> Form {
        let Problem { batch, heads, queries, .. } = *self.problem;
        let form = Form::contiguous(signed([batch, heads, queries, 1]));
        Form { strides: [form.strides[0], form.strides[1], 1, 1], ..form }
    }

    /// The product of queries and keys, times the scale.
    fn scaled_scores(&mut self, query: Node, key_transposed: Node, scale: Node) -> Result<Node> {
        let scores = self.graph.inner(DataType::F32, self.scores())?;
        self.graph.product(query, key_transposed, scores)?;
        self.graph.mapped(Pointwise::of_two(PointwiseMode::Mul, scores, scale), DataType::F32)
    }

    /// Scores where a query sees no later key.
    fn masked(&mut self, scores: Node) -> Result<Node> {
        let row = self.graph.mapped(Pointwise::index(scores, 2), DataType::I32)?;
        let column = self.graph.mapped(Pointwise::index(scores, 3), DataType::I32)?;
        let is_seen = Pointwise::of_two(PointwiseMode::GreaterEqual, row, column).in_type(DataType::Boolean);
        let is_seen = self.graph.mapped(is_seen, DataType::Boolean)?;
        let unseen = self.graph.number(ids::UNSEEN, DataType::F32)?;
        self.graph.mapped(Pointwise::select(scores, unseen, is_seen), DataType::F32)
    }

    fn forward(&mut self) -> Result<()> {
        let (query, key) = (self.heads(0)?, self.heads_transposed(1)?);
        let (value, out) = (self.heads(2)?, self.heads(3)?);
        let scale = self.graph.number(ids::SCALE, DataType::F32)?;
        let mut scores = self.scaled_scores(query, key, scale)?;
        if self.problem.is_causal {
            scores = self.masked(scores)?;
        }
        let top = self.graph.inner(DataType::F32, self.rows())?;
        self.graph.reduction(ReductionOperator::Max, scores, top)?;
        let below = self.graph.mapped(Pointwise::of_two(PointwiseMode::Sub, scores, top), DataType::F32)?;
        let exponentials = self.graph.mapped(Pointwise::of(PointwiseMode::Exp, below), DataType::F32)?;
        let sums = self.graph.inner(DataType::F32, self.rows())?;
        self.graph.reduction(ReductionOperator::Add, exponentials, sums)?;
        let logarithms = self.graph.mapped(Pointwise::of(PointwiseMode::Log, sums), DataType::F32)?;
        // The engines recognize the graph only with the sums in it. Where nobody reads them, they are not stored.
        let log_sums = match self.problem.pass.has_log_sums() {
            true => self.graph.stored(ids::LOG_SUMS, DataType::F32, self.rows())?,
            false => self.graph.inner(DataType::F32, self.rows())?,
        };
        self.graph.pointwise(Pointwise::of_two(PointwiseMode::Add, top, logarithms), log_sums)?;
        // Products take both operands in the type of elements.
        let weights = Pointwise::of_two(PointwiseMode::Div, exponentials, sums);
        let weights = self.graph.mapped(weights, self.dtype)?;
        self.graph.product(weights, value, out)
    }

    fn backward(&mut self) -> Result<()> {
        let query = self.heads(0)?;
        let (key, value) = (self.heads_transposed(1)?, self.heads_transposed(2)?);
        let (out, d_out) = (self.heads(3)?, self.heads(4)?);
        let (d_query, d_key, d_value) = (self.heads(5)?, self.heads(6)?, self.heads(7)?);
        let log_sums = self.graph.stored(ids::LOG_SUMS, DataType::F32, self.rows())?;
        let row_sums = self.graph.stored(ids::ROW_SUMS, DataType::F32, self.rows())?;
        let (scale, one) = (self.graph.number(ids::SCALE, DataType::F32)?, self.graph.number(ids::ONE, DataType::F32)?);

        // The sum of each row of d_out * out, which is that of its weights times their gradients.
        let contiguous = Form::contiguous(self.graph.form(d_out).extents);
        let both = self.graph.inner(DataType::F32, contiguous)?;
        self.graph.pointwise(Pointwise::of_two(PointwiseMode::Mul, d_out, out), both)?;
        let sums = self.graph.inner(DataType::F32, self.rows())?;
        self.graph.reduction(ReductionOperator::Add, both, sums)?;
        self.graph.pointwise(Pointwise::of_two(PointwiseMode::Mul, sums, one), row_sums)?;

        // The weights again, and the gradient of values.
        let scores = self.scaled_scores(query, key, scale)?;
        let mut logarithms =
            self.graph.mapped(Pointwise::of_two(PointwiseMode::Sub, scores, log_sums), DataType::F32)?;
        if self.problem.is_causal {
            logarithms = self.masked(logarithms)?;
        }
        let weights = self.graph.mapped(Pointwise::of(PointwiseMode::Exp, logarithms), DataType::F32)?;
        self.product_of_transposed(weights, d_out, d_value)?;

        // The gradient of scores, and that of keys.
        let d_weights = self.graph.inner(DataType::F32, self.scores())?;
        self.graph.product(d_out, value, d_weights)?;
        let centered = self.graph.mapped(Pointwise::of_two(PointwiseMode::Sub, d_weights, row_sums), DataType::F32)?;
        let d_scores = self.graph.mapped(Pointwise::of_two(PointwiseMode::Mul, centered, weights), DataType::F32)?;
        let d_scores = self.graph.mapped(Pointwise::of_two(PointwiseMode::Mul, d_scores, scale), DataType::F32)?;
        self.product_of_transposed(d_scores, query, d_key)?;

        // That of queries, straight into its place: with a sum of pieces in memory of f32 instead, the engine adds them
        // in any order.
        let key = self.graph.reshaped(key, self.dtype, self.graph.form(key).transposed())?;
        self.graph.product(d_scores, key, d_query)
    }

    /// `result = leftᵀ right` of each head, summed over the heads that share one of keys; `left` has the form of
    /// scores.
    fn product_of_transposed(&mut self, left: Node, right: Node, result: Node) -> Result<()> {
        let transposed = self.graph.reshaped(left, self.dtype, self.scores().transposed())?;
        let Problem { batch, heads, shared_heads, keys, width, .. } = *self.problem;
        if heads == shared_heads {
            return self.graph.product(transposed, right, result);
        }
        let of_each = self.graph.inner(self.dtype, Form::contiguous(signed([batch, heads, keys, width])))?;
        self.graph.product(transposed, right, of_each)?;
        self.graph.reduction(ReductionOperator::Add, of_each, result)
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::tests::good;
    use super::*;
    use crate::probe;

    /// Needs the library, but no device.
    #[test]
    fn the_library_takes_every_operation_of_the_graphs() {
        if !probe().cudnn.is_found() {
            return println!("skipped: {}", probe().cudnn);
        }
        for (pass, is_causal, count) in [
            (Pass::Forward, false, 10),
            (Pass::Forward, true, 14),
            (Pass::Alone, false, 10),
            (Pass::Alone, true, 14),
            (Pass::Backward, false, 19),
            (Pass::Backward, true, 23),
        ] {
            let problem = Problem { is_causal, ..good(pass) };
            let graph = graph_of(&problem).unwrap_or_else(|error| panic!("{problem}: {error}"));
            assert_eq!(graph.operations().len(), count, "{problem}");
        }
    }
}
