//! Which mutants are found.

use std::collections::BTreeSet;

use super::{Mutant, find};

fn mutants(source: &str) -> Vec<Mutant> {
    find("a.rs", source, &BTreeSet::new())
}

fn changes(source: &str) -> Vec<String> {
    mutants(source).into_iter().map(|m| format!("{}: {} => {}", m.kind, m.original, m.replacement)).collect()
}

#[test]
fn helpers_of_references_are_changed_where_rules_reach_them() {
    let reached = BTreeSet::from(["one".to_owned()]);
    let helpers = "/// For references: a.\nfn one(x: i64) -> i64 { -x }\n/// For references: b.\nfn two(x: i64) { -x }";
    let file = "//! What references share.\nfn one(x: i64) -> i64 { -x }\nfn two(x: i64) -> i64 { -x }";
    for source in [helpers, file] {
        assert!(mutants(source).is_empty());
        let found = find("a.rs", source, &reached);
        assert_eq!(found.iter().map(|mutant| mutant.function.as_str()).collect::<Vec<_>>(), ["one"]);
    }
}

#[test]
fn mutants_of_families_have_the_names_of_operators() {
    let family =
        "binary! { add(Number), torch = \"add\", D; scalar |x, y| x + y; floats |a, b| a + b; grad |d| (d, -d);
                  exp, torch = \"exp\"; D; scalar |x| -x; }";
    let names: Vec<String> = mutants(family).into_iter().map(|mutant| mutant.function).collect();
    assert_eq!(names, ["add::scalar", "add::grad", "exp::scalar"]);
}

#[test]
fn rules_are_changed_and_what_tests_them_is_not() {
    let rule = |name: &str| format!("mod a {{ fn {name}(a: i64) -> i64 {{ a + 1 }} }}");
    assert_eq!(changes(&rule("meta")), ["operator: a + 1 => (a) - (1)", "constant: 1 => (1 + 1)"]);
    assert!(changes(&rule("reference")).is_empty() && changes(&rule("samples")).is_empty());
}

#[test]
fn estimates_and_what_only_samples_call_are_not_changed() {
    let source = "mod a { fn meta(a: i64) { shared(a) } fn flops(a: i64) -> i64 { a + 1 }
        fn samples() { rows(1); shared(1) } fn rows(a: i64) -> i64 { deep(a + 1) } fn deep(a: i64) -> i64 { -a }
        fn shared(a: i64) -> i64 { a - 1 } pub fn open(a: i64) -> i64 { a * a } fn errors() { open(1); } }";
    let found: BTreeSet<String> = mutants(source).into_iter().map(|mutant| mutant.function).collect();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a::open", "a::shared"]);
}

#[test]
fn calls_conditions_and_cotangents() {
    let found = changes("fn grad() { Grads { input: prims::sub(d, x) } }");
    for change in [
        "sign: prims::sub(d, x) => crate::prims::neg(prims::sub(d, x))",
        "function: prims::sub(d, x) => prims::add(d, x)",
        "dropped term: prims::sub(d, x) => d",
        "swapped arguments: prims::sub(d, x) => prims::sub(x, d)",
    ] {
        assert!(found.contains(&change.to_owned()), "{change} is not in {found:?}");
    }
    assert_eq!(
        changes("fn meta() { require!(a < b, Code, \"{a} and {}\", b + 1); }"),
        ["dropped condition: a < b => true || (a < b)", "bound: a < b => (a) <= (b)", "bound: a < b => (a) > (b)"]
    );
}

#[test]
fn equal_arguments_are_not_exchanged() {
    assert_eq!(changes("fn grad() { matmul(a, a) }"), Vec::<String>::new());
    assert_eq!(
        changes("fn grad() { mul(a, a) }"),
        ["function: mul(a, a) => div(a, a)", "dropped term: mul(a, a) => a"]
    );
    assert_eq!(changes("fn grad() { matmul(a, b) }"), ["swapped arguments: matmul(a, b) => matmul(b, a)"]);
}

#[test]
fn definitions_that_references_share_are_not_changed() {
    let methods = |comment: &str| format!("{comment}\nimpl Defined {{ fn value(&self) -> f64 {{ self.x + 1.0 }} }}");
    assert!(changes(&methods("/// For references: the definition.")).is_empty());
    assert_eq!(changes(&methods("/// The definition.")).len(), 2);
}

#[test]
fn a_parameter_of_its_name_calls_no_function() {
    let source = "mod a { fn meta(sums: i64) -> i64 { sums } fn sums(n: i64) -> i64 { n + 1 }
        fn samples() { sums(1) } }";
    assert!(changes(source).is_empty());
    let called = source.replace("{ sums }", "{ sums(sums) }");
    assert_eq!(changes(&called), ["operator: n + 1 => (n) - (1)", "constant: 1 => (1 + 1)"]);
}

#[test]
fn conditions_behind_patterns_are_changed() {
    let source = "fn meta() { match x { Some(n) if n < most => a, _ => b } }";
    assert_eq!(
        changes(source),
        ["condition: n < most => !(n < most)", "bound: n < most => (n) <= (most)", "bound: n < most => (n) > (most)"]
    );
}

#[test]
fn tables_are_looked_into() {
    let source = "operators! { #[operator(torch = $torch)] pub mod $name {
            fn scalar(x: Expr) -> Expr { one(x) + $value }
            fn grad(x: Tensor) -> Grads { Grads { x: mul(d_out, $slope) } }
            fn reference(x: f64) -> f64 { $reference + 1.0 } }
        table($name, $torch, $value, $slope, $reference) {
            /// The first.
            a, \"a\", x.exp(), x, x + 2.0; } }";
    let named = |mutant: &Mutant| format!("{} {} => {}", mutant.function, mutant.original, mutant.replacement);
    let found = mutants(source);
    assert_eq!(
        found.iter().map(named).collect::<Vec<_>>(),
        [
            "$name::scalar one(x) + $value => (one(x)) - ($value)",
            "$name::grad mul(d_out, $slope) => crate::prims::neg(mul(d_out, $slope))",
            "$name::grad mul(d_out, $slope) => div(d_out, $slope)",
            "$name::grad mul(d_out, $slope) => d_out",
            "a::value x.exp() => x.sin()",
            "a::slope x => crate::prims::neg(x)",
        ]
    );
    assert!(found.iter().all(|mutant| source[mutant.range.clone()] == mutant.original));
}

#[test]
fn families_are_looked_into() {
    let found = changes(
        "unary! { exp, torch = \"exp\"; D; scalar |x| x.exp(); reference |x| x.exp(); grad |i, o, d| mul(d, o); }",
    );
    assert!(found.contains(&"function: x.exp() => x.sin()".to_owned()), "{found:?}");
    assert!(found.contains(&"dropped term: mul(d, o) => d".to_owned()), "{found:?}");
    assert_eq!(found.iter().filter(|change| change.contains("x.exp()")).count(), 1, "{found:?}");
}
