//! The list of mutants: all of them in the order of the sources, and random samples of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::find::{Mutant, find};
use crate::reach::reached;

/// Folders of operators, and of the kernels that run them on the host.
const FOLDERS: [&str; 5] = ["ops/src/prims", "ops/src/core", "ops/src/nn", "ops/src/optim", "executors/cpu/src"];

/// What may call a function of these folders.
const SOURCES: [&str; 2] = ["ops/src", "executors/cpu/src"];

/// Every mutant, numbered from 1 in the order of the sources.
pub fn all(root: &Path) -> Vec<Mutant> {
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in FOLDERS {
        let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        files.extend(entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "rs")));
    }
    files.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        (name, std::fs::read_to_string(path).unwrap_or_default())
    };
    let reached = reached(
        &SOURCES.iter().flat_map(|folder| below(&root.join(folder))).map(|path| read(&path)).collect::<Vec<_>>(),
    );
    let mut mutants = Vec::new();
    for (name, source) in files.iter().map(read) {
        let own = reached.iter().filter(|(file, _)| *file == name).map(|(_, function)| function.clone());
        mutants.extend(find(&name, &source, &own.collect()));
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (at, mutant) in mutants.iter_mut().enumerate() {
        mutant.id = at + 1;
        let known = seen.entry(mutant.key()).or_default();
        *known += 1;
        mutant.ordinal = *known;
    }
    mutants
}

/// The sources below a folder.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(below(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}

/// `count` of the items, each with the same probability and spread evenly over their files: the items of a file are
/// shuffled, then every n-th of all is taken from a random start. The sample is in random order, so that the first part
/// of it is a sample as well.
pub fn sample<T>(items: Vec<T>, file: impl Fn(&T) -> String, count: usize, seed: u64) -> Vec<T> {
    let mut random = Random(seed);
    let mut keyed: Vec<(String, u64, T)> = items.into_iter().map(|item| (file(&item), random.next(), item)).collect();
    keyed.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let (all, count) = (keyed.len(), count.min(keyed.len()));
    let step = all as f64 / count.max(1) as f64;
    let start = random.next() as f64 / u64::MAX as f64 * step;
    let mut wanted = (0..count).map(|i| ((start + i as f64 * step) as usize).min(all - 1)).peekable();
    let mut taken = Vec::new();
    for (at, (_, _, item)) in keyed.into_iter().enumerate() {
        if wanted.next_if_eq(&at).is_some() {
            taken.push((random.next(), item));
        }
    }
    taken.sort_by_key(|(order, _)| *order);
    taken.into_iter().map(|(_, item)| item).collect()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::sample;

    #[test]
    fn samples_are_spread_over_files_and_depend_on_the_seed_alone() {
        let items: Vec<usize> = (0..1000).collect();
        let file = |item: &usize| format!("{}.rs", item / 100);
        let drawn = sample(items.clone(), file, 100, 7);
        assert_eq!(drawn.len(), 100);
        for of in 0..10 {
            let own = drawn.iter().filter(|item| *item / 100 == of).count();
            assert!((9..=11).contains(&own), "{own} of file {of}");
        }
        assert_eq!(drawn, sample(items.clone(), file, 100, 7));
        assert_ne!(drawn, sample(items.clone(), file, 100, 8));
        let mut everything = sample(items.clone(), file, 5000, 1);
        everything.sort_unstable();
        assert_eq!(everything, items);
    }
}
