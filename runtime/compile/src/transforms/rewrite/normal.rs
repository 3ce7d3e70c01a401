//! The normal form of symbols. A pattern and a program may say the same in several ways; both are brought to this form,
//! and symbols match that are equal in it or as they were written.
//!
//! - A composite whose decomposition is one symbol is that symbol: `relu(x)` is `maximum(x, 0)`. Before the program is
//!   differentiated, a composite with a gradient of its own matches itself alone: at 0 the gradient of `relu` is 0,
//!   that of `maximum` is half of the cotangent, and a rewrite must not change which one a program gets.
//! - A number beside tensors of a floating-point type is a float, and a tensor filled with one number, in elementwise
//!   arithmetic with another tensor, is that number.
//! - A division by a power of two is a product with its reciprocal: both round the same number once.

use fulgurite_kernels::scalar::{ScalarNode, ScalarOp};

use crate::argument::{Arg, Attribute, Scalar, map_arguments};
use crate::arithmetic::Arithmetic;
use crate::elementwise::is_mask;
use crate::operator::{OperatorDef, OperatorKind, ParamKind, Role, RuleSet};
use crate::registry::role;
use crate::trace::{Block, BoundSymbol, ValueId};
use crate::tracer::infer;
use crate::transforms::autodiff::rules::GradientRules;
use crate::transforms::dce;

/// How a symbol is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    /// As it was written.
    Written,
    /// In the normal form of the module.
    Normal,
}

/// The normal form of each symbol of a block, where it is another than what was written. Results are those of the
/// symbol as it was written; operands are among its values, or those of a value that it reads.
pub(super) struct Normals {
    forms: Vec<Option<BoundSymbol>>,
    /// Whether the block's own symbols are in normal form where that reads fewer tensors.
    pub(super) folded: bool,
}

impl Normals {
    /// `late` says that nothing differentiates the block any more.
    pub(super) fn of(block: &Block, late: bool) -> Normals {
        let makers = makers(block);
        let forms = block.symbols.iter().map(|symbol| normal(block, &makers, symbol, late)).collect();
        Normals { forms, folded: false }
    }

    /// The forms of the symbol at `at`.
    pub(super) fn variants<'a>(
        &'a self,
        block: &'a Block,
        at: usize,
    ) -> impl Iterator<Item = (Variant, &'a BoundSymbol)> + Clone + use<'a> {
        let normal = self.forms[at].as_ref().map(|symbol| (Variant::Normal, symbol));
        [(Variant::Written, &block.symbols[at])].into_iter().chain(normal)
    }

    /// The symbol at `at` in that form.
    pub(super) fn variant<'a>(&'a self, block: &'a Block, at: usize, variant: Variant) -> Option<&'a BoundSymbol> {
        match variant {
            Variant::Written => block.symbols.get(at),
            Variant::Normal => self.forms.get(at)?.as_ref(),
        }
    }
}

/// A side of a rewrite with its normal forms. Tensors that only stand for a number are no symbols of a pattern: where
/// a program has the number itself, nothing fills a tensor with it.
pub(super) fn with_normals(mut block: Block, late: bool) -> (Block, Normals) {
    let Normals { forms: mut normals, mut folded } = Normals::of(&block, late);
    let reads = |symbol: &BoundSymbol| symbol.operands().count();
    for (symbol, normal) in block.symbols.iter_mut().zip(&mut normals) {
        if let Some(fewer) = normal.take_if(|normal| reads(normal) < reads(symbol)) {
            *symbol = fewer;
            folded = true;
        }
    }
    let mut needed = dce::needed(&block).into_iter();
    normals.retain(|_| needed.next() == Some(true));
    (dce::live(block), Normals { forms: normals, folded })
}

/// The symbol that makes each value; `None` for parameters.
fn makers(block: &Block) -> Vec<Option<usize>> {
    let mut makers = vec![None; block.values.len()];
    for (i, symbol) in block.symbols.iter().enumerate() {
        symbol.results.iter().for_each(|id| makers[id.index()] = Some(i));
    }
    makers
}

fn normal(block: &Block, makers: &[Option<usize>], symbol: &BoundSymbol, late: bool) -> Option<BoundSymbol> {
    if symbol.executor.is_some() {
        return None;
    }
    let opened = opened(block, symbol, late);
    let mut form = opened.clone().unwrap_or_else(|| symbol.clone());
    let changed = with_numbers(block, makers, &mut form);
    match as_product(block, &form, late) {
        Some(product) => Some(product),
        None => (changed || opened.is_some()).then_some(form),
    }
}

/// The symbol that a composite consists of, if it is one; also if that is a composite of one symbol again.
fn opened(block: &Block, symbol: &BoundSymbol, late: bool) -> Option<BoundSymbol> {
    let def = symbol.operator().filter(|def| def.kind == OperatorKind::Composite)?;
    if !late && has_own_gradient(def) {
        return None;
    }
    // A trace written by hand may leave out what a composite stands for.
    let inferred = || infer(def, &block.argument_metas(symbol)).ok()?.1;
    let body = symbol.body.clone().or_else(inferred)?;
    let [inner] = &body.symbols[..] else { return None };
    let whole = inner.operator().is_some_and(|def| def.effects.mergeable()) && *body.results == *inner.results;
    if !whole || body.results.len() != symbol.results.len() {
        return None;
    }
    let outer: Vec<ValueId> = symbol.operands().collect();
    let given = |id: &ValueId| body.parameters.iter().position(|own| own == id).and_then(|i| outer.get(i).copied());
    inner.operands().all(|id| given(&id).is_some()).then_some(())?;
    let form = BoundSymbol {
        callee: inner.callee.clone(),
        arguments: map_arguments(&inner.arguments, |id| given(id).unwrap_or(*id)),
        body: inner.body.clone(),
        ..symbol.clone()
    };
    Some(opened(block, &form, late).unwrap_or(form))
}

/// Whether a composite may have another gradient than its decomposition, or none. What a role names, such as a
/// quotient, has one gradient.
fn has_own_gradient(def: &'static OperatorDef) -> bool {
    let rules = GradientRules::of(def);
    def.overload.is_none() && (rules.grad.is_some() || rules.no_grad.is_some())
}

/// Writes numbers in one way. Whether something changed.
fn with_numbers(block: &Block, makers: &[Option<usize>], symbol: &mut BoundSymbol) -> bool {
    let Some(def) = symbol.operator().filter(|def| Arithmetic::of(def).scalar.is_some()) else { return false };
    let before = symbol.arguments.clone();
    for place in 0..symbol.arguments.len().min(def.params.len()) {
        if !matches!(def.params[place].kind, ParamKind::Operand(_)) {
            continue;
        }
        let others = def.params.iter().zip(&symbol.arguments).enumerate();
        let mut others = others.filter(|(i, (param, _))| *i != place && !is_mask(param));
        let Some(beside) = others.find_map(|(_, (_, argument))| argument.tensors().first().copied()) else { continue };
        let dtype = block.meta(beside).dtype();
        let number = match &symbol.arguments[place] {
            Arg::Attribute(Attribute::Scalar(number)) => Some(*number),
            Arg::Tensor(id) if block.meta(*id).dtype() == dtype => {
                filled_with(block, makers, *id).map(|number| match dtype.is_floating() {
                    true => Scalar::Float(dtype.nearest(number.to_f64())),
                    false => number,
                })
            }
            _ => None,
        };
        if let Some(number) = number.filter(|number| number.stands_for(dtype)) {
            let number = if dtype.is_floating() { Scalar::Float(number.to_f64()) } else { number };
            symbol.arguments[place] = Arg::Attribute(Attribute::Scalar(number));
        }
    }
    symbol.arguments != before
}

/// The number that a tensor is filled with.
fn filled_with(block: &Block, makers: &[Option<usize>], id: ValueId) -> Option<Scalar> {
    let maker = &block.symbols[makers[id.index()]?];
    // No gradient flows into a constant.
    let maker = opened(block, maker, true).unwrap_or_else(|| maker.clone());
    match (maker.operator()?.overload?, &maker.arguments[..]) {
        (Role::Full, [_, Arg::Attribute(Attribute::Scalar(number)), ..]) => Some(*number),
        (Role::Broadcast, [Arg::Tensor(operand), ..]) => filled_with(block, makers, *operand),
        _ => None,
    }
}

/// A division by a power of two as a product.
fn as_product(block: &Block, symbol: &BoundSymbol, late: bool) -> Option<BoundSymbol> {
    let [Arg::Tensor(dividend), Arg::Attribute(Attribute::Scalar(divisor))] = &symbol.arguments[..] else {
        return None;
    };
    let (meta, divisor) = (block.meta(*dividend), divisor.to_f64());
    let reciprocal = 1.0 / divisor;
    // Both are normal numbers of f32, in which 16 bits are multiplied, without a mantissa.
    let plain = |number: f64| number.to_bits().trailing_zeros() >= 52 && (number as f32).is_normal();
    if !meta.dtype().is_floating() || !plain(divisor) || !plain(reciprocal) || !divides(block, symbol) {
        return None;
    }
    let mul: &'static OperatorDef = role(Role::Mul).ok()?;
    let mut arguments: Vec<Arg<ValueId>> = vec![Arg::Tensor(*dividend), Arg::value(reciprocal)];
    arguments.extend(mul.params.iter().skip(2).map(|param| param.default_argument()));
    let metas = map_arguments(&arguments, |id| block.meta(*id).clone());
    let (results, body) = infer(mul, &metas).ok()?;
    let same = results.iter().eq(symbol.results.iter().map(|id| block.meta(*id)));
    let product = BoundSymbol { callee: crate::trace::Callee::Operator(mul), arguments, body, ..symbol.clone() };
    same.then(|| opened(block, &product, late).unwrap_or(product))
}

/// Whether an elementwise operator divides its first operand by its second one, a number, and does nothing else.
fn divides(block: &Block, symbol: &BoundSymbol) -> bool {
    let Some(scalar) = symbol.operator().and_then(|def| Arithmetic::of(def).scalar) else { return false };
    let (program, _) = scalar(&block.argument_metas(symbol));
    let [result] = program.results[..] else { return false };
    match program.nodes[result as usize] {
        ScalarNode::Apply(ScalarOp::Div, [first, second, _]) => {
            program.nodes[first as usize] == ScalarNode::Input(0)
                && program.nodes[second as usize] == ScalarNode::Number(0)
        }
        _ => false,
    }
}
