//! Samples as cases.

use fulgurite::argument::{Arg, Attribute, Scalar};
use serde_json::{Value as Json, json};

/// A case as it is written.
#[derive(serde::Serialize)]
pub struct ExportedCase {
    /// Unique: operator, element type, number.
    pub id: String,
    /// The operator's name.
    pub op: &'static str,
    /// PyTorch's name, if it mirrors a function of PyTorch.
    pub torch: Option<&'static str>,
    /// What PyTorch's results for the case are known by: `testing::golden::digest`, in hexadecimal.
    pub digest: String,
    /// Arguments by name.
    pub args: serde_json::Map<String, Json>,
    /// What is to be differentiated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad: Option<ExportedGrad>,
}

/// A request for gradients as it is written.
#[derive(serde::Serialize)]
pub struct ExportedGrad {
    /// Keys of the cotangents.
    pub cotangents: Vec<String>,
    /// Names of the inputs.
    pub inputs: Vec<String>,
}

/// An argument with keys in place of tensors.
pub fn argument_to_json(argument: &Arg<String>) -> Json {
    let tensor = |key: &String| json!({ "tensor": key });
    match argument {
        Arg::Tensor(key) | Arg::Optional(Some(key)) => tensor(key),
        Arg::Optional(None) => Json::Null,
        Arg::List(keys) => keys.iter().map(tensor).collect(),
        Arg::Attribute(attribute) => attribute_to_json(attribute),
    }
}

fn attribute_to_json(attribute: &Attribute) -> Json {
    match attribute {
        Attribute::None => Json::Null,
        Attribute::Scalar(Scalar::Bool(value)) => json!(value),
        Attribute::Scalar(Scalar::Int(value)) => json!(value),
        Attribute::Scalar(Scalar::Float(value)) if value.is_finite() => json!(value),
        Attribute::Scalar(Scalar::Float(value)) if value.is_nan() => json!({ "number": "nan" }),
        Attribute::Scalar(Scalar::Float(value)) => json!({ "number": if *value > 0.0 { "inf" } else { "-inf" } }),
        Attribute::Text(text) => json!(&**text),
        Attribute::DType(dtype) => json!({ "dtype": dtype.torch_name() }),
        Attribute::List(items) => items.iter().map(attribute_to_json).collect(),
    }
}
