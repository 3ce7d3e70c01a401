//! Compiled functions called by several threads: what is compiled runs while another form is compiled, the programs
//! used last are kept, and a handle belongs to the trace that made it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use fulgurite_executors as _;
use fulgurite_ops::prelude::sum;
use fulgurite_ops::prims;
use fulgurite_runtime::jit::{Jit, jit};
use fulgurite_runtime::kernels::buffer::allocated_bytes;
use fulgurite_runtime::{Array, Tensor};

/// Tests of this file that look at what is allocated do not run beside others.
static ALONE: Mutex<()> = Mutex::new(());

fn ones(len: usize) -> Array {
    Array::new([len], &vec![1.0_f32; len]).unwrap()
}

#[test]
fn compiling_does_not_block_calls_of_other_forms() {
    let _alone = ALONE.lock();
    let (began, wait) = (Barrier::new(2), Mutex::new(()));
    let f = jit(|x: Tensor| {
        if x.size(0) == 7 {
            began.wait();
            drop(wait.lock());
        }
        x + 1.0
    });
    f.call(ones(3)).unwrap();
    let held = wait.lock().unwrap();
    thread::scope(|scope| {
        let slow = scope.spawn(|| f.call(ones(7)).unwrap().to_vec::<f32>().unwrap());
        began.wait();
        let (done, was_done) = mpsc::channel();
        let f = &f;
        scope.spawn(move || {
            // One that is compiled, and one that is not.
            let both = [f.call(ones(3)).unwrap(), f.call(ones(4)).unwrap()];
            done.send(both.map(|y| y.to_vec::<f32>().unwrap())).unwrap();
        });
        let both =
            was_done.recv_timeout(Duration::from_secs(60)).expect("calls of other forms wait for the compilation");
        assert_eq!(both, [vec![2.0; 3], vec![2.0; 4]]);
        drop(held);
        assert_eq!(slow.join().unwrap(), [2.0; 7]);
    });
    assert_eq!(f.compiles(), 3);
}

#[test]
fn threads_that_want_one_form_compile_it_once_and_agree() {
    let _alone = ALONE.lock();
    let f = jit(|x: Tensor| sum(prims::mul(prims::exp(x), x)));
    let expected = f.call(ones(5000)).unwrap().to_vec::<f32>().unwrap();
    let f = jit(|x: Tensor| sum(prims::mul(prims::exp(x), x)));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope
                    .spawn(|| (0..20).map(|_| f.call(ones(5000)).unwrap().to_vec::<f32>().unwrap()).collect::<Vec<_>>())
            })
            .collect();
        for thread in threads {
            assert!(thread.join().unwrap().iter().all(|result| *result == expected));
        }
    });
    assert_eq!(f.compiles(), 1);
}

#[test]
fn a_failed_compilation_lets_others_try() {
    let _alone = ALONE.lock();
    let fails = AtomicBool::new(true);
    let f = jit(|x: Tensor| {
        assert!(!fails.load(Ordering::Relaxed), "this panic is part of the test");
        x + 1.0
    });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f.call(ones(2)).map(drop))).is_err());
    fails.store(false, Ordering::Relaxed);
    assert_eq!(f.call(ones(2)).unwrap().to_vec::<f32>().unwrap(), [2.0; 2]);
}

type Recursive = Jit<Array, Tensor, fn(Tensor) -> Tensor>;
static RECURSIVE: OnceLock<Recursive> = OnceLock::new();
static INNER: Mutex<String> = Mutex::new(String::new());

#[test]
fn a_function_that_calls_itself_is_an_error() {
    fn body(x: Tensor) -> Tensor {
        let error = RECURSIVE.get().unwrap().call(ones(2)).map(drop).unwrap_err();
        *INNER.lock().unwrap() = error.to_string();
        x + 1.0
    }
    let f = RECURSIVE.get_or_init(|| jit(body as fn(Tensor) -> Tensor).named("again"));
    assert_eq!(f.call(ones(3)).unwrap().to_vec::<f32>().unwrap(), [2.0; 3]);
    let message = INNER.lock().unwrap();
    assert!(message.contains("'again'") && message.contains("is called by itself while it is traced"), "{message}");
}

#[test]
fn the_programs_used_last_are_kept_and_the_memory_of_others_returned() {
    let _alone = ALONE.lock();
    let f = jit(|x: Tensor| sum(prims::mul(prims::exp(x * 2.0), prims::flip(x, vec![0])))).keep(2);
    let call = |len: usize| drop(f.call(ones(len)).unwrap());
    for len in [100_000, 100_001, 100_000, 100_002, 100_000] {
        call(len);
    }
    assert_eq!((f.compiles(), f.programs()), (3, 2), "100,001 is the one used longest ago");
    call(100_001);
    assert_eq!((f.compiles(), f.programs()), (4, 2));
    let kept = allocated_bytes();
    for len in 0..20 {
        call(100_010 + len);
    }
    let grown = allocated_bytes().saturating_sub(kept);
    assert!(grown < 400_000, "{grown} bytes more are held after 20 more forms");
    assert_eq!(f.programs(), 2);
}

#[test]
fn a_handle_of_another_threads_trace_is_an_error() {
    let _alone = ALONE.lock();
    let (hand_over, take) = mpsc::channel::<Tensor>();
    let (ready, wait) = mpsc::channel::<()>();
    thread::scope(|scope| {
        // As many traces as on the other thread, which counted alike once.
        scope.spawn(move || {
            jit(|x: Tensor| {
                hand_over.send(x).unwrap();
                wait.recv().unwrap();
                x + 1.0
            })
            .call(ones(2))
            .unwrap();
        });
        let other = take.recv().unwrap();
        let error = thread::spawn(move || jit(move |x: Tensor| prims::add(x, other)).call(ones(2)).map(drop))
            .join()
            .unwrap()
            .unwrap_err()
            .to_string();
        assert!(error.contains("prims::add") && error.contains("other"), "{error}");
        ready.send(()).unwrap();
    });
}

#[test]
fn a_donation_that_did_not_happen_says_why() {
    let _alone = ALONE.lock();
    let f = jit(|(a, b, c, _d): (Tensor, Tensor, Tensor, Tensor)| {
        let next = a + 1.0;
        // Written before `b` is read for the last time: kept apart by a kernel between.
        let early = c + 1.0;
        let late = prims::flip(prims::add(prims::flip(early, vec![0]), b), vec![0]);
        (next, early, prims::sum(late, [0]))
    })
    .arguments(["a", "b", "c", "d"])
    .results(["a", "b", "c"])
    .donate("a")
    .donate("b")
    .donate("c")
    .donate("d");
    let compiled = f.compile(&(ones(3), ones(3), ones(3), ones(3))).unwrap();
    let said: Vec<(String, Result<String, String>)> =
        compiled.donations().into_iter().map(|donation| (donation.input, donation.outcome)).collect();
    assert_eq!(said[0], ("a".into(), Ok("a".into())), "{said:?}");
    let reason = |i: usize| said[i].1.clone().unwrap_err();
    assert!(reason(1).contains("result 'b' is written before"), "{said:?}");
    assert_eq!(reason(2), "result 'c' is f32[], the input f32[3]");
    assert_eq!(reason(3), "no result has its path");
    let text = compiled.program().trace().to_string();
    assert!(text.contains("# 'd' is donated and not updated in place: no result has its path\n"), "{text}");
}
