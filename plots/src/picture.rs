//! Curves as a file of SVG: panels, one below the other, with a line for each run.

use svg::node::element::{Path, Polyline, Rectangle, SVG, Style, Text};

use crate::markup::plain;
use crate::scale::{number, range, ticks};
use crate::series::Series;

const WIDTH: f64 = 720.0;
const PANEL: f64 = 220.0;
/// Between the edges of a panel and its axes: left, right, above, below.
const MARGINS: [f64; 4] = [70.0, 20.0, 30.0, 30.0];
/// Curves that have colours of their own.
const COLOURS: usize = 7;
/// Colours that people with impaired colour vision can tell apart (after Okabe and Ito), on a light and on a dark
/// ground. Curves beyond them are dashed.
pub(crate) const STYLE: &str = "
text { fill: #1b1f24; font: 12px sans-serif }
.ground { fill: #fff } .grid { stroke: #ddd } .title { font-weight: bold }
.line { fill: none; stroke-width: 1.5 }
.c0 { --c: #0072b2 } .c1 { --c: #b04a00 } .c2 { --c: #007f5c } .c3 { --c: #a8457f } .c4 { --c: #8a6100 } .c5 { --c: #2a6f9e }
.c6 { --c: #000 } .line { stroke: var(--c) } .bar { fill: var(--c) } text.name { fill: var(--c) }
@media (prefers-color-scheme: dark) {
text { fill: #e6e8eb } .ground { fill: #14171b } .grid { stroke: #343b44 }
.c0 { --c: #6fb7f5 } .c1 { --c: #f59a5f } .c2 { --c: #4fd0a3 } .c3 { --c: #e79ac6 } .c4 { --c: #e6b74e } .c5 { --c: #9fd4f5 }
.c6 { --c: #e6e8eb } }
";

/// A text at a place.
pub(crate) fn text(words: impl Into<String>, [x, y]: [f64; 2]) -> Text {
    Text::new(plain(&words.into())).set("x", format!("{x:.1}")).set("y", format!("{y:.1}"))
}

/// An empty picture of this size.
pub(crate) fn sheet(width: f64, height: f64) -> SVG {
    let ground = Rectangle::new().set("width", "100%").set("height", "100%").set("class", "ground");
    let sheet = SVG::new().set("viewBox", (0, 0, width, height)).set("width", width).set("height", height);
    sheet.add(Style::new(STYLE)).add(ground)
}

/// A panel: its title, and a curve for each name.
pub type Panel<'a> = (&'a str, Vec<Series>);

/// Panels of the curves of `names`. Panels without a point are left out.
pub fn svg(names: &[&str], panels: &[Panel]) -> String {
    let panels: Vec<&Panel> = panels.iter().filter(|(_, lines)| lines.iter().any(|line| !line.is_empty())).collect();
    let top = 20.0 * names.len() as f64 + 10.0;
    let mut picture = sheet(WIDTH, top + PANEL * panels.len() as f64);
    for (i, name) in names.iter().enumerate() {
        let y = 18.0 + 20.0 * i as f64;
        let sample = format!("M{} {}h24", MARGINS[0], y - 4.0);
        picture = picture.add(Path::new().set("d", sample).set("class", class(i)).set("stroke-dasharray", dashes(i)));
        picture = picture.add(text(*name, [MARGINS[0] + 30.0, y]).set("class", format!("name c{}", i % COLOURS)));
    }
    for (i, (title, lines)) in panels.into_iter().enumerate() {
        picture = panel(picture, top + PANEL * i as f64, title, lines);
    }
    format!("{picture}\n")
}

fn class(curve: usize) -> String {
    format!("line c{}", curve % COLOURS)
}

fn dashes(curve: usize) -> &'static str {
    ["none", "6 3", "2 2", "8 2 2 2"][curve / COLOURS % 4]
}

fn panel(mut picture: SVG, top: f64, title: &str, lines: &[Series]) -> SVG {
    let lines: Vec<Vec<(f64, f64)>> = lines.iter().map(Series::points).collect();
    let all = || lines.iter().flatten();
    let ([first, last], [least, most]) = (range(all().map(|(x, _)| *x)), range(all().map(|(_, y)| *y)));
    let [left, right, above, below] = MARGINS;
    let (from, to) = ([left, top + PANEL - below], [WIDTH - right, top + above]);
    let x = |value: f64| from[0] + (value - first) / (last - first) * (to[0] - from[0]);
    let y = |value: f64| from[1] + (value - least) / (most - least) * (to[1] - from[1]);
    picture = picture.add(text(title, [left, to[1] - 10.0]).set("class", "title"));
    for tick in ticks(least, most) {
        let grid = format!("M{left} {:.1}H{}", y(tick), to[0]);
        picture = picture.add(Path::new().set("d", grid).set("class", "grid"));
        picture = picture.add(text(number(tick), [left - 6.0, y(tick) + 4.0]).set("text-anchor", "end"));
    }
    for tick in ticks(first, last) {
        picture = picture.add(text(number(tick), [x(tick), from[1] + 18.0]).set("text-anchor", "middle"));
    }
    for (i, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let points: Vec<String> = line.iter().map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b))).collect();
        let line = Polyline::new().set("points", points.join(" "));
        picture = picture.add(line.set("class", class(i)).set("stroke-dasharray", dashes(i)));
    }
    picture
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_without_values_are_left_out_and_peaks_are_not() {
        let value = |x: i32| if x == 4321 { 9.0 } else { 4.0 - f64::from(x).ln() / 10.0 };
        let long: Series = (1..=9000).map(|x| (f64::from(x), value(x))).collect();
        let short: Series = (1..=3).map(|x| (f64::from(x), value(x))).collect();
        let both = || vec![long.clone(), short.clone()];
        let text =
            svg(&["a<b\u{1b}", "other"], &[("loss", both()), ("empty", vec![Series::default()]), ("rate", both())]);
        assert_eq!((text.matches("class=\"title\"").count(), text.matches("<polyline").count()), (2, 4), "{text}");
        assert!(text.contains("a&lt;b␛") && !text.contains('\u{1b}') && !text.contains("NaN") && !text.contains("inf"));
        assert!(text.len() < 60_000, "{} bytes", text.len());
        // The peak of one step is the highest point of its panel, which begins below the names.
        let highest = 20.0 * 2.0 + 10.0 + MARGINS[2];
        assert!(text.contains(&format!(",{highest:.1} ")), "{highest}");
        assert_eq!(svg(&["a"], &[]).matches("<polyline").count(), 0);
    }
}
