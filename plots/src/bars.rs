//! Bars beside one another as a file of SVG: panels, one below the other, with a bar for each contender.

use svg::node::element::{Rectangle, Title};

use crate::markup::plain;
use crate::picture::{sheet, text};
use crate::scale::number;

const WIDTH: f64 = 720.0;
/// Height of a bar with the space to the next one.
const ROW: f64 = 24.0;
/// Height of a panel's title.
const HEAD: f64 = 34.0;
/// Space for the value behind a bar.
const VALUE: f64 = 90.0;
/// Letters of a name that are shown.
const NAME: usize = 34;

/// A panel: its title with the unit, and the bars with their names. Bars begin at zero.
pub struct Bars {
    /// Title of the chart.
    pub title: String,
    /// Names and values, in their order. What is not finite or below zero has no bar, and says so.
    pub rows: Vec<(String, f64)>,
}

/// The panels below a heading. Panels without a row are left out.
pub fn svg(heading: &str, panels: &[Bars]) -> String {
    let panels: Vec<&Bars> = panels.iter().filter(|panel| !panel.rows.is_empty()).collect();
    let heights = panels.iter().map(|panel| HEAD + ROW * panel.rows.len() as f64);
    let mut picture = sheet(WIDTH, 34.0 + heights.sum::<f64>() + 10.0);
    picture = picture.add(text(heading, [10.0, 22.0]).set("class", "title"));
    let longest = panels.iter().flat_map(|panel| &panel.rows).map(|(name, _)| name.chars().count()).max();
    let left = 20.0 + 6.8 * longest.unwrap_or(0).min(NAME) as f64;
    let mut top = 34.0;
    for panel in panels {
        let most = panel.rows.iter().map(|(_, value)| *value).filter(|value| value.is_finite()).fold(0.0, f64::max);
        picture = picture.add(text(&*panel.title, [10.0, top + 22.0]).set("class", "title"));
        top += HEAD;
        for (i, (name, value)) in panel.rows.iter().enumerate() {
            let drawn = value.is_finite() && *value >= 0.0;
            let width = if drawn && most > 0.0 { value / most * (WIDTH - left - VALUE) } else { 0.0 };
            let told = if drawn { number(*value) } else { "no value".into() };
            let bar = Rectangle::new()
                .set("x", format!("{left:.1}"))
                .set("y", format!("{top:.1}"))
                .set("width", format!("{width:.1}"))
                .set("height", ROW - 6.0)
                .set("class", format!("bar c{}", i % 7))
                .add(Title::new(plain(&format!("{name}: {told}"))));
            picture = picture.add(bar);
            picture = picture.add(text(told, [left + width + 6.0, top + 14.0]));
            picture = picture.add(text(shortened(name), [left - 8.0, top + 14.0]).set("text-anchor", "end"));
            top += ROW;
        }
    }
    format!("{picture}\n")
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    name.chars().take(NAME - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let rows = [("ours <b>\u{1b}", 2.0), ("peer", 4.0), ("broken", f64::NAN)];
        let rows = rows.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let empty = Bars { title: "empty".into(), rows: Vec::new() };
        let text = svg("a step", &[Bars { title: "ms".into(), rows }, empty]);
        let widths: Vec<f64> = text
            .lines()
            .filter(|line| line.contains("class=\"bar"))
            .map(|line| line.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(widths.len(), 3, "{text}");
        assert!((2.0 * widths[0] - widths[1]).abs() < 0.2 && widths[2] == 0.0, "{widths:?}");
        assert!(
            text.contains("ours &lt;b&gt;␛")
                && !text.contains('\u{1b}')
                && text.contains("no value")
                && !text.contains(">empty<"),
            "{text}"
        );
    }
}
