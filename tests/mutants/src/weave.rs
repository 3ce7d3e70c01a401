//! Writes many mutants into one source, each behind a switch that is read when the program runs.

use std::ops::Range;

use crate::find::Mutant;

/// A source with its mutants in it, and where each one's replacement is.
pub struct Woven {
    pub text: String,
    /// Numbers of mutants, the bytes of their replacements, and of the whole expression around them.
    pub places: Vec<(usize, Range<usize>, Range<usize>)>,
}

/// `(if !crate::mutant(7) { if !crate::mutant(8) { ORIGINAL } else { SECOND } } else { FIRST })` of the mutants of an
/// expression; those inside an original are written inside it. Each replacement meets the original alone, which comes
/// first: it decides about the type, so that the compiler names the replacement that has another one.
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
        woven.text.push('(');
        for mutant in &rest[..same] {
            woven.text.push_str(&format!("if !crate::mutant({}) {{ ", mutant.id));
        }
        write(source, own.clone(), &rest[same..same + inside], woven);
        let first_place = woven.places.len();
        for mutant in rest[..same].iter().rev() {
            woven.text.push_str(" } else { ");
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
        let nested = "fn f() { (if !crate::mutant(1) { a + (if !crate::mutant(2) { if !crate::mutant(3) { b * ";
        assert!(woven.text.starts_with(nested), "{}", woven.text);
        assert!(syn::parse_file(&woven.text).is_ok(), "{}", woven.text);
        for (id, replacement, whole) in &woven.places {
            let mutant = &mutants[id - 1];
            assert_eq!(woven.text[replacement.clone()], mutant.replacement);
            assert!(woven.text[whole.clone()].starts_with("(if !crate::mutant("));
        }
    }

    /// Of three branches the compiler takes the type of the first two for what the third must have. So each
    /// replacement is beside an original, and none beside another replacement.
    #[test]
    fn no_replacement_decides_about_the_type_of_another() {
        struct Branches(usize);
        impl<'ast> syn::visit::Visit<'ast> for Branches {
            fn visit_expr_if(&mut self, node: &'ast syn::ExprIf) {
                let other = node.else_branch.as_ref().map(|(_, other)| &**other);
                assert!(!matches!(other, Some(syn::Expr::If(_))), "a chain of branches");
                self.0 += 1;
                syn::visit::visit_expr_if(self, node);
            }
        }
        let source = "fn f() { a * b }";
        let mut mutants = find("a.rs", source, &Default::default());
        mutants.iter_mut().enumerate().for_each(|(at, mutant)| mutant.id = at + 1);
        let woven = weave(source, &mutants);
        let mut branches = Branches(0);
        syn::visit::Visit::visit_file(&mut branches, &syn::parse_file(&woven.text).unwrap());
        assert_eq!(branches.0, mutants.len());
        assert_eq!(mutants.len(), 2);
    }
}
