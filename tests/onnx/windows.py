"""ONNX's convolutions, pools and resizes, as calls."""

import math

import numpy as np
from table import Refused, call, is_float, node


def padding(node, kernel, dilations, extents):
    """What is added before and behind each dimension."""
    rank, auto = len(kernel), node.get("auto_pad", "NOTSET")
    strides = node.get("strides", [1] * rank)
    if auto in ("NOTSET", "VALID"):
        pads = node.get("pads", [0] * 2 * rank) if auto == "NOTSET" else [0] * 2 * rank
        return pads[:rank], pads[rank:]
    before, after = [], []
    for k, d, s, extent in zip(kernel, dilations, strides, extents):
        whole = max(0, (-(-extent // s) - 1) * s + (k - 1) * d + 1 - extent)
        small = whole // 2
        before.append(small if auto == "SAME_UPPER" else whole - small)
        after.append(whole - small if auto == "SAME_UPPER" else small)
    return before, after


def padded(x, before, after, value):
    flat = [n for low, high in list(zip(before, after))[::-1] for n in (low, high)]
    return (yield call("pad", input=x, pad=flat, value=value))[0]


@node("Conv")
def conv(node):
    x, weight = node[0], node[1]
    rank = x.ndim - 2
    dilations = node.get("dilations", [1] * rank)
    before, after = padding(node, weight.shape[2:], dilations, x.shape[2:])
    if before != after:
        x = yield from padded(x, before, after, 0.0)
        before = [0] * rank
    bias = {"bias": node[2]} if node[2] is not None else {}
    options = dict(stride=node.get("strides", [1] * rank), padding=before, dilation=dilations, groups=node.get("group", 1))
    return (yield call(f"conv{rank}d", input=x, weight=weight, **bias, **options))


@node("ConvTranspose")
def conv_transpose(node):
    x, weight = node[0], node[1]
    rank = x.ndim - 2
    strides, dilations = node.get("strides", [1] * rank), node.get("dilations", [1] * rank)
    extra, groups = node.get("output_padding", [0] * rank), node.get("group", 1)
    wanted = node.outputs[0].shape[2:]
    pads, auto = node.get("pads", [0] * 2 * rank), node.get("auto_pad", "NOTSET")
    whole = [s * (n - 1) + e + (k - 1) * d + 1 for s, n, e, k, d in zip(strides, x.shape[2:], extra, weight.shape[2:], dilations)]
    before = pads[:rank]
    if auto in ("SAME_UPPER", "SAME_LOWER") or node.get("output_shape"):
        cut = [w - n for w, n in zip(whole, wanted)]
        before = [c // 2 if auto == "SAME_UPPER" else c - c // 2 for c in cut]
    bias = {"bias": node[2]} if node[2] is not None else {}
    options = dict(stride=strides, dilation=dilations, groups=groups)
    # All of it is computed, and what is padded away is cut off: that may differ at both ends.
    out = (yield call(f"conv_transpose{rank}d", input=x, weight=weight, **bias, **options))[0]
    for axis, (low, length, extent) in enumerate(zip(before, wanted, whole), 2):
        if low + length > out.shape[axis]:
            flat = [0, 0] * (rank + 1 - axis) + [0, low + length - out.shape[axis]]
            out = (yield call("pad", input=out, pad=flat))[0]
        out = (yield call("narrow", input=out, dim=axis, start=low, length=length))[0]
    return [out]


@node("MaxPool")
def max_pool(node):
    x, kernel = node[0], node.get("kernel_shape")
    rank = len(kernel)
    node.needs(storage_order=0)
    dilations = node.get("dilations", [1] * rank)
    before, after = padding(node, kernel, dilations, x.shape[2:])
    name, pads = f"max_pool{rank}d", before
    options = dict(kernel_size=kernel, stride=node.get("strides", [1] * rank), dilation=dilations, ceil_mode=bool(node.get("ceil_mode", 0)))
    if before != after or any(2 * p > k for p, k in zip(before, kernel)):
        if len(node.outputs) > 1 or not is_float(x):
            raise Refused("MaxPool with other padding at both ends, of integers or with positions")
        x, pads = (yield from padded(x, before, after, -math.inf)), [0] * rank
    if len(node.outputs) == 1:
        return (yield call(name, input=x, padding=pads, **options))
    values, indices = yield call(f"{name}_with_indices", input=x, padding=pads, **options)
    # Positions are counted over the whole tensor.
    size = math.prod(x.shape[2:])
    offsets = (np.arange(math.prod(x.shape[:2]), dtype=np.int64) * size).reshape(*x.shape[:2], *[1] * rank)
    return [values, (yield call("add", input=indices, other=offsets))[0]]


@node("AveragePool")
def average_pool(node):
    x, kernel = node[0], node.get("kernel_shape")
    rank = len(kernel)
    node.needs(dilations=[1] * rank)
    before, after = padding(node, kernel, [1] * rank, x.shape[2:])
    counts = bool(node.get("count_include_pad", 0))
    strides, ceil = node.get("strides", [1] * rank), bool(node.get("ceil_mode", 0))
    name = f"avg_pool{rank}d"
    if before == after and all(2 * p <= k for p, k in zip(before, kernel)):
        return (yield call(name, input=x, kernel_size=kernel, stride=strides, padding=before, ceil_mode=ceil, count_include_pad=counts))
    x, marks = (yield from padded(x, before, after, 0.0)), np.ones((1, 1, *x.shape[2:]), x.dtype)
    out = (yield call(name, input=x, kernel_size=kernel, stride=strides, ceil_mode=ceil))[0]
    if counts:
        return [out]
    # The share of each window that is not padding.
    marks = yield from padded(marks, before, after, 0.0)
    share = (yield call(name, input=marks, kernel_size=kernel, stride=strides, ceil_mode=ceil))[0]
    return (yield call("div", input=out, other=share))


@node("LpPool")
def lp_pool(node):
    x, kernel = node[0], node.get("kernel_shape")
    rank = len(kernel)
    node.needs(dilations=[1] * rank)
    before, after = padding(node, kernel, [1] * rank, x.shape[2:])
    if any(before) or any(after):
        x = yield from padded(x, before, after, 0.0)
    options = dict(kernel_size=kernel, stride=node.get("strides", [1] * rank), ceil_mode=bool(node.get("ceil_mode", 0)))
    x = (yield call("abs", input=x))[0]
    return (yield call(f"lp_pool{rank}d", input=x, norm_type=float(node.get("p", 2)), **options))


@node("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node):
    dims = list(range(2, node[0].ndim))
    return (yield call("mean" if node.op == "GlobalAveragePool" else "amax", input=node[0], dim=dims, keepdim=True))


@node("Col2Im")
def col2im(node):
    size, block = node[1].tolist(), node[2].tolist()
    if len(size) != 2:
        raise Refused(f"Col2Im of {len(size)} dimensions")
    pads = node.get("pads", [0] * 4)
    if pads[:2] != pads[2:]:
        raise Refused("Col2Im with other padding at both ends")
    options = dict(dilation=node.get("dilations", [1, 1]), padding=pads[:2], stride=node.get("strides", [1, 1]))
    return (yield call("fold", input=node[0], output_size=size, kernel_size=block, **options))


@node("LRN")
def local_response(node):
    options = dict(alpha=node.get("alpha", 1e-4), beta=node.get("beta", 0.75), k=node.get("bias", 1.0))
    return (yield call("local_response_norm", input=node[0], size=node.get("size"), **options))


@node("Resize", "Upsample")
def resize(node):
    x, mode = node[0], node.get("mode", "nearest")
    node.needs(antialias=0, exclude_outside=0, keep_aspect_ratio_policy="stretch")
    how = node.get("coordinate_transformation_mode", "half_pixel" if node.op == "Resize" else "asymmetric")
    rank = x.ndim - 2
    if node.get("axes") or node.outputs[0].shape[:2] != x.shape[:2]:
        raise Refused("Resize of other dimensions than those behind the channels")
    size = list(node.outputs[0].shape[2:])
    scales = node[2] if node.op == "Resize" else node[1]
    options = {"size": size}
    if scales is not None and scales.size:
        options = {"scale_factor": [float(s) for s in scales[2:]]}
        if how == "align_corners" and any(n * s != e for n, s, e in zip(x.shape[2:], options["scale_factor"], size)):
            raise Refused("Resize between corners by a scale that gives no whole extent")
    if mode == "nearest":
        rounding = node.get("nearest_mode", "round_prefer_floor" if node.op == "Resize" else "floor")
        if (how, rounding) == ("asymmetric", "floor"):
            return (yield call("interpolate", input=x, mode="nearest", **options))
        raise Refused(f"Resize to the nearest by {how}, {rounding}")
    name = {("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear", ("cubic", 2): "bicubic"}.get((mode, rank))
    if name is None or how not in ("half_pixel", "align_corners"):
        raise Refused(f"Resize by {mode}, {how}")
    if mode == "cubic" and abs(node.get("cubic_coeff_a", -0.75) + 0.75) > 1e-6:
        raise Refused("Resize by another cubic")
    return (yield call("interpolate", input=x, mode=name, align_corners=how == "align_corners", **options))


@node("MaxUnpool")
def max_unpool(node):
    x, indices, kernel = node[0], node[1], node.get("kernel_shape")
    rank = len(kernel)
    size = node[2].tolist()[2:] if node[2] is not None else list(node.outputs[0].shape[2:])
    # Positions are counted over the whole tensor there, in one channel here.
    extents = list(node.outputs[0].shape[2:]) if node[2] is None else None
    natural = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], node.get("strides", [1] * rank), kernel)]
    within_one = indices % math.prod(extents or natural)
    options = dict(kernel_size=kernel, stride=node.get("strides", [1] * rank), output_size=size)
    if natural != size:
        raise Refused("MaxUnpool to an extent that its windows do not have")
    return (yield call(f"max_unpool{rank}d", input=x, indices=within_one, **options))


@node("GridSample")
def grid_sample(node):
    mode = {"linear": "bilinear", "bilinear": "bilinear", "nearest": "nearest", "cubic": "bicubic", "bicubic": "bicubic"}[node.get("mode", "linear")]
    options = dict(padding_mode=node.get("padding_mode", "zeros"), align_corners=bool(node.get("align_corners", 0)))
    return (yield call("grid_sample", input=node[0], grid=node[1], mode=mode, **options))


@node("AffineGrid")
def affine_grid(node):
    return (yield call("affine_grid", theta=node[0], size=node[1].tolist(), align_corners=bool(node.get("align_corners", 0))))
