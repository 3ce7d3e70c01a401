//! Calls whose result is in the memory of an operand: they give the bits that they give apart, or refuse.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fulgurite_kernels::access::write_f64;
use fulgurite_kernels::buffer::{Buffer, POISON};
use fulgurite_kernels::view::contiguous_strides;
use fulgurite_kernels::{DType, TensorMut, TensorRef};

use super::layouts::{Call, Owned};

/// Contiguous elements of some memory.
struct Placed {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<isize>,
    first: *mut u8,
}

impl Placed {
    fn new(dtype: DType, shape: &[usize], memory: &Buffer, start: usize) -> Placed {
        let first = memory.as_ptr().wrapping_add(start * dtype.size());
        Placed { dtype, shape: shape.to_vec(), strides: contiguous_strides(shape), first }
    }
    fn read(&self) -> TensorRef<'_> {
        // SAFETY: the elements are in a live buffer; every other view of them is marked alike.
        unsafe { TensorRef::overlapped(self.dtype, &self.shape, &self.strides, self.first) }
    }
    fn write(&self) -> TensorMut<'_> {
        // SAFETY: as above.
        unsafe { TensorMut::overlapped(self.dtype, &self.shape, &self.strides, self.first) }
    }
}

/// Runs the call with each result over each operand, from its first element on and from the next one, and compares with
/// `plain`.
pub fn check(call: &Call<'_>, plain: &[Vec<u8>]) {
    for operand in 0..call.inputs.len() {
        for result in 0..call.outputs.len() {
            for start in 0..if cfg!(miri) { 1 } else { 2 } {
                over(call, plain, operand, (result, start));
            }
        }
    }
}

fn over(call: &Call<'_>, plain: &[Vec<u8>], operand: usize, (result, start): (usize, usize)) {
    let (input, (dtype, shape)) = (&call.inputs[operand], &call.outputs[result]);
    let elements = |shape: &[usize]| shape.iter().product::<usize>();
    let room = (elements(&input.shape) * input.dtype.size()).max((elements(shape) + start) * dtype.size());
    let mut memory = Buffer::zeroed(room).unwrap();
    memory.as_bytes_mut().fill(POISON);
    let (read, written) =
        (Placed::new(input.dtype, &input.shape, &memory, 0), Placed::new(*dtype, shape, &memory, start));
    write_f64(&mut read.write(), &input.values);
    let operands: Vec<Owned> = call.inputs.iter().map(|input| input.placed(None)).collect();
    let mut results: Vec<Owned> = call.outputs.iter().map(|(dtype, shape)| Owned::contiguous(*dtype, shape)).collect();
    let mut views: Vec<TensorRef<'_>> = operands.iter().map(Owned::view).collect();
    views[operand] = read.read();
    let mut targets: Vec<TensorMut<'_>> = results.iter_mut().map(Owned::view_mut).collect();
    targets[result] = written.write();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (call.run)(&views, targets))) {
        let refused =
            panic.downcast_ref::<String>().is_some_and(|message| message.contains("shares memory with a result"));
        return if !refused {
            resume_unwind(panic)
        };
    }
    for (index, (own, plain)) in results.iter().zip(plain).enumerate() {
        let shared = &memory.as_bytes()[start * dtype.size()..][..elements(shape) * dtype.size()];
        let apart = own.split().0;
        let got = if index == result { shared } else { &apart };
        let how = format!("result {result} over operand {operand}, from element {start} on");
        call.same(plain, got, call.outputs[index].0, &how, index);
    }
}
