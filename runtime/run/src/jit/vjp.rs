//! A function and its derivative as two compiled programs, run one after the other.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::cache::Cache;
use super::{Forms, Jit, Key, below, jit, results};
use crate::argument::Arg;
use crate::array::Array;
use crate::compile::{Options, Programs, Saved, compile_split, explain};
use crate::error::{self, CallStack, Error, Place, Result};
use crate::meta::TensorMeta;
use crate::operator::{Role, did_you_mean};
use crate::program::Program;
use crate::trace::Trace;
use crate::tracer::{Tensor, call_role};
use crate::transforms::autodiff::floating_outputs;
use crate::transforms::donate::{Donation, donations};
use crate::tree::Tree;
use crate::whole::prepare_trusted;

/// A function whose forward and backward pass are two programs; see [`Jit::vjp`].
pub struct Vjp<I: Tree<Leaf = Array>, O, F> {
    jit: Jit<I, O, F>,
    with_respect_to: Vec<(String, Place)>,
    cotangents_of: Vec<(String, Place)>,
    layout: Arc<Layout>,
    cache: Cache<Key, Forms, CompiledVjp<O>>,
}

/// The two programs for one form of the arguments.
#[derive(Debug)]
pub struct CompiledVjp<O> {
    forward: Program,
    backward: Program,
    programs: Programs,
    structure: O,
    /// How many of the forward program's outputs are the function's own.
    outputs: usize,
    cotangents: Vec<Cotangent>,
    layout: Arc<Layout>,
    /// Paths of the inputs that gradients are of.
    gradients: Vec<String>,
}

/// What the backward program takes for an output.
#[derive(Debug)]
struct Cotangent {
    path: String,
    meta: TensorMeta,
    /// What it is where none is given; made once, on the program's device.
    zero: OnceLock<Array>,
}

/// What the forward program left: takes cotangents of the results to gradients of the arguments, as often as it is
/// asked to.
#[derive(Debug)]
pub struct Pullback<O> {
    compiled: Arc<CompiledVjp<O>>,
    saved: Vec<Array>,
}

/// Gradients by the paths of the arguments.
#[derive(Debug, Clone)]
pub struct Gradients {
    named: Vec<(String, Array)>,
}

impl<I, O, F> Jit<I, O, F>
where
    I: Tree<Leaf = Array>,
    I::With<Tensor>: Tree<Leaf = Tensor, With<Tensor> = I::With<Tensor>>,
    O: Tree<Leaf = Tensor> + Clone,
    F: Fn(I::With<Tensor>) -> O,
{
    /// The function and its vector-Jacobian product as two programs. The forward program returns the results and saves
    /// the values that the backward program reads. The backward program computes gradients of the arguments from
    /// cotangents of any results. By default, gradients are computed for all floating-point arguments, from cotangents
    /// of all floating-point results. The most recently used programs are kept, as by [`jit`] ([`Jit::keep`]). A
    /// function that calls its own `vjp` while it is traced is an error.
    pub fn vjp(self) -> Vjp<I, O, F> {
        let cache = Cache::new(self.cache.limit());
        let layout = Arc::new(Layout::new(&self.options));
        Vjp { jit: self, with_respect_to: Vec::new(), cotangents_of: Vec::new(), layout, cache }
    }
}

impl<I, O, F> Vjp<I, O, F>
where
    I: Tree<Leaf = Array>,
    I::With<Tensor>: Tree<Leaf = Tensor, With<Tensor> = I::With<Tensor>>,
    O: Tree<Leaf = Tensor> + Clone,
    F: Fn(I::With<Tensor>) -> O,
{
    /// Gradients of the arguments whose paths start with `path`; of several such, if it is called again. What was
    /// compiled before is forgotten.
    #[track_caller]
    pub fn with_respect_to(mut self, path: &str) -> Self {
        self.with_respect_to.push((path.to_owned(), Place::caller()));
        self.cache = Cache::new(self.cache.limit());
        self
    }

    /// Cotangents of the results whose paths start with `path`; those of results that are not named are zero, and
    /// nothing is saved for them.
    #[track_caller]
    pub fn cotangents_of(mut self, path: &str) -> Self {
        self.cotangents_of.push((path.to_owned(), Place::caller()));
        self.cache = Cache::new(self.cache.limit());
        self
    }

    /// For how many forms of arguments there are programs now.
    pub fn programs(&self) -> usize {
        self.cache.len()
    }

    /// How often it was compiled.
    pub fn compiles(&self) -> usize {
        self.jit.compiles()
    }

    /// Runs the forward program: the results, and the pullback, which holds the saved values.
    pub fn call(&self, arguments: I) -> Result<(O::With<Array>, Pullback<O>)> {
        let (compiled, inputs) = self.compiled_for(arguments)?;
        let mut outputs = compiled.forward.run_matching(inputs)?;
        let saved = outputs.split_off(compiled.outputs);
        Ok((results(&compiled.structure, outputs), Pullback { compiled, saved }))
    }

    /// Compiles both programs for arguments of this form without running them.
    pub fn compile(&self, arguments: &I) -> Result<Arc<CompiledVjp<O>>>
    where
        I: Clone,
    {
        Ok(self.compiled_for(arguments.clone())?.0)
    }

    fn compiled_for(&self, arguments: I) -> Result<(Arc<CompiledVjp<O>>, Vec<Array>)> {
        self.jit.found_in(&self.cache, arguments, |key, tree| {
            let (trace, structure) = self.jit.acquire(key, tree)?;
            self.compile_trace(trace, structure)
        })
    }

    fn compile_trace(&self, trace: Trace, structure: O) -> Result<CompiledVjp<O>> {
        let block = &trace.block;
        let name = |i: &usize| block.value(block.parameters[*i]).name.to_string();
        let floating = |i: &usize| block.meta(block.parameters[*i]).dtype().is_differentiable();
        let inputs: Vec<String> = (0..block.parameters.len()).map(|i| name(&i)).collect();
        let wrt = chosen("argument", &inputs, &self.with_respect_to, (0..inputs.len()).filter(floating).collect())?;
        let outputs: Vec<String> = trace.outputs.iter().map(|output| output.path.clone()).collect();
        let of = chosen("result", &outputs, &self.cotangents_of, floating_outputs(&trace))?;
        let cotangent = |i: &usize| Cotangent {
            path: outputs[*i].clone(),
            meta: block.meta(block.results[*i]).clone(),
            zero: OnceLock::new(),
        };
        let cotangents = of.iter().map(cotangent).collect();
        let gradients = wrt.iter().map(name).collect();
        let options = &self.jit.options;
        let programs = compile_split(trace, &wrt, &of, options)?;
        let (forward, backward) = prepare_trusted(&programs, options)?;
        self.jit.count(&forward);
        let (outputs, layout) = (outputs.len(), self.layout.clone());
        Ok(CompiledVjp { forward, backward, programs, structure, outputs, cotangents, layout, gradients })
    }
}

/// The leaves that start with one of `paths`, of those that may be chosen; all of these if no path is given.
fn chosen(
    what: &'static str,
    leaves: &[String],
    paths: &[(String, Place)],
    floating: Vec<usize>,
) -> Result<Vec<usize>> {
    if paths.is_empty() {
        return Ok(floating);
    }
    for (path, place) in paths {
        let named = |i: &usize| below(&leaves[*i], path);
        if !(0..leaves.len()).any(|i| named(&i)) {
            let message =
                format!("no {what}'s path starts with it{}", there_are(path, leaves.iter().map(String::as_str)));
            return Err(wrong_path(what, path, message, *place));
        }
        if !floating.iter().any(named) {
            let message = format!("the {what} has no floating-point tensor, and so no derivative");
            return Err(wrong_path(what, path, message, *place));
        }
    }
    Ok(floating.into_iter().filter(|i| paths.iter().any(|(path, _)| below(&leaves[*i], path))).collect())
}

/// What is wrong with a path that was given at `place`.
fn wrong_path(what: &'static str, path: &str, message: String, place: Place) -> Error {
    let stack = Box::new(CallStack { at: Some(place), frames: Vec::new() });
    Error::Path { what, path: path.to_owned(), message, stack }
}

/// The names that there are, and the one that may have been meant by `path`.
fn there_are<'a>(path: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
    let hint = did_you_mean(path, names.clone());
    format!("{hint}{} {}", error::there_are(&hint), listed(names))
}

/// Some names, for a message.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.take(13).collect();
    if names.len() > 12 {
        names[12] = "...";
    }
    names.join(", ")
}

impl<O> CompiledVjp<O> {
    /// The function's arguments in, its results and the saved values out.
    pub fn forward(&self) -> &Program {
        &self.forward
    }

    /// The saved values and cotangents in, gradients out.
    pub fn backward(&self) -> &Program {
        &self.backward
    }

    /// The trace after each transform, of both programs.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// What the forward program saves for the backward program.
    pub fn saved(&self) -> Vec<Saved> {
        self.programs.saved()
    }

    /// For each donated argument of the forward program the result that has its memory, or the reason why none has.
    /// What is saved is not given away.
    pub fn donations(&self) -> Vec<Donation> {
        donations(self.forward.trace())
    }

    /// Which executor supplied which gradient rule and took which symbol, why others did not, and what was measured.
    pub fn explain(&self) -> String {
        let Programs { joint, forward, backward } = &self.programs;
        explain(joint.iter().chain(forward).chain(backward))
    }
}

/// Copies arrays that are not in row-major order, which backward programs require of cotangents.
struct Layout(Jit<Array, Tensor, fn(Tensor) -> Tensor>);

impl Layout {
    /// As the functions compiled with `options` are run. Transforms of the user's own and autocast are meant for the
    /// function: a copy is no part of it, and keeps its element type.
    fn new(options: &Options) -> Layout {
        fn copy(array: Tensor) -> Tensor {
            let of = |role, tensor| call_role(role, vec![Arg::Tensor(tensor)]);
            match array.dtype().is_complex() {
                // Kernels copy real numbers alone.
                true => of(Role::ViewAsComplex, of(Role::Contiguous, of(Role::ViewAsReal, array))),
                false => of(Role::Contiguous, array),
            }
        }
        let options = Options { transforms: Vec::new(), autocast: None, ..options.clone() };
        Layout(jit(copy as fn(_) -> _).named("cotangent_layout").options(options))
    }

    /// The values row by row, where the options have them.
    fn row_by_row(&self, array: Array) -> Result<Array> {
        if array.is_contiguous() { Ok(array) } else { self.0.call(array) }
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Layout").field(&self.0.options).finish()
    }
}

impl Cotangent {
    /// Whether the backward program takes an array of this form.
    fn check(&self, array: &Array) -> Result<(), String> {
        let (own, device) = (&self.meta, array.device());
        if array.shape() == own.shape() && array.dtype() == own.dtype() && (device.is_cpu() || device == own.device()) {
            return Ok(());
        }
        Err(format!("is {}, expected {own}", array.meta()))
    }

    fn zero(&self) -> Result<Array> {
        if let Some(zero) = self.zero.get() {
            return Ok(zero.clone());
        }
        let zero = Array::zeros_on(self.meta.device(), self.meta.shape(), self.meta.dtype())?;
        Ok(self.zero.get_or_init(|| zero).clone())
    }
}

impl<O> Pullback<O> {
    /// The gradients for some cotangents, by the paths of the results that they are of. A result that is not named has
    /// the cotangent zero. Cotangents on the program's device stay there; those on the host are taken to it.
    ///
    /// # Errors
    /// If a path is not that of a result with a cotangent, is named twice, or its array has another shape or element
    /// type, or is on another device.
    #[track_caller]
    pub fn call<P: AsRef<str>>(&self, cotangents: impl IntoIterator<Item = (P, Array)>) -> Result<Gradients> {
        let compiled = &self.compiled;
        let mut given: Vec<Option<Array>> = vec![None; compiled.cotangents.len()];
        let place = Place::caller();
        for (path, array) in cotangents {
            let path = path.as_ref();
            let wrong = |message: String| wrong_path("cotangent", path, message, place);
            let names = compiled.cotangents.iter().map(|own| own.path.as_str());
            let Some(i) = names.clone().position(|own| own == path) else {
                return Err(wrong(format!("is of no result that has cotangents{}", there_are(path, names))));
            };
            compiled.cotangents[i].check(&array).map_err(wrong)?;
            if given[i].replace(array).is_some() {
                return Err(wrong("is given twice".into()));
            }
        }
        let mut inputs = self.saved.clone();
        for (array, own) in given.into_iter().zip(&compiled.cotangents) {
            inputs.push(array.map_or_else(|| own.zero(), |array| compiled.layout.row_by_row(array))?);
        }
        let mut arrays = compiled.backward.run_matching(inputs)?;
        for array in &mut arrays {
            // A gradient may be a cotangent as it came. A kept zero is not given away: the caller could not donate it.
            let kept = |own: &Cotangent| own.zero.get().is_some_and(|zero| zero.shares_memory(array));
            if compiled.cotangents.iter().any(kept) {
                *array = Array::zeros_on(array.device(), array.shape(), array.dtype())?;
            }
        }
        Ok(Gradients { named: compiled.gradients.iter().cloned().zip(arrays).collect() })
    }

    /// The saved values, by name.
    pub fn saved(&self) -> impl Iterator<Item = (Arc<str>, &Array)> {
        let names = self.compiled.saved().into_iter().map(|saved| saved.name);
        names.zip(&self.saved)
    }
}

impl Gradients {
    /// The gradient of the argument of that path.
    #[track_caller]
    pub fn of(&self, path: &str) -> Result<&Array> {
        self.find(path, Place::caller())
    }

    fn find(&self, path: &str, place: Place) -> Result<&Array> {
        let found = self.named.iter().find(|(own, _)| own == path);
        found.map(|(_, gradient)| gradient).ok_or_else(|| {
            let names = self.named.iter().map(|(own, _)| own.as_str());
            let message = format!("no argument of that path has a gradient here{}", there_are(path, names));
            wrong_path("gradient", path, message, place)
        })
    }

    /// The gradients of the tree of arguments at `path`, in the same structure.
    #[track_caller]
    pub fn tree<T: Tree>(&self, path: &str, tree: T) -> Result<T::With<Array>> {
        let place = Place::caller();
        let mut gradients = Vec::new();
        tree.visit(path, &mut |path, _| gradients.push(self.find(path, place).cloned()));
        let mut gradients = gradients.into_iter().collect::<Result<Vec<Array>>>()?.into_iter();
        Ok(tree.map(&mut |_| gradients.next().unwrap_or_else(|| unreachable!("one for each leaf"))))
    }

    /// All of them with their paths, in the order of the arguments.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.named.iter().map(|(path, gradient)| (path.as_str(), gradient))
    }
}
