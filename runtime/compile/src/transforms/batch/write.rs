//! Writing batches: one call in place of several, with what puts their operands side by side and takes its result
//! apart.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::alike::{Group, Member, Operand, dims};
use super::limits::{FEWEST, MOST_BYTES};
use super::operators::Operators;
use crate::argument::{Arg, map_arguments};
use crate::error::Result;
use crate::fuel::Fuel;
use crate::meta::TensorMeta;
use crate::operator::OperatorDef;
use crate::trace::{Block, BoundSymbol, Callee, Pass, Results, ValueId};
use crate::tracer::infer;

/// Values side by side, as `[values, ...]`.
struct Stack {
    value: ValueId,
    roots: Vec<ValueId>,
}

/// A block in which calls are replaced by batches.
pub(super) struct Writer<'a> {
    pub block: Block,
    operators: &'a Operators,
    names: FxHashSet<Arc<str>>,
    stacks: Vec<Stack>,
    /// Bytes that further batches may keep.
    room: u64,
    /// The stack that each value is a part of: there is one place where it is written.
    stacked: FxHashMap<ValueId, usize>,
}

/// Members of a group of which no two read the same value.
struct Apart {
    /// For each operand the stack that the members' values are parts of.
    stacks: Vec<Option<usize>>,
    roots: FxHashSet<ValueId>,
    members: Vec<Member>,
}

/// The lines of a block in another order, with room for a batch.
struct Order {
    /// Lines up to the batch.
    before: Vec<BoundSymbol>,
    /// A line that is replaced, of which the batch has the pass and the place.
    like: BoundSymbol,
    /// Lines behind the batch: those that read what is replaced first.
    behind: Vec<BoundSymbol>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(block: Block, operators: &'a Operators) -> Writer<'a> {
        let names = block.values.iter().map(|value| value.name.clone()).collect();
        Writer { block, operators, names, stacks: Vec::new(), room: MOST_BYTES, stacked: FxHashMap::default() }
    }

    /// Replaces the calls of a group by as few as can be; whether any were replaced.
    pub(super) fn batch(&mut self, group: &Group, fuel: &mut Fuel) -> Result<bool> {
        let mut any = false;
        for members in self.apart(&group.members) {
            if members.len() < FEWEST {
                continue;
            }
            let Some(known) = self.known_stacks(&members) else { continue };
            let independent = self.independent(&members, &known);
            if independent.len() < FEWEST || (independent.len() < members.len() && known.iter().any(Option::is_some)) {
                continue;
            }
            let bytes = self.bytes(&independent, &known);
            if fuel.left() != Some(0)
                && bytes <= self.room
                && let Some(order) = self.order(&independent, &known)
            {
                fuel.burn();
                self.room -= bytes;
                self.write(group.def, &independent, &known, order)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Members apart that read the same value, or values of different stacks: one value has one place.
    fn apart(&self, members: &[Member]) -> Vec<Vec<Member>> {
        let mut apart: Vec<Apart> = Vec::new();
        for member in members {
            let roots = || member.operands.iter().map(|operand| operand.root);
            let stacks: Vec<Option<usize>> = roots().map(|root| self.stacked.get(&root).copied()).collect();
            let fits = |one: &Apart| one.stacks == stacks && !roots().any(|root| one.roots.contains(&root));
            let at = apart.iter().position(fits).unwrap_or_else(|| {
                apart.push(Apart { stacks: stacks.clone(), roots: FxHashSet::default(), members: Vec::new() });
                apart.len() - 1
            });
            apart[at].roots.extend(roots());
            apart[at].members.push(member.clone());
        }
        apart.into_iter().map(|one| one.members).collect()
    }

    /// For each operand the stack that has exactly these values; `None` if a stack has others too.
    fn known_stacks(&self, members: &[Member]) -> Option<Vec<Option<usize>>> {
        let operands = members.first()?.operands.len();
        (0..operands)
            .map(|at| match self.stacked.get(&members[0].operands[at].root) {
                None => Some(None),
                Some(stack) => {
                    let roots = members.iter().map(|member| member.operands[at].root);
                    roots.eq(self.stacks[*stack].roots.iter().copied()).then_some(Some(*stack))
                }
            })
            .collect()
    }

    /// What a batch keeps: the operands that are no parts of a stack yet, and the results.
    fn bytes(&self, members: &[Member], known: &[Option<usize>]) -> u64 {
        let size = |id: ValueId| self.block.meta(id).bytes() as u64;
        let of = |member: &Member| {
            let operands = member.operands.iter().zip(known).filter(|(_, known)| known.is_none());
            size(member.result) + operands.map(|(operand, _)| size(operand.root)).sum::<u64>()
        };
        members.iter().map(of).sum()
    }

    /// The lines that define values.
    fn lines(&self) -> FxHashMap<ValueId, usize> {
        let lines = self.block.symbols.iter().enumerate();
        lines.flat_map(|(line, symbol)| symbol.results.iter().map(move |id| (*id, line))).collect()
    }

    /// The first member and those that depend on no earlier one of them.
    fn independent(&self, members: &[Member], known: &[Option<usize>]) -> Vec<Member> {
        let results: FxHashMap<ValueId, &Member> = members.iter().map(|member| (member.result, member)).collect();
        let mut reached: FxHashSet<ValueId> = FxHashSet::default();
        let mut independent = Vec::new();
        for symbol in &self.block.symbols {
            let depends = symbol.operands().any(|id| reached.contains(&id));
            let member = symbol.results.first().and_then(|id| results.get(id));
            if let Some(member) = member.filter(|_| !depends) {
                independent.push((*member).clone());
            }
            if depends || member.is_some() {
                reached.extend(symbol.results.iter().copied());
            }
        }
        let of_stacks = known.iter().flatten().any(|stack| reached.contains(&self.stacks[*stack].value));
        if of_stacks { Vec::new() } else { independent }
    }

    /// The line of the batch: behind all members and the stacks that it reads, and in a backward pass at its end,
    /// where it is in the way of no lines that are fused. `None` if a line that would be moved behind it must stay
    /// where it is.
    fn order(&mut self, members: &[Member], known: &[Option<usize>]) -> Option<Order> {
        let lines = self.lines();
        let results: FxHashSet<ValueId> = members.iter().map(|member| member.result).collect();
        let stacks = known.iter().flatten().map(|stack| self.stacks[*stack].value);
        let last = *results.iter().copied().chain(stacks).filter_map(|id| lines.get(&id)).max()?;
        let pass = self.block.symbols.get(*lines.get(&members.first()?.result)?)?.pass;
        let mut moved: FxHashSet<ValueId> = results.clone();
        let mut stays = vec![true; self.block.symbols.len()];
        let mut end = self.block.symbols.len();
        for (line, symbol) in self.block.symbols.iter().enumerate() {
            if line > last && (symbol.pass != pass || pass == Pass::Forward) {
                end = line;
                break;
            }
            if !symbol.operands().any(|id| moved.contains(&id)) {
                continue;
            }
            if !matches!(&symbol.callee, Callee::Operator(def) if def.effects.mergeable()) {
                if line < last {
                    return None;
                }
                end = line;
                break;
            }
            stays[line] = false;
            moved.extend(symbol.results.iter().copied());
        }
        let (mut before, mut behind, mut like) = (Vec::new(), Vec::new(), None);
        for (line, symbol) in std::mem::take(&mut self.block.symbols).into_iter().enumerate() {
            if symbol.results.first().is_some_and(|id| results.contains(id)) {
                like = like.or(Some(symbol));
            } else if line < end && stays[line] {
                before.push(symbol);
            } else {
                behind.push(symbol);
            }
        }
        Some(Order { before, like: like?, behind })
    }

    fn write(
        &mut self,
        def: &'static OperatorDef,
        members: &[Member],
        known: &[Option<usize>],
        order: Order,
    ) -> Result<()> {
        let Order { before, like, behind } = order;
        self.block.symbols = before;
        let mut operands = Vec::with_capacity(known.len());
        for (at, known) in known.iter().enumerate() {
            let each: Vec<Operand> = members.iter().map(|member| member.operands[at]).collect();
            operands.push(self.whole(&each, *known, &like)?);
        }
        let mut next = operands.into_iter();
        let mut arguments = map_arguments(&like.arguments, |id| next.next().unwrap_or(*id));
        if std::ptr::eq(def, self.operators.sum)
            && let (Some(own), Some(at)) = (dims(&like), def.param("dims"))
        {
            arguments[at] = Arg::value(own.into_iter().map(|dim| dim + 1).collect::<Vec<usize>>());
        }
        let all = self.call(def, arguments, (members[0].result, "batch"), &like)?;
        let extents = self.block.meta(all).shape().to_vec();
        for (at, member) in members.iter().enumerate() {
            let (mut starts, mut ends) = (vec![0; extents.len()], extents.clone());
            (starts[0], ends[0]) = (at, at + 1);
            let part =
                vec![Arg::Tensor(all), Arg::value(starts), Arg::value(ends), Arg::value(vec![1usize; extents.len()])];
            let part = self.call(self.operators.slice, part, (member.result, "part"), &like)?;
            let shape = self.block.meta(member.result).shape().to_vec();
            let arguments = vec![Arg::Tensor(part), Arg::value(shape)];
            self.push(self.operators.reshape, arguments, Results::from_slice(&[member.result]), &like);
        }
        self.block.symbols.extend(behind);
        Ok(())
    }

    /// The operands of all members as one, as the members read theirs.
    fn whole(&mut self, each: &[Operand], known: Option<usize>, like: &BoundSymbol) -> Result<ValueId> {
        let first = each[0];
        let stack = match known {
            Some(stack) => self.stacks[stack].value,
            None => self.stack(each, like)?,
        };
        let shape = [&[each.len()], self.block.meta(first.base).shape()].concat();
        let mut whole = stack;
        if self.block.meta(whole).shape() != shape {
            whole = self.reshaped(whole, shape, (first.base, "stack"), like)?;
        }
        if first.transposed {
            let arguments = vec![Arg::Tensor(whole), Arg::value(vec![0usize, 2, 1])];
            whole = self.call(self.operators.permute, arguments, (first.base, "transposed"), like)?;
        }
        Ok(whole)
    }

    /// Puts values side by side.
    fn stack(&mut self, each: &[Operand], like: &BoundSymbol) -> Result<ValueId> {
        let mut parts = Vec::with_capacity(each.len());
        for operand in each {
            let shape = [&[1], self.block.meta(operand.base).shape()].concat();
            parts.push(self.reshaped(operand.base, shape, (operand.root, "member"), like)?);
        }
        let arguments = vec![Arg::List(parts), Arg::value(0usize)];
        let value = self.call(self.operators.cat, arguments, (each[0].root, "stack"), like)?;
        let roots: Vec<ValueId> = each.iter().map(|operand| operand.root).collect();
        self.stacked.extend(roots.iter().map(|root| (*root, self.stacks.len())));
        self.stacks.push(Stack { value, roots });
        Ok(value)
    }

    fn reshaped(
        &mut self,
        id: ValueId,
        shape: Vec<usize>,
        name: (ValueId, &str),
        like: &BoundSymbol,
    ) -> Result<ValueId> {
        self.call(self.operators.reshape, vec![Arg::Tensor(id), Arg::value(shape)], name, like)
    }

    /// Adds a call whose result is called after a value.
    fn call(
        &mut self,
        def: &'static OperatorDef,
        arguments: Vec<Arg<ValueId>>,
        (after, what): (ValueId, &str),
        like: &BoundSymbol,
    ) -> Result<ValueId> {
        let metas = map_arguments(&arguments, |id| self.block.meta(*id).clone());
        let (metas, _) = infer(def, &metas).map_err(|error| error.of(def.name, like.place))?;
        let meta: TensorMeta =
            metas.into_iter().next().unwrap_or_else(|| unreachable!("each of these operators has a result"));
        let name = self.fresh(&format!("{}.{what}", self.block.value(after).name));
        let result = self.block.define(name, meta);
        self.push(def, arguments, Results::from_slice(&[result]), like);
        Ok(result)
    }

    fn push(&mut self, def: &'static OperatorDef, arguments: Vec<Arg<ValueId>>, results: Results, like: &BoundSymbol) {
        self.block.symbols.push(BoundSymbol {
            callee: Callee::Operator(def),
            arguments,
            results,
            body: None,
            pass: like.pass,
            executor: None,
            schedule: Default::default(),
            refusals: Vec::new(),
            place: like.place,
        });
    }

    /// A name that no value has.
    fn fresh(&mut self, base: &str) -> Arc<str> {
        let numbered = (1..).map(|number| format!("{base}.{number}"));
        let name = std::iter::once(base.to_owned()).chain(numbered).find(|name| !self.names.contains(name.as_str()));
        let name: Arc<str> = name.unwrap_or_default().into();
        self.names.insert(name.clone());
        name
    }
}
