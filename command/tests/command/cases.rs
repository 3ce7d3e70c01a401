//! `ops run` and `ops samples`.

use std::path::Path;

use serde_json::{Value, json as object};
use tempfile::TempDir;

use crate::{Ran, json, run, run_in, run_with};

/// A folder with these cases, `x` f32[2, 3] of 1 to 6, `ones` like it, `index` i64[2] of 0 and 9, `mask` bool[2, 3].
fn folder(cases: Value) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = object!({ "version": 1, "cases": cases });
    std::fs::write(folder.path().join("cases.json"), file.to_string()).unwrap();
    let x: Vec<u8> = (1..=6u8).flat_map(|value| f32::from(value).to_le_bytes()).collect();
    let ones: Vec<u8> = [1.0f32; 6].iter().flat_map(|value| value.to_le_bytes()).collect();
    let index: Vec<u8> = [0i64, 9].iter().flat_map(|value| value.to_le_bytes()).collect();
    let mask = [1u8, 0, 1, 0, 1, 1];
    let view =
        |dtype, shape: &[usize], bytes| safetensors::tensor::TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
    let views = [
        ("x", view(safetensors::Dtype::F32, &[2, 3], &x)),
        ("ones", view(safetensors::Dtype::F32, &[2, 3], &ones)),
        ("index", view(safetensors::Dtype::I64, &[2], &index)),
        ("mask", view(safetensors::Dtype::BOOL, &[2, 3], &mask)),
    ];
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(folder.path().join("tensors.safetensors"), bytes).unwrap();
    folder
}

fn run_cases(folder: &Path) -> Ran {
    run_in(folder, &["ops", "run", ".", "--out", "results"])
}

/// What is said in the end.
fn summary(ok: usize, failed: usize) -> String {
    format!("{} cases: {ok} ok, {failed} failed (ok means that it ran; nothing was compared)\n", ok + failed)
}

/// The reports by the cases' names.
fn reports(folder: &Path) -> std::collections::BTreeMap<String, Value> {
    let text = std::fs::read_to_string(folder.join("results/results.json")).unwrap();
    let reports = json(&text);
    let id = |report: &Value| report["id"].as_str().unwrap().to_owned();
    reports.as_array().unwrap().iter().map(|report| (id(report), report.clone())).collect()
}

fn tensor(folder: &Path, key: &str) -> (Vec<usize>, Vec<f32>) {
    let bytes = std::fs::read(folder.join("results/results.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor(key).unwrap();
    let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    (view.shape().to_vec(), values)
}

fn call(id: &str, op: &str, args: Value) -> Value {
    object!({ "id": id, "op": op, "args": args })
}

fn named(key: &str) -> Value {
    object!({ "tensor": key })
}

#[test]
fn cases_give_outputs_and_gradients() {
    let mut product = call("mul", "prims::mul", object!({ "input": named("x"), "other": named("x") }));
    product["grad"] = object!({ "cotangents": ["ones"], "inputs": ["input", "other"] });
    let mut cat = call("a/b", "prims::cat", object!({ "tensors": [named("x"), named("ones")], "dim": 0 }));
    cat["grad"] = object!({ "cotangents": ["wide"], "inputs": ["tensors.1"] });
    let mut cat_good = call("cat", "prims::cat", object!({ "tensors": [named("x")], "dim": 0 }));
    cat_good["grad"] = object!({ "cotangents": ["ones"], "inputs": ["tensors.0"] });
    let (value, dtype) = (object!({ "number": "-inf" }), object!({ "dtype": "torch.float32" }));
    let full = object!({ "size": 2, "fill_value": value, "dtype": dtype, "device": "cpu" });
    let folder = folder(object!([product, cat, cat_good, call("full", "prims::full", full)]));
    let ran = run_cases(folder.path());
    assert_eq!((ran.code, ran.out), (1, summary(3, 1)));
    assert!(ran.err.starts_with("error: case 'a/b': MissingTensor: there is no tensor 'wide'"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert_eq!(tensor(folder.path(), "mul/out0"), (vec![2, 3], vec![1.0, 4.0, 9.0, 16.0, 25.0, 36.0]));
    assert_eq!(tensor(folder.path(), "mul/grad/other").1, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(tensor(folder.path(), "full/out0"), (vec![2], vec![f32::NEG_INFINITY; 2]));
    assert_eq!(tensor(folder.path(), "cat/grad/tensors.0").1, [1.0; 6]);
    let reports = reports(folder.path());
    assert_eq!(reports["mul"], object!({ "id": "mul", "status": "ok" }));
    assert_eq!(reports["a/b"]["error"]["code"], "MissingTensor");
    // Nothing is left of how the files came to be.
    assert_eq!(std::fs::read_dir(folder.path().join("results")).unwrap().count(), 2);
}

#[test]
fn bad_cases_are_reported_on_their_own() {
    let exp = |args: Value| call("", "prims::exp", args);
    let grad = |cotangents: Value, inputs: Value| {
        let mut case = exp(object!({ "input": named("x") }));
        case["grad"] = object!({ "cotangents": cotangents, "inputs": inputs });
        case
    };
    let select = object!({ "input": named("x"), "dim": 0, "index": named("index") });
    let full = |size: Value| {
        call("", "prims::full", object!({ "size": size, "fill_value": 1, "dtype": "f32", "device": "cpu" }))
    };
    let full_of = |dtype: Value| {
        call("", "prims::full", object!({ "size": [1], "fill_value": 1, "dtype": dtype, "device": "cpu" }))
    };
    let with = |mut case: Value, field: &str, value: Value| {
        case[field] = value;
        case
    };
    let expected = [
        (call("", "prims::expp", object!({})), "UnknownOperator", "did you mean 'prims::exp'?"),
        (exp(object!({ "inptu": named("x") })), "UnknownArgument", "did you mean 'input'?"),
        (exp(object!({})), "MissingArgument", "needs the argument 'input'"),
        (exp(object!({ "input": 1 })), "ArgumentType", "prims::exp: argument 'input' is tensor, got 1"),
        (exp(object!({ "input": named("y") })), "MissingTensor", "no tensor 'y'"),
        (exp(object!({ "input": named("index") })), "ArgumentDType", "expected a floating-point dtype"),
        (exp(object!({ "input": { "tensor": 1 } })), "BadCase", "args.input.tensor: expected a string"),
        (exp(object!({ "input": { "number": "huge" } })), "BadCase", "expected \"inf\""),
        (exp(object!({ "input": { "a": 1, "b": 2 } })), "BadCase", "args.input"),
        (exp(object!({ "input": { "dtype": "float31" } })), "BadCase", "unknown dtype 'float31'"),
        (exp(object!({ "input": u64::MAX })), "BadCase", "does not fit"),
        (with(exp(object!({})), "grda", object!({})), "BadCase", "a case has no field 'grda', did you mean 'grad'?"),
        (with(exp(object!({})), "notes", object!("")), "BadCase", "a case has no field 'notes' (its fields: id, op, "),
        (
            with(exp(object!({})), "grad", object!({ "inputs": [], "cotangent": [] })),
            "BadCase",
            "grad has no field 'cotangent', did you mean 'cotangents'?",
        ),
        (
            full_of(object!("float33")),
            "ArgumentType",
            "argument 'dtype': unknown dtype 'float33', expected one of bool, u8",
        ),
        (full_of(object!(3)), "ArgumentType", "argument 'dtype' is dtype, got 3"),
        (exp(object!([])), "BadCase", "args: expected an object"),
        (object!({ "id": "" }), "BadCase", "has no \"op\""),
        (object!({ "id": "", "op": 1 }), "BadCase", "op: expected a string"),
        (
            grad(object!([]), object!(["input"])),
            "Cotangents",
            "1 floating-point outputs need as many cotangents, got 0",
        ),
        (grad(object!(["index"]), object!(["input"])), "Cotangents", "output 0 is f32[2, 3]"),
        (grad(object!(["ones"]), object!(["x"])), "GradInput", "no tensor argument is called 'x', there are: input"),
        (grad(object!(["ones"]), object!(["input", "input"])), "GradInput", "named twice"),
        (grad(object!(["ones"]), object!([1])), "BadCase", "grad.inputs[0]"),
        (grad(object!("ones"), object!([])), "BadCase", "grad.cotangents: expected a list"),
        (call("", "prims::index_select", select), "IndexOutOfRange", "9"),
        (full(object!([1_000_000_000_000u64])), "PlanTooLarge", "the limit is"),
        (full(object!([u64::MAX >> 1, 4])), "TooLarge", "larger than any memory"),
    ];
    let mut cases = Vec::new();
    for (i, (case, ..)) in expected.iter().enumerate() {
        let mut case = case.clone();
        case["id"] = object!(format!("bad/{i:02}"));
        cases.push(case);
    }
    cases.push(call("good", "torch.exp", object!({ "input": named("x") })));
    let folder = folder(object!(cases));
    let ran = run_cases(folder.path());
    assert_eq!((ran.code, ran.out), (1, summary(1, expected.len())));
    let reports = reports(folder.path());
    for (i, (_, code, part)) in expected.iter().enumerate() {
        let error = &reports[&format!("bad/{i:02}")]["error"];
        let message = error["message"].as_str().unwrap();
        assert!(error["code"] == *code && message.contains(part), "{i}: {error}, expected {code}: {part}");
        assert!(!message.contains("run.rs"), "{message}");
        // It is told as it is written.
        assert!(ran.err.contains(&format!("error: case 'bad/{i:02}': {code}: {message}\n")), "{}", ran.err);
    }
    assert_eq!(reports["good"]["status"], "ok");
}

#[test]
fn cases_without_a_name_of_their_own_are_reported_by_their_place() {
    let good = |id: Value| {
        let mut case = call("", "exp", object!({ "input": named("x") }));
        case["id"] = id;
        case
    };
    let cases = [good(object!("a")), good(object!("a")), good(object!("")), good(object!(7)), object!({}), object!(1)];
    let more = [good(object!("b")), good(object!("cases[2]")), good(object!("c"))];
    let folder = folder(object!(cases.iter().cloned().chain(more).collect::<Vec<_>>()));
    // A number that no type holds.
    let path = folder.path().join("cases.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let last = text.rfind("\"args\"").unwrap().max(text.rfind("\"id\":\"c\"").unwrap());
    let huge = text[..last].to_owned() + &text[last..].replacen("\"c\"", "\"c\",\"torch\":1e999", 1);
    std::fs::write(&path, huge).unwrap();
    let ran = run_cases(folder.path());
    assert_eq!((ran.code, ran.out), (1, summary(3, 6)));
    assert_eq!(tensor(folder.path(), "a/out0"), tensor(folder.path(), "b/out0"));
    let text = std::fs::read_to_string(folder.path().join("results/results.json")).unwrap();
    let reports = json(&text);
    let told: Vec<(&str, &str)> = reports
        .as_array()
        .unwrap()
        .iter()
        .map(|report| (report["id"].as_str().unwrap(), report["error"]["message"].as_str().unwrap_or("ok")))
        .collect();
    let expected = [
        ("a", "ok"),
        ("a", "cases[1].id: 'a' occurs twice"),
        ("cases[2]'", "cases[2].id: expected a string that is not empty, got \"\""),
        ("cases[3]", "cases[3].id: expected a string that is not empty, got 7"),
        ("cases[4]", "cases[4]: expected an object with an \"id\", got an object"),
        ("cases[5]", "cases[5]: expected an object with an \"id\", got a number"),
        ("b", "ok"),
        ("cases[2]", "ok"),
        ("cases[8]", "cases[8]: number out of range at line 1 column 55"),
    ];
    assert_eq!(told, expected);
}

/// Strides reach the kernels: the results are those of contiguous arguments, and a program for them was compiled.
#[test]
fn arguments_have_the_strides_that_a_case_gives() {
    let laid_out = |id: &str, op: &str, args: Value, layout: Value| {
        let mut case = call(id, op, args);
        case["layout"] = layout;
        case
    };
    let x = || object!({ "input": named("x") });
    let mut gradient = laid_out(
        "grad",
        "prims::mul",
        object!({ "input": named("x"), "other": named("ones") }),
        object!({ "input": [1, 2], "other": [0, 0] }),
    );
    gradient["grad"] = object!({ "cotangents": ["ones"], "inputs": ["other"] });
    let bad = [
        (laid_out("", "exp", x(), object!({ "inputs": [1, 2] })), "Layout", "no tensor argument is called 'inputs'"),
        (laid_out("", "exp", x(), object!({ "input": [1] })), "Layout", "layout of 'input': argument 'strides'"),
        (laid_out("", "exp", x(), object!({ "input": [0, 1] })), "Layout", "elements of different values in one place"),
        (laid_out("", "exp", x(), object!({ "input": [1_i64 << 60, 1] })), "Layout", "further than memory"),
        (laid_out("", "exp", x(), object!({ "input": "C" })), "BadCase", "layout.input: expected a list of strides"),
        (laid_out("", "exp", x(), object!({ "input": [1.5, 1] })), "BadCase", "layout.input[0]: expected an integer"),
        (laid_out("", "exp", x(), object!([])), "BadCase", "layout: expected an object"),
    ];
    let mut cases = vec![
        laid_out("transposed", "prims::neg", x(), object!({ "input": [1, 2] })),
        laid_out("sliced", "prims::neg", x(), object!({ "input": [7, 2] })),
        laid_out("reversed", "prims::neg", x(), object!({ "input": [-3, 1] })),
        laid_out(
            "list",
            "cat",
            object!({ "tensors": [named("x"), named("x")], "dim": 1 }),
            object!({ "tensors.1": [1, 4] }),
        ),
        gradient,
    ];
    let good = cases.len();
    for (i, (case, ..)) in bad.iter().enumerate() {
        let mut case = case.clone();
        case["id"] = object!(format!("bad/{i}"));
        cases.push(case);
    }
    let folder = folder(object!(cases));
    let ran = run_with(folder.path(), &["ops", "run", ".", "--out", "results"], &[]);
    assert_eq!((ran.code, ran.out), (1, summary(good, bad.len())), "{}", ran.err);
    let x: Vec<f32> = (1..=6).map(|value| value as f32).collect();
    let negated: Vec<f32> = x.iter().map(|value| -value).collect();
    assert_eq!(tensor(folder.path(), "transposed/out0").1, negated);
    assert_eq!(tensor(folder.path(), "sliced/out0").1, negated);
    assert_eq!(tensor(folder.path(), "reversed/out0").1, negated);
    assert_eq!(tensor(folder.path(), "list/out0").1, [1., 2., 3., 1., 2., 3., 4., 5., 6., 4., 5., 6.]);
    assert_eq!(tensor(folder.path(), "grad/out0").1, x);
    assert_eq!(tensor(folder.path(), "grad/grad/other").1, x);
    let reports = reports(folder.path());
    for (i, (_, code, part)) in bad.iter().enumerate() {
        let error = &reports[&format!("bad/{i}")]["error"];
        assert!(error["code"] == *code && error["message"].as_str().unwrap().contains(part), "{i}: {error}");
    }
}

/// Where there is no device the reason is told before anything is run.
#[test]
fn cases_run_on_the_device_that_is_asked_for() {
    let folder = folder(object!([call("a", "exp", object!({ "input": named("x") }))]));
    let run = |device: &str| run_in(folder.path(), &["ops", "run", ".", "--out", "results", "--device", device]);
    assert_eq!(run("cpu").ok(), summary(1, 0));
    run("nowhere!").fails(2);
    let unknown = run("cdua").fails(2);
    assert!(unknown.contains("no kind of device is called 'cdua', did you mean 'cuda'?"), "{unknown}");
    // The host, where there is nothing else.
    assert_eq!(run("auto").ok(), summary(1, 0));
    let ran = run("cuda:0");
    match ran.code {
        // A machine with a GPU.
        0 => assert_eq!(ran.out, summary(1, 0)),
        _ => assert!(ran.err.starts_with("error: CUDA driver is not available"), "{}", ran.err),
    }
}

/// A run that is killed in the middle leaves the reports of what it did.
#[test]
#[cfg(unix)]
fn a_killed_run_leaves_its_reports() {
    use std::process::{Command, Stdio};
    let slow = object!({ "size": [4_000_000], "fill_value": 1.0, "dtype": { "dtype": "float64" }, "device": "cpu" });
    let cases: Vec<Value> = (0..2000).map(|i| call(&format!("{i}"), "full", slow.clone())).collect();
    let folder = folder(object!(cases));
    let mut child = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args(["ops", "run", ".", "--out", "results"])
        .current_dir(folder.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let reports = folder.path().join("results/results.json");
    while std::fs::metadata(&reports).map_or(0, |file| file.len()) < 400 {
        assert!(child.try_wait().unwrap().is_none(), "all cases ran, and no reports were written on the way");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let told = json(&std::fs::read_to_string(&reports).unwrap());
    let told = told.as_array().unwrap();
    assert!(told.len() > 3 && told.iter().all(|report| report["status"] == "ok"), "{told:?}");
    // 32 MB each: what 64 MiB do not hold is in parts, each a file of its own.
    let parts = std::fs::read_dir(folder.path().join("results")).unwrap().map(|entry| entry.unwrap().path());
    let parts: Vec<_> = parts.filter(|path| path.to_string_lossy().contains(".part-")).collect();
    assert!(!parts.is_empty());
}

/// Files of limited size: what fits is written, and the error names the others.
#[test]
#[cfg(unix)]
fn results_that_cannot_be_written_do_not_take_others_with_them() {
    // 32 MB each: two are too much to hold, and too much for one file.
    let wide = object!({ "size": [8_000_000], "fill_value": 1.0, "dtype": { "dtype": "float32" }, "device": "cpu" });
    let cases: Vec<Value> = (0..4).map(|i| call(&format!("{i}"), "full", wide.clone())).collect();
    let folder = folder(object!(cases));
    // The signal is ignored, so that a write fails instead of ending the process. In blocks of 512 bytes: 69.6 MB.
    let script = "trap '' XFSZ; ulimit -f 136000; exec \"$0\" ops run . --out results";
    let output = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_fulgurite")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.starts_with("error: results/results.safetensors: writing the partial file: "), "{complaint}");
    assert!(complaint.contains("; the results are in results.part-N.safetensors"), "{complaint}");
    // Every result is in some part, each of which is a file that can be read.
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder.path().join("results")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            let bytes = std::fs::read(&path).unwrap();
            let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            found.extend(file.names().into_iter().map(str::to_owned));
        }
    }
    found.sort();
    assert_eq!(found, ["0/out0", "1/out0", "2/out0", "3/out0"]);
}

#[test]
fn split_is_what_it_is_given() {
    let size = object!({ "tensor": named("x"), "split_size_or_sections": 2, "dim": 1 });
    let sections = object!({ "tensor": named("x"), "split_size_or_sections": [1, 2], "dim": 1 });
    let mut whole = call("grad", "split", object!({ "tensor": named("x"), "split_size_or_sections": 2 }));
    whole["grad"] = object!({ "cotangents": ["ones"], "inputs": ["tensor"] });
    // A function of two names.
    let softmax = call("softmax", "torch.nn.functional.softmax", object!({ "input": named("x"), "dim": 1 }));
    let folder =
        folder(object!([call("size", "split", size), call("sections", "torch.split", sections), whole, softmax]));
    let ran = run_cases(folder.path());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(tensor(folder.path(), "grad/grad/tensor"), (vec![2, 3], vec![1.0; 6]));
    assert_eq!(tensor(folder.path(), "softmax/out0").0, [2, 3]);
    assert_eq!(tensor(folder.path(), "size/out1"), (vec![2, 1], vec![3.0, 6.0]));
    assert_eq!(tensor(folder.path(), "sections/out1"), (vec![2, 2], vec![2.0, 3.0, 5.0, 6.0]));
}

#[test]
fn broken_files_are_named_with_the_place() {
    let folder = folder(object!([]));
    let cases = folder.path().join("cases.json");
    let bad = [
        ("{\"version\": 1,\n \"cases\": [}", "line 2 column 12"),
        ("[]", "expected an object"),
        ("{\"cases\": []}", "has no \"version\""),
        ("{\"version\": 2, \"cases\": []}", "version is 2, expected 1"),
        ("{\"version\": 1}", "has no \"cases\""),
        ("{\"version\": 1, \"case\": []}", "has no field 'case', did you mean 'cases'?"),
        ("{\"version\": 1, \"cases\": [], \"seed\": 1}", "has no field 'seed' (its fields: version, cases)"),
        ("{\"version\": 1, \"cases\": {}}", "cases: expected a list"),
        (&"[".repeat(100_000), "EOF while parsing"),
    ];
    for (text, place) in bad {
        std::fs::write(&cases, text).unwrap();
        let complaint = run_cases(folder.path()).fails(1);
        assert!(complaint.contains("cases.json: ") && complaint.contains(place), "{complaint}");
        assert!(!folder.path().join("results").exists());
    }
    std::fs::write(&cases, "{\"version\": 1, \"cases\": []}").unwrap();
    let tensors = folder.path().join("tensors.safetensors");
    let good = std::fs::read(&tensors).unwrap();
    let broken: [&[u8]; 4] = [b"", b"nonsense", &good[..good.len() - 1], &[255; 64]];
    for bytes in broken {
        std::fs::write(&tensors, bytes).unwrap();
        assert!(run_cases(folder.path()).fails(1).contains("tensors.safetensors: "));
    }
    std::fs::remove_file(&tensors).unwrap();
    assert!(run_cases(folder.path()).fails(1).contains("tensors.safetensors: "));
    std::fs::remove_file(&cases).unwrap();
    assert!(run_cases(folder.path()).fails(1).contains("cases.json: "));
}

#[test]
fn executors_are_chosen_by_name() {
    let folder = folder(object!([call("a", "prims::exp", object!({ "input": named("x") }))]));
    let run =
        |executors: &str| run_in(folder.path(), &["ops", "run", ".", "--out", "results", "--executors", executors]);
    assert_eq!(run("reference").ok(), summary(1, 0));
    let by_reference = tensor(folder.path(), "a/out0");
    assert_eq!(run("cpu,reference").ok(), summary(1, 0));
    let by_cpu = tensor(folder.path(), "a/out0");
    assert!(by_reference.1.iter().zip(&by_cpu.1).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs()));
    assert!(run("abacus").fails(1).contains("no executor is called 'abacus'"));
}

#[test]
fn samples_are_exported_and_run() {
    let folder = tempfile::tempdir().unwrap();
    // Of one element type: the generated tests run the samples of all.
    let said = run_in(folder.path(), &["ops", "samples", "--dtype", "f32", "--out", "samples"]).ok();
    let cases = json(&std::fs::read_to_string(folder.path().join("samples/cases.json")).unwrap());
    let count = cases["cases"].as_array().unwrap().len();
    assert_eq!(said, format!("{count} cases\n"));
    assert_eq!(run_in(folder.path(), &["ops", "run", "samples", "--out", "results"]).ok(), summary(count, 0));
    let with_grad = cases["cases"].as_array().unwrap().iter().filter(|case| case.get("grad").is_some()).count();
    assert!(with_grad * 4 > count, "{with_grad} of {count} cases have gradients");
    let one = ["ops", "samples", "--op", "torch.gather", "--dtype", "bfloat16", "--out", "one"];
    run_in(folder.path(), &one).ok();
    let cases = json(&std::fs::read_to_string(folder.path().join("one/cases.json")).unwrap());
    let case = &cases["cases"][0];
    assert_eq!(case["torch"], "gather");
    assert!(case["id"].as_str().unwrap().contains("/bf16/"), "{case}");
    assert!(run(&["ops", "samples", "--op", "nothing", "--out", "x"]).fails(1).contains("'nothing'"));
    run(&["ops", "samples", "--dtype", "f31", "--out", "x"]).fails(2);
}

#[test]
fn the_log_is_asked_for() {
    let folder = folder(object!([call("a", "prims::exp", object!({ "input": named("index") }))]));
    let arguments = ["ops", "run", ".", "--out", "results"];
    let ran = run_with(folder.path(), &arguments, &[("FULGURITE_LOG", "debug")]);
    assert!(ran.code == 1 && ran.err.contains("tracing failed"), "{}", ran.err);
    let silent = run_with(folder.path(), &arguments, &[("FULGURITE_LOG", "")]).err;
    assert!(silent.starts_with("error: case 'a': ") && !silent.contains("tracing failed"), "{silent}");
    let ran = run_with(folder.path(), &arguments, &[("FULGURITE_LOG", "fulgurite=loud")]);
    assert!(ran.fails(1).contains("FULGURITE_LOG"));
}
