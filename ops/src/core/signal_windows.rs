//! Windows of signals: weights of the samples of a piece, which fall off towards its ends. They are computed in f64 and
//! rounded once to the type of the result.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::{DType, Device, Tensor};

use super::arrays::array;
use super::promotion::{cast, constant_like};
use crate::prims;

use std::f64::consts::{PI, SQRT_2};

/// What each element is computed of.
#[derive(Clone, Copy)]
struct Length {
    /// The number of elements.
    count: usize,
    /// Whether the window is a period of a longer one, whose last element is left out.
    periodic: bool,
}

impl Length {
    fn of(count: usize, periodic: bool) -> Length {
        Length { count, periodic }
    }
    /// The distance from the first element to the last one, which a periodic window has left out; 1 of one element.
    fn span(self) -> f64 {
        self.count.saturating_sub(usize::from(!self.periodic)).max(1) as f64
    }
    /// The distance between neighbours, the length of the window being 2; the one element of a window is at its end.
    fn step(self) -> f64 {
        2.0 / self.span()
    }
    /// The middle of the window, counted from its first element. One element is its own middle.
    fn middle(self) -> f64 {
        if self.count < 2 { 0.0 } else { self.span() / 2.0 }
    }
}

/// A window whose elements are `of` their positions.
#[track_caller]
fn window(length: Length, dtype: Option<DType>, device: &str, of: impl FnOnce(Tensor) -> Tensor) -> Tensor {
    let device = device.parse().unwrap_or(Device::CPU);
    let place = prims::iota(length.count, 0i64, 1i64, DType::I64, device);
    cast(of(cast(place, DType::F64)), dtype.unwrap_or(DType::F32))
}

/// A weighted sum of cosines of multiples of an angle that goes once around, with alternating signs. One element is 1.
#[track_caller]
fn cosines(place: Tensor, length: Length, weights: &[f64]) -> Tensor {
    if length.count == 1 {
        return constant_like(place, 1.0);
    }
    let angle = prims::mul(place, PI * length.step());
    let term = |(i, weight): (usize, &f64)| {
        let signed = if i % 2 == 0 { *weight } else { -weight };
        match i {
            0 => constant_like(place, signed),
            _ => prims::mul(prims::cos(prims::mul(angle, i as f64)), signed),
        }
    };
    weights.iter().enumerate().map(term).reduce(prims::add).unwrap_or(place)
}

/// `1 - |x|` of a line from -1 to 1. One element is 1.
#[track_caller]
fn triangle(place: Tensor, length: Length) -> Tensor {
    if length.count == 1 {
        return constant_like(place, 1.0);
    }
    prims::sub(1.0, prims::abs(prims::sub(prims::mul(place, length.step()), 1.0)))
}

/// Half a period of a sine, between whose ends and elements are half a step.
#[track_caller]
fn half_sine(place: Tensor, length: Length) -> Tensor {
    let whole = length.count + usize::from(length.periodic && length.count > 1);
    prims::sin(prims::mul(prims::add(place, 0.5), PI / whole.max(1) as f64))
}

/// `e^(-x² / 2)` of the distances from the middle in units of `std`.
#[track_caller]
fn bell(place: Tensor, length: Length, std: f64) -> Tensor {
    let x = prims::mul(prims::sub(place, length.middle()), 1.0 / (std * SQRT_2));
    prims::exp(prims::neg(prims::mul(x, x)))
}

/// `I₀(β √(1 - x²)) / I₀(β)` of a line of `x` from -1 to 1, by the scaled function: the exponential of `β`, which may
/// be beyond the type, is in both. One element is 1.
#[track_caller]
fn bessel_ratio(place: Tensor, length: Length, beta: f64) -> Tensor {
    if length.count == 1 {
        return constant_like(place, 1.0);
    }
    let x = prims::sub(prims::mul(place, length.step()), 1.0);
    // Not below zero at the ends, where the product may be above 1 by its rounding.
    let inside = prims::maximum(prims::sub(1.0, prims::mul(x, x)), 0.0);
    let argument = prims::mul(prims::sqrt(inside), beta);
    let whole = prims::i0e(constant_like(place, beta));
    prims::mul(prims::div(prims::i0e(argument), whole), prims::exp(prims::sub(argument, beta)))
}

/// For references: a window of elements by their numbers.
fn elements(count: usize, of: impl Fn(f64) -> f64) -> fulgurite_runtime::rules::ArrayD<f64> {
    array(&[count], (0..count).map(|i| if count == 1 { 1.0 } else { of(i as f64) }).collect())
}

/// For references: `Σ (-1)ᵏ wₖ cos(2πk i / span)`, by Chebyshev's recurrence.
fn cosine_sum(weights: &[f64], turn: f64) -> f64 {
    let first = (2.0 * PI * turn).cos();
    let (mut before, mut now, mut sum) = (first, 1.0, 0.0);
    for (k, weight) in weights.iter().enumerate() {
        sum += if k % 2 == 0 { weight * now } else { -weight * now };
        (before, now) = (now, 2.0 * first * now - before);
    }
    sum
}

/// For references: the modified Bessel function of order 0 by its power series.
fn bessel_0(x: f64) -> f64 {
    let mut term = 1.0;
    let mut sum = 1.0;
    for k in 1..200 {
        term *= (x / 2.0 / f64::from(k)).powi(2);
        sum += term;
    }
    sum
}

/// The weights of Blackman's window.
const BLACKMAN: [f64; 3] = [0.42, 0.5, 0.08];
/// The weights of Nuttall's window.
const NUTTALL: [f64; 4] = [0.363_581_9, 0.489_177_5, 0.136_599_5, 0.010_641_1];

// Declares windows that their length and their symmetry determine.
operators! {
    #[operator(torch = $torch, no_grad = "a window is made of numbers")]
    pub mod $name {
        fn $name(
            $length: usize,
            #[default(true)] $flag: bool,
            #[default(None)] dtype: Option<DType>,
            #[default("cpu")] device: String,
        ) -> Tensor;

        fn requires(dtype: Option<DType>, device: &str) -> Result<()> {
            let known = device.parse::<Device>().is_ok();
            require!(known, UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
            let own = dtype.unwrap_or(DType::F32);
            require!($allowed(own), Types, "dtype is {own}, expected {}", $expected);
            Ok(())
        }

        fn decomposition($length: usize, $flag: bool, dtype: Option<DType>, device: &str) -> Tensor {
            let length = super::Length::of($length, $periodic);
            super::window(length, dtype, device, |place| $value)
        }

        fn reference($length: usize, $flag: bool) -> ArrayD<f64> {
            let span = if $periodic { $length as f64 } else { $length as f64 - 1.0 };
            super::elements($length, |i| $reference)
        }

        fn samples(s: &mut Samples) {
            s.case(with(6));
            s.case(with(5).$flag(false).dtype(DType::F64));
            s.case(with(1).$flag(false));
            s.case(with(0));
            s.case(with(2));
            s.case(with(2).$flag(false));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(UnknownDevice, with(2).device("?"), "'?' is not a device");
            e.case(Types, with(2).dtype(DType::I64), "dtype is i64, expected ");
        }
    }

    table($name, $torch, $length, $flag, $periodic, $allowed, $expected, $value, $reference) {
        /// A triangle from 0 to 1 and back, of `m` elements; f32, or f64 by `dtype`. Unless `sym`, the last of `m + 1`
        /// elements is left out, so that windows one after the other are a period of a signal.
        signal_bartlett, "signal.windows.bartlett", m, sym, !sym, single_or_double, "f32 or f64",
            triangle(place, length), 1.0 - (2.0 * i / span - 1.0).abs();
        /// Blackman's window, `0.42 - 0.5 cos φ + 0.08 cos 2φ` of angles that go once around: see
        /// [`mod@signal_bartlett`] for the arguments.
        signal_blackman, "signal.windows.blackman", m, sym, !sym, single_or_double, "f32 or f64",
            cosines(place, length, &BLACKMAN), cosine_sum(&BLACKMAN, i / span);
        /// Half a period of a sine: see [`mod@signal_bartlett`] for the arguments.
        signal_cosine, "signal.windows.cosine", m, sym, !sym, single_or_double, "f32 or f64",
            half_sine(place, length), (PI / (span + 1.0) * (i + 0.5)).sin();
        /// Hamming's window, `0.54 - 0.46 cos φ`: see [`mod@signal_bartlett`] for the arguments.
        signal_hamming, "signal.windows.hamming", m, sym, !sym, single_or_double, "f32 or f64",
            cosines(place, length, &[0.54, 0.46]), cosine_sum(&[0.54, 0.46], i / span);
        /// Hann's window, `(1 - cos φ) / 2`: see [`mod@signal_bartlett`] for the arguments.
        signal_hann, "signal.windows.hann", m, sym, !sym, single_or_double, "f32 or f64",
            cosines(place, length, &[0.5, 0.5]), cosine_sum(&[0.5, 0.5], i / span);
        /// Nuttall's window of four cosines: see [`mod@signal_bartlett`] for the arguments.
        signal_nuttall, "signal.windows.nuttall", m, sym, !sym, single_or_double, "f32 or f64",
            cosines(place, length, &NUTTALL), cosine_sum(&NUTTALL, i / span);
        /// A triangle from 0 to 1 and back, of `window_length` elements; f32 unless `dtype` says otherwise. If
        /// `periodic`, the last element of a window longer by one is left out.
        bartlett_window, "bartlett_window", window_length, periodic, periodic, DType::is_floating,
            "a floating-point type",
            triangle(place, length), 1.0 - (2.0 * i / span - 1.0).abs();
        /// Blackman's window, `0.42 - 0.5 cos φ + 0.08 cos 2φ`: see [`mod@bartlett_window`] for the arguments.
        blackman_window, "blackman_window", window_length, periodic, periodic, DType::is_floating,
            "a floating-point type",
            cosines(place, length, &BLACKMAN), cosine_sum(&BLACKMAN, i / span);
        /// Hann's window, `(1 - cos φ) / 2`: see [`mod@bartlett_window`] for the arguments.
        hann_window, "hann_window", window_length, periodic, periodic, DType::is_floating, "a floating-point type",
            cosines(place, length, &[0.5, 0.5]), cosine_sum(&[0.5, 0.5], i / span);
    }
}

/// The types that PyTorch's `signal.windows` have.
fn single_or_double(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

// Declares windows of one number beside.
operators! {
    #[operator(torch = $torch, no_grad = "a window is made of numbers")]
    pub mod $name {
        fn $name(
            m: usize,
            #[default($default)] $parameter: f64,
            #[default(true)] sym: bool,
            #[default(None)] dtype: Option<DType>,
            #[default("cpu")] device: String,
        ) -> Tensor;

        fn requires($parameter: f64, dtype: Option<DType>, device: &str) -> Result<()> {
            let known = device.parse::<Device>().is_ok();
            require!(known, UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
            let own = dtype.unwrap_or(DType::F32);
            require!(single_or_double(own), Types, "dtype is {own}, expected f32 or f64");
            require!($fits, Parameter, "{} is {}, expected {}", stringify!($parameter), $parameter, $expected);
            Ok(())
        }

        fn decomposition(m: usize, $parameter: f64, sym: bool, dtype: Option<DType>, device: &str) -> Tensor {
            let length = super::Length::of(m, !sym);
            super::window(length, dtype, device, |place| $value)
        }

        fn reference(m: usize, $parameter: f64, sym: bool) -> ArrayD<f64> {
            let span = if sym { m as f64 - 1.0 } else { m as f64 };
            super::elements(m, |i| $reference)
        }

        fn samples(s: &mut Samples) {
            s.case(with(6));
            s.case(with(5).$parameter($other).sym(false).dtype(DType::F64));
            s.case(with(1));
            s.case(with(0));
            s.case(with(2));
            s.case(with(2).$parameter($least).sym(false));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(UnknownDevice, with(2).device("?"), "'?' is not a device");
            e.case(Types, with(2).dtype(DType::F16), "expected f32 or f64");
            e.case(Parameter, with(2).$parameter($wrong), $message);
        }
    }

    table($name, $torch, $parameter, $default, $other, $least, $fits, $expected, $wrong, $message, $value, $reference) {
        /// A bell curve of standard deviation `std`, in elements: see [`mod@signal_bartlett`] for the other arguments.
        signal_gaussian, "signal.windows.gaussian", std, 1.0, 2.5, 0.125, std > 0.0, "above 0", 0.0,
            "std is 0, expected above 0", bell(place, length, std), (-0.5 * ((i - span / 2.0) / std).powi(2)).exp();
        /// Hamming's window with other weights, `α - (1 - α) cos φ`: see [`mod@signal_bartlett`] for the other
        /// arguments.
        signal_general_hamming, "signal.windows.general_hamming", alpha, 0.54, 0.75, 0.0, alpha.is_finite(),
            "a finite number", f64::NAN, "alpha is NaN, expected a finite number",
            cosines(place, length, &[alpha, 1.0 - alpha]),
            cosine_sum(&[alpha, 1.0 - alpha], i / span);
        /// Kaiser's window, `I₀(β √(1 - x²)) / I₀(β)` of `x` from -1 to 1: see [`mod@signal_bartlett`] for the other
        /// arguments.
        signal_kaiser, "signal.windows.kaiser", beta, 12.0, 0.5, 0.0, beta >= 0.0 && beta.is_finite(),
            "at least 0, finite", -1.0, "beta is -1, expected at least 0", bessel_ratio(place, length, beta),
            bessel_0(beta * (1.0 - (2.0 * i / span - 1.0).powi(2)).max(0.0).sqrt()) / bessel_0(beta);
    }
}

/// `e^(-|x| / tau)` of the distances from `center`, the middle if it is absent: see [`mod@signal_bartlett`] for the
/// other arguments. A symmetric window has no other center than its middle.
#[operator(torch = "signal.windows.exponential", no_grad = "a window is made of numbers")]
pub mod signal_exponential {
    fn signal_exponential(
        m: usize,
        #[default(None)] center: Option<f64>,
        #[default(1.0)] tau: f64,
        #[default(true)] sym: bool,
        #[default(None)] dtype: Option<DType>,
        #[default("cpu")] device: String,
    ) -> Tensor;

    fn requires(center: Option<f64>, tau: f64, sym: bool, dtype: Option<DType>, device: &str) -> Result<()> {
        require!(device.parse::<Device>().is_ok(), UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
        let own = dtype.unwrap_or(DType::F32);
        require!(single_or_double(own), Types, "dtype is {own}, expected f32 or f64");
        require!(tau > 0.0, Tau, "tau is {tau}, expected above 0");
        require!(!sym || center.is_none(), Center, "center is given and sym is true, expected one of both");
        require!(center.is_none_or(f64::is_finite), Center, "center is {center:?}, expected a finite number");
        Ok(())
    }

    fn decomposition(m: usize, center: Option<f64>, tau: f64, sym: bool, dtype: Option<DType>, device: &str) -> Tensor {
        let length = super::Length::of(m, !sym);
        let center = center.unwrap_or_else(|| length.middle());
        super::window(length, dtype, device, |place| {
            prims::exp(prims::neg(prims::mul(prims::abs(prims::sub(place, center)), 1.0 / tau)))
        })
    }

    fn reference(m: usize, center: Option<f64>, tau: f64, sym: bool) -> ArrayD<f64> {
        let span = if sym || m < 2 { m as f64 - 1.0 } else { m as f64 };
        let center = center.unwrap_or(span / 2.0);
        array(&[m], (0..m).map(|i| (-(i as f64 - center).abs() / tau).exp()).collect())
    }

    fn samples(s: &mut Samples) {
        s.case(with(6).tau(2.0));
        s.case(with(5).sym(false).dtype(DType::F64));
        s.case(with(4).center(0.5).sym(false));
        s.case(with(1).sym(false));
        s.case(with(0));
        s.case(with(3).tau(0.25));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(UnknownDevice, with(2).device("?"), "'?' is not a device");
        e.case(Types, with(2).dtype(DType::F16), "expected f32 or f64");
        e.case(Tau, with(2).tau(0.0), "tau is 0");
        e.case(Center, with(2).center(1.0), "center is given and sym is true");
        e.case(Center, with(2).center(f64::NAN).sym(false), "expected a finite number");
    }
}

/// `Σ (-1)ᵏ a[k] cos(k φ)` of angles that go once around: see [`mod@signal_bartlett`] for the other arguments.
#[operator(torch = "signal.windows.general_cosine", no_grad = "a window is made of numbers")]
pub mod signal_general_cosine {
    fn signal_general_cosine(
        m: usize,
        a: Vec<f64>,
        #[default(true)] sym: bool,
        #[default(None)] dtype: Option<DType>,
        #[default("cpu")] device: String,
    ) -> Tensor;

    fn requires(a: &[f64], dtype: Option<DType>, device: &str) -> Result<()> {
        require!(device.parse::<Device>().is_ok(), UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
        let own = dtype.unwrap_or(DType::F32);
        require!(single_or_double(own), Types, "dtype is {own}, expected f32 or f64");
        require!(!a.is_empty(), NoWeights, "a is empty, expected at least one number");
        Ok(())
    }

    fn decomposition(m: usize, a: &[f64], sym: bool, dtype: Option<DType>, device: &str) -> Tensor {
        let length = super::Length::of(m, !sym);
        super::window(length, dtype, device, |place| cosines(place, length, a))
    }

    fn reference(m: usize, a: &[f64], sym: bool) -> ArrayD<f64> {
        let span = if sym { m as f64 - 1.0 } else { m as f64 };
        super::elements(m, |i| cosine_sum(a, i / span))
    }

    fn samples(s: &mut Samples) {
        s.case(with(6, [0.46, 0.23, 0.31]));
        s.case(with(5, [0.5]).sym(false).dtype(DType::F64));
        s.case(with(1, [0.25, 0.5]));
        s.case(with(0, [1.0, 2.0]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(UnknownDevice, with(2, [1.0]).device("?"), "'?' is not a device");
        e.case(Types, with(2, [1.0]).dtype(DType::F16), "expected f32 or f64");
        e.case(NoWeights, with(2, []), "a is empty");
    }
}

/// Hamming's window, `alpha - beta cos φ`: see [`mod@bartlett_window`] for the other arguments.
#[operator(torch = "hamming_window", no_grad = "a window is made of numbers")]
pub mod hamming_window {
    fn hamming_window(
        window_length: usize,
        #[default(true)] periodic: bool,
        #[default(0.54)] alpha: f64,
        #[default(0.46)] beta: f64,
        #[default(None)] dtype: Option<DType>,
        #[default("cpu")] device: String,
    ) -> Tensor;

    fn requires(alpha: f64, beta: f64, dtype: Option<DType>, device: &str) -> Result<()> {
        require!(device.parse::<Device>().is_ok(), UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
        let own = dtype.unwrap_or(DType::F32);
        require!(own.is_floating(), Types, "dtype is {own}, expected a floating-point type");
        let finite = alpha.is_finite() && beta.is_finite();
        require!(finite, Weights, "the weights are {} and {}, expected finite numbers", alpha, beta);
        Ok(())
    }

    fn decomposition(
        window_length: usize,
        periodic: bool,
        alpha: f64,
        beta: f64,
        dtype: Option<DType>,
        device: &str,
    ) -> Tensor {
        let length = super::Length::of(window_length, periodic);
        super::window(length, dtype, device, |place| cosines(place, length, &[alpha, beta]))
    }

    fn reference(window_length: usize, periodic: bool, alpha: f64, beta: f64) -> ArrayD<f64> {
        let span = window_length as f64 - f64::from(u8::from(!periodic));
        super::elements(window_length, |i| cosine_sum(&[alpha, beta], i / span))
    }

    fn samples(s: &mut Samples) {
        s.case(with(6));
        s.case(with(5).periodic(false).alpha(0.75).beta(0.125).dtype(DType::F64));
        s.case(with(1));
        s.case(with(0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(UnknownDevice, with(2).device("?"), "'?' is not a device");
        e.case(Types, with(2).dtype(DType::I64), "expected a floating-point type");
        e.case(Weights, with(2).alpha(f64::NAN), "expected finite numbers");
    }
}

/// Kaiser's window, `I₀(β √(1 - x²)) / I₀(β)` of `x` from -1 to 1: see [`mod@bartlett_window`] for the other arguments.
#[operator(torch = "kaiser_window", no_grad = "a window is made of numbers")]
pub mod kaiser_window {
    fn kaiser_window(
        window_length: usize,
        #[default(true)] periodic: bool,
        #[default(12.0)] beta: f64,
        #[default(None)] dtype: Option<DType>,
        #[default("cpu")] device: String,
    ) -> Tensor;

    fn requires(beta: f64, dtype: Option<DType>, device: &str) -> Result<()> {
        require!(device.parse::<Device>().is_ok(), UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
        let own = dtype.unwrap_or(DType::F32);
        require!(own.is_floating(), Types, "dtype is {own}, expected a floating-point type");
        require!(beta.is_finite(), Beta, "beta is {beta}, expected a finite number");
        Ok(())
    }

    fn decomposition(window_length: usize, periodic: bool, beta: f64, dtype: Option<DType>, device: &str) -> Tensor {
        let length = super::Length::of(window_length, periodic);
        // The function of the product is even.
        super::window(length, dtype, device, |place| bessel_ratio(place, length, beta.abs()))
    }

    fn reference(window_length: usize, periodic: bool, beta: f64) -> ArrayD<f64> {
        let span = window_length as f64 - f64::from(u8::from(!periodic));
        super::elements(window_length, |i| {
            bessel_0(beta * (1.0 - (2.0 * i / span - 1.0).powi(2)).max(0.0).sqrt()) / bessel_0(beta)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(6));
        s.case(with(5).periodic(false).beta(0.5).dtype(DType::F64));
        s.case(with(1));
        s.case(with(0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(UnknownDevice, with(2).device("?"), "'?' is not a device");
        e.case(Types, with(2).dtype(DType::I64), "expected a floating-point type");
        e.case(Beta, with(2).beta(f64::NAN), "expected a finite number");
    }
}
