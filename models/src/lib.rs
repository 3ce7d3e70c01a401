//! GPT-2, Llama and its relatives, models of images, and their training: the traced models and their step, text and
//! tokens, sets of images, batches, schedules, model sizes and their initial weights, checkpoints that survive a kill
//! and are checked when read, the files of llm.c and of Hugging Face, and sampling.
//!
//! Everything here is deterministic: the same seed and position give the same bytes, run after run.

// Naming the crate links the executors into every program that has models.
use fulgurite_executors as _;

pub mod activation;
mod argument_error;
pub mod batch_tensors;
pub mod batches;
pub mod blocks;
pub mod cache;
pub mod checkpoint;
pub mod checkpoint_parts;
pub mod config;
mod config_fields;
pub mod corpus;
pub mod debug;
pub mod decode;
pub mod decoder;
pub mod documents;
pub mod dropout;
mod foreign_file;
pub mod generate;
mod gguf_blocks;
mod gguf_file;
mod gguf_tokenizer;
pub mod gpt2;
mod gpt2_config_file;
pub mod head;
mod held;
pub mod host_tensor;
pub mod hugging_face;
pub mod initialize;
mod kept;
pub mod layer_weight;
pub mod llmc;
pub mod metrics;
pub mod model;
pub mod model_config;
mod next_tokens;
pub mod nonfinite;
pub mod optimizer;
mod packed;
pub mod parameter_list;
mod parameters;
pub mod precision;
pub mod quantized;
pub mod report;
pub mod run_file;
pub mod sampling;
pub mod scaling;
pub mod schedule;
mod sentencepiece;
pub mod sharded;
pub mod step;
mod stories;
pub mod streaming;
mod tensor_bytes;
pub mod tensor_file;
pub mod tensor_parallel;
pub mod tokenizer;
pub mod tokenizer_copy;
pub mod tokenizer_error;
pub mod tokenizer_file;
mod tokenizer_vocabulary;
pub mod tokens;
pub mod torch;
pub mod traces;
pub mod train;
pub mod training_data;
pub mod tree_file;
pub mod vision;
mod weight_file_error;
pub mod weight_files;
mod weight_format;
pub mod weights;

pub use fulgurite_runtime::random;

pub use batches::{Batch, BatchPosition, Batches};
pub use blocks::ActivationCheckpointing;
pub use cache::KvCache;
pub use checkpoint::{Checkpoint, CheckpointError, TrainingState};
pub use config::GptConfig;
pub use decode::Decoding;
pub use dropout::Dropout;
pub use head::Logits;
pub use host_tensor::HostTensor;
pub use model::Model;
pub use model_config::{Family, ModelConfig};
pub use nonfinite::NonFinite;
pub use parameter_list::Parameters;
pub use parameters::{placed, rounded_copies};
pub use schedule::Schedule;
pub use tokenizer::Tokenizer;
pub use tokens::Tokens;
pub use tree_file::{load_tree, save_tree};
pub use weights::Weights;
