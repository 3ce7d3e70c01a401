//! What happened to the calls of a program, in words.

use super::Stage;
use crate::refusal::Refusal;
use crate::trace::StageName;

/// Which executor supplied which gradient rule and took which symbol, why others did not, and what was measured.
pub fn explain<'a>(stages: impl IntoIterator<Item = &'a Stage>) -> String {
    let mut text = String::new();
    let not = |refusals: &[Refusal]| -> String {
        refusals.iter().map(|refusal| format!("  not {}: {}\n", refusal.executor, refusal.reason)).collect()
    };
    for stage in stages {
        for told in &stage.choices {
            text += &format!("{told}\n");
        }
        for rule in &stage.gradients {
            text += &format!("gradient of {}: {}; {}\n", rule.value, rule.operator, rule.from);
            text += &not(&rule.refusals);
        }
        if !stage.is(StageName::Claim) {
            continue;
        }
        for symbol in &stage.trace.block.symbols {
            let name = symbol.results.first().map_or("", |id| &stage.trace.block.value(*id).name);
            text += &format!("{name}: {} by {}\n", symbol.name(), symbol.executor.unwrap_or("nobody"));
            text += &not(&symbol.refusals);
        }
    }
    text
}
