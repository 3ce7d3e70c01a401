//! Accessibility: axe-core over every tab of a page, in light and dark. Its script is not part of this repository.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::view::view;

/// `FULGURITE_AXE`, or what the gate installs beside NVRTC.
fn axe() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("FULGURITE_AXE") {
        return Some(path.into());
    }
    let libraries = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/nvrtc/lib");
    let pythons = std::fs::read_dir(libraries).ok()?.filter_map(Result::ok);
    let mut scripts = pythons.map(|python| python.path().join("site-packages/axe_playwright_python/axe.min.js"));
    scripts.find(|script| script.is_file())
}

/// The script; without one the reason why a test is skipped is printed.
pub fn script() -> Option<String> {
    let Some(path) = axe() else {
        eprintln!("skipped: no axe-core; FULGURITE_AXE names its axe.min.js, .ci/run installs it");
        return None;
    };
    Some(std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// What axe finds that is serious or critical in the page as it is now, a line each; and how many checks passed.
pub fn findings(browser: &mut Browser) -> (Vec<String>, u64) {
    let found = browser.eval(
        // A page of a file may not read the style that is in another file.
        "axe.run(document, {preload: !document.querySelector('link[rel=stylesheet]')}).then((result) => [result.violations \
         .filter((of) => ['serious', 'critical'].includes(of.impact)) \
         .map((of) => of.id + ': ' + of.nodes.map((node) => node.html.slice(0, 200)).join('; ')), \
         result.passes.length])",
    );
    let lines = found[0].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
    (lines.collect(), found[1].as_u64().unwrap())
}

/// Opens a page in a colour scheme, with axe in it.
pub fn open(browser: &mut Browser, page: &Path, scheme: &str, script: &str) {
    let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
    browser.call("Emulation.setEmulatedMedia", media);
    browser.open(page);
    browser.eval(&format!(
        "(() => {{ const script = document.createElement('script'); script.textContent = {}; \
         document.head.append(script); }})()",
        Value::from(script)
    ));
}

/// The report of a run, and the time of its step.
#[test]
fn nothing_serious_is_found_in_the_pages_of_a_run() {
    let Some(script) = script() else { return };
    let folder = tempfile::tempdir().unwrap();
    let small = ["train", "gpt2", "--size", "nano", "--context", "16", "--batch", "2", "--steps", "4", "--out", "run"];
    let more = ["--evaluate-every", "2", "--sample-every", "2", "--sample-tokens", "4", "--profile"];
    let ran = crate::run_in(folder.path(), &[&small[..], &more].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let Some(mut browser) = Browser::start() else { return };
    for (scheme, page) in ["light", "dark"].into_iter().flat_map(|of| [(of, "report.html"), (of, "profile.html")]) {
        open(&mut browser, &folder.path().join("run").join(page), scheme, &script);
        browser.eval("document.querySelectorAll('details').forEach((of) => { of.open = true; })");
        let (found, passes) = findings(&mut browser);
        assert!(found.is_empty(), "{page}, {scheme}: {found:#?}");
        assert!(passes > 10, "{page}, {scheme}: {passes} checks passed");
    }
    browser.check();
}

#[test]
fn nothing_serious_is_found_in_any_tab() {
    let Some(script) = script() else { return };
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["rms_norm", "--backward", "--target", "cuda:sm_90a", "--sources", "--against", "--no-fuse"];
    let page = view(folder.path(), &arguments);
    let Some(mut browser) = Browser::start() else { return };
    for scheme in ["light", "dark"] {
        open(&mut browser, &page, scheme, &script);
        let tabs = browser.eval("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.textContent)");
        let tabs: Vec<&str> = tabs.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(tabs.len() >= 6, "{tabs:?}");
        for tab in tabs {
            browser.click("[role=tab]", tab);
            if tab == "Program" {
                // With the details of a line, and its kernel.
                browser.eval("document.querySelector('.row.line').click()");
                browser.click(".row.line .fold", "");
            }
            let (found, passes) = findings(&mut browser);
            assert!(found.is_empty(), "{tab}, {scheme}: {found:#?}");
            assert!(passes > 10, "{tab}, {scheme}: {passes} checks passed");
        }
    }
    // What is wrong is found: an input without a label, a text that is hardly visible.
    browser.eval(
        "document.querySelector('main').insertAdjacentHTML('beforeend', \
         '<input><p style=\"color: #777; background: #888\">text</p>')",
    );
    let (found, _) = findings(&mut browser);
    assert!(found.iter().any(|line| line.starts_with("color-contrast")), "{found:#?}");
    assert!(found.iter().any(|line| line.starts_with("label")), "{found:#?}");
    browser.check();
}
