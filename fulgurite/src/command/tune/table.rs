//! Records as a table of candidates and times.

use fulgurite::choices::{Confirmed, Entry};

/// `1 call with candidates`.
pub fn count(records: usize) -> String {
    format!("{records} {} with candidates", if records == 1 { "call" } else { "calls" })
}

/// The call, and a row for each candidate.
pub fn rows(entry: &Entry) -> String {
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
    if let Some(note) = &entry.note {
        text += &format!("    {note}\n");
    }
    text
}

/// What whole programs say of an operator's choices.
pub fn confirmed(program: &str, confirmed: &Confirmed) -> String {
    let Confirmed { operator, purpose, contender, times: [without, with], kept } = confirmed;
    let verdict = if *kept { "kept" } else { "left to the list" };
    let of = contender.as_ref().map_or("the choices of".to_owned(), |by| format!("{by} for"));
    let purpose = purpose.name();
    format!("{program}: {without:.1} us, {with:.1} us with {of} {operator}, {purpose}: {verdict}")
}
