//! Small crates that show what is a need and what is none.

use std::path::PathBuf;

use super::drawing;
use super::floors;
use super::graph::{Graph, Needs};

/// The needs of a crate of these files, by their paths below `src`.
fn needs(files: &[(&str, &str)]) -> Needs {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join("src").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    Graph::of_crate(folder.path()).needs()
}

/// Each need as `file -> other: names`.
fn arrows(files: &[(&str, &str)]) -> Vec<String> {
    let mut arrows = Vec::new();
    for (file, others) in needs(files) {
        for (other, names) in others {
            let names: Vec<String> = names.into_iter().collect();
            arrows.push(format!("{} -> {}: {}", file.display(), other.display(), names.join(", ")));
        }
    }
    arrows
}

#[test]
fn a_circle_is_found_by_way_of_a_third_file_and_drawn_with_its_names() {
    let needs = needs(&[
        ("lib.rs", "mod a; mod b; mod c; mod apart; pub fn main() { a::start(); }"),
        ("a.rs", "use crate::b::B; pub struct A; pub fn start() -> B { B }"),
        ("b.rs", "pub struct B; fn next() { super::c::next() }"),
        ("c.rs", "use super::a::A; pub fn next() { let _ = (A, crate::apart::LIMIT); }"),
        ("apart.rs", "pub const LIMIT: usize = 1;"),
    ]);
    assert_eq!(
        drawing::circles("small", &needs),
        "small: 3 files need each other\n    src/a.rs needs B of src/b.rs\n    src/b.rs needs next of src/c.rs\n    \
         src/c.rs needs A of src/a.rs\n"
    );
    assert_eq!(
        drawing::floors("small", &needs),
        "small: 5 files on 3 floors\n   2  lib.rs\n   1  (a.rs <-> b.rs <-> c.rs)\n   0  apart.rs\n"
    );
}

#[test]
fn floors_without_circles_are_drawn_from_the_top() {
    let needs = needs(&[
        ("lib.rs", "mod a; mod b; mod c; use a::A; fn f(_: A) {}"),
        ("a.rs", "use crate::{b::B, c::C}; pub struct A(B, C);"),
        ("b.rs", "use crate::c::C; pub struct B(C);"),
        ("c.rs", "pub struct C;"),
    ]);
    assert_eq!(drawing::circles("small", &needs), "");
    let floors: Vec<Vec<PathBuf>> = floors::floors(&needs).into_iter().map(|floor| floor.concat()).collect();
    assert_eq!(floors, [["c.rs"], ["b.rs"], ["a.rs"], ["lib.rs"]].map(|floor| floor.map(PathBuf::from)));
}

#[test]
fn a_re_export_is_followed_and_is_no_need_itself() {
    let files = [
        ("lib.rs", "mod user; mod types; pub use types::{Types as Renamed, deep::*};"),
        ("user.rs", "use crate::{Deep, Renamed}; fn f(_: Deep, _: Renamed) {}"),
        ("types/mod.rs", "pub mod deep; pub struct Types;"),
        ("types/deep.rs", "pub struct Deep;"),
    ];
    assert_eq!(arrows(&files), ["user.rs -> types/deep.rs: Deep", "user.rs -> types/mod.rs: Renamed"]);
}

#[test]
fn visibilities_and_tests_are_no_need() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub fn root() {}"),
        (
            "a.rs",
            "pub(super) fn shown() {} pub(in crate::b) struct Hidden; \
             #[cfg(test)] use crate::b::B; #[cfg(all(test, unix))] fn check(_: crate::b::B) {} \
             struct S; impl S { #[cfg(test)] fn check() { crate::b::f() } } \
             #[cfg(test)] mod tests { use crate::b::B; fn f(_: B) { crate::root() } }",
        ),
        ("b.rs", "pub struct B; pub fn f() {} #[cfg(not(test))] use crate::c::C; #[cfg(not(test))] type Own = C;"),
        ("c.rs", "pub struct C; #[cfg(test)] mod tests;"),
    ];
    assert_eq!(arrows(&files), ["b.rs -> c.rs: C"]);
}

#[test]
fn modules_are_found_below_a_file_inline_and_by_path() {
    let files = [
        ("lib.rs", "mod a; mod inline { pub mod inner; } #[path = \"elsewhere/named.rs\"] mod other;"),
        ("a.rs", "mod below; pub use below::Below;"),
        ("a/below.rs", "use crate::inline::inner::Inner; pub struct Below(Inner);"),
        ("inline/inner.rs", "pub struct Inner;"),
        ("elsewhere/named.rs", "mod beside; pub struct Named(crate::a::Below, beside::Beside);"),
        ("elsewhere/beside.rs", "pub struct Beside;"),
    ];
    assert_eq!(
        arrows(&files),
        [
            "a/below.rs -> inline/inner.rs: Inner",
            "elsewhere/named.rs -> a/below.rs: Below",
            "elsewhere/named.rs -> elsewhere/beside.rs: Beside",
        ]
    );
}

#[test]
fn a_module_and_a_function_of_one_name_are_two() {
    let both = ("lib.rs", "pub mod step; mod user; pub fn step() {}");
    let module = ("user.rs", "use crate::step; fn f() { step::take() }");
    let function = ("user.rs", "use crate::step; fn f() { step() }");
    let step = ("step.rs", "pub fn take() {}");
    assert_eq!(arrows(&[both, module, step]), ["user.rs -> step.rs: take"]);
    assert_eq!(arrows(&[both, function, step]), ["user.rs -> lib.rs: step"]);
}

#[test]
fn names_in_bodies_macros_attributes_and_by_globs_are_needs() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "pub fn f() {} pub struct Glob;"),
        ("b.rs", "pub fn g() { use crate::a::f; f() }"),
        ("c.rs", "use super::a::*; fn h() -> Glob { println!(\"{:?}\", (1, crate::b::g())); Glob }"),
        (
            "d.rs",
            "macro_rules! call { () => { $crate::b::g() }; } pub(crate) use call; #[arg(parser = crate::c::h)] fn \
             f() {}",
        ),
        ("e.rs", "fn f(x: Vec<crate::a::Glob>) { crate::d::call!() }"),
    ];
    assert_eq!(
        arrows(&files),
        [
            "b.rs -> a.rs: f",
            "c.rs -> a.rs: Glob",
            "c.rs -> b.rs: g",
            "d.rs -> b.rs: g",
            "d.rs -> c.rs: h",
            "e.rs -> a.rs: Glob",
            "e.rs -> d.rs: call",
        ]
    );
}

#[test]
fn items_that_macros_make_are_needs() {
    // By a name that the call passes, by one of the macro's own, and by an item in the call.
    for (made, called) in [
        ("macro_rules! make { ($name:ident) => { pub fn $name() { crate::b::g() } }; } make!(passed);", "passed"),
        ("macro_rules! make { () => { pub fn own() { crate::b::g() } }; } make!();", "own"),
        ("use elsewhere::each; each! { pub fn inner() { crate::b::g() } }", "inner"),
    ] {
        let user = format!("pub fn g() {{}} fn h() {{ crate::a::{called}() }}");
        let arrows = arrows(&[("lib.rs", "mod a; mod b;"), ("a.rs", made), ("b.rs", &user)]);
        assert_eq!(arrows, ["a.rs -> b.rs: g".to_owned(), format!("b.rs -> a.rs: {called}")], "{made}");
    }
    // What a macro is only told of elsewhere, and files that are not looked at.
    let files = [
        ("lib.rs", "mod a; mod b; fn f() { make!(told) }"),
        ("a.rs", "operator_files! { exp } pub fn g() { make!(told) }"),
        ("b.rs", "use crate::a::{exp, told}; fn h() { exp(told) }"),
    ];
    assert!(arrows(&files).is_empty(), "{:?}", arrows(&files));
}

#[test]
fn a_function_hides_no_module_of_its_name() {
    let files = [
        ("lib.rs", "mod text; mod user; mod both;"),
        ("text.rs", "use crate::user::text; pub fn other() { text() }"),
        ("user.rs", "use super::text; pub fn text() { text::other() }"),
        // Two imports of one name: a module and a function.
        ("both.rs", "use crate::text; use crate::user::text; fn f() { text(); text::other() }"),
    ];
    assert_eq!(
        arrows(&files),
        [
            "both.rs -> text.rs: other",
            "both.rs -> user.rs: text",
            "text.rs -> user.rs: text",
            "user.rs -> text.rs: other"
        ]
    );
}
