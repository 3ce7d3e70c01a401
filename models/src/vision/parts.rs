//! What models of images are put together from: lists of parameters, and layers that find theirs by name.

use std::cell::RefCell;

use fulgurite_ops::nn::ConvPadding;
use fulgurite_ops::prelude::*;

use crate::config::{ConfigError, Initial, Parameter};
use crate::dropout::Dropout;
use crate::parameter_list::Parameters;

/// A list of parameters that grows layer by layer, in torchvision's order.
#[derive(Default)]
pub(super) struct List {
    pub(super) parameters: Vec<Parameter>,
    /// Running statistics.
    pub(super) buffers: Vec<Parameter>,
}

fn parameter(name: String, shape: &[usize], initial: Initial) -> Parameter {
    // Weights decay, gains and biases do not.
    let decays = matches!(initial, Initial::Normal(_));
    Parameter { name, shape: shape.to_vec(), decays, is_linear: false, initial }
}

impl List {
    /// A parameter of any kind, which decays if `decays`.
    pub(super) fn other(&mut self, name: &str, shape: &[usize], initial: Initial, decays: bool) {
        self.parameters.push(Parameter { decays, ..parameter(name.to_owned(), shape, initial) });
    }

    /// A convolution without bias, with He's deviation by what each input reaches, as torchvision's ResNets have it
    /// (He et al., "Delving Deep into Rectifiers", 2015).
    pub(super) fn convolution(&mut self, name: &str, outputs: usize, inputs: usize, kernel: usize) {
        let deviation = (2.0 / (outputs * kernel * kernel) as f64).sqrt();
        let shape = [outputs, inputs, kernel, kernel];
        self.parameters.push(parameter(format!("{name}.weight"), &shape, Initial::Normal(deviation)));
    }

    /// A normalization's gains and biases.
    pub(super) fn normalization(&mut self, name: &str, channels: usize) {
        self.parameters.push(parameter(format!("{name}.weight"), &[channels], Initial::Ones));
        self.parameters.push(parameter(format!("{name}.bias"), &[channels], Initial::Zeros));
    }

    /// A normalization with running statistics.
    pub(super) fn batch_normalization(&mut self, name: &str, channels: usize) {
        self.normalization(name, channels);
        self.buffers.push(parameter(format!("{name}.running_mean"), &[channels], Initial::Zeros));
        self.buffers.push(parameter(format!("{name}.running_var"), &[channels], Initial::Ones));
    }

    /// A weight of this shape with the deviation 1 / √(3 n) of PyTorch's uniform values, `inputs` = n, and a bias of
    /// zeros.
    pub(super) fn biased(&mut self, name: &str, shape: &[usize], inputs: usize, outputs: usize) {
        let initial = Initial::Normal((3.0 * inputs as f64).sqrt().recip());
        let is_linear = shape.len() == 2;
        let weight = parameter(format!("{name}.weight"), shape, initial);
        let bias = parameter(format!("{name}.bias"), &[outputs], Initial::Zeros);
        self.parameters.extend([weight, bias].map(|own| Parameter { is_linear, ..own }));
    }

    /// A linear layer.
    pub(super) fn linear(&mut self, name: &str, outputs: usize, inputs: usize) {
        self.biased(name, &[outputs, inputs], inputs, outputs);
    }
}

/// One pass of a model over a batch.
pub(super) struct Pass<'a> {
    params: &'a Parameters<Tensor>,
    buffers: &'a Parameters<Tensor>,
    /// Whether the batch's own statistics normalize it.
    training: bool,
    dropout: &'a Dropout,
    /// The running statistics after the batch.
    next: RefCell<Parameters<Tensor>>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        params: &'a Parameters<Tensor>,
        buffers: &'a Parameters<Tensor>,
        training: bool,
        dropout: &'a Dropout,
    ) -> Pass<'a> {
        Pass { params, buffers, training, dropout, next: RefCell::new(buffers.clone()) }
    }

    /// The running statistics after the batch.
    pub(super) fn into_buffers(self) -> Parameters<Tensor> {
        self.next.into_inner()
    }

    #[track_caller]
    pub(super) fn of(&self, name: &str) -> Tensor {
        self.params.tensor(name)
    }

    fn weight(&self, name: &str) -> Tensor {
        self.of(&format!("{name}.weight"))
    }

    fn bias(&self, name: &str) -> Option<Tensor> {
        self.params.get(&format!("{name}.bias")).copied()
    }

    /// A convolution of [N, C, H, W], with a bias if there is one.
    #[track_caller]
    pub(super) fn convolution(&self, name: &str, x: Tensor, stride: usize, padding: usize) -> Tensor {
        scope(below(name), || {
            let convolved = conv2d::with(x, self.weight(name)).bias(self.bias(name));
            convolved.stride([stride]).padding(ConvPadding::Each(vec![padding])).call()
        })
    }

    /// The transpose of a convolution of windows that do not overlap: [N, C, H, W] to [N, out, H · K, W · K].
    #[track_caller]
    pub(super) fn enlarged(&self, name: &str, x: Tensor) -> Tensor {
        scope(below(name), || {
            let weight = self.weight(name);
            let stride = weight.size(-1);
            conv_transpose2d::with(x, weight).bias(self.bias(name)).stride([stride]).call()
        })
    }

    /// Batch normalization; in training the running statistics follow the batch's.
    #[track_caller]
    pub(super) fn batch_normalization(&self, name: &str, x: Tensor) -> Tensor {
        scope(below(name), || {
            let [mean, var] = ["running_mean", "running_var"].map(|which| format!("{name}.{which}"));
            let normalized = batch_norm::with(x).weight(self.weight(name)).bias(self.bias(name));
            let [running_mean, running_var] = [&mean, &var].map(|which| self.buffers.get(which).copied());
            let normalized = normalized.running_mean(running_mean).running_var(running_var).training(self.training);
            let (out, next_mean, next_var) = normalized.call();
            for (which, after) in [(&mean, next_mean), (&var, next_var)] {
                if let Some(kept) = self.next.borrow_mut().get_mut(which) {
                    *kept = after;
                }
            }
            out
        })
    }

    #[track_caller]
    pub(super) fn group_normalization(&self, name: &str, x: Tensor, groups: usize) -> Tensor {
        scope(below(name), || group_norm::with(x, groups).weight(self.weight(name)).bias(self.bias(name)).call())
    }

    #[track_caller]
    pub(super) fn layer_normalization(&self, name: &str, x: Tensor, eps: f64) -> Tensor {
        let normalized = || layer_norm::with(x, [x.size(-1)]).weight(self.weight(name)).bias(self.bias(name));
        scope(below(name), || normalized().eps(eps).call())
    }

    #[track_caller]
    pub(super) fn linear(&self, name: &str, x: Tensor) -> Tensor {
        scope(below(name), || linear::with(x, self.weight(name)).bias(self.bias(name)).call())
    }

    #[track_caller]
    pub(super) fn dropped(&self, x: Tensor) -> Tensor {
        self.dropout.apply(x)
    }
}

/// A layer's name below its block: the last part, with the one before where it is a number.
fn below(name: &str) -> &str {
    let start = |name: &str| name.rfind('.').map_or(0, |dot| dot + 1);
    let last = start(name);
    let is_number = name[last..].bytes().all(|byte| byte.is_ascii_digit());
    if is_number { &name[start(&name[..last.saturating_sub(1)])..] } else { &name[last..] }
}

/// Checks that fields are from 1 to their limits, which keep a corrupt file from asking for absurd amounts of memory.
pub(super) fn in_range(fields: &[(&'static str, usize, usize)]) -> Result<(), ConfigError> {
    match fields.iter().find(|(_, value, limit)| *value == 0 || value > limit) {
        Some((field, value, limit)) => Err(ConfigError::OutOfRange { field, value: *value, limit: *limit }),
        None => Ok(()),
    }
}
