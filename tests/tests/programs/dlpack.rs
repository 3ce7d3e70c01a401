//! Memory of others: arrays over it, its deleter, and DLPack's tensors, both ways on the host.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor, FLAG_IS_COPIED,
    FLAG_READ_ONLY, Managed, OtherStream,
};
use fulgurite_runtime::program::with_overwritten;
use fulgurite_runtime::{Array, DType, Device, Error, Tensor, TensorMeta, jit};

/// Counts calls of a deleter.
#[derive(Clone, Default)]
struct Deleted(Arc<AtomicUsize>);

impl Deleted {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// An array over `values`, which its deleter frees.
    fn array(&self, values: &[f32], shape: &[usize], strides: Option<&[isize]>, first: usize) -> Array {
        let memory = values.to_vec().leak();
        let (pointer, count) = (memory.as_mut_ptr(), self.clone());
        let owned = memory.as_mut_ptr() as usize;
        let len = memory.len();
        let deleter = move || {
            count.0.fetch_add(1, Ordering::SeqCst);
            // SAFETY: leaked above with this length and capacity, and freed once.
            drop(unsafe { Vec::from_raw_parts(owned as *mut f32, len, len) });
        };
        let meta = TensorMeta::new(shape, DType::F32, Device::CPU);
        // SAFETY: the values live until the deleter is called, and nobody writes to them.
        unsafe { Array::from_external(pointer.wrapping_add(first).cast(), meta, strides, deleter, None) }.unwrap()
    }
}

fn values(array: &Array) -> Vec<f32> {
    array.to_vec().unwrap()
}

#[test]
fn a_deleter_is_called_once_when_nobody_uses_the_memory() {
    let deleted = Deleted::default();
    let array = deleted.array(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], None, 0);
    assert!(array.is_external() && !array.is_unique());
    let (view, clone) = (array.permute(&[1, 0]).unwrap().slice(0, 1, 3, 1).unwrap(), array.clone());
    drop((array, clone));
    assert_eq!(values(&view), [2.0, 5.0, 3.0, 6.0]);
    // A program that hands its input on keeps it alive, one that computes with it does not.
    let f = jit(|x: Tensor| (x, x * 2.0));
    let (same, twice) = f.call(view.clone()).unwrap();
    drop(view);
    assert_eq!(deleted.count(), 0);
    assert!(same.is_external() && !twice.is_external());
    drop(same);
    assert_eq!(deleted.count(), 1);
    assert_eq!(values(&twice), [4.0, 10.0, 6.0, 12.0]);
    drop((f, twice));
    assert_eq!(deleted.count(), 1);
}

#[test]
fn memory_that_is_lent_is_updated_where_it_is() {
    let deleted = Deleted::default();
    let update = jit(|(x, y): (Tensor, Tensor)| (x + y, y * 2.0));
    let update = update.arguments(["x", "y"]).results(["x", "twice"]).donate("x");
    let y = Array::new([2], &[1.0_f32, 2.0]).unwrap();
    let refused = update.call((deleted.array(&[1.0, 2.0], &[2], None, 0), y.clone())).unwrap_err();
    assert!(refused.to_string().contains("its memory belongs to another library"), "{refused}");
    assert_eq!(deleted.count(), 1);
    // SAFETY: nobody else has the memory.
    let lent = unsafe { deleted.array(&[1.0, 2.0], &[2], None, 0).lent() };
    let start = lent.buffer().unwrap().as_ptr();
    assert!(lent.is_external() && lent.is_lent() && lent.is_unique());
    let shared = lent.clone();
    let refused = update.call((lent, y.clone())).unwrap_err();
    assert!(refused.to_string().contains("another array still shares its memory"), "{refused}");
    let mut x = shared;
    for _ in 0..3 {
        x = update.call((x, y.clone())).unwrap().0;
        assert_eq!(x.buffer().unwrap().as_ptr(), start);
    }
    assert_eq!(values(&x), [4.0, 8.0]);
    assert_eq!(deleted.count(), 1);
    drop(x);
    assert_eq!(deleted.count(), 2);
}

#[test]
fn a_run_that_fails_says_whether_it_has_overwritten_what_it_was_given() {
    let late = jit(|(x, index, rows): (Tensor, Tensor, Tensor)| x + sum(index_select(rows, 0, index)));
    // The index comes from what was written, so that no order of the lines reads it before.
    let early = jit(|(x, index, rows): (Tensor, Tensor, Tensor)| {
        let next = x + 1.0;
        let index = index + to(sum(next) * 0.0, DType::I64);
        (next, index_select(rows, 0, index))
    });
    let late = late.arguments(["x", "index", "rows"]).results(["x"]).donate("x");
    let early = early.arguments(["x", "index", "rows"]).results(["x", "rows"]).donate("x");
    let deleted = Deleted::default();
    let given = |index: i64| {
        // SAFETY: nobody else has the memory.
        let x = unsafe { deleted.array(&[1.0, 2.0], &[2], None, 0).lent() };
        (x, Array::new([1], &[index]).unwrap(), Array::new([2, 2], &[0.0_f32; 4]).unwrap())
    };
    let (outcome, overwritten) = with_overwritten(|| late.call(given(5)));
    assert!(outcome.is_err() && !overwritten);
    let (outcome, overwritten) = with_overwritten(|| early.call(given(5)));
    assert!(outcome.is_err() && overwritten);
    let (outcome, overwritten) = with_overwritten(|| early.call(given(1)));
    assert!(outcome.is_ok() && !overwritten);
}

#[test]
fn strides_reach_both_ways() {
    let deleted = Deleted::default();
    let numbers = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    let backwards = deleted.array(&numbers, &[3], Some(&[-2]), 5);
    assert_eq!(values(&backwards), [5.0, 3.0, 1.0]);
    assert_eq!(values(&jit(|x: Tensor| x + 1.0).call(backwards.clone()).unwrap()), [6.0, 4.0, 2.0]);
    let repeated = deleted.array(&numbers, &[2, 2], Some(&[0, 3]), 1);
    assert_eq!(values(&repeated), [1.0, 4.0, 1.0, 4.0]);
    // Aligned to an element alone.
    let odd = deleted.array(&numbers, &[3], None, 1);
    assert_eq!(values(&jit(|x: Tensor| softmax(x, 0).exp().sum()).call(odd).unwrap()).len(), 1);
    drop((backwards, repeated));
    assert_eq!(deleted.count(), 3);
}

#[test]
fn memory_of_others_is_not_donated() {
    let deleted = Deleted::default();
    let f = jit(|x: Tensor| x + 1.0).arguments(["x"]).results(["x"]).donate("x");
    let array = deleted.array(&[1.0, 2.0], &[2], None, 0);
    let error = f.call(array.clone()).unwrap_err().to_string();
    assert!(error.contains("'x'") && error.contains("belongs to another library"), "{error}");
    assert_eq!(values(&f.call(array.to_contiguous().unwrap()).unwrap()), [2.0, 3.0]);
    assert_eq!(values(&array), [1.0, 2.0]);
    drop(array);
    assert_eq!(deleted.count(), 1);
}

#[test]
fn what_cannot_be_an_array_is_an_error_and_is_deleted() {
    let deleted = Deleted::default();
    let mut memory = [0.0_f32; 4];
    let pointer = memory.as_mut_ptr().cast::<u8>();
    let refused = |pointer: *mut u8, shape: &[usize], strides: Option<&[isize]>| {
        let (meta, count) = (TensorMeta::new(shape, DType::F32, Device::CPU), deleted.clone());
        let deleter = move || {
            count.0.fetch_add(1, Ordering::SeqCst);
        };
        // SAFETY: nothing is read: each call is refused.
        unsafe { Array::from_external(pointer, meta, strides, deleter, None) }.unwrap_err().to_string()
    };
    let cases = [
        (refused(pointer.wrapping_add(2), &[2], None), "expected a multiple of the 4 bytes"),
        (refused(std::ptr::null_mut(), &[2], None), "is null"),
        (refused(pointer, &[2, 2], Some(&[1])), "expected 2 for"),
        (refused(pointer, &[2, 2], Some(&[isize::MAX, 1])), "reaches further than memory"),
        (refused(pointer, &[3], Some(&[-(1 << 60)])), "reaches"),
    ];
    for (said, expected) in &cases {
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(deleted.count(), cases.len());
}

/// What an array is exported as, imported again.
fn exchanged(array: &Array) -> Array {
    let raw = array.to_dlpack(OtherStream::Unordered).unwrap().into_raw().unwrap();
    // SAFETY: the tensor was just exported, and is nobody else's.
    Array::from_dlpack(unsafe { Managed::from_raw(raw) }.unwrap(), OtherStream::Unordered).unwrap()
}

#[test]
fn every_element_type_and_layout_makes_the_round_trip_without_a_copy() {
    for dtype in DType::ALL {
        let numbers =
            |count: usize| [0.0, 1.0, 1.0, 0.0, 1.0].into_iter().cycle().take(count * dtype.parts()).collect();
        let array_of = |shape: &[usize]| {
            let values: Vec<f64> = numbers(shape.iter().product());
            Array::from_f64(shape, dtype, &values).unwrap()
        };
        let array = array_of(&[2, 3]);
        let views = [
            array.clone(),
            array.permute(&[1, 0]).unwrap(),
            array.slice(1, 1, 3, 1).unwrap(),
            array.slice(1, 0, 3, 2).unwrap(),
            array.slice(0, 1, 1, 1).unwrap(),
            array_of(&[]).expand(&[2, 2]).unwrap(),
            array_of(&[]),
            array_of(&[0, 4]),
        ];
        for view in views {
            let back = exchanged(&view);
            assert_eq!((back.meta(), back.strides()), (view.meta(), view.strides()));
            assert_eq!(back.to_bytes().unwrap(), view.to_bytes().unwrap(), "{:?}", view.meta());
            let first = |array: &Array| array.view().unwrap().as_ptr();
            assert!(view.meta().is_empty() || first(&back) == first(&view), "copied");
        }
    }
}

#[test]
fn exports_keep_their_arrays_and_say_what_may_be_done_with_them() {
    let deleted = Deleted::default();
    let array = deleted.array(&[1.0, 2.0], &[2], None, 0);
    let (export, copy) =
        (array.to_dlpack(OtherStream::Unordered).unwrap(), array.to_dlpack_copy(OtherStream::Unordered).unwrap());
    assert!(export.is_read_only() && !export.is_copied() && copy.is_copied() && !copy.is_read_only());
    drop(array);
    assert_eq!(deleted.count(), 0);
    let raw = export.into_raw().unwrap();
    // SAFETY: the tensor is valid until its deleter is called, below, once.
    unsafe {
        let DLManagedTensorVersioned { version, flags, dl_tensor, deleter, .. } = &*raw;
        assert_eq!((*version, *flags), (DLPackVersion { major: 1, minor: 0 }, FLAG_READ_ONLY));
        assert_eq!(dl_tensor.device, DLDevice { device_type: 1, device_id: 0 });
        assert_eq!(dl_tensor.dtype, DLDataType { code: 2, bits: 32, lanes: 1 });
        assert_eq!((dl_tensor.ndim, *dl_tensor.shape, *dl_tensor.strides), (1, 2, 1));
        assert_eq!(*dl_tensor.data.cast::<f32>().add(1), 2.0);
        deleter.unwrap()(raw);
    }
    assert_eq!(deleted.count(), 1);
    let copy = Array::from_dlpack(copy, OtherStream::Unordered).unwrap();
    assert_eq!((values(&copy), deleted.count()), (vec![1.0, 2.0], 1));
}

/// A tensor of another library.
struct Foreign {
    versioned: DLManagedTensorVersioned,
    unversioned: DLManagedTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    data: Vec<f32>,
    deleted: Deleted,
}

unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the context is the box that `Foreign::new` gave up; deleters are called once.
    unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Foreign>()) }.deleted.0.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    // SAFETY: as above.
    unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Foreign>()) }.deleted.0.fetch_add(1, Ordering::SeqCst);
}

impl Foreign {
    fn new(deleted: &Deleted, change: impl FnOnce(&mut DLTensor, &mut DLManagedTensorVersioned)) -> *mut Foreign {
        let tensor = DLTensor {
            data: std::ptr::null_mut(),
            device: DLDevice { device_type: 1, device_id: 0 },
            ndim: 2,
            dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 8,
        };
        let mut foreign = Box::new(Foreign {
            versioned: DLManagedTensorVersioned {
                version: DLPackVersion { major: 1, minor: 3 },
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(delete_versioned),
                flags: FLAG_IS_COPIED,
                dl_tensor: tensor,
            },
            unversioned: DLManagedTensor {
                dl_tensor: tensor,
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(delete_unversioned),
            },
            shape: vec![2, 2],
            strides: vec![1, 2],
            data: vec![9.0, 9.0, 1.0, 2.0, 3.0, 4.0],
            deleted: deleted.clone(),
        });
        let mut tensor = tensor;
        tensor.data = foreign.data.as_mut_ptr().cast::<c_void>();
        tensor.shape = foreign.shape.as_mut_ptr();
        tensor.strides = foreign.strides.as_mut_ptr();
        change(&mut tensor, &mut foreign.versioned);
        foreign.versioned.dl_tensor = tensor;
        foreign.unversioned.dl_tensor = tensor;
        let raw = Box::into_raw(foreign);
        // SAFETY: the box was just given up.
        unsafe {
            (*raw).versioned.manager_ctx = raw.cast();
            (*raw).unversioned.manager_ctx = raw.cast();
        }
        raw
    }

    fn imported(
        deleted: &Deleted,
        change: impl FnOnce(&mut DLTensor, &mut DLManagedTensorVersioned),
    ) -> Result<Array, Error> {
        let raw = Foreign::new(deleted, change);
        // SAFETY: the tensor is valid, and nobody else's.
        Array::from_dlpack(unsafe { Managed::from_raw(&raw mut (*raw).versioned) }?, OtherStream::Unordered)
    }
}

#[test]
fn tensors_of_both_forms_are_taken_over() {
    let deleted = Deleted::default();
    let array = Foreign::imported(&deleted, |_, _| ()).unwrap();
    assert_eq!(values(&array), [1.0, 3.0, 2.0, 4.0], "column by column, 8 bytes from the start");
    // Null strides are those of rows.
    let rows = Foreign::imported(&deleted, |tensor, _| tensor.strides = std::ptr::null_mut()).unwrap();
    assert_eq!(values(&rows), [1.0, 2.0, 3.0, 4.0]);
    let raw = Foreign::new(&deleted, |_, _| ());
    // SAFETY: the tensor is valid, and nobody else's.
    let old = unsafe { Managed::from_raw_unversioned(&raw mut (*raw).unversioned) }.unwrap();
    let old = Array::from_dlpack(old, OtherStream::Unordered).unwrap();
    assert_eq!(values(&jit(|x: Tensor| x.exp().log().sum()).call(old).unwrap()).len(), 1);
    assert_eq!(deleted.count(), 1);
    // An import that is exported, imported, and looked at from the side is one memory.
    let again = exchanged(&exchanged(&rows)).slice(0, 1, 2, 1).unwrap();
    drop((array, rows));
    assert_eq!((values(&again), deleted.count()), (vec![3.0, 4.0], 2));
    drop(again);
    assert_eq!(deleted.count(), 3);
    let none = Foreign::imported(&deleted, |tensor, managed| {
        (tensor.ndim, tensor.shape, tensor.strides) = (0, std::ptr::null_mut(), std::ptr::null_mut());
        managed.flags = 0;
    });
    assert_eq!(none.unwrap().item().unwrap(), 1.0);
    assert_eq!(deleted.count(), 4);
}

#[test]
fn tensors_that_cannot_be_used_are_errors_and_are_deleted() {
    let deleted = Deleted::default();
    type Change = fn(&mut DLTensor, &mut DLManagedTensorVersioned);
    let cases: [(Change, &str); 11] = [
        (|_, managed| managed.version.major = 2, "has version 2.3 of DLPack, expected version 1"),
        (|tensor, _| tensor.dtype = DLDataType { code: 5, bits: 32, lanes: 1 }, "type code 5, 32 bits"),
        (|tensor, _| tensor.dtype = DLDataType { code: 2, bits: 32, lanes: 4 }, "4 lanes"),
        (|tensor, _| tensor.dtype = DLDataType { code: 1, bits: 64, lanes: 1 }, "64 bits"),
        (|tensor, _| tensor.device.device_type = 7, "DLPack's type 7, of which no kind is linked"),
        (|tensor, _| tensor.byte_offset = 6, "expected a multiple of the 4 bytes"),
        (|tensor, _| tensor.ndim = -1, "-1 dimensions"),
        (|tensor, _| tensor.shape = std::ptr::null_mut(), "has no shape"),
        // SAFETY: the shape has two numbers.
        (|tensor, _| unsafe { *tensor.shape = -2 }, "its shape is [-2, 2]"),
        (|tensor, _| (tensor.data, tensor.byte_offset) = (std::ptr::null_mut(), 0), "is null"),
        (|tensor, _| tensor.data = std::ptr::null_mut(), "is null"),
    ];
    for (i, (change, expected)) in cases.into_iter().enumerate() {
        let error = Foreign::imported(&deleted, change).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(deleted.count(), i + 1, "{error}");
    }
    // SAFETY: null is refused.
    assert!(unsafe { Managed::from_raw(std::ptr::null_mut()) }.is_err());
}

#[test]
fn streams_are_those_of_pythons_array_api() {
    // SAFETY: no stream is used.
    let of = |stream| unsafe { OtherStream::from_python(stream) };
    assert_eq!(of(None).unwrap(), OtherStream::Default { per_thread: false });
    assert_eq!(of(Some(1)).unwrap(), of(None).unwrap());
    assert_eq!(of(Some(2)).unwrap(), OtherStream::Default { per_thread: true });
    assert_eq!(of(Some(-1)).unwrap(), OtherStream::Unordered);
    assert!(matches!(of(Some(0x7f00)).unwrap(), OtherStream::Stream(_)));
    assert!(of(Some(0)).unwrap_err().to_string().contains("ambiguous") && of(Some(-2)).is_err());
}
