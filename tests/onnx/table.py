"""How ONNX's operators are called here: a table of names for those that are one call, and functions for the others.

`shapes.py`, `windows.py`, `layers.py` and `attention.py` beside this file have the functions of their subjects. A function takes a
`Node` and yields calls, `call("NAME", argument=value, ...)`, each of which gives a list of arrays; it returns the results of the node. Arrays come from the node and from calls alone: nothing is computed by numpy but shapes, positions and numbers
that are attributes here. `Refused` says why a node cannot be called.
"""

import ml_dtypes
import numpy as np

# Element types that are here, and how safetensors calls them.
DTYPES = {"bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16"}
DTYPES |= {"uint32": "U32", "int32": "I32", "int64": "I64", "float16": "F16", "bfloat16": "BF16"}
DTYPES |= {"float32": "F32", "float64": "F64"}


class Refused(Exception):
    """The node cannot be called; the text says why."""


class Dtype(str):
    """An element type as an argument."""


class Node:
    """A node of one test: operator, attributes, version of the operator set, and inputs, of which some may be None."""

    def __init__(self, op, attributes, version, inputs, outputs):
        self.op, self.attributes, self.version, self.inputs, self.outputs = op, attributes, version, inputs, outputs

    def __getitem__(self, i):
        return self.inputs[i] if i < len(self.inputs) else None

    def get(self, name, default=None):
        return self.attributes.get(name, default)

    def needs(self, **values):
        """Refuses attributes with other values than these."""
        for name, value in values.items():
            if self.get(name, value) != value:
                raise Refused(f"{self.op} with {name}={self.get(name)!r}")

    def axes(self, at):
        """The axes of a reduction: an input of newer operator sets, an attribute of older ones."""
        given = self[at].tolist() if self[at] is not None else self.get("axes")
        return list(given) if given else None


def call(name, **arguments):
    return name, arguments


def one(name, *parameters, **renamed):
    """A node that is one call: its inputs by the operator's parameters, its attributes by other names."""

    def build(node):
        arguments = dict(zip(parameters, node.inputs))
        for own, theirs in renamed.items():
            if node.get(theirs) is not None:
                arguments[own] = node.get(theirs)
        if len(node.inputs) > len(parameters):
            raise Refused(f"{node.op} of {len(node.inputs)} inputs")
        return (yield call(name, **arguments))

    return build


UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "HardSwish": "hardswish", "Identity": "positive", "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg",
    "Not": "logical_not", "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
BINARY = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le", "Mul": "mul", "Or": "logical_or",
    "Sub": "sub", "Xor": "logical_xor",
}  # fmt: skip
TABLE = {name: one(own, "input") for name, own in UNARY.items()}
TABLE |= {name: one(own, "input", "other") for name, own in BINARY.items()}
TABLE |= {
    "Celu": one("celu", "input", alpha="alpha"),
    "Det": one("linalg_det", "a"),
    "Elu": one("elu", "input", alpha="alpha"),
    "Gelu": one("gelu", "input", approximate="approximate"),
    "LeakyRelu": one("leaky_relu", "input", negative_slope="alpha"),
    "MatMul": one("matmul", "input", "other"),
    "Where": one("where", "condition", "input", "other"),
}


def node(*names):
    """Enters a function for these operators."""

    def enter(function):
        TABLE.update(dict.fromkeys(names, function))
        return function

    return enter


def is_float(array):
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def to(array, dtype):
    """An array in another element type; as it is where it has that."""
    name = np.dtype(dtype).name if not isinstance(dtype, str) else dtype
    if array.dtype.name == name:
        return array
    return (yield call("to", input=array, dtype=Dtype(name)))[0]


def positive(axis, rank):
    return axis + rank if axis < 0 else axis


# Arithmetic.


@node("Div")
def div(node):
    mode = None if is_float(node[0]) else "trunc"
    out = yield call("div", input=node[0], other=node[1], **({"rounding_mode": mode} if mode else {}))
    return out


@node("Mod")
def mod(node):
    name = "fmod" if node.get("fmod", 0) else "remainder"
    return (yield call(name, input=node[0], other=node[1]))


@node("Pow")
def power(node):
    out = (yield call("pow", input=node[0], exponent=node[1]))[0]
    # The result has the type of the base.
    return [(yield from to(out, node[0].dtype))]


@node("BitShift")
def shift(node):
    name = "bitwise_left_shift" if node.get("direction") == "LEFT" else "bitwise_right_shift"
    return (yield call(name, input=node[0], other=node[1]))


@node("Max", "Min")
def extremum(node):
    out = node[0]
    for other in node.inputs[1:]:
        out = (yield call("maximum" if node.op == "Max" else "minimum", input=out, other=other))[0]
    return [out]


@node("Sum", "Mean")
def total(node):
    out = node[0]
    for other in node.inputs[1:]:
        out = (yield call("add", input=out, other=other))[0]
    return [out] if node.op == "Sum" else (yield call("div", input=out, other=len(node.inputs)))


@node("Clip")
def clip(node):
    low, high = (node[i] if node[i] is not None else node.get(name) for i, name in ((1, "min"), (2, "max")))
    bounds = {}
    # A bound of no dimensions is a number, so that both bounds have one form.
    for name, bound in (("min", low), ("max", high)):
        if bound is not None:
            bounds[name] = bound.item() if isinstance(bound, np.ndarray) else bound
    return (yield call("clamp", input=node[0], **bounds))


@node("HardSigmoid")
def hard_sigmoid(node):
    scaled = (yield call("mul", input=node[0], other=node.get("alpha", 0.2)))[0]
    moved = (yield call("add", input=scaled, other=node.get("beta", 0.5)))[0]
    return (yield call("clamp", input=moved, min=0.0, max=1.0))


@node("Selu")
def selu(node):
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813232421875)
    curved = (yield call("elu", input=node[0], alpha=alpha))[0]
    return (yield call("mul", input=curved, other=gamma))


@node("Shrink")
def shrink(node):
    bias, lambd = node.get("bias", 0.0), node.get("lambd", 0.5)
    above = (yield call("gt", input=node[0], other=lambd))[0]
    below = (yield call("lt", input=node[0], other=-lambd))[0]
    less = (yield call("sub", input=node[0], other=bias))[0]
    more = (yield call("add", input=node[0], other=bias))[0]
    rest = (yield call("where", condition=below, input=more, other=0.0))[0]
    return (yield call("where", condition=above, input=less, other=rest))


@node("Swish")
def swish(node):
    gate = (yield call("sigmoid", input=(yield call("mul", input=node[0], other=node.get("alpha", 1.0)))[0]))[0]
    return (yield call("mul", input=node[0], other=gate))


@node("ThresholdedRelu")
def thresholded(node):
    return (yield call("threshold", input=node[0], threshold=node.get("alpha", 1.0), value=0.0))


@node("PRelu")
def prelu(node):
    # A slope broadcasts here over the second dimension alone.
    slopes = (yield call("mul", input=node[0], other=node[1]))[0]
    below = (yield call("lt", input=node[0], other=0.0))[0]
    return (yield call("where", condition=below, input=slopes, other=node[0]))


@node("IsInf")
def is_infinite(node):
    both = (node.get("detect_negative", 1), node.get("detect_positive", 1))
    if both == (0, 0):
        raise Refused("IsInf of neither sign")
    return (yield call({(1, 1): "isinf", (1, 0): "isneginf", (0, 1): "isposinf"}[both], input=node[0]))


@node("Cast", "CastLike")
def cast(node):
    dtype = node.outputs[0].dtype.name
    if dtype not in DTYPES:
        raise Refused(f"element type {dtype}")
    return [(yield from to(node[0], dtype))]


@node("Trilu")
def trilu(node):
    k = int(node[1]) if node[1] is not None else 0
    return (yield call("triu" if node.get("upper", 1) else "tril", input=node[0], diagonal=k))


# Reductions.

REDUCTIONS = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "amax", "ReduceMin": "amin", "ReduceLogSumExp": "logsumexp"}


@node(*REDUCTIONS, "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")
def reduced(node):
    axes, keep = node.axes(1), bool(node.get("keepdims", 1))
    if axes is None and node.get("noop_with_empty_axes", 0):
        axes = []
    x, rank = node[0], node[0].ndim
    before = {"ReduceL1": "abs", "ReduceL2": "square", "ReduceSumSquare": "square"}.get(node.op)
    if before:
        x = (yield call(before, input=x))[0]
    dims = list(range(rank)) if axes is None else axes
    if x.dtype == bool and node.op in ("ReduceMax", "ReduceMin") and dims:
        return (yield call("any" if node.op == "ReduceMax" else "all", input=x, dim=dims, keepdim=keep))
    if not dims:
        # Each element is a sum of its own.
        out = x
    elif node.op == "ReduceProd":
        out = x
        for dim in sorted((positive(axis, rank) for axis in dims), reverse=True):
            out = (yield call("prod", input=out, dim=dim, keepdim=keep))[0]
    else:
        out = (yield call(REDUCTIONS.get(node.op, "sum"), input=x, dim=dims, keepdim=keep))[0]
    after = {"ReduceL2": "sqrt", "ReduceLogSum": "log"}.get(node.op)
    if after:
        out = (yield call(after, input=out))[0]
    return [(yield from to(out, node[0].dtype))]


@node("ArgMax", "ArgMin")
def position(node):
    axis, keep, last = node.get("axis", 0), bool(node.get("keepdims", 1)), node.get("select_last_index", 0)
    x = node[0]
    if last:
        x = (yield call("flip", input=x, dims=[axis]))[0]
    out = (yield call("argmax" if node.op == "ArgMax" else "argmin", input=x, dim=axis, keepdim=keep))[0]
    return [out] if not last else (yield call("sub", input=x.shape[axis] - 1, other=out))


@node("CumSum", "CumProd")
def scanned(node):
    x, axis = node[0], positive(int(node[1]), node[0].ndim)
    name, unit = ("cumsum", 0) if node.op == "CumSum" else ("cumprod", 1)
    if node.get("reverse", 0):
        x = (yield call("flip", input=x, dims=[axis]))[0]
    if node.get("exclusive", 0):
        kept = (yield call("narrow", input=x, dim=axis, start=0, length=x.shape[axis] - 1))[0]
        first = (yield call("narrow", input=x, dim=axis, start=0, length=1))[0]
        first = (yield call("full_like", input=first, fill_value=unit))[0]
        x = (yield call("cat", tensors=[first, kept], dim=axis))[0]
    out = (yield call(name, input=x, dim=axis))[0]
    out = yield from to(out, node[0].dtype)
    return (yield call("flip", input=out, dims=[axis])) if node.get("reverse", 0) else [out]


@node("TopK")
def topk(node):
    largest = bool(node.get("largest", 1))
    return (yield call("topk", input=node[0], k=int(node[1].item()), dim=node.get("axis", -1), largest=largest, sorted=True))


@node("Softmax", "LogSoftmax")
def softmax(node):
    name = "softmax" if node.op == "Softmax" else "log_softmax"
    return (yield call(name, input=node[0], dim=node.get("axis", -1)))


@node("Hardmax")
def hardmax(node):
    axis = positive(node.get("axis", -1), node[0].ndim)
    at = (yield call("argmax", input=node[0], dim=axis))[0]
    marks = (yield call("one_hot", tensor=at, num_classes=node[0].shape[axis]))[0]
    marks = (yield call("movedim", input=marks, source=[-1], destination=[axis]))[0]
    return [(yield from to(marks, node[0].dtype))]


@node("LpNormalization")
def lp_normal(node):
    return (yield call("normalize", input=node[0], p=float(node.get("p", 2)), dim=[node.get("axis", -1)]))


@node("BitCast")
def bits(node):
    raise Refused("the bits of a number in another element type")
