//! A chart of curves as a figure of a page: the lines are a drawing that stretches to the width of the page, the
//! numbers beside it are text of the page's own size, and the script of the page tells the values at a place.

use std::fmt::Write;

use svg::node::element::{Path, SVG};

use crate::markup::{escape_json, escape_text};
use crate::scale::{number, range, ticks};
use crate::series::Series;

/// Width and height of the drawing, which is stretched.
const SIZE: [f64; 2] = [1000.0, 300.0];

/// One curve.
pub struct Curve<'a> {
    /// The name in the legend.
    pub name: &'a str,
    /// Its points.
    pub series: &'a Series,
    /// Whether its points are marked, for few points that are apart.
    pub marked: bool,
}

/// Curves over the same axis.
pub struct Chart<'a> {
    /// What is drawn, with its unit: the heading.
    pub title: &'a str,
    /// What the horizontal axis counts: `step`.
    pub axis: &'a str,
    /// The curves. At most three are told apart.
    pub curves: Vec<Curve<'a>>,
}

impl Chart<'_> {
    /// The figure as HTML; nothing if there is no point.
    pub fn figure(&self) -> String {
        let lines: Vec<Vec<(f64, f64)>> = self.curves.iter().map(|curve| curve.series.points()).collect();
        let all = || lines.iter().flatten();
        if all().next().is_none() {
            return String::new();
        }
        let ([first, last], [least, most]) = (range(all().map(|(x, _)| *x)), range(all().map(|(_, y)| *y)));
        let part = |value: f64, [from, to]: [f64; 2]| (value - from) / (to - from);
        let x = |value: f64| part(value, [first, last]);
        let y = |value: f64| 1.0 - part(value, [least, most]);
        let mut drawing = SVG::new()
            .set("viewBox", (0, 0, SIZE[0], SIZE[1]))
            .set("preserveAspectRatio", "none")
            .set("aria-hidden", "true");
        let mut labels = String::new();
        for tick in ticks(least, most) {
            drawing =
                drawing.add(Path::new().set("class", "grid").set("d", format!("M0 {:.1}H1000", y(tick) * SIZE[1])));
            let _ = write!(labels, "<span class=\"y\" style=\"top:{:.2}%\">{}</span>", 100.0 * y(tick), number(tick));
        }
        for tick in ticks(first, last) {
            let (at, text) = (100.0 * x(tick), number(tick));
            let _ = write!(labels, "<span class=\"x\" style=\"left:{at:.2}%\">{text}</span>");
        }
        for (i, (curve, line)) in self.curves.iter().zip(&lines).enumerate() {
            let place = |(a, b): &(f64, f64)| format!("{:.1} {:.1}", x(*a) * SIZE[0], y(*b) * SIZE[1]);
            let places: Vec<String> = line.iter().map(place).collect();
            if places.is_empty() {
                continue;
            }
            let path = |class: String, d: String| Path::new().set("class", class).set("d", d);
            drawing = drawing.add(path(format!("curve curve-{i}"), format!("M{}", places.join("L"))));
            if curve.marked || places.len() == 1 {
                // A line of no length with round ends is a dot, however the drawing is stretched.
                let dots: String = places.iter().map(|place| format!("M{place}h0")).collect();
                drawing = drawing.add(path(format!("dots curve-{i}"), dots));
            }
        }
        let words = self.words();
        format!(
            "<figure class=\"chart\"><figcaption><h2>{title}</h2>{legend}<output>{words}</output></figcaption>\
             <div class=\"plot\" role=\"slider\" tabindex=\"0\" aria-label=\"{title} by {axis}\" \
             aria-valuemin=\"{first}\" aria-valuemax=\"{last}\" aria-valuenow=\"{last}\" aria-valuetext=\"{words}\">\
             {drawing}{labels}<i class=\"cursor\" hidden></i></div>\
             <script type=\"application/json\">{data}</script></figure>\n",
            title = escape_text(self.title),
            legend = self.legend(),
            words = escape_text(&words),
            axis = escape_text(self.axis),
            data = self.data(&lines),
        )
    }

    /// The samples of lines with their names, where there are several.
    fn legend(&self) -> String {
        let shown: Vec<_> = self.curves.iter().enumerate().filter(|(_, curve)| !curve.series.is_empty()).collect();
        if shown.len() < 2 {
            return String::new();
        }
        let entry = |(i, curve): &(usize, &Curve)| {
            let line = Path::new().set("class", format!("curve curve-{i}")).set("d", "M0 5H24");
            let dot = Path::new().set("class", format!("dots curve-{i}")).set("d", "M12 5h0");
            let sample = SVG::new().set("viewBox", (0, 0, 24, 10)).set("aria-hidden", "true").add(line);
            let sample = if curve.marked { sample.add(dot) } else { sample };
            format!("<span class=\"key\">{sample} {}</span>", escape_text(curve.name))
        };
        shown.iter().map(entry).collect()
    }

    /// The last value of each curve, and its least and greatest.
    fn words(&self) -> String {
        let mut words = String::new();
        let named = self.curves.iter().filter(|curve| !curve.series.is_empty()).count() > 1;
        for curve in &self.curves {
            let (Some(last), Some(least), Some(greatest)) =
                (curve.series.last(), curve.series.least(), curve.series.greatest())
            else {
                continue;
            };
            let before = if words.is_empty() { "" } else { "; " };
            let name = if named { format!("{} ", curve.name) } else { String::new() };
            let [last, least, greatest] = [last, least, greatest].map(|(_, value)| number(value));
            let _ = write!(words, "{before}{name}{last} ({least} to {greatest})");
        }
        words
    }

    /// What the script reads: the axis, its ends, and each curve as `[name, [x, y, x, y, ...]]`.
    fn data(&self, lines: &[Vec<(f64, f64)>]) -> String {
        let string = |text: &str| {
            let escaped = |c: char| match c {
                '"' | '\\' => format!("\\{c}"),
                c if c < ' ' => format!("\\u{:04x}", u32::from(c)),
                c => c.to_string(),
            };
            let quoted: String = text.chars().map(escaped).collect();
            format!("\"{quoted}\"")
        };
        let curve = |(curve, line): (&Curve, &Vec<(f64, f64)>)| {
            let numbers: Vec<String> = line.iter().map(|(x, y)| format!("{},{}", short(*x), short(*y))).collect();
            format!("[{},[{}]]", string(curve.name), numbers.join(","))
        };
        let curves: Vec<String> = self.curves.iter().zip(lines).map(curve).collect();
        escape_json(&format!("{{\"axis\":{},\"curves\":[{}]}}", string(self.axis), curves.join(",")))
    }
}

/// A number with six digits, as JSON has it.
fn short(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let short: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    if (1e-4..1e9).contains(&short.abs()) { short.to_string() } else { format!("{short:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_curves_as_drawing_and_as_numbers() {
        let loss: Series = [(1.0, 4.0), (2.0, 3.5), (3.0, 3.25)].into_iter().collect();
        let validation: Series = [(3.0, 3.75)].into_iter().collect();
        let empty = Series::default();
        let curve = |name, series, marked| Curve { name, series, marked };
        let curves = vec![curve("</script>", &loss, false), curve("validation", &validation, true)];
        let figure = Chart { title: "loss <b>", axis: "step", curves }.figure();
        assert!(figure.contains("loss &lt;b&gt;") && !figure.contains("<b>"), "{figure}");
        assert!(figure.contains("[\"\\u003c/script\\u003e\",[1,4,2,3.5,3,3.25]]"), "{figure}");
        assert!(figure.contains("M0.0 0.0L500.0 200.0L1000.0 300.0"), "{figure}");
        assert!(figure.contains("&lt;/script&gt; 3.25 (3.25 to 4); validation 3.75 (3.75 to 3.75)"), "{figure}");
        assert_eq!(figure.matches("class=\"key\"").count(), 2);
        let nothing = Chart { title: "t", axis: "step", curves: vec![curve("a", &empty, false)] };
        assert_eq!(nothing.figure(), "");
        assert_eq!([short(1e-7), short(0.1 + 0.2), short(3e20)], ["1e-7", "0.3", "3e20"]);
    }
}
