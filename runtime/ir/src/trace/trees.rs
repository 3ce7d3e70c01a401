//! Inputs below one name, such as the parameters of a model: texts write `params.*` for all of them.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::implied::MAX_RELATIVE;
use super::word::word_length;

/// Trees of fewer inputs are written one by one.
const FEWEST: usize = 3;
/// How many of a name's dots begin a tree, so that long names cost little.
const DEEPEST: usize = 16;

/// A text names no more values than this by what stands for several, so that a short text is no large program.
const MOST: usize = 1 << 20;

/// A line that is written once for several inputs is read again for each: one of this many bytes counts as one name
/// more.
pub(super) const LINE_BYTES: usize = 256;

/// The inputs of a program, by what they are below, and how many names its text leaves to what stands for several.
#[derive(Default)]
pub(super) struct Trees {
    told: Cell<usize>,
    /// Whether nothing stands for several.
    apart: bool,
    names: Vec<Arc<str>>,
    /// The input of this name.
    inputs: FxHashMap<Arc<str>, usize>,
    /// The first and the last input below a name, and how many there are.
    below: FxHashMap<Box<str>, (usize, usize, usize)>,
}

impl Trees {
    /// The inputs of these names.
    pub(super) fn of<'a>(names: impl IntoIterator<Item = &'a Arc<str>>) -> Trees {
        let mut trees = Trees::default();
        names.into_iter().for_each(|name| trees.add(name));
        trees
    }

    /// For a text in which nothing stands for several names.
    pub(super) fn apart() -> Trees {
        Trees { apart: true, ..Trees::default() }
    }

    /// Whether nothing stands for several names.
    pub(super) fn are_apart(&self) -> bool {
        self.apart
    }

    /// Counts names that something else stands for.
    pub(super) fn tell(&self, names: usize) {
        self.told.set(self.told.get().saturating_add(names));
    }

    /// Whether something stands for more names than a text may have. Printing may count a name more often than parsing.
    pub(super) fn told_too_many(&self) -> bool {
        self.told.get() > MOST
    }

    /// Adds an input.
    pub(super) fn add(&mut self, name: &Arc<str>) {
        let at = self.names.len();
        self.names.push(name.clone());
        if name.len() > MAX_RELATIVE || word_length(name) < name.len() {
            return;
        }
        self.inputs.insert(name.clone(), at);
        for (dot, _) in name.match_indices('.').take(DEEPEST) {
            let (_, last, count) = self.below.entry(name[..dot].into()).or_insert((at, at, 0));
            *last = at;
            *count += 1;
        }
    }

    /// The inputs below `root`, if they follow one another.
    fn below(&self, root: &str) -> Option<Range<usize>> {
        let (first, last, count) = *self.below.get(root)?;
        (last - first + 1 == count).then_some(first..last + 1)
    }

    /// The names below `root` of the inputs that are there, in order.
    pub(super) fn rests(&self, root: &str) -> Option<(Range<usize>, impl Iterator<Item = &str> + '_)> {
        let range = self.below(root)?;
        let behind = root.len() + 1;
        Some((range.clone(), self.names[range].iter().map(move |name| &name[behind..])))
    }

    /// What `pattern.*` stands for: what is before the name that inputs are below, and the inputs.
    fn find(&self, pattern: &str) -> Option<(usize, Range<usize>)> {
        if pattern.len() > MAX_RELATIVE {
            return None;
        }
        starts(pattern).find_map(|start| Some((start, self.below(&pattern[start..])?)))
    }

    /// The names that `pattern.*` stands for: `grad.params.*` is `grad.params.w` for each input like `params.w`.
    pub(super) fn names(&self, pattern: &str) -> Option<Vec<String>> {
        let (start, inputs) = self.find(pattern)?;
        Some(self.names[inputs].iter().map(|name| format!("{}{name}", &pattern[..start])).collect())
    }

    /// The pattern that stands for the first of `count` names and those behind it, and for how many; `name` says them.
    pub(super) fn pattern<'n>(&self, count: usize, name: impl Fn(usize) -> &'n str) -> Option<(&'n str, usize)> {
        self.pattern_where(count, name, |_, _| true)
    }

    /// As [`Trees::pattern`], of those patterns that it `takes`.
    pub(super) fn pattern_where<'n>(
        &self,
        count: usize,
        name: impl Fn(usize) -> &'n str,
        mut takes: impl FnMut(&'n str, usize) -> bool,
    ) -> Option<(&'n str, usize)> {
        if count < FEWEST || self.names.is_empty() {
            return None;
        }
        let first = Some(name(0)).filter(|first| first.len() <= MAX_RELATIVE)?;
        for start in starts(first) {
            let (before, input) = first.split_at(start);
            let Some(at) = self.inputs.get(input) else { continue };
            for (dot, _) in input.match_indices('.').take(DEEPEST) {
                let pattern = &first[..start + dot];
                let Some((found, range)) = self.find(pattern) else { continue };
                let length = range.len();
                let same = |(i, input): (usize, &Arc<str>)| name(i).strip_prefix(before) == Some(&**input);
                let fits = found == start && range.start == *at && (FEWEST..=count).contains(&length);
                let fits = fits && word_length(pattern) == pattern.len();
                if fits && self.names[range].iter().enumerate().all(same) && takes(pattern, length) {
                    return Some((pattern, length));
                }
            }
        }
        None
    }

    /// The names that trees have that begin with the input `first`, and the inputs that are below them.
    pub(super) fn beginning<'n>(&self, first: &'n str) -> impl Iterator<Item = (&'n str, &[Arc<str>])> {
        let at = self.inputs.get(first);
        first.match_indices('.').take(DEEPEST).filter_map(move |(dot, _)| {
            let root = &first[..dot];
            let range = self.below(root).filter(|range| Some(&range.start) == at && range.len() >= FEWEST)?;
            Some((root, &self.names[range]))
        })
    }

    /// Of `names`, which are in any order, those that a pattern stands for, as their places in its order.
    pub(super) fn scattered<'n>(&self, names: &[&'n str]) -> Vec<(&'n str, Vec<usize>)> {
        let place = |name: &'n str| {
            let start = starts(name).take(DEEPEST).find(|start| self.inputs.contains_key(&name[*start..]))?;
            Some((&name[..start], self.inputs[&name[start..]]))
        };
        let mut placed: Vec<(&str, usize, usize)> = names
            .iter()
            .enumerate()
            .filter(|(_, name)| name.len() <= MAX_RELATIVE)
            .filter_map(|(i, name)| place(name).map(|(before, input)| (before, input, i)))
            .collect();
        placed.sort_unstable();
        let sorted: Vec<&str> = placed.iter().map(|(_, _, i)| names[*i]).collect();
        let mut found = Vec::new();
        let mut at = 0;
        while at < sorted.len() {
            match self.pattern(sorted.len() - at, |i| sorted[at + i]) {
                Some((pattern, count)) => {
                    found.push((pattern, placed[at..at + count].iter().map(|(_, _, i)| *i).collect()));
                    at += count;
                }
                None => at += 1,
            }
        }
        found
    }

    /// The trees that others may be like.
    pub(super) fn models(&self) -> Models<'_> {
        let mut above: FxHashMap<&str, Vec<&str>> = FxHashMap::default();
        for name in self.names.iter().filter(|name| self.inputs.contains_key(*name)) {
            for (root, inputs) in self.beginning(name) {
                above.entry(&inputs[0][root.len() + 1..]).or_default().push(root);
            }
        }
        Models { trees: self, above }
    }
}

/// The trees of a program by what is left of their first inputs below their names.
pub(super) struct Models<'t> {
    trees: &'t Trees,
    above: FxHashMap<&'t str, Vec<&'t str>>,
}

impl<'t> Models<'t> {
    /// The tree like which the inputs from `at` on are, the name that they are below, and how many they are; `same`
    /// says whether two inputs are alike but for their names.
    pub(super) fn alike(&self, at: usize, same: impl Fn(usize, usize) -> bool) -> Option<(&'t str, &'t str, usize)> {
        let trees = self.trees;
        for (root, inputs) in trees.beginning(trees.names.get(at)?) {
            // The first tree above that begins with an input of the same name.
            for model in self.above.get(&inputs[0][root.len() + 1..]).into_iter().flatten() {
                let Some((like, rests)) = trees.rests(model) else { continue };
                if like.start >= at {
                    break;
                }
                let alike = like.end <= at
                    && like.len() == inputs.len()
                    && rests.eq(trees.rests(root)?.1)
                    && like.clone().zip(at..).all(|(a, b)| same(a, b));
                if alike {
                    return Some((root, model, inputs.len()));
                }
            }
        }
        None
    }
}

/// Where the parts of a name begin that are names of values: at its begin, and behind each dot.
fn starts(name: &str) -> impl Iterator<Item = usize> + '_ {
    std::iter::once(0).chain(name.match_indices('.').map(|(dot, _)| dot + 1))
}

/// The name that counts on behind `name`: `mul`, `mul.1`, `mul.2`. None behind the last counter.
pub(super) fn next_name(name: &str) -> Option<String> {
    let (base, count) = counted(name);
    count.checked_add(1).map(|count| format!("{base}.{count}"))
}

/// A name without its counter, and the counter; 0 if it has none.
pub(super) fn counted(name: &str) -> (&str, u32) {
    let split = name.rsplit_once('.').and_then(|(base, count)| {
        let plain = count.bytes().all(|byte| byte.is_ascii_digit()) && !count.starts_with('0');
        Some((base, count.parse().ok().filter(|_| plain)?))
    });
    split.unwrap_or((name, 0))
}
