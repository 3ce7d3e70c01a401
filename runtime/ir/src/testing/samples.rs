//! Samples: the inputs on which an operator must agree with its reference, and those that it must refuse.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::Arc;

use fulgurite_kernels::DType;
use fulgurite_kernels::dtype::Element;

use crate::argument::{Arg, AttributeType, Operand, Scalar};
use crate::arithmetic::Arithmetic;
use crate::elementwise::is_mask;
use crate::meta::{Device, Dims, TensorMeta};
use crate::operator::{OperatorDef, ParamDef, ParamKind, RuleSet};
use crate::rules::{OperatorArguments, Precondition};

/// The domain on which an elementwise function is smooth and defined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Domain {
    low: f64,
    high: f64,
    special: bool,
}

impl Domain {
    /// Every real number; the special values are sampled as well.
    pub const ALL: Domain = Domain { low: -6.0, high: 6.0, special: true };
    /// Positive numbers.
    pub const POSITIVE: Domain = Domain { low: 1e-2, high: 9.0, special: true };

    /// Numbers between -1 and 1, away from both; the special values are sampled as well.
    pub const UNIT: Domain = Domain { low: -0.9, high: 0.9, special: true };

    /// Numbers from `low` to `high`; no special values.
    pub const fn range(low: f64, high: f64) -> Domain {
        Domain { low, high, special: false }
    }
}

/// The values of a sample tensor.
#[derive(Debug, Clone, PartialEq)]
enum Fill {
    Normal { mean: f64, deviation: f64 },
    Uniform { low: f64, high: f64 },
    Integers { low: i64, high: i64 },
    Values(Arc<[f64]>),
}

/// A tensor of a sample: shape, element type, and a description of its values. Equal descriptions give equal values.
#[derive(Clone, PartialEq)]
pub struct SampleTensor {
    shape: Dims,
    dtype: DType,
    fill: Fill,
    seed: u64,
}

impl SampleTensor {
    /// Shape and element type on `device`.
    pub fn meta(&self, device: Device) -> TensorMeta {
        TensorMeta::new(&self.shape, self.dtype, device)
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The same values in another element type.
    pub fn cast(mut self, dtype: DType) -> SampleTensor {
        self.dtype = dtype;
        self
    }

    /// The same kind of values in another shape.
    pub fn reshaped(mut self, shape: &[usize]) -> SampleTensor {
        self.shape = Dims::from_slice(shape);
        self
    }

    /// Values from `low` to `high` that depend on `seed`; integers and booleans where `dtype` has no others.
    pub fn uniform(shape: &[usize], dtype: DType, low: f64, high: f64, seed: u64) -> SampleTensor {
        SampleTensor { shape: Dims::from_slice(shape), dtype, fill: Fill::Uniform { low, high }, seed }
    }

    /// These values, repeated if there are too few.
    pub fn literal(shape: &[usize], dtype: DType, values: Arc<[f64]>) -> SampleTensor {
        SampleTensor { shape: Dims::from_slice(shape), dtype, fill: Fill::Values(values), seed: 0 }
    }

    /// Other values of the same kind.
    pub fn reseeded(mut self, seed: u64) -> SampleTensor {
        self.seed = seed;
        self
    }

    /// The same kind of values with `extent` of each extent in its place. Integers up to one of them are positions in a
    /// dimension of that extent: they stay within it.
    pub fn resized(mut self, extent: &dyn Fn(usize) -> usize) -> SampleTensor {
        self.shape.iter_mut().for_each(|own| *own = extent(*own));
        if let Fill::Integers { low, high } = &mut self.fill
            && let Ok(bound) = usize::try_from(*high)
        {
            *high = (extent(bound) as i64).max(*low + 1);
        }
        self
    }

    /// Everything that the values depend on, as text.
    pub fn description(&self) -> String {
        format!("{self:?} {:?} {}", self.fill, self.seed)
    }

    /// The values in row-major order, each exactly representable in the element type. Of complex numbers the real and
    /// the imaginary part of each, one after the other.
    pub fn values(&self) -> Vec<f64> {
        let len: usize = self.dtype.parts() * self.shape.iter().product::<usize>();
        let mut random = Random::new(self.seed);
        (0..len)
            .map(|i| {
                let value = match &self.fill {
                    Fill::Normal { mean, deviation } if self.dtype.is_differentiable() => {
                        mean + deviation * random.normal()
                    }
                    Fill::Normal { mean, deviation } => (mean + 4.0 * deviation * random.normal()).round(),
                    Fill::Uniform { low, high } => low + (high - low) * random.unit(),
                    Fill::Integers { low, high } => (low + (random.next() % (high - low).max(1) as u64) as i64) as f64,
                    Fill::Values(values) => values.get(i % values.len().max(1)).copied().unwrap_or(0.0),
                };
                round_to(value, self.dtype)
            })
            .collect()
    }
}

impl fmt::Debug for SampleTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.meta(Device::CPU))
    }
}

/// The nearest value that `dtype` holds; unsigned integers take the magnitude, booleans whether the value is positive.
pub fn round_to(value: f64, dtype: DType) -> f64 {
    match dtype {
        DType::Bool => f64::from(u8::from(value > 0.0)),
        DType::I64 => value.trunc(),
        DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::U32 | DType::I32 => {
            let value = if dtype.is_unsigned() { value.abs() } else { value };
            let (least, largest) = dtype.limits().unwrap_or_default();
            value.trunc().clamp(least as f64, largest as f64)
        }
        DType::F16 => half::f16::from_f32(value as f32).to_f64(),
        DType::BF16 => half::bf16::from_f32(value as f32).to_f64(),
        DType::F32 | DType::C64 => f32::from_f64(value).to_f64(),
        DType::F64 | DType::C128 => value,
    }
}

/// SplitMix64: a tiny generator for test data alone.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator of its own sequence for each seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (Box-Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (2.0 * std::f64::consts::PI * self.unit()).cos()
    }
}

/// One sample: arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Arguments in the order of the signature.
    pub arguments: Vec<Arg<SampleTensor>>,
    /// Why gradients are not checked here, if they are not (a kink, an infinity, ...).
    pub forward_only: Option<&'static str>,
    /// The stated gradients, if any; see [`Sample::gradients`].
    pub gradients: Option<Vec<Vec<f64>>>,
}

impl Sample {
    /// Excludes the sample from the gradient templates, with the reason.
    pub fn forward_only(&mut self, reason: &'static str) -> &mut Sample {
        self.forward_only = Some(reason);
        self
    }

    /// States the gradients of the floating-point tensors among the arguments, one after the other in row-major order,
    /// for cotangents of 1, 2, 3, ... in row-major order of each floating-point result. For samples where central
    /// differences do not apply: at kinks, and where a gradient is by definition not that of the function. Zeros are
    /// stated with their signs.
    pub fn gradients<const N: usize>(&mut self, gradients: [&[f64]; N]) -> &mut Sample {
        self.gradients = Some(gradients.map(<[f64]>::to_vec).into());
        self
    }
}

/// Makes tensors for samples; each call draws new values.
#[derive(Debug)]
struct Source {
    dtype: DType,
    drawn: Cell<u64>,
}

impl Source {
    fn tensor(&self, shape: &[usize], dtype: DType, fill: Fill) -> SampleTensor {
        let seed = self.drawn.get();
        self.drawn.set(seed + 1);
        SampleTensor { shape: Dims::from_slice(shape), dtype, fill, seed }
    }
}

/// Collects the samples of an operator for one element type.
#[derive(Debug)]
pub struct Samples {
    operator: Option<&'static OperatorDef>,
    source: Source,
    cases: Vec<Sample>,
}

macro_rules! tensor_sources {
    ($type:ident) => {
        impl $type {
            /// The element type that the samples are made for.
            pub fn dtype(&self) -> DType {
                self.source.dtype
            }
            /// Standard normal values (small integers, booleans for those types) of the element type at hand.
            pub fn normal(&self, shape: impl AsRef<[usize]>) -> SampleTensor {
                self.source.tensor(shape.as_ref(), self.source.dtype, Fill::Normal { mean: 0.0, deviation: 1.0 })
            }
            /// Values from `low` to `high` of the element type at hand.
            pub fn uniform(&self, low: f64, high: f64, shape: impl AsRef<[usize]>) -> SampleTensor {
                self.source.tensor(shape.as_ref(), self.source.dtype, Fill::Uniform { low, high })
            }
            /// `i64` values from `low` up to, not including, `high`.
            pub fn integers(&self, low: i64, high: i64, shape: impl AsRef<[usize]>) -> SampleTensor {
                self.source.tensor(shape.as_ref(), DType::I64, Fill::Integers { low, high })
            }
            /// Booleans, about half of them true.
            pub fn booleans(&self, shape: impl AsRef<[usize]>) -> SampleTensor {
                self.source.tensor(shape.as_ref(), DType::Bool, Fill::Normal { mean: 0.0, deviation: 1.0 })
            }
            /// The given values in row-major order (repeated if there are too few), of the element type at hand.
            pub fn values(&self, shape: impl AsRef<[usize]>, values: impl AsRef<[f64]>) -> SampleTensor {
                self.source.tensor(shape.as_ref(), self.source.dtype, Fill::Values(values.as_ref().into()))
            }
            /// A tensor of another element type, normally distributed.
            pub fn of(&self, dtype: DType, shape: impl AsRef<[usize]>) -> SampleTensor {
                self.source.tensor(shape.as_ref(), dtype, Fill::Normal { mean: 0.0, deviation: 1.0 })
            }
        }
    };
}
tensor_sources!(Samples);
tensor_sources!(ErrorSamples);

impl Samples {
    /// An empty collection for `operator` in `dtype`.
    pub fn new(operator: Option<&'static OperatorDef>, dtype: DType) -> Samples {
        Samples { operator, source: Source { dtype, drawn: Cell::new(1) }, cases: Vec::new() }
    }

    /// For an operator that takes numbers as operands, adds the declared calls with a number for each such
    /// operand. They come last and draw no values, so that the calls before them do not change.
    pub(crate) fn add_numbers(&mut self, operator: &OperatorDef) {
        if Arithmetic::of(operator).scalar.is_none() {
            return self.add_numbers_to_rounded(operator);
        }
        let of_tensors = |sample: &&Sample| {
            let mut tensors = sample.arguments.iter().flat_map(Arg::tensors);
            tensors.all(|tensor| tensor.shape.iter().product::<usize>() > 1)
        };
        let usual = self.cases.iter().find(|sample| sample.forward_only.is_none() && of_tensors(sample));
        let special = self.cases.iter().find(|sample| sample.forward_only.is_some());
        let places =
            || (0..operator.params.len()).filter(|i| matches!(operator.params[*i].kind, ParamKind::Operand(_)));
        let sources = usual.into_iter().chain(special).filter(|_| Arithmetic::of(operator).scalar.is_some());
        let made = sources.flat_map(|sample| {
            places().filter_map(|place| {
                let Arg::Tensor(tensor) = &sample.arguments[place] else { return None };
                let mut sample = Sample { gradients: None, ..sample.clone() };
                sample.arguments[place] = Arg::Attribute(number_among(tensor)?.to_attribute());
                Some(sample)
            })
        });
        let made: Vec<Sample> = made.collect();
        self.cases.extend(made);
    }

    /// As [`Samples::add_numbers`] for an operator that is no arithmetic itself: for each operand, the first call that
    /// has a tensor there and another beside it, with a number that floating-point types of less than 64 bits round.
    fn add_numbers_to_rounded(&mut self, operator: &OperatorDef) {
        let dtype = self.dtype();
        let beside = |sample: &Sample, place: usize| {
            let others = operator.params.iter().zip(&sample.arguments).enumerate().filter(|(i, _)| *i != place);
            let mut others =
                others.filter(|(_, (param, _))| !is_mask(param)).flat_map(|(_, (_, other))| other.tensors());
            others.next().is_some_and(|first| first.dtype == dtype && others.next().is_none())
        };
        let places = (0..operator.params.len()).filter(|i| matches!(operator.params[*i].kind, ParamKind::Operand(_)));
        let made = places.filter_map(|place| {
            let (sample, number) = self.cases.iter().find_map(|sample| match &sample.arguments[place] {
                Arg::Tensor(tensor) if tensor.dtype == dtype && dtype.is_floating() && beside(sample, place) => {
                    Some((sample, number_among(tensor)?))
                }
                _ => None,
            })?;
            let mut sample = Sample { gradients: None, ..sample.clone() };
            sample.arguments[place] = Arg::Attribute(number.to_attribute());
            Some(sample)
        });
        let made: Vec<Sample> = made.collect();
        self.cases.extend(made);
    }

    /// The collected samples.
    pub fn into_cases(self) -> Vec<Sample> {
        self.cases
    }

    /// Adds a call, written with the operator's own builder.
    pub fn case(&mut self, arguments: impl OperatorArguments<SampleTensor>) -> &mut Sample {
        self.arguments(arguments.into_arguments())
    }

    /// Adds a call as a plain list of arguments.
    pub fn arguments(&mut self, arguments: Vec<Arg<SampleTensor>>) -> &mut Sample {
        self.cases.push(Sample { arguments, forward_only: None, gradients: None });
        self.cases.last_mut().expect("just pushed")
    }

    /// The arguments of `self.operator` with `tensors` for its tensors (in order) and defaults for the rest.
    fn with_defaults(&self, tensors: Vec<SampleTensor>) -> Vec<Arg<SampleTensor>> {
        let mut tensors = tensors.into_iter();
        let operator = self.operator.expect("families of samples are for an operator's declaration");
        operator
            .params
            .iter()
            .map(|param| match param.kind {
                ParamKind::Tensor(_) => Arg::Tensor(tensors.next().unwrap_or_else(|| {
                    panic!("{} takes more tensors than this family has: add calls with `s.case`", operator.name)
                })),
                ParamKind::Operand(_) => tensors.next().map_or_else(|| param.default_argument(), Arg::Tensor),
                _ => param.default_argument(),
            })
            .collect()
    }

    /// The usual shapes for a function of one tensor: scalar, vector, matrix, odd and large sizes, empty; and the
    /// special values where the domain has them.
    pub fn elementwise_unary(&mut self, domain: Domain) {
        for shape in [&[][..], &[1], &[7], &[4, 8], &[3, 1, 5], &[0, 3], &[2051]] {
            let tensor = self.uniform(domain.low, domain.high, shape);
            let arguments = self.with_defaults(vec![tensor]);
            self.arguments(arguments);
        }
        if domain.special && self.dtype().is_floating() {
            let special = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 30.0, -30.0, 1e-6];
            let tensor = self.values([special.len()], special);
            let arguments = self.with_defaults(vec![tensor]);
            self.arguments(arguments).forward_only("special values");
        }
    }

    /// A zero-dimensional, an empty and an odd-sized tensor, and the special values where the domain has them: enough
    /// for a function of one tensor that is composed of elementwise prims, which have samples of every shape.
    pub fn composed_unary(&mut self, domain: Domain) {
        for shape in [&[][..], &[0, 3], &[5, 7]] {
            let tensor = self.uniform(domain.low, domain.high, shape);
            let arguments = self.with_defaults(vec![tensor]);
            self.arguments(arguments);
        }
        if domain.special && self.dtype().is_floating() {
            let special = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 30.0, -30.0, 1e-6, 3.0];
            let tensor = self.values([special.len()], special);
            let arguments = self.with_defaults(vec![tensor]);
            self.arguments(arguments).forward_only("special values");
        }
    }

    /// As [`Samples::composed_unary`] for a function of two tensors, which broadcast.
    pub fn composed_binary(&mut self, left: Domain, right: Domain) {
        for (a, b) in [(&[][..], &[][..]), (&[0, 3], &[1]), (&[3, 1, 5], &[7, 5])] {
            let (a, b) = (self.uniform(left.low, left.high, a), self.uniform(right.low, right.high, b));
            let arguments = self.with_defaults(vec![a, b]);
            self.arguments(arguments);
        }
        if left.special && right.special && self.dtype().is_floating() {
            let (infinity, nan) = (f64::INFINITY, f64::NAN);
            let a = [0.0, -0.0, 1.0, infinity, -infinity, nan, 3.0, infinity, 0.0, -2.0, -infinity, 5.0];
            let b = [0.0, 2.0, nan, 1.0, 1.0, 1.0, -2.0, infinity, -3.0, -infinity, -infinity, 5.0];
            let (a, b) = (self.values([a.len()], a), self.values([b.len()], b));
            let arguments = self.with_defaults(vec![a, b]);
            self.arguments(arguments).forward_only("special values");
        }
    }

    /// As [`Samples::elementwise_unary`] for a function of two tensors of one shape.
    pub fn elementwise_binary(&mut self, left: Domain, right: Domain) {
        for shape in [&[][..], &[1], &[7], &[4, 8], &[3, 1, 5], &[0, 3], &[2051]] {
            let a = self.uniform(left.low, left.high, shape);
            let b = self.uniform(right.low, right.high, shape);
            let arguments = self.with_defaults(vec![a, b]);
            self.arguments(arguments);
        }
        if left.special && right.special && self.dtype().is_floating() {
            let a = [0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3.0, f64::INFINITY, 0.0];
            let b = [0.0, 2.0, f64::NAN, 1.0, 1.0, 1.0, -2.0, f64::INFINITY, -3.0];
            let (a, b) = (self.values([a.len()], a), self.values([b.len()], b));
            let arguments = self.with_defaults(vec![a, b]);
            self.arguments(arguments).forward_only("special values");
        }
    }
}

/// A number near the second element of a tensor: one that a type with fewer bits than f64 has to round, if any.
fn number_among(tensor: &SampleTensor) -> Option<Scalar> {
    let value = *tensor.values().get(1)?;
    Some(match tensor.dtype {
        DType::Bool => Scalar::Bool(value != 0.0),
        dtype if dtype.is_integer() => Scalar::Int(value as i64),
        _ => {
            let number = value * (1.0 + 0.3 * tensor.dtype.epsilon());
            Scalar::Float(if tensor.dtype.nearest(number) == value { number } else { value })
        }
    })
}

/// One error sample: a call that must fail, with its code and message.
#[derive(Debug, Clone)]
pub struct ErrorSample {
    /// The precondition that must fail, or the code of the failure when the call runs.
    pub code: &'static str,
    /// Arguments in the order of the signature.
    pub arguments: Vec<Arg<SampleTensor>>,
    /// What the message must contain.
    pub message: &'static str,
}

/// Collects the error samples of an operator.
#[derive(Debug)]
pub struct ErrorSamples {
    source: Source,
    // Cases are added through a shared reference, so that helpers of a rule may keep making tensors meanwhile.
    cases: RefCell<Vec<ErrorSample>>,
    runs: RefCell<Vec<ErrorSample>>,
}

impl ErrorSamples {
    /// An empty collection of samples made in `dtype`.
    pub fn new(dtype: DType) -> ErrorSamples {
        let source = Source { dtype, drawn: Cell::new(1) };
        ErrorSamples { source, cases: RefCell::default(), runs: RefCell::default() }
    }

    /// The calls that must fail when they are traced.
    pub fn into_cases(self) -> Vec<ErrorSample> {
        self.cases.into_inner()
    }

    /// The calls that must fail when they run.
    pub fn into_runs(self) -> Vec<ErrorSample> {
        self.runs.into_inner()
    }

    /// The error samples of an elementwise operator whose meta is the library's: its first sample of two tensors, with
    /// another shape and another element type of the last one; and with numbers, where it takes any.
    pub fn elementwise(&mut self, operator: &'static OperatorDef) {
        let accepts = |dtype: &DType| Samples::of_operator(operator, *dtype).iter().any(|s| classes_fit(operator, s));
        let dtype = std::iter::once(self.dtype()).chain(DType::ALL).find(accepts);
        for dtype in dtype.into_iter().chain([DType::U8].into_iter().filter(accepts)) {
            self.numbers(operator, dtype);
        }
        let samples = dtype.map(|dtype| Samples::of_operator(operator, dtype)).unwrap_or_default();
        let Some((sample, last)) = samples.into_iter().find_map(|sample| {
            let tensors = sample.arguments.iter().map(|argument| argument.tensors().len());
            let last = tensors.clone().rposition(|count| count > 0)?;
            (tensors.sum::<usize>() > 1).then_some((sample, last))
        }) else {
            return;
        };
        let changed = |change: &dyn Fn(&mut SampleTensor)| {
            let mut sample = sample.clone();
            match &mut sample.arguments[last] {
                Arg::Tensor(tensor) | Arg::Optional(Some(tensor)) => change(tensor),
                Arg::List(tensors) => tensors.last_mut().into_iter().for_each(change),
                _ => {}
            }
            sample
        };
        let shape = changed(&|tensor| tensor.shape.push(2));
        self.cases.borrow_mut().push(ErrorSample {
            code: "ShapeMismatch",
            arguments: shape.arguments,
            message: "has shape",
        });
        let others = DType::ALL.into_iter().map(|dtype| changed(&|tensor: &mut SampleTensor| tensor.dtype = dtype));
        let unlike = |other: &Sample| other.arguments[last] != sample.arguments[last] && classes_fit(operator, other);
        if let Some(other) = others.into_iter().find(unlike) {
            self.cases.borrow_mut().push(ErrorSample {
                code: "DTypeMismatch",
                arguments: other.arguments,
                message: "has dtype",
            });
        }
    }

    /// Calls with numbers that no tensor of `dtype` could hold, and with numbers alone.
    fn numbers(&self, operator: &'static OperatorDef, dtype: DType) {
        let places: Vec<usize> =
            (0..operator.params.len()).filter(|i| matches!(operator.params[*i].kind, ParamKind::Operand(_))).collect();
        let Some(sample) = Samples::of_operator(operator, dtype).into_iter().find(|s| classes_fit(operator, s)) else {
            return;
        };
        let add = |places: &[usize], number: Scalar| {
            let mut arguments = sample.arguments.clone();
            places.iter().for_each(|place| arguments[*place] = Arg::Attribute(number.to_attribute()));
            let mut tensors = operator.params.iter().zip(&arguments).filter(|(_, given)| !given.tensors().is_empty());
            let (code, message) = match tensors.any(|(param, _)| !is_mask(param)) {
                true => ("NumberDType", "cannot hold"),
                false => ("NoTensor", "expected at least one tensor"),
            };
            self.cases.borrow_mut().push(ErrorSample { code, arguments, message });
        };
        for place in &places {
            // f64 does not hold the first exactly; a fraction, 256 and -1 are no u8.
            let wrong = [Scalar::Int(i64::MAX), Scalar::Float(0.5), Scalar::Int(256), Scalar::Int(-1)];
            wrong.into_iter().filter(|number| !number.stands_for(dtype)).for_each(|number| add(&[*place], number));
        }
        let decided = |param: &ParamDef| matches!(param.kind, ParamKind::Tensor(_) | ParamKind::List(_));
        if !places.is_empty() && !operator.params.iter().any(|param| decided(param) && !is_mask(param)) {
            add(&places, Scalar::Int(1));
        }
    }

    /// Adds a call that must fail with `code` and a message that contains `message`.
    pub fn case(&self, code: Precondition, arguments: impl OperatorArguments<SampleTensor>, message: &'static str) {
        self.add(code, arguments.into_arguments(), message);
    }

    /// Adds a call that is traced, and must fail with `code` and a message that contains `message` when it runs on the
    /// host: by every executor and by the operator's own reference.
    pub fn when_run(&self, code: &'static str, arguments: impl OperatorArguments<SampleTensor>, message: &'static str) {
        self.runs.borrow_mut().push(ErrorSample { code, arguments: arguments.into_arguments(), message });
    }

    fn add(&self, code: Precondition, arguments: Vec<Arg<SampleTensor>>, message: &'static str) {
        self.cases.borrow_mut().push(ErrorSample { code: code.name(), arguments, message });
    }
}

/// Whether the sample's tensors are of classes that the signature accepts. (What else is wrong with a sample is found
/// when it is called.)
pub fn classes_fit(operator: &OperatorDef, sample: &Sample) -> bool {
    let metas = crate::argument::map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
    !operator.check_arguments(&metas).is_err_and(|failure| failure.code == "ArgumentDType")
}

impl From<SampleTensor> for Operand<SampleTensor> {
    fn from(tensor: SampleTensor) -> Self {
        Operand::Tensor(tensor)
    }
}
