//! GPT-2, Llama and their training, in whole: traces, parity with other projects, files.

// Its allocator.
use fulgurite_tests as _;

#[path = "../device/mod.rs"]
mod device;

mod bf16_true;
mod channels;
mod decoder_files;
mod decoding;
mod gpt2_autocast;
mod gpt2_epilogues;
mod gpt2_executors;
mod gpt2_parity;
mod gpt2_programs;
mod gpt2_traces;
mod llama_executors;
mod llama_files;
mod llama_parity;
mod quantized;
mod tensor_parallel;
mod training;
mod vision_parity;
