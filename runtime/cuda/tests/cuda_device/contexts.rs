//! Which context is current on the calling thread: after each call the one from before.

use std::ptr::null_mut;

use cudarc::driver::sys::{
    CUcontext, CUresult, cuCtxCreate_v4, cuCtxDestroy_v2, cuCtxGetCurrent, cuCtxPopCurrent_v2, cuCtxSetCurrent,
};
use fulgurite_cuda::{
    Arguments, CaptureMode, Context, CublasLt, DeviceMemory, Event, LaunchShape, PinnedMemory, Stream,
};

use crate::fixture::{Device, device};

const SOURCE: &str = r#"extern "C" __global__ void increment(unsigned* value) { *value += 1; }"#;

fn current() -> CUcontext {
    let mut context = null_mut();
    // SAFETY: the driver is loaded, and the pointer is valid for the call.
    assert_eq!(unsafe { cuCtxGetCurrent(&mut context) }, CUresult::CUDA_SUCCESS);
    context
}

fn set_current(context: CUcontext) {
    // SAFETY: the context is alive, or null for none.
    assert_eq!(unsafe { cuCtxSetCurrent(context) }, CUresult::CUDA_SUCCESS);
    assert_eq!(current(), context);
}

/// What `f` returns, after which `before` is current as it was.
fn keeps<T>(what: &str, before: CUcontext, f: impl FnOnce() -> T) -> T {
    let value = f();
    assert_eq!(current(), before, "after {what}");
    value
}

/// Calls of every kind, and drops of what they make, with `before` current.
fn all_keep(device: &Device, before: CUcontext) {
    let context = &device.context;
    keeps("another handle", before, || Context::new(0).unwrap());
    keeps("memory_info", before, || context.memory_info().unwrap());
    let stream = keeps("Stream::new", before, || Stream::new(context).unwrap());
    let event = keeps("Event::timed", before, || Event::timed(context).unwrap());
    keeps("record", before, || event.record(&stream).unwrap());
    keeps("wait", before, || stream.wait(&event).unwrap());
    keeps("event queries", before, || (event.synchronize().unwrap(), event.is_reached().unwrap()));
    keeps("stream queries", before, || (stream.is_idle().unwrap(), stream.synchronize().unwrap()));
    let pinned = keeps("PinnedMemory::new", before, || PinnedMemory::new(context, 64).unwrap());
    let mut memory = keeps("DeviceMemory::new", before, || DeviceMemory::new(context, 64).unwrap());
    keeps("write", before, || memory.write(&stream, 0, pinned.as_bytes()).unwrap());
    // SAFETY: the memory has as many bytes, and nothing else uses it.
    keeps("fill", before, || unsafe { stream.fill_u8(memory.address(), 0, 64) }.unwrap());
    keeps("check_address", before, || context.check_address(memory.address()).unwrap());
    let function = keeps("Module::load", before, || device.function(SOURCE, "increment"));
    let launch = || {
        let arguments = Arguments::new().pointer(memory.address());
        // SAFETY: the kernel changes one number, which only work of this stream uses.
        unsafe { function.launch(&stream, &LaunchShape::linear(1, 1), &arguments) }
    };
    keeps("launch", before, || launch().unwrap());
    let graph = keeps("capture", before, || stream.capture(CaptureMode::ThreadLocal, launch).unwrap());
    let executable = keeps("instantiate", before, || graph.instantiate().unwrap());
    keeps("upload", before, || executable.upload(&stream).unwrap());
    // SAFETY: what the graph uses is alive, and used by this stream alone.
    keeps("replay", before, || unsafe { executable.launch(&stream) }.unwrap());
    let library = keeps("CublasLt::new", before, || CublasLt::new(context).unwrap());
    keeps("synchronize", before, || context.synchronize().unwrap());
    let mut read = [0; 4];
    keeps("read", before, || memory.read(&stream, 0, &mut read).unwrap());
    assert_eq!(u32::from_le_bytes(read), 2);
    // SAFETY: 1 is the legacy default stream of the context, which is always there.
    keeps("streams of others", before, || unsafe { Stream::of_handle(context, 1) }.wait(&event).unwrap());
    keeps("drops", before, || drop((library, executable, graph, function, memory, pinned, event, stream)));
}

#[test]
fn every_call_leaves_the_threads_context() {
    let Some(device) = device() else { return };
    let entered = device.context.enter().unwrap();
    let primary = current();
    let mut other = null_mut();
    // SAFETY: there is a first device, the pointer is valid for the call, and no parameters are given.
    assert_eq!(unsafe { cuCtxCreate_v4(&mut other, null_mut(), 0, 0) }, CUresult::CUDA_SUCCESS);
    // It is on top of the thread's stack of contexts: what is set from now on has no other below it.
    // SAFETY: the pointer is valid for the call.
    assert_eq!(unsafe { cuCtxPopCurrent_v2(&mut null_mut()) }, CUresult::CUDA_SUCCESS);
    for before in [null_mut(), other, primary] {
        set_current(before);
        all_keep(&device, before);
    }
    // Inside of one call for the context, others leave it current.
    set_current(other);
    let inner = device.context.enter().unwrap();
    all_keep(&device, primary);
    drop(inner);
    assert_eq!(current(), other);
    set_current(null_mut());
    drop(entered);
    set_current(null_mut());
    // SAFETY: made above, and current on no thread.
    assert_eq!(unsafe { cuCtxDestroy_v2(other) }, CUresult::CUDA_SUCCESS);
}

#[test]
fn addresses_of_the_host_are_none_of_the_device() {
    let Some(device) = device() else { return };
    let pinned = PinnedMemory::new(&device.context, 64).unwrap();
    let value = 7_u64;
    for address in [pinned.as_ptr().addr() as u64, std::ptr::from_ref(&value).addr() as u64] {
        let error = device.context.check_address(fulgurite_kernels::launch::DeviceAddress(address)).unwrap_err();
        assert!(error.to_string().contains("expected memory of CUDA device 0"), "{error}");
    }
}
