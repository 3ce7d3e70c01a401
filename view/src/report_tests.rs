//! Pages of many comparisons: their size, and what is in their text.

use serde_json::Value;

use crate::{Entry, EntryProgram, Report, Shown, Subject, report};
use fulgurite_runtime::trace::parse;

fn side(name: &str, call: &str) -> Subject {
    let text = format!("# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {{\n  y = {call}(x)\n  return out = y\n}}\n");
    let shown = Shown { name: "claim".into(), trace: parse(&text).unwrap() };
    Subject { name: name.into(), stages: vec![shown], ..Subject::default() }
}

fn entry(subject: &str) -> Entry {
    Entry {
        subject: subject.into(),
        path: format!("{subject}.snap"),
        state: "changed".into(),
        programs: vec![EntryProgram {
            stage: "claim".into(),
            heading: "claim".into(),
            target: "cpu".into(),
            findings: vec![("operator".into(), "</script><script>alert(1)</script>".into())],
            trivial: false,
        }],
        same: 0,
        sides: [side("before", "exp"), side("after", "tanh")],
    }
}

fn element(page: &str, id: &str) -> Option<Value> {
    let mark = format!("id=\"{id}\">");
    let begin = page.find(&mark)? + mark.len();
    Some(serde_json::from_str(&page[begin..begin + page[begin..].find("</script>")?]).unwrap())
}

#[test]
fn what_is_beyond_the_limit_is_listed_and_not_opened() {
    let entries = vec![entry("first"), entry("second"), entry("third")];
    let one = crate::page::data(&entries[0].sides).len();
    let page = report(&Report { entries, limit: 2 * one, ..Report::default() });
    let list = element(&page, "review").unwrap();
    let opens: Vec<bool> = list["entries"].as_array().unwrap().iter().map(|one| one["opens"] == true).collect();
    assert_eq!(opens, [true, true, false]);
    assert!(element(&page, "data-1").is_some() && element(&page, "data-2").is_none());
    assert_eq!(element(&page, "data-0").unwrap()["comparisons"][0]["words"], "lines: 1 other call");
}

#[test]
fn text_of_a_review_is_never_markup() {
    let between = ["<i>main</i>".to_owned(), "</title><script>".into()];
    let page = report(&Report { between, entries: vec![entry("<!--<b>")], limit: usize::MAX, ..Report::default() });
    // The list, the data of one file, and the script.
    assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (3, 3));
    assert!(!page.contains("<!--") && !page.contains("<i>") && !page.contains("<b>"));
    assert_eq!(element(&page, "review").unwrap()["entries"][0]["subject"], "<!--<b>");
}
