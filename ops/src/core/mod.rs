//! PyTorch's general operators: broadcasting, promoting, with negative dimensions and optional arguments. They
//! decompose into prims, which have none of that.

pub mod arrays;
pub mod attention;
pub mod promotion;

fulgurite_ops_macros::operator_files! {
    accumulate_rows,
    add,
    arange,
    binary,
    cat,
    cumsum,
    detach,
    div,
    expand,
    extremum,
    flip,
    full,
    gather,
    index_add,
    index_copy,
    index_select,
    masked_fill,
    matmul,
    mean,
    mul,
    multinomial,
    narrow,
    pad,
    permute,
    pow,
    remainder,
    reshape,
    scatter_add,
    split,
    sub,
    sum,
    to,
    topk,
    tril,
    unary,
    unsqueeze,
    var,
    with_copy,
}
