//! `trace show`, `run`, `verify` and `diff`.

use std::path::Path;

use fulgurite::{Array, DType};

use crate::{Ran, json, run, run_in};

/// Stores what `trace show` prints.
fn show(folder: &Path, file: &str, arguments: &[&str]) {
    let text = run(&[&["trace", "show"], arguments].concat()).ok();
    std::fs::write(folder.join(file), text).unwrap();
}

/// The output without where it was written.
fn out_of(ran: Ran) -> String {
    ran.ok()
}

#[test]
fn traces_of_operators() {
    let text = run(&["trace", "show", "prims::exp", "--sample", "3"]).ok();
    assert_eq!(
        text,
        "# fulgurite trace 2\n# made by acquire\ntrace exp for cpu (input: f32[4, 8]) {\n  \
         exp = exp(input)\n  return out0 = exp\n}\n"
    );
    let text = run(&["trace", "show", "prims::exp", "--backward", "--dtype", "bf16", "--stage", "claim"]).ok();
    assert!(text.contains("cotangent.out0: bf16[] cotangent") && text.contains(" by cpu"), "{text}");
    let text = run(&["trace", "show", "prims::exp", "--stage", "claim", "--executors", "reference"]).ok();
    assert!(text.contains(" by reference"), "{text}");
    let text = run(&["trace", "show", "prims::exp", "--stage", "all"]).ok();
    assert!(text.starts_with("# === acquire ===\n") && text.contains("\n# === plan_memory ===\n"), "{text}");
    // No device is needed for what no executor is asked for.
    let text = run(&["trace", "show", "prims::exp", "--target", "cuda:sm_90a"]).ok();
    assert!(text.contains("trace exp for cuda:sm_90a (input: f32[]) {"), "{text}");
    let text = run(&["trace", "show", "prims::exp", "--target", "cuda:sm_90a", "--full"]).ok();
    assert!(text.contains("trace exp for cuda:sm_90a (input: f32[]@cuda:0) {"), "{text}");
}

#[test]
fn what_cannot_be_shown() {
    let complaint = run(&["trace", "show", "prims::exp", "--stage", "nope"]).fails(1);
    assert!(complaint.contains("no stage is called 'nope', there are: acquire, rewrite, "), "{complaint}");
    assert!(run(&["trace", "show", "prims::exq"]).fails(1).contains("did you mean"));
    assert!(run(&["trace", "show", "prims::exp", "--sample", "1000"]).fails(1).contains("the last is"));
    assert!(run(&["trace", "show", "prims::exp", "--dtype", "i64"]).fails(1).contains("no sample in i64"));
    assert!(run(&["trace", "show", "prims::eq", "--backward"]).fails(1).contains("no gradient"));
    assert!(
        run(&["trace", "show", "prims::exp", "--executors", "cpi"]).fails(1).contains("no executor is called 'cpi'")
    );
    run(&["trace", "show", "prims::exp", "--target", "c p u"]).fails(2);
    run(&["trace", "show", "prims::exp", "--dtype", "f31"]).fails(2);
    let complaint = run(&["trace", "show", "prims::exp", "--executors", "view", "--stage", "claim"]).fails(1);
    assert!(complaint.contains("no executor takes it") && !complaint.contains(".rs:"), "{complaint}");
}

/// Both programs of a model's loss, and what is saved between them.
#[test]
fn forward_and_backward_of_a_model() {
    let show = |arguments: &[&str]| {
        let small = ["trace", "show", "gpt2-loss", "--layers", "1", "--context", "8", "--batch", "1", "--backward"];
        run(&[&small, arguments].concat())
    };
    let text = show(&["--plain"]).ok();
    for expected in [
        "trace loss.forward for cpu (",
        "# saved for the backward program: ",
        " arguments of ",
        "#   params.wte.weight: f32[",
        "trace loss.backward for cpu (",
        "  cotangent.loss: f32[] cotangent,",
        "grad.params.wte.weight = ",
    ] {
        assert!(text.contains(expected), "expected {expected} in\n{text}");
    }
    // The two programs are not the loss alone.
    let loss = run(&["trace", "show", "gpt2-loss", "--layers", "1", "--context", "8", "--batch", "1", "--plain"]).ok();
    assert!(!loss.contains("backward") && loss != text, "{loss}");
    let claimed = show(&["--plain", "--stage", "claim"]).ok();
    assert!(claimed.matches("# made by").count() == 2 && claimed.contains(" by cpu"), "{claimed}");
    let joint = show(&["--plain", "--stage", "vjp"]).ok();
    assert!(joint.contains("trace loss for cpu (") && joint.matches("# made by").count() == 1, "{joint}");
    let all = show(&["--plain", "--stage", "all"]).ok();
    assert!(all.contains("# === vjp ===") && all.contains("# === backward: delete_last_used ==="), "{all}");
    let sources = show(&["--stage", "sources", "--target", "cuda:sm_90a"]).ok();
    assert!(sources.contains("__global__"), "{sources}");
    assert!(show(&["--stage", "nope"]).fails(1).contains("there are: acquire, rewrite, vjp, "));
    assert!(run(&["trace", "show", "gpt2", "--backward"]).fails(1).contains("holds its backward pass"));
}

#[test]
fn targets_that_nothing_runs_on_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (target, message) in [
        ("gpu", "no executor runs on 'gpu'; there are cpu, cuda"),
        ("gpu:sm_90a", "no executor runs on 'gpu'; there are cpu, cuda"),
        ("cuda:banana", "'banana' is not an architecture of 'cuda', expected sm_ and one of 50, 52, "),
        ("cuda:sm_999", "'sm_999' is not an architecture of 'cuda', expected sm_ and one of 50, 52, "),
        ("cpu:sm_90a", "'cpu' has no architectures, got 'sm_90a'"),
    ] {
        let complaint = run(&["trace", "show", "prims::exp", "--target", target]).fails(2);
        assert!(complaint.contains(message), "{complaint}");
        let text = format!("# fulgurite trace 2\n# made by acquire\ntrace f for {target} () {{\n  return\n}}\n");
        std::fs::write(folder.path().join("elsewhere.trace"), text).unwrap();
        let complaint = run_in(folder.path(), &["trace", "run", "elsewhere.trace"]).fails(1);
        assert!(complaint.contains(&format!("elsewhere.trace: {message}")), "{complaint}");
    }
}

#[test]
fn a_compilation_that_fails_shows_what_it_came_to() {
    let broken = ["trace", "show", "softmax", "--executors", "view"];
    let ran = run(&[&broken[..], &["--stage", "all"]].concat());
    assert_eq!(ran.code, 1);
    assert!(ran.out.starts_with("# === acquire ===\n") && ran.out.contains("\n# === cse ===\n"), "{}", ran.out);
    assert!(!ran.out.contains("# === claim ==="), "{}", ran.out);
    let place = "error: compilation ends in stage 'claim', at line 'softmax: ";
    assert!(ran.err.starts_with(place) && ran.err.contains("no executor takes it"), "{}", ran.err);
    // A stage before is shown as if nothing had failed; one after is not there.
    assert!(run(&[&broken[..], &["--stage", "cse"]].concat()).ok().starts_with("# fulgurite trace 2\n"));
    assert!(run(&[&broken[..], &["--stage", "layout"]].concat()).fails(1).starts_with(place));
    let complaint = run(&[&broken[..], &["--stage", "nope"]].concat()).fails(1);
    let stages = "no stage is called 'nope', there are: acquire, complex_to_real, rewrite, ";
    assert!(complaint.contains(stages), "{complaint}");
}

#[test]
fn a_joint_trace_and_the_stage_autodiff_have_two_names() {
    let show = |stage: &str| run(&["trace", "show", "prims::exp", "--backward", "--stage", stage]).ok();
    assert!(show("vjp").contains("\n# made by acquire, vjp\n"), "{}", show("vjp"));
    assert!(show("autodiff").contains("\n# made by acquire, vjp, rewrite, autodiff\n"), "{}", show("autodiff"));
    assert_eq!(show("all").matches("# === autodiff ===").count(), 1);
}

#[test]
fn stored_traces_of_every_stage_run_alike() {
    let folder = tempfile::tempdir().unwrap();
    let stages = "acquire rewrite autodiff dce cse claim fuse layout donate plan_memory delete_last_used";
    for operator in ["prims::exp", "prims::permute", "prims::cat"] {
        let mut expected = None;
        for stage in stages.split(' ') {
            show(folder.path(), "stage.trace", &[operator, "--sample", "1", "--stage", stage]);
            let said = run_in(folder.path(), &["trace", "verify", "stage.trace"]).ok();
            assert!(said.ends_with(": valid\n"), "{said}");
            let out = out_of(run_in(folder.path(), &["trace", "run", "stage.trace", "--seed", "7"]));
            assert_eq!(*expected.get_or_insert(out.clone()), out, "{operator} after {stage}");
        }
    }
}

#[test]
fn inputs_are_given_by_name() {
    let folder = tempfile::tempdir().unwrap();
    show(folder.path(), "exp.trace", &["prims::exp", "--sample", "3", "--stage", "delete_last_used"]);
    let write = |name: &str, arrays: &[(&str, Array)]| {
        let data: Vec<Vec<u8>> = arrays.iter().map(|(_, array)| array.to_bytes().unwrap()).collect();
        let views = arrays.iter().zip(&data).map(|((key, array), bytes)| {
            let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, array.shape().to_vec(), bytes);
            (*key, view.unwrap())
        });
        std::fs::write(folder.path().join(name), safetensors::serialize(views, None).unwrap()).unwrap();
    };
    let zeros = Array::zeros([4, 8], DType::F32).unwrap();
    write("good.safetensors", &[("input", zeros.clone())]);
    write("wrong.safetensors", &[("input", Array::zeros([4], DType::F32).unwrap())]);
    write("more.safetensors", &[("input", zeros.clone()), ("other", zeros)]);
    write("none.safetensors", &[]);
    std::fs::write(folder.path().join("bad.safetensors"), "nonsense").unwrap();
    let run = |inputs: &str| {
        run_in(folder.path(), &["trace", "run", "exp.trace", "--inputs", inputs, "--json", "--out", "out.safetensors"])
    };
    for read in ["exp.trace", "good.safetensors"] {
        let over = ["trace", "run", "exp.trace", "--inputs", "good.safetensors", "--out", read];
        let complaint = run_in(folder.path(), &over).fails(1);
        assert!(complaint.contains("is read, and would be written over"), "{complaint}");
    }
    let outputs = json(&run("good.safetensors").ok());
    assert_eq!(outputs[0]["path"], "out0");
    assert_eq!(outputs[0]["shape"], serde_json::json!([4, 8]));
    assert!(outputs[0]["values"].as_array().unwrap().iter().all(|value| *value == 1.0));
    assert_eq!(outputs[0]["truncated"], true);
    let written = std::fs::read(folder.path().join("out.safetensors")).unwrap();
    assert_eq!(safetensors::SafeTensors::deserialize(&written).unwrap().tensor("out0").unwrap().shape(), [4, 8]);
    assert!(run("wrong.safetensors").fails(1).contains("tensor 'input' is f32[4], the trace takes f32[4, 8]"));
    assert!(run("more.safetensors").fails(1).contains("no input 'other', it has: input"));
    assert!(run("none.safetensors").fails(1).contains("no tensor 'input'"));
    assert!(run("bad.safetensors").fails(1).contains("bad.safetensors: "));
    assert!(run("absent.safetensors").fails(1).contains("absent.safetensors: "));
}

#[test]
fn files_that_are_no_traces() {
    let folder = tempfile::tempdir().unwrap();
    show(folder.path(), "exp.trace", &["prims::exp"]);
    let text = std::fs::read_to_string(folder.path().join("exp.trace")).unwrap();
    let bad = [
        ("empty", String::new(), ":1:1: "),
        ("operator", text.replace("= exp(", "= exq("), ":4:"),
        ("type", text.replace("exp = ", "exp: f32[2] = "), "exp: f32[2]"),
        ("name", text.replace("(input)", "(inputs)"), "inputs"),
    ];
    for (name, text, part) in bad {
        assert_ne!(text, std::fs::read_to_string(folder.path().join("exp.trace")).unwrap(), "{name}");
        std::fs::write(folder.path().join("bad.trace"), text).unwrap();
        for command in ["verify", "run"] {
            let complaint = run_in(folder.path(), &["trace", command, "bad.trace"]).fails(1);
            assert!(complaint.contains("bad.trace") && complaint.contains(part), "{name}: {complaint}");
        }
    }
    std::fs::write(folder.path().join("bad.trace"), [0xff, 0xfe]).unwrap();
    run_in(folder.path(), &["trace", "verify", "bad.trace"]).fails(1);
    run_in(folder.path(), &["trace", "verify", "absent.trace"]).fails(1);
}

#[test]
fn plans_that_reach_elsewhere_are_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let head = "# fulgurite trace 2\n# made by acquire, claim, layout, donate, plan_memory\ntrace f for cpu";
    let result = "  s: f32[] = prims::sum(w, dims=[0]) by cpu\n  return out0 = s\n";
    let fill = "prims::full(size=[100000], fill_value=1.0, dtype=f32) by cpu";
    let bad = [
        (
            "(x: f32[4] donated)",
            format!("  w: f32[100000] = {fill}\n"),
            "w in x",
            "takes the memory of 'x', which is f32[4]",
        ),
        ("(x: f32[4])", "  w: f32[4] = prims::exp(x) by cpu\n".into(), "w in x", "'x', which is not donated"),
        (
            "(x: f32[4] donated strides [0])",
            "  w: f32[4] = prims::exp(x) by cpu\n".into(),
            "w in x",
            "takes the memory of 'x', which is f32[4] in another layout",
        ),
        (
            "(x: f32[4], y: f32[1])",
            "  w: f32[2] = prims::slice(x, starts=[0], ends=[2], steps=[1]) by view\n".into(),
            "w in y",
            "'w' is a view of 'x', which is elsewhere",
        ),
        ("(x: f32[4])", "  w: f32[4] = prims::exp(x) by cpu\n".into(), "w at 1", "not a multiple of 4"),
        (
            "(x: f32[2, 2])",
            "  t: f32[2, 2] = prims::permute(x, dims=[1, 0]) by view\n  w: f32[4] = prims::reshape(t, shape=[4]) by \
             view\n"
                .into(),
            "w at 0",
            "its operand's memory cannot be looked at in that way",
        ),
    ];
    for (inputs, line, memory, part) in bad {
        let text = format!("{head} {inputs} arena 64 {{\n{line}{result}  memory {{ {memory} }}\n}}\n");
        std::fs::write(folder.path().join("bad.trace"), text).unwrap();
        let complaint = run_in(folder.path(), &["trace", "run", "bad.trace"]).fails(1);
        assert!(complaint.contains(part), "{line}: {complaint}");
    }
}

#[test]
fn outputs_have_memory_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let text = "# fulgurite trace 2\n# made by acquire, claim, plan_memory\ntrace f for cpu (x: f32[4]) arena 0 {\n  \
                w: f32[4] = prims::contiguous(x) by cpu\n  v: f32[4] = prims::contiguous(x) by cpu\n  \
                return out0 = w, out1 = v memory { v in w }\n}\n";
    std::fs::write(folder.path().join("bad.trace"), text).unwrap();
    for command in ["verify", "run"] {
        let complaint = run_in(folder.path(), &["trace", command, "bad.trace"]).fails(1);
        assert!(complaint.contains("'v' takes the memory of 'w', which is read later"), "{complaint}");
    }
}

#[test]
fn regions_that_cannot_be_run_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let mixed = "(y: f32[9]) {\n  r: f32[4], s: f32[9] = region([y], executor=cpu) by cpu {\n    (y: f32[9])\n    \
                 a: f32[4] = prims::full(size=[4], fill_value=1.0, dtype=f32, device=\"cpu\") by cpu\n    \
                 b: f32[9] = prims::exp(y) by cpu\n    yield a, b\n  }\n  return out0 = r, out1 = s\n}\n";
    let reshaped = "(x: f32[1]) {\n  r: f32[] = region([x], executor=cpu) by cpu {\n    (x: f32[1])\n    \
                    r: f32[] = prims::reshape(x, shape=[]) by cpu\n    yield r\n  }\n  return out0 = r\n}\n";
    let deleted = "(x: f32[2]) {\n  y: f32[2] = region([x], executor=cpu) by cpu {\n    (x: f32[2])\n    \
                   a: f32[2] = prims::exp(x) by cpu\n    y: f32[2] = prims::add(a, x) by cpu; del a\n    yield y\n  }\n  \
                   return out = y\n}\n";
    let bad = [
        (deleted, "a region holds operators, not 'del'"),
        (
            mixed,
            "'cpu' does not run this region: over [9], 'a: f32[4] = prims::full(size=[4], fill_value=1.0, dtype=f32)",
        ),
        (reshaped, "'x' is f32[1], the region is over [] and reads its shape or rows of it"),
    ];
    for (text, part) in bad {
        std::fs::write(folder.path().join("bad.trace"), format!("# fulgurite trace 2\ntrace f for cpu {text}"))
            .unwrap();
        let complaint = run_in(folder.path(), &["trace", "run", "bad.trace"]).fails(1);
        assert!(complaint.contains(part), "{complaint}");
    }
}

#[test]
fn differences_exit_with_one() {
    let folder = tempfile::tempdir().unwrap();
    show(folder.path(), "a", &["prims::exp"]);
    show(folder.path(), "b", &["prims::exp", "--sample", "3"]);
    assert_eq!(run_in(folder.path(), &["trace", "diff", "a", "a"]).ok(), "");
    let ran = run_in(folder.path(), &["trace", "diff", "a", "b"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert!(ran.out.contains("+ exp: f32[4, 8] = prims::exp(input)  # types"), "{}", ran.out);
    assert!(run_in(folder.path(), &["trace", "diff", "a", "c"]).fails(1).contains("c: "));
}

#[test]
fn the_loss_of_odd_classes_reads_no_numbers_of_columns_and_whole_vectors() {
    let options = "gpt2 --size 124M --layers 1 --tokenizer gpt2 --batch 16 --context 1024 --autocast bf16 \
                   --target cuda:sm_90a --stage sources";
    let words: Vec<&str> = ["trace", "show"].into_iter().chain(options.split_whitespace()).collect();
    let sources = run(&words).ok();
    let start = sources.find("rows of 50304 elements").expect("the loss is a region of whole rows");
    let kernel = &sources[start..];
    let kernel = &kernel[..kernel.find("\n}\n").expect("the kernel ends")];
    assert!(kernel.lines().next().is_some_and(|line| line.contains("8 at once")), "{kernel}");
    // The numbers of columns are computed; what is loaded by columns is the logits, in 16 bits.
    assert!(kernel.contains("= (int)(column + j);"), "{kernel}");
    let loads: Vec<&str> = kernel.lines().filter(|line| line.contains("load<")).collect();
    assert!(!loads.is_empty() && loads.iter().all(|line| line.contains("row")), "{loads:#?}");
}

#[test]
fn lines_without_a_memory_plan_do_not_move_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let store = |file: &str, line: &str| {
        let text = format!("# fulgurite trace 2\ntrace f for cpu (a: f32[4]) {{\n  {line}\n  return out = y\n}}\n");
        std::fs::write(folder.path().join(file), text).unwrap();
    };
    store("one", "y: f32[4] = prims::exp(a)");
    store("two", "y: f32[4], z: i64[4] = prims::topk(a, k=4, dim=0, largest=true)");
    let ran = run_in(folder.path(), &["trace", "diff", "one", "two"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert!(ran.out.contains("prims::topk") && !ran.out.contains("storage"), "{}", ran.out);
}

#[test]
fn differences_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    show(folder.path(), "a", &["prims::matmul", "--stage", "claim"]);
    show(folder.path(), "b", &["prims::matmul", "--stage", "claim", "--executors", "reference"]);
    let ran = run_in(folder.path(), &["trace", "diff", "a", "b", "--json"]);
    assert_eq!(ran.code, 1);
    let found = json(&ran.out);
    assert_eq!(found["counts"]["reclaimed"], 1, "{found}");
    assert_eq!(found["totals"]["before"], found["totals"]["after"]);
    assert!(found["totals"]["after"]["flops"].as_u64().is_some_and(|flops| flops > 0), "{found}");
    assert_eq!(found["totals"]["after"]["launches"], 1);
    let markdown = run_in(folder.path(), &["trace", "diff", "a", "b", "--markdown"]);
    assert!(markdown.out.contains("1 reclaimed") && markdown.out.contains("```diff"), "{}", markdown.out);
    assert!(run_in(folder.path(), &["trace", "diff", "a", "a", "--markdown"]).ok().contains("No difference."));
    // A product has two operations a term; each operand and each result is moved once.
    let store = |file: &str, inputs: &str, call: &str, result: &str| {
        let text = format!(
            "# fulgurite trace 2\ntrace f for cpu ({inputs}) {{\n  y: {result} = {call}\n  return out = y\n}}\n"
        );
        std::fs::write(folder.path().join(file), text).unwrap();
    };
    store("product", "a: f32[2, 3], b: f32[3, 5]", "prims::matmul(a, b) by cpu", "f32[2, 5]");
    store("square", "a: f32[2, 3], b: f32[3, 5]", "prims::mul(a, a) by cpu", "f32[2, 3]");
    let totals = json(&run_in(folder.path(), &["trace", "diff", "product", "square", "--json"]).out)["totals"].take();
    assert_eq!((&totals["before"]["flops"], &totals["before"]["bytes"]), (&60.into(), &124.into()), "{totals}");
    assert_eq!((&totals["after"]["flops"], &totals["after"]["bytes"]), (&6.into(), &48.into()), "{totals}");
    // What is compared need not be valid: the operator refuses these arguments.
    store("refused", "a: f32[2], b: f32[3]", "prims::matmul(a, b) by cpu", "f32[2]");
    let ran = run_in(folder.path(), &["trace", "diff", "product", "refused", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert_eq!(json(&ran.out)["totals"]["after"]["flops"], 0);
    // A type that no memory holds is an error of the text: rules multiply its extents.
    let large = "f32[4000000000, 4000000000]";
    store("large", &format!("a: {large}, b: {large}"), "prims::matmul(a, b) by cpu", large);
    let complaint = run_in(folder.path(), &["trace", "diff", "product", "large", "--json"]).fails(1);
    assert!(complaint.contains("large:2:20: f32[4000000000, 4000000000] is larger than any memory"), "{complaint}");
}

#[test]
fn snapshots_are_compared_with_those_of_a_commit() {
    let folder = tempfile::tempdir().unwrap();
    let git = |arguments: &[&str]| {
        let identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"];
        let ran = std::process::Command::new("git").args(identity).args(arguments).current_dir(folder.path()).output();
        let ran = ran.expect("git is installed");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    let store = |file: &str, arguments: &[&str]| {
        let text = run(&[&["trace", "show"], arguments].concat()).ok();
        // A program has its own first lines, or the version is that of the file.
        let text = if file.starts_with("sin") {
            format!("== forward, claimed\n\n{text}")
        } else {
            let program: Vec<&str> = text.lines().skip_while(|line| line.starts_with('#')).collect();
            format!("# fulgurite trace 2\n== forward, claimed\n{}\n", program.join("\n"))
        };
        std::fs::write(folder.path().join(file), format!("---\nsource: x\n---\n{text}")).unwrap();
    };
    // A stage whose program is the one before, of one executor.
    let abs = run(&["trace", "show", "prims::abs"]).ok();
    let abs: Vec<&str> = abs.lines().skip_while(|line| line.starts_with('#')).collect();
    let store_abs = |file: &str, executor: &str| {
        let claimed = format!("== forward, claimed: as acquired, by {executor}");
        let text = format!("# fulgurite trace 2\n== forward, acquired\n{}\n{claimed}\n", abs.join("\n"));
        std::fs::write(folder.path().join(file), text).unwrap();
    };
    git(&["init", "--quiet"]);
    store_abs("abs.snap", "cpu");
    store("exp.snap", &["prims::exp", "--stage", "claim"]);
    store("sin.snap", &["prims::sin", "--stage", "claim"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "snapshots"]);
    assert!(run_in(folder.path(), &["review", "HEAD"]).ok().contains("no program changed"));
    // What a failed test left stands for the file; a new file is one.
    store("exp.snap.new", &["prims::exp", "--stage", "claim", "--executors", "reference"]);
    store_abs("abs.snap.new", "reference");
    store("cos.snap", &["prims::cos", "--stage", "claim"]);
    let found = json(&run_in(folder.path(), &["review", "--json", "-"]).ok());
    let files = found["files"].as_array().unwrap();
    let subjects: Vec<&str> = files.iter().map(|file| file["subject"].as_str().unwrap()).collect();
    assert_eq!(subjects, ["abs", "exp", "cos"]);
    for file in &files[..2] {
        let program = &file["programs"][0];
        assert_eq!((&program["stage"], &file["pending"]), (&"forward, claimed".into(), &true.into()), "{file}");
        assert_eq!(program["difference"]["counts"]["reclaimed"], 1, "{file}");
        assert!(program["findings"][0]["text"].as_str().unwrap().contains("from cpu to reference"), "{file}");
    }
    assert_eq!(files[2]["programs"][0]["change"], "new");
}

#[test]
fn inputs_that_do_not_fit_are_refused_before_they_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let text = "# fulgurite trace 2\ntrace f for cpu (x: f32[100000000000]) \
                {\n  y: f32[100000000000] = prims::exp(x)\n  return result = y\n}\n";
    std::fs::write(folder.path().join("large.trace"), text).unwrap();
    let complaint = run_in(folder.path(), &["trace", "run", "large.trace"]).fails(1);
    assert!(complaint.contains("the limit is"), "{complaint}");
}

/// The rules of an operator's gradient are found before the first stage of its joint trace.
#[test]
fn who_supplies_gradients_of_an_operator_is_explained() {
    let said = run(&["trace", "show", "softmax", "--backward", "--explain"]).ok();
    assert!(said.starts_with("gradient of "), "{said}");
    assert!(said.contains(" by cpu\n"), "{said}");
    let said = run(&["trace", "show", "softmax", "--explain"]).ok();
    assert!(!said.contains("gradient of "), "{said}");
}

/// Names that have nothing for the target are told in one line each time, and what is right goes on.
#[test]
fn executors_of_other_devices_are_told() {
    let gelu = ["trace", "show", "gelu", "--dtype", "bf16", "--explain", "--executors"];
    let show = |names: &str, target: &str| {
        let ran = run(&[&gelu[..], &[names, "--target", target]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.err
    };
    assert_eq!(
        show("cpu,fusion,cuda,reference", "cuda:sm_90a"),
        "warning: --executors: of no use for cuda: cpu (runs on cpu), reference (runs on cpu)\n"
    );
    assert_eq!(show("flash,default", "cpu"), "warning: --executors: of no use for cpu: flash (runs on cuda)\n");
    assert_eq!(show("flash,default", "cuda:sm_90a"), "");
    assert_eq!(
        show("fp8,default", "cuda:sm_80"),
        "warning: --executors: fp8 rounds nothing to 8 bits on sm_80, which has no products of 8 bits, as sm_89 and \
         later architectures have\n"
    );
    assert_eq!(show("fp8,default", "cuda:sm_89"), "");
    let folder = tempfile::tempdir().unwrap();
    let train = ["train", "gpt2", "--size", "nano", "--context", "16", "--batch", "2", "--bench", "1"];
    let ran =
        crate::run_in(folder.path(), &[&train[..], &["--device", "cpu", "--executors", "flash,default"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.err, "warning: --executors: of no use for cpu: flash (runs on cuda)\n");
}

/// A limit on the address space stands for a machine that lacks memory: the command says so, and is not aborted.
#[cfg(target_os = "linux")]
#[test]
fn random_inputs_beyond_memory_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.trace");
    std::fs::write(&path, "# fulgurite trace 2\ntrace f for cpu (x: u8[2500000000]) {\n  return x = x\n}\n").unwrap();
    let script = "ulimit -v 2000000; exec \"$0\" trace run \"$1\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_fulgurite")])
        .arg(&path)
        .env_remove("FULGURITE_LOG")
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?}: {complaint}", output.status);
    // The plan is refused first where less than that is available.
    let told = complaint.contains("'x', u8[2500000000]: could not allocate 2500000000 bytes of host memory");
    assert!(told || complaint.contains("the plan needs"), "{complaint}");
}

/// A kernel that lacks scratch memory is its operator's error, with the bytes: the reference computes in f64.
#[cfg(target_os = "linux")]
#[test]
fn scratch_memory_beyond_memory_is_an_error_of_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.trace");
    let line = "y: f32[100000000] = prims::exp(x) by reference";
    let text = format!("# fulgurite trace 2\ntrace f for cpu (x: f32[100000000]) {{\n  {line}\n  return y = y\n}}\n");
    std::fs::write(&path, text).unwrap();
    let script = "ulimit -v 1500000; exec \"$0\" trace run \"$1\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_fulgurite")])
        .arg(&path)
        .env_remove("FULGURITE_LOG")
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?}: {complaint}", output.status);
    let told = complaint.contains("could not allocate 800000000 bytes of host memory");
    assert!((told && complaint.contains("prims::exp")) || complaint.contains("the plan needs"), "{complaint}");
}
