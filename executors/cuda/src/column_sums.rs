//! Sums over all rows by the kernel that computes what is summed: each block adds its rows and leaves a row of parts,
//! and a second kernel adds the parts. Both orders depend on the region, and on no address.

use fulgurite_runtime::kernels::cuda::generate::GenerateError;
use fulgurite_runtime::kernels::fused::FusedProgram;
use fulgurite_runtime::kernels::view::contiguous_strides;
use fulgurite_runtime::rules::{DeviceTensor, Failure, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, Device, TensorMeta, source_files};

use crate::elementwise::{Operand, copy, generated, launch, launch_generated};
use crate::reducing::sum_rows;
use crate::support::type_of;

/// Columns of a block that adds parts, and its threads for each.
const COLUMNS: usize = 32;
const OF_A_COLUMN: usize = 16;

/// As [`launch`], with results of which those that are `summed` are the sums of all rows of the iteration `shape`, one
/// number for each column. The program's outputs of these are f32.
pub(crate) fn launch_with_sums(
    plan: &mut Plan,
    name: &str,
    program: &FusedProgram,
    shape: &[usize],
    operands: &[(&DeviceTensor, &[isize])],
    results: &[Operand<'_>],
    summed: &[bool],
) -> Result<()> {
    let Some((&width, outer)) = shape.split_last() else {
        return Err(Failure::new("Region", "sums over the rows of a number"));
    };
    let mut along = vec![0; shape.len()];
    along[shape.len() - 1] = 1;
    // Alignment decides the text, and is known before there is memory.
    let mut parts: Vec<DeviceTensor> = results.iter().map(|(result, _, _)| parts_of(result, width)).collect();
    let inputs: Vec<Operand<'_>> = operands.iter().map(|(tensor, strides)| (*tensor, shape, *strides)).collect();
    let kernel = {
        let outputs = in_place_of_sums(results, &parts, summed, shape, &along);
        generated(plan, name, program, shape, (&inputs, &outputs, summed))
    };
    let kernel = match kernel {
        Ok(kernel) => kernel,
        Err(GenerateError::Sums { .. }) => {
            let rows = outer.iter().product();
            return launch_apart(plan, name, program, shape, operands, results, summed, rows);
        }
        Err(error) => return Err(Failure::new("Generate", error.to_string())),
    };
    for (part, _) in parts.iter_mut().zip(summed).filter(|(_, summed)| **summed) {
        part.address = plan.workspace((kernel.parts * width * DType::F32.size()) as u64);
    }
    let rows = kernel.parts;
    launch_generated(plan, kernel, &inputs, &in_place_of_sums(results, &parts, summed, shape, &along));
    let sums: Vec<(&DeviceTensor, &DeviceTensor)> = (parts.iter().zip(results).zip(summed))
        .filter(|(_, summed)| **summed)
        .map(|((part, (result, _, _)), _)| (part, *result))
        .collect();
    add_parts(plan, &sums, rows, width)
}

/// Where the parts of a sum are, once they have memory.
fn parts_of(result: &DeviceTensor, width: usize) -> DeviceTensor {
    let meta = TensorMeta::new([width], DType::F32, Device::CPU);
    DeviceTensor { meta, strides: vec![1], address: result.address, alignment: 256 }
}

/// The results, with the parts of those that are summed.
fn in_place_of_sums<'a>(
    results: &[Operand<'a>],
    parts: &'a [DeviceTensor],
    summed: &[bool],
    shape: &'a [usize],
    along: &'a [isize],
) -> Vec<Operand<'a>> {
    let all = results.iter().zip(parts).zip(summed);
    all.map(|((result, part), summed)| if *summed { (part, shape, along) } else { *result }).collect()
}

/// Adds `rows` rows of parts of each sum.
fn add_parts(plan: &mut Plan, sums: &[(&DeviceTensor, &DeviceTensor)], rows: usize, width: usize) -> Result<()> {
    let each = |text: &dyn Fn(usize, &DeviceTensor) -> String, between: &str| {
        let all: Vec<String> = sums.iter().enumerate().map(|(number, (_, out))| text(number, out)).collect();
        all.join(between)
    };
    let declared = |number: usize, out: &DeviceTensor| {
        format!("const float* parts{number}, {}* out{number}", type_of(out.meta.dtype()))
    };
    let added = |number: usize, out: &DeviceTensor| {
        let stride = out.strides.first().copied().unwrap_or(1);
        format!("if (blockIdx.y == {number}) add<{stride}>(parts{number}, out{number}, rows);")
    };
    plan.source(source_files!["adding_parts.cu"]);
    plan.define("COLUMNS", width);
    plan.define("OF_A_COLUMN", OF_A_COLUMN);
    plan.define("SUMS", each(&declared, ", "));
    plan.define("ADD", each(&added, " "));
    let mut parameters: Vec<Parameter> = Vec::new();
    for (parts, out) in sums {
        parameters.extend([Parameter::from(*parts), Parameter::from(*out)]);
    }
    parameters.push(Parameter::from(rows as u32));
    let blocks = width.div_ceil(COLUMNS) as u32;
    let shape = LaunchShape::new([blocks, sums.len() as u32, 1], [COLUMNS as u32, OF_A_COLUMN as u32, 1]);
    plan.launch("add_parts", shape, parameters)
}

/// Writes what is summed, and sums it by kernels of their own: for rows that no thread keeps sums of.
#[allow(clippy::too_many_arguments, reason = "what a launch has, and its rows")]
fn launch_apart(
    plan: &mut Plan,
    name: &str,
    program: &FusedProgram,
    shape: &[usize],
    operands: &[(&DeviceTensor, &[isize])],
    results: &[Operand<'_>],
    summed: &[bool],
    rows: usize,
) -> Result<()> {
    let width = shape.last().copied().unwrap_or(1);
    let in_workspace = |plan: &mut Plan, shape: &[usize], dtype: DType| DeviceTensor {
        meta: TensorMeta::new(shape, dtype, Device::CPU),
        strides: contiguous_strides(shape),
        address: plan.workspace((shape.iter().product::<usize>() * dtype.size()) as u64),
        alignment: 256,
    };
    let wholes: Vec<Option<DeviceTensor>> =
        summed.iter().map(|summed| summed.then(|| in_workspace(plan, &[rows, width], DType::F32))).collect();
    let strides = contiguous_strides(shape);
    let outputs: Vec<Operand<'_>> = (results.iter().zip(&wholes))
        .map(|(result, whole)| whole.as_ref().map_or(*result, |whole| (whole, shape, &strides[..])))
        .collect();
    launch(plan, name, program, shape, operands, &outputs)?;
    for (whole, (result, _, _)) in wholes.iter().zip(results) {
        let Some(whole) = whole else { continue };
        if result.is_contiguous() {
            sum_rows(plan, whole, result)?;
        } else {
            let sum = in_workspace(plan, &[width], result.meta.dtype());
            sum_rows(plan, whole, &sum)?;
            copy(plan, &sum, result)?;
        }
    }
    Ok(())
}
