//! `ops docs`: the reference as its readers use it, in a browser where there is one; and `ops list --missing`.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::axe;
use crate::browser::Browser;
use crate::{json, run, run_in};

/// The whole reference, made once for all tests.
fn whole() -> &'static Path {
    static MADE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let said = run_in(folder.path(), &["ops", "docs", "--out", "reference"]).ok();
        let count = json(&run(&["ops", "list", "--json"]).ok()).as_array().unwrap().len();
        assert_eq!(said, format!("wrote reference/index.html, {count} operators\n"));
        folder
    });
    folder.path()
}

fn page(operator: &str) -> String {
    let path = whole().join("reference/op").join(format!("{}.html", operator.replace("::", "--")));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of the reference, by their paths below its folder.
fn files() -> Vec<(String, String)> {
    let folder = whole().join("reference");
    let mut found = Vec::new();
    for below in ["", "op"] {
        for entry in std::fs::read_dir(folder.join(below)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                let name = Path::new(below).join(entry.file_name()).to_string_lossy().into_owned();
                found.push((name, std::fs::read_to_string(entry.path()).unwrap()));
            }
        }
    }
    found
}

/// The values of an attribute.
fn attributes<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    text.split(&format!(" {name}=\"")).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn every_operator_has_a_page_and_every_link_its_file() {
    let all = json(&run(&["ops", "list", "--json"]).ok());
    let index = std::fs::read_to_string(whole().join("reference/index.html")).unwrap();
    for row in all.as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        let text = page(name);
        assert!(text.starts_with("<!doctype html>") && text.contains(&format!("<h1>{name}</h1>")), "{name}");
        for part in ["<h2>Parameters</h2>", "<h2>Traces</h2>", "<dt>Declared at</dt>"] {
            // A call of no arguments has no parameters, one without samples no trace.
            let takes = row["signature"].as_str().unwrap().contains(": ") && text.contains("are tested, among them");
            assert!(text.contains(part) || !takes, "{name} has no {part}");
        }
        assert!(index.contains(&format!(">{name}</a>")), "{name}");
    }
    let files = files();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let mut links = 0;
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with(".html")) {
        // Texts have no quotes of attributes: they are escaped.
        assert!(!text.contains("\"http") && !text.contains(" src=\"") && !text.contains("url("), "{name}");
        for link in attributes(text, "href") {
            let from = Path::new(name).parent().unwrap();
            let target = match link.strip_prefix("../") {
                Some(above) => PathBuf::from(above),
                None => from.join(link),
            };
            assert!(names.contains(&&*target.to_string_lossy()), "{name} links to {link}");
            links += 1;
        }
    }
    assert!(links > 2000, "{links}");
}

#[test]
fn a_page_has_what_is_known_of_its_operator() {
    let gelu = page("gelu");
    for part in [
        "<pre tabindex=\"0\"><code>gelu(input: tensor",
        "<math>",
        "<svg viewBox",
        "<td><code>approximate</code></td>",
        "<code>torch.nn.functional.gelu</code>",
        "f16, bf16, f32, f64",
        "Measured on the host",
        "<h3>Forward and backward</h3>",
        "pass backward",
        "<code>gelu(input=f32[",
        "all others</td>",
    ] {
        assert!(gelu.contains(part), "no {part} in\n{gelu}");
    }
    let softmax = page("softmax");
    // Of a row of numbers there is no picture.
    assert!(!softmax.contains("<svg") && softmax.contains("<mfrac>"), "{softmax}");
    assert!(
        softmax.contains("<code>ResultType</code>") && softmax.contains("expected a floating-point dtype"),
        "{softmax}"
    );
    assert!(softmax.contains("href=\"prims--exp.html\">prims::exp</a>"), "{softmax}");
    let copysign = page("copysign");
    assert!(copysign.contains("<h2>Differences from PyTorch</h2>") && copysign.contains("own inputs"), "{copysign}");
    assert!(page("dropout").contains("<dt>Effects</dt><dd>random</dd>"));
    let missing = std::fs::read_to_string(whole().join("reference/missing.html")).unwrap();
    assert!(missing.contains("<code>nonzero</code>") && missing.contains("the shape depends on data"), "{missing}");
}

/// Signatures and messages have signs that are markup; none of them is taken as such.
#[test]
fn what_is_shown_is_never_markup() {
    let known = [
        "a",
        "body",
        "code",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "figcaption",
        "figure",
        "form",
        "h1",
        "h2",
        "h3",
        "head",
        "header",
        "html",
        "input",
        "label",
        "li",
        "link",
        "main",
        "math",
        "meta",
        "mfrac",
        "mi",
        "mn",
        "mo",
        "mrow",
        "mspace",
        "msqrt",
        "msub",
        "msubsup",
        "msup",
        "nav",
        "option",
        "output",
        "p",
        "path",
        "pre",
        "script",
        "section",
        "select",
        "summary",
        "svg",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "title",
        "tr",
        "ul",
    ];
    for (name, text) in files().iter().filter(|(name, _)| name.ends_with(".html")) {
        // The script of the index is code.
        let text = text.split("<script>").next().unwrap();
        let mut open: Vec<&str> = Vec::new();
        for (i, rest) in text.split('<').enumerate().skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"/!".contains(c)).unwrap_or(rest.len());
            let tag = &rest[..end];
            if tag == "!doctype" {
                continue;
            }
            assert!(known.contains(&tag.trim_start_matches('/')), "{name}: <{tag} ({i})");
            match tag.strip_prefix('/') {
                Some(tag) => assert_eq!(open.pop(), Some(tag), "{name}: </{tag}>"),
                None if ["meta", "link", "input"].contains(&tag) || rest.split('>').next().unwrap().ends_with('/') => {}
                None => open.push(tag),
            }
        }
        let left = if name == "index.html" { vec!["html", "body", "main"] } else { Vec::new() };
        assert_eq!(open, left, "{name}");
    }
}

#[test]
fn the_index_is_searched_by_names_and_families() {
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&whole().join("reference/index.html"));
    let shown = "[...document.querySelectorAll('#operators tbody tr')].filter((row) => !row.hidden)\
                 .map((row) => row.querySelector('a').textContent).join(' ')";
    let all = browser.text("#found");
    browser.press("/");
    browser.write("nn.functional.gelu");
    let found = browser.eval(shown);
    assert!(found.as_str().unwrap().split(' ').any(|name| name == "gelu"), "{found}");
    assert!(browser.text("#found").ends_with(&all[all.find(" operators").unwrap()..]), "{all}");
    assert_ne!(browser.text("#found"), all);
    // By the words of what it does, in any order; by the family.
    browser.eval("(() => { words.value = 'POWER exponential'; words.dispatchEvent(new Event('input')); })()");
    browser.eval("(() => { words.value = 'prims exp '; words.dispatchEvent(new Event('input')); })()");
    assert!(browser.eval(shown).as_str().unwrap().contains("prims::exp"));
    browser.eval("(() => { words.value = ''; family.value = 'losses'; family.dispatchEvent(new Event('input')); })()");
    let losses = browser.eval(shown);
    assert!(losses.as_str().unwrap().contains("mse_loss") && !losses.as_str().unwrap().contains("gelu"), "{losses}");
    browser.eval("(() => { words.value = 'no such thing'; words.dispatchEvent(new Event('input')); })()");
    assert!(browser.text("#found").starts_with("0 of "), "{}", browser.text("#found"));
    // Enter opens the first that is found.
    browser.eval("(() => { family.value = ''; words.value = 'copysign'; words.dispatchEvent(new Event('input')); })()");
    browser.eval("words.focus()");
    browser.press("Enter");
    browser.wait_for_another_document();
    assert_eq!(browser.text("h1"), "copysign");
    browser.click("nav a", "All operators");
    browser.wait_for_another_document();
    assert_eq!(browser.text("h1"), "Operators of Fulgurite");
    browser.check();
}

/// Formulas are drawn as mathematics: a fraction has its parts one above the other, without scripts or fonts from
/// elsewhere.
#[test]
fn pages_are_drawn_as_they_are_meant() {
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&whole().join("reference/op/softmax.html"));
    let above = browser.eval(
        "(() => { const [a, b] = document.querySelector('mfrac').children; \
         return a.getBoundingClientRect().bottom <= b.getBoundingClientRect().top + 1; })()",
    );
    assert_eq!(above, true);
    browser.open(&whole().join("reference/op/tanh.html"));
    let size = browser.eval("(() => { const box = document.querySelector('svg').getBoundingClientRect(); return [box.width, box.height]; })()");
    assert!(size[0].as_f64() > Some(100.0) && size[1].as_f64() > Some(100.0), "{size}");
    // A phone: nothing but what scrolls by itself is wider than the screen.
    browser.resize(360, 740);
    for name in ["op/softmax.html", "op/tanh.html", "op/prims--topk.html", "index.html", "missing.html"] {
        browser.open(&whole().join("reference").join(name));
        let wide = browser.eval("document.documentElement.scrollWidth - innerWidth");
        assert!(wide.as_f64() <= Some(0.0), "{name} is {wide} pixels too wide");
    }
    browser.check();
}

#[test]
fn nothing_serious_is_found_by_axe() {
    let Some(script) = axe::script() else { return };
    let Some(mut browser) = Browser::start() else { return };
    for scheme in ["light", "dark"] {
        for name in
            ["index.html", "missing.html", "op/gelu.html", "op/softmax.html", "op/prims--topk.html", "op/copysign.html"]
        {
            axe::open(&mut browser, &whole().join("reference").join(name), scheme, &script);
            browser.eval("document.querySelectorAll('details').forEach((of) => { of.open = true; })");
            let (found, passes) = axe::findings(&mut browser);
            assert!(found.is_empty(), "{name}, {scheme}: {found:#?}");
            assert!(passes > 10, "{name}, {scheme}: {passes} checks passed");
        }
    }
    browser.check();
}

#[test]
fn a_reference_is_replaced_as_a_whole_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let write = |arguments: &[&str]| run_in(folder.path(), &[&["ops", "docs"], arguments].concat());
    let entries = |below: &str| {
        let mut names: Vec<String> = std::fs::read_dir(folder.path().join(below))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    write(&["--op", "gelu", "--op", "nn.functional.relu", "--op", "gelu", "--out", "a/b"]).ok();
    assert_eq!(entries("a"), ["b"], "nothing is left beside it");
    assert_eq!(entries("a/b/op"), ["gelu.html", "relu.html"]);
    write(&["--op", "softmax", "--out", "a/b"]).ok();
    assert_eq!(entries("a/b/op"), ["softmax.html"]);
    assert_eq!(entries("a/b"), ["index.html", "missing.html", "op", "reference.css"]);
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    std::fs::write(folder.path().join("mine/notes"), "mine").unwrap();
    let refused = write(&["--op", "softmax", "--out", "mine"]).fails(1);
    assert!(refused.contains("is no reference of operators; nothing was written"), "{refused}");
    assert_eq!(entries("mine"), ["notes"]);
    assert!(write(&["--op", "gleu", "--out", "c"]).fails(1).contains("did you mean 'gelu'?"));
    assert_eq!(entries(""), ["a", "mine"]);
}

#[test]
fn what_pytorch_has_and_is_not_here_is_listed() {
    let text = run(&["ops", "list", "--missing"]).ok();
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("PyTorch 2.") && last.contains(" functions take or make tensors; "), "{last}");
    assert!(text.lines().all(|line| line.chars().count() <= 120 || line.starts_with("no operator here: ")), "{text}");
    let listed = json(&run(&["ops", "list", "--missing", "--json"]).ok());
    let missing = listed["missing"].as_array().unwrap();
    let (all, here) = (listed["functions"].as_u64().unwrap(), listed["mirrored"].as_u64().unwrap());
    assert_eq!(all - here, missing.len() as u64);
    assert!(here > 300, "{here}");
    // No operator says that it mirrors what is listed.
    let operators = json(&run(&["ops", "list", "--json"]).ok());
    for row in operators.as_array().unwrap().iter().filter(|row| row["kind"] != "symbol" && row["torch"].is_string()) {
        let alike = |own: &serde_json::Value| {
            own["name"] == row["torch"] || own["aliases"].as_array().unwrap().contains(&row["torch"])
        };
        assert!(!missing.iter().any(alike), "{row}");
    }
    let nonzero = missing.iter().find(|row| row["name"] == "nonzero").unwrap();
    assert!(nonzero["reason"].as_str().unwrap().contains("depends on data"), "{nonzero}");
    assert!(nonzero["instead"].as_str().unwrap().contains("argsort"), "{nonzero}");
    // What is only to be written has no reason.
    assert!(missing.iter().any(|row| row["reason"].is_null() && row["namespace"] == "special"), "{missing:?}");
    let few = run(&["ops", "list", "--missing", "--filter", "UNIQUE"]).ok();
    assert!(few.contains("unique, unique_consecutive") && !few.contains("nonzero"), "{few}");
    run(&["ops", "list", "--missing", "--kind", "prim"]).fails(2);
}
