//! Mixed precision: products in a low-precision type, sums and exponentials in f32, parameters as they are.
//!
//! Every call gets its floating-point operands in the types of its operator's class ([`Autocast`]). The conversions are
//! lines of the trace. The transform runs before autodiff: the gradient of a conversion converts back, so f32
//! parameters get f32 gradients, and the backward pass computes in the types of the forward pass. Each use of a value
//! is converted for itself, so that its gradients meet in the value's own type; what cse merges afterwards is the
//! conversion.
//!
//! What a function takes and gives keeps its types, that of the function inside a `value_and_grad` line or a checkpoint
//! as well.
//!
//! The classes are PyTorch's (`torch.autocast`, the lists for CUDA); see `docs/src/autocast.md`.

use std::sync::Arc;

use fulgurite_kernels::DType;

use super::flatten::{Flattener, Substitution};
use crate::argument::{Arg, Attribute, map_arguments};
use crate::error::{CallStack, Error, Failure, Result};
use crate::meta::TensorMeta;
use crate::operator::{Autocast, OperatorDef, ParamKind, Role};
use crate::registry::role;
use crate::trace::{Block, BoundSymbol, Callee, Pass, Results, StageName, Trace, ValueId};
use crate::tracer::infer;

/// `trace` with products in `low`, bf16 or f16. A trace that has its gradients already is refused: they would be of
/// other types than what they are gradients of.
pub fn autocast(trace: &Trace, low: DType) -> Result<Trace> {
    check(trace, low)?;
    Ok(trace.at_stage(StageName::Autocast, function(&trace.block, low)?))
}

/// Whether `low` is a low-precision type, and `trace` is without gradients yet.
pub fn check(trace: &Trace, low: DType) -> Result<()> {
    let refused = |message| Err(Error::Argument { argument: StageName::Autocast.name().into(), message });
    if !matches!(low, DType::BF16 | DType::F16) {
        return refused(format!("is {low}, expected bf16 or f16"));
    }
    let late = [StageName::Autodiff, StageName::Vjp, StageName::Claim];
    match trace.history.iter().find(|past| late.iter().any(|stage| stage.name() == past.as_str())) {
        Some(late) => refused(format!("comes before autodiff, but this trace has been through '{late}'")),
        None => Ok(()),
    }
}

/// A block with the same parameters and results, its calls in the types of their classes.
fn function(block: &Block, low: DType) -> Result<Block> {
    let (flattener, mut substitution) = Flattener::new(block);
    let mut writer = Writer { low, flattener };
    for symbol in &block.symbols {
        writer.write(block, symbol, &mut substitution)?;
    }
    for id in &block.results {
        let (value, now) = (block.value(*id), Flattener::mapped(&substitution, *id));
        let dtype = value.meta.dtype();
        if writer.flattener.block().meta(now).dtype() != dtype {
            let name = format!("{}.{dtype}", value.name);
            substitution[id.index()] = Some(writer.convert(now, dtype, &name, None)?);
        }
    }
    Ok(writer.flattener.finish(block, &substitution))
}

/// The arguments of a call with metas in place of tensors.
type Metas = Vec<Arg<TensorMeta>>;

struct Writer {
    low: DType,
    flattener: Flattener,
}

impl Writer {
    fn write(&mut self, source: &Block, symbol: &BoundSymbol, substitution: &mut Substitution) -> Result<()> {
        let written = source.argument_metas(symbol);
        let Some(def) = symbol.operator() else {
            let mut symbol = symbol.clone();
            if let (true, Some(body)) = (symbol.callee.holds_program(), &symbol.body) {
                symbol.body = Some(Arc::new(function(body, self.low)?.canonical()));
            }
            let results = symbol.results.iter().map(|id| source.meta(*id).clone()).collect();
            let arguments = self.converted(source, &symbol, substitution, &written)?;
            self.push(source, &symbol, arguments, results, substitution);
            return Ok(());
        };
        let here = {
            let block = self.flattener.block();
            map_arguments(&symbol.arguments, |id| block.meta(Flattener::mapped(substitution, *id)).clone())
        };
        for wanted in self.candidates(def, here, written.clone()) {
            // As the author wrote it; otherwise the operator says whether it takes these types.
            let (results, body) = if wanted == written {
                (symbol.results.iter().map(|id| source.meta(*id).clone()).collect(), symbol.body.clone())
            } else {
                match infer(def, &wanted) {
                    Ok((results, body)) if results.len() == symbol.results.len() => (results, body),
                    _ => continue,
                }
            };
            let arguments = self.converted(source, symbol, substitution, &wanted)?;
            // What holds nothing that could be of lower precision stays as it is.
            let lowers = |meta: &TensorMeta| meta.dtype().is_floating() && meta.dtype() != DType::F64;
            let lowers = wanted.iter().flat_map(Arg::tensors).any(lowers);
            match body {
                Some(body) if lowers && def.autocast.is_none() && holds_products(&body) => {
                    self.open(source, symbol, &arguments, &body, substitution)?;
                }
                body => {
                    let symbol = BoundSymbol { body, ..symbol.clone() };
                    self.push(source, &symbol, arguments, results, substitution);
                }
            }
            return Ok(());
        }
        let message = "changes an operand in place that autocast has given another element type";
        Err(Error::Operator {
            operator: def.name.into(),
            failure: Failure::new("AutocastMutation", message),
            stack: CallStack { at: symbol.place, frames: Vec::new() },
        })
    }

    /// In which types the operands may come, the best first. The last is how the author wrote the call.
    fn candidates(&self, def: &OperatorDef, here: Metas, written: Metas) -> Vec<Metas> {
        let floating = || here.iter().flat_map(Arg::tensors).map(TensorMeta::dtype).filter(|dtype| dtype.is_floating());
        let double = floating().any(|dtype| dtype == DType::F64);
        let widest = floating().reduce(wider);
        let all = |dtype: DType| map_arguments(&here, |meta| in_type(meta, dtype));
        let meeting = widest.map(all);
        // An operator may refuse operands that are kept beside the others.
        let keeping = |mut metas: Metas| {
            for name in def.autocast_keeps {
                def.param(name).into_iter().for_each(|i| metas[i] = here[i].clone());
            }
            metas
        };
        match def.autocast {
            // A product of f64 is one of f64.
            Some(Autocast::Low) if !double => vec![keeping(all(self.low)), all(self.low), written],
            Some(Autocast::Full) => {
                [Some(keeping(full(def, &here))), meeting, Some(written)].into_iter().flatten().collect()
            }
            Some(Autocast::Widest) => meeting.into_iter().chain([here, written]).collect(),
            Some(Autocast::Low | Autocast::Keep) | None => {
                [Some(here), meeting, Some(written)].into_iter().flatten().collect()
            }
        }
    }

    /// The symbol's arguments in the types of `wanted`: a line for each operand that has another.
    fn converted(
        &mut self,
        source: &Block,
        symbol: &BoundSymbol,
        substitution: &Substitution,
        wanted: &[Arg<TensorMeta>],
    ) -> Result<Vec<Arg<ValueId>>> {
        let call = symbol.results.first().map_or_else(|| symbol.name().into(), |id| source.value(*id).name.clone());
        let mut made: Vec<(ValueId, ValueId)> = Vec::new();
        let mut arguments = Vec::with_capacity(wanted.len());
        for (i, (argument, wanted)) in symbol.arguments.iter().zip(wanted).enumerate() {
            let mut metas = wanted.tensors().iter();
            let mut failed = None;
            let mut at = 0;
            let list = matches!(argument, Arg::List(_));
            let tensors = argument.map(|id| {
                let now = Flattener::mapped(substitution, *id);
                let dtype = metas.next().map_or_else(|| source.meta(*id).dtype(), TensorMeta::dtype);
                let part = at;
                at += 1;
                if self.flattener.block().meta(now).dtype() == dtype {
                    return now;
                }
                if let Some((_, known)) = made.iter().find(|(from, _)| *from == now) {
                    return *known;
                }
                let param = symbol.operator().and_then(|def| def.params.get(i)).map_or("input", |param| param.name);
                let name = if list { format!("{call}.{param}.{part}") } else { format!("{call}.{param}") };
                match self.convert(now, dtype, &name, Some(symbol)) {
                    Ok(new) => {
                        made.push((now, new));
                        new
                    }
                    Err(error) => {
                        failed.get_or_insert(error);
                        now
                    }
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            arguments.push(match wanted {
                Arg::Attribute(attribute) => Arg::Attribute(attribute.clone()),
                _ => tensors,
            });
        }
        Ok(arguments)
    }

    /// A line that gives `value` in `dtype`, below the place of `of`.
    fn convert(&mut self, value: ValueId, dtype: DType, name: &str, of: Option<&BoundSymbol>) -> Result<ValueId> {
        let def = role(Role::Convert)?;
        let meta = self.flattener.block().meta(value).with_dtype(dtype);
        let name = self.flattener.fresh(name);
        let new = self.flattener.define(name, meta);
        self.flattener.push(BoundSymbol {
            callee: Callee::Operator(def),
            arguments: vec![Arg::Tensor(value), Arg::Attribute(Attribute::DType(dtype))],
            results: Results::from_slice(&[new]),
            body: None,
            pass: of.map_or(Pass::Forward, |symbol| symbol.pass),
            executor: None,
            schedule: Default::default(),
            refusals: Vec::new(),
            place: of.and_then(|symbol| symbol.place),
        });
        Ok(new)
    }

    fn push(
        &mut self,
        source: &Block,
        symbol: &BoundSymbol,
        arguments: Vec<Arg<ValueId>>,
        metas: Vec<TensorMeta>,
        substitution: &mut Substitution,
    ) {
        let mut results = Results::new();
        for (id, meta) in symbol.results.iter().zip(metas) {
            let new = self.flattener.define(source.value(*id).name.clone(), meta);
            substitution[id.index()] = Some(new);
            results.push(new);
        }
        self.flattener.push(BoundSymbol { arguments, results, ..symbol.clone() });
    }

    /// Writes the decomposition instead of the call, each of its lines by its own class.
    fn open(
        &mut self,
        source: &Block,
        symbol: &BoundSymbol,
        arguments: &[Arg<ValueId>],
        body: &Block,
        substitution: &mut Substitution,
    ) -> Result<()> {
        let names: Vec<Arc<str>> = symbol.results.iter().map(|id| source.value(*id).name.clone()).collect();
        let prefix = names.first().map_or(symbol.name(), |name| symbol.call_name(name));
        let operands: Vec<ValueId> = arguments.iter().flat_map(Arg::tensors).copied().collect();
        let (named, mut inner) = self.flattener.open(body, operands.into_iter(), prefix, &names);
        for line in &named.symbols {
            let place = symbol.place_inside().or(line.place);
            self.write(&named, &BoundSymbol { place, ..line.clone() }, &mut inner)?;
        }
        for (outer, result) in symbol.results.iter().zip(&named.results) {
            substitution[outer.index()] = Some(Flattener::mapped(&inner, *result));
        }
        Ok(())
    }
}

/// Whether some line, however deep, is of the class low.
fn holds_products(body: &Block) -> bool {
    body.symbols.iter().any(|symbol| match symbol.operator().and_then(|def| def.autocast) {
        Some(class) => class == Autocast::Low,
        None => symbol.body.as_deref().is_some_and(holds_products),
    })
}

/// The type that holds the values of both floating-point types.
fn wider(a: DType, b: DType) -> DType {
    match (a, b) {
        (DType::F16, DType::BF16) | (DType::BF16, DType::F16) => DType::F32,
        _ => a.max(b),
    }
}

fn in_type(meta: &TensorMeta, dtype: DType) -> TensorMeta {
    let eligible = meta.dtype().is_floating() && meta.dtype() != DType::F64;
    if eligible { meta.with_dtype(dtype) } else { meta.clone() }
}

/// The arguments of a call converted to f32, or with `dtype` set to f32.
fn full(def: &OperatorDef, here: &[Arg<TensorMeta>]) -> Metas {
    let low = |meta: &TensorMeta| meta.dtype().is_floating() && meta.dtype() != meta.dtype().accumulator();
    let told = def.param("dtype").filter(|i| def.params[*i].kind == ParamKind::Attribute);
    if let Some(i) = told {
        // A type that the author asked for stays, and so does the input: a conversion would only write it once more.
        let mut arguments = here.to_vec();
        let asked = arguments[i] != Arg::Attribute(Attribute::None);
        if !asked && here.iter().flat_map(Arg::tensors).any(low) {
            arguments[i] = Arg::Attribute(Attribute::DType(DType::F32));
        }
        return arguments;
    }
    map_arguments(here, |meta| if low(meta) { meta.with_dtype(DType::F32) } else { meta.clone() })
}
