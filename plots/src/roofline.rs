//! A roofline as a file of SVG: arithmetic a second over arithmetic a byte, both logarithmic, below what the device
//! does at most. A dot for each contender, as large as its time, with a number that the list beside it explains.

use svg::node::element::{Circle, Path, SVG, Title};

use crate::markup::plain;
use crate::picture::{sheet, text};

const WIDTH: f64 = 1080.0;
const HEIGHT: f64 = 520.0;
/// Where the drawing ends and the list begins.
const LIST: f64 = 700.0;
/// Between the edges of the picture and the axes: left, above, below.
const MARGINS: [f64; 3] = [92.0, 54.0, 46.0];
/// Height of a row of the list.
const ROW: f64 = 19.0;
/// Rows of the list; other dots have no number.
const ROWS: usize = 20;
/// Letters of a name in the list.
const NAME: usize = 32;
const COLOURS: usize = 7;

/// One symbol in a roofline.
#[derive(Debug, Clone, PartialEq)]
pub struct Dot {
    /// Its name.
    pub name: String,
    /// Those of one group have one colour.
    pub group: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Bytes that it moved.
    pub bytes: f64,
    /// Its floating-point operations; none, or 0, where it has no place in the drawing.
    pub flops: Option<f64>,
    /// How long its bytes and operations take at least, in seconds, if that is known.
    pub floor: Option<f64>,
}

impl Dot {
    /// What the floor is of the time.
    fn share(&self) -> Option<f64> {
        self.floor.filter(|_| self.seconds > 0.0).map(|floor| floor / self.seconds)
    }
}

/// What the device does at most, each with the words that say how that is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Roofs {
    /// Bytes a second.
    pub bytes: Option<(f64, String)>,
    /// Floating-point operations a second.
    pub flops: Option<(f64, String)>,
}

/// Axes: powers of ten, and where values are.
struct Axes {
    x: [i32; 2],
    y: [i32; 2],
}

impl Axes {
    fn place(range: [i32; 2], value: f64, [from, to]: [f64; 2]) -> f64 {
        from + (value.log10() - f64::from(range[0])) / f64::from(range[1] - range[0]) * (to - from)
    }

    fn x(&self, value: f64) -> f64 {
        Axes::place(self.x, value, [MARGINS[0], LIST - 24.0])
    }

    fn y(&self, value: f64) -> f64 {
        Axes::place(self.y, value, [HEIGHT - MARGINS[2], MARGINS[1]])
    }
}

/// The powers of ten around some numbers.
fn powers(numbers: impl Iterator<Item = f64> + Clone) -> [i32; 2] {
    let (least, most) = (numbers.clone().fold(f64::INFINITY, f64::min), numbers.fold(0.0, f64::max));
    if !(least > 0.0 && most.is_finite() && least <= most) {
        return [0, 1];
    }
    let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    [low, high.max(low + 1)]
}

/// `3.9 TB/s`, `120 GFLOP/s`.
fn rate(value: f64, unit: &str) -> String {
    const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let step = ((value.max(1.0).log10() / 3.0) as usize).min(PREFIXES.len() - 1);
    let short = value / 1000f64.powi(step as i32);
    let digits = if short >= 99.95 || (short - short.round()).abs() < 1e-9 { 0 } else { 1 };
    format!("{short:.digits$} {}{unit}", PREFIXES[step])
}

fn power(exponent: i32) -> String {
    match exponent {
        -3..=4 => crate::scale::number(10f64.powi(exponent)),
        _ => format!("1e{exponent}"),
    }
}

/// The roofline below a heading. The longest contenders have numbers, in the order of their times.
pub fn svg(heading: &str, roofs: &Roofs, dots: &[Dot]) -> String {
    let mut dots: Vec<&Dot> = dots.iter().collect();
    dots.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let total: f64 = dots.iter().map(|dot| dot.seconds).sum();
    let mut groups: Vec<&str> = Vec::new();
    for dot in &dots {
        if !groups.contains(&&*dot.group) {
            groups.push(&dot.group);
        }
    }
    let colour = |dot: &Dot| groups.iter().position(|group| *group == dot.group).unwrap_or(0) % COLOURS;
    let place = |dot: &Dot| -> Option<[f64; 2]> {
        let flops = dot.flops.filter(|flops| *flops > 0.0)?;
        (dot.bytes > 0.0 && dot.seconds > 0.0).then(|| [flops / dot.bytes, flops / dot.seconds])
    };
    let drawn: Vec<[f64; 2]> = dots.iter().filter_map(|dot| place(dot)).collect();
    let axes = axes(roofs, &drawn);
    let mut picture = sheet(WIDTH, HEIGHT).add(text(heading, [14.0, 22.0]).set("class", "title"));
    picture = grid(picture, &axes);
    picture = ceilings(picture, &axes, roofs);
    let longest = dots.first().map_or(0.0, |dot| dot.seconds);
    for (i, dot) in dots.iter().enumerate() {
        let Some([x, y]) = place(dot) else { continue };
        let radius = 4.0 + 12.0 * (dot.seconds / longest).sqrt();
        let at = [axes.x(x), axes.y(y)];
        let words = format!("{} ({}): {}", dot.name, dot.group, told(dot, total));
        picture = picture.add(
            Circle::new()
                .set("cx", format!("{:.1}", at[0]))
                .set("cy", format!("{:.1}", at[1]))
                .set("r", format!("{radius:.1}"))
                .set("class", format!("bar c{}", colour(dot)))
                .set("fill-opacity", "0.55")
                .add(Title::new(plain(&words))),
        );
        if i < ROWS {
            // Within the dot if it is large enough, else beside it.
            let (number, inside) = ((i + 1).to_string(), radius >= 9.0);
            let label = text(number, [if inside { at[0] } else { at[0] + radius + 2.0 }, at[1] + 4.0]);
            picture = picture.add(label.set("text-anchor", if inside { "middle" } else { "start" }));
        }
    }
    format!("{}\n", list(picture, &dots, &colour, total, dots.len() - drawn.len()))
}

/// Axes that have the dots, and the corner where the ceilings meet.
fn axes(roofs: &Roofs, drawn: &[[f64; 2]]) -> Axes {
    let ridge = roofs.bytes.as_ref().zip(roofs.flops.as_ref()).map(|((bytes, _), (flops, _))| flops / bytes);
    let x = powers(drawn.iter().map(|[x, _]| *x).chain(ridge.map(|ridge| ridge * 3.0)));
    let top = match (&roofs.flops, &roofs.bytes) {
        (Some((flops, _)), _) => Some(flops * 1.5),
        (None, Some((bytes, _))) => Some(bytes * 10f64.powi(x[1])),
        (None, None) => None,
    };
    let y = powers(drawn.iter().map(|[_, y]| *y).chain(top));
    Axes { x, y }
}

fn grid(mut picture: SVG, axes: &Axes) -> SVG {
    let [left, above, below] = MARGINS;
    for exponent in axes.x[0]..=axes.x[1] {
        let x = axes.x(10f64.powi(exponent));
        picture = picture.add(Path::new().set("d", format!("M{x:.1} {above}V{}", HEIGHT - below)).set("class", "grid"));
        picture = picture.add(text(power(exponent), [x, HEIGHT - below + 18.0]).set("text-anchor", "middle"));
    }
    for exponent in axes.y[0]..=axes.y[1] {
        let y = axes.y(10f64.powi(exponent));
        picture = picture.add(Path::new().set("d", format!("M{left} {y:.1}H{}", LIST - 24.0)).set("class", "grid"));
        let words = rate(10f64.powi(exponent), "FLOP/s");
        picture = picture.add(text(words, [left - 6.0, y + 4.0]).set("text-anchor", "end"));
    }
    let middle = (left + LIST - 24.0) / 2.0;
    picture.add(text("FLOPs for each byte moved", [middle, HEIGHT - 10.0]).set("text-anchor", "middle"))
}

/// The ceilings, and what they are above the drawing.
fn ceilings(mut picture: SVG, axes: &Axes, roofs: &Roofs) -> SVG {
    let [first, last] = axes.x.map(|exponent| 10f64.powi(exponent));
    let least = 10f64.powi(axes.y[0]);
    let ridge = match (&roofs.bytes, &roofs.flops) {
        (Some((bytes, _)), Some((flops, _))) => (flops / bytes).clamp(first, last),
        (None, Some(_)) => first,
        _ => last,
    };
    let mut line = |from: [f64; 2], to: [f64; 2]| {
        let path = format!("M{:.1} {:.1}L{:.1} {:.1}", axes.x(from[0]), axes.y(from[1]), axes.x(to[0]), axes.y(to[1]));
        let roof = Path::new().set("d", path).set("class", "line c6");
        picture = std::mem::replace(&mut picture, SVG::new()).add(roof);
    };
    let mut words = Vec::new();
    if let Some((bytes, known)) = &roofs.bytes {
        let begin = first.max(least / bytes);
        if begin < ridge {
            line([begin, bytes * begin], [ridge, bytes * ridge]);
        }
        words.push(format!("slope: memory, {} ({known})", rate(*bytes, "B/s")));
    }
    if let Some((flops, known)) = &roofs.flops {
        line([ridge, *flops], [last, *flops]);
        words.push(format!("level: products, {} ({known})", rate(*flops, "FLOP/s")));
    }
    if words.is_empty() {
        words.push("no ceiling is known".into());
    }
    picture.add(text(words.join("; "), [MARGINS[0], MARGINS[1] - 12.0]))
}

/// Share of the time, and what of it is the floor.
fn told(dot: &Dot, total: f64) -> String {
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    let share = if total > 0.0 { percent(dot.seconds / total) } else { "0 %".into() };
    match dot.share() {
        Some(floor) => format!("{share} of the time, floor {}", percent(floor)),
        None => format!("{share} of the time"),
    }
}

/// The list of the longest, with a row for the rest.
fn list(mut picture: SVG, dots: &[&Dot], colour: &dyn Fn(&Dot) -> usize, total: f64, without: usize) -> SVG {
    let columns = [LIST + 22.0, LIST + 30.0, WIDTH - 76.0, WIDTH - 14.0];
    let mut y = MARGINS[1] - 12.0;
    let head = |words: &str, x: f64| text(words, [x, y]).set("text-anchor", "end").set("class", "title");
    picture = picture.add(head("of time", columns[2])).add(head("floor", columns[3]));
    for (i, dot) in dots.iter().take(ROWS).enumerate() {
        y += ROW;
        let percent = |part: f64| format!("{:.1} %", 100.0 * part);
        let end = |words: String, x: f64| text(words, [x, y]).set("text-anchor", "end");
        picture = picture.add(end((i + 1).to_string(), columns[0]));
        let name = shortened(&dot.name);
        picture = picture.add(text(name, [columns[1], y]).set("class", format!("name c{}", colour(dot))));
        picture = picture.add(end(if total > 0.0 { percent(dot.seconds / total) } else { "-".into() }, columns[2]));
        picture = picture.add(end(dot.share().map_or_else(|| "-".to_owned(), percent), columns[3]));
    }
    let mut notes = Vec::new();
    let mut groups: Vec<(&str, usize)> = Vec::new();
    for dot in dots {
        if !groups.iter().any(|(name, _)| *name == dot.group) {
            groups.push((&dot.group, colour(dot)));
        }
    }
    if let Some(rest) = dots.get(ROWS..).filter(|rest| !rest.is_empty()) {
        let share = rest.iter().map(|dot| dot.seconds).sum::<f64>() / total.max(f64::MIN_POSITIVE);
        notes.push(format!("{} more: {:.1} % of the time", rest.len(), 100.0 * share));
    }
    if without > 0 {
        notes.push(format!("{without} without known arithmetic are in the list alone"));
    }
    for note in notes {
        y += ROW;
        picture = picture.add(text(note, [columns[1], y + 4.0]));
    }
    // The groups in their colours, in one line below the list.
    let mut x = columns[1];
    for (name, colour) in groups {
        picture = picture.add(text(name, [x, y + ROW + 8.0]).set("class", format!("name title c{colour}")));
        x += 7.4 * name.chars().count() as f64 + 14.0;
    }
    picture
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

    fn dot(name: &str, seconds: f64, bytes: f64, flops: Option<f64>) -> Dot {
        Dot { name: name.into(), group: "cuda".into(), seconds, bytes, flops, floor: Some(bytes / 4e12) }
    }

    fn roofs() -> Roofs {
        Roofs { bytes: Some((4e12, "measured".into())), flops: Some((6e14, "data sheet".into())) }
    }

    #[test]
    fn dots_are_where_their_rates_are() {
        // At the corner, and at a tenth of the level.
        let dots =
            [dot("corner<", 1e-3, 4e9, Some(6e11)), dot("low", 1e-3, 4e8, Some(6e10)), dot("copy", 1e-4, 4e8, None)];
        let text = svg("a step", &roofs(), &dots);
        let circles: Vec<f64> = text
            .lines()
            .filter(|line| line.contains("<circle"))
            .map(|line| line.split("cy=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        let axes = axes(&roofs(), &[[150.0, 6e14], [150.0, 6e13]]);
        assert_eq!(circles, [axes.y(6e14), axes.y(6e13)].map(|y| (y * 10.0).round() / 10.0));
        for words in ["corner&lt;", "100.0 %", "memory, 4 TB/s (measured)", "products, 600 TFLOP/s (data sheet)"] {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        assert!(
            text.contains("1 without known arithmetic") && !text.contains("NaN") && !text.contains("inf"),
            "{text}"
        );
    }

    #[test]
    fn nothing_known_is_drawn_too() {
        let text = svg("nothing", &Roofs::default(), &[]);
        assert!(text.contains("no ceiling is known") && !text.contains("NaN") && !text.contains("inf"), "{text}");
        let text = svg(
            "times",
            &Roofs { flops: None, ..roofs() },
            &[dot("a", 0.0, 0.0, Some(0.0)), dot("b", 1.0, 8.0, Some(4.0))],
        );
        assert_eq!(text.matches("<circle").count(), 1);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn many_are_added_up() {
        let dots: Vec<Dot> =
            (1..40).map(|i| dot(&format!("operator_{i}"), 1e-6 * f64::from(i), 1e6, Some(1e6))).collect();
        let text = svg("many", &roofs(), &dots);
        assert!(text.contains("19 more: "), "{text}");
        assert_eq!(rate(3.35e12, "B/s"), "3.4 TB/s");
        assert_eq!(rate(1e12, "FLOP/s"), "1 TFLOP/s");
    }
}
