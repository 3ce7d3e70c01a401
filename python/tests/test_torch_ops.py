"""`torch.ops.fulgurite.*`: samples of every operator pass `torch.library.opcheck`.

The first sample of each operator and element type; `FULGURITE_OPCHECK=all` takes every one, `FULGURITE_OPCHECK=2/5` the
second fifth of them. `tests/opcheck.json` lists the operators with samples that do not pass, with the reason; one that
passes is an error as well.
"""

import collections
import functools
import json
import os
import pathlib
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import samples  # noqa: E402
from torch.testing._internal.optests import aot_autograd_check as check_under_aot  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402
from fulgurite.torch._library import mixed  # noqa: E402

KNOWN = pathlib.Path(__file__).with_name("opcheck.json")
REGISTERED = torch.ops.fulgurite


def overload(operator, arguments):
    """The overload that takes these arguments."""
    packet = getattr(REGISTERED, operator.name.replace("::", "_"))
    numbers = [name for (name, kind, *_), value in zip(operator.params, arguments)
               if kind == "operand" and not isinstance(value, torch.Tensor)]
    words = [name for (name, _, of, *_), value in zip(operator.params, arguments)
             if isinstance(value, str) and mixed(of)]
    return getattr(packet, f"{words[0]}_str" if words else "_".join((*numbers, "Scalar")) if numbers else "default")


def chosen(cases):
    mode = os.environ.get("FULGURITE_OPCHECK", "")
    if "/" in mode:
        part, parts = map(int, mode.split("/"))
        return cases[part - 1 :: parts]
    if mode == "all":
        return cases
    first = {}
    for case in cases:
        first.setdefault(case["id"].rsplit("/", 1)[0], case)
    kept = {}
    # Every operator, and of its element types one after another.
    for i, (name, case) in enumerate(first.items()):
        kept.setdefault((case["op"], i % 3 == 0), case)
    return list(kept.values())


def check(loaded, case):
    """What of `opcheck` a case fails: names of its tests and messages."""
    operator = fulgurite.ops.OPERATORS[case["op"]]
    given = {name: loaded.value(value) for name, value in case["args"].items()}
    arguments = [given.get(name, default) for name, _, _, _, _, default in operator.params]
    for path in (case.get("grad") or {}).get("inputs", ()):
        name, _, index = path.partition(".")
        tensor = given[name][int(index)] if index else given[name]
        tensor.requires_grad_(True)
    called = overload(operator, arguments)
    found = torch.library.opcheck(called, tuple(arguments), raise_exception=False)
    wrong = {test: str(result) for test, result in found.items() if result != "SUCCESS"}
    if list(wrong) == ["test_aot_dispatch_dynamic"]:
        # `opcheck` has it that NaN is no NaN, and adds the sums of all results to that of the first, which are no
        # floating-point numbers where that is an integer's. The same test, in which NaN is one, of results that begin
        # with floating-point numbers.
        def floating_first(*values):
            results = called(*values)
            if isinstance(results, torch.Tensor):
                return results
            return sorted(results, key=lambda each: not (each.is_floating_point() or each.is_complex()))

        try:
            equal = functools.partial(torch.testing.assert_close, equal_nan=True)
            check_under_aot(floating_first, tuple(arguments), {}, True, assert_equals_fn=equal, check_gradients="auto",
                            copy_inputs=True)
        except Exception as error:  # noqa: BLE001: whatever it raises is the failure
            return {"test_aot_dispatch_dynamic": str(error)}
        return {}
    return wrong


def test_every_operator_is_registered_or_refused_for_a_reason():
    refused = fulgurite.torch.REFUSED
    for name in fulgurite.ops.OPERATORS:
        registered = hasattr(REGISTERED, name.replace("::", "_"))
        assert registered != (name in refused), name
    reasons = collections.Counter(reason.split(":")[0] for reason in refused.values())
    assert len(refused) < 70, reasons


def test_samples_pass_opcheck():
    path, reason = samples.folder()
    if path is None:
        pytest.skip(reason)
    loaded = samples.Samples(path)
    known = json.loads(KNOWN.read_text())
    counts, failed, passed = collections.Counter(), {}, collections.Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in chosen(loaded.cases):
            if case["op"] in fulgurite.torch.REFUSED:
                counts["refused"] += 1
                continue
            try:
                wrong = check(loaded, case)
            except Exception as error:  # noqa: BLE001: whatever a case raises is its failure
                wrong = {"call": f"{type(error).__name__}: {error}"}
            counts["failed" if wrong else "passed"] += 1
            if wrong:
                failed.setdefault(case["op"], {})[case["id"]] = wrong
            else:
                passed[case["op"]] += 1
    print(f"\nopcheck: {dict(counts)} of {sum(counts.values())} samples")
    out = os.environ.get("FULGURITE_OPCHECK_OUT")
    if out:
        pathlib.Path(out).write_text(json.dumps(failed, indent=1))
    new = {op: cases for op, cases in failed.items() if op not in known}
    assert not new, json.dumps({op: list(cases.items())[:2] for op, cases in list(new.items())[:10]}, indent=1)[:6000]
    whole = os.environ.get("FULGURITE_OPCHECK") == "all"
    unexpected = [op for op in known if whole and op not in failed]
    assert not unexpected, f"passes, take it out of {KNOWN.name}: {unexpected}"


class AsGiven:
    """Samples whose arguments are there already."""

    @staticmethod
    def value(value):
        return value


def test_a_list_of_results_may_begin_with_integers():
    tensors = [torch.arange(3, dtype=torch.int32)[:, None], torch.arange(4, dtype=torch.int32), torch.randn(())]
    case = {"op": "broadcast_tensors", "args": {"tensors": tensors}, "grad": {"inputs": ["tensors.2"]}}
    assert check(AsGiven, case) == {}


def test_gradients_are_those_of_pytorch():
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    ours = torch.autograd.grad(REGISTERED.rms_norm(x, [4], w, 1e-5).square().sum(), (x, w))
    theirs = torch.autograd.grad(torch.nn.functional.rms_norm(x, [4], w, 1e-5).square().sum(), (x, w))
    for a, b in zip(ours, theirs):
        assert torch.allclose(a, b, atol=1e-5)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        first, = torch.autograd.grad(REGISTERED.exp(x).sum(), x, create_graph=True)
        first.sum().backward()


def gradient_cases():
    """Calls with arguments of every kind, in ours and in PyTorch, and the tensors that gradients are of."""
    x, y, w = (torch.randn(3, 4, requires_grad=True) for _ in range(3))
    frozen, rows = torch.randn(3, 4), torch.tensor([2, 0, 2])
    F = torch.nn.functional
    return {
        "an optional tensor that is there": (REGISTERED.rms_norm(x, [4], w[0], 1e-5),
                                             F.rms_norm(x, [4], w[0], 1e-5), (x, w)),
        "one that is not": (REGISTERED.rms_norm(x, [4]), F.rms_norm(x, [4]), (x,)),
        "a number": (REGISTERED.mul(x, 3.0), x * 3.0, (x,)),
        "one of two tensors": (REGISTERED.mul(frozen, x), frozen * x, (x,)),
        "the same tensor twice": (REGISTERED.mul(x, x), x * x, (x,)),
        "a list": (REGISTERED.cat([x, frozen, y], 1), torch.cat([x, frozen, y], 1), (x, y)),
        "integers": (REGISTERED.embedding(rows, x), F.embedding(rows, x), (x,)),
        "a result of integers": (REGISTERED.max(x, 1), x.max(1), (x,)),
        "a list of results": (REGISTERED.split(x, 2), x.split(2), (x,)),
    }


@pytest.mark.parametrize("case", gradient_cases())
def test_gradients_of_arguments_of_every_kind(case):
    ours, theirs, wrt = gradient_cases()[case]
    ours, theirs = ([each] if isinstance(each, torch.Tensor) else list(each) for each in (ours, theirs))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert torch.allclose(a, b, atol=1e-6) and a.requires_grad == b.requires_grad == b.is_floating_point()
    for results in (ours, theirs):
        kept = [each for each in results if each.requires_grad]
        weights = [torch.linspace(1, 2, each.numel()).reshape(each.shape) for each in kept]
        results[:] = torch.autograd.grad(sum((a * b).sum() for a, b in zip(kept, weights)), wrt)
    for a, b in zip(ours, theirs):
        assert torch.allclose(a, b, atol=1e-5)


def test_what_watches_the_dispatcher_sees_operators_with_gradients():
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            seen.append(function)
            return function(*arguments, **(keywords or {}))

    x = torch.randn(3, 4, requires_grad=True)
    before = REGISTERED.exp(x)
    with Watch():
        REGISTERED.exp(x).sum().backward()
        before.sum().backward()
    assert seen.count(REGISTERED.exp.default) == 1 and seen.count(REGISTERED.exp_vjp.default) == 2
    assert torch.allclose(x.grad, 2 * x.exp())


def test_a_call_with_gradients_comes_to_the_kernel_at_once(monkeypatch):
    # What another redispatch would cost is more than the call itself.
    x = torch.randn(3, 4, requires_grad=True)
    monkeypatch.setattr(fulgurite.torch._library._Call, "below_autograd", None)
    result = REGISTERED.rms_norm(x, [4])
    result.sum().backward()
    assert x.grad is not None and REGISTERED.cat([x, x], 0).requires_grad


def test_results_share_no_memory_with_arguments():
    x = torch.randn(3, 4)
    for result in (REGISTERED.positive(x), REGISTERED.permute(x, [1, 0]), *REGISTERED.split(x, 2)):
        before = x.clone()
        result.fill_(7.0)
        assert torch.equal(x, before) and result.is_contiguous()
    a, b = REGISTERED.split(x, 2)
    a.fill_(1.0)
    assert not torch.equal(b, torch.ones_like(b))


def test_in_compiled_functions_without_a_graph_break():
    @torch.compile(fullgraph=True, backend="aot_eager")
    def f(x, w):
        return REGISTERED.softmax(REGISTERED.add(x, 1.0), -1) @ w

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2)
    out = f(x, w)
    assert torch.allclose(out, torch.softmax(x + 1, -1) @ w, atol=1e-6)
    out.sum().backward()
    assert x.grad is not None and f(torch.randn(5, 4), w).shape == (5, 2)


def test_errors_name_operator_and_argument():
    with pytest.raises(fulgurite.Error, match="rms_norm: input has shape"):
        REGISTERED.rms_norm(torch.randn(3, 4), [5])
    with pytest.raises(fulgurite.Error, match="type"):
        REGISTERED.exp(torch.zeros(3, dtype=torch.uint64))


def test_products_of_nothing():
    # PyTorch's tensors without elements have no memory.
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        start, left, right = torch.ones(2, 2), torch.empty(0, 2, 3), torch.empty(0, 3, 2)
        start, left, right = (each.to(dtype) for each in (start, left, right))
        assert torch.equal(REGISTERED.addbmm(start, left, right), start)
        assert REGISTERED.matmul(left, right).shape == (0, 2, 2)


def test_arrays_and_tensors_share_memory():
    tensor = torch.arange(6.0).reshape(2, 3).to(torch.bfloat16)
    array = fulgurite.from_dlpack(tensor)
    assert array.dtype == fulgurite.bfloat16 and torch.from_dlpack(array).data_ptr() == tensor.data_ptr()
    assert array.tolist() == tensor.tolist()
    assert fulgurite.ops.add(tensor, 1).tolist() == (tensor + 1).tolist()


def test_forward_mode_is_an_error_and_no_zero():
    x, tangent = torch.randn(3), torch.randn(3)
    with pytest.raises(fulgurite.Error, match="forward-mode differentiation"):
        torch.func.jvp(torch.ops.fulgurite.exp, (x,), (tangent,))
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(fulgurite.Error, match="forward-mode differentiation"):
            torch.ops.fulgurite.exp(torch.autograd.forward_ad.make_dual(x, tangent))
    assert torch.allclose(torch.ops.fulgurite.exp(x), x.exp())
