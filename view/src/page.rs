//! The frame around data, scripts and styles.

use fulgurite_plots::{escape_json, escape_text};
use fulgurite_runtime::executor::{JOIN, VIEW};
use serde_json::{Value, json};

use crate::comparison;
use crate::order;
use crate::pool::Pool;
use crate::stage;
use crate::subject::Subject;

/// The frame, with places for what is embedded.
const FRAME: &str = include_str!("../assets/page.html");

const STYLES: &[&str] = &[
    include_str!("../assets/style.css"),
    include_str!("../assets/views.css"),
    include_str!("../assets/graph.css"),
    include_str!("../assets/kernels.css"),
    include_str!("../assets/time.css"),
];

/// The scripts in the order of their layers.
const SCRIPTS: &[&str] = &[
    include_str!("../assets/dom.js"),
    include_str!("../assets/data.js"),
    include_str!("../assets/rows.js"),
    include_str!("../assets/list.js"),
    include_str!("../assets/statements.js"),
    include_str!("../assets/kernels.js"),
    include_str!("../assets/details.js"),
    include_str!("../assets/changes.js"),
    include_str!("../assets/search.js"),
    include_str!("../assets/program.js"),
    include_str!("../assets/why.js"),
    include_str!("../assets/memory.js"),
    include_str!("../assets/timing.js"),
    include_str!("../assets/lanes.js"),
    include_str!("../assets/roofline.js"),
    include_str!("../assets/time.js"),
    include_str!("../assets/orders.js"),
    include_str!("../assets/layout.js"),
    include_str!("../assets/flow.js"),
    include_str!("../assets/picture.js"),
    include_str!("../assets/parts.js"),
    include_str!("../assets/shapes.js"),
    include_str!("../assets/canvas.js"),
    include_str!("../assets/graph.js"),
    include_str!("../assets/moves.js"),
    include_str!("../assets/compare.js"),
    include_str!("../assets/texts.js"),
    include_str!("../assets/main.js"),
];

/// The page of one subject, or of two that it compares. It holds everything that it needs.
pub fn page(subjects: &[Subject]) -> String {
    let names: Vec<&str> = subjects.iter().map(|subject| &*subject.name).collect();
    document(&escape_text(&names.join(" and ")), &[("data".to_owned(), data(subjects))])
}

/// A page with these data: names of elements, and the JSON in each.
fn document(title: &str, data: &[(String, String)]) -> String {
    let element = |(id, json): &(String, String)| {
        format!("<script type=\"application/json\" id=\"{id}\">{}</script>\n", escape_json(json))
    };
    let parts = [
        ("{{TITLE}}", title.to_owned()),
        ("{{STYLE}}", STYLES.concat()),
        ("{{DATA}}\n", data.iter().map(element).collect()),
        ("{{SCRIPT}}", SCRIPTS.concat()),
    ];
    // One pass: what is embedded is not searched for places again.
    let (mut page, mut rest) = (String::new(), FRAME);
    for (place, text) in parts {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        page += before;
        page += &text;
        rest = after;
    }
    page + rest
}

/// The data of a page as JSON.
pub(crate) fn data(subjects: &[Subject]) -> String {
    let mut pool = Pool::default();
    let subjects_data: Vec<Value> = subjects.iter().map(|subject| subject_to_json(&mut pool, subject)).collect();
    let compared = comparison::to_json(subjects);
    // The executors whose lines run nothing.
    let idle = json!([VIEW, JOIN]);
    format!(
        "{{{},\"subjects\":{},\"comparisons\":{},\"idle\":{idle}}}",
        pool.members(),
        json!(subjects_data),
        json!(compared)
    )
}

fn subject_to_json(pool: &mut Pool, subject: &Subject) -> Value {
    let stages: Vec<Value> = subject.stages.iter().map(|shown| stage::to_json(pool, shown)).collect();
    let sources: Vec<Value> = subject
        .sources
        .iter()
        .map(|source| json!({"name": &*source.name, "options": source.options, "text": &*source.text}))
        .collect();
    let orders: Vec<Value> = subject.orders.iter().map(order::to_json).collect();
    let unread = subject.unread.as_ref().map(|unread| {
        json!({
            "text": unread.text,
            "line": unread.line,
            "place": unread.place,
            "column": unread.column,
            "message": unread.message,
        })
    });
    json!({
        "name": subject.name,
        "about": subject.about,
        "stages": stages,
        "ending": subject.ending,
        "notes": subject.notes,
        "sources": sources,
        "kernels": subject.kernels,
        "orders": orders,
        "time": subject.timing.as_ref().map(|timing| timing.to_json(pool)),
        "unread": unread,
    })
}
