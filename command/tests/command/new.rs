//! `ops new`: what it writes are the files in `written/` beside this file, which are compiled here.

use fulgurite::arithmetic::Arithmetic;
use fulgurite::executor::find_implementation;
use fulgurite::kernel::KernelRules;
use fulgurite::operator::RuleSet;
use fulgurite::registry::find_operator;
use fulgurite::testing::rules::TestRules;
use fulgurite::testing::{Filter, Settings, generated_tests};

use crate::{run, run_in};

// Warnings of its author's would be read as ours.
#[deny(warnings)]
#[path = "written/placeholder_fast.rs"]
mod placeholder_fast_file;
#[deny(warnings)]
#[path = "written/placeholder.rs"]
mod placeholder_file;
#[deny(warnings)]
#[path = "written/placeholder_kernel.rs"]
mod placeholder_kernel_file;
#[deny(warnings)]
#[path = "written/placeholder_prim.rs"]
mod placeholder_prim_file;
#[deny(warnings)]
#[path = "written/placeholder_relu.rs"]
mod placeholder_relu_file;
#[deny(warnings)]
#[path = "written/placeholder_rewrite.rs"]
mod placeholder_rewrite_file;
#[deny(warnings)]
#[path = "written/placeholder_symbol.rs"]
mod placeholder_symbol_file;

#[deny(warnings)]
#[path = "written/placeholder_gpu.rs"]
mod placeholder_gpu_file;
#[deny(warnings)]
#[path = "written/placeholder_relu_on_gpu.rs"]
mod placeholder_relu_on_gpu_file;

// The files of a crate; its name is this crate's as well (see the root).
#[allow(dead_code, unused_imports)]
#[path = "written/placeholder_crate/src/main.rs"]
mod placeholder_crate_command;
#[deny(warnings)]
#[path = "written/placeholder_crate/src/lib.rs"]
mod placeholder_crate_library;
#[allow(dead_code, unused_imports)]
#[path = "written/placeholder_crate/tests/generated.rs"]
mod placeholder_crate_tests;

use placeholder_fast_file::placeholder_fast;
use placeholder_gpu_file::placeholder_gpu;

/// What is written, with a decomposition that calls another operator.
#[deny(warnings)]
mod filled {
    use fulgurite::prelude::*;

    /// The logistic function, elementwise.
    #[operator(name = "command::filled")]
    pub mod filled {
        fn filled(input: Tensor<Floating>) -> Tensor;

        fn decomposition(input: Tensor) -> Tensor {
            sigmoid(input)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary(Domain::range(0.5, 2.0));
        }
    }
}

#[test]
fn a_declaration_is_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let new = ["ops", "new", "placeholder", "--torch", "torch.nn.functional.softsign"];
    let said = run_in(folder.path(), &new).ok();
    assert!(said.starts_with("wrote placeholder.rs\nadd to the mod.rs or lib.rs beside it:\n"), "{said}");
    assert!(said.contains("    fulgurite::operator_files! { placeholder }\n"), "{said}");
    assert!(said.contains("    [[test]]\n    name = \"generated\"\n    harness = false\n"), "{said}");
    assert!(said.contains("fulgurite::main_of_crate!()"), "{said}");
    let file = folder.path().join("placeholder.rs");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), include_str!("written/placeholder.rs"));
    std::fs::write(&file, "mine").unwrap();
    assert!(run_in(folder.path(), &new).fails(1).contains("is there already"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn every_kind_is_written_as_it_is_compiled_here() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    for (name, kind, expected) in [
        ("placeholder_prim", &["--prim"][..], include_str!("written/placeholder_prim.rs")),
        ("placeholder_fast", &["--executor"], include_str!("written/placeholder_fast.rs")),
        ("placeholder_gpu", &["--executor", "--device", "cuda"], include_str!("written/placeholder_gpu.rs")),
        // Executors that are not linked are found beside what is written.
        ("placeholder_symbol", &["--symbol", "placeholder_fast"], include_str!("written/placeholder_symbol.rs")),
        ("placeholder_kernel", &["--symbol", "placeholder_gpu"], include_str!("written/placeholder_kernel.rs")),
        (
            "placeholder_relu_on_gpu",
            &["--implementation", "placeholder_gpu", "--of", "relu", "--device", "cuda"],
            include_str!("written/placeholder_relu_on_gpu.rs"),
        ),
        (
            "placeholder_relu",
            &["--implementation", "placeholder_fast", "--of", "relu"],
            include_str!("written/placeholder_relu.rs"),
        ),
        ("placeholder_rewrite", &["--rewrite"], include_str!("written/placeholder_rewrite.rs")),
    ] {
        let arguments: Vec<&str> = ["ops", "new", name].iter().chain(kind).copied().collect();
        run_in(folder.path(), &arguments).ok();
        assert_eq!(read(&format!("{name}.rs")), expected, "{name}");
    }
    assert_eq!(read("placeholder_kernel.cu"), include_str!("written/placeholder_kernel.cu"));
    assert_eq!(read("placeholder_relu_on_gpu.cu"), include_str!("written/placeholder_relu_on_gpu.cu"));
    // One kind at a time, an implementation of something that there is, a kernel that is not overwritten.
    run_in(folder.path(), &["ops", "new", "x", "--prim", "--rewrite"]).fails(2);
    run_in(folder.path(), &["ops", "new", "x", "--implementation", "cpu"]).fails(2);
    let unknown = run_in(folder.path(), &["ops", "new", "x", "--implementation", "cpu", "--of", "relo"]).fails(1);
    assert!(unknown.contains("did you mean 'relu'?") && unknown.contains("that crate's own command"), "{unknown}");
    for kind in ["--symbol", "--implementation"] {
        let of = if kind == "--implementation" { &["--of", "relu"][..] } else { &[] };
        let unknown = run_in(folder.path(), &[&["ops", "new", "x", kind, "placeholder_fats"], of].concat()).fails(1);
        assert!(unknown.contains("no executor is called 'placeholder_fats'"), "{unknown}");
        assert!(unknown.contains("that crate's own command"), "{unknown}");
        let host = [&["ops", "new", "x", kind, "placeholder_fast", "--device", "cuda"], of].concat();
        let host = run_in(folder.path(), &host).fails(1);
        assert!(host.contains("--device cuda: executor 'placeholder_fast' runs on cpu"), "{host}");
        let any = run_in(folder.path(), &[&["ops", "new", "x", kind, "host"], of].concat()).fails(1);
        assert!(any.contains("executor 'host' stands for all kinds of devices"), "{any}");
    }
    run_in(folder.path(), &["ops", "new", "x", "--device", "cuda"]).fails(1);
    // Kinds of devices that are linked.
    let unknown = run_in(folder.path(), &["ops", "new", "x", "--executor", "--device", "npu"]).fails(1);
    assert!(unknown.contains("no kind of device is called 'npu'") && unknown.contains("cuda"), "{unknown}");
    assert!(!folder.path().join("x.rs").exists());
    std::fs::remove_file(folder.path().join("placeholder_kernel.rs")).unwrap();
    run_in(folder.path(), &["ops", "new", "placeholder_kernel", "--symbol", "placeholder_gpu"]).fails(1);
    assert!(!folder.path().join("placeholder_kernel.rs").exists());
}

#[test]
fn a_crate_is_written_as_it_is_compiled_here() {
    let folder = tempfile::tempdir().unwrap();
    let said = run_in(folder.path(), &["ops", "new", "--crate", "placeholder_crate"]).ok();
    assert!(said.contains("cargo run -- ops new NAME --path src/NAME.rs, in placeholder_crate"), "{said}");
    let root = folder.path().join("placeholder_crate");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    assert_eq!(read("src/lib.rs"), include_str!("written/placeholder_crate/src/lib.rs"));
    assert_eq!(read("src/main.rs"), include_str!("written/placeholder_crate/src/main.rs"));
    assert_eq!(read("tests/generated.rs"), include_str!("written/placeholder_crate/tests/generated.rs"));
    let manifest = include_str!("written/placeholder_crate/manifest.toml");
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    assert_eq!(read("Cargo.toml"), manifest.replace("FULGURITE", repository.to_str().unwrap()));
    // It builds where the library is built, with the same versions, unless it is to have a target folder of its own.
    assert!(read(".cargo/config.toml").contains(&format!("target-dir = \"{}/target\"", repository.display())));
    assert_eq!(read("Cargo.lock"), std::fs::read_to_string(repository.join("Cargo.lock")).unwrap());
    // Cargo removes what no feature of the crate needs: the models are a feature, so that their versions stay.
    let mut update = std::process::Command::new(env!("CARGO"));
    let update = update.args(["update", "--workspace", "--offline"]).current_dir(&root).output().unwrap();
    assert!(update.status.success(), "{}", String::from_utf8_lossy(&update.stderr));
    assert!(read("Cargo.lock").contains("name = \"fulgurite-models\"") && read("Cargo.lock").contains("placeholder"));
    run_in(folder.path(), &["ops", "new", "--crate", "other_crate", "--own-target"]).ok();
    let other = folder.path().join("other_crate");
    assert!(other.join("Cargo.toml").exists() && !other.join("Cargo.lock").exists() && !other.join(".cargo").exists());
    run_in(folder.path(), &["ops", "new", "x", "--own-target"]).fails(2);
    // Nothing is overwritten, and a crate's name is a name of Rust.
    let again = run_in(folder.path(), &["ops", "new", "--crate", "placeholder_crate"]).fails(1);
    assert!(again.contains("is there already; nothing was written"), "{again}");
    run_in(folder.path(), &["ops", "new", "--crate", "my-crate"]).fails(1);
    run_in(folder.path(), &["ops", "new", "x", "--crate", "other"]).fails(2);
    run_in(folder.path(), &["ops", "new"]).fails(2);
    // The first operator is listed, and nothing more is advised: the crate has its test target.
    let said = run_in(&root, &["ops", "new", "first", "--path", "src/first.rs"]).ok();
    assert!(said.ends_with("listed it in src/lib.rs\n"), "{said}");
}

/// A crate of one's own is compiled as the crates of this repository are.
/// Packages of this repository that no other crate depends on.
const ABSENT: [&str; 7] = ["benches", "book", "dlpack-test", "example-outside", "example-sim", "python", "tests"];

#[test]
fn the_profile_of_a_crate_is_this_repository_s() {
    let profile = |text: &str| -> Vec<String> {
        let mut inside = false;
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim()).filter(|line| !line.is_empty())
        {
            if line.starts_with('[') {
                // A crate of one's own has no such package.
                let package =
                    line.strip_prefix("[profile.dev.package.fulgurite-").and_then(|rest| rest.strip_suffix(']'));
                inside = line.starts_with("[profile.dev") && package.is_none_or(|name| !ABSENT.contains(&name));
            }
            if inside {
                lines.push(line.to_owned());
            }
        }
        lines
    };
    let own = profile(include_str!("../../../Cargo.toml"));
    assert!(own.len() > 8, "{own:?}");
    assert_eq!(profile(include_str!("written/placeholder_crate/manifest.toml")), own);
}

#[test]
fn the_declarations_compile_and_their_tests_fail() {
    assert!(TestRules::of(std::hint::black_box(&placeholder_file::placeholder::OPERATOR)).samples.is_some());
    assert!(Arithmetic::of(std::hint::black_box(&placeholder_prim_file::placeholder_prim::OPERATOR)).scalar.is_some());
    assert!(
        KernelRules::of(std::hint::black_box(&placeholder_symbol_file::placeholder_symbol::OPERATOR)).cpu.is_some()
    );
    assert!(
        KernelRules::of(std::hint::black_box(&placeholder_kernel_file::placeholder_kernel::OPERATOR)).plan.is_some()
    );
    assert!(find_implementation("relu", "placeholder_gpu").is_some_and(|own| own.kernel.plan.is_some()));
    let _ = std::hint::black_box((&placeholder_fast::EXECUTOR, &placeholder_gpu::EXECUTOR));
    let def = find_operator("placeholder").unwrap();
    assert_eq!(def.torch, Some("nn.functional.softsign"));
    let failure = |operator: &str, name: &str| {
        let tests = generated_tests(&Filter::operator(operator), &Settings::default());
        let test = tests.iter().find(|test| test.name == format!("{operator}::{name}")).unwrap();
        (test.run)().unwrap_err()
    };
    for (operator, name) in [
        ("placeholder", "consistency::reference::f32"),
        ("placeholder", "consistency::cpu::f64"),
        ("prims::placeholder_prim", "consistency::cpu::f32"),
        ("placeholder_fast::placeholder_symbol", "consistency::placeholder_fast::f32"),
        ("relu", "consistency::placeholder_fast::f32"),
        ("relu", "gradient::placeholder_fast::f32"),
    ] {
        let message = failure(operator, name);
        assert!(message.contains("at PLACEHOLDER"), "{operator}::{name}: {message}");
        // Of an implementation its own file is named beside that of the operator.
        let own = "implemented for placeholder_fast at command/tests/command/written/placeholder_relu.rs:";
        assert_eq!(message.contains(own), operator == "relu", "{message}");
    }
    // What is written for an operator of several results, and of one without a gradient.
    let folder = tempfile::tempdir().unwrap();
    for (of, expected) in [
        ("topk", Some("-> ((Tensor, Tensor), impl FnOnce((Option<Tensor>, Option<Tensor>)) -> Grads)")),
        ("layer_norm", Some("Grads {{ input, weight, bias }}")),
        ("argmax", None),
        ("split", None),
    ] {
        let name = format!("{of}_by_cpu");
        run_in(folder.path(), &["ops", "new", &name, "--implementation", "cpu", "--of", of]).ok();
        let text = std::fs::read_to_string(folder.path().join(format!("{name}.rs"))).unwrap();
        assert_eq!(text.contains("fn grad("), expected.is_some(), "{text}");
        assert!(text.contains(expected.unwrap_or_default()), "{text}");
    }
    let tests = generated_tests(&Filter::default(), &Settings::default());
    let rewrite = tests.iter().find(|test| test.name == "placeholder_rewrite::rewrite").unwrap();
    assert!((rewrite.run)().unwrap_err().contains("of the pattern against the replacement"));
    // The kernels fit their launches as they are written.
    for name in ["placeholder_kernel::sources", "relu::sources::placeholder_gpu"] {
        let sources = tests.iter().find(|test| test.name.contains(name)).unwrap_or_else(|| panic!("no test {name}"));
        (sources.run)().unwrap();
    }
}

#[test]
fn the_line_is_added_to_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("mod.rs");
    let path = folder.path().join("brand_new.rs");
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (krate, imports) in [
        ("ops", "use fulgurite_ops_macros::operator;\n\nuse crate::prims;\n"),
        ("executors/cpu", "use fulgurite_ops::prims;\nuse fulgurite_ops_macros::operator;\n"),
        ("examples/outside", "use fulgurite::prelude::*;\n"),
    ] {
        std::fs::write(&list, "fulgurite_ops_macros::operator_files! {\n    exp,\n}\n").unwrap();
        // The manifests that there are: what is looked for in them changes with them.
        std::fs::copy(repository.join(krate).join("Cargo.toml"), folder.path().join("Cargo.toml")).unwrap();
        let said = run(&["ops", "new", "brand_new", "--path", path.to_str().unwrap()]).ok();
        assert!(said.contains(&format!("listed it in {}\n", list.display())), "{said}");
        assert_eq!(
            std::fs::read_to_string(&list).unwrap(),
            "fulgurite_ops_macros::operator_files! {\n    brand_new,\n    exp,\n}\n"
        );
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(&format!("{imports}\n///")));
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_module_without_a_list_gets_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lib.rs"), "//! Mine.\n").unwrap();
    std::fs::write(folder.path().join("Cargo.toml"), "[dependencies]\nfulgurite = \"0.1\"\n").unwrap();
    // The file's name is what the list needs, which may hold other operators as well.
    let path = folder.path().join("activations.rs");
    let said = run(&["ops", "new", "brand_new", "--path", path.to_str().unwrap()]).ok();
    assert!(said.contains("main_of_crate!()"), "{said}");
    let list = std::fs::read_to_string(folder.path().join("lib.rs")).unwrap();
    assert_eq!(list, "//! Mine.\n\nfulgurite::operator_files! {\n    activations,\n}\n");
    assert!(std::fs::read_to_string(path).unwrap().contains("use fulgurite::prelude::*;"));
    // A crate that runs the tests already needs no advice.
    std::fs::create_dir(folder.path().join("tests")).unwrap();
    std::fs::write(folder.path().join("tests/generated.rs"), "fulgurite::main_of_crate!()").unwrap();
    let other = folder.path().join("other.rs");
    let said = run(&["ops", "new", "other", "--path", other.to_str().unwrap()]).ok();
    assert!(!said.contains("main_of_crate!()"), "{said}");
}

#[test]
fn files_that_no_list_can_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for file in ["brand-new.rs", "mod.rs", "brand_new", "brand_new.txt"] {
        run_in(folder.path(), &["ops", "new", "brand_new", "--path", file]).fails(1);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn names_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["fn", "Upper", "9lives", "a-b", "", "a b", "späť", "_x", "../up", "--", &"x".repeat(65)] {
        run_in(folder.path(), &["ops", "new", name]).fails(2);
    }
    run_in(folder.path(), &["ops", "new", "fine", "--torch", "nn..x"]).fails(2);
    run_in(folder.path(), &["ops", "new", "fine", "--torch", "x\"); evil("]).fails(2);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn folders_are_made() {
    let folder = tempfile::tempdir().unwrap();
    run_in(folder.path(), &["ops", "new", "fine", "--path", "no/such/folder/fine.rs"]).ok();
    assert!(folder.path().join("no/such/folder/fine.rs").is_file());
    let complaint =
        run_in(folder.path(), &["ops", "new", "fine", "--path", "no/such/folder/fine.rs/other.rs"]).fails(1);
    assert!(complaint.starts_with("error: no/such/folder/fine.rs: "), "{complaint}");
}
