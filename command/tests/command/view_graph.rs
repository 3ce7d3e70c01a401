//! The graph of `view`: what is drawn, by clicks and by keys.

use std::path::Path;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::view::view;

/// How many nodes are drawn.
const NODES: &str = "document.querySelectorAll('.node').length";

/// A browser with the graph of a page at one of its stages.
fn graph_of(page: &Path, stage: &str) -> Option<Browser> {
    let mut browser = Browser::start()?;
    browser.open(Path::new(&format!("{}#graph/{stage}", page.display())));
    Some(browser)
}

/// The nodes' labels, as a screen reader has them.
fn labels(browser: &mut Browser) -> Vec<String> {
    let all = browser.eval("[...document.querySelectorAll('.node')].map((of) => of.getAttribute('aria-label'))");
    all.as_array().unwrap().iter().map(|label| label.as_str().unwrap().to_owned()).collect()
}

/// Chooses the scope whose label begins so.
fn choose_scope(browser: &mut Browser, label: &str) {
    let found = browser.eval(&format!(
        "(() => {{ const boxes = [...document.querySelectorAll('select')]; \
         const box = boxes.find((of) => of.options[0].text.startsWith('the whole program')); \
         const option = [...box.options].find((of) => of.text.trim().startsWith({})); \
         if (!option) return false; box.value = option.value; \
         box.dispatchEvent(new Event('change')); return true; }})()",
        json!(label)
    ));
    assert_eq!(found, true, "no scope '{label}'");
}

#[test]
fn a_training_step_opens_with_its_scopes_closed_and_blocks_look_alike() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["gpt2", "--size", "124M", "--target", "cuda:sm_90a"]);
    // All stages of twelve layers are one file that a review can attach.
    let bytes = std::fs::metadata(&page).unwrap().len();
    assert!(bytes <= 6_000_000, "{bytes} bytes");
    let Some(mut browser) = graph_of(&page, "autodiff") else { return };
    let count = browser.eval(NODES).as_u64().unwrap();
    assert!((12..=60).contains(&count), "{count} nodes");
    let blocks: Vec<String> = labels(&mut browser).into_iter().filter(|label| label.starts_with("h.")).collect();
    assert_eq!(blocks.len(), 12, "{blocks:?}");
    // No more is opened at once than can be read.
    for _ in 0..6 {
        browser.click(".tools button", "open more");
    }
    let count = browser.eval(NODES).as_u64().unwrap();
    assert!((150..=300).contains(&count), "{count} nodes");
    // One block alone: all of its scopes are open. The sizes of the boxes of two blocks in the middle are the same.
    let sizes = "[...document.querySelectorAll('.ground')].map((of) => [of.getAttribute('width'), \
                 of.getAttribute('height')].join(' ')).sort().join(', ')";
    let block = ["h.3,", "h.4,"].map(|block| {
        choose_scope(&mut browser, block);
        let count = browser.eval(NODES).as_u64().unwrap();
        assert!((30..=300).contains(&count), "{block} {count} nodes");
        browser.eval(sizes).as_str().unwrap().to_owned()
    });
    assert!(block[0].split(", ").count() >= 5, "{block:?}");
    assert_eq!(block[0], block[1]);
    browser.check();
}

#[test]
fn edges_lead_down_and_have_names_and_types() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["gpt2-loss", "--layers", "2"]);
    let Some(mut browser) = graph_of(&page, "claim") else { return };
    // Each edge ends below where it begins.
    let upward = browser.eval(
        "[...document.querySelectorAll('.edge .way')].filter((of) => { const length = of.getTotalLength(); \
         return of.getPointAtLength(length).y <= of.getPointAtLength(0).y; }).length",
    );
    assert_eq!(upward, 0);
    // No two nodes cover each other, but for scopes and what is in them.
    let covered = browser.eval(
        "(() => { const boxes = [...document.querySelectorAll('.node:not(.open) > rect:first-of-type')].map((of) => \
         ['x', 'y', 'width', 'height'].map((name) => Number(of.getAttribute(name)))); let count = 0; \
         boxes.forEach(([x, y, w, h], i) => boxes.slice(i + 1).forEach(([x2, y2, w2, h2]) => { \
         count += x < x2 + w2 && x2 < x + w && y < y2 + h2 && y2 < y + h; })); return count; })()",
    );
    assert_eq!(covered, 0);
    let titles = browser.eval("[...document.querySelectorAll('.edge title')].map((of) => of.textContent)");
    let titles: Vec<&str> = titles.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(titles.iter().any(|title| title.starts_with("add: f32[4, 64, 64]")), "{titles:?}");
    // The same graph as text.
    browser.click(".as-text summary", "as text");
    let text = browser.text(".as-text ol");
    assert!(text.contains("reads from") && text.contains("read by h.0"), "{text}");
    browser.check();
}

#[test]
fn a_node_leads_to_its_line_and_a_line_to_its_node() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["rms_norm"]);
    let Some(mut browser) = graph_of(&page, "claim") else { return };
    browser.click(".node", "rsqrt");
    assert!(browser.text(".details").contains("rsqrt("), "{}", browser.text(".details"));
    browser.click(".details .places a", "in the program");
    assert!(browser.text(".row.active").contains("rsqrt("), "{}", browser.text(".row.active"));
    browser.click(".details .places a", "in the graph");
    let focused = browser.eval("document.activeElement.getAttribute('aria-label')");
    assert!(focused.as_str().unwrap().starts_with("rsqrt "), "{focused}");
    browser.eval("document.activeElement.dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))");
    assert!(browser.text(".row.active").contains("rsqrt("), "{}", browser.text(".row.active"));
    browser.check();
}

#[test]
fn keys_go_along_edges() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["gpt2-loss", "--layers", "2"]);
    let Some(mut browser) = graph_of(&page, "claim") else { return };
    let focused = "document.activeElement.getAttribute('aria-label')";
    browser.eval("document.querySelector('.node[tabindex=\"0\"]').focus()");
    let mut seen = vec![browser.eval(focused)];
    for _ in 0..30 {
        browser.press("ArrowDown");
        seen.push(browser.eval(focused));
    }
    seen.dedup();
    let names: Vec<&str> = seen.iter().map(|name| name.as_str().unwrap()).collect();
    assert!(names.len() > 5, "{names:?}");
    assert!(names.last().unwrap().contains("loss"), "{names:?}");
    browser.press("ArrowUp");
    assert_ne!(browser.eval(focused), seen[seen.len() - 1]);
    // A scope opens and closes by keys.
    let scope = "document.querySelector('.node.scope[data-key=\"h.0\"]')";
    browser.eval(&format!("{scope}.focus()"));
    let open = format!("{scope}.getAttribute('aria-expanded')");
    let before = browser.eval(&open);
    browser.press("Enter");
    assert_ne!(browser.eval(&open), before);
    browser.press("Enter");
    assert_eq!(browser.eval(&open), before);
    // Zoom and place of the picture.
    let transform = "document.querySelector('.graph > g').getAttribute('transform')";
    for key in ["+", "-", "0"] {
        let before = browser.eval(transform);
        browser.press(key);
        browser.press(key);
        assert!(key == "0" || browser.eval(transform) != before, "{key}");
    }
    browser.check();
}

#[test]
fn a_region_opens_to_its_operators() {
    let folder = tempfile::tempdir().unwrap();
    let page = view(folder.path(), &["gelu", "--target", "cuda:sm_90a"]);
    let Some(mut browser) = graph_of(&page, "plan_memory") else { return };
    assert_eq!(browser.eval(NODES), 3, "an input, the region, an output");
    browser.click(".node.line", "");
    let inside = labels(&mut browser);
    assert!(inside.iter().any(|label| label.starts_with("erf ")), "{inside:?}");
    browser.click(".node:not(.open)", "erf");
    browser.click(".details .places a", "in the program");
    assert!(browser.text(".row.active").contains("erf("), "{}", browser.text(".row.active"));
    browser.check();
}

/// Thousands of lines without scopes, and scopes between which values go back and forth.
#[test]
fn programs_without_scopes_are_drawn_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut flat = String::from("# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {\n  a0 = exp(x)\n");
    for i in 1..5000 {
        flat += &format!("  a{i} = exp(a{})\n", i - 1);
    }
    flat += "  return out = a4999\n}\n";
    let woven = "# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {\n  a.x = exp(x)\n  b.x = exp(a.x)\n  \
        a.y = exp(b.x)\n  b.y = exp(a.y)\n  a.z = add(a.x, b.y)\n  return out = a.z\n}\n";
    for (name, text) in [("flat.trace", flat.as_str()), ("woven.trace", woven)] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let page = view(folder.path(), &["flat.trace", "woven.trace"]);
    let Some(mut browser) = graph_of(&page, "") else { return };
    let count = browser.eval(NODES).as_u64().unwrap();
    assert!((10..=300).contains(&count), "{count} nodes");
    browser.eval(
        "(() => { const box = document.querySelector('select'); box.value = '1'; \
                  box.dispatchEvent(new Event('change')); })()",
    );
    let text = labels(&mut browser).join("; ");
    assert!(text.contains("exp b.x") && text.contains("exp b.y"), "{text}");
    browser.check();
}
