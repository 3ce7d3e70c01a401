//! A stage of a program as data: what is around its lines, and its lines.

use std::sync::Arc;

use fulgurite_runtime::cost::Totals;
use fulgurite_runtime::trace::{Block, BoundSymbol, Callee, InputRole};
use serde_json::{Map, Value, json};

use crate::line::{line, name};
use crate::memory;
use crate::pool::Pool;
use crate::subject::Shown;

/// A stage: header, totals, the number of its block, its memory plan.
pub fn to_json(pool: &mut Pool, stage: &Shown) -> Value {
    let trace = &stage.trace;
    let inputs: Vec<Value> = trace
        .inputs
        .iter()
        .map(|input| {
            let role = match input.role {
                InputRole::Input => "",
                InputRole::Parameter => "parameter",
                InputRole::Saved => "saved",
                InputRole::Cotangent => "cotangent",
            };
            json!([role, input.donated, input.strides])
        })
        .collect();
    let outputs: Vec<&str> = trace.outputs.iter().map(|output| &*output.path).collect();
    json!({
        "name": stage.name,
        "function": trace.name,
        "target": trace.target.to_string(),
        "history": trace.history,
        "inputs": inputs,
        "outputs": outputs,
        "totals": Totals::of(trace).to_json(),
        "block": block_to_json(pool, &trace.block),
        "memory": memory::to_json(pool, trace),
    })
}

/// The number of a body.
fn body(pool: &mut Pool, body: &Arc<Block>) -> usize {
    if let Some(known) = pool.known(body) {
        return known;
    }
    let number = block_to_json(pool, body);
    pool.keep(body, number);
    number
}

/// The number of a block: `p` its parameters with their types, `l` its lines, `d` what ends behind which of them (`-1`
/// before the first), `y` its results.
fn block_to_json(pool: &mut Pool, block: &Block) -> usize {
    let mut lines: Vec<usize> = Vec::with_capacity(block.symbols.len());
    let mut ends: Map<String, Value> = Map::new();
    for symbol in &block.symbols {
        if symbol.callee == Callee::Delete {
            let names: Vec<Value> = symbol.operands().map(|id| json!(pool.string(name(block, id)))).collect();
            let behind = (lines.len() as i64 - 1).to_string();
            if let Value::Array(all) = ends.entry(behind).or_insert_with(|| json!([])) {
                all.extend(names);
            }
            continue;
        }
        lines.push(numbered(pool, block, symbol));
    }
    let typed = |id: &fulgurite_runtime::trace::ValueId| {
        let meta = block.values.get(id.index()).map_or(-1, |value| pool.meta(&value.meta) as i64);
        json!([pool.string(name(block, *id)), meta])
    };
    let parameters: Vec<Value> = block.parameters.iter().map(typed).collect();
    let results: Vec<usize> = block.results.iter().map(|id| pool.string(name(block, *id))).collect();
    pool.block(&json!({"p": parameters, "l": lines, "d": ends, "y": results}))
}

/// The number of a line.
fn numbered(pool: &mut Pool, block: &Block, symbol: &BoundSymbol) -> usize {
    let nested = symbol.body.as_ref().map(|nested| body(pool, nested));
    let line = line(pool, block, symbol, nested);
    pool.line(&line)
}
