//! `ops new`: what it writes is `placeholder.rs` beside this file, which is compiled here.

use fulgurite::operator::find_operator;

use crate::{run, run_in};

// Warnings of its author's would be read as ours.
#[deny(warnings)]
#[path = "placeholder.rs"]
mod placeholder;

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
    let new = ["ops", "new", "placeholder", "--torch", "torch.nn.functional.placeholder"];
    let said = run_in(folder.path(), &new).ok();
    assert_eq!(
        said,
        "wrote placeholder.rs\n\
         add to the mod.rs or lib.rs beside it:\n    fulgurite::operator_files! { placeholder }\n\
         name it where your crate's tests are run, tests/generated.rs:\n    \
         fulgurite::testing::main_of(&[\"placeholder\"])\n"
    );
    let file = folder.path().join("placeholder.rs");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), include_str!("placeholder.rs"));
    std::fs::write(&file, "mine").unwrap();
    assert!(run_in(folder.path(), &new).fails(1).contains("is there already"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn the_declaration_compiles_and_its_tests_fail() {
    use fulgurite::testing::{Filter, Settings, generated_tests};
    assert!(std::hint::black_box(&placeholder::placeholder::OPERATOR).samples.is_some());
    let def = find_operator("placeholder").unwrap();
    assert_eq!(def.torch, Some("nn.functional.placeholder"));
    let tests = generated_tests(&Filter::operator("placeholder"), &Settings::default());
    let failure = |name: &str| {
        let test = tests.iter().find(|test| test.name == format!("placeholder::{name}")).unwrap();
        (test.run)().unwrap_err()
    };
    for name in ["consistency::reference::f32", "consistency::cpu::f64"] {
        let message = failure(name);
        assert!(message.contains("placeholder.rs: write `decomposition`, `reference` and `samples`"), "{message}");
    }
}

#[test]
fn a_list_of_operator_files_gets_one_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mod.rs"), "fulgurite_ops_macros::operator_files! {\n}\n").unwrap();
    let path = folder.path().join("brand_new.rs");
    let runtime = "fulgurite = { package = \"fulgurite-runtime\" }";
    for (name, imports) in [
        ("fulgurite-ops", "use fulgurite_ops_macros::operator;\n\nuse crate::prelude::*;\n"),
        ("fulgurite-models", "use fulgurite_ops::prelude::*;\nuse fulgurite_ops_macros::operator;\n"),
    ] {
        let manifest = format!("[package]\nname = \"{name}\"\n[dependencies]\n{runtime}\n");
        std::fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
        let said = run(&["ops", "new", "brand_new", "--path", path.to_str().unwrap()]).ok();
        assert!(said.ends_with("mod.rs:\n    brand_new,\n"), "{said}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("\n\n{imports}\n")), "{text}");
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
    assert!(said.contains("lib.rs:\n    fulgurite::operator_files! { activations }\n"), "{said}");
    assert!(said.contains("main_of(&[\"brand_new\"])"), "{said}");
    assert!(std::fs::read_to_string(path).unwrap().contains("use fulgurite::prelude::*;"));
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
