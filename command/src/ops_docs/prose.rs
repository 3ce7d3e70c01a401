//! Doc comments as HTML: paragraphs, lists, blocks of code, and formulas as mathematics.

use fulgurite_plots::{escape_text, plain};

use super::formula::mathml;

/// A doc comment as HTML. Nothing of it is taken as markup; the targets of its links, which are of the Rust
/// documentation, are left out.
pub fn html(docs: &str) -> String {
    let docs = plain(docs);
    let (mut text, mut paragraph) = (String::new(), String::new());
    let mut lines = docs.lines().map(str::trim_end).peekable();
    let flush = |paragraph: &mut String, text: &mut String| {
        if !paragraph.trim().is_empty() {
            *text += &format!("<p>{}</p>\n", inline(paragraph.trim()));
        }
        paragraph.clear();
    };
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            flush(&mut paragraph, &mut text);
            let code: Vec<&str> = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```")).collect();
            text += &block(&code.join("\n"));
        } else if trimmed.is_empty() {
            flush(&mut paragraph, &mut text);
        } else if let Some(title) = trimmed.strip_prefix('#') {
            flush(&mut paragraph, &mut text);
            text += &format!("<h3>{}</h3>\n", inline(title.trim_start_matches('#').trim()));
        } else if trimmed.starts_with("- ") && paragraph.trim().is_empty() {
            let mut items = vec![trimmed[2..].to_owned()];
            while let Some(next) = lines.peek().map(|line| line.trim()).filter(|line| !line.is_empty()) {
                match next.strip_prefix("- ") {
                    Some(item) => items.push(item.to_owned()),
                    None => items.last_mut().into_iter().for_each(|item| *item += &format!(" {next}")),
                }
                lines.next();
            }
            let items: String = items.iter().map(|item| format!("<li>{}</li>", inline(item))).collect();
            text += &format!("<ul>{items}</ul>\n");
        } else {
            paragraph += trimmed;
            paragraph.push(' ');
        }
    }
    flush(&mut paragraph, &mut text);
    text
}

/// A block of code, which may be wider than the page: it is scrolled, by the keyboard too.
pub fn block(code: &str) -> String {
    format!("<pre tabindex=\"0\"><code>{}</code></pre>\n", escape_text(&plain(code)))
}

/// Words of a paragraph: code between back quotes, or a formula; links without their targets.
pub fn inline(text: &str) -> String {
    let mut out = String::new();
    let unlinked = without_targets(text);
    for (i, part) in unlinked.split('`').enumerate() {
        if i % 2 == 0 {
            out += &escape_text(&part.replace("**", ""));
        } else {
            out += &mathml(part).unwrap_or_else(|| format!("<code>{}</code>", escape_text(part)));
        }
    }
    out
}

/// `[text](target)` and `[`text`]` as `text`. What is within back quotes is left alone.
fn without_targets(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    let mut code = false;
    while let Some(c) = rest.chars().next() {
        code ^= c == '`';
        if c == '[' && !code {
            let linked = rest.find("](").zip(rest.find(')')).filter(|(middle, end)| middle < end);
            let named = rest.find("`]").filter(|_| rest.starts_with("[`"));
            match (linked, named) {
                (Some((middle, _)), _) if !rest[1..middle].contains(['[', ']']) => {
                    out += &rest[1..middle];
                    // Targets have parentheses of their own: `(super::rms_norm())`.
                    let target = &rest[middle + 2..];
                    let mut depth = 1;
                    let end = target.find(|c| {
                        depth += i32::from(c == '(') - i32::from(c == ')');
                        depth == 0
                    });
                    rest = end.map_or("", |end| &target[end + 1..]);
                    continue;
                }
                (_, Some(end)) => {
                    out += &rest[1..=end];
                    rest = &rest[end + 2..];
                    continue;
                }
                _ => {}
            }
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_paragraphs_lists_and_code() {
        let made = html("One `dim`\nand two.\n\n- a\n  more\n- b\n\n```text\nx < y\n```\n# Errors\nLast.");
        assert_eq!(
            made,
            "<p>One <code>dim</code> and two.</p>\n<ul><li>a more</li><li>b</li></ul>\n\
             <pre tabindex=\"0\"><code>x &lt; y</code></pre>\n<h3>Errors</h3>\n<p>Last.</p>\n"
        );
        assert!(html("Half: `x / 2`.").contains("<mfrac>"));
    }

    #[test]
    fn markup_is_text() {
        let made = html("<script>alert(1)</script> `<b>` & \u{1b}[31m");
        assert_eq!(made, "<p>&lt;script&gt;alert(1)&lt;/script&gt; <code>&lt;b&gt;</code> &amp; ␛[31m</p>\n");
        assert_eq!(block("</code>"), "<pre tabindex=\"0\"><code>&lt;/code&gt;</code></pre>\n");
    }

    #[test]
    fn links_are_their_text() {
        for (text, expected) in [
            ("as [`relu`](mod@super::relu) does", "as <code>relu</code> does"),
            ("as [`rms_norm`](super::rms_norm()).", "as <code>rms_norm</code>."),
            ("see [`Tensor`]", "see <code>Tensor</code>"),
            ("`x[0](1)` stays", "<code>x[0](1)</code> stays"),
            ("[N, C] (a shape)", "[N, C] (a shape)"),
        ] {
            assert_eq!(inline(text), expected, "{text}");
        }
    }
}
