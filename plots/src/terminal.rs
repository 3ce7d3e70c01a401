//! Curves as text: dots of braille in a terminal that has Unicode, stars in others.

use unicode_width::UnicodeWidthChar;

use crate::scale::{number, range};
use crate::series::Series;

/// Bits of the dots of a braille letter, by row and column.
const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
/// The letter without dots.
const BRAILLE: u32 = 0x2800;

/// How a chart is written.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// Columns of the terminal; no line is longer.
    pub columns: usize,
    /// Lines of the drawing, without the title and the axis.
    pub lines: usize,
    /// Whether it shows Unicode.
    pub unicode: bool,
}

impl Terminal {
    /// Whether the locale of this process has Unicode, by the variables that say so.
    pub fn locale_has_unicode() -> bool {
        let value = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(value).unwrap_or_default().to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    }
}

/// A curve by `axis` below a line with its first, its last and its best value, the least. Lines end with a line break.
/// Without points there is no line.
pub fn chart(title: &str, axis: &str, series: &Series, terminal: Terminal) -> String {
    let (Some(first), Some(last), Some(best)) = (series.first(), series.last(), series.least()) else {
        return String::new();
    };
    let points = series.points();
    let [least, most] = range(points.iter().map(|(_, y)| *y));
    let [from, to] = range(points.iter().map(|(x, _)| *x));
    let labels = [number(most), number((least + most) / 2.0), number(least)];
    let margin = labels.iter().map(String::len).max().unwrap_or(0);
    let columns = terminal.columns.saturating_sub(margin + 2).clamp(1, 100);
    let lines = terminal.lines.max(1);
    let (wide, high) = if terminal.unicode { (2, 4) } else { (1, 1) };
    // Of each column its levels, from above.
    let mut dots = vec![vec![false; lines * high]; columns * wide];
    let column = |x: f64| scaled((x - from) / (to - from), columns * wide);
    let row = |y: f64| scaled((most - y) / (most - least), lines * high);
    let mut before: Option<(usize, usize)> = None;
    for (x, y) in &points {
        let (at, level) = (column(*x), row(*y));
        let (start, begin) = before.unwrap_or((at, level));
        // The way from the point before: a dot in each column, and all between two levels.
        let mut above = begin;
        for (step, levels) in dots.iter_mut().enumerate().take(at + 1).skip(start) {
            let share = if at > start { (step - start) as f64 / (at - start) as f64 } else { 1.0 };
            let now = (begin as f64 + share * (level as f64 - begin as f64)).round() as usize;
            (above.min(now)..=above.max(now)).for_each(|level| levels[level] = true);
            above = now;
        }
        before = Some((at, level));
    }
    let summary = |what: &str, (x, y): (f64, f64)| format!("{what} {} ({axis} {})", number(y), number(x));
    let title = format!("{title}: {}, {}, {}", summary("first", first), summary("last", last), summary("best", best));
    let mut text = format!("{}\n", cut(&title, terminal.columns));
    let bar = if terminal.unicode { '│' } else { '|' };
    for line in 0..lines {
        let label = match line {
            0 => &*labels[0],
            _ if line + 1 == lines => &*labels[2],
            _ if line == lines / 2 => &*labels[1],
            _ => "",
        };
        let drawn: String = (0..columns).map(|column| cell(&dots, line, column, terminal.unicode)).collect();
        text += &cut(&format!("{label:>margin$} {bar}{}", drawn.trim_end_matches([' ', '\u{2800}'])), terminal.columns);
        text.push('\n');
    }
    let (left, right) = (number(from), number(to));
    let space = columns.saturating_sub(left.len() + right.len()).max(1);
    text += &cut(&format!("{:margin$}  {left}{:space$}{right}", "", ""), terminal.columns);
    text.push('\n');
    text
}

/// The place of a part of 0 to 1 among `count`.
fn scaled(part: f64, count: usize) -> usize {
    ((part * (count - 1) as f64).round() as usize).min(count - 1)
}

fn cell(dots: &[Vec<bool>], line: usize, column: usize, unicode: bool) -> char {
    if !unicode {
        return if dots[column][line] { '*' } else { ' ' };
    }
    let mut letter = BRAILLE;
    for (row, bits) in DOTS.iter().enumerate() {
        for (side, bit) in bits.iter().enumerate() {
            letter |= if dots[2 * column + side][4 * line + row] { *bit } else { 0 };
        }
    }
    char::from_u32(letter).unwrap_or(' ')
}

/// A line of at most so many columns.
fn cut(line: &str, columns: usize) -> String {
    let mut used = 0;
    let fits = |letter: &char| {
        used += letter.width().unwrap_or(0);
        used <= columns
    };
    line.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn falling() -> Series {
        (1..=100).map(|x| (f64::from(x), 4.0 - f64::from(x) / 50.0)).collect()
    }

    #[test]
    fn a_falling_line_falls() {
        let terminal = Terminal { columns: 50, lines: 5, unicode: false };
        let text = chart("loss", "step", &falling(), terminal);
        let expected = "\
loss: first 3.98 (step 1), last 2 (step 100), best
3.98 |*******
     |      ************
2.99 |                 ***********
     |                           ************
   2 |                                      ******
      1                                        100
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn widths_are_kept_and_unicode_is_denser() {
        for unicode in [false, true] {
            for columns in [1, 7, 20, 80, 300] {
                let text = chart("loss", "step", &falling(), Terminal { columns, lines: 8, unicode });
                assert_eq!(text.lines().count(), 10, "{text}");
                assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}: {text}");
                assert_eq!(text.is_ascii(), !unicode || columns < 7, "{columns}: {text}");
            }
        }
        assert_eq!(chart("loss", "step", &Series::default(), Terminal { columns: 9, lines: 2, unicode: true }), "");
        let wide = chart("損失", "step", &falling(), Terminal { columns: 5, lines: 2, unicode: true });
        assert!(wide.starts_with("損失:\n"), "{wide}");
        let wide = chart("損失", "step", &falling(), Terminal { columns: 3, lines: 2, unicode: true });
        assert!(wide.starts_with("損\n"), "{wide}");
        let one = chart(
            "loss",
            "step",
            &[(3.0, 2.0)].into_iter().collect(),
            Terminal { columns: 40, lines: 3, unicode: false },
        );
        assert!(one.contains('*'), "{one}");
    }
}
