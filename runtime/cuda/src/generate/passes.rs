//! The division of a program with reductions into passes over a row, and what is kept from one pass to the next.

use fulgurite_kernels::fused::values::{Kind, Space};

use super::region::Region;

/// How much more a function like `exp` costs than an addition.
const EXPENSIVE: usize = 8;
/// What keeping four bytes an element is worth, in additions.
const WORD: usize = 4;

/// Passes over a row: one for each reduction that others wait for, and one for the outputs if they wait for the last.
#[derive(Debug, Clone)]
pub(super) struct Passes {
    pub(super) list: Vec<Pass>,
    /// Values per element that stay in registers from the pass that computes or loads them on.
    pub(super) kept: Vec<bool>,
    /// Most 4-byte words an element that are kept from any pass to the next.
    pub(super) words: usize,
    /// Most 4-byte words an element that are there during any pass, with what is loaded for it alone.
    pub(super) peak: usize,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Pass {
    /// The reductions of this pass.
    pub(super) reductions: Vec<usize>,
    /// Values per element that are computed or loaded, in order.
    pub(super) computed: Vec<usize>,
    /// Values per element that an earlier pass has kept.
    pub(super) reused: Vec<usize>,
}

impl Passes {
    /// All passes. With `keep_values`, not only inputs but computed values may be kept.
    pub(super) fn new(region: &Region, keep_values: bool) -> Passes {
        let roots = roots(region);
        let mut kept: Vec<bool> = (0..region.used.len()).map(|value| is_kept_input(region, value)).collect();
        let (mut best, mut score) = Passes::with(region, &roots, &kept);
        if keep_values {
            for value in 0..region.used.len() {
                let repeats = best.list.iter().filter(|pass| pass.computed.contains(&value)).count() > 1;
                if !repeats || !is_computed(region, value) {
                    continue;
                }
                kept[value] = true;
                let (candidate, candidate_score) = Passes::with(region, &roots, &kept);
                if candidate_score < score {
                    (best, score) = (candidate, candidate_score);
                } else {
                    kept[value] = false;
                }
            }
        }
        best
    }

    fn with(region: &Region, roots: &[Roots], kept: &[bool]) -> (Passes, usize) {
        let mut available = vec![false; region.used.len()];
        let mut list = Vec::new();
        for roots in roots {
            let mut wanted = vec![false; region.used.len()];
            roots.full.iter().for_each(|&root| wanted[root] = true);
            for value in (0..wanted.len()).rev() {
                if wanted[value] && !available[value] {
                    for operand in region.values.list[value].operands() {
                        wanted[operand] |= region.space(operand) == Space::Full;
                    }
                }
            }
            let of = |reused: bool| (0..wanted.len()).filter(|&v| wanted[v] && available[v] == reused).collect();
            let pass = Pass { reductions: roots.reductions.clone(), computed: of(false), reused: of(true) };
            pass.computed.iter().for_each(|&value| available[value] |= kept[value]);
            list.push(pass);
        }
        // Between the passes before and from `boundary`; nothing is kept before the first.
        let held_at = |boundary: usize| -> usize {
            let later = |value: usize| list[boundary..].iter().any(|pass: &Pass| pass.reused.contains(&value));
            let earlier = |value: usize| list[..boundary].iter().any(|pass| pass.computed.contains(&value));
            let held = (0..kept.len()).filter(|&value| kept[value] && earlier(value) && later(value));
            held.map(|value| region.class(value).size().div_ceil(4)).sum()
        };
        let fresh = |pass: &Pass| -> usize {
            let loaded = pass.computed.iter().filter_map(|&value| region.input_of(value));
            let loaded = loaded.filter(|&input| !region.inputs[input].counted);
            loaded.map(|input| region.inputs[input].dtype.size()).sum::<usize>().div_ceil(4)
        };
        let words = (0..list.len()).map(held_at).max().unwrap_or(0);
        let peak = (list.iter().enumerate())
            .map(|(number, pass)| held_at(number).max(held_at(number + 1)) + fresh(pass))
            .max()
            .unwrap_or(0);
        let cost = |value: &usize| if region.values.list[*value].is_expensive() { EXPENSIVE } else { 1 };
        let work: usize = list.iter().flat_map(|pass| &pass.computed).map(cost).sum();
        let score = WORD * words + work;
        (Passes { list, kept: kept.to_vec(), words, peak }, score)
    }

    /// Whether a pass after `pass` reads what it has kept of `value`.
    pub(super) fn is_reused_after(&self, pass: usize, value: usize) -> bool {
        self.list[pass + 1..].iter().any(|pass| pass.reused.contains(&value))
    }
}

/// What a pass is for.
#[derive(Debug, Default)]
struct Roots {
    reductions: Vec<usize>,
    /// The values that it must arrive at, per element.
    full: Vec<usize>,
}

fn roots(region: &Region) -> Vec<Roots> {
    let list = &region.values.list;
    let outputs: Vec<usize> = (0..region.outputs.len())
        .filter(|&output| !region.per_row[output])
        .map(|output| region.values.outputs[output] as usize)
        .collect();
    let reductions: Vec<(usize, usize)> = (0..list.len())
        .filter(|&value| region.used[value])
        .filter_map(|value| match list[value].kind {
            Kind::Reduce(_, operand) => Some((value, operand as usize)),
            _ => None,
        })
        .collect();
    let levels = outputs.iter().copied().chain(reductions.iter().map(|&(_, operand)| operand));
    let Some(last) = levels.map(|value| list[value].level).max() else { return Vec::new() };
    let mut roots: Vec<Roots> = (0..=last).map(|_| Roots::default()).collect();
    for (value, operand) in reductions {
        let roots = &mut roots[list[operand].level];
        roots.reductions.push(value);
        if list[operand].space == Space::Full {
            roots.full.push(operand);
        }
    }
    roots[last].full.extend(outputs.into_iter().filter(|&output| list[output].space == Space::Full));
    roots
}

/// An input of which each row has its own elements. One that all rows share comes from a cache each time, and what is
/// counted from nowhere.
fn is_kept_input(region: &Region, value: usize) -> bool {
    let of_rows = |input: usize| {
        let operand = &region.inputs[input];
        !operand.counted && (region.rows() == 1 || !operand.is_same_for_all_rows())
    };
    region.used[value] && region.space(value) == Space::Full && region.input_of(value).is_some_and(of_rows)
}

/// A value per element that has a definition of its own.
fn is_computed(region: &Region, value: usize) -> bool {
    let kind = region.values.list[value].kind;
    let renamed = matches!(kind, Kind::Cast(operand) if region.class(operand as usize) == region.class(value));
    region.space(value) == Space::Full && !renamed && !matches!(kind, Kind::Input(_) | Kind::Constant(_))
}
