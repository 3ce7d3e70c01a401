//! The cases of the host's fused kernels as problems of the printer.

use fulgurite_cuda::generate::{
    GenerateError, GeneratedKernel, Holder, InputOperand, OutputOperand, Problem, Stage, StageOperand, Stages,
};
use fulgurite_kernels::DType;
use fulgurite_kernels::fused::OutputLayout;

use crate::cases::{Case, Domain, Input, Output, Tolerance};
use crate::operands::{Memories, UNWRITTEN};

/// Bytes that the element `first` of a memory that starts on 256 bytes is known to be a multiple of.
fn alignment(first: usize, dtype: DType) -> usize {
    match first * dtype.size() {
        0 => 256,
        bytes => 1 << bytes.trailing_zeros().min(8),
    }
}

impl Case {
    pub fn generate_for(&self, shared_bytes: usize, clusters: bool) -> Result<GeneratedKernel, GenerateError> {
        self.with_problem(shared_bytes, clusters, GeneratedKernel::new)
    }

    /// Pieces of `length` elements, or those that are usual.
    pub fn stages(&self, length: Option<usize>) -> Option<Stages> {
        self.with_problem(0, false, |problem| match length {
            Some(length) => Stages::with_pieces(problem, length),
            None => Stages::of(problem),
        })
    }

    fn with_problem<R>(&self, shared_bytes: usize, clusters: bool, f: impl FnOnce(&Problem<'_>) -> R) -> R {
        let inputs: Vec<InputOperand<'_>> = (self.inputs.iter().zip(&self.program.input_dtypes))
            .map(|(input, &dtype)| InputOperand {
                strides: &input.strides,
                alignment: alignment(input.first, dtype),
                counted: input.counted,
            })
            .collect();
        let outputs: Vec<OutputOperand<'_>> = (self.outputs.iter().zip(&self.program.outputs))
            .map(|(output, &(_, dtype))| OutputOperand {
                layout: OutputLayout { shape: &output.shape, strides: &output.strides },
                summed: output.summed,
                alignment: alignment(output.first, dtype),
            })
            .collect();
        f(&Problem {
            name: &self.name,
            program: &self.program,
            shape: &self.shape,
            inputs: &inputs,
            outputs: &outputs,
            shared_bytes,
            clusters,
        })
    }

    /// A stage of the case as a case of its own, whose operands are in the holders' memory.
    pub fn stage(&self, stage: &Stage) -> Case {
        let input = |operand: &StageOperand| Input {
            strides: operand.strides.clone(),
            first: operand.first + self.first(operand.holder),
            elements: 0,
            domain: Domain::Plain,
            counted: false,
        };
        let output = |operand: &StageOperand| Output {
            shape: operand.shape.clone(),
            strides: operand.strides.clone(),
            first: operand.first + self.first(operand.holder),
            elements: 0,
            tolerance: Tolerance::Exact,
            over: None,
            summed: false,
        };
        Case {
            name: stage.name.clone(),
            program: stage.program.clone(),
            shape: stage.shape.clone(),
            inputs: stage.inputs.iter().map(input).collect(),
            outputs: stage.outputs.iter().map(output).collect(),
        }
    }

    /// Where an operand's first element is in its memory, or in that of the input that it is written over.
    fn first(&self, holder: Holder) -> usize {
        match holder {
            Holder::Input(index) => self.inputs[index].first,
            Holder::Output(index) => match self.outputs[index].over {
                Some(input) => self.inputs[input].first,
                None => self.outputs[index].first,
            },
            Holder::Temporary(_) => 0,
        }
    }
}

impl Memories {
    /// What they hold after the host has run the stages of the case, one after the other.
    pub fn run_stages(mut self, case: &Case, stages: &Stages) -> Memories {
        let mut temporaries: Vec<Vec<u8>> =
            stages.temporaries.iter().map(|(dtype, elements)| vec![UNWRITTEN; elements * dtype.size()]).collect();
        for stage in &stages.list {
            let part = case.stage(stage);
            // Every operand in memory of its own; written ones go back to their holders.
            let held = |holder: Holder, memories: &Memories, temporaries: &[Vec<u8>]| match holder {
                Holder::Input(index) => memories.inputs[index].clone(),
                Holder::Output(index) => match case.outputs[index].over {
                    Some(input) => memories.inputs[input].clone(),
                    None => memories.outputs[index].clone(),
                },
                Holder::Temporary(index) => temporaries[index].clone(),
            };
            let own = Memories {
                inputs: stage.inputs.iter().map(|operand| held(operand.holder, &self, &temporaries)).collect(),
                outputs: stage.outputs.iter().map(|operand| held(operand.holder, &self, &temporaries)).collect(),
            };
            let after = own.run(&part);
            for (operand, bytes) in stage.outputs.iter().zip(after.outputs) {
                match operand.holder {
                    Holder::Output(index) => match case.outputs[index].over {
                        Some(input) => self.inputs[input] = bytes,
                        None => self.outputs[index] = bytes,
                    },
                    Holder::Temporary(index) => temporaries[index] = bytes,
                    Holder::Input(_) => panic!("{} writes to an input", stage.name),
                }
            }
        }
        self
    }
}
