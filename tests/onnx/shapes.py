"""ONNX's operators that move and choose elements, as calls."""

import math

import numpy as np
from table import Dtype, Refused, call, node, positive, to


@node("Reshape")
def reshape(node):
    shape = node[1].tolist()
    if not node.get("allowzero", 0):
        shape = [node[0].shape[i] if extent == 0 else extent for i, extent in enumerate(shape)]
    return (yield call("reshape", input=node[0], shape=shape))


@node("Flatten")
def flatten(node):
    axis = positive(node.get("axis", 1), node[0].ndim)
    return (yield call("reshape", input=node[0], shape=[math.prod(node[0].shape[:axis]), math.prod(node[0].shape[axis:])]))


@node("Transpose")
def transpose(node):
    return (yield call("permute", input=node[0], dims=node.get("perm", list(range(node[0].ndim))[::-1])))


@node("Squeeze", "Unsqueeze")
def squeeze(node):
    axes = node.axes(1)
    if node.op == "Squeeze":
        return (yield call("squeeze", input=node[0], **({"dim": axes} if axes else {})))
    out, rank = node[0], node[0].ndim + len(axes)
    for axis in sorted(positive(axis, rank) for axis in axes):
        out = (yield call("unsqueeze", input=out, dim=axis))[0]
    return [out]


@node("Concat")
def concat(node):
    return (yield call("cat", tensors=node.inputs, dim=node.get("axis")))


@node("Expand")
def expand(node):
    shape = list(np.broadcast_shapes(node[0].shape, tuple(node[1].tolist())))
    return (yield call("broadcast_to", input=node[0], size=shape))


@node("Tile")
def tile(node):
    return (yield call("tile", input=node[0], dims=node[1].tolist()))


@node("Split")
def split(node):
    axis, extent = node.get("axis", 0), node[0].shape[node.get("axis", 0)]
    sizes = node[1].tolist() if node[1] is not None else node.get("split")
    if not sizes:
        count = node.get("num_outputs") or len(node.outputs)
        each = -(-extent // count)
        sizes = [min(each, extent - each * i) for i in range(count)]
    return (yield call("split_with_sizes", input=node[0], split_sizes=sizes, dim=axis))


@node("Slice")
def slices(node):
    x, starts, ends = node[0], node[1].tolist(), node[2].tolist()
    axes = node[3].tolist() if node[3] is not None else list(range(len(starts)))
    steps = node[4].tolist() if node[4] is not None else [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps):
        axis = positive(axis, x.ndim)
        at = list(range(x.shape[axis]))[slice(start if start >= -x.shape[axis] or step > 0 else None, end if end > -(2**31) + 1 or step > 0 else None, step)]
        if step == 1:
            x = (yield call("narrow", input=x, dim=axis, start=at[0] if at else 0, length=len(at)))[0]
        else:
            x = (yield call("index_select", input=x, dim=axis, index=np.array(at, dtype=np.int64)))[0]
    return [x]


@node("Shape", "Size")
def facts(node):
    raise Refused("the shape of a tensor, which is known when a program is traced")


@node("EyeLike")
def eye(node):
    n, m = node[0].shape
    dtype = node.outputs[0].dtype.name
    diagonal = (yield call("ones", size=[n, m], dtype=Dtype(dtype)))[0]
    k = node.get("k", 0)
    upper = (yield call("triu", input=diagonal, diagonal=k))[0]
    return (yield call("tril", input=upper, diagonal=k))


@node("Range")
def arange(node):
    start, end, step = (array.item() for array in node.inputs)
    return (yield call("arange", start=start, end=end, step=step, dtype=Dtype(node[0].dtype.name)))


@node("ConstantOfShape")
def constant(node):
    value = node.get("value", np.zeros(1, np.float32))
    return (yield call("full", size=node[0].tolist(), fill_value=value.item(), dtype=Dtype(value.dtype.name)))


@node("Pad")
def pad(node):
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}[node.get("mode", "constant")]
    pads, rank = node[1].tolist(), node[0].ndim
    axes = [positive(a, rank) for a in (node[3].tolist() if node[3] is not None else range(rank))]
    before, after = dict(zip(axes, pads[: len(axes)])), dict(zip(axes, pads[len(axes) :]))
    flat = [n for axis in range(rank)[::-1] for n in (before.get(axis, 0), after.get(axis, 0))]
    if mode == "constant":
        value = {"value": float(node[2].item())} if node[2] is not None else {}
        return (yield call("pad", input=node[0], pad=flat, mode=mode, **value))
    # Reflections and the like are of the last dimensions, of a tensor that has two before them.
    while len(flat) > 2 and flat[-2:] == [0, 0]:
        flat = flat[:-2]
    moved = len(flat) // 2
    x = node[0]
    for _ in range(max(0, moved + 2 - rank)):
        x = (yield call("unsqueeze", input=x, dim=0))[0]
    out = (yield call("pad", input=x, pad=flat, mode=mode))[0]
    return [out] if x.ndim == rank else (yield call("reshape", input=out, shape=list(out.shape[x.ndim - rank :])))


@node("CenterCropPad")
def center(node):
    x, sizes = node[0], node[1].tolist()
    axes = [positive(axis, x.ndim) for axis in node.get("axes", range(x.ndim))]
    for axis, size in zip(axes, sizes):
        extent = x.shape[axis]
        if size < extent:
            x = (yield call("narrow", input=x, dim=axis, start=(extent - size) // 2, length=size))[0]
        elif size > extent:
            low = (size - extent) // 2
            flat = [0, 0] * (x.ndim - 1 - axis) + [low, size - extent - low]
            x = (yield call("pad", input=x, pad=flat))[0]
    return [x]


@node("DepthToSpace")
def depth_to_space(node):
    size = node.get("blocksize")
    if node.get("mode", "DCR") == "CRD":
        return (yield call("pixel_shuffle", input=node[0], upscale_factor=size))
    b, c, h, w = node[0].shape
    parts = (yield call("reshape", input=node[0], shape=[b, size, size, c // size**2, h, w]))[0]
    parts = (yield call("permute", input=parts, dims=[0, 3, 4, 1, 5, 2]))[0]
    return (yield call("reshape", input=parts, shape=[b, c // size**2, h * size, w * size]))


@node("SpaceToDepth")
def space_to_depth(node):
    size = node.get("blocksize")
    node.needs(mode="DCR")
    b, c, h, w = node[0].shape
    parts = (yield call("reshape", input=node[0], shape=[b, c, h // size, size, w // size, size]))[0]
    parts = (yield call("permute", input=parts, dims=[0, 3, 5, 1, 2, 4]))[0]
    return (yield call("reshape", input=parts, shape=[b, c * size**2, h // size, w // size]))


def within(indices, extent):
    """Positions counted from the beginning: negative ones count from the end. They are data of the test."""
    return np.where(indices < 0, indices + extent, indices).astype(np.int64)


@node("Gather")
def gather(node):
    axis = positive(node.get("axis", 0), node[0].ndim)
    at = within(node[1], node[0].shape[axis])
    out = (yield call("index_select", input=node[0], dim=axis, index=at.reshape(-1)))[0]
    shape = [*node[0].shape[:axis], *at.shape, *node[0].shape[axis + 1 :]]
    return (yield call("reshape", input=out, shape=shape))


@node("GatherElements")
def gather_elements(node):
    axis = positive(node.get("axis", 0), node[0].ndim)
    return (yield call("gather", input=node[0], dim=axis, index=within(node[1], node[0].shape[axis])))


@node("ScatterElements", "Scatter")
def scatter_elements(node):
    axis = positive(node.get("axis", 0), node[0].ndim)
    at = within(node[1], node[0].shape[axis])
    how = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}.get(node.get("reduction", "none"))
    if how is None:
        return (yield call("scatter", input=node[0], dim=axis, index=at, src=node[2]))
    return (yield call("scatter_reduce", input=node[0], dim=axis, index=at, src=node[2], reduce=how))


def flat_positions(indices, shape):
    """The positions that tuples of positions are in a tensor whose first dimensions have these extents."""
    flat = np.zeros(indices.shape[:-1], np.int64)
    for i, extent in enumerate(shape):
        flat = flat * extent + within(indices[..., i], extent)
    return flat


@node("GatherND")
def gather_nd(node):
    x, at, batch = node[0], node[1], node.get("batch_dims", 0)
    depth = at.shape[-1]
    if batch:
        lead = np.indices(at.shape[:batch]).reshape(batch, *at.shape[:batch], *[1] * (at.ndim - 1 - batch), 1)
        lead = [np.broadcast_to(own, (*at.shape[:-1], 1)) for own in lead]
        at, depth = np.concatenate([*lead, at], -1), depth + batch
    flat = flat_positions(at, x.shape[:depth])
    rows = (yield call("reshape", input=x, shape=[math.prod(x.shape[:depth]), *x.shape[depth:]]))[0]
    out = (yield call("index_select", input=rows, dim=0, index=flat.reshape(-1)))[0]
    return (yield call("reshape", input=out, shape=[*flat.shape, *x.shape[depth:]]))


@node("ScatterND")
def scatter_nd(node):
    x, at, updates, how = node[0], node[1], node[2], node.get("reduction", "none")
    depth, rest = at.shape[-1], x.shape[at.shape[-1] :]
    flat = flat_positions(at, x.shape[:depth]).reshape(-1)
    rows = (yield call("reshape", input=x, shape=[math.prod(x.shape[:depth]), *rest]))[0]
    source = (yield call("reshape", input=updates, shape=[len(flat), *rest]))[0]
    if how == "none":
        out = (yield call("index_copy", input=rows, dim=0, index=flat, source=source))[0]
    elif how == "add":
        out = (yield call("index_add", input=rows, dim=0, index=flat, source=source))[0]
    else:
        reduce = {"mul": "prod", "max": "amax", "min": "amin"}[how]
        out = (yield call("index_reduce", input=rows, dim=0, index=flat, source=source, reduce=reduce))[0]
    return (yield call("reshape", input=out, shape=list(x.shape)))


@node("OneHot")
def one_hot(node):
    depth, values = int(node[1].item()), node[2]
    marks = (yield call("one_hot", tensor=within(node[0], depth), num_classes=depth))[0]
    axis = positive(node.get("axis", -1), node[0].ndim + 1)
    marks = (yield call("movedim", input=marks, source=[-1], destination=[axis]))[0]
    marks = yield from to(marks, "bool")
    off, on = values.tolist()
    chosen = (yield call("where", condition=marks, input=on, other=off))[0]
    return [(yield from to(chosen, values.dtype))]


@node("Compress", "NonZero", "Unique", "NonMaxSuppression")
def shape_of_data(node):
    raise Refused("the shape depends on data")


@node("ReverseSequence")
def reverse_sequence(node):
    x, lengths = node[0], node[1]
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    steps = np.arange(x.shape[time])
    at = np.stack([np.where(steps < n, n - 1 - steps, steps) for n in lengths])
    at = at if batch < time else at.T
    at = at.reshape(*at.shape, *[1] * (x.ndim - 2))
    return (yield call("gather", input=x, dim=time, index=np.ascontiguousarray(np.broadcast_to(at, x.shape))))
