//! Whether what follows a product is done by the library as it stores it is a choice like others.

use std::sync::Arc;

use fulgurite_ops::nn::Approximate;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::argument::Arg;
use fulgurite_runtime::choices::{
    Call, Choices, ChoicesFile, DECOMPOSED, Entry, Found, Purpose, Question, Times, Tried, VERSION, print,
};
use fulgurite_runtime::compile::{Options, explain, split_stages, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::registry::find_operator;
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::{DType, Device, Target, TensorMeta};

fn target() -> Target {
    "cuda:sm_90a".parse().unwrap()
}

fn meta(shape: &[usize]) -> TensorMeta {
    TensorMeta::new(shape, DType::BF16, Device::new("cuda", 0))
}

/// A block of a transformer without its attention: two layers around GELU, and a residual.
fn program() -> Trace {
    let of = |(x, up, a, down, b): (Tensor, Tensor, Tensor, Tensor, Tensor)| {
        let hidden = gelu::with(linear::with(x, up).bias(a).call()).approximate(Approximate::Tanh).call();
        x + linear::with(hidden, down).bias(b).call()
    };
    let inputs = (meta(&[64, 128]), meta(&[512, 128]), meta(&[512]), meta(&[128, 512]), meta(&[128]));
    trace("program", target(), &Names::default(), inputs, of).unwrap().0
}

/// A record of the library's operator in which its decomposition wins.
fn apart(operator: &str, metas: &[TensorMeta]) -> Entry {
    let metas: Vec<Arg<TensorMeta>> = metas.iter().cloned().map(Arg::Tensor).collect();
    let tried = |by: &str, alone| Tried { by: by.into(), outcome: Ok(Times { alone, beside: None }) };
    Entry {
        call: Call::new(find_operator(operator).unwrap(), &metas, Purpose::Forward, Precision::Exact),
        target: target().to_string(),
        device: "a model".into(),
        libraries: "driver 1".into(),
        version: VERSION.into(),
        winner: DECOMPOSED.into(),
        tried: vec![tried("cublaslt", 30.0), tried(DECOMPOSED, 20.0)],
        note: None,
    }
}

/// The stages of forward and backward programs with these records, as text of the claimed traces and what is explained.
fn claimed(entries: &[Entry]) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("choices.jsonl");
    std::fs::write(&path, print(entries)).unwrap();
    let choices = Arc::new(ChoicesFile::read(&path, None).unwrap());
    let options = Options { choices: Some(choices), ..Options::default() };
    let programs = split_stages(program(), &[0, 1, 2, 3, 4], &[0], &options).unwrap();
    let halves = [&programs.forward, &programs.backward];
    let of = |stages: &[fulgurite_runtime::compile::Stage]| {
        stages.iter().find(|stage| stage.name == "claim").unwrap().trace.to_string()
    };
    (halves.iter().map(|half| of(half)).collect(), halves.iter().map(|half| explain(*half)).collect())
}

/// The operators, with the operands that the program has.
fn fused() -> [(&'static str, Vec<TensorMeta>); 4] {
    let (x, hidden) = (meta(&[64, 128]), meta(&[64, 512]));
    let (up, a, down, b) = (meta(&[512, 128]), meta(&[512]), meta(&[128, 512]), meta(&[128]));
    [
        ("cublaslt::linear_gelu_aux", vec![x.clone(), up, a]),
        ("cublaslt::linear_residual", vec![hidden.clone(), down.clone(), b, x.clone()]),
        ("cublaslt::matmul_gelu_backward", vec![x.clone(), down, hidden.clone()]),
        ("cublaslt::weight_gradients", vec![x, hidden]),
    ]
}

#[test]
fn an_epilogue_is_a_part_of_the_product_unless_a_record_says_otherwise() {
    let (plain, said) = claimed(&[]);
    for (operator, metas) in fused() {
        assert!(plain.contains(&format!(" {operator}(")), "{plain}");
        assert!(!said.contains("choice of"), "{said}");
        let (text, said) = claimed(&[apart(operator, &metas)]);
        // The gradients of the first layer's weight and bias have other operands.
        let left = plain.matches(operator).count() - text.matches(operator).count();
        assert_eq!(left, 1, "{operator}\n{text}");
        assert!(
            said.contains(&format!("choice of {operator}(")) && said.contains("decomposed of cublaslt 30.0 us"),
            "{said}"
        );
        // The trace names the winner, and nothing else of the record.
        assert!(!text.contains("refused") && !text.contains("30.0"), "{text}");
    }
    let all: Vec<Entry> = fused().iter().map(|(operator, metas)| apart(operator, metas)).collect();
    let (apart, _) = claimed(&all);
    assert_eq!(claimed(&all).0, apart, "equal records give equal programs");
}

/// What a compilation could have measured.
#[derive(Debug, Default)]
struct Listing(std::sync::Mutex<Vec<(String, Vec<&'static str>)>>);

impl Choices for Listing {
    fn find(&self, question: &Question<'_>) -> Found {
        if let Some(names) = fulgurite_runtime::choices::Records::candidates(question, std::time::Duration::ZERO) {
            self.0.lock().unwrap().push((question.call().operator, names));
        }
        Found::Nothing
    }
}

#[test]
fn both_ways_are_candidates_without_a_device() {
    let listing = Arc::new(Listing::default());
    let options = Options { choices: Some(listing.clone()), ..Options::default() };
    split_stages(program(), &[0, 1, 2, 3, 4], &[0], &options).unwrap();
    let asked = listing.0.lock().unwrap();
    for (operator, _) in fused() {
        let names = asked.iter().find(|(name, _)| name == operator).map(|(_, names)| names.clone());
        assert_eq!(names, Some(vec!["cublaslt", DECOMPOSED]), "{operator}: {asked:?}");
    }
    // Where nothing is differentiated, GELU keeps nothing.
    let listing = Arc::new(Listing::default());
    stages(program(), &Options { choices: Some(listing.clone()), ..Options::default() }).unwrap();
    let asked = listing.0.lock().unwrap();
    assert!(asked.contains(&("cublaslt::linear_gelu".to_owned(), vec!["cublaslt", DECOMPOSED])), "{asked:?}");
}
