//! Inputs and lines that are alike, which texts write once.

use super::{Generator, op};
use crate::argument::{Arg, AttributeType};
use crate::meta::TensorMeta;
use crate::trace::{Block, BoundSymbol, Callee, Pass, Results, ValueId};

const RESTS: [&str; 5] = ["w", "b", "h.0.w", "h.0.b", "h.1.w"];

impl Generator {
    /// Parameters below a name, and as many below two others and with a counter; now and then they are not alike.
    pub(super) fn trees(&mut self, block: &mut Block) {
        let count = 2 + self.random.below(4);
        let metas: Vec<TensorMeta> = (0..count).map(|_| self.meta()).collect();
        let counted = |i: usize| if i == 0 { "k".to_owned() } else { format!("k.{i}") };
        let first = block.values.len();
        for name in ["s.p.", "s.m.", "g.s.p.", ""] {
            for (i, meta) in metas.iter().enumerate() {
                let meta = if self.random.one_in(20) { self.meta() } else { meta.clone() };
                let id = block.define(if name.is_empty() { counted(i) } else { format!("{name}{}", RESTS[i]) }, meta);
                block.parameters.push(id);
            }
        }
        if self.random.one_in(2) {
            (0..count).for_each(|i| self.alike(block, first, count, i));
        }
    }

    /// The line for parameter `i` of `count`, the first of which is the value `first`; now and then it is another.
    fn alike(&mut self, block: &mut Block, first: usize, count: usize, i: usize) {
        let tensor = |tree: usize| Arg::Tensor(ValueId((first + tree * count + i) as u32));
        let any = |tree: usize| Arg::Optional(Some(ValueId((first + tree * count + i) as u32)));
        let (name, arguments, results) = match (first + count) % 6 {
            0 => {
                let parts = if self.random.one_in(3) { 3_usize } else { 2 };
                ("tt::split", vec![tensor(2), Arg::Attribute(parts.to_attribute())], 2)
            }
            1 => {
                let eps = if self.random.one_in(3) { 0.5 } else { 1e-5 };
                let weight = if self.random.one_in(20) { Arg::Optional(None) } else { any(1) };
                ("tt::norm", vec![tensor(0), weight, Arg::Attribute(eps.to_attribute())], 1)
            }
            2 => ("tt::add", vec![tensor(0), tensor(3)], 1),
            3 => {
                let number = if self.random.one_in(3) { 0.5 } else { 2.0 };
                ("tt::add", vec![tensor(0), Arg::Attribute(number.to_attribute())], 1)
            }
            4 => {
                // The same for all lines.
                let tree = if first.is_multiple_of(2) { 1 } else { 3 };
                let others = (0..count).map(|i| ValueId((first + tree * count + i) as u32)).collect();
                ("tt::gather", vec![tensor(0), Arg::List(others), Arg::Attribute((i as i64 % 2).to_attribute())], 1)
            }
            _ => ("tt::mixed", vec![tensor(1), any(3), Arg::Tensor(ValueId(0)), tensor(2)], 1),
        };
        let meta = block.meta(arguments[0].tensors()[0]).clone();
        let mut define = |behind: &str| block.define(format!("new.{}{behind}", RESTS[i]), meta.clone());
        let results: Results = [".it", ".it.other"][..results].iter().map(|behind| define(behind)).collect();
        block.symbols.push(BoundSymbol {
            callee: Callee::Operator(op(name)),
            arguments,
            results,
            body: None,
            pass: if self.random.one_in(20) { self.pass() } else { Pass::Forward },
            executor: if self.random.one_in(20) { Some("nobody") } else { None },
            schedule: Default::default(),
            refusals: Vec::new(),
            place: None,
        });
    }
}
