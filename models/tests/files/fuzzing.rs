//! What the fuzzers share: damage that files get, or that a reader may stumble over, and how cases are run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite_models::random::Stream;

/// Runs `check` on the bytes of `FULGURITE_FUZZ` cases, `usual` of them otherwise, or on `FULGURITE_FUZZ_CASE` alone.
/// It says whether something took the bytes, and panics if what was read is wrong. Returns the number of cases and how
/// many were taken.
pub fn run(usual: u64, check: impl Fn(u64) -> bool) -> (u64, u64) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(one) = number("FULGURITE_FUZZ_CASE") {
        return (1, u64::from(check(one)));
    }
    let cases = number("FULGURITE_FUZZ").unwrap_or(usual);
    let mut taken = 0;
    for number in 0..cases {
        match catch_unwind(AssertUnwindSafe(|| check(number))) {
            Ok(one) => taken += u64::from(one),
            Err(_) => panic!("case {number} fails; repeat it with FULGURITE_FUZZ_CASE={number}"),
        }
    }
    println!("{cases} cases, {taken} taken");
    (cases, taken)
}

/// Texts that numbers, names and structure are replaced by.
pub const TEXTS: [&str; 26] = [
    "0",
    "-1",
    "1",
    "18446744073709551615",
    "18446744073709551616",
    "9223372036854775808",
    "4294967296",
    "1e999",
    "1e-999",
    "0.1",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[[[[[[[",
    "\"F64\"",
    "\"BOOL\"",
    "\"U8\"",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "__metadata__",
    ",",
    "}",
    "\\\"",
    "100000000",
];

/// Changes bytes in one of the ways in which files get damaged, or in one that a reader may stumble over.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Stream) {
    let below = |random: &mut Stream, bound: usize| random.below(bound as u64) as usize;
    let position = below(random, bytes.len().max(1));
    if bytes.is_empty() {
        bytes.push(random.next_u64() as u8);
        return;
    }
    match random.below(9) {
        0 => bytes[position] ^= 1 << random.below(8),
        1 => bytes[position] = random.next_u64() as u8,
        2 => bytes.truncate(position),
        3 => bytes.extend((0..below(random, 40)).map(|_| 0)),
        4 => {
            let end = (position + below(random, 64)).min(bytes.len());
            bytes.drain(position..end);
        }
        5 => {
            let end = (position + below(random, 64)).min(bytes.len());
            let piece = bytes[position..end].to_vec();
            let target = below(random, bytes.len());
            bytes.splice(target..target, piece);
        }
        6 => {
            let text = TEXTS[below(random, TEXTS.len())];
            bytes.splice(position..position, text.bytes());
        }
        7 => replace_number(bytes, position, random),
        _ => {
            let declared = [random.below(4096), u64::MAX - random.below(9), 1 << random.below(64)][below(random, 3)];
            let prefix = bytes.len().min(8);
            bytes[..prefix].copy_from_slice(&declared.to_le_bytes()[..prefix]);
        }
    }
}

/// Puts something else in the place of the first number at or after `position`.
fn replace_number(bytes: &mut Vec<u8>, position: usize, random: &mut Stream) {
    let Some(start) = bytes[position..].iter().position(u8::is_ascii_digit).map(|offset| position + offset) else {
        return;
    };
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = TEXTS[random.below(TEXTS.len() as u64) as usize];
    bytes.splice(start..start + length, text.bytes());
}
