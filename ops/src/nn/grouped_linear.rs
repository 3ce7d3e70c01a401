//! Rows that meet the matrix of their group alone.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use crate::prims;

/// `input[r] · weights[groups[r]]ᵀ` of each row r: input [N, in], one group for each row, groups [N], and a matrix for
/// each group, [out, in]; `turned` matrices are [in, out] and multiply as they are. out [N, out]. A row whose group has
/// no matrix is 0.
///
/// The decomposition multiplies all rows by all matrices. An executor that gathers the rows of each group does not.
#[operator(autocast = low)]
pub mod grouped_linear {
    fn grouped_linear(
        input: Tensor<Floating>,
        weights: Vec<Tensor<Floating>>,
        groups: Tensor<Integer>,
        #[default(false)] turned: bool,
    ) -> Tensor;

    fn meta(input: &TensorMeta, weights: &[TensorMeta], groups: &TensorMeta, turned: bool) -> Result<TensorMeta> {
        require!(input.rank() == 2, Rows, "input is {input}, expected [N, in]");
        let rows = input.shape()[0];
        let one_each = groups.shape() == [rows];
        require!(one_each, Groups, "groups is {groups}, expected one for each of {rows} rows");
        require!(!weights.is_empty(), NoWeights, "weights is empty, expected a matrix for each group");
        let first = &weights[0];
        let inner = if turned { 0 } else { 1 };
        let fits = first.rank() == 2 && first.shape()[inner] == input.shape()[1] && first.dtype() == input.dtype();
        require!(fits, Weights, "weights[0] is {first}, input {input}, expected matrices for its rows in one dtype");
        let same = weights.iter().position(|weight| weight != first);
        require!(
            same.is_none(),
            Weights,
            "weights[{}] differs from weights[0], which is {first}",
            same.unwrap_or_default()
        );
        Ok(input.with_shape([rows, first.shape()[1 - inner]]))
    }

    fn decomposition(input: Tensor, weights: Vec<Tensor>, groups: Tensor, turned: bool) -> Tensor {
        let products = weights.iter().enumerate().map(|(group, weight)| {
            let matrix = if turned { *weight } else { prims::permute(*weight, [1, 0]) };
            super::of_group(prims::matmul(input, matrix), groups, group)
        });
        products.reduce(prims::add).unwrap_or(input)
    }

    fn grad(Args { input, weights, groups, turned }: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = with(input, &weights, groups).turned(turned).call();
        (out, move |d_out: Tensor| {
            let (left, right) = if turned { (input, d_out) } else { (d_out, input) };
            Grads {
                input: with(d_out, &weights, groups).turned(!turned).call(),
                weights: super::grouped_outer(left, right, groups, weights.len()),
            }
        })
    }

    fn reference(input: &ArrayD<f64>, weights: Vec<&ArrayD<f64>>, groups: &ArrayD<i64>, turned: bool) -> ArrayD<f64> {
        let (rows, inputs) = (input.shape()[0], input.shape()[1]);
        let outputs = weights[0].shape()[if turned { 1 } else { 0 }];
        ArrayD::from_shape_fn(IxDyn(&[rows, outputs]), |at| {
            let group = usize::try_from(groups[[at[0]]]).ok().and_then(|group| weights.get(group));
            group.map_or(0.0, |weight| {
                let of = |i: usize| if turned { weight[[i, at[1]]] } else { weight[[at[1], i]] };
                (0..inputs).map(|i| input[[at[0], i]] * of(i)).sum()
            })
        })
    }

    fn samples(s: &mut Samples) {
        let call = |s: &Samples, [rows, inputs, outputs]: [usize; 3], groups: &[f64], count: usize, turned: bool| {
            let shape = if turned { [inputs, outputs] } else { [outputs, inputs] };
            let weights: Vec<_> = (0..count).map(|_| s.normal(shape)).collect();
            with(s.normal([rows, inputs]), weights, s.values([rows], groups).cast(DType::I64)).turned(turned)
        };
        // Group 1 has no row; all rows in one group; rows of no group; no rows; one group; extents of zero.
        let cases = [
            call(s, [5, 4, 3], &[2.0, 0.0, 3.0, 0.0, 2.0], 4, false),
            call(s, [5, 4, 3], &[2.0, 0.0, 3.0, 0.0, 2.0], 4, true),
            call(s, [4, 3, 6], &[1.0; 4], 3, false),
            call(s, [4, 8, 8], &[-1.0, 1.0, 2.0, 0.0], 2, false),
            call(s, [0, 3, 2], &[], 2, false),
            call(s, [3, 2, 5], &[0.0; 3], 1, true),
            call(s, [2, 0, 3], &[0.0, 1.0], 2, false),
            call(s, [2, 3, 0], &[0.0, 1.0], 2, false),
        ];
        for case in cases {
            s.case(case);
        }
        // Several tiles of a kernel, the last ones not full.
        for turned in [false, true] {
            let groups: Vec<f64> = (0..203).map(|row| f64::from(row * row % 7 % 5)).collect();
            s.case(call(s, [203, 72, 136], &groups, 6, turned));
        }
        let groups = s.values([3], [1.0, 0.0, 1.0]).cast(DType::I32);
        s.case(with(s.normal([3, 16]), [s.normal([24, 16]), s.normal([24, 16])], groups));
        // What is infinite in the matrix of one group stays there.
        for turned in [false, true] {
            let groups = s.values([2], [1.0, 0.0]).cast(DType::I64);
            let weights = [f64::INFINITY, 2.0].map(|number| s.values([1, 1], [number]));
            let infinite = with(s.values([2, 1], [1.0, 3.0]), weights, groups).turned(turned);
            s.case(infinite).forward_only("infinities have no differences");
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let groups = || e.integers(0, 2, [4]);
        let two = |shape: [usize; 2]| [e.normal(shape), e.normal(shape)];
        e.case(Rows, with(e.normal([4]), two([3, 4]), groups()), "expected [N, in]");
        e.case(Groups, with(e.normal([5, 2]), two([3, 2]), groups()), "expected one for each of 5 rows");
        e.case(NoWeights, with(e.normal([4, 2]), [], groups()), "weights is empty");
        e.case(Weights, with(e.normal([4, 2]), two([3, 4]), groups()), "expected matrices for its rows");
        let odd = [e.normal([3, 2]), e.normal([2, 2])];
        e.case(Weights, with(e.normal([4, 2]), odd, groups()), "weights[1] differs from weights[0]");
    }
}

/// The most groups of [`mod@grouped_outer`]: each is a result, and lines of its decomposition.
const MOST_GROUPS: usize = 1 << 16;

/// Of each of `count` groups `Σ left[r]ᵀ · right[r]` over its rows r: left [N, M], right [N, K], groups [N]; as many
/// matrices [M, K], 0 of a group without rows. The gradients of the matrices of [`mod@grouped_linear`].
#[operator(autocast = low)]
pub mod grouped_outer {
    fn grouped_outer(
        left: Tensor<Floating>,
        right: Tensor<Floating>,
        groups: Tensor<Integer>,
        count: usize,
    ) -> Vec<Tensor>;

    fn meta(left: &TensorMeta, right: &TensorMeta, groups: &TensorMeta, count: usize) -> Result<Vec<TensorMeta>> {
        let fits = left.rank() == 2 && right.rank() == 2 && left.shape()[0] == right.shape()[0];
        require!(
            fits && left.dtype() == right.dtype(),
            Rows,
            "left is {left}, right {right}, expected as many rows in one dtype"
        );
        let rows = left.shape()[0];
        let one_each = groups.shape() == [rows];
        require!(one_each, Groups, "groups is {groups}, expected one for each of {rows} rows");
        let most = super::MOST_GROUPS;
        require!((1..=most).contains(&count), Count, "count is {count}, expected 1 to {most} groups");
        Ok(vec![left.with_shape([left.shape()[1], right.shape()[1]]); count])
    }

    fn decomposition(left: Tensor, right: Tensor, groups: Tensor, count: usize) -> Vec<Tensor> {
        // Both, because 0 times an infinity of another group's row is NaN.
        let one = |group| {
            let [left, right] = [left, right].map(|rows| super::of_group(rows, groups, group));
            prims::matmul(prims::permute(left, [1, 0]), right)
        };
        (0..count).map(one).collect()
    }

    fn grad(Args { left, right, groups, count }: Args<Tensor>) -> (Vec<Tensor>, impl FnOnce(Vec<Tensor>) -> Grads) {
        (grouped_outer(left, right, groups, count), move |d_out: Vec<Tensor>| Grads {
            left: super::grouped_linear(right, &d_out, groups),
            right: super::grouped_linear::with(left, &d_out, groups).turned(true).call(),
        })
    }

    fn reference(left: &ArrayD<f64>, right: &ArrayD<f64>, groups: &ArrayD<i64>, count: usize) -> Vec<ArrayD<f64>> {
        let own = |group: usize| (0..groups.len()).filter(move |row| groups[[*row]] == group as i64);
        let one = |group: usize| {
            ArrayD::from_shape_fn(IxDyn(&[left.shape()[1], right.shape()[1]]), |at| {
                own(group).map(|row| left[[row, at[0]]] * right[[row, at[1]]]).sum()
            })
        };
        (0..count).map(one).collect()
    }

    fn samples(s: &mut Samples) {
        let call = |s: &Samples, [rows, m, k]: [usize; 3], groups: &[f64], count: usize| {
            with(s.normal([rows, m]), s.normal([rows, k]), s.values([rows], groups).cast(DType::I64), count)
        };
        let many: Vec<f64> = (0..203).map(|row| f64::from(row * row % 7 % 5)).collect();
        let cases = [
            call(s, [5, 4, 3], &[2.0, 0.0, 3.0, 0.0, 2.0], 4),
            call(s, [4, 3, 6], &[1.0; 4], 3),
            call(s, [4, 8, 8], &[-1.0, 1.0, 2.0, 0.0], 2),
            call(s, [0, 3, 2], &[], 2),
            call(s, [2, 0, 3], &[0.0, 1.0], 2),
            call(s, [203, 136, 72], &many, 6),
        ];
        for case in cases {
            s.case(case);
        }
        // What is infinite or NaN in one group stays there.
        let right = s.values([3, 1], [f64::INFINITY, 2.0, f64::NAN]);
        let groups = s.values([3], [0.0, 1.0, 2.0]).cast(DType::I64);
        s.case(with(s.values([3, 1], [1.0; 3]), right, groups, 3)).forward_only("infinities have no differences");
        let left = s.values([3, 1], [f64::INFINITY, 2.0, f64::NAN]);
        let groups = s.values([3], [0.0, 1.0, 2.0]).cast(DType::I64);
        s.case(with(left, s.values([3, 1], [1.0; 3]), groups, 3)).forward_only("infinities have no differences");
    }

    fn errors(e: &mut ErrorSamples) {
        let groups = || e.integers(0, 2, [4]);
        e.case(Rows, with(e.normal([4, 2]), e.normal([3, 2]), groups(), 2), "expected as many rows");
        e.case(Groups, with(e.normal([5, 2]), e.normal([5, 3]), groups(), 2), "expected one for each of 5 rows");
        e.case(Count, with(e.normal([4, 2]), e.normal([4, 3]), groups(), 0), "count is 0, expected 1 to 65536 groups");
        e.case(Count, with(e.normal([4, 2]), e.normal([4, 3]), groups(), 1 << 40), "count is 1099511627776");
    }
}

/// Rows of other groups as zeros.
#[track_caller]
fn of_group(rows: Tensor, groups: Tensor, group: usize) -> Tensor {
    own_rows(rows, prims::eq(groups, group as i64))
}

/// Rows that are not `own` [N] as zeros.
#[track_caller]
pub(crate) fn own_rows(rows: Tensor, own: Tensor) -> Tensor {
    prims::select(prims::broadcast_in_dim(own, rows.shape(), [0]), rows, 0.0)
}
