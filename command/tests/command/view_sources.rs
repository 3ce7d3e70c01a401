//! Sources of kernels beside the program, both ways by click.

use serde_json::Value;

use crate::browser::Browser;
use crate::view::view;

/// The lines of the source that are marked.
fn marked(browser: &mut Browser) -> Vec<String> {
    let all = browser.eval("[...document.querySelectorAll('.source-line.chosen')].map((of) => of.textContent.trim())");
    all.as_array().unwrap().iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn a_line_of_a_region_and_its_statement_lead_to_each_other() {
    let folder = tempfile::tempdir().unwrap();
    // Rows of 16 bits have the exponential of as many.
    for (dtype, exponential) in [("f32", "expf("), ("bf16", "power_of_two(")] {
        let arguments = ["softmax", "--target", "cuda:sm_90a", "--dtype", dtype, "--sources"];
        let page = view(folder.path(), &arguments);
        let Some(mut browser) = Browser::start() else { return };
        browser.open(&page);
        browser.click(".row.line .fold", "");
        for (line, statement) in
            [("prims::exp(", exponential), ("prims::sub(", " - "), ("prims::amax(", "Max::combine(")]
        {
            browser.click(".row.line", line);
            let lines = marked(&mut browser);
            assert!(lines.iter().any(|of| of.contains(statement)), "{dtype} {line} {lines:?}");
            let other = lines.iter().filter(|of| of.contains(exponential) && statement != exponential).count();
            assert_eq!(other, 0, "{dtype} {line} {lines:?}");
        }
        browser.click(".source-line a", exponential);
        let row = browser.text(".row.active");
        assert!(row.contains("prims::exp("), "{dtype} {row}");
        browser.check();
    }
}

#[test]
fn a_kernel_leads_to_all_lines_that_run_it() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["gpt2-loss", "--layers", "2", "--target", "cuda:sm_90a", "--sources"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    browser.click("[role=tab]", "Texts");
    let counts = "[document.querySelectorAll('pre.source').length, document.querySelectorAll('.running').length]";
    let counts = browser.eval(counts);
    assert!(counts[0].as_u64().unwrap() > 3 && counts[0] == counts[1], "every source is of a line: {counts}");
    // The layer norms of both blocks are one kernel.
    let several = browser.eval(
        "(() => { const all = [...document.querySelectorAll('.running')]; \
         const found = all.find((of) => of.querySelectorAll('a').length > 1); \
         if (!found) return null; found.parentElement.open = true; found.id = 'several'; \
         return found.querySelectorAll('a').length; })()",
    );
    assert!(several.as_u64().unwrap_or(0) >= 2, "{several}");
    let line = browser.eval("document.querySelectorAll('#several a')[1].textContent");
    browser.eval("document.querySelectorAll('#several a')[1].click()");
    let row = browser.text(".row.active");
    let name = line.as_str().unwrap().split([':', ',', ' ']).next().unwrap();
    let last = name.rsplit('.').next().unwrap();
    assert!(row.contains(last), "{row}: {line}");
    // Its details have the kernel, and the other lines that run it.
    let details = browser.text(".details");
    assert!(details.contains("Kernel ") && details.contains("other line"), "{details}");
    browser.check();
}

/// A stage in which the line is still another one has no kernel of it.
#[test]
fn stages_before_fusion_show_no_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["gelu", "--target", "cuda:sm_90a", "--sources"]);
    let Some(mut browser) = Browser::start() else { return };
    browser.open(std::path::Path::new(&format!("{}#program/acquire", page.display())));
    browser.eval("document.querySelector('.row.line').click()");
    let details = browser.text(".details");
    assert!(details.contains("No source of a kernel is known") && !details.contains("__global__"), "{details}");
    browser.click(".kernel-note a", "stage");
    let details = browser.text(".details");
    assert!(details.contains("__global__"), "{details}");
    browser.check();
}
