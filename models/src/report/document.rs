//! The page of a run as HTML.

use std::fmt::Write;

use fulgurite_plots::{Page, Series, escape_text, number, page, plain};

use super::curves::Curves;

/// Seconds from one reading of the page's file to the next.
const RELOAD: u32 = 3;

/// The state of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    /// It goes on. The page was written at this time, in seconds of Unix, and is written about so often, in seconds.
    Running { written: u64, every: f64 },
    /// It has come to its end, in these words.
    Ended(String),
    /// It failed, in these words.
    Failed(String),
}

/// A sample of text.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) step: u64,
    pub(super) prompt: String,
    pub(super) text: String,
}

/// What the page shows.
pub(super) struct Document<'a> {
    pub(super) title: &'a str,
    /// Steps done, and in all.
    pub(super) steps: (u64, u64),
    pub(super) state: &'a State,
    pub(super) curves: &'a Curves,
    /// Samples of generated text, the oldest first.
    pub(super) samples: &'a [Sample],
    /// Samples that are not among them.
    pub(super) omitted: u64,
    /// Step and text of each note.
    pub(super) notes: &'a [(u64, String)],
    pub(super) settings: &'a [(String, String)],
    /// Other files of the folder: name and what it is.
    pub(super) files: &'a [(&'a str, &'a str)],
}

impl Document<'_> {
    /// The page as HTML.
    pub(super) fn html(&self) -> String {
        let body = [
            format!("<h1>{}</h1>\n", shown(self.title)),
            self.state(),
            self.facts(),
            format!("<div class=\"charts\">\n{}</div>\n", self.curves.figures()),
            self.samples(),
            self.notes(),
            self.settings(),
            format!("<details id=\"table\"><summary>Numbers as a table</summary>{}</details>\n", self.curves.table()),
            self.files(),
        ];
        let reload = matches!(self.state, State::Running { .. }).then_some(RELOAD);
        page(&Page { title: &plain(self.title), body: &format!("<main>\n{}</main>", body.concat()), reload })
    }

    fn state(&self) -> String {
        let (done, all) = self.steps;
        match self.state {
            State::Running { written, every } => {
                let left = all.saturating_sub(done) as f64 * self.curves.recent_milliseconds() / 1e3;
                let left =
                    if done > 1 && left > 0.0 { format!(", about {} left", duration(left)) } else { String::new() };
                format!(
                    "<p class=\"state\"><strong>Training</strong>: step {done} of {all}{left} · \
                     <span data-written=\"{written}\" data-every=\"{every:.0}\"></span> \
                     <span class=\"reload\"></span></p>\n\
                     <p class=\"warning quiet\" hidden>Nothing was written for a while: either a step takes long, or \
                     the run ended and could not say so.</p>\n"
                )
            }
            State::Ended(words) => format!("<p class=\"state\"><strong>Ended</strong>: {}</p>\n", shown(words)),
            State::Failed(words) => format!(
                "<p class=\"state\"><strong>Failed</strong> after step {done} of {all}</p>\n\
                 <p class=\"warning\" role=\"alert\">{}</p>\n",
                shown(words)
            ),
        }
    }

    fn facts(&self) -> String {
        let curves = self.curves;
        let last = |series: &Series| series.last().map(|(_, value)| number(value));
        let best = |series: &Series| series.least().map(|(step, loss)| format!("{} (step {step})", number(loss)));
        let facts = [
            ("loss", last(&curves.loss)),
            ("least loss", best(&curves.loss)),
            ("validation loss", last(&curves.validation)),
            ("least validation loss", best(&curves.validation)),
            ("tokens a second", curves.speed.last().map(|(_, value)| format!("{value:.0}"))),
            ("MFU", curves.mfu.last().map(|(_, percent)| format!("{percent:.1} %"))),
            ("peak of memory", curves.memory.last().map(|(_, mib)| format!("{mib:.0} MiB"))),
            ("time in steps", Some(duration(curves.milliseconds / 1e3))),
        ];
        let fact = |(name, value): (&str, Option<String>)| {
            value.map(|value| format!("<div><dt>{name}</dt><dd>{value}</dd></div>"))
        };
        format!("<dl class=\"facts\">{}</dl>\n", facts.into_iter().filter_map(fact).collect::<String>())
    }

    fn samples(&self) -> String {
        if self.samples.is_empty() {
            return String::new();
        }
        let mut text = "<section id=\"samples\"><h2>Samples, the newest first</h2>\n".to_owned();
        for (i, Sample { step, prompt, text: continued }) in self.samples.iter().rev().enumerate() {
            let open = if i < 2 { " open" } else { "" };
            let (prompt, continued) = (shown(prompt), shown(continued));
            let _ = writeln!(
                text,
                "<details id=\"sample-{step}\"{open}><summary>after step {step}</summary>\
                 <pre><span class=\"prompt\">{prompt}</span>{continued}</pre></details>"
            );
        }
        if self.omitted > 0 {
            let _ = writeln!(text, "<p>{} others are in events.jsonl.</p>", self.omitted);
        }
        text + "</section>\n"
    }

    fn notes(&self) -> String {
        if self.notes.is_empty() {
            return String::new();
        }
        let note = |(step, text): &(u64, String)| format!("<li>step {step}: {}</li>\n", shown(text));
        let notes: String = self.notes.iter().map(note).collect();
        format!("<section id=\"notes\"><h2>Notes</h2>\n<ul>\n{notes}</ul></section>\n")
    }

    fn settings(&self) -> String {
        let row = |(name, value): &(String, String)| {
            format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", shown(name), shown(value))
        };
        let rows: String = self.settings.iter().map(row).collect();
        format!(
            "<details id=\"settings\"><summary>Settings</summary><table><caption>Settings of the run</caption>\
             <tbody>\n{rows}</tbody></table></details>\n"
        )
    }

    fn files(&self) -> String {
        let file = |(name, what): &(&str, &str)| format!("<a href=\"{name}\">{name}</a> ({what})");
        let files: Vec<String> = self.files.iter().map(file).collect();
        format!("<p>Beside this page: {}.</p>\n", files.join(", "))
    }
}

/// Text as markup. Control characters, which a page may not have, are shown as their pictures.
fn shown(text: &str) -> String {
    escape_text(&plain(text))
}

/// A time in words: `95 s`, `40 min`, `2.5 h`.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
