//! Bytes that lines of programs move: views are no more than what is behind them, and of a table no more is read than
//! what is selected.

use fulgurite_executors as _;
use fulgurite_ops as _;
use fulgurite_runtime::cost::Totals;
use fulgurite_runtime::trace::parse;

fn bytes(text: &str) -> u64 {
    Totals::of(&parse(text).unwrap()).bytes
}

#[test]
fn a_row_that_is_broadcast_is_a_row() {
    // 4 x 8 are read and written, and a row of 8.
    let text = "# fulgurite trace 2\n# made by claim\n\
        trace f for cuda:sm_90a (input: f32[4, 8], weight: f32[8]) {\n  \
          wide: f32[4, 8] = broadcast_in_dim(weight, shape=[4, 8], dims=[1]) by view\n  \
          out: f32[4, 8] = prims::mul(input, wide) by cuda\n  \
          return out0 = out\n}\n";
    assert_eq!(bytes(text), 128 + 32 + 128);
    // A kernel that writes the rows again moves them.
    assert_eq!(bytes(&text.replace("by view", "by cuda")), (32 + 128) + (128 + 128 + 128));
}

#[test]
fn of_a_table_the_selected_rows_are_read() {
    let text = "# fulgurite trace 2\n# made by claim\n\
        trace f for cuda:sm_90a (table: f32[1000, 5], index: i64[7]) {\n  \
          out: f32[7, 5] = index_select(table, dim=0, index=index) by cuda\n  \
          return out0 = out\n}\n";
    assert_eq!(bytes(text), 140 + 56 + 140);
}
