//! The numbers of a run in bounded space: a curve for each column, and some rows of the table.

use std::collections::VecDeque;

use fulgurite_plots::{Chart, Curve, Series, number};

use crate::metrics::Metrics;

/// The most rows of the table.
const ROWS: usize = 60;
/// The steps whose mean says how long the next ones take.
const RECENT: usize = 20;
const MIB: f64 = (1u64 << 20) as f64;

/// Curves by step.
#[derive(Debug, Default)]
pub(super) struct Curves {
    pub(super) loss: Series,
    pub(super) validation: Series,
    learning_rate: Series,
    gradient_norm: Series,
    pub(super) speed: Series,
    pub(super) mfu: Series,
    /// MiB.
    pub(super) memory: Series,
    rows: Vec<Metrics>,
    /// Steps from one row to the next.
    stride: u64,
    pub(super) last: Option<Metrics>,
    /// The time of all steps, in milliseconds.
    pub(super) milliseconds: f64,
    /// Of the last steps, without those that compiled.
    recent: VecDeque<f64>,
}

impl Curves {
    /// Adds a step.
    pub(super) fn step(&mut self, metrics: &Metrics) {
        let x = metrics.step as f64;
        self.loss.push(x, f64::from(metrics.loss));
        self.learning_rate.push(x, metrics.learning_rate);
        self.memory.push(x, metrics.peak_bytes as f64 / MIB);
        let optional = [
            (&mut self.gradient_norm, metrics.gradient_norm.map(f64::from)),
            (&mut self.speed, metrics.tokens_per_second),
            (&mut self.mfu, metrics.mfu.map(|part| 100.0 * part)),
        ];
        for (series, value) in optional {
            value.into_iter().for_each(|value| series.push(x, value));
        }
        self.stride = self.stride.max(1);
        if self.rows.is_empty() || metrics.step.is_multiple_of(self.stride) {
            self.rows.push(*metrics);
        }
        if self.rows.len() > ROWS {
            self.stride *= 2;
            let (stride, first) = (self.stride, self.rows[0].step);
            self.rows.retain(|row| row.step == first || row.step.is_multiple_of(stride));
        }
        self.last = Some(*metrics);
        self.milliseconds += metrics.milliseconds;
        // A step that compiled has no speed.
        if metrics.tokens_per_second.is_some() {
            self.recent.push_back(metrics.milliseconds);
            let beyond = self.recent.len().saturating_sub(RECENT);
            self.recent.drain(..beyond);
        }
    }

    /// The mean time of the last steps in milliseconds; 0 before the second step.
    pub(super) fn recent_milliseconds(&self) -> f64 {
        self.recent.iter().sum::<f64>() / self.recent.len().max(1) as f64
    }

    /// Adds the loss of the validation batches after a step.
    pub(super) fn validation(&mut self, step: u64, loss: f64) {
        self.validation.push(step as f64, loss);
    }

    /// The charts, as HTML.
    pub(super) fn figures(&self) -> String {
        let curve = |name, series, marked| Curve { name, series, marked };
        let chart = |title, curves| Chart { title, axis: "step", curves }.figure();
        let one = |title, series| chart(title, vec![curve(title, series, false)]);
        let losses = vec![curve("training", &self.loss, false), curve("validation", &self.validation, true)];
        [
            chart("Loss", losses),
            one("Learning rate", &self.learning_rate),
            one("Gradient norm", &self.gradient_norm),
            one("Tokens a second", &self.speed),
            one("Model FLOPs utilization, %", &self.mfu),
            one("Peak of memory, MiB", &self.memory),
        ]
        .concat()
    }

    /// Rows of the table, as HTML, with the last step.
    pub(super) fn table(&self) -> String {
        let last = self.last.filter(|last| self.rows.last().is_some_and(|row| row.step != last.step));
        let row = |metrics: &Metrics| {
            let optional = |value: Option<f64>| value.map_or_else(|| "-".into(), number);
            let cells = [
                metrics.step.to_string(),
                number(f64::from(metrics.loss)),
                number(metrics.learning_rate),
                optional(metrics.gradient_norm.map(f64::from)),
                optional(metrics.tokens_per_second),
                optional(metrics.mfu.map(|part| 100.0 * part)),
                number(metrics.milliseconds),
                number(metrics.peak_bytes as f64 / MIB),
            ];
            let cells: String = cells.iter().map(|cell| format!("<td class=\"number\">{cell}</td>")).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let heads = ["step", "loss", "learning rate", "gradient norm", "tokens/s", "MFU %", "ms", "memory MiB"];
        let heads: String = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
        let rows: String = self.rows.iter().chain(last.as_ref()).map(row).collect();
        format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"steps\"><table>\
             <caption>Some of the steps; metrics.csv has all</caption><thead><tr>{heads}</tr></thead>\n\
             <tbody>{rows}</tbody></table></div>"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_step_is_a_part_of_the_mean() {
        let mut curves = Curves::default();
        let step = |step: u64, milliseconds: f64| Metrics {
            step,
            loss: 1.0,
            learning_rate: 1e-3,
            gradient_norm: None,
            tokens_per_second: (step > 1).then_some(1.0),
            mfu: None,
            milliseconds,
            peak_bytes: 0,
        };
        curves.step(&step(1, 1e6));
        assert_eq!(curves.recent_milliseconds(), 0.0);
        (2..=20).for_each(|number| curves.step(&step(number, 10.0)));
        curves.step(&step(21, 30.0));
        assert_eq!(curves.recent_milliseconds(), 11.0);
        (22..=41).for_each(|number| curves.step(&step(number, 10.0)));
        assert_eq!(curves.recent_milliseconds(), 10.0);
    }

    #[test]
    fn a_hundred_thousand_steps_fit_a_small_page() {
        let mut curves = Curves::default();
        for step in 1..=100_000 {
            curves.step(&Metrics {
                step,
                loss: if step == 77_777 { 50.0 } else { 3.0 + (step as f32).sin() / 7.0 },
                learning_rate: 1e-3 / step as f64,
                gradient_norm: Some((step as f32).cos() / 3.0),
                tokens_per_second: Some(1e5 / 3.0 + step as f64),
                mfu: Some(0.4),
                milliseconds: 0.5,
                peak_bytes: 1 << 30,
            });
        }
        let (figures, table) = (curves.figures(), curves.table());
        assert!(figures.len() < 250_000, "{} bytes", figures.len());
        assert!(figures.contains("77777,50"), "the peak is lost");
        let rows = table.matches("<tr>").count();
        assert!((30..=ROWS + 2).contains(&rows), "{rows}");
        assert!(table.contains("<td class=\"number\">1</td>") && table.contains("<td class=\"number\">100000</td>"));
    }
}
