//! The data that `reference` rules compute with.

use std::sync::{Arc, OnceLock};

use fulgurite_kernels::{DType, scratch};
use ndarray::{ArrayD, IxDyn};
use num_complex::Complex64;

/// An argument of a reference: its values as f64, as i64 and as booleans, whichever the rule takes. Of complex numbers
/// these are the real parts. Copies share them.
#[derive(Debug, Clone)]
pub struct ReferenceTensor {
    dtype: DType,
    values: Arc<Values>,
}

/// The numbers as they came, and what was asked for besides: most rules take one of the three.
#[derive(Debug)]
struct Values {
    given: Given,
    /// The imaginary parts of complex numbers.
    imaginary: Option<ArrayD<f64>>,
    floats: OnceLock<ArrayD<f64>>,
    integers: OnceLock<ArrayD<i64>>,
    booleans: OnceLock<ArrayD<bool>>,
}

#[derive(Debug)]
enum Given {
    Floats(ArrayD<f64>),
    Integers(ArrayD<i64>),
}

/// A function of each value. Rules are run as kernels are, and unwind where there is no memory.
fn each<A: Copy, B>(values: &ArrayD<A>, function: impl Fn(A) -> B) -> ArrayD<B> {
    let mut results = scratch::or_unwind(scratch::try_room(values.len()));
    results.extend(values.iter().map(|value| function(*value)));
    ArrayD::from_shape_vec(values.raw_dim(), results).unwrap_or_else(|_| unreachable!("a value for each"))
}

impl ReferenceTensor {
    fn new(dtype: DType, given: Given, imaginary: Option<ArrayD<f64>>) -> ReferenceTensor {
        let (floats, integers, booleans) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        ReferenceTensor { dtype, values: Arc::new(Values { given, imaginary, floats, integers, booleans }) }
    }

    /// From values that are exact in f64.
    pub fn from_floats(dtype: DType, floats: ArrayD<f64>) -> ReferenceTensor {
        ReferenceTensor::new(dtype, Given::Floats(floats), None)
    }

    /// From integers, which f64 may not hold exactly.
    pub fn from_integers(dtype: DType, integers: ArrayD<i64>) -> ReferenceTensor {
        ReferenceTensor::new(dtype, Given::Integers(integers), None)
    }

    /// Complex numbers from their parts. They are true unless both parts are zero.
    pub fn of_parts(dtype: DType, real: ArrayD<f64>, imaginary: ArrayD<f64>) -> ReferenceTensor {
        ReferenceTensor::new(dtype, Given::Floats(real), Some(imaginary))
    }

    /// From complex numbers, whose real and imaginary parts are kept apart.
    pub fn from_complex(numbers: &ArrayD<Complex64>) -> ReferenceTensor {
        let (real, imaginary) = (numbers.mapv(|number| number.re), numbers.mapv(|number| number.im));
        ReferenceTensor::of_parts(DType::C128, real, imaginary)
    }

    /// The element type that the values came with, or that a rule computed in (f64, i64 or bool).
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        match &self.values.given {
            Given::Floats(floats) => floats.shape(),
            Given::Integers(integers) => integers.shape(),
        }
    }

    /// Values as f64; of complex numbers the real parts.
    pub fn floats(&self) -> &ArrayD<f64> {
        match &self.values.given {
            Given::Floats(floats) => floats,
            Given::Integers(integers) => self.values.floats.get_or_init(|| each(integers, |value| value as f64)),
        }
    }

    /// The imaginary parts, if the values are complex numbers.
    pub fn imaginary(&self) -> Option<&ArrayD<f64>> {
        self.values.imaginary.as_ref()
    }

    /// Values as complex numbers; real ones have imaginary parts of zero.
    pub fn complex(&self) -> ArrayD<Complex64> {
        let mut numbers = self.floats().mapv(|real| Complex64::new(real, 0.0));
        if let Some(imaginary) = self.imaginary() {
            numbers.zip_mut_with(imaginary, |number, part| number.im = *part);
        }
        numbers
    }

    /// Values as f64 in row-major order, as [`Array::to_f64`](crate::Array::to_f64) gives them.
    pub fn numbers(&self) -> Vec<f64> {
        match self.imaginary() {
            Some(imaginary) => self.floats().iter().zip(imaginary).flat_map(|(real, part)| [*real, *part]).collect(),
            None => self.floats().iter().copied().collect(),
        }
    }

    /// Values as i64; floating-point values truncate.
    pub fn integers(&self) -> &ArrayD<i64> {
        match &self.values.given {
            Given::Integers(integers) => integers,
            Given::Floats(floats) => self.values.integers.get_or_init(|| each(floats, |value| value as i64)),
        }
    }

    /// Whether each value differs from zero.
    pub fn booleans(&self) -> &ArrayD<bool> {
        self.values.booleans.get_or_init(|| match &self.values.given {
            Given::Integers(integers) => each(integers, |value| value != 0),
            Given::Floats(floats) => {
                let mut booleans = each(floats, |value| value != 0.0);
                if let Some(imaginary) = self.imaginary() {
                    booleans.zip_mut_with(imaginary, |one, part| *one |= *part != 0.0);
                }
                booleans
            }
        })
    }

    /// A zero-dimensional tensor.
    pub fn scalar(value: f64) -> ReferenceTensor {
        ReferenceTensor::from_floats(DType::F64, ArrayD::from_elem(IxDyn(&[]), value))
    }
}

impl From<ArrayD<f64>> for ReferenceTensor {
    fn from(values: ArrayD<f64>) -> Self {
        ReferenceTensor::from_floats(DType::F64, values)
    }
}
impl From<ArrayD<Complex64>> for ReferenceTensor {
    fn from(values: ArrayD<Complex64>) -> Self {
        ReferenceTensor::from_complex(&values)
    }
}
impl From<ArrayD<i64>> for ReferenceTensor {
    fn from(values: ArrayD<i64>) -> Self {
        ReferenceTensor::from_integers(DType::I64, values)
    }
}
impl From<ArrayD<bool>> for ReferenceTensor {
    fn from(values: ArrayD<bool>) -> Self {
        ReferenceTensor::from_floats(DType::Bool, values.mapv(|value| f64::from(u8::from(value))))
    }
}
