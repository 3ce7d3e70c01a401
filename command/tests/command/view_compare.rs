//! Comparisons of `view`: a program with itself under other options, and programs that differ.

use crate::browser::Browser;
use crate::run_in;
use crate::view::view;

/// The region of the activation split in two: its last line is one of its own.
fn split(text: &str) -> String {
    let region = text.find("region by fusion in h.0.mlp.gelu {").unwrap();
    let end = region + text[region..].find("\n  }\n").unwrap() + "\n  }\n".len();
    let last = "    yield h.0.mlp.gelu = mul(.mul, .add.1)\n  }\n";
    let outside = "  }\n  h.0.mlp.gelu: f32[4, 64, 256] = mul(h.0.mlp.gelu.mul, h.0.mlp.gelu.add.1) by cuda\n";
    let parts = text[region..end].replacen("    .mul = ", "    yield .mul = ", 1).replacen(
        "    .add.1 = ",
        "    yield .add.1 = ",
        1,
    );
    assert!(parts.contains(last), "{parts}");
    [&text[..region], &parts.replace(last, outside), &text[end..]].concat()
}

#[test]
fn a_split_fusion_is_found_in_three_clicks() {
    let folder = tempfile::tempdir().unwrap();
    let of = ["trace", "show", "gpt2-loss", "--layers", "1", "--target", "cuda:sm_90a", "--stage", "fuse"];
    let before = crate::run(&of).ok();
    std::fs::write(folder.path().join("before.trace"), &before).unwrap();
    std::fs::write(folder.path().join("after.trace"), split(&before)).unwrap();
    let page = view(folder.path(), &["before.trace", "after.trace"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    // The page opens with what happened.
    let fusions = browser.text("#fusions");
    assert!(fusions.contains("split") && fusions.contains("region h.0.mlp.gelu"), "{fusions}");
    assert_eq!(browser.eval("document.querySelectorAll('#fusions tbody tr').length"), 1);
    // One click to the line that left the region.
    browser.click("#fusions li a", "mul(");
    let row = browser.text(".row.active");
    assert!(row.contains("= prims::mul(") && row.starts_with("cuda"), "{row}");
    browser.check();
}

#[test]
fn one_command_compares_a_program_under_other_options() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["gelu", "--target", "cuda:sm_90a", "--against", "--no-fuse --executors cuda,view"];
    let page = view(folder.path(), &arguments);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    let heading = browser.text("#app");
    for part in ["gelu --no-fuse --executors cuda,view", "target cuda:sm_90a", "executors cuda, view"] {
        assert!(heading.contains(part), "{part}: {heading}");
    }
    browser.check();
}

#[test]
fn other_options_that_are_wrong_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.trace"), "# fulgurite trace 2\ntrace f for cpu () {\n  return\n}\n").unwrap();
    for (arguments, expected) in [
        (&["gelu", "--against", "--no-such-option"][..], "--against '--no-such-option': unexpected argument"),
        (&["gelu", "--against", "--executors nobody"], "--against '--executors nobody': "),
        (&["gelu", "--against", "softmax"], "--against 'softmax': unexpected argument"),
        (&["gelu", "--against", " "], "--against ' ': expected options of a program"),
        (&["gelu", "--against", "--help"], "--against '--help': unexpected argument '--help'"),
        (&["gelu", "--against", "--layers 2"], "--layers: of models, and changes nothing of gelu"),
        (&["gpt2-loss", "--against", "--sample 1"], "--sample: of operators, and changes nothing of gpt2-loss"),
        (&["matmul", "--orders", "--against", "--executors reference"], "--orders: a single executor has no"),
        (
            &["gpt2-loss", "--layers", "1", "--orders", "--against", "--backward"],
            "--against '--backward': --orders: of one program, and gpt2-loss --backward is a forward",
        ),
        (&["gelu", "softmax", "--against", "--no-fuse"], "--against: compares one operator or model"),
        (&["a.trace", "--against", "--no-fuse"], "--against: compares one operator or model"),
    ] {
        let complaint = run_in(folder.path(), &[&["view"], arguments, &["-o", "page.html"]].concat()).fails(1);
        assert!(complaint.contains(expected), "{arguments:?}: {complaint}");
        assert!(!folder.path().join("page.html").exists(), "{arguments:?}");
    }
}

#[test]
fn programs_that_differ_are_compared_as_far_as_they_go() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["gelu", "softmax", "--target", "cuda:sm_90a"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    let common = browser.text(".common");
    assert!(common.contains("gelu and softmax are different programs here: 0 lines"), "{common}");
    let page = view(folder.path(), &["gpt2-loss", "--layers", "1", "--against", "--layers 2"]);
    browser.open(&page);
    let common = browser.text(".common");
    assert!(!common.contains("different programs") && common.contains(" lines correspond, of "), "{common}");
    browser.check();
}

#[test]
fn lines_that_another_executor_runs_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["gpt2-loss", "--layers", "1", "--target", "cuda:sm_90a", "--against", "--executors cuda,view"];
    let page = view(folder.path(), &arguments);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    browser.eval(
        "(() => { const box = document.querySelector('.tools select'); \
         box.value = [...box.options].find((of) => of.text.startsWith('claim ')).value; \
         box.dispatchEvent(new Event('change')); })()",
    );
    let summary = browser.eval("[...document.querySelectorAll('.summary')].map((of) => of.textContent).join(' ')");
    assert!(summary.as_str().unwrap().contains("run by another executor"), "{summary}");
    let moves =
        browser.eval("[...document.querySelectorAll('caption')].map((of) => of.parentElement.innerText).join()");
    let moves = moves.as_str().unwrap();
    assert!(moves.contains("Lines that another executor runs") && moves.contains("cublaslt"), "{moves}");
    browser.check();
}

/// A program of two regions, whose values have these names.
fn regions(before: &str, [a, b, c, d]: [&str; 4]) -> String {
    format!(
        "# fulgurite trace 2\n# made by fuse\ntrace f for cuda:sm_90a (x: f32[4], y: f32[4]) {{\n{before}  \
         region by fusion {{\n    {a} = exp(x)\n    yield {b} = tanh({a})\n  }}\n  \
         region by fusion {{\n    {c} = neg({b})\n    yield {d} = exp({c})\n  }}\n  return out = {d}\n}}\n"
    )
}

/// What the names of the first program say of the second is wrong in every line.
#[test]
fn an_inserted_line_that_shifts_all_names_is_one_change() {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("before.trace", regions("", ["a", "b", "c", "d"])),
        ("shifted.trace", regions("  a = exp(y) by cuda\n", ["b", "c", "d", "e"])),
        ("renamed.trace", regions("", ["b", "c", "d", "e"])),
    ] {
        std::fs::write(folder.path().join(file), text).unwrap();
    }
    let page = view(folder.path(), &["before.trace", "shifted.trace"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    assert_eq!(browser.eval("document.querySelectorAll('.change').length"), 1);
    assert!(browser.text(".change").contains("a: f32[4] = prims::exp(y) by cuda"), "{}", browser.text(".change"));
    let common = "4 lines correspond, of 4 before and 5 after; lines of regions are counted one by one.";
    assert_eq!(browser.text(".common"), common);
    let captions = "[...document.querySelectorAll('caption')].map((of) => of.textContent)";
    assert_eq!(browser.eval(captions), serde_json::json!(["Totals"]));
    // Names alone.
    let page = view(folder.path(), &["before.trace", "renamed.trace"]);
    browser.open(&page);
    let summary = browser.eval("[...document.querySelectorAll('.summary')].map((of) => of.textContent).join(' ')");
    assert!(summary.as_str().unwrap().contains("lines: 2 renamed"), "{summary}");
    assert_eq!(browser.eval("document.querySelectorAll('.change').length"), 0);
    browser.check();
}

#[test]
fn a_file_of_a_commit_is_compared_with_the_working_tree() {
    use crate::review::{NORM, Repository};

    let repository = Repository::with(&[NORM]);
    repository.plant(NORM, "mul(sum, 0.125)", "mul(sum, 0.25)");
    let before = format!("HEAD:{NORM}");
    let page = view(repository.path(), &[&before, NORM]);
    let missing = crate::run_in(repository.path(), &["view", "HEAD:none.snap", "-o", "none.html"]).fails(1);
    assert!(missing.contains("HEAD (") && missing.contains("has no file 'none.snap'"), "{missing}");
    let unknown = crate::run_in(repository.path(), &["view", "nowhere:none.snap", "-o", "none.html"]).fails(1);
    assert!(unknown.contains("there is no such file"), "{unknown}");
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    assert!(browser.text("h1").contains(&before), "{}", browser.text("h1"));
    let differ = "[...document.querySelectorAll('.changes del, .changes ins')].map((of) => of.textContent).join(' ')";
    assert_eq!(browser.eval(differ), "0.125 0.25");
    browser.check();
}
