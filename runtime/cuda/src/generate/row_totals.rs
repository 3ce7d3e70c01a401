//! Totals of a row from those of its threads.

use super::row_writer::Writer;
use fulgurite_kernels::Reduction;

impl Writer<'_> {
    /// Totals of all threads of the row from those of each.
    pub(super) fn combine(&mut self, values: &[usize]) {
        let (lanes, warps) = (self.plan.lanes, self.plan.threads / 32);
        if lanes <= 32 {
            for &value in values.iter().filter(|_| lanes > 1) {
                let name = &self.emitter.region.names[value];
                let total = self.emitter.functions.of_lanes(self.reduction(value).0, lanes, name);
                self.emitter.text.line(format!("{name} = {total};"));
            }
            return;
        }
        // A block that stays may write the next row's parts while one of its warps reads those of this row.
        let stays = self.emitter.region.sums().next().is_some();
        let parts = |name: &str| if stays { format!("parts_{name}[turn]") } else { format!("parts_{name}") };
        for &value in values {
            let ((_, class), name) = (self.reduction(value), &self.emitter.region.names[value]);
            let turns = if stays { "[2]" } else { "" };
            let words = &self.emitter.functions;
            let parts = format!("{} parts_{name}{turns}[{warps}]", words.class_type(class));
            self.emitter.text.line(words.shared(&parts));
        }
        match values {
            [value] => {
                let (reduction, name) = (self.reduction(*value).0, &self.emitter.region.names[*value]);
                let total = self.emitter.functions.of_block(reduction, warps, name, &parts(name));
                self.emitter.text.line(format!("{name} = {total};"));
            }
            [] => {}
            _ => {
                for &value in values {
                    let (reduction, name) = (self.reduction(value).0, &self.emitter.region.names[value]);
                    let call = self.emitter.functions.of_warp(reduction, name, &parts(name));
                    self.emitter.text.line(format!("{call};"));
                }
                self.emitter.text.line(self.emitter.functions.barrier());
                for &value in values {
                    let (reduction, name) = (self.reduction(value).0, &self.emitter.region.names[value]);
                    let total = self.emitter.functions.of_warps(reduction, warps, &parts(name));
                    self.emitter.text.line(format!("{name} = {total};"));
                }
            }
        }
        for &value in values.iter().filter(|_| self.plan.blocks > 1) {
            let ((reduction, class), blocks) = (self.reduction(value), self.plan.blocks);
            let (name, kind) = (&self.emitter.region.names[value], self.emitter.functions.class_type(class));
            let total = self.emitter.functions.of_cluster(reduction, blocks, name, &format!("blocks_{name}"));
            if !self.begun {
                self.begun = true;
                self.emitter.text.line(self.emitter.functions.cluster_wait());
            }
            self.emitter.text.line(self.emitter.functions.shared(&format!("{kind} blocks_{name}[{blocks}]")));
            self.emitter.text.line(format!("{name} = {total};"));
        }
    }

    pub(super) fn has_parts(&self, value: usize) -> bool {
        let (reduction, class) = self.reduction(value);
        self.plan.walks && reduction == Reduction::Sum && class.is_floating()
    }
}
