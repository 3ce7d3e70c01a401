//! The curves of runs as SVG: a panel for each column, one below the other, with a line for each run.

use fulgurite_plots::{Series, picture};

use super::table::Metrics;

type Column = fn(&Metrics) -> Option<f64>;

/// The panels: what is drawn, and of which column.
const PANELS: [(&str, Column); 4] = [
    ("loss", |metrics| Some(f64::from(metrics.loss))),
    ("learning rate", |metrics| Some(metrics.learning_rate)),
    ("tokens a second", |metrics| metrics.tokens_per_second),
    ("model FLOPs utilization", |metrics| metrics.mfu),
];

/// The curves of runs, each with its name, by step. Panels of which no run has a value are left out.
pub fn svg(runs: &[(String, Vec<Metrics>)]) -> String {
    let names: Vec<&str> = runs.iter().map(|(name, _)| &**name).collect();
    let series = |run: &[Metrics], column: Column| -> Series {
        run.iter().filter_map(|metrics| Some((metrics.step as f64, column(metrics)?))).collect()
    };
    let panel = |(title, column)| (title, runs.iter().map(|(_, run)| series(run, column)).collect());
    picture::svg(&names, &PANELS.map(panel))
}

/// The losses of a run, by step.
pub fn losses(run: &[Metrics]) -> Series {
    run.iter().map(|metrics| (metrics.step as f64, f64::from(metrics.loss))).collect()
}
