//! The memories of a case: filled, computed on by the host, compared.

use super::cases::{Case, Domain, Random, Tolerance};
use fulgurite_kernels::fused::{FusedKernel, OutputLayout};
use fulgurite_kernels::{Buffer, DType, TensorMut, TensorRef};

/// What outputs hold before: no result by chance.
pub const UNWRITTEN: u8 = 0x5C;

/// The bytes of all operands. An output that is written over an input has none of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Memories {
    pub inputs: Vec<Vec<u8>>,
    pub outputs: Vec<Vec<u8>>,
}

impl Memories {
    pub fn new(case: &Case) -> Memories {
        let mut random =
            Random(case.name.bytes().fold(5, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)));
        let inputs = (case.inputs.iter().zip(&case.program.input_dtypes))
            .map(|(input, &dtype)| {
                if input.counted {
                    return (0..input.elements as i32).flat_map(i32::to_ne_bytes).collect();
                }
                (0..input.elements).flat_map(|_| element(&mut random, dtype, input.domain)).collect()
            })
            .collect();
        let outputs = (case.outputs.iter().zip(&case.program.outputs))
            .map(|(output, &(_, dtype))| {
                let elements = if output.over.is_some() { 0 } else { output.elements };
                vec![UNWRITTEN; elements * dtype.size()]
            })
            .collect();
        Memories { inputs, outputs }
    }

    /// What they hold after the host has run the case.
    pub fn run(self, case: &Case) -> Memories {
        let aligned = |bytes: &Vec<u8>| {
            let mut buffer = Buffer::fenced(bytes.len()).unwrap();
            buffer.as_bytes_mut().copy_from_slice(bytes);
            buffer
        };
        let mut inputs: Vec<Buffer> = self.inputs.iter().map(aligned).collect();
        let mut outputs: Vec<Buffer> = self.outputs.iter().map(aligned).collect();
        let input_pointers: Vec<*mut u8> = inputs.iter_mut().map(|buffer| buffer.as_bytes_mut().as_mut_ptr()).collect();
        let strides: Vec<&[isize]> = case.inputs.iter().map(|input| &input.strides[..]).collect();
        let layouts: Vec<OutputLayout<'_>> = (case.outputs.iter())
            .map(|output| OutputLayout { shape: &output.shape, strides: &output.strides })
            .collect();
        let kernel = FusedKernel::new(&case.program, &case.shape, &strides, &layouts);
        // SAFETY: the memories hold what the layouts reach, and nobody else uses them.
        unsafe {
            let views: Vec<TensorRef<'_>> = (case.inputs.iter().zip(&case.program.input_dtypes).enumerate())
                .map(|(index, (input, &dtype))| {
                    let first = input_pointers[index].add(input.first * dtype.size());
                    TensorRef::new(dtype, &case.shape, &input.strides, first)
                })
                .collect();
            let mut results: Vec<TensorMut<'_>> = (case.outputs.iter().zip(&case.program.outputs).enumerate())
                .map(|(index, (output, &(_, dtype)))| {
                    let memory = match output.over {
                        Some(input) => input_pointers[input],
                        None => outputs[index].as_bytes_mut().as_mut_ptr(),
                    };
                    let first = memory.add(output.first * dtype.size());
                    TensorMut::new(dtype, &output.shape, &output.strides, first)
                })
                .collect();
            // Divisions of integers by zero give 0, as on the device.
            let _ = kernel.run(&views, &mut results);
        }
        let intact = inputs.iter().chain(&outputs).all(Buffer::guards_intact);
        assert!(intact, "{}: the host wrote outside of its operands", case.name);
        let bytes = |buffers: &[Buffer]| buffers.iter().map(|buffer| buffer.as_bytes().to_vec()).collect();
        Memories { inputs: bytes(&inputs), outputs: bytes(&outputs) }
    }
}

/// What differs between the memories after a case and what was expected, if anything does.
pub fn differences(case: &Case, found: &Memories, expected: &Memories) -> Result<(), String> {
    for (index, (found, expected)) in found.inputs.iter().zip(&expected.inputs).enumerate() {
        let over = case.outputs.iter().position(|output| output.over == Some(index));
        let what = format!("input {index}");
        match over {
            Some(output) => difference(case, output, &what, found, expected)?,
            None if found != expected => return Err(format!("{what} was written")),
            None => {}
        }
    }
    for (index, (found, expected)) in found.outputs.iter().zip(&expected.outputs).enumerate() {
        difference(case, index, &format!("output {index}"), found, expected)?;
    }
    Ok(())
}

/// An element of `dtype`, as its bytes in memory.
fn element(random: &mut Random, dtype: DType, domain: Domain) -> Vec<u8> {
    let special = domain == Domain::Extreme && random.below(3) == 0;
    let plain = match domain {
        Domain::Positive => (random.below(256) + 1) as f64 / 64.0,
        _ => random.below(513) as f64 / 64.0 - 4.0,
    };
    let choose = |list: &[f64], random: &mut Random| list[random.below(list.len())];
    match dtype {
        DType::Bool => vec![random.below(2) as u8],
        DType::U8 if special => vec![random.below(256) as u8],
        DType::U8 => vec![random.below(12) as u8],
        DType::I8 if special => vec![random.below(256) as u8],
        DType::I8 if domain == Domain::Positive => vec![random.below(12) as u8],
        DType::I8 => (random.below(25) as i8 - 12).to_le_bytes().to_vec(),
        DType::U16 | DType::I16 if special => (random.below(1 << 16) as u16).to_le_bytes().to_vec(),
        DType::I16 if domain != Domain::Positive => (random.below(25) as i16 - 12).to_le_bytes().to_vec(),
        DType::U16 | DType::I16 => (random.below(12) as u16).to_le_bytes().to_vec(),
        DType::U32 if special => {
            let list = [u32::MAX, u32::MAX - 1, 0, 1, 1 << 31, (1 << 31) - 1, 1 << 30, 65_537];
            list[random.below(list.len())].to_le_bytes().to_vec()
        }
        DType::U32 => (random.below(12) as u32).to_le_bytes().to_vec(),
        DType::I32 if special => {
            let list = [i32::MIN, i32::MIN + 1, -1, 0, 1, i32::MAX, 1 << 30, 65_537];
            list[random.below(list.len())].to_le_bytes().to_vec()
        }
        DType::I64 if special => {
            let list = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX, 1 << 53, (1 << 53) + 1, 1 << 32, -(1 << 40) - 7];
            list[random.below(list.len())].to_le_bytes().to_vec()
        }
        DType::I32 if domain == Domain::Positive => (random.below(12) as i32).to_le_bytes().to_vec(),
        DType::I64 if domain == Domain::Positive => (random.below(12) as i64).to_le_bytes().to_vec(),
        DType::I32 => (random.below(25) as i32 - 12).to_le_bytes().to_vec(),
        DType::I64 => (random.below(25) as i64 - 12).to_le_bytes().to_vec(),
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
            let value = if special {
                let list = [
                    0.0,
                    -0.0,
                    f64::INFINITY,
                    f64::NEG_INFINITY,
                    f64::NAN,
                    1e-40,
                    -3e-45,
                    3e-8,
                    6e-5,
                    65_504.0,
                    65_520.0,
                    -1e6,
                    9.3e18,
                    -9.3e18,
                    3e9,
                    1e38,
                    -3.4e38,
                    1e300,
                    1.0 + 1.0 / 256.0,
                    1.0 + 3.0 / 256.0,
                    1.0 + 1.0 / 2048.0,
                    1.0 + 3.0 / 2048.0,
                    16_777_217.0,
                    88.0,
                    -104.0,
                ];
                choose(&list, random)
            } else {
                plain
            };
            match dtype {
                DType::F16 => half::f16::from_f32(value as f32).to_bits().to_le_bytes().to_vec(),
                DType::BF16 => half::bf16::from_f32(value as f32).to_bits().to_le_bytes().to_vec(),
                DType::F32 => (value as f32).to_le_bytes().to_vec(),
                _ => value.to_le_bytes().to_vec(),
            }
        }
        DType::C64 | DType::C128 => unreachable!("no kernel takes complex numbers"),
    }
}

/// The number in `bytes`, and its place among all numbers of its type, in order.
pub fn number(dtype: DType, bytes: &[u8]) -> (f64, i128) {
    let place = |bits: u64, width: u32| {
        let sign = 1u64 << (width - 1);
        if bits & sign == 0 { i128::from(bits) } else { -i128::from(bits & (sign - 1)) }
    };
    let word = |count: usize| bytes[..count].iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte));
    match dtype {
        DType::Bool | DType::U8 => (f64::from(bytes[0]), i128::from(bytes[0])),
        DType::I8 => (f64::from(bytes[0] as i8), i128::from(bytes[0] as i8)),
        DType::U16 => (word(2) as f64, i128::from(word(2))),
        DType::I16 => (f64::from(word(2) as i16), i128::from(word(2) as i16)),
        DType::U32 => (word(4) as f64, i128::from(word(4))),
        DType::I32 => (f64::from(word(4) as i32), i128::from(word(4) as i32)),
        DType::I64 => (word(8) as i64 as f64, i128::from(word(8) as i64)),
        DType::F16 => (half::f16::from_bits(word(2) as u16).to_f64(), place(word(2), 16)),
        DType::BF16 => (half::bf16::from_bits(word(2) as u16).to_f64(), place(word(2), 16)),
        DType::F32 => (f64::from(f32::from_bits(word(4) as u32)), place(word(4), 32)),
        DType::F64 => (f64::from_bits(word(8)), place(word(8), 64)),
        DType::C64 | DType::C128 => unreachable!("no kernel takes complex numbers"),
    }
}

/// What is wrong with a memory that an output was written to, if anything is.
pub fn difference(case: &Case, output: usize, what: &str, found: &[u8], expected: &[u8]) -> Result<(), String> {
    let (dtype, tolerance) = (case.program.outputs[output].1, case.outputs[output].tolerance);
    let size = dtype.size();
    let (mut wrong, mut first, mut worst) = (0, None, 0.0f64);
    for (index, (found, expected)) in found.chunks(size).zip(expected.chunks(size)).enumerate() {
        if found == expected {
            continue;
        }
        let ((x, place), (y, expected_place)) = (number(dtype, found), number(dtype, expected));
        // Zeros of both signs have one place.
        let distance = (place - expected_place).unsigned_abs();
        let near = match tolerance {
            _ if x.is_nan() || y.is_nan() => x.is_nan() && y.is_nan(),
            Tolerance::Exact => distance == 0,
            Tolerance::Ulps(most) => distance <= u128::from(most),
            Tolerance::Near(relative, magnitude) => distance == 0 || (x - y).abs() <= relative * y.abs().max(magnitude),
        };
        if !near {
            wrong += 1;
            worst = worst.max(distance as f64);
            let unwritten = if found.iter().all(|&byte| byte == UNWRITTEN) { ", not written" } else { "" };
            first.get_or_insert_with(|| format!("{x:?} for {y:?} at {index}{unwritten}"));
        }
    }
    match first {
        Some(first) => {
            let count = expected.len() / size;
            Err(format!("{what} ({dtype}, {tolerance:?}): {wrong} of {count} differ, by up to {worst} ulps; {first}"))
        }
        None => Ok(()),
    }
}
