//! From values to passes over tiles: what is computed when, and where each value is kept meanwhile.
//!
//! A tile is some whole rows or a piece of one. Rows that fit a tile are reduced at once, and everything happens in one
//! pass over them. A longer row is passed over once for each reduction that others wait for, in pieces; its values are
//! computed again in each pass that needs them, except for expensive ones, which are kept if they fit the second-level
//! cache.

use super::layout::Layout;
use super::merging::merged;
use super::plan::{Operation, OutputPlan, Place, Plan, Stage, Step, Storage};
use super::program::FusedProgram;
use super::recognition::recognize;
use super::values::{Kind, Space, Value, Values};
use crate::dtype::DType;
use crate::tile::Class;
use crate::tile::stream::{LINE, streaming_threshold};

/// Elements of a tile.
pub(crate) const TILE: usize = 1024;
/// The longest tile of a program without rows,
const LONGEST_DIRECT: usize = 4096;
/// as far as its tiles in the scratch are no more than this together: half of a small first-level cache.
const SCRATCH_BYTES: usize = 16 << 10;
/// The longest row that is one tile.
const LONGEST_TILE: usize = 8192;
/// Bytes of values kept between the passes over a long row.
const KEPT_BYTES: usize = 512 << 10;

impl Plan {
    pub(crate) fn new(program: &FusedProgram, mut values: Values, layout: &Layout, reduces: bool) -> Plan {
        for (index, output) in values.outputs.clone().into_iter().enumerate() {
            let space = if layout.per_row[index] { Space::Row } else { Space::Full };
            values.outputs[index] = values.broadcast(output, space);
            assert!(
                values.list[values.outputs[index] as usize].space <= space,
                "a value per element has its own output element"
            );
        }
        recognize(&mut values.list, &values.outputs);
        let width = layout.width;
        let passes = reduces && width > LONGEST_TILE;
        let rows_per_tile = TILE.checked_div(width).unwrap_or(TILE).max(1).min(layout.rows().max(1));
        let columns_per_tile =
            if reduces && !passes { width } else { even_piece(width, layout.outer.is_empty() || passes) };
        let plan = Plan {
            input_dtypes: program.input_dtypes.clone(),
            outputs: (program.outputs.iter().zip(&layout.per_row))
                .map(|(&(_, dtype), &per_row)| OutputPlan {
                    dtype,
                    per_row,
                    direct: false,
                    streaming: false,
                    staging: 0,
                })
                .collect(),
            places: Vec::new(),
            constants: Vec::new(),
            setup: Vec::new(),
            stages: Vec::new(),
            rows_per_tile,
            columns_per_tile,
            whole_rows: reduces,
            from_memory: from_memory(layout, &program.input_dtypes),
            totals: 0,
            tile_bytes: 0,
            scratch_bytes: 0,
        };
        let mut scheduler = Scheduler {
            place_of: vec![None; values.list.len()],
            kept: vec![false; values.list.len()],
            output_of: vec![None; values.list.len()],
            values,
            layout,
            plan,
            slots: 0,
            passes,
        };
        scheduler.schedule();
        scheduler.plan
    }
}

/// Columns of a tile: the row cut evenly in pieces of about a tile, whole vectors each.
fn even_piece(width: usize, flat: bool) -> usize {
    if flat || width <= TILE {
        TILE.min(width.max(1))
    } else {
        width.div_ceil(width.div_ceil(TILE)).next_multiple_of(16)
    }
}

/// Whether the inputs with a value per element do not fit the caches.
fn from_memory(layout: &Layout, dtypes: &[DType]) -> bool {
    let full = dtypes.iter().enumerate().filter(|(input, _)| layout.space(*input) == Space::Full);
    let bytes: usize = full.map(|(_, dtype)| dtype.size()).sum();
    layout.rows() * layout.width * bytes >= streaming_threshold()
}

struct Scheduler<'a> {
    values: Values,
    layout: &'a Layout,
    plan: Plan,
    place_of: Vec<Option<u16>>,
    kept: Vec<bool>,
    /// The output in whose memory a value is computed.
    output_of: Vec<Option<usize>>,
    slots: usize,
    passes: bool,
}

impl Scheduler<'_> {
    fn schedule(&mut self) {
        self.choose_streaming();
        let roots = self.stage_roots();
        let needed: Vec<Vec<usize>> = roots.iter().map(|roots| self.needed(roots)).collect();
        self.choose_kept(&needed);
        self.choose_direct();
        let used = self.reachable();

        // Values in the scratch besides the tiles are placed from the start of the scratch.
        for (value, _) in used.iter().enumerate().filter(|(_, used)| **used) {
            if self.values.list[value].space != Space::Full || self.kept[value] {
                self.place_fixed(value);
            }
        }
        for (value, _) in used.iter().enumerate().filter(|(_, used)| **used) {
            if self.values.list[value].space == Space::Uniform && !self.is_constant(value) {
                let step = self.step(value);
                self.plan.setup.push(step);
            }
        }
        let count = roots.len();
        for (level, roots) in roots.iter().enumerate() {
            let stage = self.stage(level, roots, level + 1 == count, &used);
            self.plan.stages.push(stage);
        }
        if self.passes {
            let mut last = Stage::default();
            self.row_steps(&used, |level| level >= roots.len(), &mut last.prologue);
            self.stores(|per_row| per_row, &mut last.prologue);
            self.plan.stages.push(last);
        }
        self.finish();
    }

    fn is_constant(&self, value: usize) -> bool {
        matches!(self.values.list[value].kind, Kind::Constant(_))
    }

    /// For each pass, the values per element that it must arrive at.
    fn stage_roots(&self) -> Vec<Vec<usize>> {
        let list = &self.values.list;
        let used = self.reachable();
        let full = self
            .values
            .outputs
            .iter()
            .map(|&output| output as usize)
            .filter(|&output| list[output].space == Space::Full);
        let reduced = (0..list.len()).filter(|&value| used[value]).filter_map(|value| match list[value].kind {
            Kind::Reduce(_, operand) => Some(operand as usize),
            _ => None,
        });
        if !self.passes {
            return vec![full.chain(reduced).collect()];
        }
        let last = full.clone().chain(reduced.clone()).map(|value| list[value].level).max().unwrap_or(0);
        let mut stages = vec![Vec::new(); last + 1];
        reduced.for_each(|value| stages[list[value].level].push(value));
        stages[last].extend(full);
        stages
    }

    fn reachable(&self) -> Vec<bool> {
        let mut used = vec![false; self.values.list.len()];
        self.values.outputs.iter().for_each(|&output| used[output as usize] = true);
        for value in (0..used.len()).rev() {
            if used[value] {
                self.values.list[value].operands().for_each(|operand| used[operand] = true);
            }
        }
        used
    }

    /// The values per element that `roots` are computed from (and they themselves), in order.
    fn needed(&self, roots: &[usize]) -> Vec<usize> {
        let mut wanted = vec![false; self.values.list.len()];
        roots.iter().for_each(|&root| wanted[root] = true);
        for value in (0..wanted.len()).rev() {
            let available = self.kept[value] && self.place_of[value].is_some();
            if wanted[value] && !available {
                for operand in self.values.list[value].operands() {
                    wanted[operand] |= self.values.list[operand].space == Space::Full;
                }
            }
            wanted[value] &= !available && self.values.list[value].space == Space::Full;
        }
        (0..wanted.len()).filter(|&value| wanted[value]).collect()
    }

    fn choose_streaming(&mut self) {
        let elements = self.layout.rows() * self.layout.width;
        for (index, output) in self.plan.outputs.iter_mut().enumerate() {
            let operand = self.plan.input_dtypes.len() + index;
            output.streaming = !output.per_row
                && self.layout.is_block(operand, self.plan.rows_per_tile)
                && elements * output.dtype.size() >= streaming_threshold();
        }
    }

    fn choose_kept(&mut self, needed: &[Vec<usize>]) {
        let mut bytes = 0;
        for value in 0..self.values.list.len() {
            let uses = needed.iter().filter(|values| values.contains(&value)).count();
            let size = self.layout.width * self.values.list[value].class.size();
            if uses > 1 && self.values.list[value].is_expensive() && bytes + size <= KEPT_BYTES {
                self.kept[value] = true;
                bytes += size;
            }
        }
    }

    fn choose_direct(&mut self) {
        for index in 0..self.plan.outputs.len() {
            let value = self.values.outputs[index] as usize;
            let operand = self.plan.input_dtypes.len() + index;
            let dtype = self.plan.outputs[index].dtype;
            let eligible = self.values.list[value].space == Space::Full
                && !matches!(self.values.list[value].kind, Kind::Input(_))
                && !self.kept[value]
                && self.output_of[value].is_none()
                && Class::of(dtype).dtype() == dtype
                && self.layout.is_block(operand, self.plan.rows_per_tile);
            if eligible {
                self.output_of[value] = Some(index);
                self.plan.outputs[index].direct = true;
            }
        }
    }

    fn add_place(&mut self, value: usize, storage: Storage) -> u16 {
        let index = self.plan.places.len() as u16;
        let (space, class) = (self.values.list[value].space, self.values.list[value].class);
        self.plan.places.push(Place { space, class, storage });
        self.place_of[value] = Some(index);
        index
    }

    fn place_fixed(&mut self, value: usize) {
        let offset = self.plan.scratch_bytes;
        let (space, class) = (self.values.list[value].space, self.values.list[value].class);
        let (storage, bytes) = match space {
            Space::Full => (Storage::Kept(offset), self.layout.width * class.size()),
            Space::Row => (Storage::Scratch(offset), self.plan.rows_per_tile * 8),
            Space::Uniform => (Storage::Scratch(offset), 8),
        };
        self.plan.scratch_bytes = (offset + bytes).next_multiple_of(if space == Space::Uniform { 8 } else { 64 });
        let place = self.add_place(value, storage);
        if space == Space::Full {
            // It becomes available when its first pass has computed it; until then it is placed but not there.
            self.place_of[value] = None;
            self.plan.places[place as usize].storage = storage;
            self.output_of[value] = None;
        }
        if let Kind::Constant(number) = self.values.list[value].kind {
            self.plan.constants.push((place, class.bits(number)));
        }
    }

    fn kept_place(&self, value: usize) -> Option<u16> {
        // Kept values are placed in order, before anything else with this storage.
        let nth = (0..value).filter(|&other| self.kept[other]).count();
        let mut kept =
            (0..self.plan.places.len()).filter(|&place| matches!(self.plan.places[place].storage, Storage::Kept(_)));
        kept.nth(nth).map(|place| place as u16)
    }

    /// The step that computes a value, all operands of which are placed.
    fn step(&mut self, value: usize) -> Step {
        let Self { values, place_of, .. } = self;
        let operation = match values.list[value].kind {
            Kind::Input(input) => Operation::Load(input),
            Kind::Constant(_) => unreachable!("constants are written once, without a step"),
            Kind::Unary(op, operand) => Operation::Unary(op, values.list[operand as usize].class),
            Kind::Binary(op, operand, _) => Operation::Binary(op, values.list[operand as usize].class),
            Kind::Select(..) => Operation::Select(values.list[value].class),
            Kind::Cast(operand) => Operation::Cast(values.list[operand as usize].class, values.list[value].class),
            Kind::Round(dtype, _) => Operation::Round(dtype),
            Kind::Gelu(gelu, _) => Operation::Gelu(gelu),
            Kind::GeluBackward(gelu, ..) => Operation::GeluBackward(gelu),
            Kind::Reduce(reduction, operand) => {
                let total = self.plan.totals;
                self.plan.totals += 1;
                Operation::Reduce(reduction, values.list[operand as usize].class, total)
            }
        };
        let place = |value: usize| place_of[value].expect("operands are placed before their users");
        let mut operands = [0; 3];
        for (slot, operand) in operands.iter_mut().zip(values.list[value].operands()) {
            *slot = place(operand);
        }
        Step { operation, space: values.list[value].space, operands, out: place(value) }
    }

    fn row_steps(&mut self, used: &[bool], levels: impl Fn(usize) -> bool, steps: &mut Vec<Step>) {
        for (value, &used) in used.iter().enumerate() {
            let Value { space, level, kind, .. } = self.values.list[value];
            if used && space == Space::Row && levels(level) && !matches!(kind, Kind::Reduce(..)) {
                let step = self.step(value);
                steps.push(step);
            }
        }
    }

    fn stores(&self, wanted: impl Fn(bool) -> bool, steps: &mut Vec<Step>) {
        for (index, &value) in self.values.outputs.iter().enumerate() {
            if wanted(self.plan.outputs[index].per_row) {
                let place = self.place_of[value as usize].expect("outputs are placed");
                let space = self.values.list[value as usize].space;
                steps.push(Step { operation: Operation::Store(index), space, operands: [place, 0, 0], out: 0 });
            }
        }
    }

    fn stage(&mut self, level: usize, roots: &[usize], is_last: bool, used: &[bool]) -> Stage {
        let mut stage = Stage::default();
        // Tiles of earlier passes are gone; whole rows that were kept remain.
        for value in 0..self.values.list.len() {
            if self.values.list[value].space == Space::Full && !self.kept[value] {
                self.place_of[value] = None;
            }
        }
        let mut order = self.needed(roots);
        if self.passes {
            self.row_steps(used, |other| other == level, &mut stage.prologue);
            order.extend((0..used.len()).filter(|&value| {
                matches!(self.values.list[value].kind, Kind::Reduce(_, operand) if used[value] && self.values.list[operand as usize].level == level)
            }));
        } else {
            order.extend((0..used.len()).filter(|&value| used[value] && self.values.list[value].space == Space::Row));
        }
        order.sort_unstable();
        stage.inputs = (order.iter().map(|&value| self.values.list[value]))
            .filter_map(|Value { kind, space, .. }| match kind {
                Kind::Input(input) if space == Space::Full => Some(input),
                _ => None,
            })
            .collect();

        let mut last_use = vec![0; self.values.list.len()];
        for (position, &value) in order.iter().enumerate() {
            last_use[value] = last_use[value].max(position);
            self.values.list[value].operands().for_each(|operand| last_use[operand] = position);
        }
        if is_last {
            self.values.outputs.iter().for_each(|&output| last_use[output as usize] = usize::MAX);
        }
        let mut free: Vec<usize> = Vec::new();
        let mut in_use = 0;
        for (position, &value) in order.iter().enumerate() {
            let taken = self.rounded_in_place(value, is_last).filter(|&(operand, _)| last_use[operand] == position);
            let computed = self.values.list[value].space == Space::Row || {
                let (storage, computed) = match taken {
                    Some((_, slot)) => (Storage::Slot(slot), true),
                    None => self.full_storage(value, is_last, &mut free, &mut in_use),
                };
                match storage {
                    Storage::Kept(_) => self.place_of[value] = self.kept_place(value),
                    _ => {
                        self.add_place(value, storage);
                    }
                }
                computed
            };
            if computed {
                let step = self.step(value);
                let is_last_use = |place: u16| {
                    let mut operands = self.values.list[value].operands();
                    operands.any(|operand| self.place_of[operand] == Some(place) && last_use[operand] == position)
                };
                match stage.body.last_mut() {
                    Some(last) if let Some(both) = merged(last, &step, &self.plan.places, is_last_use) => *last = both,
                    _ => stage.body.push(step),
                }
            }
            // Freed only after the result has its place, so that no step but a rounding writes what it reads.
            let operands: Vec<usize> = self.values.list[value].operands().collect();
            for (index, &operand) in operands.iter().enumerate() {
                let kept = taken.is_some_and(|(taken, _)| taken == operand);
                if last_use[operand] == position && !operands[..index].contains(&operand) && !kept {
                    self.release(operand, &mut free);
                }
            }
            if last_use[value] == position {
                self.release(value, &mut free);
            }
        }
        self.slots = self.slots.max(in_use);
        if is_last {
            let passes = self.passes;
            self.stores(|per_row| !passes || !per_row, &mut stage.body);
        }
        stage
    }

    /// Of a rounding per element, its operand and the slot where that is: the result may be there too, if nobody else
    /// reads the operand and the result is not to be anywhere else.
    fn rounded_in_place(&self, value: usize, is_last: bool) -> Option<(usize, usize)> {
        let Value { kind: Kind::Round(_, operand), space: Space::Full, .. } = self.values.list[value] else {
            return None;
        };
        let elsewhere = self.kept[value] || (is_last && self.output_of[value].is_some());
        let place = self.place_of[operand as usize].filter(|_| !elsewhere)?;
        match self.plan.places[place as usize].storage {
            Storage::Slot(slot) => Some((operand as usize, slot)),
            _ => None,
        }
    }

    fn release(&self, value: usize, free: &mut Vec<usize>) {
        if let Some(place) = self.place_of[value]
            && let Storage::Slot(slot) = self.plan.places[place as usize].storage
        {
            free.push(slot);
        }
    }

    /// Where a value per element goes, and whether a step is needed to get it there.
    fn full_storage(&self, value: usize, is_last: bool, free: &mut Vec<usize>, in_use: &mut usize) -> (Storage, bool) {
        if self.kept[value] {
            return (Storage::Kept(0), true);
        }
        if let (Some(output), true) = (self.output_of[value], is_last) {
            return (Storage::Output(output), true);
        }
        if let Kind::Input(input) = self.values.list[value].kind {
            let dtype = self.plan.input_dtypes[input];
            // With several outputs, one may be stored over an input that is still to be stored to another.
            let copied = self.values.outputs.len() > 1 && self.values.outputs.contains(&(value as u32));
            if self.layout.is_block(input, self.plan.rows_per_tile) && Class::of(dtype).dtype() == dtype && !copied {
                return (Storage::Input(input), false);
            }
        }
        let slot = free.pop().unwrap_or_else(|| {
            *in_use += 1;
            *in_use - 1
        });
        (Storage::Slot(slot), true)
    }

    fn finish(&mut self) {
        let plan = &mut self.plan;
        let widest = plan.places.iter().map(|place| place.class.size()).max().unwrap_or(8);
        if self.layout.outer.is_empty() && !plan.whole_rows {
            // Longer tiles, since each costs the same to begin, as long as those in the scratch leave the
            // cache half empty.
            let tiles = self.slots + plan.outputs.iter().filter(|output| output.streaming).count();
            let longest = (SCRATCH_BYTES / widest).checked_div(tiles).unwrap_or(LONGEST_DIRECT);
            // Whole lines: a line that two tiles share would be written twice.
            let longest = longest.clamp(TILE, LONGEST_DIRECT) / LINE * LINE;
            // Several inputs that the machine fetches by itself are read in short turns: a pause to write is short.
            let in_turns =
                plan.from_memory && plan.stages.iter().all(|stage| stage.inputs.len() > 1 && stage.foreseen());
            let longest = if in_turns { TILE } else { longest };
            plan.columns_per_tile = longest.min(self.layout.width.max(1));
        }
        plan.tile_bytes = (plan.rows_per_tile * plan.columns_per_tile * widest).next_multiple_of(64);
        let mut offset = plan.scratch_bytes.next_multiple_of(64);
        for place in &mut plan.places {
            if let Storage::Slot(slot) = place.storage {
                place.storage = Storage::Scratch(offset + slot * plan.tile_bytes);
            }
        }
        offset += self.slots * plan.tile_bytes;
        for output in plan.outputs.iter_mut().filter(|output| output.direct || output.streaming) {
            output.staging = offset;
            offset += plan.tile_bytes;
        }
        plan.scratch_bytes = offset;
    }
}
