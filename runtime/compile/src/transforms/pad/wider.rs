//! Larger forms of values: the same elements, and others behind them in some dimensions.

use rustc_hash::FxHashMap;
use std::sync::Arc;

use crate::DType;
use crate::argument::{Arg, Attribute, AttributeType, Scalar, map_arguments};
use crate::arithmetic::{Arithmetic, Elements};
use crate::error::Result;
use crate::meta::TensorMeta;
use crate::operator::{OperatorDef, Role, RuleSet};
use crate::registry::role;
use crate::strided::{LayoutRules, Strided};
use crate::trace::{BoundSymbol, Pass, ValueId};
use crate::tracer::infer;
use crate::transforms::attributes::{argument, with_attribute};
use crate::transforms::flatten::{At, Flattener};

/// Values of at most this many bytes are copied into a larger form; of others that is as dear as what is gained.
const SMALL: usize = 1 << 20;

/// The longest chain of symbols that is done once more on larger forms.
const LONGEST: usize = 64;

/// A value, and the shape that a larger form of it has.
type Form = (ValueId, Vec<usize>);

/// What making a larger form takes.
#[derive(Clone, Copy)]
struct Chain {
    /// Whether a kernel's larger result leads to it.
    leads: bool,
    /// Symbols, one after another, that are done once more.
    length: usize,
}

/// How a larger form of a symbol's result is made.
struct Route {
    /// The operands with the shapes that they are needed in.
    operands: Vec<Form>,
    /// The arguments, where attributes change.
    arguments: Vec<Arg<ValueId>>,
}

/// A block being written, with what is known of larger forms of its values.
pub(super) struct Wider {
    pub(super) flattener: Flattener,
    /// For each value the symbol that makes it.
    producers: Vec<Option<usize>>,
    /// Larger forms, whose other elements are arbitrary.
    known: FxHashMap<Form, ValueId>,
    /// Those whose other elements are zeros.
    zeros: FxHashMap<Form, ValueId>,
    /// Copies with zeros, and whether they are of the forward pass: one for the backward pass is made there, since what
    /// is kept from one pass to the other takes memory all the while.
    copies: FxHashMap<(Form, bool), ValueId>,
    /// Copies of the program's inputs, and of what one symbol makes of them, such as weights in another element type,
    /// by the input or this symbol and the shape. Where the backward pass needs the same copy, it reads that of the
    /// forward pass: copying again takes longer than a kernel gains.
    of_inputs: FxHashMap<String, ValueId>,
    /// What making a larger form takes; `None` if something large would be copied for it.
    judged: FxHashMap<Form, Option<Chain>>,
    /// The numbers of so many columns.
    columns: FxHashMap<usize, ValueId>,
    /// Last extents of results, and what they are in their larger forms.
    rows: Vec<(usize, usize)>,
}

impl Wider {
    pub(super) fn new(flattener: Flattener) -> Wider {
        let mut wider = Wider {
            flattener,
            producers: Vec::new(),
            known: FxHashMap::default(),
            zeros: FxHashMap::default(),
            copies: FxHashMap::default(),
            of_inputs: FxHashMap::default(),
            judged: FxHashMap::default(),
            columns: FxHashMap::default(),
            rows: Vec::new(),
        };
        wider.producers.resize(wider.flattener.block().values.len(), None);
        wider
    }

    pub(super) fn meta(&self, id: ValueId) -> &TensorMeta {
        self.flattener.block().meta(id)
    }

    pub(super) fn push(&mut self, symbol: BoundSymbol) {
        self.flattener.push(symbol);
        self.note();
    }

    /// Remembers that the last symbol makes its results.
    pub(super) fn note(&mut self) {
        let block = self.flattener.block();
        self.producers.resize(block.values.len(), None);
        let Some(last) = block.symbols.len().checked_sub(1) else { return };
        for id in &block.symbols[last].results {
            self.producers[id.index()] = Some(last);
        }
    }

    /// Adds a symbol with one result.
    fn call(
        &mut self,
        def: &'static OperatorDef,
        arguments: Vec<Arg<ValueId>>,
        name: Arc<str>,
        at: At,
    ) -> Result<ValueId> {
        let result = self.flattener.call(def, arguments, name, at)?;
        self.note();
        Ok(result)
    }

    fn fresh(&mut self, of: ValueId, what: &str) -> Arc<str> {
        let name = format!("{}.{what}", self.flattener.block().value(of).name);
        self.flattener.fresh(&name)
    }

    /// The view of the first elements of `larger`, which is a larger form of it.
    pub(super) fn beginning(&mut self, larger: ValueId, shape: &[usize], name: Arc<str>, at: At) -> Result<ValueId> {
        let numbers = |number: usize| Arg::value(vec![number; shape.len()]);
        let arguments = vec![Arg::Tensor(larger), numbers(0), Arg::value(shape.to_vec()), numbers(1)];
        let proper = self.call(role(Role::Slice)?, arguments, name, at)?;
        let extents = self.meta(larger).shape().to_vec();
        if let (Some(own), Some(wide)) = (shape.last(), extents.last())
            && own < wide
            && !self.rows.contains(&(*own, *wide))
        {
            self.rows.push((*own, *wide));
        }
        self.known.insert((proper, extents), larger);
        Ok(proper)
    }

    /// A form of `id` in that shape, with zeros behind its elements; copied, if it must be, where `at` says.
    pub(super) fn with_zeros(&mut self, id: ValueId, shape: &[usize], at: At) -> Result<ValueId> {
        // Views that only rearrange a value are made again of the larger form of that value, which others may read too.
        // `chain` has these views, the last one first.
        let mut chain: Vec<(Form, Vec<Arg<ValueId>>)> = Vec::new();
        let mut form = (id, shape.to_vec());
        let mut made = loop {
            let (id, shape) = (form.0, &form.1[..]);
            if self.meta(id).shape() == shape {
                break id;
            }
            if let Some(known) = self.zeros.get(&form) {
                break *known;
            }
            let rearranged = self.rearranged(id, shape).filter(|_| chain.len() < LONGEST);
            if let Some(Route { mut operands, arguments }) = rearranged
                && let Some(operand) = operands.pop()
            {
                chain.push((std::mem::replace(&mut form, operand), arguments));
                continue;
            }
            if self.judge(id, shape).is_some_and(|chain| chain.leads) {
                let larger = self.make(id, shape)?;
                let made = self.masked(larger, id, 0.0)?;
                self.zeros.insert(form, made);
                break made;
            }
            let copy = (form.clone(), at.0 == Pass::Forward);
            if let Some(known) = self.copies.get(&copy) {
                break *known;
            }
            let of_inputs = self.of_inputs(id, shape);
            if let Some(known) = of_inputs.as_ref().and_then(|made| self.of_inputs.get(made)) {
                break *known;
            }
            let made = self.copied(id, shape, at)?;
            self.copies.insert(copy, made);
            self.of_inputs.extend(of_inputs.map(|symbol| (symbol, made)));
            break made;
        };
        for (form, arguments) in chain.into_iter().rev() {
            made = self.again(form.0, &[made], arguments)?;
        }
        Ok(made)
    }

    /// The symbol that makes `id` of the program's inputs alone, or the input that it is, and the shape of its larger
    /// form, in words; `None` if others make it.
    fn of_inputs(&self, id: ValueId, shape: &[usize]) -> Option<String> {
        let Some(producer) = self.producers[id.index()] else { return Some(format!("{id:?} {shape:?}")) };
        let symbol = &self.flattener.block().symbols[producer];
        let def = symbol.operator().filter(|def| def.effects.mergeable())?;
        let is_input = |id: ValueId| self.flattener.block().parameters.contains(&id);
        let alone = symbol.results[..] == [id] && symbol.operands().all(is_input);
        alone.then(|| format!("{} {:?} {shape:?}", def.name, symbol.arguments))
    }

    /// A larger form of the operand of a reduction over its rows, whose other elements change nothing; `None` if
    /// `symbol` is no such reduction, or there is no larger form.
    pub(super) fn for_reduction(&mut self, operand: ValueId, symbol: &BoundSymbol) -> Result<Option<ValueId>> {
        let Some(def) = symbol.operator() else { return Ok(None) };
        let meta = self.meta(operand).clone();
        let neutral = match Arithmetic::of(def).elements {
            Some(Elements::Sum) => 0.0,
            Some(Elements::Max) => f64::NEG_INFINITY,
            Some(Elements::Min) => f64::INFINITY,
            _ => return Ok(None),
        };
        let over_rows = match argument(symbol, "dims") {
            Some(Arg::Attribute(dims)) => Vec::<usize>::from_attribute(dims) == Some(vec![meta.rank().wrapping_sub(1)]),
            _ => false,
        };
        let Some((last, outer)) = meta.shape().split_last().filter(|_| over_rows && meta.dtype().is_floating()) else {
            return Ok(None);
        };
        for (_, wide) in self.rows.clone().into_iter().filter(|(own, _)| own == last) {
            let shape = [outer, &[wide]].concat();
            if self.judge(operand, &shape).is_some_and(|chain| chain.leads) {
                let larger = self.make(operand, &shape)?;
                return Ok(Some(self.masked(larger, operand, neutral)?));
            }
        }
        Ok(None)
    }

    /// What making a form of `id` in that shape takes; `None` if something large would be copied for it.
    fn judge(&mut self, id: ValueId, shape: &[usize]) -> Option<Chain> {
        self.judge_within(id, shape, LONGEST).unwrap_or(None)
    }

    /// As [`Wider::judge`]; an error if a chain is longer than `depth` symbols, so that the answer is not known.
    fn judge_within(&mut self, id: ValueId, shape: &[usize], depth: usize) -> Result<Option<Chain>, ()> {
        if self.meta(id).shape() == shape {
            return Ok(Some(Chain { leads: false, length: 0 }));
        }
        let form = (id, shape.to_vec());
        if self.known.contains_key(&form) {
            return Ok(Some(Chain { leads: true, length: 0 }));
        }
        if let Some(judged) = self.judged.get(&form) {
            return Ok(*judged);
        }
        let small = (self.meta(id).bytes() <= SMALL).then_some(Chain { leads: false, length: 0 });
        let judged = match self.route(id, shape) {
            Some(_) if depth == 0 => return Err(()),
            Some(route) => {
                let mut all = Some(Chain { leads: false, length: 0 });
                for (operand, shape) in &route.operands {
                    let chain = self.judge_within(*operand, shape, depth - 1)?;
                    all = all.zip(chain).map(|(all, chain)| Chain {
                        leads: all.leads || chain.leads,
                        length: all.length.max(chain.length + 1),
                    });
                }
                all.filter(|chain| chain.length < LONGEST).or(small)
            }
            None => small,
        };
        self.judged.insert(form, judged);
        Ok(judged)
    }

    /// The form that [`Wider::judge`] found.
    fn make(&mut self, id: ValueId, shape: &[usize]) -> Result<ValueId> {
        if self.meta(id).shape() == shape {
            return Ok(id);
        }
        let form = (id, shape.to_vec());
        if let Some(known) = self.known.get(&form) {
            return Ok(*known);
        }
        let leads = self.judge(id, shape).is_some_and(|chain| chain.leads);
        let route = self.route(id, shape);
        let made = match route.filter(|route| leads || route.operands.is_empty() || self.meta(id).bytes() > SMALL) {
            Some(route) => {
                let mut operands = Vec::with_capacity(route.operands.len());
                for (operand, shape) in &route.operands {
                    operands.push(self.make(*operand, shape)?);
                }
                self.again(id, &operands, route.arguments)?
            }
            None => {
                let at = self.producer(id).map_or(At(Pass::Forward, None), At::from);
                self.copied(id, shape, at)?
            }
        };
        self.known.insert(form, made);
        Ok(made)
    }

    fn producer(&self, id: ValueId) -> Option<&BoundSymbol> {
        self.flattener.block().symbols.get((*self.producers.get(id.index())?)?)
    }

    /// The symbol that makes `id` once more, of these operands.
    fn again(&mut self, id: ValueId, operands: &[ValueId], arguments: Vec<Arg<ValueId>>) -> Result<ValueId> {
        let Some(symbol) = self.producer(id).cloned() else { unreachable!("what is made again has a producer") };
        let Some(def) = symbol.operator() else { unreachable!("what is made again is made by an operator") };
        let mut next = operands.iter();
        let arguments = map_arguments(&arguments, |id| *next.next().unwrap_or(id));
        let name = self.fresh(id, "wider");
        self.call(def, arguments, name, At::from(&symbol))
    }

    /// How a larger form of `id` follows from such forms of its operands.
    fn route(&self, id: ValueId, shape: &[usize]) -> Option<Route> {
        let symbol = self.producer(id)?;
        let def = symbol.operator().filter(|_| symbol.results.len() == 1)?;
        let meta = self.meta(id);
        let arguments = symbol.arguments.clone();
        let same = || symbol.operands().map(|operand| (operand, shape.to_vec())).collect::<Vec<Form>>();
        let rules = Arithmetic::of(def);
        if def.overload == Some(Role::Iota) {
            let length = Arg::value(*shape.first()?);
            return Some(Route { operands: Vec::new(), arguments: with_attribute(symbol, "length", length)? });
        }
        if def.overload == Some(Role::Full) {
            let size = Arg::value(shape.to_vec());
            return Some(Route { operands: Vec::new(), arguments: with_attribute(symbol, "size", size)? });
        }
        let operands = match rules.elements {
            None if rules.scalar.is_some() && symbol.operands().next().is_some() => same(),
            Some(Elements::Convert) => same(),
            Some(Elements::Broadcast) => {
                let operand = symbol.operands().next()?;
                let Arg::Attribute(dims) = argument(symbol, "dims")? else { return None };
                let dims = Vec::<usize>::from_attribute(dims)?;
                let extents = self.meta(operand).shape().iter().zip(&dims);
                let wanted = extents.map(|(own, dim)| if *own == meta.shape()[*dim] { shape[*dim] } else { *own });
                return Some(Route {
                    operands: vec![(operand, wanted.collect())],
                    arguments: with_attribute(symbol, "shape", Arg::value(shape.to_vec()))?,
                });
            }
            _ => return self.rearranged(id, shape),
        };
        let fits = |(operand, wanted): &Form| self.meta(*operand).rank() == wanted.len();
        operands.iter().all(fits).then_some(Route { operands, arguments })
    }

    /// How a larger form of `id` follows from one of another value whose elements it has, each of them, in another
    /// order or in a shape with the same rows.
    fn rearranged(&self, id: ValueId, shape: &[usize]) -> Option<Route> {
        let symbol = self.producer(id)?;
        let def = symbol.operator()?;
        let mut operands = symbol.operands();
        let (operand, None) = (operands.next()?, operands.next()) else { return None };
        let (from, own) = (self.meta(operand), self.meta(id).shape());
        if Arithmetic::of(def).elements == Some(Elements::Reshape) {
            let ((last, outer), (own, own_outer)) = (shape.split_last()?, own.split_last()?);
            let rows = from.shape().split_last().filter(|(extent, _)| outer == own_outer && *extent == own)?.1;
            let arguments = with_attribute(symbol, "shape", Arg::value(shape.to_vec()))?;
            return Some(Route { operands: vec![(operand, [rows, &[*last]].concat())], arguments });
        }
        // Each dimension is known by its stride.
        let marks: Vec<isize> = (0..from.rank()).map(|dim| 1 << (dim + 8).min(60)).collect();
        let strided = Strided { meta: from.clone(), strides: marks.clone() };
        let seen = LayoutRules::of(def).view?(&map_arguments(&symbol.arguments, |_| strided.clone()))?;
        if seen.offset != 0 || seen.strides.len() != marks.len() || marks.len() > 50 {
            return None;
        }
        let mut wanted = vec![0; marks.len()];
        for (dim, stride) in seen.strides.iter().enumerate() {
            let source = marks.iter().position(|mark| mark == stride)?;
            if wanted[source] != 0 || from.shape()[source] != own[dim] || own[dim] == 0 {
                return None;
            }
            wanted[source] = shape[dim];
        }
        // A view whose attributes name extents would be another one.
        let again = map_arguments(&symbol.arguments, |_| from.with_shape(wanted.clone()));
        let (metas, _) = infer(def, &again).ok()?;
        let same = metas.first()?.shape() == shape;
        same.then(|| Route { operands: vec![(operand, wanted)], arguments: symbol.arguments.clone() })
    }

    /// `larger`, with `number` instead of the elements that `proper`, of which it is a larger form, does not have.
    fn masked(&mut self, larger: ValueId, proper: ValueId, number: f64) -> Result<ValueId> {
        let Some(at) = self.producer(larger).map(At::from) else { return Ok(larger) };
        let (from, to) = (self.meta(proper).clone(), self.meta(larger).clone());
        let mut masked = larger;
        for dim in (0..to.rank()).filter(|dim| from.shape()[*dim] != to.shape()[*dim]) {
            let [own, wide] = [&from, &to].map(|meta| meta.shape()[dim]);
            let whole = |number: i64| Arg::value(Scalar::Int(number));
            let dtype = if i32::try_from(wide).is_ok() { DType::I32 } else { DType::I64 };
            let columns = match self.columns.get(&wide) {
                Some(columns) => *columns,
                None => {
                    // Kernels compute the numbers of columns, and read none.
                    let counted = vec![
                        Arg::value(wide),
                        whole(0),
                        whole(1),
                        Arg::Attribute(Attribute::DType(dtype)),
                        Arg::value(to.device().to_string()),
                    ];
                    let name = self.fresh(larger, "columns");
                    let columns = self.call(role(Role::Iota)?, counted, name, at)?;
                    self.columns.insert(wide, columns);
                    columns
                }
            };
            let name = self.fresh(larger, "column");
            let arguments = vec![Arg::Tensor(columns), Arg::value(to.shape().to_vec()), Arg::value(vec![dim])];
            let column = self.call(role(Role::Broadcast)?, arguments, name, at)?;
            let name = self.fresh(larger, "mask");
            let arguments = vec![Arg::Tensor(column), whole(own as i64)];
            let mask = self.call(role(Role::Less)?, arguments, name, at)?;
            let arguments = vec![Arg::Tensor(mask), Arg::Tensor(masked), Arg::value(Scalar::Float(number))];
            let name = self.fresh(larger, "masked");
            masked = self.call(role(Role::Where)?, arguments, name, at)?;
        }
        Ok(masked)
    }

    /// A copy of `id` with zeros behind its elements.
    ///
    /// More rows are joined to it: what computes the value then writes it where the rows follow.
    fn copied(&mut self, id: ValueId, shape: &[usize], at: At) -> Result<ValueId> {
        let own = self.meta(id).shape().to_vec();
        if own.first() != shape.first() && own[1..] == shape[1..] && self.meta(id).dtype().is_floating() {
            let rows = [&[shape[0] - own[0]], &own[1..]].concat();
            let (dtype, device) = (self.meta(id).dtype(), self.meta(id).device());
            let zeros = vec![
                Arg::value(rows),
                Arg::value(Scalar::Float(0.0)),
                Arg::Attribute(Attribute::DType(dtype)),
                Arg::Attribute(Attribute::Text(device.to_string().into())),
            ];
            let name = self.fresh(id, "rows");
            let zeros = self.call(role(Role::Full)?, zeros, name, at)?;
            let name = self.fresh(id, "padded");
            return self.call(role(Role::Cat)?, vec![Arg::List(vec![id, zeros]), Arg::value(0usize)], name, at);
        }
        let behind: Vec<usize> = shape.iter().zip(&own).map(|(wide, own)| wide - own).collect();
        let zero = if self.meta(id).dtype() == DType::Bool { Scalar::Bool(false) } else { Scalar::Float(0.0) };
        let arguments =
            vec![Arg::Tensor(id), Arg::value(vec![0usize; own.len()]), Arg::value(behind), Arg::value(zero)];
        let name = self.fresh(id, "padded");
        self.call(role(Role::Pad)?, arguments, name, at)
    }
}
