//! What the device lacks is decomposed, or run by the host, as the trace shows: a snapshot for review.

use crate::function;

// Naming the crate links the kind and its executor.
use fulgurite_example_sim as _;

#[test]
fn the_trace_shows_who_runs_what() {
    let claimed = function::claimed();
    assert!(claimed.contains(" by sim") && claimed.contains(" by host"), "{claimed}");
    insta::assert_snapshot!("fallback", claimed);
    let page = include_str!("../../../../docs/src/device.md");
    assert!(page.contains(claimed.trim_end()), "docs/src/device.md shows another trace than\n{claimed}");
}
