//! Arrays that cross to a stream of another library and from it, ordered once for a call.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fulgurite::array::{Memory, Strides};
use fulgurite::compile::Options;
use fulgurite::device::faults::{Origins, Record, Reporter};
use fulgurite::device::memory::{Content, Known};
use fulgurite::device::{DeviceBuffer, DeviceMemory, DeviceState, DeviceStream, RECORD_BYTES};
use fulgurite::dlpack::{DLDataType, DLDevice, DLManagedTensorVersioned, DLPackVersion, DLTensor};
use fulgurite::dlpack::{Managed, OtherStream};
use fulgurite::exchange::Exchange;
use fulgurite::kernels::launch::{CopyRange, DeviceAddress};
use fulgurite::prelude::*;
use fulgurite::{DType, TensorMeta};
use fulgurite_example_sim::kind::{EXTENSION, PER_THREAD};

use crate::external::{busy, memory, sim};

/// What the other library's tensor keeps alive, and how many of them were deleted.
struct Kept {
    _block: Arc<Box<dyn DeviceMemory>>,
    deleted: Arc<AtomicUsize>,
}

unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: `tensor_over` made both, and the deleter is called once.
    unsafe {
        let kept = Box::from_raw((*tensor).manager_ctx.cast::<Kept>());
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut((*tensor).dl_tensor.shape, 1)));
        drop(Box::from_raw(tensor));
        kept.deleted.fetch_add(1, Ordering::SeqCst);
    }
}

/// A tensor of another library over all of a block.
fn tensor_over(block: &Arc<Box<dyn DeviceMemory>>, deleted: &Arc<AtomicUsize>) -> Managed {
    let shape = Box::into_raw(vec![(block.bytes() / 4) as i64].into_boxed_slice());
    let kept = Box::new(Kept { _block: block.clone(), deleted: deleted.clone() });
    let tensor = Box::new(DLManagedTensorVersioned {
        version: DLPackVersion { major: 1, minor: 0 },
        manager_ctx: Box::into_raw(kept).cast::<c_void>(),
        deleter: Some(delete),
        flags: 0,
        dl_tensor: DLTensor {
            data: std::ptr::without_provenance_mut(block.address().0 as usize),
            device: DLDevice { device_type: EXTENSION, device_id: 0 },
            ndim: 1,
            dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
            shape: shape.cast(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        },
    });
    // SAFETY: the tensor is valid until its deleter is called.
    unsafe { Managed::from_raw(Box::into_raw(tensor)) }.unwrap()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
}

/// The stream of this thread, as another library's, and the exchange with it.
fn other() -> (Arc<DeviceState>, Box<dyn DeviceStream>, Arc<Exchange>) {
    let state = DeviceState::of(sim()).unwrap();
    // SAFETY: it is the thread's own stream, which lives as long as the test.
    unsafe {
        let stream = state.context().stream_of(PER_THREAD).unwrap();
        let exchange = Exchange::new(sim(), OtherStream::Default { per_thread: true }).unwrap();
        (state, stream, exchange)
    }
}

#[test]
fn work_of_a_call_comes_behind_the_other_stream_and_before_it() {
    let (state, stream, exchange) = other();
    let context = state.context();
    let tripled = jit(|x: Tensor| x * 3.0);
    for _ in 0..10 {
        let scratch = context.allocate(64).unwrap();
        let (from, block) = (memory(context, &[1.0, 2.0]), Arc::new(memory(context, &[0.0, 0.0])));
        let deleted = Arc::new(AtomicUsize::new(0));
        let address = block.address();
        // The other library computes its tensor behind other work.
        busy(&*stream, &*scratch);
        // SAFETY: both blocks have as many bytes, and live until the stream is waited for.
        unsafe { stream.copy(CopyRange { from: from.address(), to: address, bytes: 8 }) }.unwrap();
        let call = exchange.begin().unwrap();
        let array = call.import(tensor_over(&block, &deleted)).unwrap();
        // And our own stream has much to do before the program reads it.
        let own = context.allocate(64).unwrap();
        busy(state.stream(), &*own);
        let result = tripled.call(array).unwrap();
        let export = call.export(&result).unwrap();
        drop(call);
        // The array is gone, and its memory was given back: what the other stream does with it comes after.
        assert_eq!(deleted.load(Ordering::SeqCst), 1);
        let raw = export.into_raw().unwrap();
        let mut read = vec![0_u8; 8];
        // SAFETY: the memory has as many bytes, and `read` lives until the stream is waited for.
        unsafe {
            stream.fill(address, 0xff, 8).unwrap();
            let data = (*raw).dl_tensor.data.addr() as u64;
            stream.copy_out(&mut read, DeviceAddress(data)).unwrap();
            stream.synchronize().unwrap();
            ((*raw).deleter.unwrap())(raw);
        }
        assert_eq!(numbers(&read), [3.0, 6.0]);
        assert_eq!(result.to_vec::<f32>().unwrap(), [3.0, 6.0]);
    }
}

#[test]
fn work_comes_behind_the_other_stream_of_an_array_that_was_imported_alone() {
    let (state, stream, exchange) = other();
    let context = state.context();
    let tripled = jit(|x: Tensor| x * 3.0);
    for read_at_once in [false, true].repeat(5) {
        let scratch = context.allocate(64).unwrap();
        let (from, block) = (memory(context, &[1.0, 2.0]), Arc::new(memory(context, &[0.0, 0.0])));
        let deleted = Arc::new(AtomicUsize::new(0));
        // The other library computes its tensor behind other work.
        busy(&*stream, &*scratch);
        // SAFETY: both blocks have as many bytes, and live until the stream is waited for.
        unsafe { stream.copy(CopyRange { from: from.address(), to: block.address(), bytes: 8 }) }.unwrap();
        let array = exchange.import(tensor_over(&block, &deleted)).unwrap();
        match read_at_once {
            true => assert_eq!(array.to_vec::<f32>().unwrap(), [1.0, 2.0]),
            false => assert_eq!(tripled.call(array).unwrap().to_vec::<f32>().unwrap(), [3.0, 6.0]),
        }
        assert_eq!(deleted.load(Ordering::SeqCst), usize::from(!read_at_once));
        stream.synchronize().unwrap();
    }
}

#[test]
fn deleted_exports_keep_their_memory_until_the_next_call() {
    let (state, stream, exchange) = other();
    let context = state.context();
    // Of a size that no other test has.
    let values: Vec<f32> = (0..1361).map(|i| i as f32).collect();
    let array = Array::new([1361], &values).unwrap().to_device(sim()).unwrap();
    let call = exchange.begin().unwrap();
    let raw = call.export(&array).unwrap().into_raw().unwrap();
    drop((call, array));
    let scratch = context.allocate(64).unwrap();
    let mut read = vec![0_u8; 4 * values.len()];
    // SAFETY: the export has as many bytes, and `read` lives until the stream is waited for.
    let address = unsafe {
        busy(&*stream, &*scratch);
        let data = DeviceAddress((*raw).dl_tensor.data.addr() as u64);
        stream.copy_out(&mut read, data).unwrap();
        ((*raw).deleter.unwrap())(raw);
        data
    };
    let address_of = |array: &Array| match array.memory() {
        Memory::Device(buffer) => buffer.address(),
        Memory::Host(_) => panic!("it is on the device"),
    };
    let zeros = Array::zeros_on(sim(), [1361], DType::F32).unwrap();
    assert_ne!(address_of(&zeros), address);
    exchange.let_go().unwrap();
    let others = Array::zeros_on(sim(), [1361], DType::F32).unwrap();
    assert_eq!(address_of(&others), address, "the memory was not given back");
    stream.synchronize().unwrap();
    assert_eq!(numbers(&read), values, "the memory was written to before it was read");
}

/// Says of a record that does not begin with 0 that it is a fault.
#[derive(Debug)]
struct FirstByte;

impl Reporter for FirstByte {
    fn error(&self, record: &Record) -> Option<Error> {
        let message = format!("{} is out of range", record[0]);
        (record[0] != 0).then(|| Error::Argument { argument: "index".into(), message })
    }
}

#[test]
fn what_is_wrong_with_data_is_told_by_a_later_call() {
    let (state, _, exchange) = other();
    let context = state.context();
    let record = |first: f32| memory(context, &[first; RECORD_BYTES / 4]);
    // As a run of a program leaves it whose kernels report: the run's record is copied behind other work.
    let scratch = context.allocate(64).unwrap();
    let export = |from: &dyn DeviceMemory| -> fulgurite::Result<Array> {
        busy(state.stream(), &*scratch);
        let run = (context, state.stream());
        let origins = state.faults().fetch(run, from.address(), Arc::new(FirstByte), Origins::default()).unwrap();
        let buffer = DeviceBuffer::new(sim(), 8).unwrap();
        buffer.set_written(&Content::new(Known { origins, written: None }));
        let meta = TensorMeta::new([2], DType::F32, sim());
        let array = Array::from_memory(Memory::Device(Arc::new(buffer)), meta, Strides::from_slice(&[1]), 0);
        let call = exchange.begin()?;
        drop(call.export(&array).unwrap());
        Ok(array)
    };
    // The first byte of 0.0 is 0, that of -0.1 is 0xcd.
    let (sound, wrong) = (record(0.0), record(-0.1));
    let kept = export(&*sound).unwrap();
    exchange.check().unwrap();
    // The export waits for nothing, and says nothing.
    let faulted = export(&*wrong).unwrap();
    state.synchronize().unwrap();
    let error = export(&*sound).unwrap_err().to_string();
    assert!(error.contains("205 is out of range"), "{error}");
    // It is told once; readers of the values themselves are told each time.
    exchange.check().unwrap();
    assert!(faulted.to_vec::<f32>().is_err() && kept.to_vec::<f32>().is_ok());
    // While the run goes on, nothing is known, and nothing is waited for.
    let told = (0..20).any(|_| {
        let running = export(&*wrong);
        let at_once = exchange.begin().is_ok();
        assert!(!at_once || exchange.check().unwrap_err().to_string().contains("205"));
        state.synchronize().unwrap();
        drop(running);
        at_once
    });
    assert!(told, "each call waits for the run before");
    state.synchronize().unwrap();
}

#[test]
fn an_exchange_is_with_a_stream_and_takes_memory_of_its_device() {
    // SAFETY: there is no stream.
    let error = unsafe { Exchange::new(sim(), OtherStream::Unordered) }.unwrap_err().to_string();
    assert!(error.contains("an exchange needs a stream"), "{error}");
    let (_, _, exchange) = other();
    let call = exchange.begin().unwrap();
    let host = Array::new([2], &[1.0_f32, 2.0]).unwrap();
    let array = call.import(host.to_dlpack(OtherStream::Unordered).unwrap()).unwrap();
    assert!(array.device().is_cpu());
    let options = Options { device: Some(sim()), ..Options::default() };
    let out = jit(|x: Tensor| x + 1.0).options(options).call(array).unwrap();
    assert_eq!(out.to_vec::<f32>().unwrap(), [2.0, 3.0]);
}
