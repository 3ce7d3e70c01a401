//! A review as data.

use serde_json::{Value, json};

use super::finding::Finding;
use super::reviewed::{Change, Fault, Program, Review, Reviewed};

/// `between`, the `files` with their `programs`, each with its findings and its difference, and `other_texts`.
pub fn to_json(review: &Review) -> Value {
    let texts: Vec<&str> = review.texts.iter().map(|pair| &*pair.path).collect();
    json!({
        "between": review.between,
        "files": review.files.iter().map(of_file).collect::<Vec<_>>(),
        "other_texts": texts,
    })
}

fn of_file(file: &Reviewed) -> Value {
    json!({
        "subject": file.subject,
        "path": file.pair.path,
        "state": file.state(),
        "pending": file.pair.pending,
        "programs": file.programs.iter().map(of_program).collect::<Vec<_>>(),
        "same": file.same,
    })
}

fn of_program(program: &Program) -> Value {
    let (change, findings, difference) = match &program.change {
        Change::New(totals) => ("new", Vec::new(), json!({"totals": {"after": totals.to_json()}})),
        Change::Gone(totals) => ("gone", Vec::new(), json!({"totals": {"before": totals.to_json()}})),
        Change::Unreadable(faults) => {
            let one = |fault: &Fault| json!({"side": fault.side, "message": fault.message});
            ("unreadable", Vec::new(), json!({"faults": faults.iter().map(one).collect::<Vec<_>>()}))
        }
        Change::NotLinked(operator) => ("not linked", Vec::new(), json!({"operator": operator})),
        Change::Differs { comparison, findings } => {
            let one =
                |finding: &Finding| json!({"about": finding.about, "text": finding.text, "weight": finding.weight});
            ("differs", findings.iter().map(one).collect(), comparison.to_json())
        }
    };
    json!({
        "stage": program.heading,
        "target": program.target,
        "change": change,
        "weight": program.weight(),
        "findings": findings,
        "difference": difference,
    })
}
