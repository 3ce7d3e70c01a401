//! Writing at indices. Of several elements for one place the last is kept, in every run.
//!
//! Where a line has few elements, each thread looks whether a later one of its line names the same place. Where it has
//! many, a first kernel writes down for each place the number of the last element that names it, and a second one
//! writes those elements. Lines of one index, as the heads of a cache of keys have, share what is written down. It
//! takes four bytes a place of a line, so a line of very many places and hardly any elements is searched all the same.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::rules::{Command, DeviceTensor, Parameter, Plan, Result};
use fulgurite_runtime::{binds, source_files};

use super::cuda;
use super::indexing::{Update, one_by_one, start_from};
use super::support::{bits_of, collapsed, dimensions, index_type, offset, one_thread_each, positions, type_of};

/// Lines of as many elements are compared one by one.
const FEW: usize = 64;

#[implementation(of = fulgurite_ops::prims::scatter, by = cuda, strided, in_place(input))]
mod scatter_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, Args { input, dim, index, src }: Args<&DeviceTensor>, out: &DeviceTensor) -> Result<()> {
        super::start_from(plan, input, out)?;
        if src.meta.is_empty() {
            return Ok(());
        }
        let update = super::Update { dim, index, choices: index.strides.clone(), src, out };
        let numbers = super::Numbers::of(&update);
        if numbers.pay(&update) {
            return super::place_many(plan, &update, &numbers);
        }
        plan.source(super::source_files!["placing.cu"]);
        plan.define("ELEMENT", super::bits_of(src.meta.dtype().size()));
        super::one_by_one(plan, "place", &update)
    }
}

/// Where the number of the last element of each place is written down. Lines that have the same index have the same
/// numbers.
struct Numbers {
    strides: Vec<isize>,
    count: usize,
}

impl Numbers {
    fn of(update: &Update<'_>) -> Numbers {
        let shape = update.src.shape();
        let mut numbers = Numbers { strides: vec![0; shape.len()], count: update.size() };
        for i in (0..shape.len()).rev().filter(|i| *i != update.dim && update.choices[*i] != 0) {
            numbers.strides[i] = numbers.count as isize;
            numbers.count *= shape[i];
        }
        numbers
    }

    /// Whether to write them is less than to compare the elements of each line, eight of which are read in the time of
    /// one that is written.
    fn pay(&self, update: &Update<'_>) -> bool {
        let (length, elements) = (update.src.shape()[update.dim], update.src.meta.len());
        // They have 32 bits.
        length > FEW && i32::try_from(length).is_ok() && self.count <= elements.saturating_mul(length) / 8
    }
}

fn place_many(plan: &mut Plan, update: &Update<'_>, last: &Numbers) -> Result<()> {
    let Update { dim, index, choices, src, out } = update;
    let size = update.size();
    let mut all = dimensions(src.shape(), [choices, &src.strides, &out.strides, &last.strides]);
    let (length, along) = all.remove(*dim);
    let [index_along, source_along, target_along, _] = along.map(|stride| stride as i64);
    let indices = collapsed(all.iter().copied().filter(|(_, [choice, ..])| *choice != 0));
    let dims = collapsed(all);
    let [elements, marks] = [&dims, &indices].map(|dims| length * positions(dims));

    let bytes = last.count as u64 * 4;
    let numbers = plan.workspace(bytes);
    plan.push(Command::Fill { to: numbers, byte: 0xff, bytes });
    plan.source(source_files!["placing_many.cu"]);
    plan.define("ELEMENT", bits_of(src.meta.dtype().size()));
    plan.define("INDICES", type_of(index.meta.dtype()));
    plan.define("INDEX", index_type(elements));
    plan.define("INDICES_OF(i)", offset(&indices, 0, "i"));
    plan.define("NUMBERS_OF(i)", offset(&indices, 3, "i"));
    plan.define("CHOICES(i)", offset(&dims, 0, "i"));
    plan.define("SOURCE(i)", offset(&dims, 1, "i"));
    plan.define("TARGET(i)", offset(&dims, 2, "i"));
    plan.define("NUMBERS(i)", offset(&dims, 3, "i"));
    let fault = plan.fault("index");
    let parameters =
        binds![*index, numbers, size, length, positions(&indices), index_along, fault, Parameter::FaultCode];
    plan.launch("note_last", one_thread_each(marks), parameters)?;
    let lines = positions(&dims);
    let along = [index_along, source_along, target_along];
    let mut parameters = binds![*index, numbers, *src, *out, size, length, lines];
    parameters.extend(along.map(Parameter::from));
    plan.launch("place_last", one_thread_each(elements), parameters)
}
