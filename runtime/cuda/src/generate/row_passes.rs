//! Passes over a row: what each loads, computes, reduces and stores.

use super::dialect::start_of;
use super::row_writer::Writer;
use super::steady::{Steady, steady};

impl Writer<'_> {
    pub(super) fn write_pass(&mut self, number: usize) {
        let region = self.emitter.region;
        let passes = &self.plan.passes;
        let pass = &passes.list[number];
        self.emitter.text.line("");
        let last = number + 1 == passes.list.len();
        let outputs: Vec<usize> = if last {
            (0..region.outputs.len()).filter(|&output| !region.per_row[output]).collect()
        } else {
            Vec::new()
        };
        let purposes = pass.reductions.iter().map(|&value| region.names[value].clone());
        let purposes: Vec<String> = purposes.chain(outputs.iter().map(|output| format!("output {output}"))).collect();
        self.emitter.text.line(format!("// Pass {} of {}: {}.", number + 1, passes.list.len(), purposes.join(", ")));

        // What stays: totals, and what later passes read.
        for &value in &pass.reductions {
            let (reduction, class) = self.reduction(value);
            let start = self.emitter.functions.literal(class, start_of(reduction, class));
            self.emitter.text.line(format!(
                "{} {} = {start};",
                self.emitter.functions.class_type(class),
                region.names[value]
            ));
        }
        let reused = |value: &&usize| !self.plan.walks && passes.is_reused_after(number, **value);
        for &value in pass.computed.iter().filter(reused) {
            match region.input_of(value) {
                Some(input) if self.plan.early.contains(&input) => {}
                Some(input) => self.emitter.declare_held(&format!("x{input}"), &region.inputs[input]),
                None => self.declare_kept(value),
            }
        }
        let column = self.open_columns();
        let (loaded, mut fresh): (Vec<usize>, Vec<usize>) = (pass.computed.iter().chain(&pass.reused))
            .filter_map(|&value| Some((value, region.input_of(value)?)))
            .filter(|(value, _)| self.plan.walks || pass.computed.contains(value))
            .filter(|(_, input)| !self.plan.early.contains(input))
            .map(|(value, input)| (input, value))
            .unzip();
        fresh.retain(|value| self.plan.walks || !passes.is_reused_after(number, *value));
        for &value in &fresh {
            if let Some(input) = region.input_of(value) {
                self.emitter.declare_held(&format!("x{input}"), &region.inputs[input]);
            }
        }
        if !loaded.is_empty() {
            let column = self.open_vectors();
            for &input in &loaded {
                self.load(number, input);
            }
            self.close_vectors(column);
        }
        self.compute(number, &outputs);
        self.close_columns(column);
        self.combine(&pass.reductions);
    }

    /// Arithmetic, totals and stores of a thread's vectors.
    pub(super) fn compute(&mut self, number: usize, outputs: &[usize]) {
        let region = self.emitter.region;
        let passes = &self.plan.passes;
        let pass = &passes.list[number];
        // A step's part of a long sum is formed by itself, which keeps the rounding errors of many steps small.
        let parts: Vec<usize> = pass.reductions.iter().copied().filter(|&value| self.has_parts(value)).collect();
        for &value in &parts {
            let kind = self.emitter.functions.class_type(region.class(value));
            self.emitter.text.line(format!(
                "{kind} part_{} = {};",
                region.names[value],
                self.emitter.functions.literal(region.class(value), 0.0)
            ));
        }
        let column = self.open_vectors();
        let stored: Vec<usize> = outputs.iter().copied().filter(|&output| !region.summed[output]).collect();
        for &output in &stored {
            let kind = self.emitter.held_type(&region.outputs[output]);
            self.emitter.text.line(format!("{kind} y{output};"));
        }
        let steady = steady(region, &pass.computed, self.emitter.vector);
        if !steady.is_empty() {
            let mut conditions: Vec<&str> = steady.iter().map(|each| each.condition.as_str()).collect();
            conditions.dedup();
            self.emitter.text.open(format!("if ({})", conditions.join(" && ")));
            self.elements(number, outputs, &parts, &steady);
            self.emitter.text.close();
            self.emitter.text.open("else");
        }
        self.elements(number, outputs, &parts, &[]);
        if !steady.is_empty() {
            self.emitter.text.close();
        }
        if !stored.is_empty() {
            if self.partly {
                self.emitter.text.open("if (active)");
            }
            for &output in &stored {
                let operand = &region.outputs[output];
                let (row, place) = (self.row_of(operand), self.place(operand));
                self.emitter.store(&format!("y{output}"), &row, &place, None);
            }
            if self.partly {
                self.emitter.text.close();
            }
        }
        self.close_vectors(column);
        for &value in &parts {
            let name = &region.names[value];
            self.emitter.text.line(format!("{name} = {name} + part_{name};"));
        }
    }

    /// Arithmetic of a vector's elements, in which those of `steady` have their usual results.
    pub(super) fn elements(&mut self, number: usize, outputs: &[usize], parts: &[usize], steady: &[Steady]) {
        let region = self.emitter.region;
        let passes = &self.plan.passes;
        let pass = &passes.list[number];
        let keeps = |value: usize| {
            !self.plan.walks && region.input_of(value).is_none() && passes.is_reused_after(number, value)
        };
        // What is left to compute where comparisons are not.
        let mut wanted = vec![steady.is_empty(); region.used.len()];
        let reduced = pass.reductions.iter().flat_map(|&value| region.values.list[value].operands());
        let stored = outputs.iter().map(|&output| region.values.outputs[output] as usize);
        let kept = pass.computed.iter().copied().filter(|&value| keeps(value));
        reduced.chain(stored).chain(kept).for_each(|value| wanted[value] = true);
        for value in (0..wanted.len()).rev() {
            if wanted[value] && !pass.reused.contains(&value) && !steady.iter().any(|each| each.value == value) {
                region.values.list[value].operands().for_each(|operand| wanted[operand] = true);
            }
        }
        self.emitter.open_elements();
        for &value in pass.computed.iter().chain(&pass.reused).filter(|&&value| wanted[value]) {
            if let Some(input) = region.input_of(value) {
                let element = self.emitter.held(&format!("x{input}"));
                self.emitter.define_input(input, &element);
            }
        }
        for &value in pass.reused.iter().filter(|&&value| wanted[value] && region.input_of(value).is_none()) {
            let (kind, name, element) =
                (self.emitter.functions.class_type(region.class(value)), &region.names[value], self.element());
            self.emitter.text.line(format!("const {kind} {name} = kept_{name}{element};"));
        }
        for &value in pass.computed.iter().filter(|&&value| wanted[value]) {
            match steady.iter().find(|each| each.value == value) {
                Some(each) => self.emitter.text.line(format!("const bool {} = {};", region.names[value], each.usual)),
                None => self.emitter.define(value),
            }
            if keeps(value) {
                let (name, element) = (&region.names[value], self.element());
                self.emitter.text.line(format!("kept_{name}{element} = {name};"));
            }
        }
        for &value in &pass.reductions {
            let (reduction, class) = self.reduction(value);
            let Some(operand) = region.values.list[value].operands().next() else { continue };
            let name = &region.names[value];
            let total = if parts.contains(&value) { format!("part_{name}") } else { name.clone() };
            let combined = self.emitter.functions.combine(reduction, class, &total, &region.names[operand]);
            self.emitter.text.line(format!("{total} = {combined};"));
        }
        let at = if self.emitter.vector > 1 { ".at[j]" } else { "" };
        for &output in outputs {
            let result = self.emitter.result(output);
            let line = match region.summed[output] {
                true => format!("sum{output}{element} = sum{output}{element} + {result};", element = self.element()),
                false => format!("y{output}{at} = {result};"),
            };
            self.emitter.text.line(line);
        }
        self.emitter.close_elements();
    }
}
