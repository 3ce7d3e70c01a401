//! What a change did to the inputs and outputs of a program, and to the memory that inputs give away.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite::trace::{InputRole, Trace};
use fulgurite::transforms::donate::donations;

use super::finding::{Finding, listed, names_of, weight};

/// The findings about inputs, outputs and donations.
pub fn of_interface(before: &Trace, after: &Trace) -> Vec<Finding> {
    let mut found = Vec::new();
    interface(before, after, &mut found);
    donated(before, after, &mut found);
    found
}

/// Inputs and outputs: those that are new, gone, or of another type.
fn interface(before: &Trace, after: &Trace, found: &mut Vec<Finding>) {
    let inputs = |trace: &Trace| -> BTreeMap<String, String> {
        let values = trace.block.parameters.iter().zip(&trace.inputs);
        let typed = values.filter_map(|(id, input)| {
            let value = trace.block.values.get(id.index())?;
            let role = if input.role == InputRole::Input { String::new() } else { format!(" {:?}", input.role) };
            Some((value.name.to_string(), format!("{}{}", value.meta, role.to_lowercase())))
        });
        typed.collect()
    };
    let outputs = |trace: &Trace| -> BTreeMap<String, String> {
        let values = trace.block.results.iter().zip(&trace.outputs);
        let typed = values.filter_map(|(id, output)| {
            Some((output.path.clone(), trace.block.values.get(id.index())?.meta.to_string()))
        });
        typed.collect()
    };
    for (about, old, new) in [("inputs", inputs(before), inputs(after)), ("outputs", outputs(before), outputs(after))] {
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let mut changed = Vec::new();
        for name in names {
            match (old.get(name), new.get(name)) {
                (Some(was), Some(is)) if was != is => changed.push(format!("{name} {was} → {is}")),
                (None, Some(is)) => changed.push(format!("{name} ({is}) is new")),
                (Some(was), None) => changed.push(format!("{name} ({was}) is gone")),
                _ => {}
            }
        }
        if !changed.is_empty() {
            found.push(Finding { about, text: listed(&changed), weight: weight::INTERFACE });
        }
    }
    let target = [before, after].map(|trace| trace.target.to_string());
    if target[0] != target[1] {
        let text = format!("{} → {}", target[0], target[1]);
        found.push(Finding { about: "target", text, weight: weight::INTERFACE });
    }
}

/// Inputs whose memory no result takes any more, with the reason, and those that a result takes now.
fn donated(before: &Trace, after: &Trace, found: &mut Vec<Finding>) {
    let taken = |trace: &Trace| -> BTreeMap<String, Result<String, String>> {
        donations(trace).into_iter().map(|donation| (donation.input, donation.outcome)).collect()
    };
    let given = |trace: &Trace| -> BTreeSet<String> {
        let inputs = trace.block.parameters.iter().zip(&trace.inputs).filter(|(_, input)| input.donated);
        inputs.filter_map(|(id, _)| Some(trace.block.values.get(id.index())?.name.to_string())).collect()
    };
    let (given_before, given_after) = (given(before), given(after));
    let planned = before.arena.is_some() && after.arena.is_some();
    let (old, new) = if planned { (taken(before), taken(after)) } else { Default::default() };
    let mut lost: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut won = Vec::new();
    for name in given_before.difference(&given_after) {
        names_of(&mut lost, "the caller no longer gives it away".into()).push(name.clone());
    }
    for name in given_after.difference(&given_before) {
        won.push(name.clone());
    }
    for (name, outcome) in &new {
        match (old.get(name), outcome) {
            (Some(Ok(_)), Err(reason)) => names_of(&mut lost, reason.clone()).push(name.clone()),
            (Some(Err(_)), Ok(_)) => won.push(name.clone()),
            _ => {}
        }
    }
    for (reason, names) in lost {
        let text = format!("lost for {}: {reason}", listed(&names));
        found.push(Finding { about: "donation", text, weight: weight::DONATION });
    }
    if !won.is_empty() {
        let text = format!("new for {}", listed(&won));
        found.push(Finding { about: "donation", text, weight: weight::DONATION / 2 });
    }
}
