//! Which CUDA context is current on the calling thread: after each public call the one from before.

use std::ffi::c_void;
use std::ptr::null_mut;

use fulgurite_ops::prelude::*;
use fulgurite_runtime::dlpack::OtherStream;
use fulgurite_runtime::{Array, DType, Device, Tensor, jit};
use libloading::Library;

use super::on;
use crate::device;

type Context = *mut c_void;

/// The driver, as any other library of the process calls it.
struct Driver(Library);

impl Driver {
    fn open() -> Driver {
        // SAFETY: the runtime has loaded the library already.
        Driver(unsafe { Library::new("libcuda.so.1") }.unwrap())
    }

    fn current(&self) -> Context {
        let mut context = null_mut();
        // SAFETY: the function has this type, and the pointer is valid for the call.
        let code = unsafe {
            self.0.get::<unsafe extern "C" fn(*mut Context) -> i32>(b"cuCtxGetCurrent").unwrap()(&mut context)
        };
        assert_eq!(code, 0);
        context
    }

    fn set_current(&self, context: Context) {
        // SAFETY: the function has this type; the context is alive, or null for none.
        let code = unsafe { self.0.get::<unsafe extern "C" fn(Context) -> i32>(b"cuCtxSetCurrent").unwrap()(context) };
        assert_eq!(code, 0);
    }

    fn create(&self) -> Context {
        type Create = unsafe extern "C" fn(*mut Context, u32, i32) -> i32;
        let mut context = null_mut();
        // SAFETY: the function has this type, the pointer is valid for the call, and there is a first device.
        let code = unsafe { self.0.get::<Create>(b"cuCtxCreate_v2").unwrap()(&mut context, 0, 0) };
        assert_eq!(code, 0);
        // It is on top of the thread's stack of contexts: what is set from now on has no other below it.
        // SAFETY: the function has this type, and the pointer is valid for the call.
        let popped = unsafe {
            let pop = self.0.get::<unsafe extern "C" fn(*mut Context) -> i32>(b"cuCtxPopCurrent_v2").unwrap();
            pop(&mut null_mut())
        };
        assert_eq!(popped, 0);
        context
    }

    /// What `f` returns, after which `before` is current as it was.
    fn keeps<T>(&self, what: &str, before: Context, f: impl FnOnce() -> T) -> T {
        let value = f();
        assert_eq!(self.current(), before, "after {what}");
        value
    }
}

fn all_keep(driver: &Driver, cuda: Device, before: Context) {
    let host = Array::new([4, 4], &[0.5_f32; 16]).unwrap();
    driver.keeps("auto", before, Device::auto);
    let array = driver.keeps("to_device", before, || host.to_device(cuda).unwrap());
    let zeros = driver.keeps("zeros_on", before, || Array::zeros_on(cuda, [4, 4], DType::F32).unwrap());
    let f = jit(|(x, y): (Tensor, Tensor)| softmax(matmul(x, x) + y, -1)).options(on(cuda));
    driver.keeps("compile", before, || f.compile(&(array.clone(), zeros.clone())).unwrap());
    for round in 0..4 {
        // Launched, recorded, replayed.
        let out = driver.keeps("call", before, || f.call((array.clone(), zeros.clone())).unwrap());
        let values = driver.keeps("to_vec", before, || out.to_vec::<f32>().unwrap());
        assert!((values[round] - 0.25).abs() < 1e-6);
        driver.keeps("drop", before, || drop(out));
    }
    driver.keeps("profile", before, || f.profile((array.clone(), zeros.clone())).unwrap());
    driver.keeps("a host input", before, || f.call((host.clone(), host.clone())).unwrap());
    let export =
        driver.keeps("to_dlpack", before, || array.to_dlpack(OtherStream::Default { per_thread: false }).unwrap());
    let import = driver.keeps("from_dlpack", before, || Array::from_dlpack(export, OtherStream::Unordered).unwrap());
    assert!(import.is_external() && !import.device().is_cpu());
    assert_eq!(driver.keeps("reading it", before, || import.to_vec::<f32>().unwrap()), [0.5; 16]);
    driver.keeps("drops", before, || drop((import, array, zeros, f)));
}

#[test]
fn public_calls_leave_the_threads_context() {
    let Some(cuda) = device::cuda() else { return };
    let driver = Driver::open();
    let other = driver.create();
    for before in [null_mut(), other] {
        driver.set_current(before);
        assert_eq!(driver.current(), before);
        all_keep(&driver, cuda, before);
    }
    driver.set_current(null_mut());
}
