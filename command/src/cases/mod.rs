//! Calls of operators as data: `cases.json` with `tensors.safetensors` beside it, in PyTorch's names.
//!
//! ```json
//! {"version": 1, "cases": [
//!   {"id": "gelu/0", "op": "gelu",
//!    "args": {"input": {"tensor": "gelu/0/input"}, "approximate": "tanh"},
//!    "grad": {"cotangents": ["gelu/0/d0"], "inputs": ["input"]},
//!    "layout": {"input": [1, 4]}}
//! ]}
//! ```
//!
//! A value is a tensor (`{"tensor": key}`), a number (`{"number": "inf"}` where JSON has none), a boolean, a string, an
//! element type (`{"dtype": "float32"}`), a list of these, or null. `layout` gives the strides, in elements, of tensors
//! that are not contiguous, by the names of the arguments; the values are in row-major order in the file. A case may
//! have `torch` and `digest`, which `ops samples` writes and nothing here reads. Any other field is an error, so that a
//! misspelt field is not ignored.

mod bind;
mod export;
#[cfg(test)]
mod fuzz;
mod parse;
mod resolve;
mod results;
mod run;
mod tensors;

use std::fmt;

use fulgurite::argument::Scalar;
use fulgurite::{DType, Error};

pub use bind::bind;
pub use export::{ExportedCase, ExportedGrad, argument_to_json};
pub use parse::parse_cases;
pub use resolve::{hint, resolve_operator};
pub use results::Results;
pub use run::{Call, of_case, run_case, trace_call};
pub use tensors::{TensorFile, tensor_bytes, write_whole};

/// The version of the format.
pub const VERSION: u64 = 1;

/// The name of the file of cases in its folder.
pub const CASES: &str = "cases.json";
/// The name of the file of tensors in its folder.
pub const TENSORS: &str = "tensors.safetensors";

/// A case: its name, and what is to be done or why that cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Unique in its file.
    pub id: String,
    /// The call.
    pub body: Result<CaseBody, CaseError>,
}

/// A call of an operator.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseBody {
    /// The operator's name, or PyTorch's.
    pub operator: String,
    /// Arguments by name.
    pub arguments: Vec<(String, Value)>,
    /// What is to be differentiated.
    pub grad: Option<Grad>,
    /// Strides of tensor arguments that are not contiguous, by their names; `tensors.0` is the first of a list.
    pub layout: Vec<(String, Vec<i64>)>,
}

/// A request for gradients.
#[derive(Debug, Clone, PartialEq)]
pub struct Grad {
    /// Keys of one cotangent for each floating-point output, in order.
    pub cotangents: Vec<String>,
    /// Names of tensor arguments; `tensors.0` is the first of a list.
    pub inputs: Vec<String>,
}

/// An argument as it is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// JSON's `null`.
    Null,
    /// The tensor of that key.
    Tensor(String),
    /// A number or boolean.
    Number(Scalar),
    /// A string.
    Text(String),
    /// An element type.
    DType(DType),
    /// A list.
    List(Vec<Value>),
}

impl fmt::Display for Value {
    /// What the value is, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Tensor(key) => write!(f, "the tensor '{key}'"),
            Value::Number(Scalar::Bool(value)) => write!(f, "{value}"),
            Value::Number(Scalar::Int(value)) => write!(f, "{value}"),
            Value::Number(Scalar::Float(value)) => write!(f, "{value:?}"),
            Value::Text(text) => write!(f, "{text:?}"),
            Value::DType(dtype) => write!(f, "the dtype {}", dtype.torch_name()),
            Value::List(items) if items.len() > 8 => write!(f, "a list of {}", items.len()),
            Value::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}

/// Why a case did not give a result.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CaseError {
    /// A short name of the kind of error; for a failing precondition its name.
    pub code: String,
    /// What was expected and what came.
    pub message: String,
}

impl CaseError {
    /// An error of the kind `code`.
    pub fn new(code: &str, message: impl Into<String>) -> CaseError {
        CaseError { code: code.into(), message: message.into() }
    }
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl From<Error> for CaseError {
    fn from(error: Error) -> CaseError {
        CaseError::new(error.code(), error.to_string())
    }
}
