//! Functions that are traced and compiled when they are first called, and again when their arguments change form.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fulgurite_kernels::DType;

use crate::argument::Attribute;
use crate::array::{Array, Form, Strides};
use crate::compile::{Options, Stage, compile_traced, explain};
use crate::error::{Error, Result};
use crate::meta::{Device, LARGEST_TENSOR, Target, TensorMeta};
use crate::program::{Profile, Program};
use crate::registered;
use crate::trace::{Input, InputRole, Output, StageName, Trace};
use crate::tracer::{Tensor, trace_block};
use crate::transforms::donate::{Donation, donations};
use crate::transforms::tensor_parallel::Division;
use crate::tree::Tree;
use cache::{Cache, Found};
use fulgurite_kernels::mesh::Mesh;

mod bound;
mod cache;
mod vjp;

pub use bound::{Bound, WithState};
pub use vjp::{CompiledVjp, Gradients, Pullback, Vjp};

/// Names of a function's arguments and results at the root of their trees.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// One for each element of the tuple of arguments; `arg0`, `arg1`, ... where missing.
    pub arguments: Vec<String>,
    /// One for each element of the tuple of results; `result0`, `result1`, ... where missing.
    pub results: Vec<String>,
}

/// Fails if there are names for some of the positional `paths` and not for all: a tree without leaves has a name and no
/// path.
fn all_named(function: &str, names: &[String], paths: &[String]) -> Result<()> {
    let positions = paths.iter().filter_map(|path| path.split('.').next()?.parse::<usize>().ok());
    let count = positions.max().map_or(0, |last| last + 1);
    if names.is_empty() || names.len() >= count {
        return Ok(());
    }
    let message = format!("has {count} arguments, and names for {} of them: {}", names.len(), names.join(", "));
    Err(Error::Path { what: "function", path: function.to_owned(), message, stack: Box::default() })
}

/// The path with its positional root replaced by a name.
fn named(path: &str, names: &[String], positional: &str) -> String {
    if path.is_empty() {
        return names.first().cloned().unwrap_or_else(|| positional.to_owned());
    }
    let (root, rest) = path.split_once('.').map_or((path, None), |(root, rest)| (root, Some(rest)));
    let Ok(index) = root.parse::<usize>() else { return path.to_owned() };
    let root = names.get(index).cloned().unwrap_or_else(|| format!("{positional}{index}"));
    rest.map_or(root.clone(), |rest| format!("{root}.{rest}"))
}

/// Traces `f` on arguments of the given metas. Returns the trace and what `f` returned (whose handles are stale).
pub fn trace<I, O>(
    name: &str,
    target: Target,
    names: &Names,
    arguments: I,
    f: impl FnOnce(I::With<Tensor>) -> O,
) -> Result<(Trace, O)>
where
    I: Tree<Leaf = TensorMeta>,
    O: Tree<Leaf = Tensor>,
{
    let mut parameters: Vec<(Arc<str>, TensorMeta)> = Vec::new();
    arguments.visit("", &mut |path, meta| parameters.push((named(path, &names.arguments, "arg").into(), meta.clone())));
    let arguments = |next: &mut dyn FnMut() -> Tensor| arguments.map(&mut |_| next());
    trace_parameters(name, target, names, &parameters, arguments, f)
}

/// Traces `f` on handles of `parameters`, which `arguments` takes in order.
fn trace_parameters<A, O: Tree<Leaf = Tensor>>(
    name: &str,
    target: Target,
    names: &Names,
    parameters: &[(Arc<str>, TensorMeta)],
    arguments: impl FnOnce(&mut dyn FnMut() -> Tensor) -> A,
    f: impl FnOnce(A) -> O,
) -> Result<(Trace, O)> {
    // Functions and rules multiply extents of what they are given.
    if let Some((name, meta)) = parameters.iter().find(|(_, meta)| meta.addressable().is_err()) {
        let message = format!("is {meta}, larger than any memory, {LARGEST_TENSOR} bytes");
        return Err(Error::Argument { argument: name.to_string(), message });
    }
    let mut returned = None;
    let mut outputs = Vec::new();
    let block = trace_block(parameters, |handles| {
        let mut handles = handles.iter();
        let arguments = arguments(&mut || *handles.next().unwrap_or_else(|| unreachable!("one for each leaf")));
        let result = f(arguments);
        let mut tensors = Vec::new();
        result.visit("", &mut |path, tensor| {
            tensors.push(*tensor);
            outputs.push(Output { path: named(path, &names.results, "result") });
        });
        returned = Some(result);
        tensors
    })?;
    let trace = Trace {
        name: name.to_owned(),
        target,
        history: vec![StageName::Acquire.name().into()],
        inputs: parameters.iter().map(|_| Input { role: InputRole::Input, donated: false, strides: None }).collect(),
        outputs,
        arena: None,
        block: block.canonical(),
    };
    let returned = returned
        .ok_or_else(|| Error::Argument { argument: name.to_owned(), message: "the function did not return".into() })?;
    Ok((trace, returned))
}

/// A program compiled for one form of the arguments.
#[derive(Debug)]
pub struct Compiled<O> {
    program: Program,
    stages: Vec<Stage>,
    structure: O,
}

impl<O> Compiled<O> {
    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The trace after each transform.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// The trace of the stage of that name.
    pub fn stage(&self, name: &str) -> Option<&Trace> {
        self.stages.iter().find(|stage| stage.name == name).map(|stage| &stage.trace)
    }

    /// For each donated argument the result that has its memory, or the reason why none has.
    pub fn donations(&self) -> Vec<Donation> {
        donations(self.program.trace())
    }

    /// Which executor supplied which gradient rule and took which symbol, why others did not, and what was measured.
    pub fn explain(&self) -> String {
        explain(&self.stages)
    }
}

/// A run's outputs as the function returns them.
fn results<O: Tree<Leaf = Tensor> + Clone>(structure: &O, outputs: Vec<Array>) -> O::With<Array> {
    let mut outputs = outputs.into_iter();
    structure.clone().map(&mut |_| outputs.next().unwrap_or_else(|| unreachable!("one output for each leaf")))
}

/// The forms of the arrays of a call. Calls with the same key have arrays of other forms; an array that has the form of
/// the last call's is known to have its meta and strides, without a comparison.
type Forms = Vec<Arc<Form>>;

#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// Strides where they are not those of a contiguous array.
    leaves: Vec<(TensorMeta, Option<Strides>)>,
    attributes: Vec<Attribute>,
    autocast: Option<DType>,
    /// What is registered with which version ([`fulgurite_compile::registration`]).
    registrations: u64,
}

/// Gives the arguments that are parts of tensors the metas of the whole.
///
/// # Errors
/// If a part has not its length, or one of the sharding's paths is no argument's.
fn whole_metas(options: &Options, parameters: &mut [(Arc<str>, TensorMeta)]) -> Result<()> {
    if let Some(division) = &options.division {
        undivided_metas(division, &options.mesh, parameters)?;
    }
    let Some(sharding) = &options.sharding else { return Ok(()) };
    let axis = sharding.axis_of(&options.mesh)?;
    for path in sharding.paths() {
        let whole = sharding.whole(path).unwrap_or_default();
        let wrong = |message| Error::Argument { argument: path.to_owned(), message };
        let Some((_, meta)) = parameters.iter_mut().find(|(name, _)| **name == *path) else {
            return Err(wrong("is to be a part of a tensor, but no argument has that path".into()));
        };
        let length = axis.part_length(whole);
        if meta.shape() != [length] {
            let message = format!(
                "has shape {:?}, expected [{length}], the part of shape {whole:?} that each rank along {axis} has",
                meta.shape()
            );
            return Err(wrong(message));
        }
        *meta = meta.with_shape(whole);
    }
    let missing = sharding.same().find(|path| !parameters.iter().any(|(name, _)| **name == **path));
    missing.map_or(Ok(()), |path| {
        let message = "is to be the same on all ranks, but no argument has that path".to_owned();
        Err(Error::Argument { argument: path.to_owned(), message })
    })
}

/// Gives the arguments that are divided among ranks the metas of the whole.
///
/// # Errors
/// If a part has not its shape, or one of the division's paths is no argument's.
fn undivided_metas(division: &Division, mesh: &Mesh, parameters: &mut [(Arc<str>, TensorMeta)]) -> Result<()> {
    let axis = division.axis_of(mesh)?;
    let mut missing: BTreeSet<&str> = division.paths().collect();
    for (name, meta) in parameters {
        let Some(divided) = division.part(name) else { continue };
        missing.remove(&**name);
        let (dim, extent) = (divided.dim, divided.extent());
        let part = extent / axis.extent();
        if meta.shape().get(dim) != Some(&part) {
            let message = format!(
                "has shape {:?}, expected {part} in dimension {dim}, the part of {extent} that each rank along {axis} \
                 has",
                meta.shape()
            );
            return Err(Error::Argument { argument: name.to_string(), message });
        }
        let mut whole = meta.shape().to_vec();
        whole[dim] = extent;
        *meta = meta.with_shape(whole);
    }
    missing.first().map_or(Ok(()), |path| {
        let message = "is to be divided among ranks, but no argument has that path".to_owned();
        Err(Error::Argument { argument: (*path).to_owned(), message })
    })
}

/// Whether the leaf `name` is `path` or below it.
fn below(name: &str, path: &str) -> bool {
    name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A compiled function; see [`jit`].
pub struct Jit<I: Tree<Leaf = Array>, O, F> {
    name: String,
    function: F,
    options: Options,
    names: Names,
    donated: Vec<String>,
    cache: Cache<Key, Forms, Compiled<O>>,
    compiles: AtomicUsize,
    arguments: std::marker::PhantomData<fn(I)>,
}

/// Default number of programs that a function keeps.
const MOST_PROGRAMS: usize = 64;

/// A function that is compiled when it is first called, for the metas, strides and attributes of its arguments, and
/// again when these change. `f` receives the tree of its arguments with a [`Tensor`] at each leaf.
///
/// Several threads may call it at the same time; while one compiles, others run compiled programs. The 64 most recently
/// used programs are kept ([`Jit::keep`] sets another number). After a [registration](fulgurite_compile::registration)
/// at run time or a withdrawal, it is compiled again at its next call. A function that calls itself while it is traced
/// is an error.
pub fn jit<I, O, F>(f: F) -> Jit<I, O, F>
where
    I: Tree<Leaf = Array>,
    O: Tree<Leaf = Tensor> + Clone,
    F: Fn(I::With<Tensor>) -> O,
{
    Jit {
        name: "function".into(),
        function: f,
        options: Options::default(),
        names: Names::default(),
        donated: Vec::new(),
        cache: Cache::new(MOST_PROGRAMS),
        compiles: AtomicUsize::new(0),
        arguments: std::marker::PhantomData,
    }
}

impl<I, O, F> Jit<I, O, F>
where
    I: Tree<Leaf = Array>,
    I::With<Tensor>: Tree<Leaf = Tensor, With<Tensor> = I::With<Tensor>>,
    O: Tree<Leaf = Tensor> + Clone,
    F: Fn(I::With<Tensor>) -> O,
{
    /// Sets the function's name in traces.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Sets the names of the elements of the tuple of arguments.
    pub fn arguments<const N: usize>(mut self, names: [&str; N]) -> Self {
        self.names.arguments = names.map(str::to_owned).to_vec();
        self.forgotten()
    }

    /// Sets the names of the elements of the tuple of results.
    pub fn results<const N: usize>(mut self, names: [&str; N]) -> Self {
        self.names.results = names.map(str::to_owned).to_vec();
        self.forgotten()
    }

    /// Donates the memory of the arguments whose paths begin with `path` to results of the same path. The arrays must
    /// not be shared when the function is called. A path without an argument is an error when a call is compiled.
    pub fn donate(mut self, path: &str) -> Self {
        self.donated.push(path.to_owned());
        self.forgotten()
    }

    /// Sets the options of compilation.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self.forgotten()
    }

    /// Maximum number of programs that are kept, at least one. Beyond it, the least recently used program and its
    /// memory are freed; its next call compiles again.
    pub fn keep(mut self, programs: usize) -> Self {
        self.cache = Cache::new(programs.max(1));
        self
    }

    /// Without programs that were compiled with other settings.
    fn forgotten(mut self) -> Self {
        self.cache = Cache::new(self.cache.limit());
        self
    }

    /// Number of programs that are kept now.
    pub fn programs(&self) -> usize {
        self.cache.len()
    }

    /// Number of compilations.
    pub fn compiles(&self) -> usize {
        self.compiles.load(Ordering::Relaxed)
    }

    /// Calls the function.
    pub fn call(&self, arguments: I) -> Result<O::With<Array>> {
        let (compiled, inputs) = self.compiled_for(arguments)?;
        Ok(results(&compiled.structure, compiled.program.run_matching(inputs)?))
    }

    /// Calls the function and times each symbol by itself.
    pub fn profile(&self, arguments: I) -> Result<(O::With<Array>, Profile)> {
        let (compiled, inputs) = self.compiled_for(arguments)?;
        let (outputs, profile) = compiled.program.profile(inputs)?;
        Ok((results(&compiled.structure, outputs), profile))
    }

    /// Compiles the function for arguments of this form without running it.
    pub fn compile(&self, arguments: &I) -> Result<Arc<Compiled<O>>>
    where
        I: Clone,
    {
        Ok(self.compiled_for(arguments.clone())?.0)
    }

    /// The trace of the function for arguments of this form, as compilation gets it: without a transform, with donated
    /// inputs. Nothing is compiled or kept.
    ///
    /// # Errors
    /// What fails while the function is traced.
    pub fn trace(&self, arguments: &I) -> Result<Trace>
    where
        I: Clone,
    {
        let mut attributes = Vec::new();
        arguments.attributes(&mut attributes);
        let mut inputs: Vec<Array> = Vec::new();
        let tree = arguments.clone().map(&mut |array: Array| {
            inputs.push(array);
            Tensor::PLACEHOLDER
        });
        let _pinned = registered::pin();
        Ok(self.acquire(&self.key(&inputs, attributes), tree)?.0)
    }

    /// The arguments' arrays, and what is compiled for them.
    fn compiled_for(&self, arguments: I) -> Result<(Arc<Compiled<O>>, Vec<Array>)> {
        self.found_in(&self.cache, arguments, |key, tree| self.compile_for(key, tree))
    }

    /// The arguments' arrays, and what `cache` has for them or `compile` makes.
    fn found_in<V>(
        &self,
        cache: &Cache<Key, Forms, V>,
        arguments: I,
        compile: impl FnOnce(&Key, I::With<Tensor>) -> Result<V>,
    ) -> Result<(Arc<V>, Vec<Array>)> {
        let mut attributes = Vec::new();
        arguments.attributes(&mut attributes);
        let mut inputs: Vec<Array> = Vec::new();
        let tree = arguments.map(&mut |array: Array| {
            inputs.push(array);
            Tensor::PLACEHOLDER
        });
        if let Some(compiled) = cache.last(|key, forms| self.matches((key, forms), &inputs, &attributes)) {
            return Ok((compiled, inputs));
        }
        // From the key to the end of the compilation nothing is registered or withdrawn for this thread.
        let _pinned = registered::pin();
        let key = Arc::new(self.key(&inputs, attributes));
        let forms = inputs.iter().map(|array| array.form().clone()).collect();
        let compiled = match cache.find(&key, forms) {
            Found::Ready(compiled) => compiled,
            Found::Missing(place) => {
                let compiled = compile(&key, tree)?;
                // What was compiled for registrations that do not come back is not called again.
                let others = key.registrations;
                cache.forget(|key| key.registrations != 0 && key.registrations != others);
                place.fill(compiled)
            }
            Found::Recursive => {
                return Err(Error::Argument {
                    argument: self.name.clone(),
                    message: "is called by itself while it is traced; call the Rust function that it was made of"
                        .into(),
                });
            }
        };
        Ok((compiled, inputs))
    }

    /// The device of an argument where the function runs.
    fn device(&self, array: &Array) -> Device {
        match self.options.device {
            Some(device) if array.device().is_cpu() => device,
            _ => array.device(),
        }
    }

    fn key(&self, inputs: &[Array], attributes: Vec<Attribute>) -> Key {
        let leaf = |array: &Array| {
            let strides = (!array.is_contiguous()).then(|| Strides::from_slice(array.strides()));
            (array.meta().with_device(self.device(array)), strides)
        };
        Key {
            leaves: inputs.iter().map(leaf).collect(),
            attributes,
            autocast: self.options.autocast,
            registrations: registered::epoch(),
        }
    }

    /// Whether the key of a call is that of these arguments.
    fn matches(&self, call: (&Key, &Forms), inputs: &[Array], attributes: &[Attribute]) -> bool {
        self.matches_behind(call, (0, 0), inputs, attributes)
    }

    /// Whether the key of a call is that of arguments of which the first ones, with so many leaves and attributes, are
    /// as in the key, and the others are these.
    fn matches_behind(
        &self,
        (key, forms): (&Key, &Forms),
        (leaves, before): (usize, usize),
        inputs: &[Array],
        attributes: &[Attribute],
    ) -> bool {
        key.leaves.len() == leaves + inputs.len()
            && key.attributes.get(before..) == Some(attributes)
            && key.autocast == self.options.autocast
            && key.registrations == registered::epoch()
            && self.have_forms((key, forms), leaves, inputs)
    }

    /// Whether these arrays have the metas and strides of the key's leaves from number `first` on.
    fn have_forms(&self, (key, forms): (&Key, &Forms), first: usize, inputs: &[Array]) -> bool {
        // Those before the first are not walked over.
        let (leaves, forms) = (key.leaves.iter().skip(first), forms.iter().skip(first));
        leaves.zip(forms).zip(inputs).all(|(((meta, strides), form), array)| {
            // What a donated argument is updated to comes back in the form that it had.
            if Arc::ptr_eq(form, array.form()) {
                return true;
            }
            meta.shape() == array.shape()
                && meta.dtype() == array.dtype()
                && meta.device() == self.device(array)
                && match strides {
                    Some(strides) => !array.is_contiguous() && strides[..] == *array.strides(),
                    None => array.is_contiguous(),
                }
        })
    }

    fn compile_for(&self, key: &Key, tree: I::With<Tensor>) -> Result<Compiled<O>> {
        let (trace, structure) = self.acquire(key, tree)?;
        let (program, stages) = compile_traced(trace, &self.options)?;
        self.count(&program);
        Ok(Compiled { program, stages, structure })
    }

    fn count(&self, program: &Program) {
        self.compiles.fetch_add(1, Ordering::Relaxed);
        tracing::info!(function = self.name, steps = program.trace().block.symbols.len(), "compiled");
    }

    /// The trace of the function on arguments of this form, and what it returned.
    fn acquire(&self, key: &Key, tree: I::With<Tensor>) -> Result<(Trace, O)> {
        let given = key.leaves.iter().map(|(meta, _)| meta.device()).find(|device| !device.is_cpu());
        // Without arguments the options alone say it.
        let asked = self.options.device.filter(|device| key.leaves.is_empty() && !device.is_cpu());
        let target = match given.or(asked) {
            Some(device) => Target::of(device)?,
            None => Target::cpu(),
        };
        let target = target.on_mesh(self.options.mesh.clone());
        let mut parameters: Vec<(Arc<str>, TensorMeta)> = Vec::with_capacity(key.leaves.len());
        let mut metas = key.leaves.iter().map(|(meta, _)| meta.clone());
        let mut paths: Vec<String> = Vec::new();
        tree.visit("", &mut |path, _| {
            paths.push(path.to_owned());
            let meta = metas.next().unwrap_or_else(|| unreachable!("one for each leaf"));
            parameters.push((named(path, &self.names.arguments, "arg").into(), meta));
        });
        all_named(&self.name, &self.names.arguments, &paths)?;
        whole_metas(&self.options, &mut parameters)?;
        let arguments = |next: &mut dyn FnMut() -> Tensor| tree.map(&mut |_| next());
        let (mut trace, structure) =
            trace_parameters(&self.name, target, &self.names, &parameters, arguments, &self.function)?;
        for ((input, parameter), (_, strides)) in trace.inputs.iter_mut().zip(&trace.block.parameters).zip(&key.leaves)
        {
            input.strides = strides.as_ref().map(|strides| strides.to_vec());
            let name = &trace.block.values[parameter.index()].name;
            input.donated = self.donated.iter().any(|path| below(name, path));
        }
        for path in &self.donated {
            // An argument may be a tree without leaves: an option that is none.
            let argument = self.names.arguments.contains(path);
            if !argument && !parameters.iter().any(|(name, _)| below(name, path)) {
                let mut names: Vec<&str> = parameters.iter().map(|(name, _)| &**name).take(12).collect();
                if parameters.len() > names.len() {
                    names.push("...");
                }
                let message = format!("is to be donated, but no argument's path starts with it: {}", names.join(", "));
                return Err(Error::Argument { argument: path.clone(), message });
            }
        }
        Ok((trace, structure))
    }
}
