//! What a region of this executor is: updates of parameters, or the norm of all gradients; before either, what widens
//! gradients of 16 bits, and before updates what scales gradients down; behind updates what rounds new parameters to
//! 16 bits. The kernels read the gradients as they were before, widen and scale them on the way, and write neither.

use fulgurite_runtime::DType;
use fulgurite_runtime::rules::Failure;
use fulgurite_runtime::trace::{Block, BoundSymbol, ValueId, print_symbol};
use rustc_hash::FxHashMap;

use super::clipping::{grad_norm, scale_all};
use super::optim;
use fulgurite_executor_regions::widening::{narrowed, widened};
use fulgurite_ops::optim::{adam, adamw};

/// A gradient as a kernel of a region reads it.
#[derive(Debug, Clone, Copy)]
pub struct Gradient {
    /// The parameter of the region's block.
    pub value: ValueId,
    /// Its type after it was widened.
    pub dtype: DType,
    /// What it is scaled by after that.
    pub scale: Option<Scale>,
}

/// A factor of `min(max_norm / (norm + 1e-6), 1)`.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub norm: ValueId,
    pub max_norm: f64,
}

/// An update of a parameter, the gradient that it reads, and the rounded copy of the new parameter, if the region gives
/// one.
pub struct Updated<'a> {
    pub symbol: &'a BoundSymbol,
    pub gradient: Gradient,
    pub copy: Option<ValueId>,
}

/// The lines of a region that compute what it gives.
pub enum Region<'a> {
    /// Updates that do not read each other's results.
    Updates(Vec<Updated<'a>>),
    /// The gradients whose norm it is.
    Norm(Vec<Gradient>),
}

/// Whether a line is an update of a parameter that this executor claimed.
pub fn is_update(symbol: &BoundSymbol) -> bool {
    is_ours(symbol) && [Some(&adam::OPERATOR), Some(&adamw::OPERATOR)].contains(&symbol.operator())
}

/// Whether a line scales gradients down.
pub fn is_scale(symbol: &BoundSymbol) -> bool {
    is_ours(symbol) && symbol.operator() == Some(&scale_all::OPERATOR)
}

/// Whether a line is the norm of gradients.
pub fn is_norm(symbol: &BoundSymbol) -> bool {
    is_ours(symbol) && symbol.operator() == Some(&grad_norm::OPERATOR)
}

fn is_ours(symbol: &BoundSymbol) -> bool {
    symbol.executor == Some(optim::EXECUTOR.name)
}

impl Region<'_> {
    /// Reads a region's body.
    ///
    /// # Errors
    /// Which line the kernels do not compute, and why.
    pub fn of(body: &Block) -> Result<Region<'_>, String> {
        let line = |symbol: &BoundSymbol| print_symbol(body, symbol);
        // Gradients that the region widens or scales, by the value that has them then.
        let mut made: FxHashMap<ValueId, Gradient> = FxHashMap::default();
        let outside = |id: ValueId| body.parameters.contains(&id);
        let given = |id: ValueId| Gradient { value: id, dtype: body.meta(id).dtype(), scale: None };
        let (mut updates, mut copies, mut norm) = (Vec::new(), Vec::new(), None);
        for symbol in &body.symbols {
            let gradient = |made: &FxHashMap<ValueId, Gradient>, id: ValueId| {
                let gradient = made.get(&id).copied().or_else(|| outside(id).then(|| given(id)));
                gradient.ok_or_else(|| format!("'{}' reads what another line computes", line(symbol)))
            };
            if !is_ours(symbol) {
                return Err(format!("'{}' is not claimed by it", line(symbol)));
            }
            if let Some((from, to)) = widened(body, symbol) {
                if !outside(from) {
                    return Err(format!("'{}' widens what the region computes", line(symbol)));
                }
                made.insert(to, Gradient { dtype: body.meta(to).dtype(), ..given(from) });
            } else if let Some((from, to)) = narrowed(body, symbol) {
                let update = updates.iter_mut().find(|update: &&mut Updated<'_>| update.symbol.results[0] == from);
                let Some(update) = update else {
                    return Err(format!("'{}' rounds what is no new parameter", line(symbol)));
                };
                if update.copy.replace(to).is_some() {
                    return Err(format!("'{}' rounds a parameter for the second time", line(symbol)));
                }
                copies.push(to);
            } else if is_scale(symbol) {
                let arguments = &symbol.arguments;
                let scale = Scale {
                    norm: *scale_all::ARGUMENTS.norm.read(arguments),
                    max_norm: *scale_all::ARGUMENTS.max_norm.read(arguments),
                };
                if !outside(scale.norm) {
                    return Err(format!("'{}' scales by what the region computes", line(symbol)));
                }
                for (id, result) in scale_all::ARGUMENTS.grads.read(arguments).iter().zip(&symbol.results) {
                    let scaled = gradient(&made, *id)?;
                    if scaled.scale.is_some() {
                        return Err(format!("'{}' scales what is scaled already", line(symbol)));
                    }
                    made.insert(*result, Gradient { scale: Some(scale), ..scaled });
                }
            } else if is_update(symbol) {
                let own = *adamw::ARGUMENTS.grad.read(&symbol.arguments);
                // Other operands come from outside, and so does the gradient where another operand is the same value.
                let twice = symbol.operands().filter(|id| *id == own).count() > 1;
                let others = symbol.operands().filter(|id| twice || *id != own);
                if let Some(computed) = others.into_iter().find(|id| !outside(*id)) {
                    let name = &body.value(computed).name;
                    return Err(format!("'{}' reads what another line computes, {name}", line(symbol)));
                }
                updates.push(Updated { symbol, gradient: gradient(&made, own)?, copy: None });
            } else if is_norm(symbol) && norm.is_none() {
                let all = grad_norm::ARGUMENTS.grads.read(&symbol.arguments);
                let all: Vec<Gradient> = all.iter().map(|id| gradient(&made, *id)).collect::<Result<_, _>>()?;
                if all.iter().any(|gradient| gradient.scale.is_some()) {
                    return Err(format!("'{}' is the norm of what is scaled", line(symbol)));
                }
                let mut narrow = all.iter().map(|own| body.meta(own.value).dtype()).filter(|own| *own != all[0].dtype);
                let first = narrow.next();
                if narrow.any(|own| Some(own) != first) {
                    return Err(format!("'{}' is the norm of more than two types", line(symbol)));
                }
                norm = Some((symbol, all));
            } else {
                return Err(format!("'{}' is no update of a parameter", line(symbol)));
            }
        }
        let written: Vec<ValueId> = match &norm {
            Some(_) if !updates.is_empty() => return Err("it has updates and a norm".into()),
            Some((symbol, _)) => symbol.results.to_vec(),
            None => updates.iter().flat_map(|update| update.symbol.results.iter().copied()).chain(copies).collect(),
        };
        if written[..] != body.results[..] {
            return Err(
                "it does not give the results of its updates and then their copies, or its norm, in their order".into(),
            );
        }
        Ok(match norm {
            Some((_, gradients)) => Region::Norm(gradients),
            None => Region::Updates(updates),
        })
    }
}

/// What a region gets whose lines name values that it does not have. The verifier finds these first.
pub fn broken() -> Failure {
    Failure::new("Region", "a region of the optim executor names a value that it does not have")
}
