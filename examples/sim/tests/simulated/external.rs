//! Memory of others on the device: the event that it is ready after, its deleter, and other libraries' streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fulgurite::compile::Options;
use fulgurite::device::{DeviceContext, DeviceMemory, DeviceState, DeviceStream};
use fulgurite::dlpack::{DLDataType, DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use fulgurite::dlpack::{Managed, OtherStream};
use fulgurite::kernels::launch::{CopyRange, DeviceAddress};
use fulgurite::prelude::*;
use fulgurite::{DType, Device, TensorMeta};
use fulgurite_example_sim::kind::{HOST_MEMORY, PER_THREAD};

/// Work of a stream before what is of interest: enough for other streams to pass it.
const MUCH: usize = 200;

pub fn sim() -> Device {
    Device::new("sim", 0)
}

fn on_sim() -> Options {
    Options { device: Some(sim()), ..Options::default() }
}

/// Memory that no array owns, with these numbers.
pub fn memory(context: &dyn DeviceContext, values: &[f32]) -> Box<dyn DeviceMemory> {
    let memory = context.allocate(size_of_val(values)).unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let stream = context.stream().unwrap();
    // SAFETY: the block has as many bytes, and the copy is waited for.
    unsafe { stream.copy_in(memory.address(), &bytes) }.unwrap();
    stream.synchronize().unwrap();
    memory
}

/// Enqueues work on a block of its own.
pub fn busy(stream: &dyn DeviceStream, scratch: &dyn DeviceMemory) {
    for _ in 0..MUCH {
        // SAFETY: the block has as many bytes, and is used by this stream alone.
        unsafe { stream.fill(scratch.address(), 0, scratch.bytes()) }.unwrap();
    }
}

fn pointer(address: DeviceAddress) -> *mut u8 {
    std::ptr::without_provenance_mut(address.0 as usize)
}

#[test]
fn a_function_without_tensors_runs_on_the_device_that_is_asked_for() {
    let numbers = jit(|_: Vec<Tensor>| arange::with(1, 5).device(sim()).call()).options(on_sim());
    let array = numbers.call(Vec::<Array>::new()).unwrap();
    assert_eq!(array.device(), sim());
    assert_eq!(array.to_vec::<i64>().unwrap(), [1, 2, 3, 4]);
}

#[test]
fn work_waits_until_memory_of_others_is_ready() {
    let state = DeviceState::of(sim()).unwrap();
    let context = state.context();
    let seen = |with_event: bool| {
        let other = context.stream().unwrap();
        let (scratch, from) = (context.allocate(64).unwrap(), memory(context, &[1.0, 2.0]));
        let to = Arc::new(memory(context, &[0.0, 0.0]));
        let (address, ready) = (to.address(), context.event(false).unwrap());
        busy(&*other, &*scratch);
        // SAFETY: both blocks have as many bytes, and live until the stream is waited for.
        unsafe { other.copy(CopyRange { from: from.address(), to: address, bytes: 8 }) }.unwrap();
        other.record(&*ready).unwrap();
        let meta = TensorMeta::new([2], DType::F32, sim());
        let event = with_event.then_some(&*ready);
        let own = to.clone();
        // SAFETY: the block has as many bytes, and lives until the stream is waited for. Without the event nothing
        // orders the write: the block has a lock, and what is read then is what this test is about.
        let array = unsafe { Array::from_external(pointer(address), meta, None, move || drop(own), event) }.unwrap();
        let out = jit(|x: Tensor| x * 3.0).call(array).unwrap().to_vec::<f32>().unwrap();
        other.synchronize().unwrap();
        drop(to);
        out
    };
    for _ in 0..5 {
        assert_eq!(seen(true), [3.0, 6.0]);
    }
    assert!((0..20).any(|_| seen(false) != [3.0, 6.0]), "the event is not what the work waits for");
}

#[test]
fn the_host_is_told_of_memory_that_is_not_the_devices() {
    let deleted = Arc::new(AtomicUsize::new(0));
    let count = deleted.clone();
    let mut values = [1.0_f32, 2.0];
    let meta = TensorMeta::new([2], DType::F32, sim());
    let deleter = move || {
        count.fetch_add(1, Ordering::SeqCst);
    };
    // SAFETY: nothing is read: the address is refused.
    let refused = unsafe { Array::from_external(values.as_mut_ptr().cast(), meta, None, deleter, None) };
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("is no memory and no stream of this device"), "{error}");
    assert_eq!(deleted.load(Ordering::SeqCst), 1);
}

/// The last user of the memory is a run of a program, which its deleter calls again.
#[test]
fn a_deleter_may_call_the_program_that_used_the_memory() {
    let state = DeviceState::of(sim()).unwrap();
    let compiled =
        jit(|x: Tensor| x + 1.0).options(on_sim()).compile(&Array::new([2], &[0.0_f32; 2]).unwrap()).unwrap();
    let (own, calls) = (compiled.clone(), Arc::new(AtomicUsize::new(0)));
    let (block, count) = (memory(state.context(), &[1.0, 2.0]), calls.clone());
    let address = block.address();
    let deleter = move || {
        drop(block);
        let out = own.program().run(vec![Array::new([2], &[7.0_f32, 8.0]).unwrap()]).unwrap();
        assert_eq!(out[0].to_vec::<f32>().unwrap(), [8.0, 9.0]);
        count.fetch_add(1, Ordering::SeqCst);
    };
    let meta = TensorMeta::new([2], DType::F32, sim());
    // SAFETY: the block lives until the deleter is called, and nobody writes to it.
    let array = unsafe { Array::from_external(pointer(address), meta, None, deleter, None) }.unwrap();
    let out = compiled.program().run(vec![array]).unwrap();
    assert_eq!((out[0].to_vec::<f32>().unwrap(), calls.load(Ordering::SeqCst)), (vec![2.0, 3.0], 1));
}

/// The default stream of a thread is another one in the thread that deletes the export.
#[test]
fn exported_memory_is_used_again_after_the_consumers_thread_is_done() {
    let state = DeviceState::of(sim()).unwrap();
    let context = state.context();
    for _ in 0..5 {
        // SAFETY: it is the thread's own stream.
        let consumer = unsafe { context.stream_of(PER_THREAD) }.unwrap();
        // Of a size that no other test has.
        let values: Vec<f32> = (0..1237).map(|i| i as f32).collect();
        let array = Array::new([1237], &values).unwrap().to_device(sim()).unwrap();
        let export = array.to_dlpack(OtherStream::Default { per_thread: true }).unwrap();
        drop(array);
        let raw = export.into_raw().unwrap();
        // SAFETY: the tensor is valid until it is deleted below.
        let address = unsafe { (*raw).dl_tensor.data }.addr() as u64;
        let scratch = context.allocate(64).unwrap();
        let mut read = vec![0_u8; 4 * 1237];
        busy(&*consumer, &*scratch);
        // SAFETY: the export has as many bytes, and `read` lives until the stream is waited for.
        unsafe { consumer.copy_out(&mut read, DeviceAddress(address)) }.unwrap();
        let taken = raw.expose_provenance();
        let deleter = std::thread::spawn(move || {
            let raw: *mut fulgurite::dlpack::DLManagedTensorVersioned = std::ptr::with_exposed_provenance_mut(taken);
            // SAFETY: it was exported above, and is deleted once.
            unsafe { ((*raw).deleter.unwrap())(raw) };
        });
        deleter.join().unwrap();
        // It has the memory that is free now.
        let zeros = Array::zeros_on(sim(), [1237], DType::F32).unwrap();
        consumer.synchronize().unwrap();
        let read: Vec<f32> = read.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect();
        assert_eq!(read, values, "the memory was written to before it was read");
        drop(zeros);
    }
}

/// A tensor of two numbers in host memory that is page-locked for the device. Nothing is freed.
fn page_locked(data: *mut u8, device_type: i32) -> Managed {
    let shape: &mut [i64] = vec![2].leak();
    let tensor = Box::leak(Box::new(DLManagedTensorVersioned {
        version: DLPackVersion { major: 1, minor: 0 },
        manager_ctx: std::ptr::null_mut(),
        deleter: None,
        flags: 0,
        dl_tensor: DLTensor {
            data: data.cast(),
            device: DLDevice { device_type, device_id: 0 },
            ndim: 1,
            dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
            shape: shape.as_mut_ptr(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        },
    }));
    // SAFETY: the tensor is valid for ever.
    unsafe { Managed::from_raw(tensor) }.unwrap()
}

/// The host reads at any time: the import itself waits for the stream that writes.
#[test]
fn page_locked_memory_is_imported_after_it_is_written() {
    let state = DeviceState::of(sim()).unwrap();
    let context = state.context();
    let written = |producer: OtherStream| {
        // SAFETY: it is the thread's own stream.
        let other = unsafe { context.stream_of(PER_THREAD) }.unwrap();
        let (scratch, from) = (context.allocate(64).unwrap(), memory(context, &[1.0, 2.0]));
        let [before, behind] = [context.event(true).unwrap(), context.event(true).unwrap()];
        let values: &mut [f32] = vec![0.0; 2].leak();
        let data: *mut u8 = values.as_mut_ptr().cast();
        other.record(&*before).unwrap();
        busy(&*other, &*scratch);
        // SAFETY: the memory has as many bytes, is never freed, and is read behind the copy.
        unsafe { other.copy_out(std::slice::from_raw_parts_mut(data, 8), from.address()) }.unwrap();
        other.record(&*behind).unwrap();
        let array = Array::from_dlpack(page_locked(data, HOST_MEMORY), producer).unwrap();
        let written = behind.milliseconds_since(&*before).is_ok();
        other.synchronize().unwrap();
        assert_eq!((array.device().is_cpu(), array.to_vec::<f32>().unwrap()), (true, vec![1.0, 2.0]));
        written
    };
    for _ in 0..5 {
        assert!(written(OtherStream::Default { per_thread: true }));
    }
    assert!((0..20).any(|_| !written(OtherStream::Unordered)), "the stream is not what the import waits for");
    // Of a kind that is not linked nobody can wait for the stream.
    let values: &mut [f32] = vec![0.0; 2].leak();
    let other = page_locked(values.as_mut_ptr().cast(), 11);
    let error = Array::from_dlpack(other, OtherStream::Default { per_thread: true }).unwrap_err().to_string();
    assert!(error.contains("is written by a stream of a kind of device that is not linked here"), "{error}");
}
