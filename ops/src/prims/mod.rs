//! Prims: operators that do not decompose. They are strict: tensors of one call have equal shapes and equal element
//! types unless a prim says otherwise. Elementwise prims take a number for a tensor: it has the element type of the
//! others. Broadcasting and promotion are the business of the operators above.

fulgurite_ops_macros::operator_files! {
    argmax,
    atan2,
    binary,
    bits,
    broadcast_in_dim,
    cat,
    check_weights,
    comparison,
    contiguous,
    convert_element_type,
    cumsum,
    factorizations,
    flip,
    full,
    gather,
    index_add,
    index_select,
    integers,
    iota,
    log_path_sums,
    mantissa,
    matmul,
    matrix_exp,
    pad,
    permute,
    qr,
    quantiles,
    reduction,
    reshape,
    scans,
    scatter,
    scatter_add,
    scatter_combine,
    searchsorted,
    select,
    slice,
    solve,
    special,
    spectral,
    topk,
    triangular_solve,
    unary,
    uniform,
    windows,
}

pub mod checks;
pub mod matrices;
pub(crate) mod support;
