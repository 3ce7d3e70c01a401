"""Makes PyTorch's golden vectors for operators: outputs, and gradients for given cotangents.

    fulgurite ops samples --out CASES                      # writes CASES/cases.json and CASES/tensors.safetensors
    python tests/golden/operators.py CASES [--out FOLDER]  # writes operators.json and operators.safetensors.gz, here by default

Needs torch (CPU) and safetensors. The same cases and the same PyTorch give the same files, byte for byte. What is written is
described in runtime/testing/src/golden.rs, which reads it.

A case:

    {"id": "gelu/f32/0", "op": "gelu", "torch": "nn.functional.gelu", "digest": "8c4f...",
     "args": {"input": {"tensor": "gelu/f32/0/input"}, "approximate": "tanh"},
     "grad": {"cotangents": ["gelu/f32/0/d0"], "inputs": ["input"]}}

The function is that of `op` in `OPERATORS`, else that of `torch` in `FUNCTIONS`, else the one of that name under `torch.`;
"Tensor.NAME" is the method, called on the argument `input`. A value is {"tensor": KEY}, {"dtype": "float32"}, {"number": "inf" |
"-inf" | "nan"}, a number, a boolean, a string, null, or a list of values. `grad` may be missing. It has a cotangent for each
floating-point output, in order; its inputs are arguments, or items of them: "tensors.0".
"""

import argparse
import gzip
import json
import math
import re
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch.optim.adamw import adamw as adamw_step

sys.path.insert(0, str(Path(__file__).parent))
import liger  # noqa: E402

VERSION = 1


class CaseError(Exception):
    """A case that does not follow the format: a fault of the exporter, which ends the run."""


# Functions that torch has only as a part of something else, or whose signatures do not take our arguments by name.


def adamw(param, grad, exp_avg, exp_avg_sq, step, lr, beta1, beta2, eps, weight_decay):
    """One AdamW step, `step` counted from 1. Results: weight, first moment, second moment."""
    state = [t.clone() for t in (param, exp_avg, exp_avg_sq)]
    adamw_step(
        [state[0]], [grad], [state[1]], [state[2]], [], [torch.tensor(float(step - 1))],
        foreach=False, capturable=False, differentiable=False, fused=False, amsgrad=False,
        beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps, maximize=False,
    )  # fmt: skip
    return tuple(state)


def optimizer(make, states):
    """One step of an optimizer of torch.optim. `states` are the arguments that it has in its state; an argument that is None is
    none. Results: the parameter, the states."""

    def call(param, grad, lr, step=None, apply=None, **rest):
        if apply is not None and not apply:
            raise RuntimeError("torch has no update that is left out")
        own = {name: rest.pop(name).clone() for name in states if rest.get(name) is not None}
        rest = {name: value for name, value in rest.items() if name not in states}
        param = torch.nn.Parameter(param.clone())
        param.grad = grad.clone()
        stepped = make([param], float(lr), rest)
        stepped.state[param] = {"step": torch.tensor(float(step) - 1 if step is not None else 0.0), **own}
        stepped.step()
        return (param.detach(), *(stepped.state[param][name] for name in own))

    return call


def betas(kind):
    """An optimizer whose two rates have one name."""
    return lambda params, lr, rest: kind(params, lr, betas=(rest.pop("beta1"), rest.pop("beta2")), foreach=False, **rest)


def sgd(step=None, momentum_buffer=None, **arguments):
    """torch has no buffer before the first step, where this one has zeros."""
    make = lambda params, lr, rest: torch.optim.SGD(params, lr, foreach=False, **rest)
    if momentum_buffer is None or float(step) != 1 or bool(momentum_buffer.any()):
        return optimizer(make, ["momentum_buffer"])(step=step, momentum_buffer=momentum_buffer, **arguments)
    made = []
    kept = lambda *given: made.append(make(*given)) or made[0]
    (param,) = optimizer(kept, ["momentum_buffer"])(step=step, **arguments)
    return param, made[0].state[made[0].param_groups[0]["params"][0]]["momentum_buffer"].to(momentum_buffer.dtype)


def rmsprop(grad_avg=None, **arguments):
    """`centered` where there is a mean of gradients."""
    make = lambda params, lr, rest: torch.optim.RMSprop(params, lr, centered=grad_avg is not None, foreach=False, **rest)
    states = ["square_avg", "grad_avg", "momentum_buffer"]
    return optimizer(make, states)(grad_avg=grad_avg, **arguments)


def adafactor(params, lr, rest):
    """`eps` are two numbers."""
    return torch.optim.Adafactor(params, lr, eps=(rest.pop("eps1"), rest.pop("eps2")), foreach=False, **rest)


def muon(param, grad, momentum_buffer, lr, momentum, nesterov, ns_coefficients, ns_steps, eps, weight_decay, apply=None):
    """torch has the products in bf16; here they are in the type of the operands. The rest is compared with torch's."""
    if apply is not None and not apply:
        raise RuntimeError("torch has no update that is left out")
    buffer = momentum_buffer.clone().lerp_(grad, 1 - momentum)
    x = grad.lerp(buffer, momentum) if nesterov else buffer.clone()
    turned = x.shape[0] > x.shape[1]
    x = x.T if turned else x
    x = x / x.norm().clamp(min=eps)
    a, b, c = ns_coefficients
    for _ in range(ns_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    x = x.T if turned else x
    next = param * (1 - float(lr) * weight_decay) - x * (float(lr) * max(1, param.shape[0] / param.shape[1]) ** 0.5)
    own = torch.nn.Parameter(param.clone())
    own.grad = grad.clone()
    rest = dict(momentum=momentum, nesterov=nesterov, ns_coefficients=tuple(ns_coefficients), ns_steps=ns_steps, eps=eps)
    stepped = torch.optim.Muon([own], float(lr), weight_decay=weight_decay, **rest)
    stepped.state[own] = {"momentum_buffer": momentum_buffer.clone()}
    stepped.step()
    assert torch.allclose(own.detach().double(), next.double(), atol=0.02 * float(lr) + 0.01), (own, next)
    return next, buffer


def batch_norm(function, dims, own="training"):
    """The running statistics are results; torch changes its operands."""

    def call(input, running_mean=None, running_var=None, weight=None, bias=None, momentum=0.1, eps=1e-5, **rest):
        running = [running_mean, running_var]
        if rest[own]:
            running = [None if each is None else each.detach().clone() for each in running]
        out = function(input, *running, weight, bias, rest[own], momentum, eps)
        if running_mean is not None and (not rest[own] or input.numel() == 0):
            return out, running_mean, running_var
        wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
        over = dims(input)
        mean, var = wide.mean(over), wide.var(over)
        if own != "training":
            mean, var = mean.mean(0), var.mean(0)
        if running_mean is None:
            return out, mean.to(input.dtype), var.to(input.dtype)
        next = [
            ((1 - momentum) * old.to(wide.dtype) + momentum * new).to(old.dtype)
            for old, new in ((running_mean, mean), (running_var, var))
        ]
        for changed, expected in zip(running, next):
            assert torch.allclose(changed.double(), expected.detach().double(), rtol=0.02, atol=0.02)
        return out, *next

    return call


def embedding_bag(input, weight, offsets=None, per_sample_weights=None, **rest):
    return torch.nn.functional.embedding_bag(input, weight, offsets, per_sample_weights=per_sample_weights, **rest)


def multi_head_attention_forward(**arguments):
    results = torch.nn.functional.multi_head_attention_forward(**arguments)
    return results if arguments["need_weights"] else results[:1]


def var(input, dim=None, correction=None, keepdim=False, unbiased=None):
    """`unbiased` and `correction` are two overloads of torch.var."""
    if unbiased is not None:
        correction = float(unbiased)
    return torch.var(input, dim, correction=1 if correction is None else correction, keepdim=keepdim)


def matmul(input, other, out_dtype=None):
    """PyTorch's product on the CPU has no type of its own for the result: operands are converted, which is exact."""
    return torch.matmul(input, other) if out_dtype is None else torch.matmul(input.to(out_dtype), other.to(out_dtype))


def operands(function):
    """A function of two operands, of which a number stands for a tensor of the type that the number is promoted to."""

    def call(input, other, **rest):
        numbers = [not isinstance(operand, torch.Tensor) for operand in (input, other)]
        dtype = torch.result_type(input, other)
        number = lambda operand, is_number: torch.tensor(operand, dtype=dtype) if is_number else operand
        return function(number(input, numbers[0]), number(other, numbers[1]), **rest)

    return call


def factors(function, commutes=False):
    """As `operands`, of which the second, a factor or divisor, stays a number: torch does not round it to 16 bits."""

    def call(input, other, **rest):
        if commutes and not isinstance(input, torch.Tensor):
            input, other = other, input
        if isinstance(other, torch.Tensor):
            return operands(function)(input, other, **rest)
        return function(input, other, **rest)

    return call


def power(input, other=None, exponent=None):
    """Both operands may be numbers, and the second has a name of its own."""
    second = exponent if other is None else other
    # Of booleans torch has powers of numbers, and none of tensors.
    return torch.pow(input, second) if isinstance(second, bool) else operands(torch.pow)(input, second)


def rms_norm(input, normalized_shape, weight=None, eps=None, offset=0.0, casting="gemma"):
    """torch has neither `offset` nor `casting`: they are composed, as Hugging Face's models do it."""
    if offset == 0.0 and casting == "gemma":
        return torch.nn.functional.rms_norm(input, normalized_shape, weight, eps)
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    dims = [dim - len(normalized_shape) for dim in range(len(normalized_shape))]
    eps = torch.finfo(wide.dtype).eps if eps is None else eps
    rounded = lambda x, rounds: x.to(input.dtype).to(wide.dtype) if rounds else x
    rstd = rounded(torch.rsqrt(wide.pow(2).mean(dims, keepdim=True) + eps), casting == "none")
    normal = rounded(wide * rstd, casting != "gemma")
    return (normal if weight is None else normal * (weight.to(wide.dtype) + offset)).to(input.dtype)


def without_none(function):
    """A function that has no None for what is left out."""
    return lambda **arguments: function(**{name: value for name, value in arguments.items() if value is not None})


def over_dims(function):
    """A primitive reduction: of no dimensions it reduces nothing, where torch reduces all."""
    return lambda input, dims: function(input, dims) if dims else function(input.unsqueeze(0), [0])


def product(input, dims):
    """torch has products over one dimension alone."""
    for dim in sorted(dims, reverse=True):
        input = torch.prod(input, dim)
    return input


def clamp(input, min=-math.inf, max=math.inf):
    """An infinite number is no bound, which torch writes as None."""
    of = lambda bound: None if not isinstance(bound, torch.Tensor) and math.isinf(bound) else bound
    bounds = [of(min), of(max)]
    # A tensor beside a number is no overload of torch.
    if any(isinstance(bound, torch.Tensor) for bound in bounds):
        bounds = [torch.tensor(b) if isinstance(b, (int, float)) else b for b in bounds]
    return torch.clamp(input, *bounds) if bounds != [None, None] else input.clone()


def topk(input, k, dim=-1, largest=True, sorted=True):
    """Of equal elements the first: torch.topk does not say which."""
    if input.ndim == 0:
        return torch.topk(input, k, dim, largest)
    values, indices = torch.sort(input, dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


def losses(function):
    """A loss of class numbers, which torch has as int64 alone."""
    return lambda input, target, **rest: function(input, target if target.is_floating_point() else target.long(), **rest)


def class_losses(
    input,
    target,
    weight=None,
    ignore_index=-100,
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    reduction="none",
):
    """Losses of classes with a cap of the logits and the squared log-sum-exp, of what PyTorch has: in f32 of halves."""
    logits = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    weight = weight if weight is None else weight.to(logits.dtype)
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    options = dict(weight=weight, ignore_index=ignore_index, label_smoothing=label_smoothing)
    plain = torch.nn.functional.cross_entropy(logits, target.long(), reduction="none", **options)
    counts = target != ignore_index
    all = plain + torch.where(counts, lse_square_scale * torch.logsumexp(logits, -1) ** 2, 0.0)
    if reduction != "mean":
        return all.sum() if reduction == "sum" else all
    each = torch.ones_like(all) if weight is None else weight[torch.where(counts, target.long(), 0)]
    return all.sum() / torch.where(counts, each, 0.0).sum()


def scatter_add(input, dim, index, src):
    # Backward wants no more of `src` than is used.
    return torch.scatter_add(input, dim, index, src[tuple(slice(0, extent) for extent in index.shape)])


def positional(function):
    """A function whose parameters have no names, or other ones."""
    return lambda **arguments: function(*arguments.values())


def in_order(function, *names):
    """A function that takes these arguments by position: torch has other names for them, or none. Cases have their
    arguments in the order of the alphabet."""

    def call(**arguments):
        return function(*[arguments.pop(name) for name in names], **arguments)

    return call


def product_of(input, dim=None, keepdim=False, dtype=None):
    """A product of all elements is a function of its own, which keeps no dimensions."""
    if dim is None and keepdim:
        raise NotImplementedError("torch's product of all elements keeps no dimensions")
    return torch.prod(input, dtype=dtype) if dim is None else torch.prod(input, dim, keepdim, dtype=dtype)


def by_tolerances(function):
    """Both tolerances are tensors where one is; negative infinity says that there is no `rtol`."""

    def call(a, atol=0.0, rtol=-math.inf, hermitian=False):
        given = {"atol": atol, "rtol": None if isinstance(rtol, float) and rtol == -math.inf else rtol}
        if any(isinstance(value, torch.Tensor) for value in given.values()):
            given = {name: torch.as_tensor(value, dtype=a.dtype) for name, value in given.items() if value is not None}
        return function(a, hermitian=hermitian, **given)

    return call


def of_triangle(function):
    """Positions in a triangle, on the CPU whatever the device."""
    return lambda row, col, offset=0, dtype=torch.int64, device="cpu": function(row, col, offset=offset, dtype=dtype)


def eye(n, m=None, dtype=None, device="cpu"):
    """`m` has no None."""
    return torch.eye(n, n if m is None else m, dtype=dtype)


def argsort(input, dim=-1, descending=False, stable=False):
    """Of equal elements the first: torch says so of stable orders alone."""
    return torch.argsort(input, dim=dim, descending=descending, stable=True)


def sort(input, dim=-1, descending=False, stable=False):
    """As `argsort`."""
    return torch.sort(input, dim=dim, descending=descending, stable=True)


def kthvalue(input, k, dim=-1, keepdim=False):
    """Of equal elements torch gives the position of any; ours is that of a stable order."""
    found = torch.kthvalue(input, k, dim, keepdim)
    if input.dim() == 0:
        return found
    values, indices = (part.narrow(dim, k - 1, 1) for part in torch.sort(input, dim=dim, stable=True))
    values, indices = (part if keepdim else part.squeeze(dim) for part in (values, indices))
    assert torch.equal(values, found.values)
    return values, indices


def of_matrices(function):
    """torch's linear algebra has matrices by capital letters, and the first has other names still."""
    capitals = {"a": "A", "b": "B", "uplo": "UPLO"}

    def call(**arguments):
        first, *rest = arguments
        return function(arguments[first], **{capitals.get(name, name): arguments[name] for name in rest})

    return call


def settled(vectors, dim):
    """The signs that make the first element of at least 0.4142 of the largest magnitude positive. LAPACK's are open."""
    size = vectors.detach().abs()
    if not size.numel():
        return torch.ones_like(size.sum(dim, keepdim=True))
    first = (size >= 0.4142 * size.amax(dim, keepdim=True)).int().argmax(dim, keepdim=True)
    return vectors.detach().gather(dim, first).sign()


def eigh(a, uplo="L"):
    values, vectors = torch.linalg.eigh(a, UPLO=uplo)
    return values, vectors * settled(vectors, -2)


def svd(a, full_matrices=True):
    u, s, vh = torch.linalg.svd(a, full_matrices=full_matrices)
    signs = settled(vh, -1)
    k = s.shape[-1]
    # Columns of U that belong to no row have signs of their own.
    own = torch.cat([signs[..., :k, 0].unsqueeze(-2), settled(u[..., k:], -2)], -1)
    return u * own, s, vh * signs


def deviation(function):
    """`unbiased` and `correction` are two overloads, and `correction` has no None."""

    def call(input, dim=None, correction=None, keepdim=False, unbiased=None):
        correction = correction if unbiased is None else float(unbiased)
        return function(input, dim, correction=1 if correction is None else correction, keepdim=keepdim)

    return call


def unpacked(function):
    """A function of several tensors, which we give as a list."""

    def call(**arguments):
        name = next(iter(arguments))
        tensors = arguments.pop(name)
        return function(*tensors, **arguments)

    return call


def of_numbers(function):
    """Numbers at distances, on the CPU whatever the device."""
    return lambda device="cpu", **arguments: function(**{k: v for k, v in arguments.items() if v is not None})


def first_positional(function):
    """A function whose first parameter has a name of its own."""
    return lambda **arguments: function(arguments.pop(next(iter(arguments))), **arguments)


def scatter(input, dim, index, src, reduce=None):
    """A number has an overload of its own. Backward wants no more of `src` than is used."""
    how = {} if reduce is None else {"reduce": reduce}
    if not isinstance(src, torch.Tensor):
        return torch.scatter(input, dim, index, src, **how)
    used = src[tuple(slice(0, extent) for extent in index.shape)] if src.dim() else src
    return torch.scatter(input, dim, index, used, **how)


def slice_scatter(input, src, dim=0, start=None, end=None, step=1):
    return torch.slice_scatter(input, src, dim, start, end, step)


def signal_window(name):
    """Windows of a number of elements, which torch calls `M`, on the CPU whatever the device."""
    function = getattr(torch.signal.windows, name)
    return lambda m, device="cpu", **rest: function(m, **without_nones(rest))


def without_nones(arguments):
    return {key: value for key, value in arguments.items() if value is not None}


def periodic_window(name):
    """The older windows, whose numbers have no names where there are several overloads."""
    function = getattr(torch, name)

    def call(window_length, periodic=True, dtype=None, device="cpu", **numbers):
        return function(window_length, periodic, *numbers.values(), dtype=dtype)

    return call


def svd_by_columns(input, some=True, compute_uv=True):
    """`torch.svd`, whose signs are LAPACK's."""
    if not compute_uv:
        return torch.svd(input, some, compute_uv)
    u, s, vh = svd(input, not some)
    return u, s, vh.transpose(-2, -1)


BINARY = ["add", "sub", "maximum", "minimum", "remainder", "logical_and", "logical_or"]
BINARY += ["eq", "ne", "lt", "le", "gt", "ge", "atan2", "gcd"]
BINARY += [f"bitwise_{name}" for name in ("and", "or", "xor", "left_shift", "right_shift")]


def windowed(name):
    """A function of windows; one number in a list is that of all dimensions."""
    function, rank = getattr(torch.nn.functional, name), next((int(c) for c in name if c.isdigit()), 2)

    def call(**arguments):
        arguments = {key: value for key, value in arguments.items() if value is not None}
        dims = arguments["input"].dim() - 2 if name == "interpolate" else rank
        for key, value in arguments.items():
            if isinstance(value, list) and len(value) == 1:
                # torch takes powers of this list.
                arguments[key] = value[0] if name == "lp_pool1d" else value * dims
        if name.startswith("adaptive"):
            extents = arguments["input"].shape[-rank:]
            arguments["output_size"] = [e if s is None else s for s, e in zip(arguments["output_size"], extents)]
        if name == "avg_pool1d" and "divisor_override" in arguments:
            # torch has a divisor for more dimensions only.
            for key, none in (("kernel_size", 1), ("stride", 1), ("padding", 0)):
                if arguments.get(key):
                    arguments[key] = [none, *arguments[key]]
            arguments["input"] = arguments["input"].unsqueeze(-2)
            return torch.nn.functional.avg_pool2d(**arguments).squeeze(-2)
        return function(**arguments)

    return call


WINDOWED = [
    *(f"{kind}{rank}d" for kind in ("avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool", "lp_pool") for rank in (1, 2, 3)),
    *(f"{kind}{rank}d_with_indices" for kind in ("max_pool", "adaptive_max_pool") for rank in (1, 2, 3)),
    *(f"{kind}{rank}d" for kind in ("max_unpool", "conv", "conv_transpose") for rank in (1, 2, 3)),
    "unfold",
    "fold",
    "interpolate",
]

FUNCTIONS = {
    **{f"nn.functional.{name}": windowed(name) for name in WINDOWED},
    **{name: operands(getattr(torch, name)) for name in BINARY},
    "mul": factors(torch.mul, commutes=True),
    "div": factors(torch.div),
    **{name: without_none(getattr(torch, name)) for name in ("amax", "amin", "squeeze")},
    **{f"nn.functional.{name}": losses(getattr(torch.nn.functional, name)) for name in ("cross_entropy", "nll_loss")},
    "nn.functional.scaled_dot_product_attention": without_none(torch.nn.functional.scaled_dot_product_attention),
    "nn.functional.rms_norm": rms_norm,
    "clamp": clamp,
    **{name: operands(getattr(torch, name)) for name in ("fmod", "xlogy")},
    **{f"special.{name}": operands(getattr(torch.special, name)) for name in ("xlog1py", "zeta")},
    "bucketize": in_order(torch.bucketize, "input", "boundaries"),
    "searchsorted": in_order(torch.searchsorted, "sorted_sequence", "input"),
    "pow": power,
    **{name: positional(getattr(torch, name)) for name in ("atleast_1d", "atleast_2d", "atleast_3d")},
    "block_diag": lambda tensors: torch.block_diag(*tensors),
    **{name: of_triangle(getattr(torch, name)) for name in ("tril_indices", "triu_indices")},
    **{f"linalg.{name}": by_tolerances(getattr(torch.linalg, name)) for name in ("pinv", "matrix_rank")},
    "eye": eye,
    "sort": sort,
    "argsort": argsort,
    "kthvalue": kthvalue,
    **{name: deviation(getattr(torch, name)) for name in ("std", "std_mean", "var_mean")},
    **{name: without_none(getattr(torch, name)) for name in ("all", "any", "roll")},
    "ops.prims.convert_element_type": lambda input, dtype: input.to(dtype),
    "where": lambda condition, input, other: torch.where(condition, input, other),
    "scatter_add": scatter_add,
    "topk": topk,
    "index_copy": lambda input, dim, index, source: torch.index_copy(input, dim, index.long(), source),
    "index_add": lambda input, dim, index, src=None, source=None, alpha=1: torch.index_add(
        input, dim, index, source if src is None else src, alpha=alpha
    ),
    "var": var,
    "matmul": matmul,
    "Tensor.type_as": lambda input, other: input.type_as(other),
    "meshgrid": lambda tensors, indexing: torch.meshgrid(*tensors, indexing=indexing),
    **{name: unpacked(getattr(torch, name)) for name in ("chain_matmul", "cartesian_prod", "broadcast_tensors")},
    "einsum": lambda equation, operands: torch.einsum(equation, *operands),
    **{name: of_numbers(getattr(torch, name)) for name in ("linspace", "logspace")},
    **{
        f"linalg.{name}": of_matrices(getattr(torch.linalg, name))
        for name in (
            *("cholesky", "solve", "solve_triangular", "inv", "det", "slogdet", "qr", "eigvalsh", "svdvals", "lu_factor"),
            *("lu", "matrix_exp", "cond"),
        )
    },
    **{
        f"linalg.{name}": of_matrices(getattr(torch.linalg, name))
        for name in (
            *("cholesky_ex", "inv_ex", "solve_ex", "lu_factor_ex", "diagonal", "tensorinv", "matrix_sqrth", "polar"),
        )
    },
    "linalg.vander": lambda x, n=None: torch.linalg.vander(x, N=n),
    "svd": svd_by_columns,
    "lu_solve": in_order(torch.lu_solve, "b", "lu_data", "lu_pivots"),
    "lu_unpack": in_order(torch.lu_unpack, "lu_data", "lu_pivots"),
    "float_power": in_order(torch.float_power, "input", "exponent"),
    "linalg.lu_solve": in_order(torch.linalg.lu_solve, "lu", "pivots", "b"),
    **{f"linalg.{name}": in_order(getattr(torch.linalg, name), "a", "b") for name in ("tensorsolve", "lstsq")},
    "triangular_solve": in_order(torch.triangular_solve, "b", "a"),
    "linalg.cross": without_none(torch.linalg.cross),
    **{
        name: in_order(getattr(torch, name), "input", "indices_or_sections")
        for name in ("hsplit", "vsplit", "dsplit", "tensor_split")
    },
    "isin": lambda elements, test_elements, **rest: torch.isin(elements, test_elements, **rest),
    "gradient": without_none(torch.gradient),
    "Tensor.sum_to_size": lambda input, size: input.sum_to_size(tuple(size)),
    **{
        f"signal.windows.{name}": signal_window(name)
        for name in (
            *("bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming"),
            *("hamming", "hann", "kaiser", "nuttall"),
        )
    },
    **{
        f"{name}_window": periodic_window(f"{name}_window")
        for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")
    },
    **{f"fft.{name}": of_numbers(getattr(torch.fft, name)) for name in ("fftfreq", "rfftfreq")},
    "linalg.eigh": eigh,
    "linalg.svd": svd,
    **{name: of_matrices(getattr(torch, name)) for name in ("cholesky_solve", "cholesky_inverse")},
    **{f"linalg.{name}": first_positional(getattr(torch.linalg, name)) for name in ("norm", "matrix_norm")},
    **{name: without_none(getattr(torch, name)) for name in ("trapezoid", "trapz", "cumulative_trapezoid")},
    "prod": product_of,
    "vander": lambda x, n=None, increasing=False: torch.vander(x, n, increasing),
    "scatter": scatter,
    "slice_scatter": slice_scatter,
    "nn.functional.one_hot": lambda tensor, num_classes: torch.nn.functional.one_hot(tensor, num_classes),
    "optim.AdamW": adamw,
    "nn.functional.batch_norm": batch_norm(
        torch.nn.functional.batch_norm, lambda x: [dim for dim in range(x.ndim) if dim != 1]
    ),
    "nn.functional.instance_norm": batch_norm(
        torch.nn.functional.instance_norm, lambda x: list(range(2, x.ndim)), "use_input_stats"
    ),
    "nn.functional.embedding_bag": embedding_bag,
    "nn.functional.multi_head_attention_forward": multi_head_attention_forward,
}
# Operators that torch does not have, and primitives, which name dimensions their own way.
OPERATORS = {
    **liger.FORMULAS,
    "prims::sum": over_dims(torch.sum),
    "prims::prod": over_dims(product),
    "prims::amax": over_dims(torch.amax),
    "prims::amin": over_dims(torch.amin),
    "class_losses": class_losses,
    "regularized_cross_entropy": class_losses,
    "sgd": sgd,
    "adam": optimizer(betas(torch.optim.Adam), ["exp_avg", "exp_avg_sq"]),
    "adamax": optimizer(betas(torch.optim.Adamax), ["exp_avg", "exp_inf"]),
    "rmsprop": rmsprop,
    "adagrad": optimizer(lambda params, lr, rest: torch.optim.Adagrad(params, lr, foreach=False, **rest), ["sum"]),
    "adadelta": optimizer(
        lambda params, lr, rest: torch.optim.Adadelta(params, lr, foreach=False, **rest), ["square_avg", "acc_delta"]
    ),
    "adafactor": optimizer(adafactor, ["row_var", "col_var", "variance"]),
    "muon": muon,
}
# Inputs that torch has no gradient for.
LOSSES = ("nn.functional.cross_entropy", "nn.functional.nll_loss", "class_losses", "regularized_cross_entropy")
WITHOUT_GRADIENT = {(loss, "weight") for loss in LOSSES}
ENTROPY = "nn.functional.binary_cross_entropy"
WITHOUT_GRADIENT |= {(ENTROPY, "weight"), (f"{ENTROPY}_with_logits", "weight"), (f"{ENTROPY}_with_logits", "pos_weight")}
WITHOUT_GRADIENT |= {("nn.functional.soft_margin_loss", "target")}
RANDOM = {"rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "nn.functional.gumbel_softmax"}
RANDOM |= {"rand_like", "randn_like", "randint_like"}
RANDOM |= {f"Tensor.{name}_" for name in ("exponential", "geometric", "log_normal", "cauchy")}
RANDOM |= {f"nn.functional.{name}" for name in ("dropout", "dropout1d", "dropout2d", "dropout3d")}
RANDOM |= {f"nn.functional.{name}" for name in ("alpha_dropout", "feature_alpha_dropout")}
# Elements of the largest tensor; large samples test what does not depend on PyTorch.
LARGEST = 512


def resolve(case):
    """The callable of a case, taking keyword arguments."""
    if case["op"] in OPERATORS:
        return OPERATORS[case["op"]]
    name = case["torch"]
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    found = torch
    for part in name.split("."):
        if not hasattr(found, part):
            raise LookupError(f"torch has no {name}")
        found = getattr(found, part)
    if name.startswith("Tensor."):
        return lambda input, **arguments: found(input, **arguments)
    return found


# Cases for which PyTorch gives something else: the operator, a pattern of element type and number of the sample, and why.
DIFFERENT = {
    row["op"]: (re.compile(row["cases"]), row["because"])
    for row in json.loads((Path(__file__).parent / "different.json").read_text())
}


def reason_to_skip(case, tensors):
    """Why a case is not given to PyTorch, if it is not."""
    if case["op"] in liger.FUSED and not case["id"].split("/")[1] in ("f32", "f64"):
        return "logits of 16 bits are rounded, which the formula does not say"
    if not case.get("torch") and case["op"] not in OPERATORS:
        return "mirrors no torch function"
    if case.get("torch") in ("empty", "empty_like"):
        return "holds what the memory held"
    if case.get("torch") in RANDOM or case["args"].get("dropout_p"):
        return "draws random numbers"
    if case["op"] == "hardsigmoid" and "/f64/" in case["id"]:
        return "torch has the sixth in the gradient of f64 in f32"
    if case["op"] == "soft_margin_loss" and "/f16/" in case["id"]:
        return "torch's exponential is infinite in f16, where its logarithm is not"
    if case.get("torch") == "nn.functional.layer_norm" and math.prod(case["args"]["normalized_shape"]) == 1:
        return "torch leaves roundings of the mean, which a variance of zero amplifies"

    known = DIFFERENT.get(case["op"])
    if known and known[0].fullmatch(case["id"].split("/", 1)[1]):
        return known[1]
    if case["op"] == "instance_norm" and tensors[case["args"]["input"]["tensor"]].shape[2:].numel() < 4:
        return "the gradient of a row of three numbers nearly cancels, and torch's roundings with it"
    if case["op"] == "pdist" and (tensors[case["args"]["input"]["tensor"]].numel() == 0 or len(tensors[case["args"]["input"]["tensor"]]) < 2):
        return "torch's gradient of no distances ends the process"

    def sizes(value):
        if isinstance(value, list):
            return max(map(sizes, value), default=0)
        return tensors[value["tensor"]].numel() if isinstance(value, dict) and value.get("tensor") in tensors else 0

    return f"has more than {LARGEST} elements" if sizes(list(case["args"].values())) > LARGEST else None


def value_of(value, tensors):
    """A case's argument as Python has it; tensors are copied."""
    if isinstance(value, list):
        return [value_of(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"tensor": str(key), **rest} if not rest:
            if key not in tensors:
                raise CaseError(f"tensors.safetensors has no {key!r}")
            return tensors[key].clone()
        case {"dtype": str(name), **rest} if not rest and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        case {"number": "inf" | "-inf" | "nan" as text, **rest} if not rest:
            return float(text)
    raise CaseError(f"{json.dumps(value)} is no value")


def flatten(result):
    """Results in order: a function may return a tensor, a number or nested tuples."""
    if isinstance(result, (tuple, list)):
        return [tensor for item in result for tensor in flatten(item)]
    return [result if isinstance(result, torch.Tensor) else torch.as_tensor(result)]


def run(case, tensors):
    """Outputs and gradients of one case under their names in the file."""
    case_id, grad = case["id"], case.get("grad") or {}
    # A copy for each place: a function may work in place, and a tensor given twice is two inputs.
    arguments = {name: value_of(value, tensors) for name, value in case["args"].items()}
    arguments.pop("generator", None)
    places = {}
    for name, value in arguments.items():
        places |= {f"{name}.{i}": item for i, item in enumerate(value)} if isinstance(value, list) else {name: value}
    inputs = {}
    for name in grad.get("inputs", []):
        if not isinstance(places.get(name), torch.Tensor):
            raise CaseError(f"`grad.inputs` names {name!r}, which is no tensor argument")
        if (case.get("torch") or case["op"], name) not in WITHOUT_GRADIENT:
            inputs[name] = places[name].requires_grad_()
    outputs = flatten(resolve(case)(**arguments))
    results = {f"{case_id}/out{i}": output for i, output in enumerate(outputs)}
    floating = [output for output in outputs if output.is_floating_point() or output.is_complex()]
    if inputs and any(output.requires_grad for output in floating):
        cotangents = [tensors.get(name) for name in grad.get("cotangents", [])]
        if [(c.shape, c.dtype) if c is not None else None for c in cotangents] != [(o.shape, o.dtype) for o in floating]:
            raise RuntimeError("the cotangents do not fit PyTorch's outputs")
        pairs = [pair for pair in zip(floating, cotangents) if pair[0].requires_grad]
        leaves = list(inputs.values())
        gradients = torch.autograd.grad([pair[0] for pair in pairs], leaves, [pair[1] for pair in pairs], allow_unused=True)
        for name, leaf, gradient in zip(inputs, leaves, gradients):
            results[f"{case_id}/grad/{name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    for name, result in results.items():
        if result.dtype == torch.complex128 or result.is_sparse:
            raise RuntimeError(f"{name} is {result.dtype}, {result.layout}")
    # Of their own storage: safetensors writes no views.
    return {name: result.detach().resolve_conj().clone(memory_format=torch.contiguous_format)
            for name, result in results.items()}


def read_cases(folder):
    """The cases and their tensors, checked as far as they do not concern torch."""
    path = folder / "cases.json"
    try:
        content = json.loads(path.read_text())
        tensors = load_file(folder / "tensors.safetensors")
    except (OSError, ValueError, RuntimeError) as error:
        sys.exit(f"{folder}: {error}")
    except Exception as error:  # the type that safetensors raises is not a public name everywhere
        sys.exit(f"{folder / 'tensors.safetensors'}: {error}")
    if not isinstance(content, dict) or content.get("version") != VERSION or not isinstance(content.get("cases"), list):
        sys.exit(f"{path}: expected a map with version {VERSION} and a list of cases")
    seen = set()
    for index, case in enumerate(content["cases"]):
        kinds = {"id": str, "op": str, "digest": str, "args": dict}
        wrong = [key for key, kind in kinds.items() if not isinstance(case, dict) or not isinstance(case.get(key), kind)]
        if wrong:
            sys.exit(f"{path}: case {index}: {', '.join(wrong)} missing or of the wrong type")
        if case["id"] in seen:
            sys.exit(f"{path}: case {index}: the id {case['id']!r} appears twice")
        seen.add(case["id"])
    return content["cases"], tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, help="folder with cases.json and tensors.safetensors")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    cases, tensors = read_cases(arguments.cases)
    made, skipped, vectors = {}, {}, {}
    for case in sorted(cases, key=lambda case: case["id"]):
        reason = reason_to_skip(case, tensors)
        try:
            results = run(case, tensors) if reason is None else {}
        except CaseError as error:
            sys.exit(f"{arguments.cases / 'cases.json'}: case {case['id']!r}: {error}")
        except Exception as error:  # whatever torch raises for arguments it does not take
            first = (str(error).strip().splitlines() or [""])[0]
            reason = f"{type(error).__name__}: {first}"
            # torch does not know the call: the table of functions is wrong.
            if isinstance(error, TypeError) and "invalid combination of arguments" in first:
                sys.exit(f"case {case['id']!r}: {reason}")
        if reason is None:
            made[case["id"]] = case["digest"]
            vectors |= results
        else:
            skipped.setdefault(reason, []).append(case["id"])

    arguments.out.mkdir(parents=True, exist_ok=True)
    packed = gzip.compress(save(vectors), compresslevel=9, mtime=0)

    def lines(entries):
        return ",\n".join(f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())

    # A case a line, so that a diff shows which ones changed.
    listing = (
        f'{{\n  "version": {VERSION},\n  "torch": {json.dumps(torch.__version__)},\n'
        f'  "cases": {{\n{lines(made)}\n  }},\n  "skipped": {{\n{lines(skipped)}\n  }}\n}}\n'
    )
    for name, content in (("operators.safetensors.gz", packed), ("operators.json", listing.encode())):
        partial = arguments.out / (name + ".partial")
        partial.write_bytes(content)
        partial.replace(arguments.out / name)
    skips = sum(map(len, skipped.values()))
    print(f"{len(made)} cases, {len(vectors)} tensors, {len(packed)} bytes; {skips} skipped")
    for reason, ids in skipped.items():
        print(f"  {reason}: {', '.join(ids[:8])}{', ...' if len(ids) > 8 else ''}")


if __name__ == "__main__":
    main()
