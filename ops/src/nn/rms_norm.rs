use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use crate::core::arrays::{array, values};
use crate::core::promotion::{accumulating, broadcast, cast};
use crate::prims;

fulgurite_runtime::attribute_enum! {
    /// What a normalization of f16 and bf16 rounds to the element type of the input before it rounds the result.
    pub enum Casting {
        /// Nothing: it is computed in f32, as in Gemma.
        Gemma = "gemma",
        /// The normalized row, which the weight then multiplies, as in Llama.
        Llama = "llama",
        /// The reciprocal root mean square of a row, and the normalized row.
        None = "none",
    }
}

/// Root-mean-square normalization over the trailing `normalized_shape` dimensions, computed in f32 for f16 and bf16:
/// `input / √(mean(input²) + eps) · (weight + offset)`; without `eps` it is the machine epsilon of the type computed
/// in. `casting` says what else is rounded to 16 bits; PyTorch has neither this nor `offset`. Zhang & Sennrich, 2019.
#[operator(
    cheap,
    torch = "nn.functional.rms_norm",
    autocast = full,
    waive(casting = "it decides where numbers of 16 bits are rounded, which a test allows")
)]
pub mod rms_norm {
    fn rms_norm(
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(None)] eps: Option<f64>,
        #[default(0.0)] offset: f64,
        #[default(Casting::Gemma)] casting: Casting,
    ) -> Tensor;

    fn meta(input: &TensorMeta, normalized_shape: &[usize], weight: Option<&TensorMeta>) -> Result<TensorMeta> {
        require!(
            !normalized_shape.is_empty() && input.shape().ends_with(normalized_shape),
            TrailingShape,
            "input has shape {:?}, expected it to end with {normalized_shape:?}, one dimension or more",
            input.shape()
        );
        if let Some(weight) = weight {
            require!(
                weight.shape() == normalized_shape,
                WeightShape,
                "weight has shape {:?}, expected {normalized_shape:?}",
                weight.shape()
            );
        }
        Ok(input.clone())
    }

    fn decomposition(Args { input, normalized_shape, weight, eps, offset, casting }: Args<Tensor>) -> Tensor {
        let rows = Rows::of(input, &normalized_shape);
        let x = rows.wide(input);
        let rstd = super::reciprocal_root(&rows, x, eps, casting);
        let mut y = rows.rounded_if(casting != Casting::Gemma, prims::mul(x, rows.spread(rstd)));
        if let Some(weight) = weight {
            y = prims::mul(y, rows.gain(weight, offset));
        }
        rows.narrowed(y)
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = args.call();
        let Args { input, normalized_shape, weight, eps, offset, casting } = args;
        let rows = Rows::of(input, &normalized_shape);
        let rstd = super::reciprocal_root(&rows, rows.wide(input), eps, casting);
        let casts = casting != Casting::Gemma;
        (out, move |d_out: Tensor| {
            let d = rows.wide(d_out);
            let scale = rows.spread(rstd);
            let normal = prims::mul(rows.wide(input), scale);
            let g = weight.map_or(d, |weight| rows.rounded_if(casts, prims::mul(d, rows.gain(weight, offset))));
            let along = prims::mul(normal, rows.spread(rows.mean(prims::mul(g, normal))));
            Grads {
                input: rows.narrowed(prims::mul(prims::sub(g, along), scale)),
                weight: weight.map(|weight| rows.column_sums(prims::mul(d, rows.rounded_if(casts, normal)), weight)),
            }
        })
    }

    fn reference(
        input: &ReferenceTensor,
        normalized_shape: &[usize],
        weight: Option<&ArrayD<f64>>,
        eps: Option<f64>,
        offset: f64,
    ) -> ArrayD<f64> {
        let columns: usize = normalized_shape.iter().product();
        let eps = eps.unwrap_or(input.dtype().accumulator().epsilon());
        let weight = weight.map(values);
        let mut out = Vec::with_capacity(input.floats().len());
        for row in values(input.floats()).chunks(columns.max(1)) {
            let root = (row.iter().map(|x| x * x).sum::<f64>() / columns as f64 + eps).sqrt();
            out.extend(row.iter().enumerate().map(|(i, x)| x / root * weight.as_ref().map_or(1.0, |w| w[i] + offset)));
        }
        array(input.shape(), out)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), [8]).weight(s.normal([8])).eps(1e-5));
        s.case(with(s.normal([4, 8]), [8]));
        s.case(with(s.normal([2, 3, 5]), [3, 5]).weight(s.normal([3, 5])));
        s.case(with(s.normal([7]), [7]).weight(s.normal([7])).eps(1e-2));
        s.case(with(s.normal([0, 4]), [4]).weight(s.normal([4])));
        s.case(with(s.normal([3, 515]), [515]).weight(s.normal([515])).eps(1e-6));
        s.case(with(s.values([2, 2], [1e-3, -1e-3, 1e3, 2e3]), [2]).eps(1e-5));
        let near_zero = || s.uniform(-1.0, 1.0, [8]);
        let cases = [
            with(s.normal([4, 8]), [8]).weight(near_zero()).eps(1e-5).offset(1.0),
            with(s.normal([4, 8]), [8]).weight(s.normal([8])).eps(1e-5).casting(Casting::Llama),
            with(s.normal([4, 8]), [8]).weight(near_zero()).eps(1e-5).offset(0.25).casting(Casting::None),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(TrailingShape, with(e.normal([4, 8]), [7]), "end with [7]");
        e.case(TrailingShape, with(e.normal([4, 8]), []), "one dimension or more");
        e.case(WeightShape, with(e.normal([4, 8]), [8]).weight(e.normal([7])), "weight has shape [7], expected [8]");
    }
}

/// `1 / √(mean(x²) + eps)` of every row.
#[track_caller]
fn reciprocal_root(rows: &Rows, x: Tensor, eps: Option<f64>, casting: Casting) -> Tensor {
    let mean = rows.mean(prims::mul(x, x));
    rows.rounded_if(casting == Casting::None, prims::rsqrt(prims::add(mean, eps.unwrap_or(x.dtype().epsilon()))))
}

/// A tensor as rows of the trailing dimensions that a normalization runs over.
#[derive(Debug, Clone)]
pub(crate) struct Rows {
    meta: fulgurite_runtime::TensorMeta,
    /// How many leading dimensions number the rows.
    leading: usize,
}

impl Rows {
    /// The rows of `input` over its trailing `shape`.
    pub(crate) fn of(input: Tensor, shape: &[usize]) -> Rows {
        let meta = input.meta();
        Rows { leading: meta.rank().saturating_sub(shape.len()), meta }
    }

    /// In the type computed in.
    #[track_caller]
    pub(crate) fn wide(&self, tensor: Tensor) -> Tensor {
        accumulating(tensor)
    }

    /// Back in the element type of the input.
    #[track_caller]
    pub(crate) fn narrowed(&self, tensor: Tensor) -> Tensor {
        cast(tensor, self.meta.dtype())
    }

    /// Rounded to the element type of the input, if it is asked for, in the type computed in.
    #[track_caller]
    fn rounded_if(&self, rounds: bool, tensor: Tensor) -> Tensor {
        if rounds { self.wide(self.narrowed(tensor)) } else { tensor }
    }

    /// What every normalized row is multiplied with, in the type computed in.
    #[track_caller]
    fn gain(&self, weight: Tensor, offset: f64) -> Tensor {
        let weight = cast(weight, self.meta.dtype().accumulator());
        self.per_column(if offset == 0.0 { weight } else { prims::add(weight, offset) })
    }

    /// The mean of every row.
    #[track_caller]
    pub(crate) fn mean(&self, x: Tensor) -> Tensor {
        let dims: Vec<usize> = (self.leading..self.meta.rank()).collect();
        let columns: usize = self.meta.shape()[self.leading..].iter().product();
        let total = prims::sum(x, dims);
        prims::mul(total, 1.0 / columns as f64)
    }

    /// A number of every row, for all of its elements.
    #[track_caller]
    pub(crate) fn spread(&self, row: Tensor) -> Tensor {
        prims::broadcast_in_dim(row, self.meta.shape(), (0..self.leading).collect::<Vec<_>>())
    }

    /// A parameter of every column, in the type computed in, for all rows.
    #[track_caller]
    pub(crate) fn per_column(&self, parameter: Tensor) -> Tensor {
        broadcast(cast(parameter, self.meta.dtype().accumulator()), self.meta.shape())
    }

    /// The sum over all rows, in the element type of `parameter`.
    #[track_caller]
    pub(crate) fn column_sums(&self, x: Tensor, parameter: Tensor) -> Tensor {
        let summed = match self.leading {
            0 => x,
            leading => prims::sum(x, (0..leading).collect::<Vec<_>>()),
        };
        cast(summed, parameter.dtype())
    }
}
