//! From needs to floors and circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::graph::Needs;

/// Files that need one another, directly or by way of others. Most files are alone in theirs.
pub type Circle = Vec<PathBuf>;

/// The floors of a crate from the ground up: a file needs files of lower floors, and those of its own circle.
pub fn floors(needs: &Needs) -> Vec<Vec<Circle>> {
    let mut left = circles(needs);
    let mut below: BTreeSet<PathBuf> = BTreeSet::new();
    let mut floors = Vec::new();
    while !left.is_empty() {
        let rests_on = |circle: &Circle| {
            let mut others = circle.iter().flat_map(|file| needs[file].keys());
            others.all(|other| below.contains(other) || circle.contains(other))
        };
        let (floor, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(rests_on);
        assert!(!floor.is_empty(), "a circle is whole");
        below.extend(floor.iter().flatten().cloned());
        floors.push(floor);
        left = rest;
    }
    floors
}

/// Every file in exactly one circle.
pub fn circles(needs: &Needs) -> Vec<Circle> {
    let reach: BTreeMap<&Path, BTreeSet<&Path>> =
        needs.keys().map(|file| (file.as_path(), reached(needs, file))).collect();
    let each_other = |a: &Path, b: &Path| a == b || (reach[a].contains(b) && reach[b].contains(a));
    let mut circles: Vec<Circle> = Vec::new();
    for file in needs.keys() {
        match circles.iter_mut().find(|circle| each_other(&circle[0], file)) {
            Some(circle) => circle.push(file.clone()),
            None => circles.push(vec![file.clone()]),
        }
    }
    circles
}

fn reached<'a>(needs: &'a Needs, from: &'a Path) -> BTreeSet<&'a Path> {
    let mut seen = BTreeSet::new();
    let mut left = vec![from];
    while let Some(file) = left.pop() {
        for other in needs[file].keys() {
            if seen.insert(other.as_path()) {
                left.push(other);
            }
        }
    }
    seen
}
