//! What happened to the calls of a program, in words.

use rustc_hash::FxHashSet;

use super::Stage;
use crate::executor::{ExecutorDef, executors};
use crate::refusal::Refusal;
use crate::trace::{Block, StageName};

/// Which matches of rewrites were refused, which executor supplied which gradient rule and took which symbol, why
/// others did not, and what was measured.
pub fn explain<'a>(stages: impl IntoIterator<Item = &'a Stage>) -> String {
    let stages: Vec<&Stage> = stages.into_iter().collect();
    let mut text = String::new();
    // What lines still have when they are claimed is told there.
    let claimed =
        stages.iter().copied().filter(|stage| stage.is(StageName::Claim)).flat_map(|stage| &stage.trace.block.symbols);
    let mut told: FxHashSet<&Refusal> = claimed.flat_map(|symbol| &symbol.refusals).collect();
    for stage in &stages {
        for choice in &stage.choices {
            text += &format!("{choice}\n");
        }
        for rule in &stage.gradients {
            text += &format!("gradient of {}: {}; {}\n", rule.value, rule.operator, rule.from);
            text += &not(&rule.refusals);
        }
        if stage.is(StageName::Rewrite) || stage.is(StageName::LateRewrite) {
            text += &not_rewritten(&stage.trace.block, &mut told);
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
    for executor in outside(&stages) {
        let ExecutorDef { name, version, package, .. } = executor;
        text += &format!("executor {name}: version {version} of the package {package}\n");
    }
    text
}

/// The executors that took a line and come from other packages than the library's.
fn outside(stages: &[&Stage]) -> Vec<&'static ExecutorDef> {
    let claimed = stages.iter().filter(|stage| stage.is(StageName::Claim));
    let takers = claimed.flat_map(|stage| &stage.trace.block.symbols).filter_map(|symbol| symbol.executor);
    let takers: FxHashSet<&str> = takers.collect();
    let is_outside = |executor: &&'static ExecutorDef| !executor.package.starts_with("fulgurite-executor");
    let all = executors().into_iter().filter(|own| takers.contains(own.name) && own.device != "any");
    all.filter(is_outside).collect()
}

fn not<'a>(refusals: impl IntoIterator<Item = &'a Refusal>) -> String {
    refusals.into_iter().map(|refusal| format!("  not {}: {}\n", refusal.executor, refusal.reason)).collect()
}

/// The matches that rewrites refused, also inside of programs that the block's lines hold. A refusal of many lines is
/// told of the first.
fn not_rewritten<'a>(block: &'a Block, told: &mut FxHashSet<&'a Refusal>) -> String {
    let mut text = String::new();
    for symbol in &block.symbols {
        let new: Vec<&Refusal> = symbol.refusals.iter().filter(|refusal| told.insert(*refusal)).collect();
        if !new.is_empty() {
            let name = symbol.results.first().map_or("", |id| &block.value(*id).name);
            text += &format!("{name}: {} is not rewritten\n", symbol.name());
            text += &not(new);
        }
        if let Some(body) = symbol.body.as_deref().filter(|_| symbol.callee.holds_program()) {
            text += &not_rewritten(body, told);
        }
    }
    text
}
