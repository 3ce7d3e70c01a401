use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use crate::core::arrays::{array, softmax_row};
use crate::core::promotion::{broadcast, cast};
use crate::core::{matmul, mean};
use crate::nn::{dropout, linear, softmax};
use crate::prims;
use crate::prims::checks;

/// Attention of several heads with its projections, as PyTorch's modules call it: `query` [L, N, E], `key` [S, N, K]
/// and `value` [S, N, V] (each without N for one item) are projected to E, divided into `num_heads` heads, attended,
/// and projected by `out_proj_weight` [E, E]. `in_proj_weight` [3E, E] and `in_proj_bias` [3E] hold the projections one
/// after another; with `use_separate_proj_weight` these are `q_proj_weight` [E, E], `k_proj_weight` [E, K] and
/// `v_proj_weight` [E, V], and K and V may differ from E. `bias_k` and `bias_v` [1, 1, E], or [E], are one more key and
/// value, and `add_zero_attn` adds those of zeros.
///
/// `key_padding_mask` [N, S] and `attn_mask` [L, S] or [N · heads, L, S] are booleans, true where nothing may be
/// attended to, or numbers that are added to the scores. The results are out [L, N, E] and, with `need_weights`, the
/// weights [N, L, S], the mean over the heads, or [N, heads, L, S] without `average_attn_weights`; a row that may
/// attend to nothing is NaN. In `training` weights are dropped with the probability `dropout_p` by `generator`. Vaswani
/// et al., 2017.
#[operator(
    torch = "nn.functional.multi_head_attention_forward",
    effects(random),
    tolerance(
        layout,
        dtype = f32,
        sample = 4,
        scaled = 1.0e-6,
        reason = "of expanded arrays all channels are equal, and the projection adds numbers that nearly cancel"
    )
)]
pub mod multi_head_attention_forward {
    fn multi_head_attention_forward(
        query: Tensor<Floating>,
        key: Tensor<Floating>,
        value: Tensor<Floating>,
        embed_dim_to_check: usize,
        num_heads: usize,
        in_proj_weight: Option<Tensor<Floating>>,
        in_proj_bias: Option<Tensor<Floating>>,
        bias_k: Option<Tensor<Floating>>,
        bias_v: Option<Tensor<Floating>>,
        add_zero_attn: bool,
        dropout_p: f64,
        out_proj_weight: Tensor<Floating>,
        out_proj_bias: Option<Tensor<Floating>>,
        #[default(true)] training: bool,
        #[default(None)] key_padding_mask: Option<Tensor>,
        #[default(true)] need_weights: bool,
        #[default(None)] attn_mask: Option<Tensor>,
        #[default(false)] use_separate_proj_weight: bool,
        #[default(None)] q_proj_weight: Option<Tensor<Floating>>,
        #[default(None)] k_proj_weight: Option<Tensor<Floating>>,
        #[default(None)] v_proj_weight: Option<Tensor<Floating>>,
        #[default(true)] average_attn_weights: bool,
        #[default(None)] generator: Option<Tensor<Integer>>,
    ) -> Vec<Tensor>;

    fn requires(args: Args<&TensorMeta>) -> Result<()> {
        let Args { query, key, value, num_heads: heads, embed_dim_to_check: width, .. } = args;
        let (q, k, v) = (query.shape(), key.shape(), value.shape());
        let rank = q.len();
        require!(
            (2..=3).contains(&rank) && k.len() == rank && v.len() == rank,
            Rank,
            "query has shape {q:?}, key {k:?}, value {v:?}, expected [length, batch, width] or [length, width] of all"
        );
        require!(
            k[..rank - 1] == v[..rank - 1] && q[1..rank - 1] == k[1..rank - 1],
            Shapes,
            "query has shape {q:?}, key {k:?}, value {v:?}, expected one batch, and one length of key and value"
        );
        require!(q[rank - 1] == width, Width, "query has width {}, expected {width}", q[rank - 1]);
        require!(
            heads > 0 && width.is_multiple_of(heads),
            Heads,
            "num_heads is {heads}, expected a divisor of {width}"
        );
        let (keys, values) = (k[rank - 1], v[rank - 1]);
        let needed =
            if args.use_separate_proj_weight { [false, true, true, true] } else { [true, false, false, false] };
        let weights = [
            ("in_proj_weight", args.in_proj_weight, vec![width.saturating_mul(3), width]),
            ("q_proj_weight", args.q_proj_weight, vec![width, width]),
            ("k_proj_weight", args.k_proj_weight, vec![width, keys]),
            ("v_proj_weight", args.v_proj_weight, vec![width, values]),
        ];
        for ((name, weight, shape), needed) in weights.into_iter().zip(needed) {
            if !needed {
                continue;
            }
            let given = weight.map(TensorMeta::to_string).unwrap_or("absent".into());
            let fits = weight.is_some_and(|weight| weight.shape() == shape && weight.dtype() == query.dtype());
            require!(fits, ProjectionWeight, "{name} is {given}, expected {shape:?} of {}", query.dtype());
        }
        require!(
            args.use_separate_proj_weight || (keys == width && values == width),
            Width,
            "key has width {keys}, value {values}, expected {width} without use_separate_proj_weight"
        );
        let others = [
            ("in_proj_bias", args.in_proj_bias, vec![width.saturating_mul(3)]),
            ("out_proj_weight", Some(args.out_proj_weight), vec![width, width]),
            ("out_proj_bias", args.out_proj_bias, vec![width]),
            ("key", Some(key), k.to_vec()),
            ("value", Some(value), v.to_vec()),
        ];
        for (name, given, shape) in others {
            let Some(given) = given else { continue };
            let fits = given.shape() == shape && given.dtype() == query.dtype();
            require!(fits, Parameter, "{name} is {given}, expected {shape:?} of {}", query.dtype());
        }
        for (name, given) in [("bias_k", args.bias_k), ("bias_v", args.bias_v)] {
            let Some(given) = given else { continue };
            let fits = [&[1, 1, width][..], &[width]].contains(&given.shape()) && given.dtype() == query.dtype();
            require!(fits, Parameter, "{name} is {given}, expected [1, 1, {width}] or [{width}] of {}", query.dtype());
        }
        let one = args.bias_k.is_some() == args.bias_v.is_some();
        require!(one, Bias, "one of bias_k and bias_v is given, expected both or none");
        let (length, positions) = (q[0], k[0]);
        let batch: &[usize] = &q[1..rank - 1];
        let items = batch.iter().product::<usize>();
        let masks = [
            ("key_padding_mask", args.key_padding_mask, [batch, &[positions]].concat()),
            ("attn_mask", args.attn_mask, vec![length, positions]),
        ];
        let of_heads = [items * heads, length, positions];
        for (name, mask, shape) in masks {
            let Some(mask) = mask else { continue };
            let fits = mask.shape() == shape || (name == "attn_mask" && mask.shape() == of_heads);
            let kind = mask.dtype() == DType::Bool || mask.dtype() == query.dtype();
            require!(fits && kind, Mask, "{name} is {mask}, expected {shape:?} of bool or {}", query.dtype());
        }
        let p = args.dropout_p;
        require!((0.0..=1.0).contains(&p), Probability, "dropout_p is {p}, expected a probability from 0 to 1");
        require!(
            !args.training || p == 0.0 || args.generator.is_some(),
            NeedsGenerator,
            "training with dropout_p = {p} draws random numbers: give a generator, i64[2] of seed and offset"
        );
        if let Some(generator) = args.generator {
            checks::generator(generator, Code::Generator)?;
        }
        Ok(())
    }

    fn decomposition(args: Args<Tensor>) -> Vec<Tensor> {
        let Args { query, key, value, embed_dim_to_check: width, num_heads: heads, in_proj_weight, .. } = args;
        let Args { in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, .. } = args;
        let Args { training, key_padding_mask, need_weights, attn_mask, use_separate_proj_weight, .. } = args;
        let Args { q_proj_weight, k_proj_weight, v_proj_weight, average_attn_weights, generator, .. } = args;
        let single = query.rank() == 2;
        let (length, positions) = (query.size(0), key.size(0));
        let items = if single { 1 } else { query.size(1) };
        let each = width / heads;
        let separate = [q_proj_weight, k_proj_weight, v_proj_weight];
        let projected = |x: Tensor, which: usize| {
            let part = |of: Tensor| crate::core::narrow(of, 0, (which * width) as i64, width);
            let weight = if use_separate_proj_weight { separate[which] } else { in_proj_weight.map(part) };
            let x = prims::reshape(x, [x.size(0), items, x.size(x.rank() as i64 - 1)]);
            // One of them is there, as the preconditions say.
            let weight = weight.unwrap_or(out_proj_weight);
            linear::with(x, weight).bias(in_proj_bias.map(part)).call()
        };
        let mut more = 0;
        let mut extended = |x: Tensor, bias: Option<Tensor>| {
            let mut parts = vec![x];
            parts.extend(bias.map(|bias| broadcast(bias, &[1, items, width])));
            if add_zero_attn {
                parts.push(prims::full([1, items, width], 0.0, x.dtype(), x.device()));
            }
            more = parts.len() - 1;
            if more == 0 { x } else { prims::cat(parts, 0) }
        };
        let q = projected(query, 0);
        let [k, v] = [(key, bias_k), (value, bias_v)]
            .into_iter()
            .enumerate()
            .map(|(i, (x, bias))| extended(projected(x, i + 1), bias))
            .collect::<Vec<_>>()[..]
        else {
            return Vec::new();
        };
        let all = positions + more;
        let divided = |x: Tensor| {
            let rows = prims::reshape(x, [x.size(0), items, heads, each]);
            prims::permute(rows, [1, 2, 0, 3])
        };
        let q = divided(prims::mul(q, 1.0 / (each as f64).sqrt()));
        let mut scores = matmul(q, prims::permute(divided(k), [0, 1, 3, 2]));
        let grid = [items, heads, length, all];
        let masks = [
            key_padding_mask.map(|mask| prims::reshape(mask, [items, 1, 1, positions])),
            attn_mask.map(|mask| match mask.rank() {
                2 => prims::reshape(mask, [1, 1, length, positions]),
                _ => prims::reshape(mask, [items, heads, length, positions]),
            }),
        ];
        for mask in masks.into_iter().flatten() {
            let nothing = mask.dtype() == DType::Bool;
            let to: Vec<usize> = mask.shape().iter().copied().collect();
            let mask = match more {
                0 => mask,
                _ => {
                    // What was added may be attended to.
                    let open = [to[0], to[1], to[2], more];
                    let open = match nothing {
                        true => prims::full(open, false, DType::Bool, mask.device()),
                        false => prims::full(open, 0.0, mask.dtype(), mask.device()),
                    };
                    prims::cat(vec![mask, open], 3)
                }
            };
            let mask = prims::broadcast_in_dim(mask, grid, [0, 1, 2, 3]);
            scores = match nothing {
                true => prims::select(mask, f64::NEG_INFINITY, scores),
                false => prims::add(scores, cast(mask, scores.dtype())),
            };
        }
        let weights = softmax(scores, -1);
        let dropped = dropout::with(weights).p(dropout_p).training(training).generator(generator).call();
        let attended = prims::permute(matmul(dropped, divided(v)), [2, 0, 1, 3]);
        let rows = prims::reshape(attended, [length, items, width]);
        let out = linear::with(rows, out_proj_weight).bias(out_proj_bias).call();
        let out = if single { prims::reshape(out, [length, width]) } else { out };
        if !need_weights {
            return vec![out];
        }
        let told = if average_attn_weights { mean::with(dropped).dim(vec![1]).call() } else { dropped };
        let shape = told.shape().to_vec();
        vec![out, if single { prims::reshape(told, &shape[1..]) } else { told }]
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<Vec<ArrayD<f64>>> {
        let (width, heads) = (args.embed_dim_to_check, args.num_heads);
        let rank = args.query.ndim();
        let (length, positions) = (args.query.shape()[0], args.key.shape()[0]);
        let items = if rank == 2 { 1 } else { args.query.shape()[1] };
        let each = width / heads;
        let separate = [args.q_proj_weight, args.k_proj_weight, args.v_proj_weight];
        let projected = |x: &ArrayD<f64>, which: usize| -> Vec<f64> {
            let own = x.shape()[rank - 1];
            let x: Vec<f64> = x.iter().copied().collect();
            let mut out = Vec::new();
            for row in x.chunks(own.max(1)) {
                for channel in 0..width {
                    let factor = |i: usize| match (args.use_separate_proj_weight, separate[which]) {
                        (true, Some(weight)) => weight[[channel, i]],
                        _ => args.in_proj_weight.map_or(0.0, |weight| weight[[which * width + channel, i]]),
                    };
                    let bias = args.in_proj_bias.map_or(0.0, |bias| bias[[which * width + channel]]);
                    out.push(row.iter().enumerate().map(|(i, x)| x * factor(i)).sum::<f64>() + bias);
                }
            }
            out
        };
        let extended = |mut x: Vec<f64>, bias: Option<&ArrayD<f64>>| {
            if let Some(bias) = bias {
                (0..items).for_each(|_| x.extend(bias.iter().copied()));
            }
            if args.add_zero_attn {
                x.extend(vec![0.0; items * width]);
            }
            x
        };
        let q = projected(args.query, 0);
        let k = extended(projected(args.key, 1), args.bias_k);
        let v = extended(projected(args.value, 2), args.bias_v);
        let all = positions + usize::from(args.bias_k.is_some()) + usize::from(args.add_zero_attn);
        let masked = |mask: Option<&ReferenceTensor>, at: &[usize]| match mask {
            Some(mask) if mask.dtype().is_floating() => mask.floats()[at],
            Some(mask) if mask.integers()[at] != 0 => f64::NEG_INFINITY,
            _ => 0.0,
        };
        let mut weights = ArrayD::zeros(IxDyn(&[items, heads, length, all]));
        for (n, h, i) in ndarray::indices((items, heads, length)) {
            let score = |j: usize| {
                let at = |x: &[f64], row: usize, channel: usize| x[(row * items + n) * width + h * each + channel];
                let product = (0..each).map(|c| at(&q, i, c) * at(&k, j, c)).sum::<f64>() / (each as f64).sqrt();
                if j >= positions {
                    return product;
                }
                let item = if rank == 2 { vec![j] } else { vec![n, j] };
                let head = match args.attn_mask.map(|mask| mask.shape().len()) {
                    Some(3) => vec![n * heads + h, i, j],
                    _ => vec![i, j],
                };
                product + masked(args.key_padding_mask, &item) + masked(args.attn_mask, &head)
            };
            let row = softmax_row(&(0..all).map(score).collect::<Vec<_>>());
            row.into_iter().enumerate().for_each(|(j, weight)| weights[[n, h, i, j]] = weight);
        }
        let p = args.dropout_p;
        if args.training && p == 1.0 {
            weights.fill(0.0);
        } else if let Some(generator) = args.generator.filter(|_| args.training && p > 0.0) {
            let drawn = crate::nn::draws(weights.shape(), DType::F32, generator)?;
            weights.zip_mut_with(&drawn, |w, u| *w = if *u < f64::from(p as f32) { 0.0 } else { *w / (1.0 - p) });
        }
        let mut out = Vec::new();
        for (i, n, channel) in ndarray::indices((length, items, width)) {
            let attended = |c: usize| -> f64 {
                (0..all).map(|j| weights[[n, c / each, i, j]] * v[(j * items + n) * width + c]).sum()
            };
            let row: f64 = (0..width).map(|c| attended(c) * args.out_proj_weight[[channel, c]]).sum();
            out.push(row + args.out_proj_bias.map_or(0.0, |bias| bias[[channel]]));
        }
        let mut results = vec![array(args.query.shape(), out)];
        if args.need_weights {
            let told = match args.average_attn_weights {
                true => weights.sum_axis(ndarray::Axis(1)) / heads as f64,
                false => weights,
            };
            let told = if rank == 2 { told.index_axis_move(ndarray::Axis(0), 0) } else { told };
            results.push(told);
        }
        Ok(results)
    }

    fn samples(s: &mut Samples) {
        let plain = |s: &Samples, shapes: [&[usize]; 2], width: usize, heads: usize| {
            let [q, k] = shapes.map(|shape| s.normal(shape));
            let weight = s.uniform(-0.5, 0.5, [3 * width, width]);
            let (value, out) = (s.normal(shapes[1]), s.uniform(-0.5, 0.5, [width, width]));
            with(
                q,
                k,
                value,
                width,
                heads,
                Some(weight),
                Some(s.normal([3 * width])),
                None,
                None,
                false,
                0.0,
                out,
                None,
            )
        };
        let call = plain(s, [&[3, 2, 4], &[5, 2, 4]], 4, 2);
        let nothing = s.values([2, 5], [0.0, 1.0, 0.0, 0.0, 1.0]).cast(DType::Bool);
        s.case(call.key_padding_mask(nothing).training(false));
        let call = plain(s, [&[3, 4], &[2, 4]], 4, 4).average_attn_weights(false);
        s.case(call.attn_mask(s.normal([3, 2])));
        let call = plain(s, [&[2, 3, 6], &[4, 3, 6]], 6, 2).need_weights(false);
        s.case(call.attn_mask(s.values([6, 2, 4], [0.0, 1.0, 0.0]).cast(DType::Bool)));
        // Parameters of their own, one more key, one of zeros, and dropped weights.
        let (q, k, v) = (s.normal([3, 2, 4]), s.normal([5, 2, 3]), s.normal([5, 2, 6]));
        let bias = || s.uniform(-1.0, 1.0, [1, 1, 4]);
        let (bias_k, bias_v) = (Some(bias()), Some(bias()));
        let (out, out_bias) = (s.uniform(-0.5, 0.5, [4, 4]), s.normal([4]));
        let call = with(q, k, v, 4, 2, None, None, bias_k, bias_v, true, 0.25, out, Some(out_bias));
        let call = call.use_separate_proj_weight(true).q_proj_weight(s.uniform(-0.5, 0.5, [4, 4]));
        let call = call.k_proj_weight(s.uniform(-0.5, 0.5, [4, 3])).v_proj_weight(s.uniform(-0.5, 0.5, [4, 6]));
        let call = call.key_padding_mask(s.values([2, 5], [0.0, 1.0, 0.0]).cast(DType::Bool));
        s.case(call.attn_mask(s.normal([3, 5])).generator(s.integers(0, 99, [2])));
        let out = s.uniform(-0.5, 0.5, [4, 4]);
        let (q, k, v) = (s.normal([2, 1, 4]), s.normal([3, 1, 4]), s.normal([3, 1, 4]));
        let weight = s.uniform(-0.5, 0.5, [12, 4]);
        s.case(with(q, k, v, 4, 1, Some(weight), None, None, None, true, 0.0, out, None));
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |width: usize, heads: usize, p: f64, bias: bool| {
            let input = || e.normal([3, 2, 4]);
            let bias = bias.then(|| e.normal([1, 1, 4]));
            let (weight, out) = (Some(e.normal([12, 4])), e.normal([4, 4]));
            with(input(), input(), input(), width, heads, weight, None, bias, None, false, p, out, None)
        };
        let good = || call(4, 2, 0.0, false);
        e.case(Rank, ARGUMENTS.key.set(good(), e.normal([3])), "key [3], value [3, 2, 4], expected [length, batch");
        let of_all = |shape: &[usize]| {
            let given = ARGUMENTS.key.set(ARGUMENTS.query.set(good(), e.normal(shape)), e.normal(shape));
            ARGUMENTS.value.set(given, e.normal(shape))
        };
        e.case(Rank, of_all(&[4]), "query has shape [4]");
        e.case(Rank, of_all(&[3, 2, 1, 4]), "query has shape [3, 2, 1, 4]");
        e.case(Rank, ARGUMENTS.value.set(good(), e.normal([3, 4])), "value [3, 4], expected [length, batch");
        e.case(Shapes, ARGUMENTS.key.set(good(), e.normal([3, 1, 4])), "expected one batch");
        e.case(Shapes, ARGUMENTS.value.set(good(), e.normal([3, 1, 4])), "expected one batch");
        e.case(Shapes, ARGUMENTS.value.set(good(), e.normal([2, 2, 4])), "one length of key and value");
        e.case(Shapes, ARGUMENTS.query.set(good(), e.normal([3, 1, 4])), "expected one batch");
        e.case(Width, call(5, 1, 0.0, false), "query has width 4, expected 5");
        e.case(Width, ARGUMENTS.value.set(good(), e.normal([3, 2, 5])), "key has width 4, value 5, expected 4");
        e.case(Heads, call(4, 3, 0.0, false), "num_heads is 3, expected a divisor of 4");
        let nothing = || e.normal([3, 2, 0]);
        let (weight, out) = (Some(e.normal([0, 0])), e.normal([0, 0]));
        let none = with(nothing(), nothing(), nothing(), 0, 0, weight, None, None, None, false, 0.0, out, None);
        e.case(Heads, none, "num_heads is 0, expected a divisor of 0");
        e.case(ProjectionWeight, good().use_separate_proj_weight(true), "q_proj_weight is absent, expected [4, 4]");
        let separate = || good().use_separate_proj_weight(true).q_proj_weight(e.normal([4, 4]));
        let narrow = || e.normal([4, 3]);
        e.case(ProjectionWeight, separate().k_proj_weight(narrow()), "k_proj_weight is f32[4, 3], expected [4, 4]");
        let of_values = separate().k_proj_weight(e.normal([4, 4])).v_proj_weight(narrow());
        e.case(ProjectionWeight, of_values, "v_proj_weight is f32[4, 3], expected [4, 4]");
        let other = ARGUMENTS.in_proj_weight.set(good(), Some(e.of(DType::F64, [12, 4])));
        e.case(ProjectionWeight, other, "in_proj_weight is f64[12, 4], expected [12, 4] of f32");
        let wide = ARGUMENTS.in_proj_weight.set(good(), Some(e.normal([4, 4])));
        e.case(ProjectionWeight, wide, "in_proj_weight is f32[4, 4], expected [12, 4] of f32");
        let out = ARGUMENTS.out_proj_weight.set(good(), e.normal([4, 3]));
        e.case(Parameter, out, "out_proj_weight is f32[4, 3], expected [4, 4] of f32");
        let other = ARGUMENTS.key.set(good(), e.of(DType::F64, [3, 2, 4]));
        e.case(Parameter, other, "key is f64[3, 2, 4], expected [3, 2, 4] of f32");
        let many = ARGUMENTS.bias_k.set(good(), Some(e.normal([2, 4])));
        e.case(Parameter, many, "bias_k is f32[2, 4], expected [1, 1, 4] or [4] of f32");
        let other = ARGUMENTS.bias_v.set(call(4, 2, 0.0, true), Some(e.of(DType::F64, [4])));
        e.case(Parameter, other, "bias_v is f64[4], expected [1, 1, 4] or [4] of f32");
        e.case(Bias, call(4, 2, 0.0, true), "one of bias_k and bias_v is given");
        e.case(Mask, good().attn_mask(e.normal([3, 2])), "attn_mask is f32[3, 2], expected [3, 3] of bool or f32");
        e.case(Mask, good().key_padding_mask(e.booleans([3])), "key_padding_mask is bool[3], expected [2, 3]");
        e.case(Probability, call(4, 2, 1.5, false), "dropout_p is 1.5, expected a probability from 0 to 1");
        e.case(NeedsGenerator, call(4, 2, 0.5, false), "give a generator");
        e.case(Generator, good().generator(e.integers(0, 9, [4])), "generator is i64[4]");
    }
}
