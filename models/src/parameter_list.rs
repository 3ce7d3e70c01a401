//! The parameters of a model, whatever its family: a list of named leaves.

use std::sync::Arc;

use fulgurite_ops::prelude::full;
use fulgurite_runtime::argument::Attribute;
use fulgurite_runtime::tree::{Leaf, Tree, join};
use fulgurite_runtime::{Failure, Tensor};

use crate::config::Parameter;

/// One leaf for each parameter of a model, in the order of `Model::parameters`. Training, files and sampling see no
/// more of a model than this list.
#[derive(Debug, Clone)]
pub struct Parameters<T> {
    names: Arc<[String]>,
    leaves: Vec<T>,
}

impl<T> Parameters<T> {
    /// The leaves that `make` makes of the parameters of a model, in their order.
    pub fn build<E>(list: &[Parameter], make: &mut dyn FnMut(&Parameter) -> Result<T, E>) -> Result<Self, E> {
        let leaves = list.iter().map(make).collect::<Result<_, E>>()?;
        Ok(Parameters { names: list.iter().map(|parameter| parameter.name.clone()).collect(), leaves })
    }

    /// The leaf of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.names.iter().position(|own| own == name).map(|index| &self.leaves[index])
    }

    /// The leaf of this name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.names.iter().position(|own| own == name).map(|index| &mut self.leaves[index])
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

impl<T: Leaf> Tree for Parameters<T> {
    type Leaf = T;
    type With<U: Leaf> = Parameters<U>;

    fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a T)) {
        for (name, leaf) in self.names.iter().zip(&self.leaves) {
            f(&join(path, name), leaf);
        }
    }

    fn map<U: Leaf>(self, f: &mut dyn FnMut(T) -> U) -> Parameters<U> {
        Parameters { names: self.names, leaves: self.leaves.into_iter().map(f).collect() }
    }

    fn attributes(&self, found: &mut Vec<Attribute>) {
        // Two models may have parameters of the same shapes under other names.
        found.extend(self.names.iter().map(|name| Attribute::Text(name.as_str().into())));
    }
}
