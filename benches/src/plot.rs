//! Measurements as bars beside those of peers: `--plot FILE.svg [--against FILE]`.
//!
//! The file of `--against` has lines of JSON as the programs here and those in `peers/` print them; other lines are
//! passed over.

use std::path::Path;

use fulgurite_plots::bars::{Bars, svg};
use fulgurite_runtime::{Error, Result};
use serde_json::Value;

use crate::{argument, wrong};

/// A panel: its title with the unit, and the fields that may have its number; the first that is there counts.
pub type Field = (&'static str, &'static [&'static str]);

/// The bars that the command line asks for.
pub struct Drawing {
    file: String,
    peers: Vec<(String, Value)>,
    fields: Vec<Field>,
}

impl Drawing {
    /// What `--plot` and `--against` ask for, if they do. Before the measurement, which may take long.
    ///
    /// # Errors
    /// A name that does not end in `.svg`, `--against` alone, and a file of peers that cannot be read or has no
    /// measurement.
    pub fn asked(fields: &[Field]) -> Result<Option<Drawing>> {
        Drawing::of(argument("--plot"), argument("--against"), fields)
    }

    fn of(file: Option<String>, against: Option<String>, fields: &[Field]) -> Result<Option<Drawing>> {
        let Some(file) = file else {
            let alone = against.map(|_| wrong("--against", "is given without '--plot'"));
            return alone.map_or(Ok(None), Err);
        };
        if !file.to_lowercase().ends_with(".svg") {
            return Err(wrong("--plot", format!("is '{file}', expected a name that ends in .svg")));
        }
        let mut peers = Vec::new();
        if let Some(path) = against {
            let text =
                std::fs::read_to_string(&path).map_err(|error| wrong("--against", format!("'{path}': {error}")))?;
            peers = read(&text, fields).map_err(|message| wrong("--against", format!("'{path}' {message}")))?;
        }
        Ok(Some(Drawing { file, peers, fields: fields.to_vec() }))
    }

    /// Draws measurements, each with its name, beside those of the peers.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn draw(self, heading: &str, own: &[(String, Value)]) -> Result<()> {
        let Drawing { file, peers, fields } = self;
        let rows = [own, &peers].concat();
        let picture = svg(heading, &panels(&rows, &fields));
        fulgurite_kernels::durable::write(Path::new(&file), picture.as_bytes())
            .map_err(|error| Error::File { path: file.clone(), message: error.to_string() })?;
        eprintln!("{file}");
        Ok(())
    }
}

fn number(run: &Value, names: &[&str]) -> Option<f64> {
    names.iter().find_map(|name| run[name].as_f64())
}

fn panels(rows: &[(String, Value)], fields: &[Field]) -> Vec<Bars> {
    let panel = |(title, names): &Field| {
        let bar = |(name, run): &(String, Value)| Some((name.clone(), number(run, names)?));
        Bars { title: (*title).to_owned(), rows: rows.iter().filter_map(bar).collect() }
    };
    fields.iter().map(panel).collect()
}

/// The measurements of a text that have a number for a panel.
fn read(text: &str, fields: &[Field]) -> std::result::Result<Vec<(String, Value)>, String> {
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let run: Value = serde_json::from_str(line).map_err(|error| format!("has a line that is no JSON: {error}"))?;
        if fields.iter().any(|(_, names)| number(&run, names).is_some()) {
            let words = ["who", "peer", "mode", "dtype", "precision", "executors"];
            let words: Vec<&str> =
                words.iter().filter_map(|word| run[word].as_str()).filter(|w| !w.is_empty()).collect();
            rows.push((words.join(" "), run));
        }
    }
    if rows.is_empty() { Err("has no line with a measurement".into()) } else { Ok(rows) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_peers_are_bars() {
        let fields: [Field; 2] = [("ms", &["ms", "waited_ms"]), ("MiB", &["peak_mib"])];
        let text = "warming up\n{\"peer\":\"torch\",\"mode\":\"eager\",\"ms\":3.5}\n{\"medians\":1}\n\
            {\"who\":\"llm.c\",\"waited_ms\":2,\"peak_mib\":7}\n";
        let rows = read(text, &fields).unwrap();
        let panels = panels(&rows, &fields);
        assert_eq!(panels[0].rows, [("torch eager".to_owned(), 3.5), ("llm.c".to_owned(), 2.0)]);
        assert_eq!(panels[1].rows, [("llm.c".to_owned(), 7.0)]);
        assert!(read("{\"a\":1}\n", &fields).unwrap_err().contains("no line with a measurement"));
        assert!(read("{\n", &fields).unwrap_err().contains("no JSON"));
    }

    #[test]
    fn what_cannot_be_drawn_is_refused_before_the_measurement() {
        let refused = |file: Option<&str>, against: Option<&str>| {
            Drawing::of(file.map(str::to_owned), against.map(str::to_owned), &[]).err().map(|error| error.to_string())
        };
        assert_eq!(refused(None, None), None);
        assert_eq!(refused(Some("a.SVG"), None), None);
        for (file, against, expected) in [
            (Some("a.png"), None, "ends in .svg"),
            (None, Some("peers"), "without '--plot'"),
            (Some("a.svg"), Some("no such file"), "'no such file'"),
        ] {
            let error = refused(file, against).unwrap_or_default();
            assert!(error.contains(expected), "{error}");
        }
    }
}
