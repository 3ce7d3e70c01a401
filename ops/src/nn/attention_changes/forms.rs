//! Samples of what a problem changes about scores and weights.

use fulgurite_runtime::DType;
use fulgurite_runtime::testing::samples::{SampleTensor, Samples};

/// What a sample has beside plain attention.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Booleans for each query of each head.
    Booleans,
    /// Booleans of keys alone, as padding has them.
    Padding,
    /// Booleans of queries alone: some see nothing.
    Queries,
    /// Numbers for each head, the same for the batch; some queries see nothing.
    Numbers,
    /// The same, and some queries see only keys with numbers far below 0, beside which scores keep some digits. (Where
    /// they keep none, weights jump with every rounding of a mask, and responses say nothing of the whole gradient.)
    FarBelow,
    /// The last keys alone.
    Window,
    /// Keys of each of the batch, none of the second.
    Lengths,
    /// Scores that are capped.
    Cap,
    /// Weights that are dropped.
    Dropped,
    /// Weights that are dropped, of a part of a larger batch.
    DroppedPart,
    /// All these changes together.
    All,
}

/// What the form is made of.
#[derive(Default)]
pub struct Made {
    /// [2, heads, queries, keys], where extents may be 1.
    pub mask: Option<SampleTensor>,
    /// i32[2].
    pub lengths: Option<SampleTensor>,
    /// i64[2], or i64[3] of a part.
    pub generator: Option<SampleTensor>,
    /// Keys that a query sees.
    pub window: Option<i64>,
    /// What scores are bent to.
    pub cap: Option<f64>,
    /// The probability of a weight to be dropped.
    pub dropout_p: f64,
}

impl Form {
    /// Whether position i sees 0 to i.
    pub fn is_causal(self) -> bool {
        matches!(self, Form::Window | Form::All)
    }

    /// For a batch of 2.
    pub fn made(self, s: &Samples, [heads, queries, keys]: [usize; 3]) -> Made {
        let none = Made::default();
        let lengths = |of: [f64; 2]| Some(s.values([2], of).cast(DType::I32));
        match self {
            Form::Booleans => Made { mask: Some(s.booleans([2, heads, queries, keys])), ..none },
            Form::Padding => Made { mask: Some(s.booleans([2, 1, 1, keys])), ..none },
            Form::Queries => Made { mask: Some(s.booleans([2, 1, queries, 1])), ..none },
            Form::Numbers | Form::FarBelow => {
                let number = |i: usize| match (i / keys % queries, i % 5) {
                    (1 | 40, _) | (_, 3) => f64::NEG_INFINITY,
                    // The largest of them hides the others.
                    (2, _) if self == Form::FarBelow => -20_000.0 - 64.0 * (i % 3) as f64,
                    _ => (i * 37 % 101) as f64 / 32.0 - 1.5,
                };
                let numbers: Vec<f64> = (0..heads * queries * keys).map(number).collect();
                let mask = s.values([1, heads, queries, keys], numbers).cast(s.dtype());
                Made { mask: Some(mask), ..none }
            }
            Form::Window => Made { window: Some(queries as i64 / 3 + 1), ..none },
            Form::Lengths => Made { lengths: lengths([keys as f64 / 3.0, 0.0]), ..none },
            Form::Cap => Made { cap: Some(1.5), ..none },
            Form::Dropped => Made { generator: Some(s.integers(0, 1 << 20, [2])), dropout_p: 0.25, ..none },
            Form::DroppedPart => Made { generator: Some(s.integers(0, 1 << 20, [3])), dropout_p: 0.25, ..none },
            Form::All => Made {
                mask: Some(s.booleans([1, 1, queries, keys])),
                lengths: lengths([keys as f64 - 2.0, keys as f64 + 9.0]),
                generator: Some(s.integers(0, 1 << 20, [2])),
                window: Some(queries as i64 / 2 + 1),
                cap: Some(2.0),
                dropout_p: 0.125,
            },
        }
    }
}

/// Numbers that masks have for keys that are not seen, as elements of a type hold them: about -1e9, and the least one.
pub fn far_below(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (-3e4, -65_504.0),
        DType::BF16 => (-1e9, -3.389_531_389_251_535_5e38),
        DType::F64 => (-1e30, f64::MIN),
        _ => (-1e9, f64::from(f32::MIN)),
    }
}

/// A form, heads and those of keys, queries and keys, width. Of lengths of whole fours, threads draw four random
/// numbers at a time.
pub const FORMS: [(Form, [usize; 2], [usize; 2], usize); 20] = [
    (Form::Booleans, [2, 1], [19, 33], 8),
    (Form::Booleans, [2, 2], [150, 140], 64),
    (Form::Padding, [4, 2], [70, 150], 64),
    (Form::Numbers, [2, 2], [50, 45], 32),
    (Form::Numbers, [2, 1], [70, 130], 128),
    (Form::Window, [2, 2], [60, 40], 18),
    (Form::Window, [2, 1], [290, 290], 64),
    (Form::Window, [1, 1], [200, 200], 128),
    (Form::Lengths, [2, 1], [40, 72], 16),
    (Form::Lengths, [2, 2], [130, 290], 64),
    (Form::Cap, [2, 1], [40, 72], 64),
    (Form::Dropped, [2, 1], [33, 35], 32),
    (Form::Dropped, [2, 2], [140, 72], 64),
    (Form::Dropped, [1, 1], [70, 68], 128),
    (Form::DroppedPart, [2, 1], [33, 35], 32),
    (Form::DroppedPart, [2, 2], [140, 72], 64),
    (Form::All, [2, 1], [75, 84], 64),
    (Form::All, [2, 2], [40, 37], 128),
    (Form::FarBelow, [2, 2], [50, 45], 32),
    (Form::FarBelow, [2, 1], [70, 130], 128),
];
