//! Programs as text, and as the explorer.

use fulgurite_plots::escape_text;
use fulgurite_runtime::compile::{Programs, Stage};
use fulgurite_runtime::jit::{Compiled, CompiledVjp};
use fulgurite_runtime::trace::Trace;
use fulgurite_view::{Shown, Subject, page};

use super::content::Content;
use super::show::Show;

/// Pages of more bytes are not put into a notebook, which would keep them; `fulgurite view` writes them as files.
pub const MAX_PAGE: usize = 4 << 20;

/// Longer texts are cut: a notebook keeps what it shows.
const MAX_TEXT: usize = 256 << 10;

impl Show for Trace {
    fn content(&self) -> Content {
        let stage = self.history.last().cloned().unwrap_or_else(|| "program".into());
        shown(&self.name, vec![Shown { name: stage, trace: self.clone() }], self)
    }
}

impl Show for Stage {
    fn content(&self) -> Content {
        shown(&self.trace.name, named("", std::slice::from_ref(self)), &self.trace)
    }
}

impl Show for [Stage] {
    fn content(&self) -> Content {
        match self.last() {
            Some(last) => shown(&last.trace.name, named("", self), &last.trace),
            None => Content { text: "no stages".into(), html: "<p>no stages</p>".into() },
        }
    }
}

impl Show for Vec<Stage> {
    fn content(&self) -> Content {
        self.as_slice().content()
    }
}

impl<O> Show for Compiled<O> {
    fn content(&self) -> Content {
        self.stages().content()
    }
}

impl Show for Programs {
    fn content(&self) -> Content {
        let parts = [("", &self.joint), ("forward: ", &self.forward), ("backward: ", &self.backward)];
        let stages: Vec<Shown> = parts.into_iter().flat_map(|(before, stages)| named(before, stages)).collect();
        match stages.last().map(|last| last.trace.clone()) {
            Some(last) => shown(self.joint.first().map_or("", |first| &first.trace.name), stages, &last),
            None => self.joint.content(),
        }
    }
}

impl<O> Show for CompiledVjp<O> {
    fn content(&self) -> Content {
        self.programs().content()
    }
}

fn named(before: &str, stages: &[Stage]) -> Vec<Shown> {
    stages.iter().map(|stage| Shown { name: format!("{before}{}", stage.name), trace: stage.trace.clone() }).collect()
}

/// The text of `last`, and the explorer of all stages.
fn shown(name: &str, stages: Vec<Shown>, last: &Trace) -> Content {
    let mut text = last.to_string();
    if text.len() > MAX_TEXT {
        let end = (0..=MAX_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text += "\n# ... and more";
    }
    let lines = last.block.symbols.len();
    let stage = stages.last().map_or("", |stage| &stage.name).to_owned();
    let count = stages.len();
    let page = page(&[Subject { name: name.to_owned(), stages, ..Subject::default() }]);
    let of = if count == 1 { String::new() } else { format!(", the last of {count} stages") };
    let title = escape_text(&format!("{name} for {}, after {stage}{of}: {lines} lines", last.target));
    let frame = match page.len() <= MAX_PAGE {
        // A page of its own: it reads nothing of the notebook, and its styles and scripts change nothing there.
        true => format!(
            "<iframe sandbox=\"allow-scripts\" style=\"width: 100%; height: 36em; border: 1px solid #888\" \
             title=\"{title}\" srcdoc=\"{}\"></iframe>",
            escape_text(&page)
        ),
        false => format!("<p>The explorer has {} bytes, too many for a notebook: use fulgurite view.</p>", page.len()),
    };
    // Where frames are not shown, as on GitHub, the text is.
    let html =
        format!("<p>{title}</p>{frame}<details><summary>as text</summary><pre>{}</pre></details>", escape_text(&text));
    Content { text, html }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    fn compiled() -> std::sync::Arc<Compiled<Tensor>> {
        let f = jit(|x: Tensor| crate::ops::nn::softmax::with(x, -1).call());
        f.compile(&Array::new([2, 3], &[0.0_f32; 6]).unwrap()).unwrap()
    }

    #[test]
    fn programs_are_text_and_a_frame() {
        let compiled = compiled();
        let Content { text, html } = compiled.content();
        assert_eq!(crate::trace::parse(&text).unwrap(), compiled.stages().last().unwrap().trace);
        assert!(html.contains("<iframe sandbox=\"allow-scripts\"") && html.len() < 1 << 20, "{} bytes", html.len());
        // The page is in an attribute, whole: no other quote and no other tag.
        let page = html.split("srcdoc=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(page.starts_with("&lt;!doctype html&gt;") && page.trim_end().ends_with("&lt;/html&gt;"));
        assert_eq!(html.matches('<').count(), 10, "p, iframe, details, summary and pre");
    }

    #[test]
    fn names_are_never_markup() {
        let text = "# fulgurite trace 2\ntrace \"</pre><script>\" for cpu (\"</details>\": f32[1]) {\n  \
            return \"<img onerror=1>\" = \"</details>\"\n}\n";
        let Content { html, .. } = crate::trace::parse(text).unwrap().content();
        assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
        assert_eq!(html.matches("</details>").count(), 1);
    }
}
