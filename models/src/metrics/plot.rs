//! The curves of runs as SVG, without a drawing library: four panels, one below the other, with a line for each run.

use std::fmt::Write;

use super::table::Metrics;

const WIDTH: f64 = 720.0;
const PANEL: f64 = 220.0;
/// Between the edges of a panel and its axes: left, right, above, below.
const MARGINS: [f64; 4] = [70.0, 20.0, 30.0, 30.0];
/// Colours that people tell apart who see few (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
/// Parts that a long run is divided into; of each its smallest and its largest value are drawn.
const PARTS: usize = 500;

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
    let points = |run: &[Metrics], column: Column| -> Vec<(f64, f64)> {
        let value = |metrics: &Metrics| Some((metrics.step as f64, column(metrics)?));
        run.iter().filter_map(value).filter(|(_, value)| value.is_finite()).collect()
    };
    let panels: Vec<(&str, Vec<Vec<(f64, f64)>>)> = PANELS
        .into_iter()
        .map(|(title, column)| (title, runs.iter().map(|(_, run)| points(run, column)).collect::<Vec<_>>()))
        .filter(|(_, lines)| lines.iter().any(|line| !line.is_empty()))
        .collect();
    let names = 20.0 * runs.len() as f64 + 10.0;
    let height = names + PANEL * panels.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (i, (name, _)) in runs.iter().enumerate() {
        let (y, colour) = (18.0 + 20.0 * i as f64, colour(i));
        let _ = writeln!(text, "<text x=\"{}\" y=\"{y}\" fill=\"{colour}\">{}</text>", MARGINS[0], escaped(name));
    }
    for (i, (title, lines)) in panels.iter().enumerate() {
        panel(&mut text, names + PANEL * i as f64, title, lines);
    }
    text + "</svg>\n"
}

fn colour(run: usize) -> &'static str {
    COLOURS[run % COLOURS.len()]
}

fn escaped(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The least and the greatest of some numbers, a little apart where they are equal.
fn range(numbers: impl Iterator<Item = f64> + Clone) -> [f64; 2] {
    let (least, most) = (numbers.clone().fold(f64::INFINITY, f64::min), numbers.fold(f64::NEG_INFINITY, f64::max));
    let apart = if least < most { 0.0 } else { 0.5 * least.abs().max(1e-9) };
    [least - apart, most + apart]
}

fn panel(text: &mut String, top: f64, title: &str, lines: &[Vec<(f64, f64)>]) {
    let all = || lines.iter().flatten();
    let ([first, last], [least, most]) = (range(all().map(|(x, _)| *x)), range(all().map(|(_, y)| *y)));
    let [left, right, above, below] = MARGINS;
    let (from, to) = ([left, top + PANEL - below], [WIDTH - right, top + above]);
    let x = |value: f64| from[0] + (value - first) / (last - first) * (to[0] - from[0]);
    let y = |value: f64| from[1] + (value - least) / (most - least) * (to[1] - from[1]);
    let _ = writeln!(text, "<text x=\"{left}\" y=\"{}\" font-weight=\"bold\">{title}</text>", to[1] - 10.0);
    for tick in ticks(least, most) {
        let (at, end) = (y(tick), to[0]);
        let _ = writeln!(text, "<path d=\"M{left} {at:.1}H{end:.1}\" stroke=\"#ddd\"/>");
        let (x, y) = (left - 6.0, at + 4.0);
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", number(tick));
    }
    for tick in ticks(first, last) {
        let (x, y) = (x(tick), from[1] + 18.0);
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", number(tick));
    }
    for (i, line) in lines.iter().enumerate() {
        let drawn: Vec<String> = thinned(line).map(|(a, b)| format!("{:.1},{:.1}", x(a), y(b))).collect();
        if !drawn.is_empty() {
            let _ = writeln!(
                text,
                "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>",
                colour(i),
                drawn.join(" ")
            );
        }
    }
}

/// The points of a line; of a long one the least and the greatest of each part, in their order.
fn thinned(line: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + '_ {
    let size = line.len().div_ceil(PARTS).max(1);
    line.chunks(size).flat_map(move |part| {
        let by = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = [part.iter().min_by(by), part.iter().max_by(by)];
        let mut ends: Vec<(f64, f64)> = ends.into_iter().flatten().copied().collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        ends.dedup();
        ends
    })
}

/// Round numbers between two others, at most eight of them.
fn ticks(least: f64, most: f64) -> Vec<f64> {
    let rough = (most - least) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|unit| unit * power).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    if !(step.is_finite() && step > 0.0) {
        return Vec::new();
    }
    let first = (least / step).ceil();
    (0..8).map(|i| (first + f64::from(i)) * step).take_while(|tick| *tick <= most + step * 1e-9).collect()
}

/// A tick's number, without the rounding errors of its product.
fn number(tick: f64) -> String {
    let short: f64 = format!("{tick:.4e}").parse().unwrap_or(tick);
    match short.abs() {
        0.0 => "0".into(),
        size if (1e-3..1e6).contains(&size) => short.to_string(),
        _ => format!("{short:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps: u64, mfu: Option<f64>) -> Vec<Metrics> {
        let metrics = |step: u64| Metrics {
            step,
            loss: if step == 70 {
                f32::NAN
            } else {
                4.0 - (step as f32).ln() / 10.0 + if step == 4321 { 3.0 } else { 0.0 }
            },
            learning_rate: 1e-3,
            gradient_norm: None,
            tokens_per_second: (step > 1).then_some(5e4),
            mfu,
            milliseconds: 2.0,
            peak_bytes: 1,
        };
        (1..=steps).map(metrics).collect()
    }

    #[test]
    fn panels_without_values_are_left_out_and_peaks_are_not() {
        let text = svg(&[("a<b".into(), run(9000, None)), ("other".into(), run(3, None))]);
        assert_eq!(text.matches("font-weight").count(), 3, "{text}");
        assert_eq!(text.matches("<polyline").count(), 6);
        assert!(text.contains("a&lt;b") && !text.contains("NaN") && !text.contains("inf"));
        assert!(text.len() < 120_000, "{} bytes", text.len());
        // The peak of one step is the highest point of its panel.
        let highest = names_height(2) + MARGINS[2];
        assert!(text.contains(&format!(",{highest:.1} ")), "{highest}");
        assert_eq!(svg(&[("a".into(), run(5, Some(0.4)))]).matches("font-weight").count(), 4);
        assert_eq!(svg(&[("a".into(), Vec::new())]).matches("<polyline").count(), 0);
    }

    fn names_height(runs: usize) -> f64 {
        20.0 * runs as f64 + 10.0
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            ticks(0.0, 1.0).iter().map(|tick| number(*tick)).collect::<Vec<_>>(),
            ["0", "0.2", "0.4", "0.6", "0.8", "1"]
        );
        assert_eq!(ticks(1.0, 300.0).iter().map(|tick| number(*tick)).collect::<Vec<_>>(), ["100", "200", "300"]);
        assert_eq!(number(0.000_3), "3e-4");
        assert!(ticks(f64::NAN, 1.0).is_empty() && ticks(0.0, f64::INFINITY).is_empty());
    }
}
