//! `ops list` and `ops show`.

use crate::{json, run};

#[test]
fn operators_are_listed() {
    let text = run(&["ops", "list"]).ok();
    assert!(text.contains("prims::exp"), "{text}");
    let all = json(&run(&["ops", "list", "--json"]).ok());
    let all = all.as_array().unwrap();
    let names: Vec<&str> = all.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted());
    for row in all {
        assert!(row["summary"].as_str().is_some_and(|text| !text.is_empty()), "{row}");
        assert!(row["file"].as_str().is_some_and(|text| text.ends_with(".rs")), "{row}");
    }
    let kinds = ["prim", "composite", "symbol"];
    let counts =
        kinds.map(|kind| json(&run(&["ops", "list", "--json", "--kind", kind]).ok()).as_array().unwrap().len());
    assert_eq!(counts.iter().sum::<usize>(), names.len());
    assert!(counts[0] > 0);
    let found = json(&run(&["ops", "list", "--json", "--filter", "natural EXPONENTIAL"]).ok());
    assert!(found.as_array().unwrap().iter().any(|row| row["name"] == "prims::exp"));
    assert!(run(&["ops", "list", "--filter", "no such thing at all"]).ok().starts_with("0 of "));
    let near = run(&["ops", "list", "--filter", "gleu"]).ok();
    assert!(near.starts_with("0 of ") && near.ends_with(" operators, did you mean 'gelu'?\n"), "{near}");
}

#[test]
fn implementations_and_rewrites_are_shown() {
    let text = run(&["ops", "show", "softmax_by_liger"]).ok();
    assert!(text.starts_with("softmax by liger\nkind           implementation\n"), "{text}");
    for part in [
        "softmax, declared at ops/src/nn/softmax.rs:",
        "liger, on cuda",
        "rules          checker, ",
        "dtypes   ",
        "declared at    executors/liger/src/",
    ] {
        assert!(text.contains(part), "no '{part}' in\n{text}");
    }
    let shown = json(&run(&["ops", "show", "softmax_by_liger", "--json"]).ok());
    assert_eq!((&shown["operator"], &shown["executor"]), (&"softmax".into(), &"liger".into()));
    assert!(
        shown["taken"].as_u64() > Some(0) && shown["tests"].is_u64() && shown["line"].as_u64() > Some(0),
        "{shown}"
    );
    // The operator and the rewrite tell where these are.
    let rope = run(&["ops", "show", "rope"]).ok();
    assert!(rope.contains("rewrites       merge_rope: puts it in, at ops/src/nn/merge_rope.rs:"), "{rope}");
    assert!(rope.contains("implemented    by liger ("), "{rope}");
    let rotation = run(&["ops", "show", "apply_rope"]).ok();
    assert!(rotation.contains("merge_rope: looks for it, at ops/src/nn/merge_rope.rs:"), "{rotation}");
    let merge = run(&["ops", "show", "merge_rope"]).ok();
    assert!(merge.contains("dtypes         f16, bf16, f32, f64\n"), "{merge}");
    assert!(merge.contains("declared at    ops/src/nn/merge_rope.rs:"), "{merge}");
    run(&["ops", "show", "softmax_by_nobody"]).fails(1);
}

#[test]
fn classes_of_autocast_are_listed() {
    let text = run(&["ops", "list", "--autocast"]).ok();
    let after = |class: &str| {
        let at =
            text.lines().position(|line| line.starts_with(class)).unwrap_or_else(|| panic!("no {class} in\n{text}"));
        text.lines().nth(at + 1).unwrap().trim()
    };
    let low = "addbmm, addmm, addmv, addr, baddbmm, bmm, cached_attention, chain_matmul, conv1d, conv2d, conv3d, \
               conv_transpose1d, conv_transpose2d, conv_transpose3d, delayed_linear, einsum, \
               experts_mlp, extend_and_attend, fused_linear_cross_entropy, fused_linear_jsd, grouped_linear, \
               grouped_outer, gru, gru_cell, inner, linear, linear_quantized, lstm, lstm_cell, matmul, \
               matrix_power, mm, multi_dot, mv, prims::matmul, rnn_relu, rnn_relu_cell, \
               rnn_tanh, rnn_tanh_cell, scaled_dot_product_attention, \
               unsloth::gated_linear, windowed_attention";
    assert_eq!(after("low"), low);
    assert!(after("full").split(", ").any(|name| name == "softmax"), "{text}");
    let rows = json(&run(&["ops", "list", "--autocast", "--json"]).ok());
    let rows = rows.as_array().unwrap();
    assert!(rows.iter().all(|row| row["autocast"].is_string()));
    assert!(rows.iter().any(|row| row["name"] == "scatter_add" && row["autocast"] == "widest"));
    assert!(run(&["ops", "show", "linear"]).ok().contains("autocast       low"));
}

#[test]
fn an_operator_is_shown() {
    let text = run(&["ops", "show", "prims::exp"]).ok();
    assert!(text.starts_with("prims::exp(input: tensor) -> tensor\n    Natural exponential"), "{text}");
    let shown = json(&run(&["ops", "show", "prims::exp", "--json"]).ok());
    assert_eq!(shown["kind"], "prim");
    assert_eq!(shown["torch"], "exp");
    assert_eq!(shown["dtypes"], serde_json::json!(["f16", "bf16", "f32", "f64"]));
    assert!(shown["samples"].as_u64() > Some(5));
    assert!(shown["rules"].as_array().unwrap().contains(&"scalar".into()));
    let tests: Vec<&str> = shown["tests"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert!(tests.contains(&"prims::exp::consistency::cpu::f32"), "{tests:?}");
    let executors = shown["executors"].as_array().unwrap();
    let taken = |name: &str| executors.iter().find(|row| row["executor"] == name).unwrap();
    assert_eq!(taken("cpu")["taken"], taken("cpu")["of"]);
    assert_eq!(taken("view")["taken"], 0);
    assert!(taken("view")["refusal"].is_string());
    let shown = json(&run(&["ops", "show", "prims::topk", "--json"]).ok());
    let signature = shown["signature"].as_str().unwrap();
    assert!(signature.ends_with(" -> (values: tensor, indices: tensor)"), "{signature}");
    assert!(shown["error_samples"].as_u64() > Some(0));
    assert!(shown["preconditions"].as_array().unwrap().contains(&"DimensionRange".into()));
}

/// Executors that take nothing for the same reason share a line; one that takes something has a line of its own.
#[test]
fn executors_that_take_nothing_share_a_line() {
    let text = run(&["ops", "show", "softmax"]).ok();
    let shown = json(&run(&["ops", "show", "softmax", "--json"]).ok());
    let mut idle: std::collections::BTreeMap<&str, Vec<&str>> = Default::default();
    for row in shown["executors"].as_array().unwrap() {
        let (name, taken) = (row["executor"].as_str().unwrap(), &row["taken"]);
        match taken.as_u64() {
            Some(0) => idle.entry(row["refusal"].as_str().unwrap()).or_default().push(name),
            _ => assert!(text.contains(&format!("{name} takes {taken} of {}", row["of"])), "{text}"),
        }
    }
    assert!(idle.values().any(|names| names.len() > 1), "{text}");
    assert_eq!(text.matches("none by ").count(), idle.len(), "{text}");
    for (reason, names) in idle {
        assert!(text.contains(&format!("none by {}: {reason}", names.join(", "))), "{text}");
    }
}

/// One after the other, by one command: starting it takes longer than an operator does.
#[test]
fn every_operator_can_be_shown() {
    let all = json(&run(&["ops", "list", "--json"]).ok());
    let (mut names, mut rows) = (Vec::new(), Vec::new());
    for row in all.as_array().unwrap() {
        names.push(row["name"].as_str().unwrap());
        rows.push((row["signature"].as_str().unwrap(), row["file"].as_str().unwrap()));
    }
    let shown = run(&[&["ops", "show"], &names[..]].concat()).ok();
    let mut rest = &*shown;
    for (name, (signature, file)) in names.into_iter().zip(rows) {
        let own = rest.strip_prefix(signature).unwrap_or_else(|| panic!("{name} is not next in\n{rest}"));
        let (own, after) = own.split_once("\ndeclared at    ").unwrap_or_else(|| panic!("{name}: {own}"));
        assert!(own.contains("\nkind           "), "{name}: {own}");
        let (place, after) = after.split_once('\n').unwrap();
        assert!(place.starts_with(file), "{name}: {place}");
        rest = after.trim_start_matches('\n');
    }
    assert_eq!(rest, "");
}

#[test]
fn several_are_shown_one_after_the_other_or_none() {
    let one = |name: &str, more: &[&str]| run(&[&["ops", "show", name], more].concat()).ok();
    let names = ["prims::exp", "softmax_by_liger", "merge_rope"];
    let both = |more: &[&str]| run(&[&["ops", "show"], &names[..], more].concat()).ok();
    assert_eq!(both(&[]), names.map(|name| one(name, &[])).join("\n"));
    assert_eq!(both(&["--json"]), names.map(|name| one(name, &["--json"])).concat());
    assert!(run(&["ops", "show", "prims::exp", "prims::expp"]).fails(1).contains("did you mean 'prims::exp'?"));
}

#[test]
fn names_that_are_none_have_a_hint() {
    assert!(run(&["ops", "show", "prims::expp"]).fails(1).contains("did you mean 'prims::exp'?"));
    assert!(run(&["ops", "show", &"x".repeat(10_000)]).fails(1).len() < 200);
    let alike = run(&["ops", "show", "things_of_norm"]).fails(1);
    assert!(alike.contains("alike are ") && alike.contains("group_norm"), "{alike}");
    assert!(run(&["ops", "show", "layers_norm"]).fails(1).contains("layer_norm"));
    assert!(!run(&["ops", "show", "zzzzzz"]).fails(1).contains("alike"));
    // PyTorch's names are names as well.
    assert!(run(&["ops", "show", "torch.gather"]).ok().contains("gather("));
}

#[test]
fn rewrites_are_listed_and_shown() {
    let rows = json(&run(&["ops", "list", "--kind", "rewrite", "--json"]).ok());
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"merge_rope"), "{names:?}");
    let listed = run(&["ops", "list", "--kind", "rewrite", "--filter", "merge_rope"]).ok();
    assert!(listed.contains(&format!("1 of {} rewrites", names.len())), "{listed}");
    let shown = run(&["ops", "show", "merge_rope"]).ok();
    assert!(shown.starts_with("merge_rope(q, k, cos, sin)\n"), "{shown}");
    for part in [
        "kind           rewrite\n",
        "condition      on the matched tensors; it refuses 1 of the samples: q is f32, k is bf16\n",
        "1: merge_rope::rewrite\n",
        "= apply_rope(q, cos, sin)",
        "= rope(q, k, cos, sin)",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
    let shown = json(&run(&["ops", "show", "merge_rope", "--json"]).ok());
    assert!(shown["pattern"].as_str().unwrap().contains("apply_rope("), "{shown}");
}

/// The form of a call in Rust: what is given by place, what by name, and names that Rust keeps for itself.
#[test]
fn calls_are_shown_in_rust() {
    for (name, call) in [
        ("where", "where_(condition, input, other)"),
        ("prims::exp", "prims::exp(input)"),
        ("gelu", "gelu(input), or gelu::with(input).approximate(..).call()"),
    ] {
        let shown = run(&["ops", "show", name]).ok();
        assert!(shown.contains(&format!("Rust           {call}\n")), "{shown}");
    }
    // The types of attributes that are enums, with their variants.
    let shown = run(&["ops", "show", "kl_div"]).ok();
    assert!(shown.contains("reduction: DivergenceReduction::{None, Mean, BatchMean, Sum}\n"), "{shown}");
    let shown = json(&run(&["ops", "show", "gelu", "--json"]).ok());
    let expected = serde_json::json!([{"argument": "approximate", "variants": "Approximate::{None, Tanh}"}]);
    assert_eq!(shown["enums"], expected);
}

/// The number is that of the element type that has most samples: booleans have few.
#[test]
fn samples_are_counted_where_there_are_most() {
    for name in ["log_softmax", "pow", "gelu"] {
        let shown = json(&run(&["ops", "show", name, "--json"]).ok());
        assert!(shown["samples"].as_u64().unwrap() > 5, "{name}: {}", shown["samples"]);
    }
}

#[test]
fn two_letters_in_the_other_order_are_one_mistake() {
    let complaint = run(&["ops", "show", "gleu"]).fails(1);
    assert!(complaint.contains("did you mean 'gelu'?"), "{complaint}");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let complaint = run(&["ops", "samples", "--op", "gleu", "--out", out]).fails(1);
    assert!(complaint.contains("did you mean 'gelu'?"), "{complaint}");
    let complaint = run(&["trace", "show", "gelu", "--executors", "cpuu", "--stage", "claim"]).fails(1);
    assert!(
        complaint.contains("no executor is called 'cpuu', did you mean 'cpu'? Or is its crate linked?"),
        "{complaint}"
    );
    // A name that is near another executor's by chance may be of a crate that is not linked.
    let complaint = run(&["trace", "show", "prims::exp", "--executors", "fast"]).fails(1);
    assert!(
        complaint.contains("no executor is called 'fast': is its crate linked? (`use the_crate as _;`)"),
        "{complaint}"
    );
    assert!(!complaint.contains("did you mean"), "{complaint}");
}
