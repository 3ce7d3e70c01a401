//! What files are mapped to: in a small workspace written down here, and in this repository.

use std::collections::BTreeSet;

use fulgurite::registry::find_operator;
use fulgurite::testing::concerned::Declared;

use super::*;
use crate::git::Repository;
use crate::test_changed::selection::Plan;

/// A package: name, folder, what it uses, what its tests use, its targets of tests.
type Written<'a> = (&'a str, &'a str, &'a [&'a str], &'a [&'a str], &'a [(&'a str, &'a str)]);

const PACKAGES: [Written; 7] = [
    ("kernels", "kernels/", &[], &[], &[("host", "kernels/tests/host/main.rs")]),
    ("ops", "ops/", &["kernels"], &[], &[]),
    ("fast", "fast/", &["ops"], &[], &[]),
    ("models", "models/", &["ops"], &[], &[]),
    ("plots", "plots/", &[], &[], &[]),
    ("view", "view/", &[], &["fast"], &[]),
    (
        "fulgurite-tests",
        "tests/",
        &["ops", "fast"],
        &["models"],
        &[
            ("generated", "tests/tests/generated.rs"),
            ("programs", "tests/tests/programs/main.rs"),
            ("models", "tests/tests/models/main.rs"),
            ("sources", "tests/tests/sources/main.rs"),
        ],
    ),
];

const FILES: [(&str, &str); 22] = [
    ("kernels/src/lib.rs", ""),
    ("kernels/tests/host/main.rs", "mod views;\n#[path = \"../common/mod.rs\"]\nmod common;"),
    ("kernels/tests/host/views.rs", ""),
    ("kernels/tests/common/mod.rs", ""),
    ("ops/src/lib.rs", ""),
    ("ops/src/exp.rs", "x.exp()\n}\npub(crate) fn powers(x: f64) -> f64 {"),
    ("ops/src/log.rs", "super::exp::powers(x)"),
    ("ops/src/softmax.rs", "use super::rows; rows::reduce(exp(x))"),
    ("ops/src/rows.rs", ""),
    ("fast/src/lib.rs", "#[executor(device = \"cpu\")]"),
    ("fast/src/softmax.rs", "include_str!(\"softmax.cu\")"),
    ("fast/src/softmax.cu", "#include \"warp.cuh\""),
    ("fast/src/warp.cuh", ""),
    ("fast/src/pointers.rs", ""),
    ("view/src/tests.rs", "use fast as _;"),
    ("models/src/lib.rs", "let y = softmax(x, -1);"),
    ("tests/tests/programs/main.rs", "mod joins;\nmod rows;"),
    ("tests/tests/programs/joins.rs", "cat([exp(x)])"),
    ("tests/tests/programs/rows.rs", "x.sqrt()"),
    ("tests/tests/models/main.rs", "use models::Model; mod parity;"),
    ("tests/tests/models/parity.rs", "golden/parity.safetensors"),
    ("tools/count/Cargo.toml", ""),
];

fn workspace() -> Workspace {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let packages = PACKAGES.iter().map(|(name, folder, uses, tests_use, tests)| Package {
        name: (*name).to_owned(),
        folder: (*folder).to_owned(),
        uses: set(uses),
        tests_use: set(tests_use),
        library: true,
        tests: tests.iter().map(|(name, file)| ((*name).to_owned(), (*file).to_owned())).collect(),
    });
    let workspace = Workspace { packages: packages.collect(), ..Workspace::default() };
    let files = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
    let texts = FILES.iter().map(|(path, text)| ((*path).to_owned(), Rc::from(*text))).collect();
    Workspace { files, texts: std::cell::RefCell::new(texts), ..workspace }
}

fn declarations() -> Declarations {
    let pair = |name: &str, place: &str| (name.to_owned(), place.to_owned());
    Declarations {
        declared: Declared {
            files: vec![
                pair("exp", "ops/src/exp.rs"),
                pair("log", "ops/src/log.rs"),
                pair("softmax", "ops/src/softmax.rs"),
                pair("softmax", "fast/src/softmax.rs"),
                pair("fast::softmax", "fast/src/softmax.rs"),
            ],
            claims: vec![pair("exp", "fast")],
        },
        users: [("exp".to_owned(), BTreeSet::from(["softmax".to_owned()]))].into(),
        packages: [pair("exp", "ops"), pair("log", "ops"), pair("softmax", "ops"), pair("fast::softmax", "fast")]
            .into(),
        executors: BTreeSet::from(["fast".to_owned()]),
    }
}

/// The commands for changes of these files, without their first word.
fn commands(paths: &[&str]) -> Vec<String> {
    commands_in(&workspace(), &declarations(), paths)
}

fn commands_in(workspace: &Workspace, declarations: &Declarations, paths: &[&str]) -> Vec<String> {
    let map = Map { workspace, declarations, callers: Default::default(), concerned: Default::default() };
    let mut plan = Plan::default();
    paths.iter().for_each(|path| plan.add(map.of(path).0));
    let commands = plan.commands(workspace).into_iter();
    commands.map(|command| command.join(" ").strip_prefix("test ").unwrap_or_default().to_owned()).collect()
}

#[test]
fn files_are_mapped_to_the_tests_that_they_can_affect() {
    let whole = "::rewrite directives:: ";
    for (path, expected) in [
        // An operator: its tests and those of its users, the modules of tests and the crates that call it; and what
        // calls a function beside it.
        (
            "ops/src/exp.rs",
            vec![
                format!("-p fulgurite-tests --test generated -- {whole}exp:: log:: registry:: snapshots:: softmax::"),
                "-p fulgurite-tests --test programs -- joins::".into(),
                "-p ops --lib".into(),
            ],
        ),
        // The models call it, and their tests are in another package.
        (
            "ops/src/softmax.rs",
            vec![
                "-p fulgurite-tests --test models".into(),
                format!("-p fulgurite-tests --test generated -- {whole}registry:: snapshots:: softmax::"),
                "-p models --lib".into(),
                "-p ops --lib".into(),
            ],
        ),
        // What an operator's file names.
        (
            "ops/src/rows.rs",
            vec![
                "-p fulgurite-tests --test models".into(),
                format!("-p fulgurite-tests --test generated -- {whole}registry:: snapshots:: softmax::"),
                "-p models --lib".into(),
                "-p ops --lib".into(),
            ],
        ),
        // An executor: what the file has kernels for, all that it takes, what its kernels share.
        (
            "fast/src/softmax.cu",
            vec![
                "-p fast".into(),
                format!(
                    "-p fulgurite-tests --test generated -- {whole}fast::softmax:: registry:: snapshots:: softmax::"
                ),
            ],
        ),
        (
            "fast/src/warp.cuh",
            vec![
                "-p fast".into(),
                format!(
                    "-p fulgurite-tests --test generated -- {whole}fast::softmax:: registry:: snapshots:: softmax::"
                ),
            ],
        ),
        (
            "fast/src/lib.rs",
            vec![
                "-p fast".into(),
                format!("-p fulgurite-tests --test generated -- {whole}exp:: programs:: registry:: snapshots::"),
                "-p fulgurite-tests --test programs -- joins::".into(),
            ],
        ),
        // Tests: a module, a target, data, a stored trace.
        ("tests/tests/programs/joins.rs", vec!["-p fulgurite-tests --test programs -- joins::".into()]),
        ("tests/tests/programs/main.rs", vec!["-p fulgurite-tests --test programs".into()]),
        (
            "tests/tests/models/snapshots/models__parity__step.snap",
            vec!["-p fulgurite-tests --test models -- parity::".into()],
        ),
        ("tests/golden/parity.safetensors", vec!["-p fulgurite-tests --test models -- parity::".into()]),
        ("kernels/tests/common/mod.rs", vec!["-p kernels --test host".into()]),
        (
            "tests/snapshots/fast__softmax.snap",
            vec!["-p fulgurite-tests --test generated -- fast::softmax::snapshot snapshots::".into()],
        ),
        ("docs/page.md", vec!["-p fulgurite-tests --test sources -- prose:: tables::".into()]),
        // Crates and what depends on them.
        ("plots/src/lib.rs", vec!["-p plots".into()]),
        ("models/Cargo.toml", vec!["-p models".into(), "-p fulgurite-tests --test models".into()]),
        (
            "kernels/src/lib.rs",
            vec!["-p fast -p fulgurite-tests -p kernels -p models -p ops".into(), "-p view --lib".into()],
        ),
        // A file that is gone: nobody declares it any more.
        ("ops/src/gone.rs", vec!["-p fast -p fulgurite-tests -p models -p ops".into(), "-p view --lib".into()]),
        ("tools/count/src/main.rs", vec!["--manifest-path tools/count/Cargo.toml".into()]),
        // Everything.
        ("Cargo.lock", vec!["--workspace".into()]),
        ("unknown/file", vec!["--workspace".into()]),
    ] {
        assert_eq!(commands(&[path]), expected, "{path}");
    }
}

/// It has no unit tests that could be run.
#[test]
fn what_names_a_library_without_unit_tests_is_run_all_the_same() {
    let (mut workspace, declarations) = (workspace(), declarations());
    workspace.packages.iter_mut().filter(|package| package.name == "models").for_each(|own| own.library = false);
    let commands = commands_in(&workspace, &declarations, &["ops/src/softmax.rs"]);
    assert!(commands.iter().any(|command| command == "-p fulgurite-tests --test models"), "{commands:?}");
    assert!(!commands.iter().any(|command| command == "-p models --lib"), "{commands:?}");
}

#[test]
fn tests_of_several_changes_are_run_once() {
    assert_eq!(
        commands(&["tests/tests/programs/joins.rs", "tests/tests/programs/rows.rs", "plots/src/lib.rs"]),
        ["-p plots", "-p fulgurite-tests --test programs -- joins:: rows::"]
    );
    assert_eq!(
        commands(&["tests/tests/programs/joins.rs", "tests/tests/programs/main.rs"]),
        ["-p fulgurite-tests --test programs"]
    );
    // A whole package has all of them.
    assert_eq!(
        commands(&["tests/tests/programs/joins.rs", "kernels/src/lib.rs"]),
        ["-p fast -p fulgurite-tests -p kernels -p models -p ops", "-p view --lib"]
    );
    assert_eq!(commands(&["tests/tests/programs/joins.rs", "unknown/file"]), ["--workspace"]);
}

#[test]
fn each_file_of_this_repository_has_tests() {
    let repository = Repository::open("a test").unwrap();
    let workspace = Workspace::read(&repository).unwrap();
    let declarations = Declarations::linked();
    let map = Map {
        workspace: &workspace,
        declarations: &declarations,
        callers: Default::default(),
        concerned: Default::default(),
    };
    assert!(workspace.files.len() > 1000, "{} files", workspace.files.len());
    let mut everything = BTreeSet::new();
    for path in &workspace.files {
        let Tests::Some(selections) = map.of(&format!("{}{path}", workspace.prefix)).0 else {
            everything.insert(path.split('/').next().unwrap_or(path));
            continue;
        };
        assert!(!selections.is_empty(), "{path} has no tests");
        for selection in selections {
            let manifest = selection.package.ends_with("Cargo.toml");
            let package = workspace.package(&selection.package);
            assert!(package.is_some() || manifest, "{path}: no package is called {}", selection.package);
            if let (Target::Test(name), Some(package)) = (&selection.target, package) {
                assert!(package.has_test(name), "{path}: {} has no target {name}", package.name);
                let operators = selection.filters.iter().filter(|_| name == GENERATED);
                for filter in operators.filter(|filter| !WHOLE.contains(&&***filter) && filter.ends_with("::")) {
                    let named = filter.trim_end_matches("::");
                    let declared = declarations.declared.files.iter().any(|(name, _)| name == named);
                    let random = named == fulgurite::testing::concerned::PROGRAMS;
                    assert!(declared || random || find_operator(named).is_ok(), "{path}: {named} has no tests");
                }
            }
        }
    }
    // Few files concern everything, and they are meant to.
    let known = [".ci", "Cargo.lock", "Cargo.toml", "clippy.toml", "rust-toolchain.toml", "rustfmt.toml"];
    assert!(everything.iter().all(|file| known.contains(file)), "{everything:?}");
    let of = |path: &str| {
        let mut plan = Plan::default();
        plan.add(map.of(&format!("{}{path}", workspace.prefix)).0);
        plan.commands(&workspace).into_iter().map(|words| words.join(" ")).collect::<Vec<_>>().join("\n")
    };
    let softmax = of("ops/src/nn/softmax.rs");
    assert!(softmax.contains("--test generated") && softmax.contains(" softmax::"), "{softmax}");
    assert!(softmax.contains("scaled_dot_product_attention::"), "it decomposes into softmax: {softmax}");
    assert!(softmax.contains("--test models") && softmax.contains("-p fulgurite-models --lib"), "{softmax}");
    assert!(!softmax.contains(" dropout::") && !softmax.contains("--workspace"), "{softmax}");
    assert!(softmax.lines().all(|line| line.contains("--test") || line.contains("--lib")), "no whole crate: {softmax}");
    let rope = of("executors/liger/src/rotation.rs");
    assert!(rope.contains("liger::rope::") && !rope.contains("liger::geglu::"), "{rope}");
    let base = of("runtime/base/src/tree.rs");
    assert!(base.contains("-p fulgurite-base") && base.contains("-p fulgurite-tests"), "{base}");
    let page = of("docs/src/testing.md");
    assert!(page.contains("prose::") && page.contains("--doc"), "{page}");
}
