//! `view`: the page as its readers use it, in a browser where there is one.

use std::path::{Path, PathBuf};

use crate::browser::Browser;
use crate::{run, run_in};

/// Writes a page of these subjects.
pub fn view(folder: &Path, arguments: &[&str]) -> PathBuf {
    let ran = run_in(folder, &[&["view"], arguments, &["-o", "page.html"]].concat());
    assert!(ran.ok().starts_with("wrote page.html, "));
    folder.join("page.html")
}

/// Stores a trace.
pub fn show(folder: &Path, file: &str, arguments: &[&str]) -> String {
    let text = run(&[&["trace", "show"], arguments].concat()).ok();
    std::fs::write(folder.join(file), &text).unwrap();
    text
}

#[test]
fn a_page_holds_all_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let page = std::fs::read_to_string(view(folder.path(), &["softmax", "--backward"])).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert!(!page.contains("http://www.w3.org/1999") && !page.contains("https://") && !page.contains(" src="));
    // Only the page is left: no half-written file beside it.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let ran = run_in(folder.path(), &["view", "no_such_operator", "-o", "other.html"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("no_such_operator") && !folder.path().join("other.html").exists(), "{}", ran.err);
}

#[test]
fn the_book_names_the_options_that_only_trace_show_has() {
    let book = include_str!("../../../docs/src/view.md");
    let view = run(&["view", "--help"]).ok();
    let show = run(&["trace", "show", "--help"]).ok();
    let missing: Vec<&str> = show
        .lines()
        .filter_map(|line| line.trim().strip_prefix("--")?.split_whitespace().next())
        .filter(|option| !view.contains(&format!("--{option}")))
        .collect();
    assert!(missing.contains(&"plain"), "{missing:?}");
    for option in missing {
        assert!(book.contains(&format!("`--{option}`")), "{option}");
    }
}

#[test]
fn the_address_of_a_page_names_its_stage() {
    let folder = tempfile::tempdir().unwrap();
    let one = |name: &str| format!("# === {name} ===\n# fulgurite trace 2\ntrace f for cpu () {{\n  return\n}}\n\n");
    std::fs::write(folder.path().join("stages.trace"), ["50 %/a", "last"].map(one).concat()).unwrap();
    let page = view(folder.path(), &["stages.trace"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    assert_eq!(browser.text(".stage-name"), "last (2 of 2)");
    browser.press("[");
    assert_eq!(browser.eval("location.hash"), "#program/50%20%25%2Fa");
    for (fragment, stage) in
        [("program/50%20%25%2Fa", "50 %/a (1 of 2)"), ("100%", "last (2 of 2)"), ("%/50%20%25%2Fa", "50 %/a (1 of 2)")]
    {
        // Another document each time: a page reads its fragment when it begins.
        browser.open(Path::new(&format!("{}?{}#{fragment}", page.display(), fragment.len())));
        assert_eq!(browser.text(".stage-name"), stage, "{fragment}");
    }
    browser.check();
}

#[test]
fn a_value_is_followed_by_clicks_and_keys() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["rms_norm", "--backward"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    let rows = "document.querySelectorAll('[role=row]').length";
    assert!(browser.eval(rows).as_u64().unwrap() > 5);
    // A name in a line: its definition, its uses, and its way through the stages.
    browser.click(".row.line .value", "");
    let details = browser.text(".details");
    for part in ["Value", "type", "uses", "Through the stages"] {
        assert!(details.contains(part), "{part}: {details}");
    }
    // The slider by keys.
    let stage = "document.querySelector('.stage-name').textContent";
    let last = browser.eval(stage);
    browser.press("[");
    assert_ne!(browser.eval(stage), last);
    browser.press("]");
    assert_eq!(browser.eval(stage), last);
    // Search by keys.
    browser.press("/");
    browser.write("rsqrt");
    assert!(browser.text(".found").starts_with("1 of "), "{}", browser.text(".found"));
    let row = browser.text(".row.active");
    assert!(row.contains("rsqrt"), "{row}");
    // The program by keys: down, into the line, its body opened and closed.
    let active = "document.querySelector('.row.active').dataset.row * 1";
    let open = "document.querySelector('.row.active').getAttribute('aria-expanded')";
    browser.eval("document.querySelector('[role=treegrid]').focus()");
    let before = browser.eval(active).as_i64().unwrap();
    browser.press("ArrowUp");
    assert_eq!(browser.eval(active), before - 1);
    browser.press("ArrowDown");
    assert_eq!(browser.eval(active), before);
    browser.press("ArrowLeft");
    assert_eq!(browser.eval(open), "true", "the line whose body the hit is in");
    browser.press("ArrowLeft");
    assert_eq!(browser.eval(open), "false");
    browser.press("Enter");
    assert_eq!(browser.eval("document.activeElement.className"), "details");
    browser.check();
}

#[test]
fn a_search_is_prepared_in_every_view() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["rms_norm", "--backward"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(Path::new(&format!("{}#memory", page.display())));
    assert_eq!(browser.eval("app.current"), "memory");
    let prepared = browser.eval(
        "(async () => { for (let i = 0; i < 5000; i += 1) { \
         if (app.block().lines.every((line) => line.searchable)) return true; \
         await new Promise((done) => setTimeout(done, 5)); } return false; })()",
    );
    assert_eq!(prepared, true);
    browser.press("/");
    browser.write("rsqrt");
    assert!(browser.text(".found").starts_with("1 of "), "{}", browser.text(".found"));
    browser.check();
}

/// A step with an optimizer has lines and a return of thousands of names: rows are short, and what they leave out is in
/// the details or a click away.
#[test]
fn rows_of_many_names_are_short() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["gpt2", "--layers", "2", "--target", "cuda:sm_90a"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    browser.click(".tools button", "unfold scopes");
    browser.eval("(() => { const list = document.querySelector('.rows'); list.scrollTop = list.scrollHeight; })()");
    browser.eval("new Promise((done) => setTimeout(done, 50))");
    let most = "Math.max(...[...document.querySelectorAll('.row')].map((of) => of.querySelectorAll('.value').length))";
    assert!(browser.eval(most).as_u64().unwrap() <= 80, "{}", browser.eval(most));
    assert!(browser.text(".window").contains("more names"), "{}", browser.text(".window"));
    // The outputs unfold.
    browser.click(".row.return", "return");
    assert!(browser.text(".row.output").contains(" = "), "{}", browser.text(".row.output"));
    browser.click(".row.output .value", "");
    assert!(browser.text(".details").contains("Through the stages"));
    browser.check();
}

#[test]
fn a_planted_change_is_found_in_three_clicks() {
    let folder = tempfile::tempdir().unwrap();
    let before = show(folder.path(), "before.trace", &["gpt2-loss", "--layers", "1", "--stage", "plan_memory"]);
    // Another activation in the MLP.
    let after = before.replacen(".tanh = tanh(", ".tanh = erf(", 1);
    assert_ne!(before, after);
    std::fs::write(folder.path().join("after.trace"), after).unwrap();
    let page = view(folder.path(), &["before.trace", "after.trace"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    // The page opens with the comparison, and the words that differ.
    let differ = "[...document.querySelectorAll('.changes del, .changes ins')].map((of) => of.textContent).join(' ')";
    assert_eq!(browser.eval(differ), "tanh erf");
    // One click to the line in its program; its scope is unfolded.
    browser.click(".change .side:last-child > a", "in the program");
    let row = browser.text(".row.active");
    assert!(row.contains("gelu") && row.contains("region("), "{row}");
    assert!(browser.text(".details").contains("Line"));
    // And two to the line of its body.
    browser.click(".row.active .fold", "");
    browser.click(".row.line", "erf");
    assert!(browser.text(".details").contains("erf("), "{}", browser.text(".details"));
    browser.check();
}

#[test]
fn a_kernel_that_moved_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let before = show(folder.path(), "before.trace", &["gpt2-loss", "--layers", "1", "--stage", "claim"]);
    let line = before.find("matmul(").unwrap();
    let after = format!("{}{}", &before[..line], before[line..].replacen(" by cpu", " by reference", 1));
    std::fs::write(folder.path().join("after.trace"), after).unwrap();
    let page = view(folder.path(), &["before.trace", "after.trace"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    let changes = browser.text(".changes");
    assert!(changes.contains("changed: executor") && changes.contains("by reference"), "{changes}");
    assert_eq!(browser.eval("document.querySelectorAll('.change').length"), 1);
    browser.check();
}

#[test]
fn a_refusal_is_found_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["rms_norm", "--executors", "liger,cuda", "--target", "cuda:sm_90a", "--dtype", "f64"];
    let page = view(folder.path(), &arguments);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    browser.click("[role=tab]", "Why");
    // The last stages lost the line to a fused region: the page leads to the stage that has the refusal.
    if !browser.text("#refusals").contains("liger") {
        browser.click("#refusals button", "claim");
    }
    let refusals = browser.text("#refusals");
    assert!(refusals.contains("input is f64, takes f32, bf16 and f16"), "{refusals}");
    browser.click("#refusals summary", "liger");
    browser.click("#refusals .refusal a", "");
    let details = browser.text(".details");
    assert!(details.contains("refused by") && details.contains("input is f64"), "{details}");
    browser.check();
}

#[test]
fn a_lost_donation_is_found_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let text = "# fulgurite trace 2\n# made by acquire, claim, plan_memory\n\
        trace step for cpu (state.w: f32[4] donated, state.m: f32[4] donated) arena 0 {\n  \
        w = mul(state.w, 0.5) by cpu\n  m = add(state.w, state.m) by cpu\n  return state.w = w, state.m = m\n  \
        memory {\n    w at output, m in state.m\n  }\n}\n";
    std::fs::write(folder.path().join("step.trace"), text).unwrap();
    let page = view(folder.path(), &["step.trace"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    browser.click("[role=tab]", "Memory");
    let donations = browser.text("#donations");
    assert!(donations.contains("1 of 2 are not taken"), "{donations}");
    assert!(donations.contains("is written before 'm' reads the input"), "{donations}");
    browser.check();
}

#[test]
fn names_that_are_markup_are_shown_and_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let name = "<script>window.ran = true</script><img onerror='window.ran = true'>.exp";
    let text = format!(
        "# fulgurite trace 2\n# made by acquire\ntrace \"</script><script>window.ran = true</script>\" for cpu (\n  \
         x: f32[4]\n) {{\n  \"{name}\" = exp(x)\n  return \"<b>\" = \"{name}\"\n}}\n"
    );
    std::fs::write(folder.path().join("hostile.trace"), text).unwrap();
    let page = view(folder.path(), &["hostile.trace"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    assert!(browser.text(".row.line").contains(name), "{}", browser.text(".row.line"));
    browser.click(".row.line .value", "");
    for tab in ["Why", "Memory", "Graph", "Program"] {
        browser.click("[role=tab]", tab);
        assert_eq!(browser.eval("[window.ran === undefined, document.images.length]"), serde_json::json!([true, 0]));
    }
    browser.check();
}

#[test]
fn a_page_fits_a_phone_and_a_zoom_of_400_percent() {
    let folder = tempfile::tempdir().unwrap();
    show(folder.path(), "before.trace", &["gpt2-loss", "--layers", "1", "--stage", "plan_memory"]);
    let page = view(folder.path(), &["gpt2-loss", "before.trace", "--layers", "1", "--target", "cuda:sm_90a"]);
    let Some(mut browser) = Browser::start() else { return };
    // 1280 by 1024 pixels at 400 % are 320 by 256.
    for (width, height) in [(390, 800), (320, 256)] {
        browser.resize(width, height);
        browser.open(&page);
        for tab in ["Compare", "Program", "Why", "Memory", "Graph"] {
            browser.click("[role=tab]", tab);
            let wide = browser.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(wide, 0, "{tab} at {width} pixels");
        }
    }
    browser.check();
}

#[test]
fn another_order_of_the_executors_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["matmul", "--executors", "cublaslt,cuda", "--target", "cuda:sm_90a", "--orders"];
    let page = view(folder.path(), &arguments);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    browser.click("[role=tab]", "Why");
    let orders = browser.text("#orders");
    assert!(orders.contains("cuda takes 1 × prims::matmul from cublaslt"), "{orders}");
    assert!(orders.contains("cuda first: 1 changed line") && !orders.contains("reclaimed"), "{orders}");
    browser.click("#orders summary", "cuda first");
    let changed = browser.text("#orders .changes");
    assert!(changed.contains("by cublaslt") && changed.contains("by cuda"), "{changed}");
    browser.check();
}

/// Views and wholes run nothing: they can be left out, by a click and by a key. The executor of a line is a column.
#[test]
fn lines_that_run_nothing_are_hidden_and_executors_have_a_column() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["gpt2", "--layers", "1", "--target", "cuda:sm_90a"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    // The page opens with the kernels.
    assert!(browser.text(".stage-name").starts_with("fuse ("), "{}", browser.text(".stage-name"));
    browser.click(".tools button", "unfold scopes");
    let rows = "app.program.list.rows.filter((row) => row.kind === 'line').length";
    let idle = browser.eval("app.program.idleLines()").as_u64().unwrap();
    let all = browser.eval(rows).as_u64().unwrap();
    let runs = all - idle;
    assert!(idle > 10, "{all} rows, {idle} run nothing");
    // As many as are launched in the end.
    let launched = browser.eval("app.subject().stages[app.subject().stages.length - 1].totals.launches");
    assert_eq!(launched.as_u64(), Some(runs));
    assert!(browser.text(".summary").contains(&format!("{runs} that run")), "{}", browser.text(".summary"));
    // The last stage has executors for them, and the same count of what runs as the totals.
    let last =
        "[app.program.idleLines(), app.block().lines.filter((of) => ['view', 'join'].includes(of.executor)).length]";
    browser.eval("app.setStage(app.subject().stages.length - 1)");
    let counted = browser.eval(last);
    assert!(counted[0] == counted[1] && counted[0].as_u64().unwrap() > 10, "{counted}");
    let launches = browser.eval("app.stage().totals.launches").as_u64().unwrap();
    assert!(browser.text(".summary").contains(&format!("{launches} that run")), "{}", browser.text(".summary"));
    browser.eval("(() => { app.settled = false; app.choose('program'); })()");
    assert!(browser.text(".stage-name").starts_with("fuse ("), "{}", browser.text(".stage-name"));
    let label = browser.eval("document.querySelector('#hide-idle').parentElement.textContent");
    assert_eq!(label, format!("hide {idle} lines that run nothing"));
    browser.click("label", "that run nothing");
    assert_eq!(browser.eval(rows), runs);
    assert!(browser.text("#status").contains("hidden"), "{}", browser.text("#status"));
    // A row of a scope counts what is shown, and no scope is empty but for removed lines.
    let scopes = "app.program.list.rows.filter((row) => row.kind === 'scope' && !row.count && !row.changed).length";
    assert_eq!(browser.eval(scopes), 0);
    browser.eval("document.querySelector('[role=treegrid]').focus()");
    browser.press("v");
    assert_eq!(browser.eval(rows), all);
    assert_eq!(browser.eval("document.querySelector('#hide-idle').checked"), false);
    browser.press("v");
    assert_eq!(browser.eval(rows), runs);
    // A line that is searched for is shown.
    browser.eval("app.program.goTo(app.block().lines.findIndex((line) => isIdle(line, app.subject())))");
    assert_eq!(browser.eval(rows), all);
    // The column stays where it is while the line scrolls, and the line does not say it again.
    let column =
        "[...document.querySelectorAll('.row.line')].map((row) => row.querySelector('.by').textContent).join(' ')";
    let column = browser.eval(column);
    assert!(column.as_str().unwrap().contains("cublaslt"), "{column}");
    let texts = "[...document.querySelectorAll('.row.line .text')].some((of) => / by (cublaslt|cuda|fusion)$/.test(of.textContent))";
    assert_eq!(browser.eval(texts), false);
    let left = "document.querySelector('.row.line .by').getBoundingClientRect().left";
    let before = browser.eval(left);
    browser.eval("(() => { document.querySelector('.rows').scrollLeft = 200; })()");
    assert_eq!(browser.eval(left), before);
    // Views that show the plan begin with the stage that has it, until a stage is chosen.
    browser.click("[role=tab]", "Memory");
    assert!(browser.text("#view").contains("donations") || browser.text(".stage-name").starts_with("delete_last_used"));
    browser.click("[role=tab]", "Program");
    assert!(browser.text(".stage-name").starts_with("fuse ("));
    browser.press("[");
    let chosen = browser.text(".stage-name");
    browser.click("[role=tab]", "Memory");
    assert_eq!(browser.text(".stage-name"), chosen);
    browser.check();
}

#[test]
fn before_lines_are_taken_there_is_no_column() {
    let folder = tempfile::tempdir().unwrap();
    show(folder.path(), "acquired.trace", &["softmax"]);
    let page = view(folder.path(), &["acquired.trace"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    assert_eq!(browser.eval("document.querySelector('.row.line .by').getBoundingClientRect().width"), 0);
    assert_eq!(browser.eval("document.querySelector('#hide-idle').disabled"), true);
    browser.check();
}
