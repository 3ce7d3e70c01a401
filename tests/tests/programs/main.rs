//! What no single declaration says: compiled programs of several operators, their transforms, plans and calls.

// Its allocator.
use fulgurite_tests as _;

#[path = "../device/mod.rs"]
mod device;

mod absurd;
mod batch;
mod batch_norm;
mod checkpoint;
mod chunked_logits;
mod column_sums;
mod complex;
mod concurrent_calls;
mod copies;
mod costs;
mod device_ordinals;
mod divided_operators;
mod dlpack;
mod dyn_trees;
mod early_reads;
mod hand_written_traces;
mod indexing;
mod integers;
mod joins;
mod linear_algebra;
mod lists;
mod memory_plan;
mod mutated_plans;
mod optimizers;
mod padding;
mod pipeline;
mod random;
mod ranks;
mod recompute;
mod registration;
mod rounded_division;
mod run_time_errors;
mod scattered_rows;
mod softmax;
mod streams;
mod strided_results;
mod tensor_parallel;
mod turned_operands;
