//! Operators, rewrites and executors that tests declare, in compiled programs.

#[path = "../device/mod.rs"]
mod device;

mod autocast;
mod definitions;
mod derivatives;
mod device_runs;
mod effects;
mod executor_options;
mod fuzz;
mod rewriting;
mod rewriting_attributes;
mod rewriting_forms;
mod vjp_calls;
