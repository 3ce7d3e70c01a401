//! Texts changed at random: each is a trace or an error, and never a panic.

use super::parse;
use crate::error::Error;
use crate::trace::test_support::{GOOD, Generator, Random};

fn mutate(random: &mut Random, texts: &[String]) -> String {
    const TOKENS: [&str; 53] = [
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "=",
        "@",
        "+",
        "#",
        "\"",
        "\\",
        "\n",
        "\\u{",
        "nan(",
        "0x",
        "-",
        "1e9999",
        "9223372036854775808",
        "none",
        "true",
        "inf",
        "; del ",
        ";",
        ".",
        ".x",
        "memory {",
        "none, ",
        "return ",
        "yield ",
        "by ",
        "in ",
        " at ",
        "arena",
        "value_and_grad(",
        "region(",
        "region by ",
        "refused by ",
        "tt::exp(",
        "é",
        "\u{1f600}",
        "\0",
        ".*",
        " like ",
        " to .3",
        "for s.p.*: ",
        " but 2 for [w, h.0.w]",
        ".*.it",
        "s.* like s.*,",
        "pass backward\n",
        "::",
    ];
    let text = if random.one_in(3) { GOOD } else { &texts[random.below(texts.len())] };
    let mut text = text.as_bytes().to_vec();
    for _ in 0..1 + random.below(6).saturating_sub(2) {
        let at = random.below(text.len() + 1);
        match random.below(8) {
            0 if at < text.len() => text[at] = random.next() as u8,
            1 if at < text.len() => text[at] ^= 1 << random.below(8),
            2 => {
                let end = (at + random.below(20)).min(text.len());
                text.drain(at..end);
            }
            3 => text.truncate(at),
            4 | 5 => {
                let token = random.pick(&TOKENS);
                text.splice(at..at, token.bytes());
            }
            _ => {
                // Lines change places, disappear, or come twice, also from another text.
                let whole = String::from_utf8_lossy(&text).into_owned();
                let mut lines: Vec<&str> = whole.lines().collect();
                let other = &texts[random.below(texts.len())];
                let others: Vec<&str> = other.lines().collect();
                if lines.is_empty() {
                    continue;
                }
                let (a, b) = (random.below(lines.len()), random.below(lines.len()));
                match random.below(4) {
                    0 => lines.swap(a, b),
                    1 => drop(lines.remove(a)),
                    2 => lines.insert(a, lines[b]),
                    _ => lines.insert(a, others[random.below(others.len())]),
                }
                text = lines.join("\n").into_bytes();
            }
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// `FULGURITE_FUZZ=1000000` for more cases.
#[test]
fn mutated_texts_never_panic() {
    let cases = std::env::var("FULGURITE_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000_u64);
    let mut texts = vec![GOOD.to_owned()];
    texts.extend((0..40).map(|seed| Generator { random: Random(seed) }.trace().to_string()));
    // Long texts take most of the time and find no more.
    texts.retain(|text| text.len() < 6000);
    let (mut read, mut right) = (0, 0);
    for seed in 0..cases {
        let text = mutate(&mut Random(seed ^ 0xf00d), &texts);
        match parse(&text) {
            Ok(trace) => {
                read += 1;
                right += u64::from(trace.verify().is_ok());
                let printed = trace.to_string();
                let again = parse(&printed).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{printed}"));
                assert!(
                    again == trace && again.block.clone().canonical() == trace.block,
                    "seed {seed}\n{text}\n{printed}"
                );
                let difference = crate::trace::diff(&trace, &again);
                assert!(difference.is_empty(), "seed {seed}\n{difference}");
            }
            Err(Error::Parse { line, column, message }) => {
                assert!(line >= 1 && line <= text.lines().count() + 1 && column >= 1 && !message.is_empty());
            }
            Err(other) => panic!("seed {seed}: {other}"),
        }
    }
    assert!(read > cases / 50 && right > 0, "{read} of {cases} read, {right} verified");
    println!("{cases} cases, {read} read, {right} verified");
}
