//! Einstein's sums: products of tensors whose dimensions letters name, summed over the letters that the result lacks.

use std::iter::{Product, Sum as Total};
use std::ops::AddAssign;

use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::ArrayD;
use fulgurite_runtime::{DType, Tensor};

use super::arrays::array;
use super::parts;
use super::promotion::{accumulating, cast};
use super::{arranged, diagonal, matmul, read_as};
use crate::prims;
use crate::prims::checks::same_dtype;

/// The sum of products that `equation` says, as in `"bij,bjk->bik"`: each letter names a dimension, equal letters equal
/// extents (or one, which is repeated), and the result is summed over the letters that it lacks. A letter twice in one
/// operand is its diagonal. `...` are dimensions that broadcast. Without `->` the result has the ellipsis and then the
/// letters that occur once, A to Z before a to z. Operands are multiplied two at a time, in the order that takes the
/// fewest multiplications where they are at most eight, and otherwise the cheapest pair first. A sum of a single
/// operand of integers or booleans is i64. Several operands of booleans have their conjunctions, and no sums.
#[operator(torch = "einsum", autocast = low, complex)]
pub mod einsum {
    fn einsum(equation: String, operands: Vec<Tensor>) -> Tensor;

    fn requires(equation: &str, operands: &[TensorMeta]) -> Result<()> {
        require!(!operands.is_empty(), NoOperands, "operands is empty, expected at least one tensor");
        for meta in operands {
            same_dtype(("the first operand", &operands[0]), ("another", meta), Code::SameDType)?;
        }
        let shapes: Vec<&[usize]> = operands.iter().map(TensorMeta::shape).collect();
        let sum = super::parsed(equation, &shapes).map_err(|wrong| match wrong {
            super::Wrong::Equation(text) => Code::Equation.unmet(format_args!("equation {equation:?} {text}")),
            super::Wrong::Extents(text) => Code::Extents.unmet(format_args!("equation {equation:?}: {text}")),
        })?;
        let adds = (0..sum.extents.len()).any(|number| !sum.out.contains(&number));
        require!(
            operands[0].dtype() != DType::Bool || operands.len() == 1 || !adds,
            Booleans,
            "equation {equation:?} adds products of booleans, expected numbers, or all letters in the result"
        );
        Ok(())
    }

    fn decomposition(equation: &str, operands: &[Tensor]) -> Tensor {
        let shapes: Vec<Vec<usize>> = operands.iter().map(|operand| operand.shape().to_vec()).collect();
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        match super::parsed(equation, &shapes) {
            Ok(sum) => super::computed(operands, &sum),
            Err(_) => operands[0],
        }
    }

    fn reference(equation: &str, operands: &[ReferenceTensor]) -> ReferenceTensor {
        match operands.iter().any(|operand| operand.imaginary().is_some()) {
            true => super::summed(equation, &operands.iter().map(ReferenceTensor::complex).collect::<Vec<_>>()).into(),
            false => {
                let floats: Vec<_> = operands.iter().map(|operand| operand.floats().clone()).collect();
                super::summed(equation, &floats).into()
            }
        }
    }

    fn samples(s: &mut Samples) {
        let cases: &[(&str, &[&[usize]])] = &[
            ("ij,jk->ik", &[&[3, 4], &[4, 5]]),
            ("b i j, b k j -> b k i", &[&[2, 3, 4], &[2, 5, 4]]),
            ("ii->i", &[&[3, 3]]),
            ("iij->j", &[&[3, 3, 2]]),
            ("ij->ji", &[&[2, 3]]),
            ("ij,ij", &[&[2, 3], &[2, 3]]),
            ("i,j", &[&[3], &[4]]),
            ("...ij,...jk", &[&[2, 1, 3, 4], &[5, 4, 2]]),
            ("ab,bc,cd,de->ae", &[&[2, 6], &[6, 3], &[3, 7], &[7, 2]]),
            ("bn,anm,bm->ba", &[&[2, 3], &[4, 3, 5], &[2, 5]]),
            ("ij,kj->k", &[&[3, 1], &[2, 4]]),
            ("Ba,aB,...->...", &[&[2, 3], &[3, 2], &[]]),
            ("ij,jk->ik", &[&[2, 0], &[0, 3]]),
            ("ij,ji->ij", &[&[2, 3], &[3, 2]]),
            ("ij->j", &[&[2, 3]]),
            ("ij,kj->k", &[&[2, 4], &[3, 1]]),
            ("...i,...i->...", &[&[2, 3], &[2, 3]]),
            ("ij,k->k", &[&[2, 3], &[2]]),
            // More operands than all orders are tried of.
            ("a,ab,b,bc,c,cd,d,de,e->ec", &[&[2], &[2, 3], &[3], &[3, 2], &[2], &[2, 3], &[3], &[3, 2], &[2]]),
        ];
        // Of booleans those without a sum of products.
        let without = |equation: &str| !equation.contains(',') || matches!(equation, "i,j" | "ij,ji->ij");
        let (cases, dtype) = (cases.iter(), s.dtype());
        for (equation, shapes) in cases.filter(|(text, _)| dtype != DType::Bool || without(text)) {
            s.case(with(*equation, shapes.iter().map(|shape| s.normal(shape)).collect::<Vec<_>>()));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |equation: &str, shapes: &[&[usize]]| {
            with(equation, shapes.iter().map(|shape| e.normal(shape)).collect::<Vec<_>>())
        };
        e.case(NoOperands, of("ij", &[]), "operands is empty");
        e.case(SameDType, with("i,i", [e.of(DType::F32, [2]), e.of(DType::F64, [2])]), "another is f64");
        let truth = [(); 2].map(|()| e.of(DType::Bool, [2]));
        e.case(Booleans, with("i,i", truth), "adds products of booleans");
        e.case(Equation, of("ij,jk", &[&[2, 3]]), "has 2 operands, expected 1");
        e.case(Equation, of("i1", &[&[2, 3]]), "'1' in operand 0");
        e.case(Equation, of("ijk", &[&[2, 3]]), "operand 0 has 3 letters and shape [2, 3]");
        e.case(Equation, of("i...", &[&[]]), "operand 0 has 1 letters and shape []");
        e.case(Equation, of("i", &[&[2, 3]]), "operand 0 has 1 letters and shape [2, 3]");
        e.case(Equation, of("i...j...", &[&[2, 3]]), "two ellipses in operand 0");
        e.case(Equation, of("ij->ik", &[&[2, 3]]), "'k' of the result is in no operand");
        e.case(Equation, of("ij->ii", &[&[2, 3]]), "'i' is twice in the result");
        e.case(Equation, of("ij->...", &[&[2, 3]]), "an ellipsis in the result, and in no operand");
        e.case(Extents, of("ij,jk", &[&[2, 3], &[4, 2]]), "'j' is 4 in operand 1, and 3 in operand 0");
        e.case(Extents, of("ij,jk", &[&[2, 3], &[2, 2]]), "'j' is 2 in operand 1, and 3 in operand 0");
        e.case(Extents, of("ij,jk", &[&[3, 2], &[3, 2]]), "'j' is 3 in operand 1, and 2 in operand 0");
        e.case(Extents, of("ii", &[&[2, 3]]), "'i' is 3 in operand 0, and 2 in operand 0");
        e.case(Extents, of("...,...", &[&[2], &[3]]), "the ellipsis is [3] in operand 1");
    }
}

/// A sum with a number for each letter and for each dimension of the ellipsis.
struct Sum {
    /// The numbers of each operand's dimensions.
    operands: Vec<Vec<usize>>,
    /// Those of the result.
    out: Vec<usize>,
    /// The extent of each.
    extents: Vec<usize>,
}

/// A dimension's name as it is written: a letter or the ellipsis.
#[derive(Clone, Copy, PartialEq)]
enum Name {
    Letter(char),
    Ellipsis,
}

/// The names of one operand, or of the result; a text that says what is wrong otherwise.
fn names(text: &str, of: &str) -> Result<Vec<Name>, String> {
    let mut names = Vec::new();
    let mut rest = text.trim_start();
    while let Some(next) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("...") {
            if names.contains(&Name::Ellipsis) {
                return Err(format!("has two ellipses in {of}, expected one at most"));
            }
            names.push(Name::Ellipsis);
            rest = after.trim_start();
        } else if next.is_ascii_alphabetic() {
            names.push(Name::Letter(next));
            rest = rest[1..].trim_start();
        } else {
            return Err(format!("has {next:?} in {of}, expected letters and '...'"));
        }
    }
    Ok(names)
}

/// What is wrong with an equation: itself, or the extents of one letter.
enum Wrong {
    Equation(String),
    Extents(String),
}

/// The equation for operands of these shapes.
fn parsed(equation: &str, shapes: &[&[usize]]) -> Result<Sum, Wrong> {
    let fail = Wrong::Equation;
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation, None),
    };
    let operands: Vec<Vec<Name>> = left
        .split(',')
        .enumerate()
        .map(|(i, text)| names(text, &format!("operand {i}")))
        .collect::<Result<_, _>>()
        .map_err(fail)?;
    if operands.len() != shapes.len() {
        return Err(fail(format!("has {} operands, expected {}", operands.len(), shapes.len())));
    }
    let mut dots = 0;
    for (i, (names, shape)) in operands.iter().zip(shapes).enumerate() {
        let open = names.contains(&Name::Ellipsis);
        let letters = names.len() - usize::from(open);
        if letters > shape.len() || (letters < shape.len() && !open) {
            return Err(fail(format!(
                "is not for these operands: operand {i} has {letters} letters and shape {shape:?}"
            )));
        }
        dots = dots.max(if open { shape.len() - letters } else { 0 });
    }
    // The dimensions of the ellipsis come first, from the left; an operand has the last of them.
    let mut letters: Vec<char> = Vec::new();
    let mut extents = vec![1; dots];
    let mut from = vec![0; dots];
    let mut numbered = Vec::new();
    for (i, (names, shape)) in operands.iter().zip(shapes).enumerate() {
        let own_dots = (shape.len() + 1).saturating_sub(names.len());
        let mut own = Vec::new();
        for name in names {
            match name {
                Name::Ellipsis => own.extend(dots - own_dots..dots),
                Name::Letter(letter) => {
                    let at = letters.iter().position(|known| known == letter).unwrap_or(letters.len());
                    if at == letters.len() {
                        letters.push(*letter);
                        extents.push(1);
                        from.push(i);
                    }
                    own.push(dots + at);
                }
            }
        }
        for (place, (number, extent)) in own.iter().zip(*shape).enumerate() {
            let known = extents[*number];
            // Within one operand extents are equal; those of others may be one.
            let twice = own[..place].contains(number);
            let first = own[..place].iter().position(|other| other == number).map(|at| shape[at]);
            let fits = match first {
                Some(first) => first == *extent,
                None => known == *extent || known == 1 || *extent == 1,
            };
            if !fits && *number < dots {
                return Err(Wrong::Extents(format!(
                    "the ellipsis is {:?} in operand {i}, which does not broadcast with {:?}",
                    own.iter().zip(*shape).filter(|(n, _)| **n < dots).map(|(_, extent)| *extent).collect::<Vec<_>>(),
                    &extents[..dots]
                )));
            }
            if !fits {
                let (letter, other) = (letters[*number - dots], first.unwrap_or(known));
                let other_operand = if twice { i } else { from[*number] };
                return Err(Wrong::Extents(format!(
                    "{letter:?} is {extent} in operand {i}, and {other} in operand {other_operand}"
                )));
            }
            if known == 1 && *extent != 1 {
                (extents[*number], from[*number]) = (*extent, i);
            }
        }
        numbered.push(own);
    }
    let out = match right {
        Some(text) => {
            let names = names(text, "the result").map_err(fail)?;
            let any_dots = operands.iter().any(|names| names.contains(&Name::Ellipsis));
            let mut out = Vec::new();
            for name in names {
                match name {
                    Name::Ellipsis if !any_dots => {
                        return Err(fail("has an ellipsis in the result, and in no operand".into()));
                    }
                    Name::Ellipsis => out.extend(0..dots),
                    Name::Letter(letter) => {
                        let at = letters.iter().position(|known| *known == letter);
                        let at = at.ok_or_else(|| {
                            fail(format!("is not for these operands: {letter:?} of the result is in no operand"))
                        })?;
                        if out.contains(&(dots + at)) {
                            return Err(fail(format!("is no sum: {letter:?} is twice in the result")));
                        }
                        out.push(dots + at);
                    }
                }
            }
            out
        }
        None => {
            let count = |number: usize| numbered.iter().flatten().filter(|other| **other == number).count();
            let mut once: Vec<usize> = (0..letters.len()).filter(|at| count(dots + at) == 1).collect();
            once.sort_by_key(|at| letters[*at]);
            (0..dots).chain(once.into_iter().map(|at| dots + at)).collect()
        }
    };
    Ok(Sum { operands: numbered, out, extents })
}

/// A tensor with the numbers of its dimensions, each once and of the extent that the sum has for it.
#[derive(Clone)]
struct Factor {
    tensor: Tensor,
    dims: Vec<usize>,
}

/// The order in which factors are multiplied.
#[derive(Clone)]
enum Order {
    One(usize),
    Product(Box<Order>, Box<Order>),
}

impl Order {
    fn of(first: Order, second: Order) -> Order {
        Order::Product(Box::new(first), Box::new(second))
    }

    fn members(&self) -> Vec<usize> {
        match self {
            Order::One(factor) => vec![*factor],
            Order::Product(first, second) => [first.members(), second.members()].concat(),
        }
    }
}

/// The value of the sum.
#[track_caller]
fn computed(operands: &[Tensor], sum: &Sum) -> Tensor {
    let factors: Vec<Factor> =
        operands.iter().zip(&sum.operands).map(|(tensor, dims)| factor(*tensor, dims, &sum.extents)).collect();
    let dims: Vec<Vec<usize>> = factors.iter().map(|factor| factor.dims.clone()).collect();
    let whole = product_of(&order_of(&dims, sum), &factors, sum);
    // The type that a sum of one operand has is that of `sum`.
    let Factor { tensor, dims } = only(whole, &sum.out, factors.len() > 1);
    let order: Vec<usize> = sum.out.iter().filter_map(|number| dims.iter().position(|own| own == number)).collect();
    // What no factor has is of extent one.
    read_as(arranged(tensor, &order), &sum.out.iter().map(|number| sum.extents[*number]).collect::<Vec<_>>())
}

/// An operand whose repeated dimensions are their diagonal, without those of extent one that others have longer.
#[track_caller]
fn factor(tensor: Tensor, dims: &[usize], extents: &[usize]) -> Factor {
    let mut factor = Factor { tensor, dims: dims.to_vec() };
    while let Some((first, second)) = twice(&factor.dims) {
        // The diagonal comes last.
        let number = factor.dims[first];
        let tensor = diagonal::with(factor.tensor).dim1(first as i64).dim2(second as i64).call();
        let mut dims = factor.dims;
        dims.remove(second);
        dims.remove(first);
        dims.push(number);
        factor = Factor { tensor, dims };
    }
    let shape = factor.tensor.shape();
    let longer: Vec<usize> = (0..shape.len()).filter(|i| shape[*i] == extents[factor.dims[*i]]).collect();
    let kept: Vec<usize> = longer.iter().map(|i| shape[*i]).collect();
    Factor { tensor: read_as(factor.tensor, &kept), dims: longer.iter().map(|i| factor.dims[*i]).collect() }
}

/// Two places of one number, if there are.
fn twice(dims: &[usize]) -> Option<(usize, usize)> {
    (0..dims.len()).find_map(|i| (i + 1..dims.len()).find(|j| dims[i] == dims[*j]).map(|j| (i, j)))
}

/// Whether a dimension is in the result or in a factor that is not among `members`.
fn is_needed(number: usize, members: &[usize], factors: &[Vec<usize>], sum: &Sum) -> bool {
    let outside = |(i, dims): (usize, &Vec<usize>)| !members.contains(&i) && dims.contains(&number);
    sum.out.contains(&number) || factors.iter().enumerate().any(outside)
}

/// The dimensions of the product of `members`.
fn dims_of(members: &[usize], factors: &[Vec<usize>], sum: &Sum) -> Vec<usize> {
    let all = (0..sum.extents.len()).filter(|number| members.iter().any(|i| factors[*i].contains(number)));
    match members {
        [one] => factors[*one].clone(),
        _ => all.filter(|number| is_needed(*number, members, factors, sum)).collect(),
    }
}

/// The multiplications of a product of tensors of these dimensions.
fn cost(a: &[usize], b: &[usize], extents: &[usize]) -> f64 {
    let all = a.iter().chain(b.iter().filter(|number| !a.contains(number)));
    all.map(|number| extents[*number] as f64).product()
}

/// Of at most eight factors the order with the fewest multiplications, by dynamic programming over their subsets; of
/// more the cheapest pair first.
fn order_of(factors: &[Vec<usize>], sum: &Sum) -> Order {
    let count = factors.len();
    if count > 8 {
        let mut orders: Vec<Order> = (0..count).map(Order::One).collect();
        while orders.len() > 1 {
            let dims: Vec<Vec<usize>> = orders.iter().map(|order| dims_of(&order.members(), factors, sum)).collect();
            let pairs = (0..orders.len()).flat_map(|j| (0..j).map(move |i| (i, j)));
            let of = |(i, j): &(usize, usize)| cost(&dims[*i], &dims[*j], &sum.extents);
            let (i, j) = pairs.min_by(|a, b| of(a).total_cmp(&of(b))).unwrap_or((0, 1));
            let second = orders.remove(j);
            let first = orders.remove(i);
            orders.push(Order::of(first, second));
        }
        return orders.remove(0);
    }
    let members = |set: usize| -> Vec<usize> { (0..count).filter(|i| set >> i & 1 == 1).collect() };
    let dims: Vec<Vec<usize>> = (0..1usize << count).map(|set| dims_of(&members(set), factors, sum)).collect();
    let mut best: Vec<Option<(f64, Order)>> = vec![None; 1 << count];
    for set in 1..1usize << count {
        if set.is_power_of_two() {
            best[set] = Some((0.0, Order::One(set.trailing_zeros() as usize)));
            continue;
        }
        // Each division into two once: the first part has the first factor. The order of writing wins a tie.
        let mut part = (set - 1) & set;
        while part > 0 {
            let rest = set & !part;
            let has_first = part & set & set.wrapping_neg() != 0;
            let better = match (&best[part], &best[rest]) {
                (Some((a, first)), Some((b, second))) if has_first => {
                    let total = a + b + cost(&dims[part], &dims[rest], &sum.extents);
                    let known = best[set].as_ref().map_or(f64::INFINITY, |(known, _)| *known);
                    let order = || Order::of(first.clone(), second.clone());
                    (best[set].is_none() || total < known).then(|| (total, order()))
                }
                _ => None,
            };
            if better.is_some() {
                best[set] = better;
            }
            part = (part - 1) & set;
        }
    }
    best.pop().flatten().map_or(Order::One(0), |(_, order)| order)
}

/// The product of factors in an order, of which what neither the result nor another factor has is summed.
#[track_caller]
fn product_of(order: &Order, factors: &[Factor], sum: &Sum) -> Factor {
    let (first, second) = match order {
        Order::One(factor) => return factors[*factor].clone(),
        Order::Product(first, second) => (product_of(first, factors, sum), product_of(second, factors, sum)),
    };
    let dims: Vec<Vec<usize>> = factors.iter().map(|factor| factor.dims.clone()).collect();
    let kept = {
        let members = order.members();
        move |number: &usize| is_needed(*number, &members, &dims, sum)
    };
    let of = |factor: Factor, other: &[usize]| {
        let wanted: Vec<usize> = factor.dims.iter().copied().filter(|n| kept(n) || other.contains(n)).collect();
        only(factor, &wanted, true)
    };
    let (first, second) = (of(first.clone(), &second.dims), of(second, &first.dims));
    let shared: Vec<usize> = first.dims.iter().copied().filter(|number| second.dims.contains(number)).collect();
    let (batch, inner): (Vec<usize>, Vec<usize>) = shared.into_iter().partition(&kept);
    let free = |factor: &Factor, other: &Factor| -> Vec<usize> {
        factor.dims.iter().copied().filter(|number| !other.dims.contains(number)).collect()
    };
    let (rows, columns) = (free(&first, &second), free(&second, &first));
    let dims = [&batch[..], &rows, &columns].concat();
    if inner.is_empty() || (rows.is_empty() && columns.is_empty()) {
        // Elementwise, and summed.
        let all = [&dims[..], &inner].concat();
        let dtype = first.tensor.dtype();
        let wide = |tensor: Tensor| if inner.is_empty() { tensor } else { accumulating(tensor) };
        let [a, b] = [&first, &second].map(|factor| spread_over(wide(factor.tensor), &factor.dims, &all, sum));
        let tensor = if dtype == DType::Bool { prims::logical_and(a, b) } else { parts::mul(a.into(), b.into()) };
        let terms = Factor { tensor, dims: all };
        let Factor { tensor, dims } = only(terms, &dims, true);
        return Factor { tensor: cast(tensor, dtype), dims };
    }
    let count = |dims: &[usize]| dims.iter().map(|number| sum.extents[*number]).product::<usize>();
    let as_lists = |factor: &Factor, groups: [&[usize]; 3]| {
        let order: Vec<usize> =
            groups.concat().iter().filter_map(|number| factor.dims.iter().position(|own| own == number)).collect();
        let lists = groups.map(count);
        read_as(arranged(factor.tensor, &order), if batch.is_empty() { &lists[1..] } else { &lists })
    };
    let product = matmul(as_lists(&first, [&batch, &rows, &inner]), as_lists(&second, [&batch, &inner, &columns]));
    let shape: Vec<usize> = dims.iter().map(|number| sum.extents[*number]).collect();
    Factor { tensor: read_as(product, &shape), dims }
}

/// The sum over all dimensions but those wanted, in the element type of the factor or, of integers, in i64.
#[track_caller]
fn only(factor: Factor, wanted: &[usize], keeps_type: bool) -> Factor {
    let dims: Vec<usize> = (0..factor.dims.len()).filter(|i| !wanted.contains(&factor.dims[*i])).collect();
    if dims.is_empty() {
        return factor;
    }
    let dtype = factor.tensor.dtype();
    let numbers = if dtype == DType::Bool { cast(factor.tensor, DType::I64) } else { accumulating(factor.tensor) };
    let total = parts::sum(numbers, dims);
    let tensor = if keeps_type || dtype.is_differentiable() { cast(total, dtype) } else { total };
    Factor { tensor, dims: factor.dims.iter().copied().filter(|number| wanted.contains(number)).collect() }
}

/// A factor's elements repeated over the dimensions `all`, which contain its own.
#[track_caller]
fn spread_over(tensor: Tensor, dims: &[usize], all: &[usize], sum: &Sum) -> Tensor {
    let order: Vec<usize> = all.iter().filter_map(|number| dims.iter().position(|own| own == number)).collect();
    let places: Vec<usize> = (0..all.len()).filter(|i| dims.contains(&all[*i])).collect();
    let tensor = arranged(tensor, &order);
    if places.len() == all.len() {
        return tensor;
    }
    let shape: Vec<usize> = all.iter().map(|number| sum.extents[*number]).collect();
    parts::broadcast_in_dim(tensor, shape, places)
}

/// For references: the sum over all indices, one by one.
fn summed<T: Copy + AddAssign + Product + Total>(equation: &str, operands: &[ArrayD<T>]) -> ArrayD<T> {
    let text: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = text.split_once("->").map_or((&*text, None), |(left, right)| (left, Some(right)));
    let terms: Vec<&str> = left.split(',').collect();
    let dots_of = |i: usize| operands[i].shape().len() - terms[i].replace("...", "").len();
    let dots = (0..terms.len()).filter(|i| terms[*i].contains("...")).map(dots_of).max().unwrap_or(0);
    // Digits stand for the dimensions of the ellipsis, the last of which an operand has.
    let digits = |count: usize| (dots - count..dots).map(|i| char::from(b'0' + i as u8)).collect::<String>();
    let terms: Vec<String> = terms
        .iter()
        .enumerate()
        .map(|(i, term)| if term.contains("...") { term.replace("...", &digits(dots_of(i))) } else { (*term).into() })
        .collect();
    let joined = terms.concat();
    let mut all: Vec<char> = joined.chars().collect();
    all.sort_unstable();
    let once = |c: &char| c.is_ascii_digit() || joined.matches(*c).count() == 1;
    let implied = || {
        let mut names = all.clone();
        names.dedup();
        names.into_iter().filter(once).collect::<String>()
    };
    let out = right.map_or_else(implied, |right| right.replace("...", &digits(dots)));
    all.dedup();
    let extent = |name: &char| {
        let places = terms.iter().zip(operands).flat_map(|(term, operand)| term.chars().zip(operand.shape()));
        places.filter(|(own, _)| own == name).map(|(_, extent)| *extent).find(|extent| *extent != 1).unwrap_or(1)
    };
    let extents: Vec<usize> = all.iter().map(extent).collect();
    let of_name = |name: char| all.iter().position(|own| *own == name).unwrap_or(0);
    let shape: Vec<usize> = out.chars().map(|name| extents[of_name(name)]).collect();
    let mut totals: ArrayD<T> = ArrayD::from_elem(shape.clone(), std::iter::empty().sum());
    for flat in 0..extents.iter().product::<usize>() {
        let mut rest = flat;
        let mut at = vec![0; extents.len()];
        for (place, extent) in at.iter_mut().zip(&extents).rev() {
            (*place, rest) = (rest % extent, rest / extent);
        }
        let index = |names: &str, shape: &[usize]| -> Vec<usize> {
            names.chars().zip(shape).map(|(name, extent)| if *extent == 1 { 0 } else { at[of_name(name)] }).collect()
        };
        let term: T = terms
            .iter()
            .zip(operands)
            .map(|(names, operand)| operand[index(names, operand.shape()).as_slice()])
            .product();
        totals[index(&out, &shape).as_slice()] += term;
    }
    array(&shape, totals.into_iter().collect())
}
