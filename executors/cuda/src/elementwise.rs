//! Elementwise arithmetic and copies: scalar rules become generated kernels.

use fulgurite_runtime::argument::Arg;
use fulgurite_runtime::arithmetic::Arithmetic;
use fulgurite_runtime::device::Source;
use fulgurite_runtime::kernels::cuda::generate::{
    GenerateError, GeneratedKernel, GeneratedParameter, Holder, InputOperand, OPTIONS, OutputOperand, Problem,
    StageOperand, Stages,
};
use fulgurite_runtime::kernels::fused::{FusedNode, FusedProgram, OutputLayout};
use fulgurite_runtime::kernels::scalar::ScalarNode;
use fulgurite_runtime::kernels::view::contiguous_strides;
use fulgurite_runtime::operator::OperatorDef;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::rules::{DeviceTensor, Failure, Parameter, Plan, Result};
use fulgurite_runtime::strided::LayoutRules;
use fulgurite_runtime::strided::Strided;
use fulgurite_runtime::strided::View;
use fulgurite_runtime::{DType, Device, TensorMeta};

/// An operand of a generated kernel: shape and strides in the iteration.
pub(crate) type Operand<'a> = (&'a DeviceTensor, &'a [usize], &'a [isize]);

/// Launches a generated kernel over `shape`, or several where there are few long rows. Each operand comes with its
/// strides in that shape, each result with shape and strides. Nothing is launched where there is nothing to compute.
pub fn launch(
    plan: &mut Plan,
    name: &str,
    program: &FusedProgram,
    shape: &[usize],
    operands: &[(&DeviceTensor, &[isize])],
    results: &[(&DeviceTensor, &[usize], &[isize])],
) -> Result<()> {
    if shape.contains(&0) {
        return Ok(());
    }
    let inputs: Vec<Operand<'_>> = operands.iter().map(|(tensor, strides)| (*tensor, shape, *strides)).collect();
    let stages = with_problem(plan, name, program, shape, (&inputs, results, &[]), Stages::of);
    let Some(stages) = stages else { return launch_one(plan, name, program, shape, &inputs, results) };
    let temporaries: Vec<DeviceTensor> = (stages.temporaries.iter())
        .map(|&(dtype, elements)| DeviceTensor {
            meta: TensorMeta::new([elements], dtype, Device::CPU),
            strides: vec![1],
            address: plan.workspace((elements * dtype.size()) as u64),
            alignment: 256,
        })
        .collect();
    for stage in &stages.list {
        let held = |operand: &StageOperand, dtype: DType| {
            let tensor = match operand.holder {
                Holder::Input(index) => operands[index].0,
                Holder::Output(index) => results[index].0,
                Holder::Temporary(index) => &temporaries[index],
            };
            DeviceTensor {
                address: tensor.address.offset((operand.first * dtype.size()) as u64),
                alignment: operand.alignment(dtype, tensor.alignment),
                ..tensor.clone()
            }
        };
        let from: Vec<DeviceTensor> = stage
            .inputs
            .iter()
            .zip(&stage.program.input_dtypes)
            .map(|(operand, dtype)| held(operand, *dtype))
            .collect();
        let to: Vec<DeviceTensor> = stage
            .outputs
            .iter()
            .zip(&stage.program.outputs)
            .map(|(operand, (_, dtype))| held(operand, *dtype))
            .collect();
        fn seen<'a>(tensors: &'a [DeviceTensor], operands: &'a [StageOperand]) -> Vec<Operand<'a>> {
            let all = tensors.iter().zip(operands);
            all.map(|(tensor, operand)| (tensor, &operand.shape[..], &operand.strides[..])).collect()
        }
        let (from, to) = (seen(&from, &stage.inputs), seen(&to, &stage.outputs));
        launch_one(plan, &stage.name, &stage.program, &stage.shape, &from, &to)?;
    }
    Ok(())
}

/// What `f` makes of the problem of a kernel.
fn with_problem<R>(
    plan: &Plan,
    name: &str,
    program: &FusedProgram,
    shape: &[usize],
    (operands, results, summed): (&[Operand<'_>], &[Operand<'_>], &[bool]),
    f: impl FnOnce(&Problem<'_>) -> R,
) -> R {
    let inputs: Vec<InputOperand<'_>> = operands
        .iter()
        .map(|(tensor, _, strides)| {
            let (alignment, counted) = (tensor.alignment, plan.is_counted(tensor));
            InputOperand { strides, alignment, counted }
        })
        .collect();
    let outputs: Vec<OutputOperand<'_>> = results
        .iter()
        .enumerate()
        .map(|(index, (tensor, shape, strides))| OutputOperand {
            layout: OutputLayout { shape, strides },
            alignment: tensor.alignment,
            summed: summed.get(index).copied().unwrap_or(false),
        })
        .collect();
    // They decide the order of sums.
    let properties = plan.typical();
    let (shared_bytes, clusters) = (properties.shared_bytes_per_block, properties.clusters);
    f(&Problem { name, program, shape, inputs: &inputs, outputs: &outputs, shared_bytes, clusters })
}

fn launch_one(
    plan: &mut Plan,
    name: &str,
    program: &FusedProgram,
    shape: &[usize],
    operands: &[Operand<'_>],
    results: &[Operand<'_>],
) -> Result<()> {
    let kernel = generated(plan, name, program, shape, (operands, results, &[]))
        .map_err(|error| Failure::new("Generate", error.to_string()))?;
    launch_generated(plan, kernel, operands, results);
    Ok(())
}

/// The kernel of a problem, with results of which some may be summed over all rows.
pub(crate) fn generated(
    plan: &Plan,
    name: &str,
    program: &FusedProgram,
    shape: &[usize],
    operands: (&[Operand<'_>], &[Operand<'_>], &[bool]),
) -> std::result::Result<GeneratedKernel, GenerateError> {
    with_problem(plan, name, program, shape, operands, GeneratedKernel::new)
}

/// Launches a kernel with the operands that it was generated for.
pub(crate) fn launch_generated(
    plan: &mut Plan,
    kernel: GeneratedKernel,
    operands: &[Operand<'_>],
    results: &[Operand<'_>],
) {
    let parameters = kernel
        .parameters
        .iter()
        .map(|parameter| match *parameter {
            GeneratedParameter::Input(i) => Parameter::from(operands[i].0),
            GeneratedParameter::Output(i) => Parameter::from(results[i].0),
            GeneratedParameter::U32(value) => Parameter::from(value),
            GeneratedParameter::I64(value) => Parameter::from(value),
        })
        .collect();
    let source = Source {
        name: format!("{}.cu", kernel.name).into(),
        text: kernel.source.into(),
        options: OPTIONS.iter().map(|option| (*option).to_owned()).collect(),
    };
    plan.launch_from(source, &kernel.name, kernel.shape, parameters);
}

/// Plans a symbol from the operator's scalar rule, or a copy that replaces its view.
pub fn symbol(
    plan: &mut Plan,
    operator: &'static OperatorDef,
    arguments: &[Arg<DeviceTensor>],
    results: &[DeviceTensor],
) -> Result<()> {
    let [result] = results else {
        return Err(Failure::new(
            "ResultCount",
            format!("{} has {} results, expected one", operator.name, results.len()),
        ));
    };
    let operands: Vec<&DeviceTensor> = arguments.iter().flat_map(Arg::tensors).collect();
    if let Some(scalar) = Arithmetic::of(operator).scalar {
        let metas: Vec<_> = arguments.iter().map(|argument| argument.map(|tensor| tensor.meta.clone())).collect();
        let (program, numbers) = scalar(&metas);
        let nodes = program.nodes.iter().map(|node| match *node {
            ScalarNode::Input(input) => FusedNode::Input(input),
            ScalarNode::Number(number) => FusedNode::Constant(numbers[number as usize]),
            ScalarNode::Constant(value) => FusedNode::Constant(value),
            ScalarNode::Apply(op, operands) => FusedNode::Apply(op, operands),
        });
        let fused = FusedProgram {
            input_dtypes: operands.iter().map(|operand| operand.meta.dtype()).collect(),
            nodes: nodes.collect(),
            outputs: program.results.iter().map(|node| (*node, result.meta.dtype())).collect(),
        };
        let inputs: Vec<(&DeviceTensor, &[isize])> =
            operands.iter().map(|operand| (*operand, &operand.strides[..])).collect();
        return launch(
            plan,
            // A kernel must not be called as a function of CUDA's library.
            &format!("elementwise_{}", operator.short_name()),
            &fused,
            result.shape(),
            &inputs,
            &[(result, result.shape(), &result.strides)],
        );
    }
    let (Some(rule), [operand]) = (LayoutRules::of(operator).view, &operands[..]) else {
        return Err(Failure::new("NoKernel", format!("cuda has no kernel for {}", operator.name)));
    };
    let strided: Vec<Arg<Strided>> = arguments
        .iter()
        .map(|argument| argument.map(|tensor| Strided { meta: tensor.meta.clone(), strides: tensor.strides.clone() }))
        .collect();
    match rule(&strided) {
        Some(View { strides, offset }) => {
            let seen = DeviceTensor {
                meta: result.meta.clone(),
                strides,
                address: operand.address.offset((offset * result.meta.dtype().size() as isize) as u64),
                alignment: result.meta.dtype().size(),
            };
            copy(plan, &seen, result)
        }
        // All elements in row-major order: the result, which is contiguous, can be seen in the operand's shape.
        None => {
            let target = DeviceTensor {
                meta: operand.meta.clone(),
                strides: contiguous_strides(operand.shape()),
                ..result.clone()
            };
            copy(plan, operand, &target)
        }
    }
}

/// A contiguous tensor in the workspace, for what `tensor` would hold.
pub fn in_workspace(plan: &mut Plan, tensor: &DeviceTensor) -> DeviceTensor {
    DeviceTensor {
        meta: tensor.meta.clone(),
        strides: contiguous_strides(tensor.shape()),
        address: plan.workspace(tensor.meta.bytes() as u64),
        alignment: 256,
    }
}

/// A contiguous copy of a tensor in the workspace.
pub fn contiguous_copy(plan: &mut Plan, tensor: &DeviceTensor) -> Result<DeviceTensor> {
    let copied = in_workspace(plan, tensor);
    copy(plan, tensor, &copied)?;
    Ok(copied)
}

/// Copies between tensors of one shape. What is of another type is converted.
pub fn copy(plan: &mut Plan, from: &DeviceTensor, to: &DeviceTensor) -> Result<()> {
    if from.meta.dtype() == to.meta.dtype() && from.is_contiguous() && to.is_contiguous() {
        if !to.meta.is_empty() {
            plan.copy(from, to);
        }
        return Ok(());
    }
    let program = FusedProgram {
        input_dtypes: vec![from.meta.dtype()],
        nodes: vec![FusedNode::Input(0)],
        outputs: vec![(0, to.meta.dtype())],
    };
    launch(plan, "copy", &program, to.shape(), &[(from, &from.strides)], &[(to, to.shape(), &to.strides)])
}
