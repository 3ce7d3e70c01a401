//! Forward and backward as two programs, called: how many are kept, which call compiles them, what is donated, where
//! cotangents are, and how much is saved.

use std::sync::{Mutex, OnceLock};
use std::thread;

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::jit::Vjp;
use fulgurite_runtime::{Array, DType, Device, Result, Tensor, jit};

use crate::device;

fn ones(len: usize) -> Array {
    Array::new([len], &vec![1.0_f32; len]).unwrap()
}

fn one() -> Array {
    Array::scalar(1.0)
}

#[test]
fn the_programs_used_last_are_kept() {
    let f = jit(|x: Tensor| (x * x).sum()).arguments(["x"]).results(["y"]).keep(2).vjp();
    for len in [3, 4, 3, 5, 3] {
        let (_, pullback) = f.call(ones(len)).unwrap();
        let gradient = pullback.call([("y", one())]).unwrap().of("x").unwrap().to_vec::<f32>().unwrap();
        assert_eq!(gradient, vec![2.0; len]);
    }
    assert_eq!((f.compiles(), f.programs()), (3, 2), "4 is the one used longest ago");
    f.call(ones(4)).unwrap();
    assert_eq!((f.compiles(), f.programs()), (4, 2));
    // As many as of any other function, unless it is told otherwise.
    let f = jit(|x: Tensor| x.sum()).vjp();
    (1..=70).for_each(|len| drop(f.compile(&ones(len)).unwrap()));
    assert_eq!((f.compiles(), f.programs()), (70, 64));
}

type Recursive = Vjp<Array, Tensor, fn(Tensor) -> Tensor>;
static RECURSIVE: OnceLock<Recursive> = OnceLock::new();
static INNER: Mutex<String> = Mutex::new(String::new());

#[test]
fn a_function_that_calls_its_own_vjp_is_an_error() {
    fn body(x: Tensor) -> Tensor {
        let error = RECURSIVE.get().unwrap().call(ones(2)).map(drop).unwrap_err();
        *INNER.lock().unwrap() = error.to_string();
        x + 1.0
    }
    let f = RECURSIVE.get_or_init(|| jit(body as fn(Tensor) -> Tensor).named("again").vjp());
    assert_eq!(f.call(ones(3)).unwrap().0.to_vec::<f32>().unwrap(), [2.0; 3]);
    let message = INNER.lock().unwrap();
    assert!(message.contains("'again'") && message.contains("is called by itself while it is traced"), "{message}");
}

#[test]
fn threads_that_want_one_form_compile_it_once_and_agree() {
    let f = jit(|x: Tensor| (x.exp() * x).sum()).arguments(["x"]).results(["y"]).vjp();
    let gradient = || {
        let (_, pullback) = f.call(ones(5000)).unwrap();
        pullback.call([("y", one())]).unwrap().of("x").unwrap().to_vec::<f32>().unwrap()
    };
    let all: Vec<Vec<f32>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| (0..10).map(|_| gradient()).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let expected = 2.0 * 1.0_f32.exp();
    assert!(all[0].iter().all(|value| (value - expected).abs() < 1e-5), "{:?}", &all[0][..4]);
    assert!(all.iter().all(|other| *other == all[0]));
    assert_eq!(f.compiles(), 1);
}

#[test]
fn what_is_saved_is_not_donated() -> Result<()> {
    let f = jit(|(a, b): (Tensor, Tensor)| (a + 1.0, b * b))
        .arguments(["a", "b"])
        .results(["a", "b"])
        .donate("a")
        .donate("b")
        .vjp();
    let b = || Array::new([3], &[2.0_f32, 3.0, 4.0]);
    let said: Vec<_> = f.compile(&(ones(3), b()?))?.donations().into_iter().map(|donation| donation.outcome).collect();
    assert_eq!(said[0], Ok("a".to_owned()));
    assert!(said[1].as_ref().is_err_and(|reason| reason.contains("comes back beside the input itself")), "{said:?}");
    let ((next, square), pullback) = f.call((ones(3), b()?))?;
    assert_eq!((next.to_vec::<f32>()?, square.to_vec::<f32>()?), (vec![2.0; 3], vec![4.0, 9.0, 16.0]));
    let gradients = pullback.call([("a", ones(3)), ("b", ones(3))])?;
    assert_eq!(gradients.of("a")?.to_vec::<f32>()?, [1.0; 3]);
    assert_eq!(gradients.of("b")?.to_vec::<f32>()?, [4.0, 6.0, 8.0]);
    // What another array still shares is not written over.
    let held = ones(3);
    let message = f.call((held.clone(), b()?)).map(drop).unwrap_err().to_string();
    assert!(message.contains("'a'") || message.contains("donated but another array"), "{message}");
    Ok(())
}

/// On the host, and on a device if there is one: `x` and `w` are there, and cotangents come from there.
#[test]
fn cotangents_stay_where_they_are() -> Result<()> {
    for place in [Some(Device::CPU), device::cuda()].into_iter().flatten() {
        let x = || Array::new([2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?.to_device(place);
        let same = jit(|x: Tensor| x).arguments(["x"]).results(["y"]).vjp();
        let (_, pullback) = same.call(x()?)?;
        // The gradient is the cotangent itself: it was neither copied nor taken elsewhere.
        let cotangent = x()?;
        let gradients = pullback.call([("y", cotangent.clone())])?;
        assert!(gradients.of("x")?.shares_memory(&cotangent));
        // Zeros are made there, and are nobody else's.
        for _ in 0..2 {
            let zero = pullback.call(Vec::<(&str, Array)>::new())?.of("x")?.clone();
            assert_eq!((zero.device(), zero.to_vec::<f32>()?), (place, vec![0.0; 6]));
            assert!(!zero.shares_memory(pullback.call(Vec::<(&str, Array)>::new())?.of("x")?));
        }
        // One in another order is laid out where it is.
        let columns = Array::new([3, 2], &[1.0_f32, 4.0, 2.0, 5.0, 3.0, 6.0])?.to_device(place)?.permute(&[1, 0])?;
        let gradient = pullback.call([("y", columns)])?.of("x")?.clone();
        assert_eq!((gradient.device(), gradient.to_vec::<f32>()?), (place, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let product =
            jit(|(x, w): (Tensor, Tensor)| (x * w, x.sum())).arguments(["x", "w"]).results(["y", "sum"]).vjp();
        let (_, pullback) = product.call((x()?, x()?))?;
        let part = Array::new([2, 6], &[1.0_f32; 12])?.to_device(place)?.slice(1, 0, 6, 2)?;
        let gradients = pullback.call([("y", part)])?;
        assert_eq!(gradients.of("w")?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(gradients.of("w")?.device(), place);
    }
    Ok(())
}

mod copies {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use fulgurite_ops_macros::{executor, implementation};

    /// Copies, and counts its copies.
    #[executor(device = "cpu")]
    pub mod counting {}

    static COUNT: AtomicUsize = AtomicUsize::new(0);

    pub fn count() -> usize {
        COUNT.load(Ordering::Relaxed)
    }

    #[implementation(of = fulgurite_ops::prims::contiguous, by = counting, strided)]
    mod contiguous_by_counting {
        fn checker(_input: &TensorMeta) -> Claim {
            Ok(())
        }

        fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
            super::COUNT.fetch_add(1, super::Ordering::Relaxed);
            fulgurite_kernels::access::write_f64(out, &fulgurite_kernels::access::read_f64(&input));
            Ok(())
        }
    }
}

#[test]
fn cotangents_are_laid_out_as_the_caller_runs_programs() -> Result<()> {
    let same = |executors: &[&str]| -> Result<Vec<f32>> {
        let options = Options::default().with_executors(executors)?;
        let f = jit(|x: Tensor| x * 2.0).arguments(["x"]).results(["y"]).options(options).vjp();
        let (_, pullback) = f.call(Array::new([2, 3], &[0.0_f32; 6])?)?;
        let columns = Array::new([3, 2], &[1.0_f32, 4.0, 2.0, 5.0, 3.0, 6.0])?.permute(&[1, 0])?;
        pullback.call([("y", columns)])?.of("x")?.to_vec()
    };
    assert_eq!(same(&["counting", "reference"])?, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!(copies::count(), 1, "the cotangent was copied by another executor");
    same(&["reference"])?;
    assert_eq!(copies::count(), 1, "the options are those of another function");
    Ok(())
}

/// The values that a function of `x` f32[256, 64] and `w` f32[256] saves, with their bytes.
fn saved(f: fn((Tensor, Tensor)) -> Tensor) -> Result<Vec<(String, usize)>> {
    let f = jit(f).arguments(["x", "w"]).results(["y"]).vjp();
    let compiled = f.compile(&(Array::zeros([256, 64], DType::F32)?, ones(256)))?;
    Ok(compiled.saved().iter().map(|saved| (saved.name.to_string(), saved.meta.bytes())).collect())
}

fn column(x: Tensor, at: usize) -> Tensor {
    narrow(x, 1, at as i64, 1).reshape([256])
}

#[test]
fn a_small_part_is_saved_and_not_the_whole() -> Result<()> {
    let (whole, part) = (256 * 64 * 4, 256 * 4);
    let bytes = |f: fn((Tensor, Tensor)) -> Tensor| -> Result<Vec<usize>> {
        let mut bytes: Vec<usize> = saved(f)?.into_iter().map(|(_, bytes)| bytes).collect();
        bytes.sort_unstable();
        Ok(bytes)
    };
    assert_eq!(bytes(|(x, w)| column(x, 0) * w)?, [part, part], "{:?}", saved(|(x, w)| column(x, 0) * w)?);
    // Of what the forward pass makes as well; two views of one part are one.
    assert_eq!(bytes(|(x, w)| column(x.exp(), 3) * w * column(x.exp(), 3))?.iter().max(), Some(&whole));
    assert_eq!(bytes(|(x, w)| column(x + 1.0, 3) * w)?, [part, part]);
    // What is read as a whole besides is there in any case.
    let both = bytes(|(x, w)| (column(x, 0) * w).sum() + (x * x).sum())?;
    assert_eq!(both, [part, whole]);
    // Parts that are all of it together are not copied.
    let halves = bytes(|(x, w)| (narrow(x, 1, 0, 32) * narrow(x, 1, 32, 32)).sum() + w.sum())?;
    assert_eq!(halves, [whole]);
    let f = jit(|(x, w): (Tensor, Tensor)| column(x, 1) * w).arguments(["x", "w"]).results(["y"]).vjp();
    let x: Vec<f32> = (0..256 * 64).map(|i| i as f32).collect();
    let (x, w) = (Array::new([256, 64], &x)?, Array::new([256], &(0..256).map(|i| i as f32).collect::<Vec<f32>>())?);
    let (y, pullback) = f.call((x.clone(), w.clone()))?;
    assert!(pullback.saved().all(|(_, array)| !array.shares_memory(&x)), "the whole is kept by the pullback");
    assert_eq!(y.to_vec::<f32>()?[2], 129.0 * 2.0);
    let gradients = pullback.call([("y", ones(256))])?;
    let d_x: Vec<f32> = gradients.of("x")?.to_vec()?;
    assert!(d_x.iter().enumerate().all(|(i, d)| *d == if i % 64 == 1 { (i / 64) as f32 } else { 0.0 }));
    let d_w: Vec<f32> = gradients.of("w")?.to_vec()?;
    assert!(d_w.iter().enumerate().all(|(i, d)| *d == (i * 64 + 1) as f32));
    Ok(())
}
