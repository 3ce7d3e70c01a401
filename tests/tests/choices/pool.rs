//! Programs that are compiled by all workers of rayon's pool at once: measuring needs none of them.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Choose, Options};
use fulgurite_runtime::{Array, DType, jit};
use rayon::prelude::*;

/// Set in the process that compiles.
const CHILD: &str = "CHOICES_IN_A_POOL";
/// Measuring takes seconds; a deadlock lasts longer than this.
const PATIENCE: Duration = Duration::from_secs(180);

fn compiled_by_all_workers() {
    let logits = Array::zeros([4096, 512], DType::F32).unwrap();
    let classes = Array::zeros([4096], DType::I64).unwrap();
    (0..8).into_par_iter().with_max_len(1).for_each(|_| {
        let options = Options { choose: Choose::Always, ..Options::default() };
        let loss = jit(|(logits, classes): (Tensor, Tensor)| cross_entropy(logits, classes)).options(options);
        let said = loss.compile(&(logits.clone(), classes.clone())).unwrap().explain();
        assert!(said.contains("choice of cross_entropy(input: f32[4096, 512]"), "{said}");
    });
}

#[test]
fn measuring_needs_no_worker_of_the_pool_that_waits_for_it() {
    if std::env::var_os(CHILD).is_some() {
        compiled_by_all_workers();
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "pool::measuring_needs_no_worker_of_the_pool_that_waits_for_it"])
        .env(CHILD, "1")
        .env("RAYON_NUM_THREADS", "2")
        .env("FULGURITE_CACHE", cache.path())
        .env_remove("FULGURITE_CHOOSE")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(50)),
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("it waits for ever");
            }
        }
    };
    assert!(status.success(), "{status}");
}
