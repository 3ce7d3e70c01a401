"""Executors whose kernels are Python functions: order and refusals, checks of results, and safety."""

import gc
import inspect
import threading
import time
import weakref

import numpy as np
import pytest

import fulgurite
from fulgurite import ArgumentError, Error, Executor, Floating, Meta, Tensor, ops

from declared.activations import squareplus


def array(*shape, dtype="float32"):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.fixture
def executor():
    made = Executor("by_numpy", version="0.1", devices="cpu", arrays="numpy")
    yield made
    made.withdraw()


def softmax(input, dim, dtype):
    e = np.exp(input - input.max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


def of_float32(input, dtype):
    if input.dtype != fulgurite.float32:
        return f"input is {input.dtype}, takes float32"
    return dtype is None


def test_an_executor_runs_what_its_checker_accepts_and_the_next_one_the_rest(executor):
    called = []

    def counted(*arguments):
        called.append(1)
        return softmax(*arguments)

    executor.register_implementation(ops.softmax, counted, checker=of_float32)
    f = fulgurite.jit(lambda x: ops.softmax(x, -1), executors=[executor, "default"])
    x = array(3, 5)
    expected = softmax(x.astype("float64"), -1, None)
    assert np.allclose(f(x).numpy(), expected, atol=1e-6) and called == [1]
    assert ("softmax", "by_numpy") in fulgurite.last_traces(f)["claim"].symbols
    assert "softmax by by_numpy" in fulgurite.explain(f)

    assert np.allclose(f(x.astype("float64")).numpy(), expected) and called == [1]
    assert "not by_numpy: softmax: input is float64, takes float32" in fulgurite.explain(f)

    # It takes part where it is named, in the order of the list.
    h = fulgurite.jit(lambda x: ops.softmax(x, -1))
    assert np.allclose(h(x).numpy(), expected, atol=1e-6) and called == [1]
    other = Executor("by_other", devices="cpu", arrays="numpy")
    try:
        other.register_implementation(ops.softmax, lambda *arguments: softmax(*arguments))
        for first, second in ((executor, other), (other, executor)):
            g = fulgurite.jit(lambda x: ops.softmax(x, -1), executors=[first, second, "default"])
            assert np.allclose(g(x).numpy(), expected, atol=1e-6)
            assert f"softmax by {first}" in fulgurite.explain(g)
        assert called == [1, 1]
    finally:
        other.withdraw()
    # By its name, as the library's executors.
    named = fulgurite.jit(lambda x: ops.softmax(x, -1), executors=["by_numpy", "default"])
    assert np.allclose(named(x).numpy(), expected, atol=1e-6) and called == [1, 1, 1]


def test_functions_may_do_without_arguments_that_are_at_their_defaults(executor):
    executor.register_implementation(ops.gelu, lambda input: np.zeros_like(input))
    executor.register_implementation(ops.sum, np.sum)
    executor.register_implementation(ops.maximum, np.maximum)
    x = array(2, 3)
    for approximate, expected in (("none", 0.0), ("tanh", ops.gelu(x, approximate="tanh").numpy())):
        f = fulgurite.jit(lambda x: ops.gelu(x, approximate=approximate), executors=[executor, "default"])
        assert np.allclose(f(x).numpy(), expected)
    assert "approximate is 'tanh', the kernel has the default, 'none'" in fulgurite.explain(f)
    with pytest.raises(ArgumentError, match="cannot be called with"):
        executor.register_implementation(ops.softmax, lambda input: input)
    # NumPy's ufuncs tell nobody their parameters.
    g = fulgurite.jit(lambda x: ops.maximum(x, -x), executors=[executor, "default"])
    assert np.allclose(g(x).numpy(), np.abs(x)) and "maximum by by_numpy" in fulgurite.explain(g)


def test_a_checker_that_says_no_or_requires_refuses(executor):
    executor.register_implementation(ops.softmax, softmax, checker=lambda input: input.ndim == 2)
    executor.register_implementation(
        ops.relu, lambda input: np.maximum(input, 0),
        checker=lambda input: fulgurite.require(input.ndim == 2, "Rank", f"input has {input.ndim} dimensions") or True)
    f = fulgurite.jit(lambda x: ops.softmax(ops.relu(x), -1), executors=[executor, "default"])
    f(array(5))
    assert "not by_numpy: softmax: its checker says no" in fulgurite.explain(f)
    assert "not by_numpy: relu: input has 1 dimensions" in fulgurite.explain(f)
    f(array(5, 5))
    assert "softmax by by_numpy" in fulgurite.explain(f) and "relu by by_numpy" in fulgurite.explain(f)


@pytest.mark.parametrize("checker, expected", [
    (lambda input: 1 / 0, "raised ZeroDivisionError"), (lambda input: None, "returned NoneType, expected True, False"),
])
def test_a_checker_that_raises_is_an_error_and_no_refusal(executor, checker, expected):
    executor.register_implementation(ops.relu, lambda input: np.maximum(input, 0), checker=checker)
    f = fulgurite.jit(lambda x: ops.relu(x), executors=[executor, "default"])
    with pytest.raises(Error, match=expected) as caught:
        f(array(3))
    assert caught.value.__cause__ is not None and "checker of relu by by_numpy" in str(caught.value)


def symbols(executor):
    """A kernel symbol with two results, and squareplus by it, forward and backward."""

    def with_slope_meta(input: Tensor[Floating], b: float) -> tuple[Tensor, Tensor]:
        return input, input

    def with_slope(input, b):
        root = np.sqrt(input * input + b)
        return (input + root) / 2, (1 + input / root) / 2

    symbol = executor.register_operator(
        "squareplus_with_slope", meta=with_slope_meta, fn=with_slope, results=("out", "slope"),
        dtypes=("float32", "float64"), reference=lambda input, b: with_slope(input, b),
        samples=lambda s: (s.case(s.normal([4, 8]), 4.0), s.case(s.normal([3]), 0.5)))

    def execution(input, b):
        return symbol(input, b)[0]

    def grad(input, b):
        out, slope = symbol(input, b)
        return out, lambda d_out: d_out * slope

    executor.register_implementation(
        squareplus, execution_transform=execution, grad_transform=grad,
        checker=lambda input: input.dtype.name in ("float32", "float64"))
    return symbol


def test_kernel_symbols_run_forward_and_backward(executor):
    symbol = symbols(executor)
    assert symbol.operator.kind == "by_numpy" and symbol.name == "by_numpy::squareplus_with_slope"
    f = fulgurite.jit(lambda x: squareplus(x).sum(), executors=[executor, "default"])
    x = array(4, 3)
    value, pullback = fulgurite.vjp(f, x)
    (gradient,) = pullback(np.ones((), dtype="float32"))
    root = np.sqrt(x * x + 4)
    assert np.isclose(value.item(), ((x + root) / 2).sum(), rtol=1e-5)
    assert np.allclose(gradient.numpy(), (1 + x / root) / 2, atol=1e-6)
    assert ("by_numpy::squareplus_with_slope", "by_numpy") in [
        each for trace in f._vjp_function().stages("forward") for each in trace.symbols]
    # Its owner runs it, whatever the list.
    out, slope = symbol(x, 4.0)
    assert np.allclose(slope.numpy(), (1 + x / root) / 2, atol=1e-6)
    assert fulgurite.testing.check(executor) > 30


@pytest.mark.parametrize("fn, expected", [
    (lambda input: input[:1], r"returned f32\[1\] as result out, its meta says f32\[3\]"),
    (lambda input: input.astype("float64"), r"returned f64\[3\] as result out, its meta says f32\[3\]"),
    (lambda input: (input, input), "returned 2 results, its meta says 1"),
    (lambda input: [], "returned 0 results, its meta says 1"),
    (lambda input: None, "raised"),
    (lambda input: "text", "raised"),
    (lambda input: 1 / 0, "raised ZeroDivisionError: division by zero"),
])
def test_a_result_that_is_no_result_of_the_meta_is_an_error_of_the_operator(executor, fn, expected):
    executor.register_implementation(ops.relu, fn)
    f = fulgurite.jit(lambda x: ops.relu(x), executors=[executor, "default"])
    with pytest.raises(Error, match=expected) as caught:
        f(array(3))
    assert caught.value.operator.startswith("relu") and "the kernel of by_numpy" in str(caught.value)
    assert f"{__file__}:" in str(caught.value)
    if "ZeroDivision" in expected:
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    # The program is as before: another run gives the same.
    with pytest.raises(Error, match=expected):
        f(array(3))


def test_what_ends_the_program_passes_unchanged(executor):
    def interrupted(input):
        raise KeyboardInterrupt

    executor.register_implementation(ops.relu, interrupted)
    f = fulgurite.jit(lambda x: ops.relu(x), executors=[executor, "default"])
    with pytest.raises(KeyboardInterrupt):
        f(array(3))


def test_results_may_be_operands_and_views_of_them(executor):
    executor.register_implementation(ops.relu, lambda input: input)
    executor.register_implementation(ops.flip, lambda input, dims: input[::-1])
    executor.register_implementation(ops.transpose, lambda input, dim0, dim1: input.T)
    f = fulgurite.jit(lambda x: (ops.relu(x), ops.flip(x, [0]), ops.relu(ops.flip(x, [0])) + x),
                      executors=[executor, "default"])
    x = array(3, 4)
    same, flipped, added = f(x)
    assert np.array_equal(same.numpy(), x) and np.array_equal(flipped.numpy(), x[::-1])
    assert np.array_equal(added.numpy(), x[::-1] + x)
    g = fulgurite.jit(lambda x: ops.transpose(ops.relu(x), 0, 1) * 1.0, executors=[executor, "default"])
    assert np.array_equal(g(x).numpy(), x.T)


def test_a_kernel_that_writes_or_keeps_its_operands_changes_nothing(executor):
    kept = []

    def writing(input):
        input += 1
        kept.append(input)
        return input

    executor.register_implementation(ops.relu, writing)
    f = fulgurite.jit(lambda x: (ops.relu(x * 1.0), x * 1.0, x), executors=[executor, "default"])
    x = array(1000)
    before = x.copy()
    for _ in range(3):
        written, other, _ = f(x)
        assert np.array_equal(written.numpy(), before + 1) and np.array_equal(other.numpy(), before)
        assert np.array_equal(x, before)
    assert all(np.array_equal(each, before + 1) for each in kept)


def test_a_kernel_that_borrows_gets_the_memory_of_the_program_and_must_give_it_back(executor):
    kept, seen = [], []

    def borrowing(input):
        seen.append((input.flags.writeable, input.__array_interface__["data"][0]))
        return np.maximum(input, 0)

    executor.register_implementation(ops.relu, borrowing, borrows=True)
    f = fulgurite.jit(lambda x: ops.relu(x), executors=[executor, "default"])
    x = array(64)
    assert np.array_equal(f(x).numpy(), np.maximum(x, 0))
    assert seen == [(False, x.__array_interface__["data"][0])]

    def keeping(input):
        kept.append(input)
        return np.abs(input)

    executor.register_implementation(ops.abs, keeping, borrows=True)
    g = fulgurite.jit(lambda x: ops.abs(x), executors=[executor, "default"])
    with pytest.raises(Error, match="keeps an operand after it returned") as caught:
        g(x)
    assert caught.value.code == "OperandKept"
    kept.clear()

    def raising(input):
        raise ValueError(f"of {len(input)} elements")

    executor.register_implementation(ops.neg, raising, borrows=True)
    h = fulgurite.jit(lambda x: ops.neg(x), executors=[executor, "default"])
    with pytest.raises(Error, match="of 64 elements") as caught:
        h(x)
    frames = [frame for frame, _ in traceback_frames(caught.value.__cause__.__traceback__)]
    assert frames and all("input" not in frame.f_locals for frame in frames)


def traceback_frames(traceback):
    import traceback as of

    return list(of.walk_tb(traceback))


def test_what_a_kernel_used_is_freed(executor):
    alive = []

    def seen(input):
        alive.append(weakref.ref(input))
        return input * 2

    executor.register_implementation(ops.relu, seen)
    f = fulgurite.jit(lambda x: ops.relu(x), executors=[executor, "default"])
    for _ in range(3):
        f(array(100))
    gc.collect()
    assert len(alive) == 3 and all(each() is None for each in alive)


def test_a_kernel_may_call_the_library(executor):
    inner = fulgurite.jit(lambda x: ops.softmax(x, -1))
    executor.register_implementation(ops.relu, lambda input: inner(input * 2.0) + ops.exp(input), arrays="fulgurite")
    f = fulgurite.jit(lambda x: ops.relu(x), executors=[executor, "default"])
    x = array(3, 4)
    expected = softmax(2 * x, -1, None) + np.exp(x)
    assert np.allclose(f(x).numpy(), expected, atol=1e-5)
    # The program that it is a kernel of, too: on the host each run has memory of its own.
    depth = []

    def again(input):
        if len(depth) < 3:
            depth.append(1)
            return g(input)
        return ops.neg(input)

    executor.register_implementation(ops.abs, again, arrays="fulgurite")
    g = fulgurite.jit(lambda x: ops.abs(x), executors=[executor, "default"])
    assert np.array_equal(g(x).numpy(), -x)


def test_threads_run_programs_with_kernels_side_by_side(executor):
    together = threading.Barrier(2, timeout=60)

    def waiting(input):
        # Both threads are in a kernel, and let go of the interpreter's lock.
        together.wait()
        time.sleep(0.002)
        return np.maximum(input, 0)

    executor.register_implementation(ops.relu, waiting)
    f = fulgurite.jit(lambda x: ops.relu(x) * 2.0, executors=[executor, "default"])
    failed = []

    def work(sign):
        x = sign * np.arange(1000, dtype="float32")
        for _ in range(10):
            if not np.array_equal(f(x).numpy(), 2 * np.maximum(x, 0)):
                failed.append(sign)

    threads = [threading.Thread(target=work, args=(sign,), daemon=True) for sign in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed and not any(thread.is_alive() for thread in threads)


def test_declaring_in_one_thread_while_another_compiles():
    stop, failed = threading.Event(), []

    def compiles():
        x = array(4)
        while not stop.is_set():
            try:
                if not np.allclose(fulgurite.jit(lambda x: squareplus(x))(x).numpy(), squareplus(x).numpy()):
                    failed.append("wrong")
            except Exception as error:
                failed.append(error)

    thread = threading.Thread(target=compiles, daemon=True)
    thread.start()
    for i in range(5):
        made = fulgurite.operator(name=f"declared::busy{i}", signature="(input: tensor) -> tensor")(
            lambda input: input * 2.0)
        assert np.allclose(made(array(3)).numpy(), 2 * array(3))
        made.withdraw()
    stop.set()
    thread.join(120)
    assert not failed and not thread.is_alive()


@pytest.mark.parametrize("register, expected", [
    (lambda ex: ex.register_implementation("sofmax", softmax), "no operator is called 'sofmax'"),
    (lambda ex: ex.register_implementation(ops.softmax),
     "has neither fn, cuda, execution_transform nor grad_transform"),
    (lambda ex: ex.register_implementation(ops.softmax, softmax, execution_transform=softmax), "expected one of them"),
    (lambda ex: ex.register_implementation(ops.softmax, lambda input: input),
     "cannot be called with (input, dim, dtype)"),
    (lambda ex: ex.register_implementation(ops.softmax, softmax, arrays="jax"), "arrays is 'jax'"),
    (lambda ex: ex.register_operator("f", fn=softmax), "a kernel symbol needs a meta"),
    (lambda ex: ex.register_operator("f", fn=softmax, meta=softmax), "the parameter 'input' has no annotation"),
    (lambda ex: Executor("by_numpy"), "is registered at"),
    (lambda ex: Executor("liger"), "it is declared by the package"),
    (lambda ex: Executor("two words"), "expected one word"),
    (lambda ex: Executor("elsewhere", devices="tpu"), "no kind of device is called 'tpu'"),
])
def test_a_registration_that_is_wrong_says_so(executor, register, expected):
    with pytest.raises((Error, ValueError)) as caught:
        register(executor)
    assert expected in str(caught.value)
    f = fulgurite.jit(lambda x: ops.softmax(x, -1), executors=[executor, "default"])
    assert np.allclose(f(array(2, 3)).numpy(), softmax(array(2, 3), -1, None), atol=1e-6)


def test_one_operator_has_one_implementation_by_an_executor(executor):
    executor.register_implementation(ops.relu, lambda input: np.maximum(input, 0))
    line = inspect.currentframe().f_lineno - 1
    with pytest.raises(Error, match=f"test_executors.py:{line}") as caught:
        executor.register_implementation(ops.relu, lambda input: input)
    assert "relu by by_numpy" in str(caught.value)


def test_an_executor_of_several_devices_has_a_name_for_each():
    both = Executor("of_both", version="2", devices=("cpu", "cuda"), arrays="numpy")
    try:
        assert both.names == {"cpu": "of_both", "cuda": "of_both_cuda"}
        symbol = both.register_operator(
            "twice", meta=lambda input: input, fn=lambda input: input * 2, signature="(input: tensor) -> tensor")
        both.register_implementation(ops.relu, lambda input: np.maximum(input, 0))
        x = array(3)
        f = fulgurite.jit(lambda x: symbol(ops.relu(x)), executors=[both, "default"])
        assert np.allclose(f(x).numpy(), 2 * np.maximum(x, 0))
        assert "relu by of_both" in fulgurite.explain(f)
        default, others = fulgurite.executors("cuda")
        assert "of_both_cuda" in others and "of_both_cuda" not in default
    finally:
        both.withdraw()
    assert "of_both" not in fulgurite.executors("cpu")[1]
    with pytest.raises(Error, match="of_both"):
        fulgurite.jit(lambda x: ops.relu(x), executors=["of_both", "default"])(array(3))


def test_like_takes_signature_and_meta_of_another_operator(executor):
    symbol = executor.register_operator("relu_like", like=ops.relu, fn=lambda input: np.maximum(input, 0))
    assert symbol.signature == "by_numpy::relu_like(input: tensor) -> tensor"
    assert np.array_equal(symbol(array(3)).numpy(), np.maximum(array(3), 0))
    assert symbol.infer(Meta([2], "float32", "cpu")) == Meta([2], "float32", "cpu")


def test_an_executor_of_the_library_is_an_argument_error_where_it_is_used_wrongly(executor):
    with pytest.raises(ArgumentError, match="expected an operator"):
        executor.register_implementation(3, softmax)


@pytest.mark.parametrize("priority", [-1, 10, 1000])
def test_a_priority_is_before_the_library(priority):
    with pytest.raises(ArgumentError, match="expected 0 to 9"):
        Executor("too_late", priority=priority)
