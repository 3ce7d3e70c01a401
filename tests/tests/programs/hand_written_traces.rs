//! Traces as people write them: a composite without what it stands for.

use fulgurite_executors as _;
use fulgurite_runtime::Array;
use fulgurite_runtime::compile::{Options, compile};

#[test]
fn a_composite_without_a_body_is_run_as_its_decomposition() {
    let text = "# fulgurite trace 2\ntrace f for cpu (x: f32[4]) \
                {\n  y: f32[4] = exp(x)\n  z: f32[4] = softmax(y, dim=0, dtype=none)\n  return result = z\n}\n";
    let trace = fulgurite_runtime::trace::parse(text).unwrap();
    trace.verify().unwrap();
    let (program, _) = compile(trace, &Options { verify: true, ..Options::default() }).unwrap();
    let out = program.run(vec![Array::new([4], &[0.0_f32; 4]).unwrap()]).unwrap();
    assert_eq!(out[0].to_vec::<f32>().unwrap(), [0.25; 4]);
}
