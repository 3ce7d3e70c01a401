//! Sharded training: each rank along an axis of the mesh has a part of the parameters and of the optimizer's state, and
//! a part of the batch of its own.
//!
//! The program is traced with whole tensors. Here its arguments become parts ([`Sharding`]): `whole` lines gather a
//! tensor where a line reads all of it, what is elementwise is computed on parts, and the sum of all elements is that
//! of the parts' sums. In the function of a `value_and_grad` line the gradient of `whole` is a part of the sum over the
//! ranks, so that gradients are scattered as soon as they are written, and the optimizer updates parts. The loss is
//! divided by the number of ranks before it is differentiated: its sum, and that of the gradients, are the means.
//! Random draws are parts of what one rank draws (`draws`).
//! Rajbhandari et al., 2020 (ZeRO); Zhao et al., 2023 (FSDP).

mod kept;
mod kinds;
mod lines;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use self::lines::{adds, alike, converts, elementwise, openable, repeats_a_number};
use super::cheap::Property;
use super::draws;
use super::flatten::{Flattener, Substitution};
use crate::DType;
use crate::argument::{Arg, Attribute, AttributeType, Scalar, map_arguments};
use crate::arithmetic::{Arithmetic, Elements};
use crate::error::{Error, Result};
use crate::mesh::{Axis, Mesh};
use crate::meta::TensorMeta;
use crate::operator::{OperatorDef, Role, RuleSet};
use crate::registry::role;
use crate::trace::paths::{input_place, output_place};
use crate::trace::{Block, BoundSymbol, Callee, Results, Trace, ValueId};
use crate::tracer::{infer, with_defaults};

/// Its name in the history of a trace.
pub const FSDP: &str = "fsdp";

/// Which arguments of a program are parts of tensors, one on each rank along an axis, and the shapes of the whole. A
/// part is one-dimensional: the elements in row-major order are divided into equal parts, of which the last ones end
/// with zeros ([`Axis::part_length`]). Results with the paths of such arguments are parts too. Of the other arguments,
/// those without dimensions are numbers that all ranks give alike; those with dimensions are each rank's own, as its
/// batch is.
#[derive(Debug, Clone, Default)]
pub struct Sharding {
    axis: String,
    shapes: BTreeMap<String, Vec<usize>>,
    same: BTreeSet<String>,
    /// From how many bytes on a tensor that was gathered for the forward pass is gathered again for the backward pass,
    /// in place of being kept until then (ZeRO-3). `None` keeps all.
    pub gather_again: Option<u64>,
}

impl Sharding {
    /// No arguments yet, along the axis of this name.
    pub fn new(axis: &str) -> Sharding {
        Sharding { axis: axis.to_owned(), ..Sharding::default() }
    }

    /// The argument of this path, in the names of the function's arguments, is a part of a tensor of this shape.
    pub fn with_part(mut self, path: &str, shape: impl Into<Vec<usize>>) -> Sharding {
        self.shapes.insert(path.to_owned(), shape.into());
        self
    }

    /// All ranks give the argument of this path alike, although it has dimensions: what is made of numbers in it may be
    /// computed with parts.
    pub fn with_same(mut self, path: &str) -> Sharding {
        self.same.insert(path.to_owned());
        self
    }

    /// The name of the axis.
    pub fn axis(&self) -> &str {
        &self.axis
    }

    /// The paths of the arguments that all ranks give alike.
    pub fn same(&self) -> impl Iterator<Item = &str> {
        self.same.iter().map(String::as_str)
    }

    /// The paths of the arguments that are parts.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.shapes.keys().map(String::as_str)
    }

    /// The shape of the whole tensor of the argument at `path`, if that is a part.
    pub fn whole(&self, path: &str) -> Option<&[usize]> {
        self.shapes.get(path).map(Vec::as_slice)
    }

    /// The axis on a mesh.
    ///
    /// # Errors
    /// If the mesh has none of its name.
    pub fn axis_of<'a>(&self, mesh: &'a Mesh) -> Result<&'a Axis> {
        axis_of(mesh, &self.axis, FSDP)
    }
}

/// The axis of a strategy on the mesh of a program.
pub(super) fn axis_of<'a>(mesh: &'a Mesh, name: &str, strategy: &str) -> Result<&'a Axis> {
    let Some((_, axis)) = mesh.axis(name) else {
        let there = if mesh.axes().is_empty() { "is one rank".to_owned() } else { format!("is '{mesh}'") };
        let message = format!("is '{name}', the mesh of the program {there}");
        return Err(Error::Argument { argument: format!("the axis of {strategy}"), message });
    };
    Ok(axis)
}

/// `trace` with the arguments of `sharding` as parts, and with the means of loss and gradients over the ranks.
///
/// # Errors
/// If the target's mesh has no such axis, the program has no `value_and_grad` line and no such argument, it has been
/// through this before, a gradient is taken inside of another one, or a result that should be a part is not made of
/// parts; if a random operator does not take the generator of a part.
pub fn fsdp(trace: &Trace, sharding: &Sharding) -> Result<Trace> {
    let axis = sharding.axis_of(trace.target.mesh())?;
    if trace.history.iter().any(|past| past == FSDP) {
        let message = "has divided this program before: give it once, with all parts".to_owned();
        return Err(Error::Argument { argument: FSDP.into(), message });
    }
    let block = &trace.block;
    let given = block.parameters.iter().map(|id| {
        let name = &*block.value(*id).name;
        match sharding.shapes.get(name) {
            Some(shape) => Given::Part(shape.clone()),
            None if block.meta(*id).rank() == 0 || sharding.same.contains(name) => Given::Same,
            None => Given::Own,
        }
    });
    let given: Vec<Given> = given.collect();
    let places: FxHashSet<&str> = sharding.paths().map(input_place).collect();
    let parts: Vec<bool> = trace.outputs.iter().map(|output| places.contains(output_place(&output.path))).collect();
    if !given.iter().any(|given| matches!(given, Given::Part(_))) && !block.symbols.iter().any(is_gradient) {
        let message = "has nothing to do: the program has no `value_and_grad`, and none of its arguments is a part";
        return Err(Error::Argument { argument: FSDP.into(), message: message.to_owned() });
    }
    let strategy = Strategy { axis, all_reduce: role(Role::AllReduce)?, whole: role(Role::Whole)? };
    let block = &draws::of_ranks(block, &axis.to_string())?;
    let block = strategy.function(block, &given, false, &mut |at| parts[at].then(|| trace.outputs[at].path.clone()))?;
    Ok(trace.transformed(FSDP, block))
}

fn is_gradient(symbol: &BoundSymbol) -> bool {
    matches!(symbol.callee, Callee::ValueAndGrad { .. })
        || (symbol.callee.holds_program()
            && symbol.body.as_ref().is_some_and(|body| body.symbols.iter().any(is_gradient)))
}

struct Strategy<'a> {
    axis: &'a Axis,
    all_reduce: &'static OperatorDef,
    whole: &'static OperatorDef,
}

/// What a rank is given for a parameter of a block.
#[derive(Debug, Clone)]
enum Given {
    /// A part of a tensor of this shape.
    Part(Vec<usize>),
    /// What all ranks have.
    Same,
    /// What may be another on each rank, as the batch is.
    Own,
}

impl Strategy<'_> {
    /// A block with these parameters, whose results are whole, but for those of which `part` gives the path.
    fn function(
        &self,
        source: &Block,
        given: &[Given],
        differentiated: bool,
        part: &mut dyn FnMut(usize) -> Option<String>,
    ) -> Result<Block> {
        let mut before = source.clone();
        for (id, given) in source.parameters.iter().zip(given) {
            let Given::Part(shape) = given else { continue };
            let meta = &mut before.values[id.index()].meta;
            *meta = meta.with_shape(vec![self.axis.part_length(shape)]);
        }
        let (flattener, mut substitution) = Flattener::new(&before);
        let mut writer = Writer::new(self, flattener, differentiated);
        for (id, given) in source.parameters.iter().zip(given) {
            let id = Flattener::mapped(&substitution, *id);
            match given {
                Given::Part(shape) => _ = writer.parts.insert(id, shape.clone()),
                Given::Same => {}
                Given::Own => _ = writer.differ.insert(id),
            }
        }
        for symbol in &source.symbols {
            writer.write(source, symbol, &mut substitution)?;
        }
        for (at, id) in source.results.iter().enumerate() {
            let now = Flattener::mapped(&substitution, *id);
            let is_part = writer.parts.contains_key(&now);
            match part(at) {
                Some(_) if is_part => {}
                Some(path) => {
                    let message = "is to be a part of a tensor, and is not made elementwise of parts and of numbers \
                                   that all ranks have alike (arguments without dimensions, or `Sharding::with_same`)"
                        .to_owned();
                    return Err(Error::Argument { argument: format!("the result '{path}'"), message });
                }
                None if is_part || writer.own_sums.contains(&now) => {
                    substitution[id.index()] = Some(writer.whole(now, None)?)
                }
                None => {}
            }
        }
        Ok(writer.flattener.finish(source, &substitution))
    }
}

struct Writer<'a> {
    strategy: &'a Strategy<'a>,
    flattener: Flattener,
    /// Whether the gradient of the block is taken.
    differentiated: bool,
    /// The values that are parts, and the shapes of the whole.
    parts: FxHashMap<ValueId, Vec<usize>>,
    /// The values that are sums over the parts of this rank alone.
    own_sums: FxHashSet<ValueId>,
    /// The whole values that may be others on each rank.
    differ: FxHashSet<ValueId>,
    /// What was gathered of parts, and summed over the ranks.
    wholes: FxHashMap<ValueId, ValueId>,
    /// The values whose elements all are a number: that tensor without dimensions.
    filled: FxHashMap<ValueId, ValueId>,
    elementwise: Property,
    openable: Property,
    converts: Property,
}

impl<'a> Writer<'a> {
    fn new(strategy: &'a Strategy<'a>, flattener: Flattener, differentiated: bool) -> Writer<'a> {
        Writer {
            strategy,
            flattener,
            differentiated,
            own_sums: FxHashSet::default(),
            differ: FxHashSet::default(),
            parts: FxHashMap::default(),
            wholes: FxHashMap::default(),
            filled: FxHashMap::default(),
            elementwise: Property::new(elementwise),
            openable: Property::new(openable),
            converts: Property::new(converts),
        }
    }

    /// The shape of the tensor that a line reads parts of, if it may be computed on parts. What a function computes of
    /// padding takes part in no gradient: there it is only converted.
    fn shape(&mut self, symbol: &BoundSymbol, now: &[ValueId]) -> Option<Vec<usize>> {
        let shape = now.iter().find_map(|id| self.parts.get(id)).cloned()?;
        let padded = !shape.iter().product::<usize>().is_multiple_of(self.strategy.axis.extent());
        (!padded || !self.differentiated || self.converts.holds(symbol)).then_some(shape)
    }

    fn write(&mut self, source: &Block, symbol: &BoundSymbol, substitution: &mut Substitution) -> Result<()> {
        if let Callee::ValueAndGrad { wrt } = &symbol.callee {
            return self.gradients(source, symbol, wrt, substitution);
        }
        if is_gradient(symbol) {
            return Err(nested("a checkpoint"));
        }
        let now: Vec<ValueId> = symbol.operands().map(|id| Flattener::mapped(substitution, id)).collect();
        if let Some(shape) = self.shape(symbol, &now) {
            if self.on_parts(source, symbol, &shape, substitution)?
                || self.sum_of_parts(source, symbol, substitution)?
                || self.kept(source, symbol, substitution)?
            {
                return Ok(());
            }
            if let (Some(body), true) = (&symbol.body, self.openable.holds(symbol)) {
                return self.open(source, symbol, body, substitution);
            }
        }
        if !now.is_empty()
            && now.iter().all(|id| self.own_sums.contains(id))
            && adds(symbol, &source.argument_metas(symbol))
        {
            let results = self.flattener.copy(source, symbol, substitution).results.clone();
            self.own_sums.extend(results);
            return Ok(());
        }
        // Only this line reads them here; later ones find them.
        let operands: Vec<ValueId> = symbol.operands().collect();
        let mut differ = symbol.operator().is_some_and(|def| def.effects.of_place());
        for (id, now) in operands.iter().zip(&now) {
            let whole = self.whole(*now, Some(symbol))?;
            differ |= self.differ.contains(&whole);
            substitution[id.index()] = Some(whole);
        }
        let results = self.flattener.copy(source, symbol, substitution).results.clone();
        if differ && !symbol.operator().is_some_and(|def| std::ptr::eq(def, self.strategy.all_reduce)) {
            self.differ.extend(&results);
        }
        for (id, now) in operands.iter().zip(&now) {
            substitution[id.index()] = Some(*now);
        }
        if let ([_], [filled], true) = (&operands[..], &results[..], repeats_a_number(symbol)) {
            let read = self.flattener.block().symbols.last().and_then(|line| line.operands().next());
            read.into_iter().for_each(|number| _ = self.filled.insert(*filled, number));
        }
        Ok(())
    }

    /// Writes a line that is elementwise with the parts of its operands. False if it is not.
    fn on_parts(
        &mut self,
        source: &Block,
        symbol: &BoundSymbol,
        shape: &[usize],
        substitution: &mut Substitution,
    ) -> Result<bool> {
        let Some(def) = symbol.operator() else { return Ok(false) };
        let results = symbol.results.iter().all(|id| source.meta(*id).shape() == shape);
        if !results || !self.elementwise.holds(symbol) {
            return Ok(false);
        }
        let mut mapped: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        for id in symbol.operands() {
            let now = Flattener::mapped(substitution, id);
            let meta = source.meta(id);
            let part = match self.parts.get(&now) {
                Some(own) if own == shape => now,
                Some(_) => return Ok(false),
                // Parts made of numbers that differ would be parts of no tensor.
                None if self.differ.contains(&now) => return Ok(false),
                None => {
                    let number = match self.filled.get(&now) {
                        Some(number) => *number,
                        None if meta.rank() == 0 => self.whole(now, Some(symbol))?,
                        None => return Ok(false),
                    };
                    if meta.shape() == shape {
                        self.repeated(number, shape, &source.value(id).name, symbol)?
                    } else if meta.rank() == 0 {
                        number
                    } else {
                        return Ok(false);
                    }
                }
            };
            mapped.insert(id, part);
        }
        let arguments = map_arguments(&symbol.arguments, |id| mapped[id]);
        let metas = map_arguments(&arguments, |id| self.flattener.block().meta(*id).clone());
        // An operator may ask for more dimensions than a part has.
        let Ok((metas, body)) = infer(def, &metas) else { return Ok(false) };
        let length = self.strategy.axis.part_length(shape);
        let fits = metas.iter().all(|meta| meta.shape() == [length]);
        if !fits || !alike(symbol.body.as_deref(), body.as_deref()) {
            return Ok(false);
        }
        let results = self.define(source, symbol, metas, substitution);
        results.iter().for_each(|id| _ = self.parts.insert(*id, shape.to_vec()));
        self.flattener.push(BoundSymbol { arguments, results, body, ..symbol.clone() });
        Ok(true)
    }

    /// A part of a tensor of this shape whose elements all are a number.
    fn repeated(&mut self, number: ValueId, shape: &[usize], name: &str, of: &BoundSymbol) -> Result<ValueId> {
        let length = vec![self.strategy.axis.part_length(shape)];
        let dims = Vec::<usize>::new();
        let arguments = vec![Arg::Tensor(number), attribute(length.to_attribute()), attribute(dims.to_attribute())];
        self.call(role(Role::Broadcast)?, arguments, &format!("{name}.part"), Some(of))
    }

    /// Writes the sum of all elements as that of the parts, over the ranks. False if the line is not that, or parts end
    /// with padding, which need not be zero.
    fn sum_of_parts(&mut self, source: &Block, symbol: &BoundSymbol, substitution: &mut Substitution) -> Result<bool> {
        let Some(def) = symbol.operator() else { return Ok(false) };
        let sums = Arithmetic::of(def).elements == Some(Elements::Sum);
        let ([Arg::Tensor(operand), ..], [result]) = (&symbol.arguments[..], &symbol.results[..]) else {
            return Ok(false);
        };
        let whole = source.meta(*operand);
        if !sums || source.meta(*result).rank() > 0 || !whole.len().is_multiple_of(self.strategy.axis.extent()) {
            return Ok(false);
        }
        let part = Flattener::mapped(substitution, *operand);
        let Some(dims) = def.param("dims").filter(|_| whole.rank() > 0) else { return Ok(false) };
        let mut arguments = map_arguments(&symbol.arguments, |_| part);
        arguments[dims] = attribute(vec![0usize].to_attribute());
        let name = &source.value(*result).name;
        let own = self.call(def, arguments, &format!("{name}.own"), Some(symbol))?;
        self.own_sums.insert(own);
        substitution[result.index()] = Some(own);
        Ok(true)
    }

    /// Writes the decomposition in place of the line.
    fn open(
        &mut self,
        source: &Block,
        symbol: &BoundSymbol,
        body: &Block,
        substitution: &mut Substitution,
    ) -> Result<()> {
        let names: Vec<Arc<str>> = symbol.results.iter().map(|id| source.value(*id).name.clone()).collect();
        let prefix = names.first().map_or(symbol.name(), |name| symbol.call_name(name));
        let operands: Vec<ValueId> = symbol.operands().map(|id| Flattener::mapped(substitution, id)).collect();
        let (named, mut inner) = self.flattener.open(body, operands.into_iter(), prefix, &names);
        for line in &named.symbols {
            let place = symbol.place_inside().or(line.place);
            self.write(&named, &BoundSymbol { place, pass: symbol.pass, ..line.clone() }, &mut inner)?;
        }
        for (outer, result) in symbol.results.iter().zip(&named.results) {
            substitution[outer.index()] = Some(Flattener::mapped(&inner, *result));
        }
        Ok(())
    }

    /// Writes a `value_and_grad` line whose function takes parts, and gives parts of the gradients.
    fn gradients(
        &mut self,
        source: &Block,
        symbol: &BoundSymbol,
        wrt: &[usize],
        substitution: &mut Substitution,
    ) -> Result<()> {
        let Some(body) = &symbol.body else { return Ok(()) };
        if body.symbols.iter().any(is_gradient) {
            return Err(nested("another one"));
        }
        let mut now: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let mut given = Vec::new();
        for id in symbol.operands() {
            let mut operand = Flattener::mapped(substitution, id);
            if self.own_sums.contains(&operand) {
                operand = self.whole(operand, Some(symbol))?;
            }
            now.insert(id, operand);
            given.push(match self.parts.get(&operand) {
                Some(shape) => Given::Part(shape.clone()),
                None if self.differ.contains(&operand) => Given::Own,
                None => Given::Same,
            });
        }
        let mut inner = self.strategy.function(body, &given, true, &mut |_| None)?;
        self.strategy.share(&mut inner, symbol)?;
        let arguments = map_arguments(&symbol.arguments, |id| now[id]);
        let first = symbol.results.len() - wrt.len();
        let shape_of = |at: usize| match &given[wrt[at.checked_sub(first)?]] {
            Given::Part(shape) => Some(shape.clone()),
            _ => None,
        };
        let meta = |(at, id): (usize, &ValueId)| {
            let meta = source.meta(*id);
            let length = |shape: Vec<usize>| vec![self.strategy.axis.part_length(&shape)];
            shape_of(at).map_or_else(|| meta.clone(), |shape| meta.with_shape(length(shape)))
        };
        let metas = symbol.results.iter().enumerate().map(meta).collect();
        let results = self.define(source, symbol, metas, substitution);
        self.flattener.push(BoundSymbol {
            arguments,
            results: results.clone(),
            body: Some(Arc::new(inner.canonical())),
            ..symbol.clone()
        });
        for (at, id) in results.iter().enumerate() {
            match shape_of(at) {
                Some(shape) => _ = self.parts.insert(*id, shape),
                // The loss, and the gradients of what every rank has whole; not the auxiliary results.
                None if at == 0 || at >= first => {
                    let name = format!("{}.sum", source.value(symbol.results[at]).name);
                    let sum = self.all_reduced(*id, &name, Some(symbol))?;
                    substitution[symbol.results[at].index()] = Some(sum);
                }
                None => _ = self.differ.insert(*id),
            }
        }
        Ok(())
    }

    /// The whole tensor, if `id` is a part, and the sum over the ranks, if it is that of this one; itself otherwise.
    fn whole(&mut self, id: ValueId, of: Option<&BoundSymbol>) -> Result<ValueId> {
        if let Some(whole) = self.wholes.get(&id) {
            return Ok(*whole);
        }
        if self.own_sums.contains(&id) {
            let name = format!("{}.sum", self.flattener.block().value(id).name);
            let sum = self.all_reduced(id, &name, of)?;
            self.wholes.insert(id, sum);
            return Ok(sum);
        }
        let Some(shape) = self.parts.get(&id) else { return Ok(id) };
        let axis = Attribute::Text(self.strategy.axis.to_string().into());
        let shape = attribute(shape.clone().to_attribute());
        let name = format!("{}.whole", self.flattener.block().value(id).name);
        // Collectives are of numbers.
        let truth = self.flattener.block().meta(id).dtype() == DType::Bool;
        let part = if truth { self.converted(id, DType::U8, &format!("{name}.u8"), of)? } else { id };
        let mut whole = self.call(self.strategy.whole, vec![Arg::Tensor(part), attribute(axis), shape], &name, of)?;
        if truth {
            whole = self.converted(whole, DType::Bool, &name, of)?;
        }
        self.wholes.insert(id, whole);
        Ok(whole)
    }

    fn all_reduced(&mut self, id: ValueId, name: &str, of: Option<&BoundSymbol>) -> Result<ValueId> {
        let text = |text: &str| attribute(Attribute::Text(text.into()));
        let arguments = vec![Arg::List(vec![id]), text(&self.strategy.axis.to_string()), text("sum")];
        self.call(self.strategy.all_reduce, arguments, name, of)
    }

    fn converted(&mut self, id: ValueId, dtype: DType, name: &str, of: Option<&BoundSymbol>) -> Result<ValueId> {
        let arguments = vec![Arg::Tensor(id), attribute(dtype.to_attribute())];
        self.call(role(Role::Convert)?, arguments, name, of)
    }

    /// A line that calls an operator with one result.
    fn call(
        &mut self,
        def: &'static OperatorDef,
        arguments: Vec<Arg<ValueId>>,
        name: &str,
        of: Option<&BoundSymbol>,
    ) -> Result<ValueId> {
        let name = self.flattener.fresh(name);
        let (symbol, meta) = line(self.flattener.block(), def, arguments, of)?;
        let id = self.flattener.define(name, meta);
        self.flattener.push(BoundSymbol { results: Results::from_slice(&[id]), ..symbol });
        Ok(id)
    }

    fn define(
        &mut self,
        source: &Block,
        symbol: &BoundSymbol,
        metas: Vec<TensorMeta>,
        substitution: &mut Substitution,
    ) -> Results {
        let each = symbol.results.iter().zip(metas);
        each.map(|(id, meta)| {
            let new = self.flattener.define(source.value(*id).name.clone(), meta);
            substitution[id.index()] = Some(new);
            new
        })
        .collect()
    }
}

impl Strategy<'_> {
    /// Divides the first result of a function, the loss, by the number of ranks.
    fn share(&self, block: &mut Block, of: &BoundSymbol) -> Result<()> {
        let share = 1.0 / self.axis.extent() as f64;
        let arguments = vec![Arg::Tensor(block.results[0]), attribute(Attribute::Scalar(Scalar::Float(share)))];
        let (symbol, meta) = line(block, role(Role::Mul)?, arguments, Some(of))?;
        let names: Vec<&str> = block.values.iter().map(|value| &*value.name).collect();
        let base = format!("{}.share", block.value(block.results[0]).name);
        let name = (0..).map(|n| if n == 0 { base.clone() } else { format!("{base}.{n}") });
        let name = name.into_iter().find(|name| !names.contains(&name.as_str())).unwrap_or(base);
        let id = block.define(name, meta);
        block.symbols.push(BoundSymbol { results: Results::from_slice(&[id]), ..symbol });
        block.results[0] = id;
        Ok(())
    }
}

fn attribute(attribute: Attribute) -> Arg<ValueId> {
    Arg::Attribute(attribute)
}

/// A line without results that calls an operator with one, and the meta of that.
fn line(
    block: &Block,
    def: &'static OperatorDef,
    arguments: Vec<Arg<ValueId>>,
    of: Option<&BoundSymbol>,
) -> Result<(BoundSymbol, TensorMeta)> {
    let place = of.and_then(|symbol| symbol.place);
    let arguments = with_defaults(def, arguments);
    let metas = map_arguments(&arguments, |id| block.meta(*id).clone());
    let (mut metas, body) = infer(def, &metas).map_err(|error| error.of(def.name, place))?;
    let symbol = BoundSymbol {
        callee: Callee::Operator(def),
        arguments,
        results: Results::new(),
        body,
        pass: of.map_or_else(Default::default, |symbol| symbol.pass),
        executor: None,
        schedule: Default::default(),
        refusals: Vec::new(),
        place,
    };
    Ok((symbol, metas.swap_remove(0)))
}

fn nested(inside: &str) -> Error {
    let message = format!("takes no program with a gradient inside of {inside}");
    Error::Argument { argument: FSDP.into(), message }
}
