//! What a region must be so that its executor computes what the operators in it say. The kernels read a `reshape` as
//! nothing and a `broadcast_in_dim` as a row's value for each of its elements, which is right in the regions that
//! `fuse` makes: the same rules apply to regions of any other origin.

use fulgurite_runtime::rules::Claim;
use fulgurite_runtime::trace::{Block, print_symbol};

use crate::grouping::{Limits, Region, Space, is_row_shape, iteration_shape, kind_of};

/// Whether the executor of such regions computes one with this body as its operators say.
pub fn admits(body: &Block, limits: Limits) -> Claim {
    let executor = limits.executor;
    let Some(iteration) = iteration_shape(body) else { return Err("it is empty".into()) };
    if iteration.contains(&0) {
        return Err("it has no elements".into());
    }
    let mut region = Region::over(body, &iteration, limits);
    let seen = |shape: &[usize]| shape == iteration || is_row_shape(shape, &iteration);
    for parameter in &body.parameters {
        let meta = body.meta(*parameter);
        if !seen(meta.shape()) {
            let name = &body.value(*parameter).name;
            return Err(format!(
                "'{name}' is {meta}, the region is over {iteration:?} and reads its shape or rows of it"
            ));
        }
    }
    for symbol in &body.symbols {
        let line = || print_symbol(body, symbol);
        let Some(kind) = kind_of(body, symbol, executor).filter(|_| symbol.body.is_none()) else {
            return Err(format!("'{}' cannot be part of it", line()));
        };
        let Some(space) = region.admits(symbol, kind) else {
            return Err(format!("over {iteration:?}, '{}' is computed otherwise than it says", line()));
        };
        region.spaces.insert(symbol.results[0], space);
    }
    for result in &body.results {
        let meta = body.meta(*result);
        let space = region.spaces.get(result);
        if space.is_none() || !(space == Some(&Space::Column) || seen(meta.shape())) {
            let name = &body.value(*result).name;
            return Err(format!("it gives '{name}', {meta}, which no line over {iteration:?} or its rows computes"));
        }
        if body.results.iter().filter(|other| *other == result).count() > 1 {
            return Err(format!("it gives '{}' twice", body.value(*result).name));
        }
    }
    Ok(())
}
