//! Generated kernels, on machines without a device: their text, and that NVRTC compiles it to code that keeps
//! everything in registers. Without NVRTC the latter says that it is skipped.

use fulgurite_cuda::generate::{GenerateError, GeneratedParameter, OPTIONS, StageOperand};
use fulgurite_cuda::{Compilation, nvrtc};
use fulgurite_kernels::DType;
use fulgurite_kernels::fused::{FusedNode, FusedProgram};
use fulgurite_kernels::scalar::ScalarOp;

use crate::cases::{self, Case, Tolerance};
use crate::common;
use crate::operands::{Memories, differences};

/// Architectures, and the shared memory that a block of their devices may have.
/// Architecture, shared memory of a block in bytes, and whether there are clusters.
const TARGETS: [(&str, usize, bool); 2] = [("sm_80", 163 << 10, false), ("sm_90a", 227 << 10, true)];

/// Compiles every case, and says which ones fail or spill.
fn compile(list: &[Case], thorough: bool) {
    if !common::has_nvrtc() {
        return;
    }
    let options = OPTIONS.map(String::from);
    let mut failures = Vec::new();
    for (number, case) in list.iter().enumerate() {
        // Architectures differ by few instructions: operations are compiled for both, the rest for one in turn.
        let targets = if thorough { &TARGETS[..] } else { &TARGETS[number % 2..][..1] };
        for &(architecture, shared_bytes, clusters) in targets {
            let kernel = match case.generate_for(shared_bytes, clusters) {
                Ok(kernel) => kernel,
                Err(error) => {
                    failures.push(format!("{}: {error}", case.name));
                    continue;
                }
            };
            let compilation =
                Compilation { name: &kernel.name, source: &kernel.source, architecture, options: &options };
            match nvrtc::compile(&compilation) {
                Err(error) => failures.push(format!("{error}\n{}", kernel.source)),
                Ok(cubin) => {
                    let [resources] = cubin.kernels() else { panic!("one kernel, not {:?}", cubin.kernels()) };
                    let mut report = |what: &str| failures.push(format!("{what}: {resources:?}\n{}", kernel.source));
                    if resources.name != kernel.name {
                        report("another name");
                    }
                    if resources.parameters.len() != kernel.parameters.len() {
                        report("other parameters");
                    }
                    if resources.uses_local_memory() && !kernel.local_memory {
                        report("undeclared local memory");
                    }
                    if !cubin.warnings(&compilation).is_empty() {
                        report(&format!("warnings {:?}", cubin.warnings(&compilation)));
                    }
                }
            }
        }
    }
    println!("{} kernels", list.len());
    assert!(failures.is_empty(), "{} failures, the first:\n{}", failures.len(), failures[0]);
}

#[test]
fn operations_compile() {
    compile(&cases::operations(), true);
}

#[test]
fn conversions_compile() {
    compile(&cases::conversions(), true);
}

#[test]
fn layouts_compile() {
    compile(&cases::layouts(), false);
}
#[test]
fn rows_compile() {
    compile(&cases::rows(), false);
}

#[test]
fn column_sums_compile() {
    compile(&cases::column_sums(), true);
}

#[test]
fn random_programs_compile() {
    compile(&cases::random(200), false);
}

// === Text ===

fn source(case: &Case) -> String {
    let kernel = case.generate_for(227 << 10, false).unwrap();
    assert_eq!(case.generate_for(227 << 10, false).unwrap(), kernel, "the same problem has the same text");
    format!(
        "// grid {:?}, block {:?}, {} bytes shared\n{}",
        kernel.shape.grid, kernel.shape.block, kernel.shape.shared_bytes, kernel.source
    )
}

#[test]
fn the_text_of_relu() {
    let case = Case::contiguous("relu", cases::relu(DType::F32), &[4096, 1024], Tolerance::Exact);
    insta::assert_snapshot!(source(&case));
}

#[test]
fn the_text_of_gelu_after_scale_and_bias() {
    let case = Case::contiguous("mlp.gelu", cases::gelu_affine(DType::BF16), &[512, 3072], Tolerance::Exact);
    insta::assert_snapshot!(source(&case.column_input(1).column_input(2)));
}

#[test]
fn the_text_of_a_long_softmax() {
    let case = Case::contiguous("softmax", cases::softmax(DType::F32, false), &[256, 50_257], Tolerance::Exact);
    insta::assert_snapshot!(source(&case));
}

#[test]
fn the_text_of_a_softmax_by_clusters() {
    let case = Case::contiguous("softmax", cases::softmax(DType::F32, false), &[256, 50_304], Tolerance::Exact);
    let kernel = case.generate_for(227 << 10, true).unwrap();
    assert_eq!((kernel.shape.grid, kernel.shape.cluster), ([256 * 2, 1, 1], Some([2, 1, 1])));
    insta::assert_snapshot!(kernel.source);
}

#[test]
fn the_text_of_cross_entropy() {
    let program = cases::cross_entropy(DType::BF16, 50_257);
    let case = Case::contiguous("loss", program, &[256, 50_304], Tolerance::Exact).counted_input(1);
    let case = case.row_input(2).row_input(3).row_output(0).row_output(1).over(2, 0);
    insta::assert_snapshot!(source(&case));
}

#[test]
fn the_text_of_layer_norm() {
    let case = Case::contiguous("ln_f", cases::layer_norm(DType::BF16, 768, true), &[64, 64, 768], Tolerance::Exact);
    insta::assert_snapshot!(source(&case.column_input(1).column_input(2).row_output(1).row_output(2)));
}

#[test]
fn the_text_of_column_sums() {
    let shape = [16_384, 768];
    let case = Case::contiguous("ln_f", cases::layer_norm_backward(DType::BF16, 768), &shape, Tolerance::Exact);
    let case = case.column_input(2).row_input(3).row_input(4).summed(2).summed(3);
    insta::assert_snapshot!(source(&case));
}

/// An operand at any address: the same threads have the same columns in the same steps, so that sums have one order.
#[test]
fn addresses_do_not_decide_the_order_of_sums() {
    for width in [768, 8192, 20_000, 50_257, 50_304] {
        for dtype in [DType::F32, DType::BF16] {
            let case = Case::contiguous("softmax", cases::softmax(dtype, true), &[64, width], Tolerance::Exact);
            let case = case.row_output(1);
            let moved = case.clone().input(0, &[width as isize, 1], 1);
            for (shared_bytes, clusters) in [(227 << 10, true), (163 << 10, false), (48 << 10, false)] {
                let [one, other] = [&case, &moved].map(|case| case.generate_for(shared_bytes, clusters).unwrap());
                assert_eq!(one.shape, other.shape, "{dtype} {width}");
                // What is read again comes before the steps.
                let steps = |source: &str| -> Vec<String> {
                    let (_, passes) = source.split_once("// Pass 1").unwrap();
                    let place = |line: &&str| line.contains("start +=") || line.contains("column =");
                    passes.lines().filter(place).map(str::to_owned).collect()
                };
                assert_eq!(steps(&one.source), steps(&other.source), "{dtype} {width}");
            }
        }
    }
}

/// As many parts whatever the device: the order of the sums depends on them.
#[test]
fn parts_of_sums_depend_on_the_shape_alone() {
    for case in cases::column_sums() {
        let parts = |shared: usize, clusters: bool| case.generate_for(shared, clusters).unwrap().parts;
        let rows: usize = case.shape[..case.shape.len() - 1].iter().product();
        assert!((1..=rows.min(cases::MOST_PARTS)).contains(&parts(99 << 10, false)), "{}", case.name);
        assert_eq!(parts(99 << 10, false), parts(227 << 10, true), "{}", case.name);
    }
    let case = Case::contiguous("long", cases::affine(DType::F32), &[64, 50_304], Tolerance::Exact).summed(0);
    assert_eq!(case.generate_for(99 << 10, false), Err(GenerateError::Sums { width: 50_304 }));
}

#[test]
fn the_text_of_a_permuted_copy() {
    // The two last dimensions exchanged.
    let case = Case::contiguous("transpose", cases::copy(DType::F32), &[8, 768, 1024], Tolerance::Exact);
    insta::assert_snapshot!(source(&case.input(0, &[768 * 1024, 1, 768], 0)));
}

/// The number of elements, or rows, is no part of the text.
#[test]
fn one_text_for_any_number_of_rows() {
    let of = |rows: usize| {
        let case = Case::contiguous("softmax", cases::softmax(DType::F32, false), &[rows, 64], Tolerance::Exact);
        case.generate_for(48 << 10, false).unwrap()
    };
    let (few, many) = (of(3), of(100_000));
    assert_eq!(few.source, many.source);
    assert_eq!(few.parameters.last(), Some(&GeneratedParameter::U32(3)));
    assert_eq!(many.parameters.last(), Some(&GeneratedParameter::U32(100_000)));
    assert!(few.shape.grid[0] < many.shape.grid[0]);
}

/// Vectors are as wide as the worst aligned operand allows, and rows of odd lengths have none.
#[test]
fn alignment_decides_how_much_is_read_at_once() {
    let of = |case: Case| case.generate_for(48 << 10, false).unwrap().input_alignments[0];
    let case = |dtype, width| Case::contiguous("copy", cases::copy(dtype), &[40, width], Tolerance::Exact);
    assert_eq!(of(case(DType::F32, 64)), 16);
    assert_eq!(of(case(DType::BF16, 64)), 16);
    assert_eq!(of(case(DType::BF16, 64).input(0, &[64, 1], 2)), 4);
    assert_eq!(of(case(DType::F32, 64).input(0, &[64, 1], 1)), 4);
    assert_eq!(of(case(DType::F32, 66).input(0, &[68, 1], 0)), 8);
    assert_eq!(of(case(DType::F32, 63).input(0, &[64, 1], 0)), 4);
}

#[test]
fn what_is_no_problem_is_told() {
    let mut case = Case::contiguous("copy", cases::copy(DType::F32), &[3, 0], Tolerance::Exact);
    assert_eq!(case.generate_for(0, false), Err(GenerateError::Empty { shape: vec![3, 0] }));
    case.shape = vec![3];
    assert!(matches!(case.generate_for(0, false), Err(GenerateError::Malformed(_))));
    let case = Case::contiguous("copy", cases::copy(DType::F32), &[3, 8], Tolerance::Exact).row_output(0);
    let error = case.generate_for(0, false).unwrap_err();
    assert_eq!(error.to_string(), "a region is malformed: output 0 has one value a row, and its node one an element");
    let case = Case::contiguous("copy", cases::copy(DType::U8), &[1 << 40, 3], Tolerance::Exact);
    let case = case.input(0, &[5, 2], 0);
    assert!(matches!(case.generate_for(0, false), Err(GenerateError::TooLarge { .. })));
}

/// A value of the only row is read by all threads before one of them writes over it.
#[test]
fn one_row_waits_before_its_value_is_written_over() {
    for case in cases::one_row_over_its_value() {
        for clusters in [false, true] {
            let kernel = case.generate_for(227 << 10, clusters).unwrap();
            let (before, store) = kernel.source.rsplit_once("out1[0] =").unwrap();
            assert!(!store.contains("out1["), "{}", kernel.source);
            // The last statement before the store, but for what chooses the thread that stores.
            let waits =
                before.trim_end().trim_end_matches("if (lane == 0 && active) {").trim_end_matches("if (lane == 0) {");
            let statement = waits.trim_end().lines().last().unwrap_or_default().trim();
            let barriers = ["__syncwarp();", "__syncthreads();", "cluster_arrive(); cluster_wait();"];
            assert!(barriers.contains(&statement), "{}: {statement}\n{}", case.name, kernel.source);
        }
    }
}

/// Stages compute what the program does, whatever the pieces.
#[test]
fn few_long_rows_are_computed_in_stages() {
    let cases = [cases::staged(1000), cases::staged(4099)].concat();
    for case in &cases {
        let before = Memories::new(case);
        let expected = before.clone().run(case);
        for length in [1, 64, 500, 999, 4096] {
            let Some(stages) = case.stages(Some(length)) else {
                assert!(length >= case.shape[case.shape.len() - 1], "{}: no stages of {length}", case.name);
                continue;
            };
            let found = before.clone().run_stages(case, &stages);
            differences(case, &found, &expected)
                .unwrap_or_else(|error| panic!("{}, pieces of {length}: {error}", case.name));
        }
    }
    // Random programs; those with no reduction have no stages.
    let random = cases::random(600);
    let staged = random.iter().filter(|case| {
        let Some(stages) = case.stages(Some(60)) else { return false };
        let before = Memories::new(case);
        let (expected, found) = (before.clone().run(case), before.run_stages(case, &stages));
        differences(case, &found, &expected).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        true
    });
    assert!(staged.count() > 30);
}

/// Pieces depend on the shape alone; short rows and many rows have none.
#[test]
fn stages_are_for_few_long_rows() {
    let of = |shape: &[usize]| {
        let case = Case::contiguous("sum", cases::row_sum(DType::F32), shape, Tolerance::Exact);
        case.row_output(0).stages(None)
    };
    assert!(of(&[1, 100_000]).is_none() && of(&[65, 1 << 20]).is_none() && of(&[1, 0]).is_none());
    let Some(stages) = of(&[1, 100_000_000]) else { panic!("a sum of 10^8 elements is one kernel") };
    let shapes: Vec<&[usize]> = stages.list.iter().map(|stage| &stage.shape[..]).collect();
    assert_eq!(shapes, [&[1, 1017, 98_304][..], &[1, 24_832], &[1, 1018]]);
    let Some(stages) = of(&[16, 1 << 20]) else { panic!("16 rows are one kernel") };
    assert_eq!(stages.list[0].shape, [16, 64, 16_384]);
}

/// Few long rows use a whole device: the pieces are many, and no element is read more often than it must be.
#[test]
fn stages_of_few_long_rows_use_a_whole_device() {
    const ELEMENTS: usize = 100_000_000;
    for (case, bytes) in cases::few_long_rows(ELEMENTS) {
        let stages = case.stages(None).unwrap_or_else(|| panic!("{} is one kernel", case.name));
        let mut moved = 0;
        for stage in &stages.list {
            let kernel = case.stage(stage).generate_for(227 << 10, true).unwrap();
            let blocks: u32 = kernel.shape.grid.iter().product();
            let elements: usize = stage.shape.iter().product();
            // What reads a part of all elements runs on more blocks than any device has processors.
            assert!(elements < ELEMENTS / 100 || blocks >= 512, "{}: {blocks} blocks for {elements}", case.name);
            let read = |operand: &StageOperand, dtype: &DType| {
                let repeated = |(extent, stride): (&usize, &isize)| if *stride == 0 { 1 } else { *extent };
                stage.shape.iter().zip(&operand.strides).map(repeated).product::<usize>() * dtype.size()
            };
            let written = |operand: &StageOperand, dtype: DType| operand.shape.iter().product::<usize>() * dtype.size();
            let inputs = stage.inputs.iter().zip(&stage.program.input_dtypes);
            let outputs = stage.outputs.iter().zip(&stage.program.outputs);
            moved += inputs.map(|(operand, dtype)| read(operand, dtype)).sum::<usize>();
            moved += outputs.map(|(operand, (_, dtype))| written(operand, *dtype)).sum::<usize>();
        }
        assert!(moved <= (bytes * ELEMENTS) * 101 / 100, "{}: {moved} bytes are moved", case.name);
    }
}

/// Beyond 2^31 elements indices have 64 bits.
#[test]
fn large_tensors_are_compiled_with_wide_indices() {
    let mut list = Vec::new();
    for shape in [&[3 << 30][..], &[3 << 20, 1025], &[3, 40_000, 40_001]] {
        list.push(Case::contiguous("relu", cases::relu(DType::BF16), shape, Tolerance::Exact));
    }
    let case = Case::contiguous("bias", cases::affine(DType::F32), &[3 << 20, 1024], Tolerance::Exact);
    list.push(case.column_input(1).row_input(2));
    let case = Case::contiguous("transpose", cases::copy(DType::F32), &[40_000, 80_000], Tolerance::Exact);
    list.push(case.input(0, &[1, 40_000], 0));
    let case = Case::contiguous("sums", cases::row_sum(DType::U8), &[2, 3 << 30], Tolerance::Exact);
    list.push(case.row_output(0));
    for case in &list {
        assert!(source(case).contains("long long"));
    }
    compile(&list, true);
}

/// Else the compiler would evaluate it, with other last bits than the device has.
#[test]
fn a_function_of_a_number_is_left_to_the_device() {
    let nodes = vec![
        FusedNode::Input(0),
        FusedNode::Constant(1.5),
        FusedNode::Convert(DType::F32, 1),
        FusedNode::Apply(ScalarOp::Log, [2, 0, 0]),
        FusedNode::Apply(ScalarOp::Mul, [0, 3, 0]),
    ];
    let program = FusedProgram { input_dtypes: vec![DType::F32], nodes, outputs: vec![(4, DType::F32)] };
    let case = Case::contiguous("scaled", program, &[4096], Tolerance::Exact);
    let text = source(&case);
    assert!(text.contains("logf(opaque(1.5f))"), "{text}");
    compile(&[case], true);
}
