"""ATen operators, which ``torch.export`` has in its graphs: entries of the table under ``aten.`` names.

An operator of the registry with ATen's name takes its arguments by the names of ATen's schema. What is spelled
otherwise is here: positions that differ, numbers that stand for words, results that only PyTorch's own backward
functions read, which are ``None``.
"""

from __future__ import annotations

import torch

from .. import ops
from .._errors import ArgumentError
from .._native import Tensor
from ._indices import _indexed, _like, _masks
from ._table import (
    OPERATORS, REASONS, TABLE, Entry, _called, _filled, _to, converted, device_name, example_of, known, named,
    namespaces,
)

#: ATen's names of arguments, where ours are others.
_NAMES = {"self": "input", "train": "training", "A": "a", "B": "b", "UPLO": "uplo", "N": "n"}

#: ATen's numbers for words, by the name of the argument.
_WORDS = {"reduction": ("none", "mean", "sum")}

_DATA = "the value is needed in Python, before it is computed"
_SHAPE = "the shape of the result depends on the data"
_STRIDES = "it asks for strides, which the values of a trace do not have"
_COMPLEX = "complex numbers are no element type here"
_BACKWARD = "it is a backward function of PyTorch: gradients come from the forward operator"

REASONS.update({
    "aten.item": _DATA, "aten._local_scalar_dense": _DATA,
    "aten.nonzero": _SHAPE, "aten.masked_select": _SHAPE, "aten.unique": _SHAPE, "aten._unique2": _SHAPE,
    "aten.as_strided": _STRIDES, "aten.empty_strided": _STRIDES, "aten.sym_stride": _STRIDES,
    "aten.sym_storage_offset": _STRIDES, "aten.sym_is_contiguous": _STRIDES,
    "aten.resize_": "it changes the memory of its argument, not its values",
    "aten._fft_c2r": _COMPLEX, "aten._fft_r2c": _COMPLEX, "aten._fft_c2c": _COMPLEX,
    "aten.reflection_pad3d": "pad reflects at most two dimensions",
    "aten.replication_pad3d": "pad replicates at most two dimensions",
    **{f"aten.{name}_backward": _BACKWARD for name in (
        "_adaptive_avg_pool2d", "avg_pool2d", "convolution", "embedding_dense", "max_pool2d_with_indices",
        "native_group_norm", "native_layer_norm")},
})


def parts_of(target) -> tuple[str, str]:
    """The name of an operator without its namespace, and that of its overload."""
    return target._schema.name.split("::")[-1], target._overloadname


def arguments_of(node) -> dict:
    """The arguments of a call of an ATen operator by the names of its schema, defaults included."""
    schema = node.target._schema.arguments
    found = {each.name: each.default_value for each in schema if each.has_default_value()}
    found.update(zip((each.name for each in schema), node.args))
    found.update(node.kwargs)
    return found


def entry_of(target) -> Entry:
    """What computes an overload of an ATen operator, or why nothing does."""
    base, overload = parts_of(target)
    shown = f"aten.{base}.{overload}"
    for name in (f"aten.{base}.{overload}", f"aten.{base}"):
        if name in REASONS:
            return Entry(shown, reason=REASONS[name])
        if name in TABLE:
            return Entry(shown, TABLE[name], operator=getattr(TABLE[name], "operator", "") or base)
    if base.endswith("_") and not base.endswith("__"):
        # What it computes takes the place of its first argument.
        plain = getattr(getattr(torch.ops.aten, base[:-1], None), overload, None)
        found = entry_of(plain) if plain is not None else None
        if found is not None and found.run is not None:
            return Entry(shown, found.run, mutates=True, operator=found.operator)
        return Entry(shown, reason=found.reason if found is not None else f"no operator computes {shown}")
    if any(each.is_out for each in target._schema.arguments):
        return Entry(shown, reason=f"no operator computes {shown}, which writes into an argument")
    for name in namespaces(base):
        if name in OPERATORS:
            found = _by_schema(OPERATORS[name], target._schema)
            if found is not None:
                return Entry(shown, found, operator=OPERATORS[name].name)
    return Entry(shown, reason=f"no operator computes {shown}")


def _by_schema(operator, schema):
    """Calls an operator with ATen's arguments by their names; ``None`` where it lacks one that must be given."""
    ours = [name for name, *_ in operator.params]
    kinds = {name: type_name for name, _, type_name, *_ in operator.params}
    theirs, defaults = [], {}
    for argument in schema.arguments:
        name = argument.name if argument.name in ours else _NAMES.get(argument.name, argument.name)
        if argument.name == "self" and name not in ours and ours:
            name = ours[0]
        if name not in ours and not argument.has_default_value():
            return None
        theirs.append(name)
        if argument.has_default_value():
            defaults[name] = argument.default_value
    if len(set(theirs)) != len(theirs):
        return None
    called = _called(operator, None)

    def call(context, *arguments, **keywords):
        named = dict(zip(theirs, arguments))
        named.update({_NAMES.get(name, name) if name not in ours else name: each for name, each in keywords.items()})
        for name in [name for name in named if name not in ours]:
            # The defaults of ATen change nothing; other values are refused by the call.
            if name in _WITHOUT_EFFECT or (name in defaults and type(named[name]) is type(defaults[name])
                                           and named[name] == defaults[name]):
                del named[name]
        for name, words in _WORDS.items():
            if type(named.get(name)) is int and '"' in kinds.get(name, ""):
                named[name] = words[named[name]]
        example = example_of(context.node)
        if operator.name in _TYPED and named.get("dtype") is None and isinstance(example, torch.Tensor):
            # PyTorch's default type, as the program was made.
            named["dtype"] = example.dtype
        return called(context, **named)

    return call


#: Arguments that choose a kernel of PyTorch's.
_WITHOUT_EFFECT = {"cudnn_enabled", "cudnn_enable", "implicit", "sparse", "scale_grad_by_freq"}

#: Operators that make tensors of an element type that is PyTorch's default one.
_TYPED = {"ones", "zeros", "empty", "full", "rand", "randn", "eye", "linspace", "logspace"}


def _aten(*names: str):
    return named(*(f"aten.{name}" for name in names))


def _operator(function, name: str):
    function.operator = name
    return function


# The same function under ATen's name, whose arguments have the same order.
for _name, _table_name in {
    "max": "max", "min": "min", "arange": "arange", "numel": "numel", "meshgrid": "meshgrid", "detach": "detach",
    "split.Tensor": "split", "new_zeros": "Tensor.new_zeros", "new_ones": "Tensor.new_ones",
    "new_full": "Tensor.new_full", "sym_size": "Tensor.size", "sym_numel": "numel", "einsum": "einsum",
    "__and__": "operator.and_", "__or__": "operator.or_", "__xor__": "operator.xor", "__lshift__": "operator.lshift",
    "__rshift__": "operator.rshift",
}.items():
    TABLE[f"aten.{_name}"] = TABLE[_table_name]

for _name in ("to", "_to_copy"):
    TABLE[f"aten.{_name}"] = _to


@_aten("alias", "clone", "contiguous", "lift", "lift_fresh", "lift_fresh_copy", "_lazy_clone", "resolve_conj",
       "resolve_neg")
def _alias(context, value, **_):
    return value


@_aten("_conj", "_conj_copy")
def _conjugate(context, value):
    # PyTorch's is computed later, where `resolve_conj` is called for or a kernel reads it: here at once.
    return ops.conj(value)


@_aten("_neg_view", "_neg_view_copy")
def _negative(context, value):
    return ops.neg(value)


@_aten("_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size", "_assert_async")
def _nothing(context, *_, **__):
    return None


@_aten("_assert_scalar")
def _assert_scalar(context, condition, message):
    if not condition:
        raise ArgumentError(f"the exported program asserts: {message}", operator="_assert_scalar")


for _name, _function in {"sym_max": max, "sym_min": min, "sym_int": int, "sym_float": float, "sym_not": lambda a: not a,
                         "sym_sum": lambda a: sum(a), "sym_ite": lambda a, b, c: b if a else c}.items():
    TABLE[_name] = lambda context, *arguments, _function=_function: _function(*arguments)


@_aten("slice.Tensor")
def _slice(context, value, dim=0, start=None, end=None, step=1):
    return value[(slice(None),) * (dim % value.ndim) + (slice(start, end, step),)]


@_aten("clamp_min")
def _clamp_min(context, value, min):
    return ops.clamp(value, min=min)


@_aten("clamp_max")
def _clamp_max(context, value, max):
    return ops.clamp(value, max=max)


@_aten("_unsafe_view")
def _unsafe_view(context, value, size):
    return ops.reshape(value, list(size))


@_aten("index.Tensor")
def _index(context, value, indices):
    index = tuple(slice(None) if each is None else each for each in indices)
    if _masks(index):
        raise ArgumentError("index: an index is a mask: the shape of the result depends on the data")
    while len(index) > 1 and isinstance(index[-1], slice):
        index = index[:-1]
    return _indexed(value, index if len(index) > 1 else index[0])


@_aten("embedding")
def _embedding(context, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    if scale_grad_by_freq:
        raise ArgumentError("embedding: PyTorch's argument 'scale_grad_by_freq' is True, which the operator does not "
                            "have", operator="embedding", argument="scale_grad_by_freq")
    # -1 is no row: positions from the end are made positive before.
    return ops.embedding(indices, weight, None if padding_idx == -1 else padding_idx)


@_aten("embedding_bag", "_embedding_bag")
def _embedding_bag(context, weight, indices, offsets, scale_grad_by_freq=False, mode=0, sparse=False,
                   per_sample_weights=None, include_last_offset=False, padding_idx=-1):
    if scale_grad_by_freq:
        raise ArgumentError("embedding_bag: 'scale_grad_by_freq' is True, which the operator does not have",
                            operator="embedding_bag", argument="scale_grad_by_freq")
    padding_idx = None if padding_idx in (-1, None) else padding_idx
    out = ops.embedding_bag(indices, weight, offsets, ("sum", "mean", "max")[mode], per_sample_weights,
                            include_last_offset, padding_idx)
    return out, None, None, None


@_aten("_softmax")
def _softmax(context, value, dim, half_to_float):
    return ops.softmax(value, dim, dtype="float32" if half_to_float else None)


@_aten("_log_softmax")
def _log_softmax(context, value, dim, half_to_float):
    return ops.log_softmax(value, dim, dtype="float32" if half_to_float else None)


@_aten("_safe_softmax")
def _safe_softmax(context, value, dim, dtype=None):
    if dtype is not None:
        value = converted(value, dtype)
    empty = ops.amax(value, [dim], True) == float("-inf")
    return ops.where(empty, 0.0, ops.softmax(ops.where(empty, 0.0, value), dim))


@_aten("linear")
def _linear(context, value, weight, bias=None):
    return ops.linear(value, weight, bias)


@_aten("convolution")
def _convolution(context, value, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    name = f"conv{'_transpose' if transposed else ''}{weight.ndim - 2}d"
    if weight.ndim - 2 not in (1, 2, 3):
        raise ArgumentError(f"convolution: the weight has {weight.ndim} dimensions, expected 3 to 5",
                            operator="convolution", argument="weight")
    lists = [list(each) for each in (stride, padding, output_padding, dilation)]
    # One number is that of all dimensions.
    stride, padding, output_padding, dilation = (
        each * (weight.ndim - 2) if len(each) == 1 else each for each in lists)
    if transposed:
        return getattr(ops, name)(value, weight, bias, stride, padding, output_padding, groups, dilation)
    return getattr(ops, name)(value, weight, bias, stride, padding, dilation, groups)


@_aten("native_layer_norm")
def _layer_norm(context, value, shape, weight, bias, eps):
    return ops.layer_norm(value, list(shape), weight, bias, eps), None, None


@_aten("native_group_norm")
def _group_norm(context, value, weight, bias, N, C, HxW, group, eps):
    return ops.group_norm(value, group, weight, bias, eps), None, None


@_aten("_fused_rms_norm")
def _rms_norm(context, value, shape, weight, eps):
    return ops.rms_norm(value, list(shape), weight, eps), None


def _normalized(value, weight, bias, mean, var, training, momentum, eps):
    if momentum is None:
        raise ArgumentError("batch_norm: momentum is None", operator="batch_norm", argument="momentum")
    return ops.batch_norm(value, mean, var, weight, bias, training, momentum, eps)


@named("batch_norm")
@_aten("batch_norm")
def _batch_norm(context, value, weight, bias, mean, var, training, momentum, eps, cudnn_enabled=True):
    out, new_mean, new_var = _normalized(value, weight, bias, mean, var, training, momentum, eps)
    if training and mean is not None:
        context.replace(3, new_mean)
        context.replace(4, new_var)
    return out


@_aten("_native_batch_norm_legit.default", "native_batch_norm")
def _native_batch_norm(context, value, weight, bias, mean, var, training, momentum, eps):
    return _batch_norm(context, value, weight, bias, mean, var, training, momentum, eps), None, None


@_aten("_native_batch_norm_legit_functional")
def _batch_norm_functional(context, value, weight, bias, mean, var, training, momentum, eps):
    out, new_mean, new_var = _normalized(value, weight, bias, mean, var, training, momentum, eps)
    return out, None, None, *((new_mean, new_var) if training else (mean, var))


@_aten("_native_batch_norm_legit_no_training")
def _batch_norm_evaluated(context, value, weight, bias, mean, var, momentum, eps):
    return _normalized(value, weight, bias, mean, var, False, momentum, eps)[0], None, None


@_aten("_native_batch_norm_legit.no_stats")
def _batch_norm_of_the_batch(context, value, weight, bias, training, momentum, eps):
    return _normalized(value, weight, bias, None, None, True, momentum, eps)[0], None, None


@named("instance_norm")
@_aten("instance_norm")
def _instance_norm(context, value, weight, bias, mean, var, use_input_stats, momentum, eps, cudnn_enabled=True):
    out, new_mean, new_var = ops.instance_norm(value, mean, var, weight, bias, use_input_stats, momentum, eps)
    if use_input_stats and mean is not None:
        context.replace(3, new_mean)
        context.replace(4, new_var)
    return out


@_aten("dropout")
def _dropout(context, value, p, train):
    return ops.dropout(value, p, True, context.generator()) if train and p > 0 else value


@_aten("native_dropout")
def _native_dropout(context, value, p, train):
    return _dropout(context, value, p, train is not False), None


def _attention(context, query, key, value, mask, dropout, causal, scale, grouped=False):
    generator = context.generator() if dropout > 0 else None
    return ops.scaled_dot_product_attention(query, key, value, mask, dropout, causal, scale, grouped, generator)


@_aten("_scaled_dot_product_flash_attention_for_cpu")
def _attention_of_cpu(context, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    return _attention(context, query, key, value, attn_mask, dropout_p, is_causal, scale), None


@_aten("_scaled_dot_product_flash_attention")
def _flash_attention(context, query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *,
                     scale=None):
    return _attention(context, query, key, value, None, dropout_p, is_causal, scale), *[None] * 8


@_aten("_scaled_dot_product_efficient_attention")
def _efficient_attention(context, query, key, value, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *,
                         scale=None):
    return _attention(context, query, key, value, attn_bias, dropout_p, is_causal, scale), None, None, None


@_aten("_scaled_dot_product_cudnn_attention")
def _cudnn_attention(context, query, key, value, attn_bias, compute_log_sumexp, dropout_p=0.0, is_causal=False,
                     return_debug_mask=False, *, scale=None):
    return _attention(context, query, key, value, attn_bias, dropout_p, is_causal, scale), *[None] * 8


@_aten("cross_entropy_loss")
def _cross_entropy(context, value, target, weight=None, reduction=1, ignore_index=-100, label_smoothing=0.0):
    return ops.cross_entropy(value, target, weight, ignore_index, _WORDS["reduction"][reduction], label_smoothing)


@_aten("nll_loss", "nll_loss_nd", "nll_loss2d")
def _nll_loss(context, value, target, weight=None, reduction=1, ignore_index=-100):
    return ops.nll_loss(value, target, weight, ignore_index, _WORDS["reduction"][reduction])


@_aten("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss_forward(context, value, target, weight, reduction, ignore_index):
    return _nll_loss(context, value, target, weight, reduction, ignore_index), None


@_aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(context, value, size):
    return getattr(ops, f"adaptive_max_pool{len(size)}d")(value, list(size)), None


@_aten("_adaptive_avg_pool2d")
def _adaptive_avg_pool2d(context, value, size):
    return ops.adaptive_avg_pool2d(value, list(size))


@_aten("_adaptive_avg_pool3d")
def _adaptive_avg_pool3d(context, value, size):
    return ops.adaptive_avg_pool3d(value, list(size))


@_aten("_cdist_forward")
def _cdist(context, a, b, p, compute_mode=None):
    words = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    return ops.cdist(a, b, p, words[compute_mode or 0])


@_aten("_pdist_forward")
def _pdist(context, value, p=2.0):
    return ops.pdist(value, p)


@_aten("col2im")
def _col2im(context, value, output_size, kernel_size, dilation, padding, stride):
    return ops.fold(value, *map(list, (output_size, kernel_size, dilation, padding, stride)))


@_aten("im2col")
def _im2col(context, value, kernel_size, dilation, padding, stride):
    return ops.im2col(value, *map(list, (kernel_size, dilation, padding, stride)))


@_aten("constant_pad_nd")
def _constant_pad(context, value, pad, number=0):
    return ops.pad(value, list(pad), "constant", float(number))


@_aten("reflection_pad1d", "reflection_pad2d")
def _reflection_pad(context, value, pad):
    return ops.pad(value, list(pad), "reflect")


@_aten("replication_pad1d", "replication_pad2d")
def _replication_pad(context, value, pad):
    return ops.pad(value, list(pad), "replicate")


@_aten("grid_sampler_2d", "grid_sampler")
def _grid_sampler(context, value, grid, mode, padding, align_corners):
    return ops.grid_sample(value, grid, ("bilinear", "nearest", "bicubic")[mode],
                           ("zeros", "border", "reflection")[padding], align_corners)


def _upsampled(mode: str, aligns: bool):
    def vec(context, value, size, *rest):
        scales = rest[-1]
        align = {"align_corners": rest[0]} if aligns else {}
        return ops.interpolate(value, size if size is None else list(size),
                               scales if scales is None else [float(each) for each in scales], mode, **align)

    def default(context, value, size, *rest, **scales):
        align = {"align_corners": rest[0]} if aligns else {}
        given = [each for each in (*rest[1 if aligns else 0 :], *scales.values()) if each is not None]
        if given:
            # Positions are computed by the scales then, and not by the sizes.
            raise ArgumentError(f"upsample: scales {given} are given beside the size", operator="interpolate")
        return ops.interpolate(value, list(size), None, mode, **align)

    return _operator(vec, "interpolate"), _operator(default, "interpolate")


for _name, _mode in {"linear1d": "linear", "bilinear2d": "bilinear", "trilinear3d": "trilinear",
                     "bicubic2d": "bicubic", "nearest1d": "nearest", "nearest2d": "nearest",
                     "nearest3d": "nearest"}.items():
    TABLE[f"aten.upsample_{_name}.vec"], TABLE[f"aten.upsample_{_name}.default"] = _upsampled(
        _mode, not _mode.startswith("nearest"))


@_aten("copy")
def _copy(context, value, source, non_blocking=False):
    return _like(source, value, value.shape)


@_aten("fill")
def _fill(context, value, number):
    return _like(number, value, value.shape)


@_aten("zero")
def _zero(context, value):
    return _filled(context, value, value.shape, 0, None, None)


@_aten("full_like")
def _full_like(context, value, number, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    # Of the shape alone: the operator of this name has an operand without a gradient.
    known("full_like", {"layout": layout, "pin_memory": pin_memory or None})
    return _filled(context, value, value.shape, number, dtype, device)


@_aten("zeros_like")
def _zeros_like(context, value, *arguments, **keywords):
    return _full_like(context, value, 0, *arguments, **keywords)


@_aten("ones_like")
def _ones_like(context, value, *arguments, **keywords):
    return _full_like(context, value, 1, *arguments, **keywords)


@_aten("scalar_tensor")
def _scalar_tensor(context, number, *, dtype=None, device=None, **_):
    dtype = example_of(context.node).dtype if dtype is None else dtype
    return ops.full([], number, dtype=dtype, device=device_name(device or context.device))


@_aten("scatter.value")
def _scatter(context, value, dim, index, number):
    return ops.scatter(value, dim, index, number)


@_aten("scatter.value_reduce")
def _scatter_reduced(context, value, dim, index, number, *, reduce):
    return ops.scatter(value, dim, index, number, reduce)


@_aten("tensor_split.sections", "tensor_split.indices")
def _tensor_split(context, value, parts, dim=0):
    return ops.tensor_split(value, parts if isinstance(parts, int) else list(parts), dim)


@_aten("index_put", "_unsafe_index_put")
def _index_put(context, value, indices, values, accumulate=False):
    while indices and indices[-1] is None:
        indices = indices[:-1]
    if any(not isinstance(each, Tensor) or each.dtype.name not in ("int64", "int32") for each in indices):
        raise ArgumentError("index_put: an index is left out, or is no tensor of integers", operator="index_put",
                            argument="indices")
    return ops.index_put(value, list(indices), values, accumulate)


TABLE["aten._unsafe_index.Tensor"] = _index
