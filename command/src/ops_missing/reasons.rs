//! Why some functions of PyTorch are no operators here, and what to use instead. One table, which `ops list --missing`
//! prints and the reference shows.

/// Functions that are no operators for one reason.
pub struct Reason {
    /// Their names; `*` is any text, at the beginning or the end.
    names: &'static [&'static str],
    /// The reason, as a part of a sentence.
    pub reason: &'static str,
    /// What a program writes instead.
    pub instead: &'static str,
}

/// The numbers in the operands say how many elements the result has.
const SHAPE_OF_DATA: &str = "the shape depends on data, and a trace has every shape before it runs";
const HOST: &str = "gives a number or an object of the host, which a trace does not have before it runs";
const MEMORY: &str = "where values are in memory is the compiler's choice";
const KNOWN: &str = "known when a program is traced";
const WRITES: &str = "writes its operand, and values do not change here";

/// The first row that has a name is that name's.
pub const REASONS: &[Reason] = &[
    Reason {
        names: &["nonzero", "argwhere"],
        reason: SHAPE_OF_DATA,
        instead: "`argsort(mask, descending=true, stable=true)`: the positions of true elements come first, in order; \
                  `narrow` keeps as many as there may be, and `count_nonzero(mask)` says how many there are",
    },
    Reason {
        names: &["masked_select", "nested.masked_select"],
        reason: SHAPE_OF_DATA,
        instead: "`where(mask, input, 0)`; or `take` at the positions that `argsort(mask, descending=true, stable=true)` \
                  gives, as many as there may be",
    },
    Reason {
        names: &["unique", "unique_consecutive"],
        reason: SHAPE_OF_DATA,
        instead: "`sort`: an element that differs from the one before it is the first of its kind, so that `cumsum` of \
                  `ne` numbers the kinds; `bincount` with `minlength` counts small integers",
    },
    Reason {
        names: &["segment_reduce"],
        reason: "the lengths of segments are data; they would have to add up to the extent of the operand",
        instead: "`scatter_reduce`, `index_add` or `index_reduce` with the number of each element's segment",
    },
    Reason {
        names: &["equal", "allclose", "is_nonzero"],
        reason: HOST,
        instead: "`all(eq(a, b))`, `all(isclose(a, b))`, `ne(x, 0)`: a tensor of one boolean, read from the results",
    },
    Reason {
        names: &[
            "Tensor.item",
            "Tensor.tolist",
            "Tensor.numpy",
            "Tensor.index",
            "to_dlpack",
            "from_dlpack",
            "hash_tensor",
        ],
        reason: HOST,
        instead: "`Array::item`, `Array::to_vec` and DLPack, on results of a program",
    },
    Reason {
        names: &["Tensor.apply_", "Tensor.map_", "Tensor.map2_", "Tensor.module_load"],
        reason: "calls Python for each element",
        instead: "operators on whole tensors; a prim of your own",
    },
    Reason {
        names: &[
            "numel",
            "Tensor.nelement",
            "Tensor.size",
            "Tensor.dim",
            "Tensor.ndimension",
            "Tensor.element_size",
            "Tensor.dim_order",
            "Tensor.type",
            "Tensor.storage_type",
            "Tensor.is_shared",
            "Tensor.is_pinned",
            "is_complex",
            "is_conj",
            "is_distributed",
            "is_floating_point",
            "is_inference",
            "is_neg",
            "is_same_size",
            "is_signed",
            "get_device",
            "get_default_dtype",
            "broadcast_shapes",
            "promote_types",
            "result_type",
            "can_cast",
        ],
        reason: KNOWN,
        instead: "`shape()`, `rank()`, `size(dim)`, `dtype()` and `device()` of a tensor, in Rust",
    },
    Reason {
        names: &["sym_*"],
        reason: "of PyTorch's symbolic numbers; extents are numbers here",
        instead: "Rust's arithmetic on extents",
    },
    Reason {
        names: &["*_copy"],
        reason: "says that memory is not shared, which changes no value here",
        instead: "the function without `_copy`",
    },
    Reason {
        names: &["unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"],
        reason: "says that its results are written, which values never are here",
        instead: "`chunk`, `split`, `split_with_sizes`",
    },
    Reason {
        names: &[
            "as_strided",
            "as_strided_scatter",
            "empty_strided",
            "empty_permuted",
            "Tensor.contiguous",
            "Tensor.data_ptr",
            "Tensor.const_data_ptr",
            "Tensor.is_contiguous",
            "Tensor.is_set_to",
            "Tensor.new_empty_strided",
            "Tensor.pin_memory",
            "Tensor.record_stream",
            "Tensor.resize",
            "Tensor.resize_as",
            "resize_as_",
            "resize_as_sparse_",
            "Tensor.set_",
            "Tensor.share_memory_",
            "Tensor.storage",
            "Tensor.storage_offset",
            "Tensor.untyped_storage",
            "resolve_neg",
            "slice_inverse",
        ],
        reason: MEMORY,
        instead: "the operator that says which elements are meant: `diagonal`, `unfold`, `narrow`, `permute`",
    },
    Reason {
        names: &[
            "Tensor.backward",
            "Tensor.requires_grad_",
            "Tensor.retain_grad",
            "Tensor.register_hook",
            "Tensor.register_post_accumulate_grad_hook",
        ],
        reason: "derivatives are transforms of functions, not a state of tensors",
        instead: "`grad`, `value_and_grad`, `vjp` of a function; `detach`",
    },
    Reason {
        names: &["Tensor.copy_", "fill", "zero_", "Tensor.fill_diagonal_", "embedding_renorm_"],
        reason: WRITES,
        instead: "`x = ...`, with `to`, `full_like`, `zeros_like`, `diagonal_scatter`, `renorm`; see the page on in-place \
                  habits",
    },
    Reason {
        names: &["Tensor.normal_", "Tensor.uniform_", "Tensor.random_"],
        reason: WRITES,
        instead: "`x = ...`, with `randn_like`, `rand_like`, `randint_like` and a generator",
    },
    Reason {
        names: &[
            "Tensor.bfloat16",
            "Tensor.bool",
            "Tensor.byte",
            "Tensor.cdouble",
            "Tensor.cfloat",
            "Tensor.chalf",
            "Tensor.char",
            "Tensor.double",
            "Tensor.float",
            "Tensor.half",
            "Tensor.int",
            "Tensor.long",
            "Tensor.short",
        ],
        reason: "a short name of a conversion",
        instead: "`to(x, dtype)`",
    },
    Reason {
        names: &["Tensor.cpu", "Tensor.cuda", "Tensor.ipu", "Tensor.mtia", "Tensor.xpu"],
        reason: "a program runs on one device",
        instead: "`Array::to_device` on what goes in and comes out",
    },
    Reason {
        names: &[
            "tensor",
            "as_tensor",
            "asarray",
            "from_numpy",
            "Tensor.as_subclass",
            "scalar_tensor",
            "from_file",
            "frombuffer",
            "Tensor.new_tensor",
        ],
        reason: "makes a tensor of data of the host",
        instead: "`Array::new`, an argument of the program; `full(size, number)`",
    },
    Reason {
        names: &["Tensor.new_*"],
        reason: "a short name: the element type and the device are those of a tensor",
        instead: "`empty`, `full`, `ones`, `zeros` with `dtype` and `device`",
    },
    Reason {
        names: &[
            "*sparse*",
            "*crow_indices*",
            "*ccol_indices*",
            "*col_indices*",
            "*row_indices*",
            "Tensor.coalesce",
            "Tensor.is_coalesced",
            "indices_copy",
            "values_copy",
            "Tensor.indices",
            "Tensor.values",
            "Tensor.dense_dim",
            "Tensor.to_dense",
            "dsmm",
            "hsmm",
            "hspmm",
            "saddmm",
            "smm",
            "spmm",
            "sspaddmm",
        ],
        reason: "tensors are strided: there are no sparse layouts",
        instead: "positions and values as two tensors: `index_select`, `index_add`, `scatter_reduce`",
    },
    Reason {
        names: &[
            "fft.fft",
            "fft.fft2",
            "fft.fftn",
            "fft.ifft",
            "fft.ifft2",
            "fft.ifftn",
            "fft.rfft",
            "fft.rfft2",
            "fft.rfftn",
            "fft.irfft",
            "fft.irfft2",
            "fft.irfftn",
            "fft.hfft",
            "fft.hfft2",
            "fft.hfftn",
            "fft.ihfft",
            "fft.ihfft2",
            "fft.ihfftn",
            "stft",
            "istft",
            "linalg.eig",
            "linalg.eigvals",
        ],
        reason: "a transform or a decomposition in complex numbers, of which there are arithmetic and functions alone",
        instead: "real and imaginary parts as two tensors; products with cosines and sines of `fftfreq`'s angles for a \
                  transform; `eigh` for symmetric matrices",
    },
    Reason {
        names: &["isreal"],
        reason: "says what a comparison says",
        instead: "`eq(imag(x), 0)` of complex numbers; real ones are real",
    },
    Reason {
        names: &[
            "special.chebyshev_polynomial_*",
            "special.shifted_chebyshev_polynomial_*",
            "special.hermite_polynomial_*",
            "special.laguerre_polynomial_l",
            "special.legendre_polynomial_p",
        ],
        reason: "the degree of each element is data, and with it the number of terms",
        instead: "for one degree the recurrence, written as a loop in Rust, or `vandermonde(x)` and a product with the \
                  coefficients",
    },
    Reason {
        names: &["nn.functional.scaled_mm", "nn.functional.scaled_grouped_mm"],
        reason: "no element type has fractions in 8 bits",
        instead: "`matmul` in bf16 with factors as tensors of their own: `mul`",
    },
    Reason {
        names: &["nested.*", "Tensor.to_padded_tensor"],
        reason: "tensors are strided: there are no lists of tensors within one",
        instead: "a padded tensor and lengths; grouped products such as `grouped_linear`",
    },
    Reason {
        names: &[
            "quantize*",
            "dequantize",
            "fake_quantize*",
            "fused_moving_avg_obs_fake_quant",
            "q_*",
            "Tensor.qscheme",
            "int_repr",
            "choose_qparams_optimized",
        ],
        reason: "there are no quantized element types",
        instead: "integers and a scale as tensors of their own: `round`, `clamp`, `to`, `mul`",
    },
    Reason {
        names: &[
            "fbgemm_*",
            "miopen_*",
            "cudnn_*",
            "mkldnn_*",
            "Tensor.to_mkldnn",
            "batch_norm_*",
            "native_*",
            "convolution",
            "conv_tbc",
            "grid_sampler*",
            "affine_grid_generator",
        ],
        reason: "one backend's or one internal entry of a function that has another name",
        instead: "that function: `conv2d`, `batch_norm`, `layer_norm`, `dropout`; executors choose the library",
    },
    Reason {
        names: &["nn.functional.upsample*"],
        reason: "PyTorch's older name of a case of another function",
        instead: "`interpolate`",
    },
    Reason { names: &["range"], reason: "PyTorch's older name of a case of another function", instead: "`arange`" },
    Reason {
        names: &["clamp_max", "clamp_min"],
        reason: "a case of another function",
        instead: "`clamp` with one bound",
    },
    Reason {
        names: &["frobenius_norm", "nuclear_norm", "norm_except_dim", "constant_pad_nd", "feature_dropout", "rsub"],
        reason: "a case of another function",
        instead: "`matrix_norm`, `vector_norm`, `pad`, `dropout2d`, `sub` with its operands exchanged",
    },
];

/// Whether a name is of a pattern.
fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => name.contains(pattern.trim_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => pattern == name,
    }
}

/// Why a function is no operator.
pub fn reason_of(name: &str) -> Option<&'static Reason> {
    REASONS.iter().find(|row| row.names.iter().any(|pattern| fits(pattern, name)))
}

#[cfg(test)]
mod tests {
    use super::super::names::functions;
    use super::*;

    #[test]
    fn every_pattern_fits_a_function_of_pytorch() {
        let functions = functions();
        let all: Vec<&str> = functions.values().flatten().copied().collect();
        let known = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../ops-dsl/src/torch_names.txt"));
        let idle: Vec<&str> = REASONS
            .iter()
            .flat_map(|row| row.names.iter().copied())
            .filter(|pattern| !all.iter().chain(&known.lines().collect::<Vec<_>>()).any(|name| fits(pattern, name)))
            .collect();
        assert!(idle.is_empty(), "{idle:?}");
    }

    #[test]
    fn patterns_are_texts_around_a_star() {
        assert!(fits("a*", "ab") && fits("*b", "ab") && fits("*b*", "abc") && fits("ab", "ab"));
        assert!(!fits("a*", "ba") && !fits("*b", "bc") && !fits("*b*", "ac") && !fits("ab", "abc"));
        assert_eq!(reason_of("nonzero").unwrap().reason, SHAPE_OF_DATA);
        assert!(reason_of("matmul").is_none());
    }
}
