//! Few long rows: every pass over a row is cut into chunks, which several threads work on.
//!
//! A chunk's totals are formed as they are when one thread passes over the whole row, and combined in the same order;
//! so a result has the same bits either way.

use super::kernel::FusedKernel;
use super::plan::{Operation, Storage};
use super::task::{Addresses, CHUNK, Line, Running, Task, Tile, with_scratch};
use crate::parallel::{Shared, for_ranges};
use crate::scratch;
use crate::tile::reduction::Total;

/// Columns from which on rows that nearly fill the threads are cut as well: some of them would wait for the last row.
const LONG: usize = 8 * CHUNK;

/// Whether there are too few rows to keep all threads at work.
pub(super) fn are_cut(kernel: &FusedKernel) -> bool {
    let (plan, width, rows) = (&kernel.plan, kernel.layout.width, kernel.layout.rows());
    if !plan.whole_rows || width <= CHUNK || rows == 0 {
        return false;
    }
    let threads = rayon::current_num_threads();
    threads > 1 && (rows < threads || (rows < 4 * threads && width >= LONG))
}

/// Runs the kernel row by row. Its rows are longer than a chunk.
pub(super) fn run(kernel: &FusedKernel, addresses: &Addresses<'_>) {
    let (plan, width) = (&kernel.plan, kernel.layout.width);
    assert!(
        CHUNK.is_multiple_of(plan.columns_per_tile) && plan.rows_per_tile == 1,
        "a chunk is whole tiles of one row"
    );
    let chunks = width.div_ceil(CHUNK);
    let keeps = plan.places.iter().any(|place| matches!(place.storage, Storage::Kept(_)));
    // Laid out as the scratch is, of which nothing else is used.
    let mut kept = scratch::filled(Line([0; 64]), if keeps { plan.scratch_bytes.div_ceil(64) } else { 0 });
    let kept = Shared::new(kept.as_mut_ptr().cast());
    // For each chunk, its totals.
    let mut parts: Vec<Option<Total>> = scratch::filled(None, chunks * plan.totals);
    for row in 0..kernel.layout.rows() {
        let mut totals = vec![Total::Floating(0.0); plan.totals];
        for (number, stage) in plan.stages.iter().enumerate() {
            let whole = Tile { row, rows: 1, column: 0, columns: 0 };
            // A task knows nothing of the passes before: it is told their totals, and computes again what is once a
            // row.
            let pass = |scratch: *mut u8, body: &mut dyn FnMut(&mut Task<'_>)| {
                let mut task = Task::new(kernel, addresses, scratch, if keeps { kept.get() } else { scratch });
                task.begin();
                for earlier in &plan.stages[..number] {
                    task.prologue(earlier, whole);
                    for step in &earlier.body {
                        if let Operation::Reduce(_, class, total) = step.operation {
                            task.set_total(step, class, totals[total]);
                        }
                    }
                }
                task.prologue(stage, whole);
                body(&mut task);
                task.finish();
            };
            if stage.body.is_empty() {
                // What is stored once a row.
                with_scratch(plan.scratch_bytes, |scratch| pass(scratch, &mut |_| ()));
                continue;
            }
            let address = Shared::new(parts.as_mut_ptr().cast());
            for_ranges(chunks, width, |range| {
                with_scratch(plan.scratch_bytes, |scratch| {
                    pass(scratch, &mut |task| {
                        for chunk in range.clone() {
                            task.totals.fill(Running::default());
                            let mut tile = Tile { column: chunk * CHUNK, ..whole };
                            while tile.column < width.min((chunk + 1) * CHUNK) {
                                task.body(stage, &mut tile);
                                tile.column += tile.columns;
                            }
                            for (total, running) in task.totals.iter().enumerate() {
                                // SAFETY: each chunk has places of its own in `parts`, which is not touched otherwise
                                // meanwhile.
                                unsafe {
                                    let place = address.get().cast::<Option<Total>>().add(chunk * plan.totals + total);
                                    place.write(running.chunk);
                                }
                            }
                        }
                    });
                });
            });
            for step in &stage.body {
                if let Operation::Reduce(reduction, _, total) = step.operation {
                    let of_chunks = (0..chunks).filter_map(|chunk| parts[chunk * plan.totals + total]);
                    let combined = of_chunks.reduce(|before, chunk| before.combine(reduction, chunk));
                    totals[total] = combined.unwrap_or(totals[total]);
                }
            }
        }
    }
}
