//! Files of a crate form floors: each needs files of lower floors alone. They are drawn by
//! `cargo test -p fulgurite-tests --test sources -- imports:: --nocapture`.

mod drawing;
mod floors;
mod graph;
mod module;
mod small_crates;

use std::path::Path;

use graph::Graph;

/// Folders of the crates that have no circle. Operators of `operator_files!` are not looked at: the gradient of a sum
/// is a broadcast, and that of a broadcast is a sum.
const CRATES: [&str; 25] = [
    "command",
    "executors/cpu",
    "executors/cublaslt",
    "executors/cuda",
    "executors/cudnn",
    "executors/decode",
    "executors/flash",
    "executors/liger",
    "executors/llmc",
    "executors/optim",
    "executors/regions",
    "fulgurite",
    "kernels",
    "models",
    "ops",
    "ops-dsl",
    "plots",
    "rates",
    "runtime/base",
    "runtime/compile",
    "runtime/cuda",
    "runtime/ir",
    "runtime/run",
    "runtime/testing",
    "view",
];

#[test]
fn no_files_need_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the repository");
    let mut circles = String::new();
    for name in CRATES {
        let needs = Graph::of_crate(&root.join(name)).needs();
        println!("{}", drawing::floors(name, &needs));
        circles += &drawing::circles(name, &needs);
    }
    assert!(circles.is_empty(), "\n{circles}{}", drawing::ADVICE);
}
