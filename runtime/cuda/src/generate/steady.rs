//! Comparisons of columns that are counted, which have one result for all columns of most vectors: those of a mask that
//! ends somewhere, or of the one column that a row has chosen. A vector is asked once, and its elements are computed
//! without the comparison where the result is the usual one.

use fulgurite_kernels::fused::values::{Kind, Space};
use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::tile::Class;

use super::region::Region;

/// A comparison with a usual result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Steady {
    /// The result, as a value of the region.
    pub(super) value: usize,
    pub(super) usual: bool,
    /// In C++: whether the result is the usual one in all of the vector that starts at `column`.
    pub(super) condition: String,
}

/// The comparisons among `values` that have a usual result in vectors of `vector` columns.
pub(super) fn steady(region: &Region, values: &[usize], vector: usize) -> Vec<Steady> {
    if vector == 1 {
        return Vec::new();
    }
    values.iter().filter_map(|&value| of(region, value, vector)).collect()
}

fn of(region: &Region, value: usize, vector: usize) -> Option<Steady> {
    use ScalarOp::*;
    let Kind::Binary(op, x, y) = region.values.list[value].kind else { return None };
    let is_column = |value: u32| {
        region.input_of(value as usize).is_some_and(|input| region.inputs[input].counted)
            && region.space(value as usize) == Space::Full
    };
    let (op, other) = match (is_column(x), is_column(y)) {
        (true, false) => (op, y as usize),
        (false, true) => (mirrored(op), x as usize),
        _ => return None,
    };
    if region.class(other) != Class::I64 || region.space(other) == Space::Full {
        return None;
    }
    let name = &region.names[other];
    // The first column that is not below the number.
    let bound = |number: f64, more: i64| (number as i64).saturating_add(more).clamp(0, region.width as i64);
    match (op, region.values.list[other].kind) {
        (Eq | Ne, _) => {
            // Where the number is a column of the vector, it is less than a vector's length behind the first one.
            let condition = format!("(unsigned long long){name} - (unsigned long long)column >= {vector}ull");
            Some(Steady { value, usual: op == Ne, condition })
        }
        (Lt, Kind::Constant(number)) => Some(below(region, value, vector, bound(number, 0), true)),
        (Le, Kind::Constant(number)) => Some(below(region, value, vector, bound(number, 1), true)),
        (Gt, Kind::Constant(number)) => Some(below(region, value, vector, bound(number, 1), false)),
        (Ge, Kind::Constant(number)) => Some(below(region, value, vector, bound(number, 0), false)),
        _ => None,
    }
}

/// Whether columns are below `bound`, or, with `result` false, whether they are not.
fn below(region: &Region, value: usize, vector: usize, bound: i64, result: bool) -> Steady {
    match 2 * bound > region.width as i64 {
        true => Steady { value, usual: result, condition: format!("column <= {}", bound - vector as i64) },
        false => Steady { value, usual: !result, condition: format!("column >= {bound}") },
    }
}

/// The comparison with its operands exchanged.
fn mirrored(op: ScalarOp) -> ScalarOp {
    match op {
        ScalarOp::Lt => ScalarOp::Gt,
        ScalarOp::Le => ScalarOp::Ge,
        ScalarOp::Gt => ScalarOp::Lt,
        ScalarOp::Ge => ScalarOp::Le,
        _ => op,
    }
}
