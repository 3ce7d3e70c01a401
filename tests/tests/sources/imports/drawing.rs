//! Floors and circles as text.

use std::path::Path;

use super::floors::{self, Circle};
use super::graph::Needs;

/// What to do about a circle.
pub const ADVICE: &str = "\
Move what both files need to a file below them (types and errors at the bottom), or what needs both to a file above them
(drivers on top); see \"Floors\" in CONTRIBUTING.md.
";

/// Columns of a line.
const WIDTH: usize = 120;

/// The floors of a crate, the highest first, each with its files.
pub fn floors(name: &str, needs: &Needs) -> String {
    let floors = floors::floors(needs);
    let mut text = format!("{name}: {} files on {} floors\n", needs.len(), floors.len());
    for (number, floor) in floors.iter().enumerate().rev() {
        let mut line = format!("{number:4} ");
        for word in floor.iter().map(in_words) {
            if line.len() + 1 + word.len() > WIDTH {
                text += &format!("{line}\n");
                line = " ".repeat(5);
            }
            line += &format!(" {word}");
        }
        text += &format!("{line}\n");
    }
    text
}

fn in_words(circle: &Circle) -> String {
    let files: Vec<String> = circle.iter().map(|file| file.display().to_string()).collect();
    match &files[..] {
        [one] => one.clone(),
        several => format!("({})", several.join(" <-> ")),
    }
}

/// Every circle of several files with the names that make it; empty if there is none.
pub fn circles(name: &str, needs: &Needs) -> String {
    let mut text = String::new();
    for circle in floors::circles(needs).iter().filter(|circle| circle.len() > 1) {
        text += &format!("{name}: {} files need each other\n", circle.len());
        for file in circle {
            for (other, names) in needs[file].iter().filter(|(other, _)| circle.contains(other)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                text += &format!("    {} needs {} of {}\n", shown(file), names.join(", "), shown(other));
            }
        }
    }
    text
}

fn shown(file: &Path) -> String {
    format!("src/{}", file.display())
}
