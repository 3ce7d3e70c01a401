//! The parameters of a model, whatever its family: a list of named leaves.

use std::collections::HashMap;
use std::sync::Arc;

use fulgurite_ops::prelude::{full, with_copy};
use fulgurite_runtime::argument::{Attribute, Scalar};
use fulgurite_runtime::tree::{Leaf, Tree, join};
use fulgurite_runtime::{Failure, Tensor};

use crate::config::Parameter;
use crate::random::fingerprint;

/// One leaf for each parameter of a model, in the order of `Model::parameters`. Training, files and sampling see no
/// more of a model than this list.
#[derive(Debug, Clone)]
pub struct Parameters<T> {
    names: Arc<Names>,
    leaves: Vec<T>,
}

/// The names of a list, which all lists of a model share.
#[derive(Debug)]
struct Names {
    in_order: Vec<String>,
    places: HashMap<String, usize>,
    /// Of the names in their order; a call of a compiled function compares no more than this.
    fingerprint: u64,
}

impl Names {
    fn of(list: &[Parameter]) -> Names {
        let in_order: Vec<String> = list.iter().map(|parameter| parameter.name.clone()).collect();
        // No name has a byte of 0, which ends each.
        let bytes = in_order.iter().flat_map(|name| name.bytes().chain([0]));
        let fingerprint = fingerprint(bytes.map(u64::from));
        Names { places: in_order.iter().cloned().zip(0..).collect(), fingerprint, in_order }
    }
}

impl<T> Parameters<T> {
    /// The leaves that `make` makes of the parameters of a model, in their order.
    pub fn build<E>(list: &[Parameter], make: &mut dyn FnMut(&Parameter) -> Result<T, E>) -> Result<Self, E> {
        let leaves = list.iter().map(make).collect::<Result<_, E>>()?;
        Ok(Parameters { names: Arc::new(Names::of(list)), leaves })
    }

    /// The list of no parameters.
    pub fn none() -> Self {
        Parameters { names: Arc::new(Names::of(&[])), leaves: Vec::new() }
    }

    /// The first leaf.
    pub fn first(&self) -> Option<&T> {
        self.leaves.first()
    }

    /// Whether it is the list of no parameters.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// The leaf of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.names.places.get(name).map(|place| &self.leaves[*place])
    }

    /// The leaf of this name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.names.places.get(name).map(|place| &mut self.leaves[*place])
    }
}

impl Parameters<Tensor> {
    /// The traced parameter of this name. Without one the trace ends with an error.
    #[track_caller]
    pub fn tensor(&self, name: &str) -> Tensor {
        self.get(name).copied().unwrap_or_else(|| {
            let message = format!("the parameters have none of the name '{name}'");
            fulgurite_runtime::tracer::fail("parameters", Failure::new("ParameterName", message));
            // Within a trace that has failed, every result is a placeholder.
            full([0_usize; 0], 0.0)
        })
    }
}

impl Parameters<Tensor> {
    /// These parameters, with those of `copies` in another element type beside them ([`with_copy`]).
    #[track_caller]
    pub fn with_copies(&self, copies: &Parameters<Tensor>) -> Self {
        let beside = |(name, own): (&String, &Tensor)| match copies.get(name) {
            Some(copy) => with_copy(*own, *copy),
            None => *own,
        };
        let leaves = self.names.in_order.iter().zip(&self.leaves).map(beside).collect();
        Parameters { names: self.names.clone(), leaves }
    }
}

impl<T: Leaf> Tree for Parameters<T> {
    type Leaf = T;
    type With<U: Leaf> = Parameters<U>;

    fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a T)) {
        for (name, leaf) in self.names.in_order.iter().zip(&self.leaves) {
            f(&join(path, name), leaf);
        }
    }

    fn map<U: Leaf>(self, f: &mut dyn FnMut(T) -> U) -> Parameters<U> {
        Parameters { names: self.names, leaves: self.leaves.into_iter().map(f).collect() }
    }

    fn attributes(&self, found: &mut Vec<Attribute>) {
        // Two models may have parameters of the same shapes under other names.
        found.push(Attribute::Scalar(Scalar::Int(self.names.fingerprint as i64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Initial;
    use fulgurite_runtime::{Array, jit};

    fn named(names: [&str; 2]) -> Parameters<Array> {
        let one = |name: &str| {
            let (name, shape, initial) = (name.into(), vec![], Initial::Ones);
            Parameter { name, shape, decays: false, is_linear: false, initial }
        };
        let made: Result<_, std::convert::Infallible> =
            Parameters::build(&names.map(one), &mut |own| Ok(Array::scalar(own.name.len() as f32)));
        let Ok(params) = made;
        params
    }

    #[test]
    fn a_function_tells_lists_apart_by_their_names() {
        let f = jit(|params: Parameters<Tensor>| params.tensor("a"));
        let call = |names| -> fulgurite_runtime::Result<f64> { f.call(named(names))?.item() };
        assert_eq!((call(["a", "bcd"]).unwrap(), call(["bcd", "a"]).unwrap(), f.compiles()), (1.0, 1.0, 2));
        assert_eq!((call(["a", "bcd"]).unwrap(), f.compiles()), (1.0, 2));
        let message = call(["ab", "c"]).unwrap_err().to_string();
        assert!(message.contains("the parameters have none of the name 'a'"), "{message}");
    }
}
