//! The index of all operators with its search, and the page of what PyTorch has and is not here.

use std::collections::BTreeMap;
use std::fmt::Write;

use fulgurite::operator::{OperatorDef, OperatorKind};
use fulgurite_plots::{escape_text, plain};

use super::super::description::kind_of;
use super::super::ops_list::summary;
use super::super::ops_missing::{Report, report};
use super::frame::{Frame, frame, link};
use super::prose;

/// The script of the index.
const SEARCH: &str = include_str!("search.js");

/// What an operator belongs to: its file among the library's, where that has several; otherwise its folder or the
/// executor that owns it.
pub fn family(def: &OperatorDef) -> String {
    if let OperatorKind::Symbol(owners) = def.kind {
        return format!("kernels of {}", owners.join(" and "));
    }
    let parts: Vec<&str> = def.file.split('/').collect();
    match parts.as_slice() {
        ["ops", "src", folder, file] => {
            let stem = file.trim_end_matches(".rs");
            if stem == def.short_name() || *folder == "prims" { (*folder).to_owned() } else { stem.replace('_', " ") }
        }
        _ => def.package.to_owned(),
    }
}

/// The index as HTML.
pub fn index(operators: &[&'static OperatorDef]) -> String {
    let mut rows = String::new();
    let mut families: BTreeMap<String, usize> = BTreeMap::new();
    for def in operators {
        let family = family(def);
        let (kind, _) = kind_of(def);
        let short = summary(def.docs);
        let words = format!("{} {} {family} {kind} {short}", def.name, def.torch.unwrap_or_default()).to_lowercase();
        let torch = def.torch.map(|name| format!("<code>{}</code>", escape_text(name))).unwrap_or_default();
        let _ = writeln!(
            rows,
            "<tr data-words=\"{}\" data-family=\"{}\"><th scope=\"row\">{}</th><td>{torch}</td><td>{}</td><td>{kind}</td>\
             <td>{}</td></tr>",
            escape_text(&plain(&words)),
            escape_text(&family),
            link(def.name, "op/"),
            escape_text(&family),
            prose::inline(&plain(&short)),
        );
        *families.entry(family).or_default() += 1;
    }
    let choices: String = families
        .iter()
        .map(|(family, count)| format!("<option value=\"{0}\">{0} ({count})</option>", escape_text(family)))
        .collect();
    let count = operators.len();
    let body = format!(
        "<h1>Operators of Fulgurite</h1>\n\
         <p>Every operator that is linked, by its name, PyTorch's name and its family.</p>\n\
         <form role=\"search\"><label>Search <input type=\"search\" id=\"words\" autocomplete=\"off\" spellcheck=\"false\"></label>\n\
         <label>Family <select id=\"family\"><option value=\"\">all</option>{choices}</select></label>\n\
         <output id=\"found\" aria-live=\"polite\">{count} of {count} operators</output></form>\n\
         <div class=\"wide\" role=\"region\" aria-label=\"Operators\" tabindex=\"0\"><table id=\"operators\"><thead><tr>\
         <th scope=\"col\">operator</th><th scope=\"col\">PyTorch</th><th scope=\"col\">family</th><th scope=\"col\">kind</th>\
         <th scope=\"col\">what it does</th></tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n<script>\n{SEARCH}</script>\n"
    );
    frame(&Frame { title: "Operators of Fulgurite", up: "", body: &body })
}

/// What PyTorch has and is not here, as HTML.
pub fn missing() -> String {
    let Report { torch, functions, mirrored, missing } = report("");
    let mut spaces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut reasons: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for row in &missing {
        match (row.reason, row.instead) {
            (Some(reason), Some(instead)) => {
                match reasons.iter_mut().find(|known| known.0 == reason && known.1 == instead) {
                    Some(known) => known.2.push(row.name),
                    None => reasons.push((reason, instead, vec![row.name])),
                }
            }
            _ => spaces.entry(row.namespace).or_default().push(row.name),
        }
    }
    let names = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("<code>{}</code>", escape_text(name))).collect();
        names.join(", ")
    };
    let mut body = format!(
        "<h1>What PyTorch has and is not here</h1>\n<p>PyTorch {torch} has {functions} functions that take or make tensors, \
         each counted once, whatever names it has. {mirrored} of them are operators here.</p>\n<h2>Missing</h2>\n"
    );
    for (space, of) in &spaces {
        let _ = write!(body, "<h3>{} ({})</h3>\n<p>{}</p>\n", escape_text(space), of.len(), names(of));
    }
    body += "<h2>No operators here</h2>\n";
    for (reason, instead, of) in &reasons {
        let _ = write!(
            body,
            "<h3>{}</h3>\n<p>{}</p>\n<p>Instead: {}.</p>\n",
            prose::inline(reason),
            names(of),
            prose::inline(instead)
        );
    }
    frame(&Frame { title: "What PyTorch has and is not here", up: "", body: &body })
}
