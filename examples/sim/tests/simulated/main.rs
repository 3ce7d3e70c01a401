//! The simulated device: its memory, faults and streams, programs that fall back to the host, choices.

#[path = "../function/mod.rs"]
mod function;

mod choices;
mod choices_command;
mod device;
mod exchange;
mod external;
mod fallback;
mod padding;
mod race;
