//! The time of a run in a page of `view`: symbols on streams, the roofline, the way to a line and back.

use std::path::Path;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::{run, run_in};

const PROGRAM: &str = "# fulgurite trace 2\n# made by acquire, claim\ntrace step for cpu (a: f32[64, 64]) {\n  \
    \"<script>window.ran = true</script>\" = matmul(a, a) by cpu\n  \
    big = exp(\"<script>window.ran = true</script>\") by cpu\n  out = neg(big) by reference\n  return out\n}\n";

/// A profile of that program on two streams.
fn profile(ceilings: [Value; 2]) -> Value {
    let span = |name: &str, executor: &str, result: &str, stream: &str, [ts, dur, bytes, flops]: [u64; 4]| {
        json!({"ph": "X", "pid": 0, "tid": 0, "name": name, "cat": executor, "ts": ts, "dur": dur,
            "args": {"result": result, "line": "", "stream": stream, "bytes": bytes, "flops": flops}})
    };
    let run = |ts: u64| json!({"ph": "X", "pid": 1, "tid": 0, "name": "step", "cat": "compute", "ts": ts, "dur": 40});
    let [bytes, flops] = ceilings;
    json!({
        "traceEvents": [
            span("matmul", "cpu", "<script>window.ran = true</script>", "compute", [0, 10, 32768, 524288]),
            span("neg", "reference", "out", "copy", [20, 12, 32768, 0]),
            span("exp", "cpu", "big", "compute", [12, 30, 32768, 4096]),
            run(0),
            run(50),
        ],
        "otherData": {"function": "step", "target": "cpu", "bytes_per_second": bytes, "flops_per_second": flops},
    })
}

fn page(folder: &Path, ceilings: [Value; 2], more: &[&str]) {
    std::fs::write(folder.join("step.trace"), PROGRAM).unwrap();
    std::fs::write(folder.join("profile.json"), profile(ceilings).to_string()).unwrap();
    let arguments = [&["view", "step.trace", "--profile", "profile.json", "-o", "page.html"], more].concat();
    run_in(folder, &arguments).ok();
}

#[test]
fn time_leads_to_the_line_and_back() {
    let folder = tempfile::tempdir().unwrap();
    page(folder.path(), [json!(1e10), json!(null)], &["--peak-tflops", "0.1"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&folder.path().join("page.html"));
    // The page opens with the time; the longest line is chosen.
    assert_eq!(browser.eval("document.querySelector('[role=tab][aria-selected=true]').textContent"), "Time");
    let summary = browser.text(".summary");
    assert!(summary.contains("3 symbols in 52.0 us") && summary.contains("memory at most 10 GB/s"), "{summary}");
    assert!(summary.contains("arithmetic at most 100 GFLOP/s"), "{summary}");
    let chosen = browser.text("#time-chosen");
    // 32768 bytes at 10 GB/s are 3.28 us, of 30.
    for part in ["big: exp by cpu on compute", "30.0 us from 12.0 us", "57.7 % of the run", "floor 3.28 us, 10.9 %"] {
        assert!(chosen.contains(part), "{part}: {chosen}");
    }
    let streams =
        "[...document.querySelector('.lanes').querySelectorAll('.stream')].map((of) => of.textContent).join()";
    assert_eq!(browser.eval(streams), "compute,copy");
    assert_eq!(browser.eval("document.querySelectorAll('#roofline .dot').length"), 2, "neg does no arithmetic");
    assert_eq!(browser.eval("document.querySelectorAll('#roofline .roof').length"), 2);
    // A box leads to its numbers, and these to the line.
    browser.click(".lanes .piece[data-at='0']", "");
    assert!(browser.text("#time-chosen").contains("matmul by cpu"), "{}", browser.text("#time-chosen"));
    assert_eq!(browser.eval("document.querySelector('#times tr.chosen').dataset.span"), "0");
    browser.click("#time-chosen a", "");
    assert!(browser.text(".row.active").contains("matmul("), "{}", browser.text(".row.active"));
    assert_eq!(browser.eval("window.ran === undefined"), true);
    // The details of a line lead back.
    browser.click(".row.line", "neg(");
    browser.click(".details a", "12.0 us, 23.1 % of the run");
    assert!(browser.text("#time-chosen").contains("neg by reference on copy"), "{}", browser.text("#time-chosen"));
    // By keys: the order is that of time, Enter goes to the line.
    browser.eval("document.querySelector('.lanes').focus()");
    let words = "document.querySelector('.lanes').getAttribute('aria-valuetext')";
    for (key, name) in [("Home", "matmul"), ("ArrowRight", "exp"), ("ArrowRight", "neg"), ("ArrowLeft", "exp")] {
        browser.press(key);
        let words = browser.eval(words);
        assert!(words.as_str().unwrap().starts_with(name), "{key}: {words}");
    }
    browser.press("+");
    browser.press("Enter");
    assert!(browser.text(".row.active").contains("exp("), "{}", browser.text(".row.active"));
    browser.check();
}

#[test]
fn the_table_of_times_is_sorted_and_added_up() {
    let folder = tempfile::tempdir().unwrap();
    page(folder.path(), [json!(null), json!(null)], &[]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&folder.path().join("page.html"));
    assert!(browser.text(".summary").contains("no ceiling of memory is known (--peak-gbps)"));
    let operators = "[...document.querySelectorAll('#times tbody tr')].map((of) => of.cells[1].textContent).join()";
    assert_eq!(browser.eval(operators), "exp,neg,matmul");
    browser.click("#times th button", "FLOPs");
    assert_eq!(browser.eval(operators), "matmul,exp,neg");
    assert_eq!(browser.eval("document.querySelector('#times [aria-sort=descending]').innerText.trim()"), "FLOPs ▾");
    browser.click("label[for=time-grouped]", "");
    assert!(browser.text("#times").contains("1 line\t"), "{}", browser.text("#times"));
    assert!(browser.text("#timeline").contains("step"), "the streams over several runs");
    for (width, height) in [(360, 800), (320, 256)] {
        browser.resize(width, height);
        let wide = browser.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(wide, 0, "at {width} pixels");
    }
    browser.check();
}

#[test]
fn what_is_no_profile_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("step.trace"), PROGRAM).unwrap();
    std::fs::write(folder.path().join("none.json"), "{}").unwrap();
    std::fs::write(folder.path().join("good.json"), profile([json!(1), json!(1)]).to_string()).unwrap();
    for (arguments, expected) in [
        (&["step.trace", "--profile", "none.json"][..], "none.json: has no list traceEvents, expected a profile"),
        (&["step.trace", "--profile", "absent.json"], "absent.json"),
        (&["step.trace", "gelu", "--profile", "good.json"], "--profile: of one program, and two are compared"),
        (&["step.trace", "--profile", "good.json", "--peak-gbps", "0"], "is 0, expected a number from 1e-9 to 1e12"),
        (&["step.trace", "--profile", "good.json", "--peak-tflops", "1e300"], "expected a number from 1e-12 to 1e9"),
    ] {
        let complaint = run_in(folder.path(), &[&["view"], arguments, &["-o", "page.html"]].concat()).fails(1);
        assert!(complaint.contains(expected), "{arguments:?}: {complaint}");
        assert!(!folder.path().join("page.html").exists());
    }
    run(&["view", "gelu", "--peak-gbps", "1", "-o", "page.html"]).fails(2);
}

#[test]
fn a_profiled_run_has_a_page_of_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let small = ["train", "gpt2", "--size", "nano", "--context", "16", "--batch", "2", "--steps", "2", "--profile"];
    let ran = run_in(folder.path(), &[&small[..], &["--sample-tokens", "1", "--out", "run"]].concat());
    assert!(ran.code == 0 && ran.out.contains("run/profile.html"), "{}{}", ran.out, ran.err);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&folder.path().join("run/profile.html"));
    let summary = browser.text(".summary");
    assert!(summary.contains("train_step for cpu") && summary.contains("memory at most"), "{summary}");
    // Every symbol has its line, and the line its time.
    let without = "timeOf(Data.subjects[0]).spans.filter((span) => !app.time.placeOf(span)).map((span) => span.name)";
    assert_eq!(browser.eval(without), json!([]));
    browser.click("#times tbody a", "");
    assert!(browser.text(".details").contains("% of the run"), "{}", browser.text(".details"));
    browser.check();
}

#[test]
fn a_profile_of_another_program_is_shown_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    page(folder.path(), [json!(null), json!(null)], &[]);
    let other = |change: &dyn Fn(&mut Value)| {
        let mut other = profile([json!(null), json!(null)]);
        change(&mut other);
        std::fs::write(folder.path().join("other.json"), other.to_string()).unwrap();
        let ran = run_in(folder.path(), &["view", "step.trace", "--profile", "other.json", "-o", "other.html"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.err
    };
    let note = other(&|profile| profile["otherData"]["target"] = json!("cuda:sm_90a"));
    assert_eq!(note, "note: --profile: the profile is of step for cuda:sm_90a, the program is step for cpu\n");
    let note = other(&|profile| profile["otherData"]["function"] = json!("\u{1b}[2J"));
    assert_eq!(note, "note: --profile: the profile is of \u{241b}[2J for cpu, the program is step for cpu\n");
    let note = other(&|profile| profile["traceEvents"][1]["args"]["result"] = json!("elsewhere"));
    assert_eq!(note, "note: --profile: 1 of the 3 symbols of the profile are not in the program\n");
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&folder.path().join("other.html"));
    assert!(browser.text(".banner").contains("1 of the 3 symbols"), "{}", browser.text(".banner"));
    browser.check();
}

#[test]
fn names_and_times_at_their_bounds_fit_the_page() {
    let folder = tempfile::tempdir().unwrap();
    page(folder.path(), [json!(1), json!(1e21)], &[]);
    let mut absurd = profile([json!(1), json!(1e21)]);
    let long = "long_".repeat(200);
    for (event, [ts, dur]) in [[0.0, 0.0], [9e14, 9e14], [1e-300, 0.0]].into_iter().enumerate() {
        let event = &mut absurd["traceEvents"][event];
        (event["ts"], event["dur"]) = (json!(ts), json!(dur));
        (event["name"], event["cat"], event["args"]["stream"]) = (json!(long), json!(long), json!(long));
    }
    std::fs::write(folder.path().join("absurd.json"), absurd.to_string()).unwrap();
    run_in(folder.path(), &["view", "step.trace", "--profile", "absurd.json", "-o", "page.html"]).ok();
    let Some(mut browser) = Browser::start() else { return };
    for width in [1280, 360] {
        browser.resize(width, 800);
        browser.open(&folder.path().join("page.html"));
        let wide = browser.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(wide, 0, "at {width} pixels");
        // A row is as wide as with short names: a reader reaches the numbers.
        let table = browser.eval("document.querySelector('#times table').getBoundingClientRect().width");
        assert!(table.as_f64().unwrap() < 2000.0, "{table} at {width} pixels");
    }
    for at in 0..8 {
        browser.click(&format!("#times th:nth-child({}) button", at + 5), "");
    }
    let page = browser.eval("document.getElementById('app').innerHTML");
    let page = page.as_str().unwrap();
    assert!(!page.contains("NaN") && !page.contains("Infinity"), "{page}");
    browser.check();
}
