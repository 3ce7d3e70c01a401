//! Rows added at indices on a device: every kernel that adds them, each update once, whatever the strides.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, DType, Device};

use crate::device;

type Function = fn((Tensor, Tensor, Tensor)) -> Tensor;

const ROWS: Function = |(table, index, source)| prims::index_add(table, 0, index, source);
/// The table and the updates are columns of the operands.
const COLUMNS: Function = |(table, index, source)| {
    let [table, source] = [table, source].map(|rows| prims::permute(rows, [1, 0]));
    prims::permute(prims::index_add(table, 1, index, source), [1, 0])
};

/// Numbers whose sums are exact in f32: the sum says which were added, whatever the order.
fn whole_numbers(shape: &[usize], seed: usize, dtype: DType) -> Array {
    let values: Vec<f64> = (0..shape.iter().product()).map(|i| ((i * 7919 + seed) % 127) as f64 - 63.0).collect();
    Array::from_f64(shape, dtype, &values).unwrap()
}

fn run(device: Option<Device>, f: Function, inputs: (Array, Array, Array)) -> Vec<f64> {
    let options = Options { device, ..Options::default() };
    fulgurite_runtime::jit(f).options(options).call(inputs).unwrap().to_host().unwrap().to_f64().unwrap()
}

#[test]
fn each_row_is_added_once() {
    let Some(device) = device::cuda() else { return };
    // Few rows, those that blocks go through (1024 and a thread for each of 256), and such that are sorted.
    for rows in [1, 64, 255, 256, 257, 1000, 1024, 1025] {
        for (columns, targets, dtype) in [(31, 5, DType::F32), (32, 300, DType::F32), (769, 7, DType::I64)] {
            for f in [ROWS, COLUMNS] {
                let index: Vec<i64> = (0..rows as i64).map(|row| row * row * 31 % targets).collect();
                let inputs = || {
                    let table = whole_numbers(&[targets as usize, columns], 1, dtype);
                    let source = whole_numbers(&[rows, columns], 2, dtype);
                    (table, Array::new([rows], &index).unwrap(), source)
                };
                let found = run(Some(device), f, inputs());
                assert!(found == run(None, f, inputs()), "{rows} rows of {columns}, {targets} targets");
            }
        }
    }
}

/// The order of additions is that of the rows: bits are those of every run, and equal to those of the host.
#[test]
fn rows_are_added_in_their_order() {
    let Some(device) = device::cuda() else { return };
    let wave = |count: usize| (0..count).map(|i| (i as f64 * 0.37).sin() * 1e3_f64.powi(i as i32 % 5)).collect();
    let inputs = || {
        let [table, source]: [Vec<f64>; 2] = [wave(3 * 40), wave(700 * 40)];
        let index: Vec<i64> = (0..700).map(|row| row % 3).collect();
        let rows = |shape, values: &[f64]| Array::from_f64(shape, DType::F32, values).unwrap();
        (rows([3, 40], &table), Array::new([700], &index).unwrap(), rows([700, 40], &source))
    };
    let found = run(Some(device), ROWS, inputs());
    assert_eq!(found, run(Some(device), ROWS, inputs()));
    assert_eq!(found, run(None, ROWS, inputs()));
}

#[test]
fn an_index_beyond_the_table_is_told() {
    let Some(device) = device::cuda() else { return };
    for wrong in [-1, 4] {
        let mut index = vec![1i64; 300];
        index[270] = wrong;
        let options = Options { device: Some(device), ..Options::default() };
        let (table, source) = (whole_numbers(&[4, 64], 1, DType::F32), whole_numbers(&[300, 64], 2, DType::F32));
        let step = fulgurite_runtime::jit(ROWS).options(options);
        let error = step.call((table, Array::new([300], &index).unwrap(), source)).and_then(|found| found.to_host());
        let text = error.unwrap_err().to_string();
        assert!(text.contains(&format!("index holds {wrong}, expected 0 to below 4")), "{text}");
    }
}
