//! Operators on arrays: each call is a program of one line, compiled once for its arguments' forms.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use fulgurite::argument::{Arg, Attribute, map_arguments};
use fulgurite::compile::Options;
use fulgurite::jit::{Jit, Vjp};
use fulgurite::operator::OperatorDef;
use fulgurite::tree::{Leaf, Tree};
use fulgurite::{Array, Device, Error, Tensor, jit, tracer};
use pyo3::prelude::*;

use crate::error::without_lock;

/// Operators with their attributes that are kept compiled. Beyond that all are forgotten: attributes of more values
/// than this change from call to call.
const MOST: usize = 4096;

/// Forms of an operator's last calls that are compared before the table is asked.
const LATEST: usize = 4;

type OneCall = Box<dyn Fn(Tensors<Tensor>) -> Vec<Tensor> + Send + Sync>;
type Compiled = Jit<Tensors<Array>, Vec<Tensor>, OneCall>;
type Differentiated = Vjp<Tensors<Array>, Vec<Tensor>, OneCall>;

/// The tensors of a call under the names of the parameters: `tensors.0` is the first of a list.
#[derive(Debug, Clone)]
struct Tensors<L> {
    leaves: Vec<L>,
    paths: Arc<[String]>,
}

impl<L: Leaf> Tree for Tensors<L> {
    type Leaf = L;
    type With<U: Leaf> = Tensors<U>;

    fn visit<'a>(&'a self, _path: &str, f: &mut dyn FnMut(&str, &'a L)) {
        self.paths.iter().zip(&self.leaves).for_each(|(path, leaf)| f(path, leaf));
    }

    fn map<U: Leaf>(self, f: &mut dyn FnMut(L) -> U) -> Tensors<U> {
        Tensors { leaves: self.leaves.into_iter().map(f).collect(), paths: self.paths }
    }
}

/// An operator and its arguments without their tensors.
type Call = (usize, Vec<Arg<()>>);

/// What is compiled for calls of one form.
struct OneForm {
    form: Vec<Arg<()>>,
    paths: Arc<[String]>,
    compiled: Compiled,
}

/// The forms of an operator's last calls. Most calls look like one of these: comparing is faster than making a key.
#[derive(Default)]
pub(crate) struct Latest(Mutex<Vec<Arc<OneForm>>>);

static CALLS: LazyLock<Mutex<HashMap<Call, Arc<OneForm>>>> = LazyLock::new(Mutex::default);
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

/// The device that is asked for, where no tensor says it.
fn device_of(def: &OperatorDef, form: &[Arg<()>]) -> Option<Device> {
    if form.iter().any(|argument| !argument.tensors().is_empty()) {
        return None;
    }
    def.params.iter().zip(form).find_map(|(param, argument)| match argument {
        Arg::Attribute(Attribute::Text(name)) if param.name == "device" => name.parse().ok(),
        _ => None,
    })
}

/// The traced function of a call.
fn one_call(def: &'static OperatorDef, form: Vec<Arg<()>>) -> Compiled {
    let options = Options { device: device_of(def, &form), ..Options::default() };
    let function = move |tensors: Tensors<Tensor>| {
        let mut tensors = tensors.leaves.into_iter();
        let next = |_: &()| tensors.next().unwrap_or(Tensor::PLACEHOLDER);
        tracer::call(def, map_arguments(&form, next))
    };
    jit(Box::new(function) as OneCall).named(def.short_name()).options(options)
}

/// Paths of the tensors of a call.
fn paths<V>(def: &OperatorDef, arguments: &[Arg<V>]) -> Arc<[String]> {
    let mut paths = Vec::new();
    for (param, argument) in def.params.iter().zip(arguments) {
        let path = |i: usize| match argument {
            Arg::List(_) => format!("{}.{i}", param.name),
            _ => param.name.to_owned(),
        };
        paths.extend((0..argument.tensors().len()).map(path));
    }
    paths.into()
}

fn key(def: &'static OperatorDef, arguments: &[Arg<Array>]) -> Call {
    (std::ptr::from_ref(def).addr(), map_arguments(arguments, |_| ()))
}

/// Whether arguments are of a form.
fn is_of(form: &[Arg<()>], arguments: &[Arg<Array>]) -> bool {
    form.iter().zip(arguments).all(|pair| match pair {
        (Arg::Tensor(()), Arg::Tensor(_)) => true,
        (Arg::Optional(form), Arg::Optional(tensor)) => form.is_some() == tensor.is_some(),
        (Arg::List(form), Arg::List(tensors)) => form.len() == tensors.len(),
        (Arg::Attribute(form), Arg::Attribute(attribute)) => form == attribute,
        _ => false,
    })
}

impl Latest {
    /// What is compiled for calls of the form of `arguments`.
    fn find(&self, def: &'static OperatorDef, arguments: &[Arg<Array>]) -> Arc<OneForm> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = latest.iter().find(|found| is_of(&found.form, arguments)) {
            return found.clone();
        }
        let call = key(def, arguments);
        let form = call.1.clone();
        let found = kept(&CALLS, call, || OneForm {
            paths: paths(def, arguments),
            compiled: one_call(def, form.clone()),
            form,
        });
        if latest.len() >= LATEST {
            latest.pop();
        }
        latest.insert(0, found.clone());
        found
    }
}

fn arrays(arguments: Vec<Arg<Array>>) -> Vec<Array> {
    let mut arrays = Vec::with_capacity(arguments.len());
    for argument in arguments {
        match argument {
            Arg::Tensor(array) => arrays.push(array),
            Arg::Optional(array) => arrays.extend(array),
            Arg::List(list) => arrays.extend(list),
            Arg::Attribute(_) => {}
        }
    }
    arrays
}

/// Runs an operator, whose last calls are `latest`.
pub(crate) fn run(
    py: Python<'_>,
    def: &'static OperatorDef,
    latest: &Latest,
    arguments: Vec<Arg<Array>>,
) -> PyResult<Vec<Array>> {
    let found = latest.find(def, &arguments);
    let tensors = Tensors { leaves: arrays(arguments), paths: found.paths.clone() };
    without_lock(py, || found.compiled.call(tensors))
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
    let paths = paths(def, &arguments);
    let inputs = Tensors { leaves: arrays(arguments), paths };
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
