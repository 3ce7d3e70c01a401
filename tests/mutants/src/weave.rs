//! Writes many mutants into one source, each behind a switch that is read when the program runs.

use std::ops::Range;

use crate::find::Mutant;

/// A source with its mutants in it, and where each one's replacement is.
pub struct Woven {
    pub text: String,
    /// Numbers of mutants, the bytes of their replacements, and of the whole expression around them.
    pub places: Vec<(usize, Range<usize>, Range<usize>)>,
}

/// `(if !(crate::mutant(7) || ...) { ORIGINAL } else { REPLACEMENT })` of the mutants of an expression; those inside
/// an original are written inside it. The original comes first: it decides about the type, so that the compiler names
/// the replacement that has another one.
pub fn weave(source: &str, mutants: &[Mutant]) -> Woven {
    let mut order: Vec<&Mutant> = mutants.iter().collect();
    // Outer expressions first, and several of one expression together.
    order.sort_by_key(|mutant| (mutant.range.start, std::cmp::Reverse(mutant.range.end), mutant.id));
    let mut woven = Woven { text: String::with_capacity(source.len() * 2), places: Vec::new() };
    write(source, 0..source.len(), &order, &mut woven);
    woven
}

fn write(source: &str, range: Range<usize>, mutants: &[&Mutant], woven: &mut Woven) {
    let mut at = range.start;
    let mut rest = mutants;
    while let Some(first) = rest.first() {
        let own = first.range.clone();
        let same = rest.iter().take_while(|mutant| mutant.range == own).count();
        let inside = rest[same..].iter().take_while(|mutant| mutant.range.start < own.end).count();
        woven.text.push_str(&source[at..own.start]);
        let whole = woven.text.len();
        let asked: Vec<String> = rest[..same].iter().map(|mutant| format!("crate::mutant({})", mutant.id)).collect();
        woven.text.push_str(&format!("(if !({}) {{ ", asked.join(" || ")));
        write(source, own.clone(), &rest[same..same + inside], woven);
        woven.text.push_str(" }");
        let first_place = woven.places.len();
        for (i, mutant) in rest[..same].iter().enumerate() {
            let is_last = i + 1 == same;
            woven.text.push_str(&if is_last { " else { ".to_owned() } else { format!(" else if {} {{ ", asked[i]) });
            let start = woven.text.len();
            woven.text.push_str(&mutant.replacement);
            woven.places.push((mutant.id, start..woven.text.len(), 0..0));
            woven.text.push_str(" }");
        }
        woven.text.push(')');
        let end = woven.text.len();
        woven.places[first_place..].iter_mut().for_each(|place| place.2 = whole..end);
        at = own.end;
        rest = &rest[same + inside..];
    }
    woven.text.push_str(&source[at..range.end]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::find;

    #[test]
    fn mutants_inside_mutants() {
        let source = "fn f() { a + b * 2 }";
        let mut mutants = find("a.rs", source, &Default::default());
        for (id, mutant) in mutants.iter_mut().enumerate() {
            mutant.id = id + 1;
        }
        let woven = weave(source, &mutants);
        assert!(
            woven
                .text
                .starts_with("fn f() { (if !(crate::mutant(1)) { a + (if !(crate::mutant(2) || crate::mutant(3)) {")
        );
        assert!(syn::parse_file(&woven.text).is_ok(), "{}", woven.text);
        for (id, replacement, whole) in &woven.places {
            let mutant = &mutants[id - 1];
            assert_eq!(woven.text[replacement.clone()], mutant.replacement);
            assert!(woven.text[whole.clone()].starts_with("(if !(crate::mutant("));
        }
    }
}
