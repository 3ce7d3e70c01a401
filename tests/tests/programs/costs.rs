//! Bytes that lines of programs move: views are no more than what is behind them, and of a table no more is read than
//! what is selected. Arithmetic of attention: that of the pairs that are seen.

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

/// Attention of 2 x 4 heads, 16 wide, of 5 queries and 7 keys.
fn flops_of_attention(how: &str) -> u64 {
    let text = format!(
        "# fulgurite trace 2\n# made by claim\n\
        trace f for cpu (query: f32[2, 4, 5, 16], key: f32[2, 2, 7, 16], value: f32[2, 2, 7, 16]) {{\n  \
          out: f32[2, 5, 4, 16], out.log_sums: f32[2, 4, 5] = cpu::attention(query, key, value, {how}) by cpu\n  \
          return out0 = out\n}}\n"
    );
    Totals::of(&parse(&text).unwrap()).flops
}

#[test]
fn attention_multiplies_the_pairs_that_are_seen() {
    // Two products, of a multiplication and an addition for each of 16 numbers.
    let pairs = |how: &str| flops_of_attention(how) as f64 / (2.0 * 4.0 * 16.0 * 2.0 * 2.0);
    assert_eq!(pairs("is_causal=false, scale=0.25"), 35.0);
    assert_eq!(pairs("is_causal=true, scale=0.25"), (1 + 2 + 3 + 4 + 5) as f64);
    assert_eq!(pairs("is_causal=true, scale=0.25, window=2"), (1 + 2 + 2 + 2 + 2) as f64);
}
