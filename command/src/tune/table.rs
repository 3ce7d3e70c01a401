//! Records as a table of candidates and times.

use fulgurite::choices::{Confirmed, Entry};

/// `1 call with candidates`.
pub fn count(records: usize) -> String {
    format!("{records} {} with candidates", if records == 1 { "call" } else { "calls" })
}

/// Why a record keeps its winner, of what is measured now and what is kept of it.
pub fn standing(now: &Entry, kept: &Entry) -> String {
    format!("{} stays as recorded: {} is not faster by more than the noise", kept.winner, now.winner)
}

/// The call, and a row for each candidate. `stands` says why the winner is that of an earlier record.
pub fn rows(entry: &Entry, stands: Option<&str>) -> String {
    let mut text = format!("{}\n", entry.call);
    let width = entry.tried.iter().map(|tried| tried.by.len()).max().unwrap_or_default();
    for tried in &entry.tried {
        let mark = if tried.by == entry.winner { '*' } else { ' ' };
        let outcome = match &tried.outcome {
            Ok(times) => match times.beside {
                Some(beside) => format!("{:>10.1} us {beside:>10.1} us with a neighbour", times.alone),
                None => format!("{:>10.1} us", times.alone),
            },
            Err(reason) => format!("   dropped: {reason}"),
        };
        text += &format!("  {mark} {:<width$} {outcome}\n", tried.by);
    }
    for note in stands.into_iter().chain(entry.note.as_deref()) {
        text += &format!("    {note}\n");
    }
    text
}

/// What whole programs say of an operator's choices.
pub fn confirmed(program: &str, confirmed: &Confirmed) -> String {
    let Confirmed { operator, purpose, contender, times: [without, with], faster: [faster, of], kept, stands } =
        confirmed;
    let verdict = if *kept { "kept" } else { "left to the list" };
    let verdict = match (stands, kept) {
        (true, _) => format!("{verdict}, as recorded: faster in {faster} of {of} runs, which is within the noise"),
        (false, true) => verdict.to_owned(),
        (false, false) => format!("{verdict}: faster in {faster} of {of} runs"),
    };
    let of = contender.as_ref().map_or("the choices of".to_owned(), |by| format!("{by} for"));
    let purpose = purpose.name();
    format!("{program}: {without:.1} us, {with:.1} us with {of} {operator}, {purpose}: {verdict}")
}

#[cfg(test)]
mod tests {
    use fulgurite::choices::{Purpose, with_winner_of};

    use super::confirmed as told;
    use super::*;

    #[test]
    fn a_record_that_stands_says_why() {
        let line = serde_json::json!({
            "operator": "softmax", "arguments": "", "purpose": "forward", "precision": "exact", "target": "cpu",
            "device": "a", "libraries": "b", "fulgurite": "0", "winner": "cpu",
            "candidates": [{"by": "reference", "microseconds": 10.0}, {"by": "cpu", "microseconds": 9.9}],
        });
        let entry = |winner: &str| Entry { winner: winner.into(), ..Entry::from_json(&line).unwrap() };
        let (now, earlier) = (entry("reference"), entry("cpu"));
        let kept = with_winner_of(&now, &earlier).unwrap();
        let why = standing(&now, &kept);
        assert_eq!(why, "cpu stays as recorded: reference is not faster by more than the noise");
        let text = rows(&kept, Some(&why));
        assert!(text.contains("  * cpu ") && text.ends_with(&format!("    {why}\n")), "{text}");
    }

    #[test]
    fn a_program_that_is_not_clear_says_so() {
        let of = |kept, stands| Confirmed {
            operator: "softmax".into(),
            purpose: Purpose::Forward,
            contender: None,
            times: [100.0, 99.0],
            faster: [11, 15],
            kept,
            stands,
        };
        let line = "gpt2: 100.0 us, 99.0 us with the choices of softmax, forward: ";
        assert_eq!(told("gpt2", &of(true, false)), format!("{line}kept"));
        assert_eq!(told("gpt2", &of(false, false)), format!("{line}left to the list: faster in 11 of 15 runs"));
        let noise = ", as recorded: faster in 11 of 15 runs, which is within the noise";
        assert_eq!(told("gpt2", &of(false, true)), format!("{line}left to the list{noise}"));
    }
}
