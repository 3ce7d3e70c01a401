//! PyTorch's vectors: a safetensors file `operators.safetensors` whose metadata entry `vectors` is a JSON list of
//!
//! ```text
//! { "operator": "rms_norm",                         the operator's name
//!   "arguments": { "input": {"tensor": "rms_norm.0.input"},      tensors by their names in the file,
//!                  "normalized_shape": [8], "eps": 1e-5,         attributes as JSON (dtypes as {"dtype": "f32"}),
//!                  "tensors": {"tensors": ["a", "b"]} },         what is left out takes its default
//!   "outputs": ["rms_norm.0.out"],
//!   "cotangents": ["rms_norm.0.d_out"],                           none if gradients are not stored
//!   "gradients": {"input": "rms_norm.0.d_input"} }                by parameter; for a list of tensors a list
//! ```

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fulgurite_kernels::DType;
use serde_json::Value;

use super::problem::{Check, Problem};
use crate::argument::{Arg, Attribute, Scalar};
use crate::array::Array;
use crate::operator::{OperatorDef, ParamKind, find_operator};

/// One call and what PyTorch made of it.
#[derive(Debug, Clone)]
pub(crate) struct Vector {
    pub arguments: Vec<Arg<Array>>,
    pub outputs: Vec<Array>,
    pub cotangents: Vec<Array>,
    /// By the position of the tensor among the arguments' tensors.
    pub gradients: Vec<(usize, Array)>,
}

/// The stored vectors.
#[derive(Debug, Default)]
pub(crate) struct Golden {
    path: PathBuf,
    read: OnceLock<Check<(Vec<u8>, Vec<Value>)>>,
}

fn get<'a>(value: &'a Value, key: &str) -> Check<&'a Value> {
    value.get(key).ok_or_else(|| Problem(format!("a golden vector has no '{key}'")))
}

fn strings(value: Option<&Value>) -> Vec<&str> {
    value.and_then(Value::as_array).map(|all| all.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

impl Golden {
    /// The vectors of a folder; they are read when they are first asked for.
    pub fn open(folder: &Path) -> Golden {
        Golden { path: folder.join("operators.safetensors"), read: OnceLock::new() }
    }

    fn read(&self) -> Check<&(Vec<u8>, Vec<Value>)> {
        self.read
            .get_or_init(|| {
                if !self.path.exists() {
                    return Ok((Vec::new(), Vec::new()));
                }
                let failed = |error: String| Problem(format!("{}: {error}", self.path.display()));
                let bytes = std::fs::read(&self.path).map_err(|error| failed(error.to_string()))?;
                let (_, metadata) =
                    safetensors::SafeTensors::read_metadata(&bytes).map_err(|error| failed(error.to_string()))?;
                let text = metadata.metadata().as_ref().and_then(|map| map.get("vectors")).cloned();
                let text = text.ok_or_else(|| failed("its metadata has no 'vectors'".into()))?;
                let vectors = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
                Ok((bytes, vectors))
            })
            .as_ref()
            .map_err(Problem::clone)
    }

    /// Whether there are vectors of this operator.
    pub fn mentions(&self, operator: &str) -> bool {
        self.read().is_ok_and(|(_, vectors)| vectors.iter().any(|vector| vector["operator"] == operator))
    }

    /// What is wrong with vectors that fit no linked operator.
    pub fn stale(&self) -> Vec<String> {
        let vectors = match self.read() {
            Ok((_, vectors)) => vectors,
            Err(problem) => return vec![problem.0],
        };
        let mut stale = Vec::new();
        for (i, vector) in vectors.iter().enumerate() {
            let name = vector["operator"].as_str().unwrap_or("?");
            let problem = match find_operator(name) {
                Err(error) => Some(error.to_string()),
                Ok(def) => self.vector(def, vector).err().map(|problem| problem.0),
            };
            stale.extend(problem.map(|problem| format!("golden vector {i} of {name} is stale: {problem}")));
        }
        stale
    }

    /// The vectors of an operator.
    pub fn of(&self, def: &'static OperatorDef) -> Check<Vec<Vector>> {
        let (_, vectors) = self.read()?;
        vectors.iter().filter(|vector| vector["operator"] == def.name).map(|vector| self.vector(def, vector)).collect()
    }

    fn tensor(&self, name: &str) -> Check<Array> {
        let (bytes, _) = self.read()?;
        let failed =
            |error: &dyn std::fmt::Display| Problem(format!("tensor '{name}' of {}: {error}", self.path.display()));
        let file = safetensors::SafeTensors::deserialize(bytes).map_err(|error| failed(&error))?;
        let view = file.tensor(name).map_err(|error| failed(&error))?;
        let dtype = match view.dtype() {
            safetensors::Dtype::BOOL => DType::Bool,
            safetensors::Dtype::U8 => DType::U8,
            safetensors::Dtype::I32 => DType::I32,
            safetensors::Dtype::I64 => DType::I64,
            safetensors::Dtype::F16 => DType::F16,
            safetensors::Dtype::BF16 => DType::BF16,
            safetensors::Dtype::F32 => DType::F32,
            safetensors::Dtype::F64 => DType::F64,
            other => return Err(failed(&format!("dtype {other:?} is none of ours"))),
        };
        Ok(Array::from_bytes(view.shape(), dtype, view.data())?)
    }

    fn vector(&self, def: &'static OperatorDef, vector: &Value) -> Check<Vector> {
        let given = get(vector, "arguments")?.as_object().cloned().unwrap_or_default();
        if let Some(unknown) = given.keys().find(|name| def.param(name).is_none()) {
            return Err(Problem(format!("{} has no parameter '{unknown}'", def.name)));
        }
        let mut arguments = Vec::with_capacity(def.params.len());
        let mut first = vec![0; def.params.len()];
        let mut tensors = 0;
        for (i, param) in def.params.iter().enumerate() {
            let value = given.get(param.name);
            let tensor = value.and_then(|value| value.get("tensor")).and_then(Value::as_str);
            let argument = match (param.kind, tensor, value) {
                (ParamKind::Optional(_), Some(name), _) => Arg::Optional(Some(self.tensor(name)?)),
                (ParamKind::Optional(_), None, _) => Arg::Optional(None),
                (ParamKind::Tensor(_) | ParamKind::Operand(_), Some(name), _) => Arg::Tensor(self.tensor(name)?),
                (ParamKind::List(_), _, value) => {
                    let names = strings(value.and_then(|value| value.get("tensors")));
                    Arg::List(names.into_iter().map(|name| self.tensor(name)).collect::<Check<_>>()?)
                }
                (_, _, Some(value)) => Arg::Attribute(attribute(value)?),
                (_, _, None) => match param.default {
                    Some(default) => Arg::Attribute(default()),
                    None => return Err(Problem(format!("{} needs the argument '{}'", def.name, param.name))),
                },
            };
            first[i] = tensors;
            tensors += argument.tensors().len();
            arguments.push(argument);
        }
        let arrays = |names: Vec<&str>| names.into_iter().map(|name| self.tensor(name)).collect::<Check<Vec<Array>>>();
        let mut gradients = Vec::new();
        for (name, keys) in vector.get("gradients").and_then(Value::as_object).into_iter().flatten() {
            let param = def.param(name).ok_or_else(|| Problem(format!("{} has no parameter '{name}'", def.name)))?;
            let keys = keys.as_str().map_or_else(|| strings(Some(keys)), |key| vec![key]);
            for (offset, key) in keys.into_iter().enumerate() {
                gradients.push((first[param] + offset, self.tensor(key)?));
            }
        }
        Ok(Vector {
            arguments,
            outputs: arrays(strings(vector.get("outputs")))?,
            cotangents: arrays(strings(vector.get("cotangents")))?,
            gradients,
        })
    }
}

fn attribute(value: &Value) -> Check<Attribute> {
    Ok(match value {
        Value::Null => Attribute::None,
        Value::Bool(value) => Attribute::Scalar(Scalar::Bool(*value)),
        Value::Number(number) => Attribute::Scalar(match number.as_i64() {
            Some(value) => Scalar::Int(value),
            None => Scalar::Float(number.as_f64().unwrap_or(f64::NAN)),
        }),
        Value::String(text) => Attribute::Text(text.clone()),
        Value::Array(items) => Attribute::List(items.iter().map(attribute).collect::<Check<_>>()?),
        Value::Object(object) => {
            let text = |key: &str| object.get(key).and_then(Value::as_str);
            match (text("dtype"), text("float")) {
                (Some(name), _) => Attribute::DType(name.parse().map_err(|error| Problem(format!("{error}")))?),
                // JSON has no infinities.
                (None, Some(number)) => {
                    Attribute::Scalar(Scalar::Float(number.parse().map_err(|error| Problem(format!("{error}")))?))
                }
                (None, None) => return Err(Problem(format!("'{value}' is no attribute"))),
            }
        }
    })
}
