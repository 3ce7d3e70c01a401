//! An array as a table with statistics.

use std::fmt::Write;

use fulgurite_plots::{escape_text, number};
use fulgurite_runtime::Array;

use super::content::Content;
use super::show::Show;
use crate::kernels::DType;

/// A table has at most so many rows, and so many columns.
const SIDE: usize = 12;
/// Arrays of more elements have no statistics: these are computed on the host, from all elements.
const MAX_COUNTED: usize = 1 << 22;

impl Show for Array {
    fn content(&self) -> Content {
        let summary = summary(self);
        match table(self) {
            Ok(table) => Content { text: format!("{summary}\n{}", table.text()), html: table.html(&summary) },
            // A device that fails, for example.
            Err(error) => {
                let text = format!("{summary}\nno values: {error}");
                Content { html: format!("<p>{}</p>", escape_text(&text)), text }
            }
        }
    }
}

/// Type, size and statistics in one line.
fn summary(array: &Array) -> String {
    let meta = array.meta();
    let mut text = format!("{meta} on {}, {} bytes", array.device(), meta.bytes());
    if !array.is_contiguous() {
        let _ = write!(text, ", strides {:?}", array.strides());
    }
    if meta.is_empty() {
        return text + ", empty";
    }
    if meta.len() > MAX_COUNTED {
        return text;
    }
    let Ok(values) = array.to_f64() else { return text };
    let finite: Vec<f64> = values.iter().copied().filter(|x| x.is_finite()).collect();
    if !finite.is_empty() {
        let (least, most) = finite.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(*x), b.max(*x)));
        let count = finite.len() as f64;
        let mean = finite.iter().sum::<f64>() / count;
        let spread = (finite.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count).sqrt();
        let [least, most, mean, spread] = [least, most, mean, spread].map(number);
        let _ = write!(text, "; from {least} to {most}, mean {mean}, standard deviation {spread}");
    }
    for (what, count) in [
        ("NaN", values.iter().filter(|x| x.is_nan()).count()),
        ("infinite", values.iter().filter(|x| x.is_infinite()).count()),
    ] {
        if count > 0 {
            let _ = write!(text, "; {count} {what}");
        }
    }
    text
}

/// The first rows and columns of an array; of more than two dimensions the first matrix.
struct Table {
    /// What the table is of, if it is not the whole array.
    part: String,
    cells: Vec<Vec<String>>,
    /// Rows and columns that are not in it.
    more: [usize; 2],
}

fn table(array: &Array) -> crate::Result<Table> {
    let shape = array.shape().to_vec();
    let leading = shape.len().saturating_sub(2);
    let mut seen = array.clone();
    if array.meta().is_empty() {
        return Ok(Table { part: String::new(), cells: Vec::new(), more: [0, 0] });
    }
    for dim in 0..leading {
        seen = seen.slice(dim, 0, 1, 1)?;
    }
    let [rows, columns] = match shape[leading..] {
        [rows, columns] => [rows, columns],
        [columns] => [1, columns],
        _ => [1, 1],
    };
    let (height, width) = (rows.min(SIDE), columns.min(SIDE));
    for (dim, extent) in (leading..shape.len()).rev().zip([width, height]) {
        seen = seen.slice(dim, 0, extent, 1)?;
    }
    let cells: Vec<String> = match array.dtype() {
        // Beyond 2⁵³ these are no f64.
        DType::I64 => seen.to_vec::<i64>()?.iter().map(ToString::to_string).collect(),
        DType::Bool => seen.to_f64()?.iter().map(|x| (*x != 0.0).to_string()).collect(),
        dtype if dtype.is_complex() => {
            let sign = |part: f64| if part.is_sign_negative() { "-" } else { "+" };
            let of = |z: &[f64]| format!("{} {} {}i", number(z[0]), sign(z[1]), number(z[1].abs()));
            seen.to_f64()?.chunks_exact(2).map(of).collect()
        }
        _ => seen.to_f64()?.into_iter().map(number).collect(),
    };
    let part = match leading {
        0 => String::new(),
        _ => format!("[{}:, :]", "0, ".repeat(leading)),
    };
    let cells = cells.chunks(width.max(1)).map(<[String]>::to_vec).collect();
    Ok(Table { part, cells, more: [rows - height, columns - width] })
}

impl Table {
    /// What is not in the table, in words.
    fn left_out(&self) -> String {
        let [rows, columns] = self.more;
        let of = |n: usize, what: &str| format!("{n} more {what}{}", if n == 1 { "" } else { "s" });
        match (rows, columns) {
            (0, 0) => String::new(),
            (0, columns) => of(columns, "column"),
            (rows, 0) => of(rows, "row"),
            (rows, columns) => format!("{}, {}", of(rows, "row"), of(columns, "column")),
        }
    }

    fn text(&self) -> String {
        let width = self.cells.iter().flatten().map(|cell| cell.len()).max().unwrap_or(0);
        let mut text = String::new();
        if !self.part.is_empty() {
            text += &format!("{}\n", self.part);
        }
        for row in &self.cells {
            let cells: Vec<String> = row.iter().map(|cell| format!("{cell:>width$}")).collect();
            text += &cells.join("  ");
            text.push('\n');
        }
        let left_out = self.left_out();
        if !left_out.is_empty() {
            text += &format!("... {left_out}\n");
        }
        text
    }

    fn html(&self, summary: &str) -> String {
        let mut html = format!("<figure style=\"margin: 0\"><figcaption>{}", escape_text(summary));
        for note in [&self.part, &self.left_out()] {
            if !note.is_empty() {
                html += &format!("; {}", escape_text(note));
            }
        }
        // A wide table scrolls, not the page around it.
        html += "</figcaption><div style=\"overflow-x: auto\" tabindex=\"0\"><table>";
        if let Some(first) = self.cells.first() {
            let heads: Vec<String> = (0..first.len()).map(|i| format!("<th scope=\"col\">{i}</th>")).collect();
            html += &format!("<thead><tr><td></td>{}</tr></thead><tbody>", heads.concat());
            for (i, row) in self.cells.iter().enumerate() {
                let cells: Vec<String> = row.iter().map(|cell| format!("<td>{}</td>", escape_text(cell))).collect();
                html += &format!("<tr><th scope=\"row\">{i}</th>{}</tr>", cells.concat());
            }
            html += "</tbody>";
        }
        html + "</table></div></figure>"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_arrays_are_whole() {
        let array = Array::new([2, 3], &[1.0_f32, -2.5, 0.001, 1e9, f32::NAN, f32::INFINITY]).unwrap();
        let Content { text, html } = array.content();
        assert!(text.starts_with("f32[2, 3] on cpu, 24 bytes; from -2.5 to 1e9, mean "), "{text}");
        assert!(text.contains("; 1 NaN; 1 infinite\n    1   -2.5  0.001\n  1e9    NaN    inf\n"), "{text}");
        assert_eq!((html.matches("<td>").count(), html.matches("<tr>").count()), (7, 3));
        let integers = Array::new([1], &[i64::MAX]).unwrap().content().text;
        assert!(integers.ends_with("\n9223372036854775807\n"), "{integers}");
    }

    #[test]
    fn large_arrays_are_cut() {
        let values: Vec<f32> = (0..2 * 40 * 30).map(|x| x as f32).collect();
        let array = Array::new([2, 40, 30], &values).unwrap().permute(&[0, 2, 1]).unwrap();
        let Content { text, html } = array.content();
        assert!(text.contains("f32[2, 30, 40]") && text.contains("strides [1200, 1, 30]"), "{text}");
        assert!(text.contains("[0, :, :]\n") && text.ends_with("... 18 more rows, 28 more columns\n"), "{text}");
        // The second column of the first row is the second row of what was transposed.
        let first: Vec<&str> = text.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!((first.len(), first[1]), (12, "30"));
        assert_eq!(html.matches("<td>").count(), 12 * 12 + 1);
    }

    #[test]
    fn every_rank_is_shown() {
        for shape in [&[][..], &[0], &[3, 0], &[1], &[5], &[1, 1, 1, 2]] {
            let array = Array::zeros(shape, DType::BF16).unwrap();
            let Content { text, html } = array.content();
            assert!(text.starts_with("bf16[") && html.ends_with("</figure>"), "{text}");
        }
    }
}
