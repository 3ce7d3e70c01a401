//! The formats of weights, by name.

use std::fmt;

use crate::llmc::Version;

/// A format of weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A checkpoint of a training run of ours.
    Checkpoint,
    /// A checkpoint of llm.c.
    Llmc(Version),
    /// A safetensors file under Hugging Face's names; also read from files of `torch.save`.
    HuggingFace,
    /// A file of `torch.save` under LitGPT's names.
    LitGpt,
    /// A file of llama.cpp, which is read alone.
    Gguf,
}

impl Format {
    /// All formats that are written.
    pub const ALL: [Format; 6] = [
        Format::Checkpoint,
        Format::Llmc(Version::F32),
        Format::Llmc(Version::Bf16),
        Format::Llmc(Version::F32Unpadded),
        Format::HuggingFace,
        Format::LitGpt,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Checkpoint => "checkpoint",
            Format::Llmc(Version::F32) => "llmc",
            Format::Llmc(Version::Bf16) => "llmc-bf16",
            Format::Llmc(Version::F32Unpadded) => "llmc-v1",
            Format::HuggingFace => "huggingface",
            Format::LitGpt => "litgpt",
            Format::Gguf => "gguf",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
