"""ONNX's products, norms, losses and quantized numbers, as calls."""

import numpy as np
from table import Dtype, Refused, call, node, positive


@node("Gemm")
def gemm(node):
    a, b, c = node[0], node[1], node[2]
    if node.get("transA", 0):
        a = (yield call("t", input=a))[0]
    if node.get("transB", 0):
        b = (yield call("t", input=b))[0]
    out = (yield call("mm", input=a, mat2=b))[0]
    out = (yield call("mul", input=out, other=node.get("alpha", 1.0)))[0]
    if c is None:
        return [out]
    return (yield call("add", input=out, other=(yield call("mul", input=c, other=node.get("beta", 1.0)))[0]))


@node("Einsum")
def einsum(node):
    return (yield call("einsum", equation=node.get("equation"), operands=node.inputs))


@node("BatchNormalization")
def batch_norm(node):
    x, scale, bias, mean, var = node.inputs
    training = bool(node.get("training_mode", 0))
    out, next_mean, next_var = yield call(
        "batch_norm", input=x, running_mean=mean, running_var=var, weight=scale, bias=bias, training=training,
        momentum=1 - node.get("momentum", 0.9), eps=node.get("epsilon", 1e-5),
    )  # fmt: skip
    if not training:
        return [out]
    # The variance that is kept is the biased one there.
    count, keep = x.size // x.shape[1], node.get("momentum", 0.9)
    kept = (yield call("mul", input=var, other=keep))[0]
    new = (yield call("sub", input=next_var, other=kept))[0]
    new = (yield call("mul", input=new, other=(count - 1) / count))[0]
    return [out, next_mean, (yield call("add", input=kept, other=new))[0]]


@node("InstanceNormalization")
def instance_norm(node):
    return (yield call("instance_norm", input=node[0], weight=node[1], bias=node[2], eps=node.get("epsilon", 1e-5)))[:1]


@node("GroupNormalization")
def group_norm(node):
    return (yield call("group_norm", input=node[0], num_groups=node.get("num_groups"), weight=node[1], bias=node[2], eps=node.get("epsilon", 1e-5)))


@node("LayerNormalization")
def layer_norm(node):
    x, axis = node[0], positive(node.get("axis", -1), node[0].ndim)
    shape, eps = list(x.shape[axis:]), node.get("epsilon", 1e-5)
    affine = {name: each for name, each in (("weight", node[1]), ("bias", node[2])) if each is not None}
    out = yield call("layer_norm", input=x, normalized_shape=shape, eps=eps, **affine)
    if len(node.outputs) == 1:
        return out
    var, mean = yield call("var_mean", input=x, dim=list(range(axis, x.ndim)), correction=0.0, keepdim=True)
    moved = (yield call("add", input=var, other=eps))[0]
    return [out[0], mean, (yield call("rsqrt", input=moved))[0]][: len(node.outputs)]


@node("RMSNormalization")
def rms_norm(node):
    x, axis = node[0], positive(node.get("axis", -1), node[0].ndim)
    return (yield call("rms_norm", input=x, normalized_shape=list(x.shape[axis:]), weight=node[1], eps=node.get("epsilon", 1e-5)))


@node("MeanVarianceNormalization")
def mean_variance(node):
    axes = node.get("axes", [0, 2, 3])
    var, mean = yield call("var_mean", input=node[0], dim=axes, correction=0.0, keepdim=True)
    deviation = (yield call("sqrt", input=var))[0]
    deviation = (yield call("add", input=deviation, other=1e-9))[0]
    return (yield call("div", input=(yield call("sub", input=node[0], other=mean))[0], other=deviation))


@node("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def likelihood(node):
    x = node[0]
    options = {"ignore_index": node.get("ignore_index", -100), "reduction": node.get("reduction", "mean")}
    if node[2] is not None:
        options["weight"] = node[2]
    if node.op == "NegativeLogLikelihoodLoss":
        return (yield call("nll_loss", input=x, target=node[1], **options))
    out = yield call("cross_entropy", input=x, target=node[1], **options)
    return out if len(node.outputs) == 1 else [*out, *(yield call("log_softmax", input=x, dim=1))]


@node("Dropout")
def dropout(node):
    if node[2] is not None and bool(node[2]) and (node[1] is None or float(node[1]) != 0.0):
        raise Refused("draws random numbers")
    out = [(yield call("dropout", input=node[0], p=0.0, training=False))[0]]
    return out if len(node.outputs) == 1 else [*out, (yield call("ones_like", input=node[0], dtype=Dtype("bool")))[0]]


@node("Bernoulli")
def random(node):
    raise Refused("draws random numbers")


@node("SwiGLU")
def swiglu(node):
    node.needs(alpha=1.0, limit=0.0)
    raise Refused("SwiGLU of one tensor with both halves")


def rows_of_quantization(x, scale, axis):
    """The shape in which a scale broadcasts: of the whole tensor, or of one axis."""
    if scale.ndim == 0 or scale.size == 1 and scale.ndim <= 1:
        return []
    if scale.ndim != 1:
        raise Refused("a scale of blocks")
    shape = [1] * x.ndim
    shape[positive(axis, x.ndim)] = scale.size
    return shape


@node("DequantizeLinear")
def dequantize(node):
    shape = rows_of_quantization(node[0], node[1], node.get("axis", 1))
    scale = (yield call("reshape", input=node[1], shape=shape))[0]
    x = (yield call("to", input=node[0], dtype=Dtype(scale.dtype.name)))[0]
    if node[2] is not None:
        zero = (yield call("to", input=(yield call("reshape", input=node[2], shape=shape))[0], dtype=Dtype(scale.dtype.name)))[0]
        x = (yield call("sub", input=x, other=zero))[0]
    return (yield call("mul", input=x, other=scale))


def quantized(x, scale, zero, dtype=np.uint8):
    """x / scale, rounded, moved by the zero point and brought to the integer type."""
    limits = np.iinfo(dtype)
    x = (yield call("round", input=(yield call("div", input=x, other=scale))[0]))[0]
    moved = (yield call("add", input=x, other=(yield call("to", input=zero, dtype=Dtype("float32")))[0]))[0]
    clamped = (yield call("clamp", input=moved, min=int(limits.min), max=int(limits.max)))[0]
    return (yield call("to", input=clamped, dtype=Dtype(np.dtype(dtype).name)))[0]


@node("QuantizeLinear")
def quantize(node):
    dtype = node.outputs[0].dtype
    if dtype.kind not in "iu" or node[1].dtype != np.float32:
        raise Refused("quantized numbers of a floating-point type, or a scale of another type than f32")
    shape = rows_of_quantization(node[0], node[1], node.get("axis", 1))
    scale = (yield call("reshape", input=node[1], shape=shape))[0]
    zero = node[2] if node[2] is not None else np.zeros(node[1].shape, dtype)
    zero = (yield call("reshape", input=zero, shape=shape))[0]
    return [(yield from quantized(node[0], scale, zero, dtype))]


@node("DynamicQuantizeLinear")
def dynamic_quantize(node):
    x = node[0]
    low = (yield call("clamp", input=(yield call("amin", input=x))[0], max=0.0))[0]
    high = (yield call("clamp", input=(yield call("amax", input=x))[0], min=0.0))[0]
    scale = (yield call("div", input=(yield call("sub", input=high, other=low))[0], other=255.0))[0]
    at = (yield call("round", input=(yield call("div", input=(yield call("neg", input=low))[0], other=scale))[0]))[0]
    zero = (yield call("to", input=(yield call("clamp", input=at, min=0.0, max=255.0))[0], dtype=Dtype("uint8")))[0]
    return [(yield from quantized(x, scale, zero)), scale, zero]


@node("MatMulInteger")
def integer_product(node):
    parts = []
    for x, zero in ((node[0], node[2]), (node[1], node[3])):
        x = (yield call("to", input=x, dtype=Dtype("int32")))[0]
        if zero is not None:
            x = (yield call("sub", input=x, other=(yield call("to", input=zero, dtype=Dtype("int32")))[0]))[0]
        parts.append(x)
    return (yield call("matmul", input=parts[0], other=parts[1]))


@node("RotaryEmbedding")
def rotary(node):
    x, cos, sin, at = node[0], node[1], node[2], node[3]
    flat = x.ndim == 3
    if flat:
        batch, length, width = x.shape
        heads = node.get("num_heads")
        x = (yield call("reshape", input=x, shape=[batch, length, heads, width // heads]))[0]
        x = (yield call("permute", input=x, dims=[0, 2, 1, 3]))[0]
    tables = []
    for own in (cos, sin):
        if at is not None:
            own = (yield call("index_select", input=own, dim=0, index=at.reshape(-1)))[0]
            own = (yield call("reshape", input=own, shape=[*at.shape, own.shape[-1]]))[0]
        tables.append((yield call("unsqueeze", input=own, dim=1))[0])
    cos, sin = tables
    size = node.get("rotary_embedding_dim", 0) or x.shape[-1]
    turned = (yield call("narrow", input=x, dim=-1, start=0, length=size))[0]
    if node.get("interleaved", 0):
        pairs = (yield call("reshape", input=turned, shape=[*turned.shape[:-1], size // 2, 2]))[0]
        a, b = yield call("unbind", input=pairs, dim=-1)
    else:
        a, b = yield call("split", input=turned, split_size=size // 2, dim=-1)
    products = []
    for left, right in ((a, cos), (b, sin), (a, sin), (b, cos)):
        products.append((yield call("mul", input=left, other=right))[0])
    real = (yield call("sub", input=products[0], other=products[1]))[0]
    imaginary = (yield call("add", input=products[2], other=products[3]))[0]
    if node.get("interleaved", 0):
        out = (yield call("stack", tensors=[real, imaginary], dim=-1))[0]
        out = (yield call("reshape", input=out, shape=list(turned.shape)))[0]
    else:
        out = (yield call("cat", tensors=[real, imaginary], dim=-1))[0]
    if size < x.shape[-1]:
        rest = (yield call("narrow", input=x, dim=-1, start=size, length=x.shape[-1] - size))[0]
        out = (yield call("cat", tensors=[out, rest], dim=-1))[0]
    if flat:
        out = (yield call("permute", input=out, dims=[0, 2, 1, 3]))[0]
        out = (yield call("reshape", input=out, shape=list(node.outputs[0].shape)))[0]
    return [out]
