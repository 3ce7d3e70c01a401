//! Candidates that a device cannot run: for lack of memory, and with a fault after which the device runs nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fulgurite::choices::{Blamed, DECOMPOSED, Kept, Records};
use fulgurite::compile::Options;
use fulgurite::prelude::*;
use fulgurite_example_sim::heap::CAPACITY;
use fulgurite_example_sim::kernels::{Span, launch, workspace};

/// Needs more memory than there is.
#[executor(device = "sim")]
pub mod greedy {}

/// Reads what is not there.
#[executor(device = "sim")]
pub mod wild {}

macro_rules! with_faults {
    ($($name:ident, $title:literal, $by:ident, $rule:ident;)*) => {$(
        /// `2 · input`.
        #[operator(name = $title)]
        pub mod $name {
            fn $name(input: Tensor<Floating>) -> Tensor;

            fn decomposition(input: Tensor) -> Tensor {
                input + input
            }

            fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
                elementwise(input, |x| 2.0 * x)
            }

            fn samples(s: &mut Samples) {
                s.elementwise_unary(Domain::ALL);
            }
        }

        #[implementation(of = $name, by = $by)]
        mod $rule {
            fn checker(input: &TensorMeta) -> Claim {
                refuse_unless!(input.dtype() == DType::F32, "the kernel is written for f32, input is {input}");
                Ok(())
            }

            fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
                super::$rule(plan, input, out);
                Ok(())
            }
        }
    )*};
}

with_faults! {
    doubled, "faults::doubled", greedy, doubled_by_greedy;
    added, "faults::added", wild, added_by_wild;
}

fn doubled_by_greedy(
    plan: &mut fulgurite::device::Plan,
    input: &fulgurite::device::DeviceTensor,
    out: &fulgurite::device::DeviceTensor,
) {
    let piece = workspace(plan, CAPACITY / 8);
    launch(plan, "doubled", &[input.into(), piece], out, |operands| operands[0].clone());
}

fn added_by_wild(
    plan: &mut fulgurite::device::Plan,
    input: &fulgurite::device::DeviceTensor,
    out: &fulgurite::device::DeviceTensor,
) {
    let beyond = Span { bytes: CAPACITY, ..Span::from(input) };
    launch(plan, "added", &[beyond], out, |operands| operands[0].clone());
}

fn records(ordinal: u32, folder: &Path) -> Arc<Records> {
    Arc::new(Records::new(Device::new("sim", ordinal)).unwrap().keep_in(folder).from(Duration::ZERO))
}

/// What a compilation of `f` explains.
fn explained(ordinal: u32, records: &Arc<Records>, f: impl Fn(Tensor) -> Tensor + Send + Sync + 'static) -> String {
    let options =
        Options { device: Some(Device::new("sim", ordinal)), choices: Some(records.clone()), ..Options::default() };
    let input = Array::new([8], &[0.5_f32; 8]).unwrap();
    jit(f).options(options).compile(&input).unwrap().explain()
}

#[test]
fn who_lacks_memory_is_named_and_nothing_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let first = records(0, folder.path());
    let said = explained(0, &first, doubled);
    assert!(
        said.contains(
            "choice of faults::doubled(input: f32[8]), forward, a program of its own: decomposed of decomposed "
        ),
        "{said}"
    );
    let lack = "greedy dropped: needs 257 MiB of memory, ";
    assert!(said.contains(lack) && said.contains(" MiB are free for it"), "{said}");
    let known = first.known();
    assert!(known.len() == 1 && first.is_passing(&known[0].call), "{known:?}");
    assert_eq!(Records::kept(folder.path()), [], "others may have used the memory");
    // The process answers alike.
    assert_eq!(explained(0, &first, doubled), said);
}

#[test]
fn a_fault_of_the_device_is_named_and_the_next_process_skips_it() {
    let folder = tempfile::tempdir().unwrap();
    let said = explained(1, &records(1, folder.path()), added);
    let reason =
        "no choice of faults::added(input: f32[8]), forward, a program of its own: wild ended the work of the device";
    assert!(said.contains(reason), "{said}");
    assert_eq!(Records::kept(folder.path()), []);
    let ended = Records::ended(folder.path());
    let [Blamed { candidate, reason, skipped: true, .. }] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!((candidate.as_str(), reason.as_str()), ("wild", "ended the work of the device"));

    // Another device of the model, as another process finds it.
    let said = explained(0, &records(0, folder.path()), added);
    assert!(said.contains("wild dropped: ended the work of the device"), "{said}");
    let all = Records::kept(folder.path());
    let [Kept { entry: Ok(entry), .. }] = &all[..] else { panic!("{all:?}") };
    assert_eq!(entry.winner, DECOMPOSED);
    assert_eq!(Records::ended(folder.path()), []);
}
