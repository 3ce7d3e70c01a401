//! Operators on arrays: each call is a program of one line, compiled once for its arguments' forms.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use fulgurite::argument::{Arg, map_arguments};
use fulgurite::compile::Options;
use fulgurite::jit::{Jit, Vjp};
use fulgurite::operator::OperatorDef;
use fulgurite::{Array, Error, Tensor, jit, tracer};
use pyo3::prelude::*;

use crate::error::without_lock;
use crate::tree::{Flat, Structure};

/// Operators with their attributes that are kept compiled. Beyond that all are forgotten: attributes of more values
/// than this change from call to call.
const MOST: usize = 4096;

type OneCall = Box<dyn Fn(Flat<Tensor>) -> Vec<Tensor> + Send + Sync>;
type Compiled = Jit<Flat<Array>, Vec<Tensor>, OneCall>;
type Differentiated = Vjp<Flat<Array>, Vec<Tensor>, OneCall>;

/// An operator and its arguments without their tensors.
type Call = (usize, Vec<Arg<()>>);

static CALLS: LazyLock<Mutex<HashMap<Call, Arc<Compiled>>>> = LazyLock::new(Mutex::default);
static DERIVATIVES: LazyLock<Mutex<HashMap<(Call, Vec<String>), Arc<Differentiated>>>> = LazyLock::new(Mutex::default);

/// The value of a key, made if it is not there.
fn kept<K: Hash + Eq, V>(table: &Mutex<HashMap<K, Arc<V>>>, key: K, make: impl FnOnce() -> V) -> Arc<V> {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = table.get(&key) {
        return known.clone();
    }
    if table.len() >= MOST {
        table.clear();
    }
    table.entry(key).or_insert(Arc::new(make())).clone()
}

/// The traced function of a call.
fn one_call(def: &'static OperatorDef, form: Vec<Arg<()>>) -> Compiled {
    let function = move |tensors: Flat<Tensor>| {
        let mut tensors = tensors.leaves.into_iter();
        let next = |_: &()| tensors.next().unwrap_or(Tensor::PLACEHOLDER);
        tracer::call(def, map_arguments(&form, next))
    };
    jit(Box::new(function) as OneCall).named(def.short_name()).options(Options::default())
}

/// The arrays of a call under the names of the parameters: `tensors.0` is the first of a list.
fn named(py: Python<'_>, def: &OperatorDef, arguments: &[Arg<Array>]) -> Flat<Array> {
    let (mut leaves, mut paths) = (Vec::new(), Vec::new());
    for (param, argument) in def.params.iter().zip(arguments) {
        for (i, array) in argument.tensors().iter().enumerate() {
            leaves.push(array.clone());
            paths.push(match argument {
                Arg::List(_) => format!("{}.{i}", param.name),
                _ => param.name.to_owned(),
            });
        }
    }
    Flat { leaves, structure: Arc::new(Structure { paths, key: String::new(), object: py.None() }) }
}

fn key(def: &'static OperatorDef, arguments: &[Arg<Array>]) -> Call {
    (std::ptr::from_ref(def).addr(), map_arguments(arguments, |_| ()))
}

/// Runs an operator.
pub(crate) fn run(py: Python<'_>, def: &'static OperatorDef, arguments: Vec<Arg<Array>>) -> PyResult<Vec<Array>> {
    let call = key(def, &arguments);
    let inputs = named(py, def, &arguments);
    drop(arguments);
    without_lock(py, move || {
        let form = call.1.clone();
        kept(&CALLS, call, || one_call(def, form)).call(inputs)
    })
}

/// Gradients of an operator's tensors of these names, for cotangents of its results by their numbers.
pub(crate) fn gradients(
    py: Python<'_>,
    def: &'static OperatorDef,
    arguments: Vec<Arg<Array>>,
    wrt: Vec<String>,
    cotangents: Vec<(usize, Array)>,
) -> PyResult<Vec<Array>> {
    let call = key(def, &arguments);
    let inputs = named(py, def, &arguments);
    drop(arguments);
    without_lock(py, move || {
        let form = call.1.clone();
        let differentiated = kept(&DERIVATIVES, (call, wrt.clone()), || {
            let vjp = one_call(def, form).vjp();
            wrt.iter().fold(vjp, |vjp, path| vjp.with_respect_to(path))
        });
        let (outputs, pullback) = differentiated.call(inputs)?;
        drop(outputs);
        let named = cotangents.into_iter().map(|(i, array)| (format!("result{i}"), array));
        let gradients = pullback.call(named)?;
        wrt.iter().map(|path| gradients.of(path).cloned()).collect::<Result<Vec<Array>, Error>>()
    })
}
