//! The table of `bench`: as Markdown, as JSON, and as text for the terminal.

use fulgurite_rates::too_low::TooLow;
use serde::Serialize;

use super::figures::{Figure, Measured, Peer, SCALING};
use super::rows::Group;

/// What was measured, where, and with what.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The command line.
    pub command: String,
    /// The version of Fulgurite, and how it was built.
    pub version: String,
    /// The model of the device; none where only the host was measured.
    pub device: Option<String>,
    /// Versions of its driver and libraries.
    pub libraries: Option<String>,
    /// The processor and its threads.
    pub host: String,
    /// Measured rates of the device and of the host, or why there are none.
    pub rates: Vec<String>,
    /// The peers and their versions, or why there are none; absent where none were asked for.
    pub peers: Option<String>,
    /// The rows.
    pub rows: Vec<Measured>,
    /// Kept rates that rows exceed, each once.
    pub rates_too_low: Vec<TooLow>,
    /// Names of rows that are not measured yet.
    pub not_measured: Vec<String>,
}

/// A number with four digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// `0.87 of copy`.
fn share(figure: &Figure) -> String {
    figure.share.as_ref().map_or_else(String::new, |(share, of)| format!("{share:.2} of {of}"))
}

/// A row as the terminal has it as soon as it is measured.
pub fn told(row: &Measured) -> String {
    if let Some(reason) = &row.failed {
        return format!("{}: failed: {reason}", row.what);
    }
    let one = |figure: &Figure| {
        let share = share(figure);
        let share = if share.is_empty() { share } else { format!(" ({share})") };
        format!("{} {} {}{share}", figure.name, short(figure.median), figure.unit)
    };
    format!("{}: {}", row.what, row.figures.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// What a peer measured of a row, and what part ours is of it.
pub fn told_by(row: &Measured, peer: &Peer) -> String {
    if let Some(reason) = &peer.failed {
        return format!("{}, by {}: failed: {}", row.what, peer.who, reason.replace(['\n', '\r'], " "));
    }
    let one = |figure: &Figure| {
        let ours = row.figures.iter().find(|ours| ours.is_of(figure));
        let ours = ours.map(|ours| ours.median).filter(|_| figure.median > 0.0);
        let part =
            ours.map_or_else(String::new, |ours| format!(" (ours {}, {:.2} of it)", short(ours), ours / figure.median));
        format!("{} {} {}{part}", figure.name, short(figure.median), figure.unit)
    };
    format!("{}, by {}: {}", row.what, peer.who, peer.figures.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

impl Report {
    /// As Markdown: what was run on, and a table for each part.
    pub fn markdown(&self) -> String {
        let mut text = format!("`{}`\n\n", self.command);
        let mut line = |name: &str, value: &str| text += &format!("- {name}: {}\n", cell(value));
        line("Fulgurite", &self.version);
        if let Some(device) = &self.device {
            line("device", device);
        }
        if let Some(libraries) = &self.libraries {
            line("libraries", libraries);
        }
        line("host", &self.host);
        self.rates.iter().for_each(|rates| line("measured rates", rates));
        if let Some(peers) = &self.peers {
            line("peers", peers);
        }
        self.rates_too_low.iter().for_each(|low| line("warning", &low.to_string()));
        if !self.not_measured.is_empty() {
            line("not measured", &self.not_measured.join(", "));
        }
        text += "\nMedians; in parentheses the quartiles. A share of `copy` or `products` is that of the measured rate; on the host, of a copy beside the row.\n";
        if self.rows.iter().flat_map(|row| &row.figures).any(|figure| figure.name == SCALING) {
            text += "Scaling is the time of a step on one GPU over that on several, with the same batch on each.\n";
        }
        if self.peers.is_some() && self.rows.iter().flat_map(|row| &row.peers).any(|peer| peer.repeats.is_some()) {
            text += "If the results of the best peer differ from run to run, the best peer whose results do not follows it.\n";
        }
        for heading in Group::ALL.map(Group::heading) {
            let rows: Vec<&Measured> = self.rows.iter().filter(|row| row.group == heading).collect();
            if rows.is_empty() {
                continue;
            }
            text += &format!("\n### {heading}\n\n");
            text += match self.peers.is_some() {
                true => "| row | figure | | share | best peer | of it |\n|---|---|---|---|---|---|\n",
                false => "| row | figure | | share |\n|---|---|---|---|\n",
            };
            rows.iter().for_each(|row| text += &self.rows_of(row));
        }
        let failed: Vec<String> = self
            .rows
            .iter()
            .flat_map(|row| {
                row.peers
                    .iter()
                    .filter_map(|peer| Some(format!("- {}, {}: {}\n", row.name, peer.who, cell(peer.failed.as_ref()?))))
            })
            .collect();
        if !failed.is_empty() {
            text += &format!("\nPeers that failed:\n\n{}", failed.concat());
        }
        text
    }

    /// The lines of one row: one for each figure.
    fn rows_of(&self, row: &Measured) -> String {
        let end = if self.peers.is_some() { " | | |" } else { " |" };
        if let Some(reason) = &row.failed {
            return format!("| {} | failed | {} |{end}\n", cell(&row.what), cell(reason));
        }
        let line = |(i, figure): (usize, &Figure)| {
            let what = if i == 0 { cell(&row.what) } else { String::new() };
            let quartiles = figure
                .quartiles
                .map_or_else(String::new, |[low, high]| format!(" ({} to {})", short(low), short(high)));
            let peer = match (self.peers.is_some(), row.best_peer(figure)) {
                (false, _) => String::new(),
                (true, None) => " | |".into(),
                (true, Some(best)) => {
                    let all: Vec<_> = [best].into_iter().chain(row.best_that_repeats(figure)).collect();
                    let whom = all.iter().map(|(who, median)| format!("{} ({})", short(*median), cell(who)));
                    let parts = all.iter().map(|(_, median)| format!("{:.2}", figure.median / median));
                    format!(" {} | {} |", whom.collect::<Vec<_>>().join("; "), parts.collect::<Vec<_>>().join("; "))
                }
            };
            format!(
                "| {what} | {}, {} | {}{quartiles} | {} |{peer}\n",
                figure.name,
                figure.unit,
                short(figure.median),
                share(figure)
            )
        };
        row.figures.iter().enumerate().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Peer;
    use super::*;

    fn measured(name: &str, group: Group, figures: Vec<Figure>) -> Measured {
        Measured {
            name: name.into(),
            group: group.heading().into(),
            what: format!("what {name} is"),
            row: serde_json::Value::Null,
            figures,
            command: None,
            failed: None,
            peers: Vec::new(),
        }
    }

    fn report() -> Report {
        let step = Figure::of("step", "ms", vec![30.0, 30.1, 30.5]);
        let peer = |who: &str, median: Option<f64>| Peer {
            row: "step".into(),
            who: who.into(),
            figures: median.map(|median| Figure::one("step", "ms", median)).into_iter().collect(),
            failed: median.is_none().then(|| "out of | memory\nat once".into()),
            repeats: median.map(|median| (median > 40.0).then(|| "step".into()).into_iter().collect()),
        };
        let steps = Measured {
            peers: vec![peer("torch, eager", Some(41.0)), peer("torch, compiled", Some(33.5)), peer("thunder", None)],
            ..measured("step", Group::Steps, vec![step, Figure::one("memory", "GiB", 7.25)])
        };
        let forward = Figure::of("forward", "us", vec![100.0]).with_share(Some(0.874), "copy");
        let failed = Measured {
            failed: Some("error: device memory is full".into()),
            ..measured("adamw", Group::Operators, Vec::new())
        };
        Report {
            command: "fulgurite bench --peers".into(),
            version: "0.1.0, release".into(),
            device: Some("NVIDIA H200".into()),
            libraries: Some("driver 580".into()),
            host: "AMD EPYC, 16 threads".into(),
            rates: vec!["copy 4100 GB/s".into()],
            peers: Some("torch 2.11".into()),
            rows: vec![steps, measured("layer_norm", Group::Operators, vec![forward]), failed],
            rates_too_low: Vec::new(),
            not_measured: Vec::new(),
        }
    }

    #[test]
    fn the_table_is_markdown() {
        insta::assert_snapshot!("markdown", report().markdown());
        insta::assert_snapshot!(
            "markdown_without_peers",
            Report { peers: None, device: None, libraries: None, ..report() }.markdown()
        );
    }

    #[test]
    fn scaling_is_beside_the_best_of_the_peers() {
        let figures =
            |step: f64, scaling: f64| vec![Figure::of("step", "ms", vec![step]), Figure::one(SCALING, "%", scaling)];
        let peer = |who: &str, step, scaling| Peer {
            row: "four".into(),
            who: who.into(),
            figures: figures(step, scaling),
            failed: None,
            repeats: None,
        };
        let peers = vec![peer("FSDP2, whole", 53.0, 71.0), peer("FSDP2, blocks", 40.0, 85.0)];
        let four = Measured { peers, ..measured("four", Group::ManyGpus, figures(30.0, 98.5)) };
        let text = Report { rows: vec![four], ..report() }.markdown();
        assert!(text.contains("\nScaling is the time of a step on one GPU over that on several,"), "{text}");
        assert!(text.contains("\n### Many GPUs\n"), "{text}");
        assert!(text.contains("|  | scaling, % | 98.50 |  | 85.00 (FSDP2, blocks) | 1.16 |\n"), "{text}");
        assert!(!report().markdown().contains("Scaling is"));
    }

    #[test]
    fn a_table_says_which_rates_are_too_low() {
        let low = TooLow::by_flops(fulgurite::Device::CPU, 1e12, 2e12, 1.0, "forward of the row a").unwrap();
        let text = Report { rates_too_low: vec![low], ..report() }.markdown();
        assert!(text.contains("\n- warning: the kept rate of products on cpu is too low"), "{text}");
    }

    #[test]
    fn a_table_names_the_rows_that_it_lacks() {
        let report = Report { not_measured: vec!["adamw".into(), "jsd".into()], ..report() };
        assert!(report.markdown().contains("\n- not measured: adamw, jsd\n"), "{}", report.markdown());
    }

    #[test]
    fn every_line_of_a_table_has_as_many_cells() {
        for report in [report(), Report { peers: None, ..report() }] {
            let text = report.markdown();
            let cells = |line: &str| line.replace("\\|", "").matches('|').count();
            let mut tables = text.lines().filter(|line| line.starts_with('|'));
            let first = tables.next().map(cells);
            assert!(tables.all(|line| Some(cells(line)) == first), "{text}");
        }
    }

    #[test]
    fn rows_and_what_peers_measured_of_them_are_told() {
        let Report { rows, .. } = report();
        assert_eq!(told(&rows[0]), "what step is: step 30.10 ms, memory 7.250 GiB");
        assert_eq!(told(&rows[1]), "what layer_norm is: forward 100.0 us (0.87 of copy)");
        assert_eq!(told(&rows[2]), "what adamw is: failed: error: device memory is full");
        let peers: Vec<String> = rows[0].peers.iter().map(|peer| told_by(&rows[0], peer)).collect();
        assert_eq!(peers[0], "what step is, by torch, eager: step 41.00 ms (ours 30.10, 0.73 of it)");
        assert_eq!(peers[2], "what step is, by thunder: failed: out of | memory at once");
        // A figure that ours has not.
        let other = Peer { figures: vec![Figure::one("first step", "s", 2.0)], ..rows[0].peers[0].clone() };
        assert_eq!(told_by(&rows[0], &other), "what step is, by torch, eager: first step 2.000 s");
    }

    #[test]
    fn numbers_have_four_digits() {
        assert_eq!([0.1234, 3.49, 36.512, 142.2, 449_000.4].map(short), ["0.123", "3.490", "36.51", "142.2", "449000"]);
    }
}
