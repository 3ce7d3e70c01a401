//! What comes out of a row: numbers with their spread, and shares of what the device does at most.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The figure that compares steps on several devices with those on one.
pub const SCALING: &str = "scaling";

/// A number that was measured several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What it is: `step`, `forward`, `memory`.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The median.
    pub median: f64,
    /// A quarter of the measurements is below the first, a quarter above the second; none of a single one.
    #[serde(default)]
    pub quartiles: Option<[f64; 2]>,
    /// What part it is of what the device does at most, and of what: `copy`, `products`.
    #[serde(default)]
    pub share: Option<(f64, String)>,
}

impl Figure {
    /// Of a single measurement.
    pub fn one(name: &str, unit: &str, value: f64) -> Figure {
        Figure { name: name.into(), unit: unit.into(), median: value, quartiles: None, share: None }
    }

    /// The median and quartiles of several measurements.
    pub fn of(name: &str, unit: &str, mut values: Vec<f64>) -> Figure {
        values.sort_by(f64::total_cmp);
        let quartiles = (values.len() > 1).then(|| [quantile(&values, 0.25), quantile(&values, 0.75)]);
        Figure { quartiles, ..Figure::one(name, unit, quantile(&values, 0.5)) }
    }

    /// The time of a step on one device over that of a step on several, with the same batch on each, in percent: from
    /// the figures of both.
    pub fn scaling(one: &[Figure], several: &[Figure]) -> Option<Figure> {
        let step = |figures: &[Figure]| {
            figures.iter().find(|figure| (&*figure.name, &*figure.unit) == ("step", "ms")).map(|figure| figure.median)
        };
        Some(Figure::one(SCALING, "%", 100.0 * step(one)? / step(several)?))
    }

    /// Whether both say how much there is of one thing.
    pub fn is_of(&self, other: &Figure) -> bool {
        (&self.name, &self.unit) == (&other.name, &other.unit)
    }

    /// With its part of what the device does at most.
    pub fn with_share(self, share: Option<f64>, of: &str) -> Figure {
        Figure { share: share.filter(|share| share.is_finite()).map(|share| (share, of.to_owned())), ..self }
    }
}

/// The number below which a `part` of the sorted `numbers` is, between neighbours in proportion.
pub fn quantile(numbers: &[f64], part: f64) -> f64 {
    let at = part * (numbers.len().max(1) - 1) as f64;
    let pick = |index: f64| numbers.get(index as usize).copied().unwrap_or(f64::NAN);
    let (low, high) = (pick(at.floor()), pick(at.ceil()));
    low + (high - low) * at.fract()
}

/// What `peer` measured of a row, or why it did not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// The row's name.
    pub row: String,
    /// Name and mode: `torch, compiled`.
    pub who: String,
    /// Its figures, by the names of ours.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Why there are none.
    #[serde(default)]
    pub failed: Option<String>,
    /// The names of the figures whose results have the same bits in each run; `None` if bits were not compared.
    #[serde(default)]
    pub repeats: Option<Vec<String>>,
}

/// A row that was measured, or why it was not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The row's name.
    pub name: String,
    /// Its part of the table, as a heading.
    pub group: String,
    /// What was measured, in words.
    pub what: String,
    /// The row as its peers are told it.
    pub row: Value,
    /// The figures of the row.
    pub figures: Vec<Figure>,
    /// The command of a row that is a process of its own.
    pub command: Option<String>,
    /// Why nothing came out.
    pub failed: Option<String>,
    /// The same row by the peers.
    pub peers: Vec<Peer>,
}

impl Measured {
    /// The best of the peers for a figure: its name, and its median.
    pub fn best_peer(&self, figure: &Figure) -> Option<(&str, f64)> {
        self.best_of(figure, |_| true)
    }

    /// The best of the peers whose results have the same bits in each run, as ours have. `None` if the best of all is
    /// one of them, or if its bits were not compared.
    pub fn best_that_repeats(&self, figure: &Figure) -> Option<(&str, f64)> {
        let repeats = |peer: &Peer| peer.repeats.as_ref().map(|names| names.contains(&figure.name));
        let best = self.best_peer(figure)?.0;
        let changes = self.peers.iter().any(|peer| peer.who == best && repeats(peer) == Some(false));
        if changes { self.best_of(figure, |peer| repeats(peer) == Some(true)) } else { None }
    }

    fn best_of(&self, figure: &Figure, counts: impl Fn(&Peer) -> bool) -> Option<(&str, f64)> {
        let own = |peer: &Peer| peer.figures.iter().find(|of| of.is_of(figure)).map(|of| of.median);
        let all = self.peers.iter().filter(|peer| counts(peer)).filter_map(|peer| Some((&*peer.who, own(peer)?)));
        // Times and bytes are better the smaller they are, rates and scaling the larger.
        let is_rate = figure.unit.ends_with("/s") || figure.name == SCALING;
        all.min_by(|a, b| if is_rate { b.1.total_cmp(&a.1) } else { a.1.total_cmp(&b.1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_peer_has_the_least_time_and_the_highest_rate() {
        let peer = |who: &str, step: f64| {
            let figures = vec![Figure::one("step", "ms", step), Figure::one("speed", "tokens/s", 1e3 / step)];
            Peer { row: "a".into(), who: who.into(), figures, failed: None, repeats: None }
        };
        let peers = vec![peer("slow", 4.0), peer("fast", 2.0), peer("slower", 5.0)];
        let (name, group, what, row) = (String::new(), String::new(), String::new(), Value::Null);
        let mut measured = Measured { name, group, what, row, figures: vec![], command: None, failed: None, peers };
        for (name, unit, best) in [("step", "ms", 2.0), ("speed", "tokens/s", 500.0)] {
            assert_eq!(measured.best_peer(&Figure::one(name, unit, 3.0)), Some(("fast", best)));
        }
        let step = Figure::one("step", "ms", 3.0);
        let mut looked_at = |fast: Option<Vec<String>>, others: Option<Vec<String>>| {
            for peer in &mut measured.peers {
                peer.repeats = if peer.who == "fast" { fast.clone() } else { others.clone() };
            }
            measured.best_that_repeats(&step).map(|(who, _)| who.to_owned())
        };
        let (same, changing) = (Some(vec!["step".to_owned()]), Some(vec!["speed".to_owned()]));
        assert_eq!(looked_at(changing.clone(), same.clone()).as_deref(), Some("slow"));
        assert_eq!(looked_at(None, same.clone()), None, "nobody looked");
        assert_eq!(looked_at(same.clone(), same), None, "it is the best of all");
        assert_eq!(looked_at(changing.clone(), changing), None, "there is none");
    }

    #[test]
    fn scaling_is_the_time_on_one_over_that_on_several() {
        let figures = |step: f64| [Figure::one("first step", "s", 9.0), Figure::of("step", "ms", vec![step; 3])];
        let scaling = Figure::scaling(&figures(9.0), &figures(10.0)).unwrap();
        assert_eq!((&*scaling.name, &*scaling.unit, scaling.median), ("scaling", "%", 90.0));
        assert_eq!(Figure::scaling(&figures(9.0)[..1], &figures(10.0)), None, "the one of a step that failed");
        let peer = |who: &str, percent: f64| Peer {
            row: String::new(),
            who: who.into(),
            figures: vec![Figure::one(SCALING, "%", percent)],
            failed: None,
            repeats: None,
        };
        let peers = vec![peer("worse", 85.0), peer("best", 95.0)];
        let (name, group, what, row) = (String::new(), String::new(), String::new(), Value::Null);
        let measured = Measured { name, group, what, row, figures: vec![], command: None, failed: None, peers };
        assert_eq!(measured.best_peer(&scaling), Some(("best", 95.0)));
    }

    #[test]
    fn figures_have_their_medians_and_quartiles() {
        let figure = Figure::of("step", "ms", vec![8.0, 1.0, 4.0, 2.0]);
        assert_eq!((figure.median, figure.quartiles), (3.0, Some([1.75, 5.0])));
        assert_eq!(Figure::of("step", "ms", vec![5.0]).quartiles, None);
        assert_eq!(figure.clone().with_share(Some(f64::NAN), "copy").share, None);
        assert_eq!(figure.with_share(Some(0.5), "copy").share, Some((0.5, "copy".into())));
    }
}
