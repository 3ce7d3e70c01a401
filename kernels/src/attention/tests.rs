use super::{Dropped, Scores, attention_backward, attention_forward};
use crate::access::read_f64;
use crate::dtype::{DType, Element};
use crate::philox::{self, Numbers};
use crate::view::{TensorMut, TensorRef, contiguous_strides};

/// Numbers between -1 and 1.
fn noise(count: usize, seed: u32) -> Vec<f64> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 23) - 1.0
    };
    (0..count).map(|_| next()).collect()
}

struct Own<T> {
    data: Vec<T>,
    shape: Vec<usize>,
    strides: Vec<isize>,
}

impl<T: Element> Own<T> {
    fn new(shape: &[usize], values: &[f64]) -> Own<T> {
        let data = values.iter().map(|value| T::from_f64(*value)).collect();
        Own { data, shape: shape.to_vec(), strides: contiguous_strides(shape) }
    }
    fn noise(shape: &[usize], seed: u32) -> Own<T> {
        Own::new(shape, &noise(shape.iter().product(), seed))
    }
    /// What no kernel may leave.
    fn poison(shape: &[usize]) -> Own<T> {
        Own::new(shape, &vec![f64::NAN; shape.iter().product()])
    }
    fn view(&self) -> TensorRef<'_> {
        TensorRef::from_slice(&self.data, &self.shape, &self.strides)
    }
    fn view_mut(&mut self) -> TensorMut<'_> {
        TensorMut::from_slice(&mut self.data, &self.shape, &self.strides)
    }
    fn values(&self) -> Vec<f64> {
        read_f64(&self.view())
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    groups: usize,
    queries: usize,
    keys: usize,
    width: usize,
    value_width: usize,
    is_causal: bool,
    /// Extents of a mask.
    mask: Option<[usize; 4]>,
    more: More,
}

/// What changes scores and weights.
#[derive(Clone, Copy, Debug)]
struct More {
    /// The mask is of numbers.
    numbers: bool,
    lengths: Option<&'static [i64]>,
    window: Option<usize>,
    cap: Option<f64>,
    dropped: Option<f64>,
}

const NONE: More = More { numbers: false, lengths: None, window: None, cap: None, dropped: None };

const CASES: [Case; 20] = [
    case([1, 2, 2], [5, 7], [4, 4], false, None),
    case([2, 3, 3], [130, 130], [8, 8], true, None),
    case([1, 4, 2], [140, 300], [6, 9], true, None),
    case([1, 2, 1], [300, 140], [17, 16], true, None),
    case([2, 16, 8], [129, 257], [8, 8], false, None),
    case([2, 2, 2], [33, 150], [4, 4], false, Some([2, 1, 1, 150])),
    case([1, 2, 2], [131, 129], [4, 5], false, Some([1, 1, 131, 129])),
    case([2, 2, 1], [3, 5], [4, 4], false, Some([2, 2, 3, 5])),
    case([1, 1, 1], [1, 600], [32, 32], false, None),
    case([2, 2, 1], [40, 150], [4, 4], false, Some([1, 2, 40, 150])).with(More { numbers: true, ..NONE }),
    case([2, 2, 2], [130, 3], [4, 4], true, Some([2, 1, 1, 3])).with(More { numbers: true, ..NONE }),
    case([1, 2, 1], [300, 300], [8, 8], true, None).with(More { window: Some(70), ..NONE }),
    case([2, 8, 8], [290, 290], [4, 6], true, None).with(More { window: Some(140), ..NONE }),
    // The windows of the last queries end before the first key.
    case([1, 2, 2], [300, 20], [4, 4], true, None).with(More { window: Some(1), ..NONE }),
    // No keys of one of the batch.
    case([3, 2, 1], [20, 270], [4, 4], false, None).with(More { lengths: Some(&[131, -1, 999]), ..NONE }),
    case([2, 8, 8], [260, 270], [4, 4], true, None).with(More { lengths: Some(&[3, 200]), window: Some(9), ..NONE }),
    case([1, 2, 2], [33, 140], [8, 8], false, None).with(More { cap: Some(0.3), ..NONE }),
    case([2, 2, 1], [30, 131], [4, 4], false, None).with(More { dropped: Some(0.25), ..NONE }),
    case([1, 16, 16], [131, 70], [4, 4], true, None).with(More { dropped: Some(0.5), ..NONE }),
    case([2, 2, 2], [140, 150], [4, 4], true, Some([1, 1, 140, 150])).with(More {
        numbers: true,
        lengths: Some(&[149, 90]),
        window: Some(60),
        cap: Some(0.5),
        dropped: Some(0.125),
    }),
];

impl Case {
    const fn with(self, more: More) -> Case {
        Case { more, ..self }
    }

    fn dropped(&self) -> Option<Dropped> {
        self.more.dropped.map(|probability| Dropped { numbers: Numbers::new(7, 1 << 33).from(5), probability })
    }
}

const fn case(
    [batch, heads, groups]: [usize; 3],
    [queries, keys]: [usize; 2],
    [width, value_width]: [usize; 2],
    is_causal: bool,
    mask: Option<[usize; 4]>,
) -> Case {
    Case { batch, heads, groups, queries, keys, width, value_width, is_causal, mask, more: NONE }
}

/// Results: out, log_sums, d_query, d_key, d_value; operands; what is added to scores.
fn by_kernels<T: Element>(case: Case) -> ([Vec<f64>; 5], [Own<T>; 4], Vec<f64>) {
    let Case { batch, heads, groups, queries, keys, width, value_width, is_causal, mask, more } = case;
    let query = Own::<T>::noise(&[batch, heads, queries, width], 1);
    let key = Own::<T>::noise(&[batch, groups, keys, width], 2);
    let value = Own::<T>::noise(&[batch, groups, keys, value_width], 3);
    let d_out = Own::<T>::noise(&[batch, heads, queries, value_width], 4);
    let shape = mask.unwrap_or([1; 4]);
    let count: usize = shape.iter().product();
    // The first row of a mask with rows hides everything.
    let hides_all = |at: usize| shape[2] > 1 && at < shape[3];
    let seen: Vec<bool> = noise(count, 5).iter().enumerate().map(|(at, x)| *x > -0.3 && !hides_all(at)).collect();
    let strides = contiguous_strides(&shape);
    let bytes: Vec<u8> = seen.iter().map(|seen| u8::from(*seen)).collect();
    // SAFETY: a byte for each element, 0 or 1.
    let view = unsafe { TensorRef::new(DType::Bool, &shape, &strides, bytes.as_ptr()) };
    let low = f64::NEG_INFINITY;
    let numbers: Vec<f64> =
        seen.iter().zip(noise(count, 6)).map(|(seen, x)| if *seen { 2.0 * x } else { low }).collect();
    let numbers = Own::<T>::new(&shape, &numbers);
    let shape_of_lengths = [batch];
    let scores = Scores {
        mask: mask.map(|_| if more.numbers { numbers.view() } else { view }),
        lengths: more.lengths.map(|lengths| TensorRef::from_slice(lengths, &shape_of_lengths, &[1])),
        is_causal,
        window: more.window,
        cap: more.cap,
        dropped: case.dropped(),
        ..Scores::new(query.view(), key.view(), 0.7)
    };
    let mut out = Own::<T>::poison(&[batch, queries, heads, value_width]);
    let mut log_sums = Own::<f32>::poison(&[batch, heads, queries]);
    attention_forward(&scores, value.view(), out.view_mut(), log_sums.view_mut());
    let mut d_query = Own::<T>::poison(&[batch, queries, heads, width]);
    let mut d_key = Own::<T>::poison(&[batch, keys, groups, width]);
    let mut d_value = Own::<T>::poison(&[batch, keys, groups, value_width]);
    attention_backward(
        &scores,
        value.view(),
        d_out.view(),
        // As executors call it.
        (T::DTYPE == DType::F32).then(|| out.view()),
        log_sums.view(),
        d_query.view_mut(),
        d_key.view_mut(),
        d_value.view_mut(),
    );
    let results = [out.values(), log_sums.values(), d_query.values(), d_key.values(), d_value.values()];
    let of_booleans = seen.iter().map(|seen| if *seen { 0.0 } else { low });
    let added = match (mask, more.numbers) {
        (None, _) => vec![0.0],
        (Some(_), true) => numbers.values(),
        (Some(_), false) => of_booleans.collect(),
    };
    (results, [query, key, value, d_out], added)
}

/// The same by the definition, in f64.
fn by_definition<T: Element>(case: Case, operands: &[Own<T>; 4], added: &[f64]) -> [Vec<f64>; 5] {
    let Case { batch, heads, groups, queries, keys, width, value_width, is_causal, mask, more } = case;
    let [query, key, value, d_out] = operands.each_ref().map(Own::values);
    let shape = mask.unwrap_or([1; 4]);
    let mut results = [
        vec![0.0; batch * queries * heads * value_width],
        vec![0.0; batch * heads * queries],
        vec![0.0; batch * queries * heads * width],
        vec![0.0; batch * keys * groups * width],
        vec![0.0; batch * keys * groups * value_width],
    ];
    let mut drawn = Own::<f32>::poison(&[batch, heads, queries, keys]);
    let kept = case.dropped().map(|Dropped { numbers, probability }| {
        philox::uniform(drawn.view_mut(), numbers, 0.0, 1.0);
        drawn.values().into_iter().map(|u| if u >= probability { 1.0 / (1.0 - probability) } else { 0.0 }).collect()
    });
    let kept: Vec<f64> = kept.unwrap_or_else(|| vec![1.0; batch * heads * queries * keys]);
    for (b, h, i) in (0..batch).flat_map(|b| (0..heads).flat_map(move |h| (0..queries).map(move |i| (b, h, i)))) {
        let g = h / (heads / groups);
        let q = |e: usize| query[((b * heads + h) * queries + i) * width + e];
        let k = |j: usize, e: usize| key[((b * groups + g) * keys + j) * width + e];
        let v = |j: usize, e: usize| value[((b * groups + g) * keys + j) * value_width + e];
        let d = |e: usize| d_out[((b * heads + h) * queries + i) * value_width + e];
        let plus = |j: usize| {
            let at = [b, h, i, j].iter().zip(shape).fold(0, |at, (index, extent)| at * extent + index % extent);
            let is_hidden = is_causal && j > i
                || more.window.is_some_and(|window| j + window <= i)
                || more.lengths.is_some_and(|lengths| j as i64 >= lengths[b]);
            if is_hidden { f64::NEG_INFINITY } else { added[at] }
        };
        let product = |j: usize| 0.7 * (0..width).map(|e| q(e) * k(j, e)).sum::<f64>();
        let score = |j: usize| more.cap.map_or(product(j), |cap| cap * (product(j) / cap).tanh());
        let slope = |j: usize| more.cap.map_or(1.0, |cap| 1.0 - (product(j) / cap).tanh().powi(2));
        let largest = (0..keys).map(plus).fold(f64::NEG_INFINITY, f64::max);
        let base = if more.numbers && largest > f64::NEG_INFINITY { largest } else { 0.0 };
        let plus = |j: usize| plus(j) - base;
        let total: f64 = (0..keys).map(|j| (score(j) + plus(j)).exp()).sum();
        results[1][(b * heads + h) * queries + i] = if total == 0.0 { f64::INFINITY } else { total.ln() };
        let weight = |j: usize| if total == 0.0 { 0.0 } else { (score(j) + plus(j)).exp() / total };
        let kept = |j: usize| kept[((b * heads + h) * queries + i) * keys + j];
        let weights: Vec<f64> = (0..keys).map(weight).collect();
        let d_weight = |j: usize| kept(j) * (0..value_width).map(|e| d(e) * v(j, e)).sum::<f64>();
        let d_weights: Vec<f64> = (0..keys).map(d_weight).collect();
        let delta: f64 = weights.iter().zip(&d_weights).map(|(w, d)| w * d).sum();
        for j in 0..keys {
            let d_score = 0.7 * weights[j] * (d_weights[j] - delta) * slope(j);
            for e in 0..value_width {
                results[0][((b * queries + i) * heads + h) * value_width + e] += weights[j] * kept(j) * v(j, e);
                results[4][((b * keys + j) * groups + g) * value_width + e] += weights[j] * kept(j) * d(e);
            }
            for e in 0..width {
                results[2][((b * queries + i) * heads + h) * width + e] += d_score * k(j, e);
                results[3][((b * keys + j) * groups + g) * width + e] += d_score * q(e);
            }
        }
    }
    results
}

fn agrees<T: Element>(tolerance: f64) {
    CASES.into_iter().for_each(|case| agrees_in::<T>(case, tolerance));
}

fn agrees_in<T: Element>(case: Case, tolerance: f64) {
    let (found, operands, added) = by_kernels::<T>(case);
    let expected = by_definition(case, &operands, &added);
    for (name, (found, expected)) in
        ["out", "log_sums", "d_query", "d_key", "d_value"].iter().zip(found.iter().zip(&expected))
    {
        let largest = expected.iter().filter(|x| x.is_finite()).fold(1.0f64, |most, x| most.max(x.abs()));
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let same = found == expected || (found - expected).abs() <= tolerance * largest;
            assert!(same, "{case:?}: {name} at {at} is {found}, expected {expected}");
        }
    }
}

#[test]
fn results_and_gradients_are_those_of_the_definition() {
    agrees::<f32>(3e-6);
    agrees::<half::bf16>(1.0 / 128.0);
    agrees::<half::f16>(1.0 / 1024.0);
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for case in [CASES[2], CASES[4], CASES[13], CASES[18], CASES[19]] {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| by_kernels::<f32>(case).0)
        };
        assert_eq!(run(1), run(3));
    }
}

#[test]
fn operands_are_read_through_their_strides() {
    let case = CASES[1];
    let (expected, [query, key, value, _], _) = by_kernels::<f32>(case);
    let Case { batch, heads, queries, width, .. } = case;
    // Queries, keys and values of a position are beside each other: [batch, position, 3, head, width].
    let mut packed = vec![0f32; batch * queries * 3 * heads * width];
    let strides = [queries * 3 * heads * width, width, 3 * heads * width, 1].map(|stride| stride as isize);
    for (part, tensor) in [&query, &key, &value].into_iter().enumerate() {
        for (at, x) in tensor.data.iter().enumerate() {
            let (e, i, h, b) =
                (at % width, at / width % queries, at / width / queries % heads, at / width / queries / heads);
            packed[((b * queries + i) * 3 + part) * heads * width + h * width + e] = *x;
        }
    }
    let shape = [batch, heads, queries, width];
    let part = |part: usize| {
        let first = packed[part * heads * width..].as_ptr();
        // SAFETY: the last element of the last part is the last of the vector.
        unsafe { TensorRef::new(DType::F32, &shape, &strides, first.cast()) }
    };
    let scores = Scores { is_causal: true, ..Scores::new(part(0), part(1), 0.7) };
    let mut out = Own::<f32>::poison(&[batch, queries, heads, width]);
    let mut log_sums = Own::<f32>::poison(&[batch, heads, queries]);
    attention_forward(&scores, part(2), out.view_mut(), log_sums.view_mut());
    assert_eq!([out.values(), log_sums.values()], expected[..2]);
}

#[test]
fn scores_of_infinity_have_no_softmax_and_hidden_ones_are_zero() {
    let (query, value) = (Own::<f32>::new(&[1, 1, 1, 1], &[1.0]), Own::<f32>::new(&[1, 1, 2, 1], &[3.0, 5.0]));
    let run = |keys: [f64; 2], mask: Option<[u8; 2]>| {
        let key = Own::<f32>::new(&[1, 1, 2, 1], &keys);
        let mask = mask.as_ref();
        // SAFETY: two bytes.
        let mask = mask.map(|mask| unsafe { TensorRef::new(DType::Bool, &[1, 1, 1, 2], &[2, 2, 2, 1], mask.as_ptr()) });
        let scores = Scores { mask, ..Scores::new(query.view(), key.view(), 1.0) };
        let (mut out, mut sums) = (Own::<f32>::poison(&[1, 1, 1, 1]), Own::<f32>::poison(&[1, 1, 1]));
        attention_forward(&scores, value.view(), out.view_mut(), sums.view_mut());
        out.data[0]
    };
    let low = f64::NEG_INFINITY;
    assert!(run([low, low], None).is_nan(), "all scores are -infinity by themselves");
    assert_eq!(run([low, 1.0], None), 5.0);
    assert!(run([f64::INFINITY, 1.0], None).is_nan());
    assert_eq!(run([1.0, 1.0], Some([0, 0])), 0.0, "a mask hides both");
    assert_eq!(run([f64::NAN, 1.0], Some([0, 1])), 5.0, "a score that is hidden is not read");
    assert!(run([f64::NAN, 1.0], None).is_nan());
}

/// What changes the scores of one head.
#[derive(Clone, Copy, Default)]
struct How<'a> {
    mask: Option<TensorRef<'a>>,
    lengths: Option<TensorRef<'a>>,
    is_causal: bool,
    cap: Option<f64>,
}

/// Forward and backward of one head whose queries and keys have these numbers: out, d_query, d_key, d_value.
fn of_one_head(width: usize, query: &[f64], key: &[f64], how: How<'_>) -> [Vec<f64>; 4] {
    let (queries, keys) = (query.len() / width, key.len() / width);
    let query = Own::<f32>::new(&[1, 1, queries, width], query);
    let key = Own::<f32>::new(&[1, 1, keys, width], key);
    let value = Own::<f32>::new(&[1, 1, keys, 1], &(0..keys).map(|j| 1.0 / (1 + j) as f64).collect::<Vec<_>>());
    let d_out = Own::<f32>::new(&[1, 1, queries, 1], &vec![1.0; queries]);
    let (mut out, mut sums) = (Own::<f32>::poison(&[1, queries, 1, 1]), Own::<f32>::poison(&[1, 1, queries]));
    let How { mask, lengths, is_causal, cap } = how;
    let scores = Scores { mask, lengths, is_causal, cap, ..Scores::new(query.view(), key.view(), 1.0) };
    attention_forward(&scores, value.view(), out.view_mut(), sums.view_mut());
    let mut d_query = Own::<f32>::poison(&[1, queries, 1, width]);
    let mut d_key = Own::<f32>::poison(&[1, keys, 1, width]);
    let mut d_value = Own::<f32>::poison(&[1, keys, 1, 1]);
    let (attended, log_sums) = (Some(out.view()), sums.view());
    let [d_q, d_k, d_v] = [d_query.view_mut(), d_key.view_mut(), d_value.view_mut()];
    attention_backward(&scores, value.view(), d_out.view(), attended, log_sums, d_q, d_k, d_v);
    [out.values(), d_query.values(), d_key.values(), d_value.values()]
}

#[test]
fn numbers_far_below_zero_hide_keys_beside_others_and_round_scores() {
    let run = |numbers: [f64; 2], keys: [f64; 2]| {
        let mask = Own::<f32>::new(&[1, 1, 1, 2], &numbers);
        of_one_head(1, &[1.0], &keys, How { mask: Some(mask.view()), ..How::default() })
    };
    // Values are 1 and 1/2.
    let out = |numbers: [f64; 2]| run(numbers, [2.0, 1.0])[0][0];
    assert_eq!([out([-1e30, 0.0]), out([0.0, -1e30]), out([f64::NEG_INFINITY; 2])], [0.5, 1.0, 0.0]);
    // Units in the last place of -20,000 are 1/512.
    assert_eq!(run([-20_000.0; 2], [2.0, 1.0]), run([0.0, 0.0], [2.0, 1.0]));
    assert_eq!(run([-20_000.0; 2], [2.0003, 1.0])[0], run([0.0, 0.0], [2.0, 1.0])[0]);
    for far in [-1e9, -1e30, f64::from(f32::MIN)] {
        // Weights are halves: the gradient of a score is a quarter of the difference of the values.
        assert_eq!(run([far, far], [2.0, 1.0]), [vec![0.75], vec![0.125], vec![0.125, -0.125], vec![0.5; 2]], "{far}");
        assert_eq!(run([far, f64::NEG_INFINITY], [2.0, 1.0])[0], [1.0], "{far}");
    }
    assert_eq!(run([f64::from(f32::MIN), -1e9], [2.0, 1.0])[0], [0.5]);
    assert_eq!(run([-20_000.0, -20_010.0], [0.0, 0.0]), run([0.0, -10.0], [0.0, 0.0]));
    assert_eq!(run([-20_000.0, 0.0], [20_000.0, 0.0])[0], [0.75]);
}

#[test]
fn row_sums_of_weights_are_those_of_results_and_0_where_one_key_is_seen() {
    let [batch, heads, groups, queries, keys, width] = [1, 2, 1, 300, 300, 16];
    let [query, d_out] = [1, 4].map(|seed| Own::<half::bf16>::noise(&[batch, heads, queries, width], seed));
    let [key, value] = [2, 3].map(|seed| Own::<half::bf16>::noise(&[batch, groups, keys, width], seed));
    let scores = Scores { is_causal: true, ..Scores::new(query.view(), key.view(), 3.0) };
    let mut sums = Own::<f32>::poison(&[batch, heads, queries]);
    let mut attended = Own::<f32>::poison(&[batch, queries, heads, width]);
    attention_forward(&scores, value.view(), attended.view_mut(), sums.view_mut());
    let backward = |attended: Option<TensorRef<'_>>| {
        let mut d_query = Own::<f32>::poison(&[batch, queries, heads, width]);
        let [mut d_key, mut d_value] = [(); 2].map(|()| Own::<f32>::poison(&[batch, keys, groups, width]));
        let [d_q, d_k, d_v] = [d_query.view_mut(), d_key.view_mut(), d_value.view_mut()];
        attention_backward(&scores, value.view(), d_out.view(), attended, sums.view(), d_q, d_k, d_v);
        [d_query.values(), d_key.values(), d_value.values()]
    };
    let (of_weights, of_results) = (backward(None), backward(Some(attended.view())));
    for (found, expected) in of_weights.iter().flatten().zip(of_results.iter().flatten()) {
        assert!((found - expected).abs() < 1e-4, "{found}, expected {expected}");
    }
    assert_eq!(of_weights[0][..heads * width], vec![0.0; heads * width]);
}

#[test]
fn products_that_are_no_numbers_and_not_seen_have_no_gradient() {
    // The product of the second key is inf - inf.
    let (query, key) = ([3e20, 3e20], [1e-21, 0.0, 3e20, -3e20]);
    let (bytes, numbers) = ([1u8, 0], [0.0, f64::NEG_INFINITY]);
    // SAFETY: two bytes.
    let mask = unsafe { TensorRef::new(DType::Bool, &[1, 1, 1, 2], &[2, 2, 2, 1], bytes.as_ptr()) };
    let numbers = Own::<f32>::new(&[1, 1, 1, 2], &numbers);
    for cap in [None, Some(5.0)] {
        let lengths = TensorRef::from_slice(&[1u8], &[1], &[1]);
        let plain = of_one_head(2, &query, &key, How { mask: Some(mask), cap, ..How::default() });
        let by_length = of_one_head(2, &query, &key, How { lengths: Some(lengths), cap, ..How::default() });
        let causal = of_one_head(2, &query, &key, How { is_causal: true, cap, ..How::default() });
        assert_eq!((&plain, &plain), (&by_length, &causal));
        assert!(plain.iter().flatten().all(|value| value.is_finite()), "{cap:?} {plain:?}");
        assert_eq!(plain[0], [1.0]);
    }
    let by_number = of_one_head(1, &[1.0], &[1.0, 2.0], How { mask: Some(numbers.view()), ..How::default() });
    assert_eq!(by_number[0], [1.0]);
}

#[test]
fn capped_scores_keep_the_digits_of_their_slopes() {
    for (cap, score) in [(20.0, 3.0), (20.0, 150.0), (50.0, 500.0), (1e30, 3.0), (1e-30, 1.0)] {
        // Two keys of one score: weights of a half, for values of 1 and a half.
        let how = How { cap: Some(cap), ..How::default() };
        let [_, _, d_key, _] = of_one_head(1, &[1.0], &[score, score], how);
        let expected = 0.125 * (score / cap).cosh().recip().powi(2);
        assert!((d_key[0] - expected).abs() <= 1e-5 * expected, "{cap} {score}: {} {expected}", d_key[0]);
        assert_eq!(d_key[0], -d_key[1]);
    }
}

#[test]
fn masks_are_read_through_their_strides() {
    let numbers = [0.25f32, -1.0, 3.0];
    let halves = numbers.map(half::f16::from_f32);
    let run = |mask| of_one_head(1, &[1.0, -2.0], &[2.0, 1.0, 0.5], How { mask: Some(mask), ..How::default() });
    let ahead = Own::<f32>::new(&[1, 1, 1, 3], &[3.0, -1.0, 0.25]);
    // SAFETY: three numbers, from the last one on backwards, for both queries.
    let backwards = |dtype, first| unsafe { TensorRef::new(dtype, &[1, 1, 2, 3], &[0, 0, 0, -1], first) };
    assert_eq!(run(backwards(DType::F32, numbers[2..].as_ptr().cast())), run(ahead.view()));
    assert_eq!(run(backwards(DType::F16, halves[2..].as_ptr().cast())), run(ahead.view()));
    let (gapped, packed) = ([0u8, 9, 0, 9, 1, 9, 1, 9, 0, 9, 1], [1u8, 0, 1, 1, 0, 0]);
    // SAFETY: every second byte from the last one on backwards, and bytes one after another.
    let [gapped, packed] = unsafe {
        [
            TensorRef::new(DType::Bool, &[1, 1, 2, 3], &[7, -9, -6, -2], gapped[10..].as_ptr()),
            TensorRef::new(DType::Bool, &[1, 1, 2, 3], &[6, 6, 3, 1], packed.as_ptr()),
        ]
    };
    assert_eq!(run(gapped), run(packed));
}

#[test]
fn random_problems_are_those_of_the_definition() {
    let mut state = 12_345u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for _ in 0..40 {
        let length = |below: &mut dyn FnMut(usize) -> usize| match below(4) {
            0 => 1 + below(40),
            1 => 120 + below(20),
            2 => 250 + below(12),
            _ => 1 + below(300),
        };
        let (batch, groups) = (1 + below(2), [1, 2, 8][below(3)]);
        let heads = groups * (1 + below(2));
        let (queries, keys) = (length(&mut below), length(&mut below));
        let is_causal = below(2) == 0;
        let windows = [1, 2, 127, 128, 129, 1 + below(300), 100_000];
        let window = (is_causal && below(2) == 0).then(|| windows[below(7)]);
        let lengths = [0, 1, 127, 128, 129, 256, -5, 1 << 40, below(300) as i64];
        let lengths: Vec<i64> = (0..batch).map(|_| lengths[below(9)]).collect();
        let lengths: Option<&'static [i64]> = (below(2) == 0).then(|| &*lengths.leak());
        let mask = (below(2) == 0).then(|| [batch, heads, queries, keys].map(|extent| [1, extent][below(2)]));
        let (cap, dropped) = ([None, Some(0.5), Some(1e30), Some(20.0)][below(4)], [None, None, Some(0.3)][below(3)]);
        let more = More { numbers: below(2) == 0, lengths, window, cap, dropped };
        let widths = [1 + below(9), 1 + below(9)];
        agrees_in::<f32>(case([batch, heads, groups], [queries, keys], widths, is_causal, mask).with(more), 1e-5);
    }
}
