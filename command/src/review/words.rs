//! Numbers and texts of a review for people.

/// Whether the total of this name is in bytes.
pub fn is_bytes(total: &str) -> bool {
    matches!(total, "bytes" | "peak memory")
}

/// A number: bytes with their unit, others with groups of digits.
pub fn number(number: u64, bytes: bool) -> String {
    if !bytes || number < 1024 {
        return format!("{}{}", grouped(number), if bytes { " B" } else { "" });
    }
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut scaled, mut unit) = (number as f64 / 1024.0, 0);
    // What is written has one digit behind the point, and less than 1024 before it.
    while (scaled * 10.0).round() >= 10240.0 && unit + 1 < units.len() {
        (scaled, unit) = (scaled / 1024.0, unit + 1);
    }
    format!("{scaled:.1} {}", units[unit])
}

/// 1234567 as 1,234,567.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A difference as a part of what was before: `-3.4 %`, with the difference itself where it is small, `+12, +3.4 %`;
/// the difference alone where nothing was before, `+4.0 KiB`.
pub fn change(before: u64, after: u64, bytes: bool) -> String {
    let sign = if after < before { '-' } else { '+' };
    let difference = before.abs_diff(after);
    let part = difference as f64 / before as f64 * 100.0;
    match before {
        0 => format!("{sign}{}", number(difference, bytes)),
        _ if difference < 100 || part < 0.05 => format!("{sign}{}, {sign}{part:.1} %", number(difference, bytes)),
        _ => format!("{sign}{part:.1} %"),
    }
}

/// What is left of two texts without the words that both begin and end with.
pub fn changed_words(before: &str, after: &str) -> (String, String) {
    let words = |text: &str| -> Vec<String> { text.split_inclusive([' ', '(', ',']).map(str::to_owned).collect() };
    let (a, b) = (words(before), words(after));
    let start = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let end = a[start..].iter().rev().zip(b[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let middle = |words: &[String]| {
        let text = words[start..words.len() - end].concat();
        let text = text.trim_matches([' ', ',', '(']);
        // A call's own end is no word of it.
        let text = if text.contains('(') { text } else { text.trim_end_matches(')') };
        if text.is_empty() { "nothing".to_owned() } else { shortened(text, 60) }
    };
    (middle(&a), middle(&b))
}

/// At most so many characters of a text.
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// `1 program`, `2 programs`.
pub fn plural(count: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(count as u64), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_groups() {
        assert_eq!(number(1023, true), "1,023 B");
        assert_eq!(number(148_064, true), "144.6 KiB");
        assert_eq!(number(u64::MAX, true), "16.0 EiB");
        assert_eq!(number(1_234_567, false), "1,234,567");
        assert_eq!(number((1 << 20) - 1, true), "1.0 MiB");
        assert_eq!(number((1 << 20) - 100, true), "1023.9 KiB");
        assert_eq!(change(40, 41, false), "+1, +2.5 %");
        assert_eq!(change(0, 7, false), "+7");
        assert_eq!(change(0, 4096, true), "+4.0 KiB");
        assert_eq!(change(2000, 1000, true), "-50.0 %");
        assert_eq!(change(1 << 30, (1 << 30) + 2048, true), "+2.0 KiB, +0.0 %");
    }

    #[test]
    fn words_in_common_are_left_out() {
        let (was, is) = changed_words("mul(x, 0.5)", "mul(x, 0.25)");
        assert_eq!((was.as_str(), is.as_str()), ("0.5", "0.25"));
        assert_eq!(changed_words("f(x)", "f(x)"), ("nothing".into(), "nothing".into()));
        assert_eq!(shortened("abcdef", 4), "abc…");
    }
}
