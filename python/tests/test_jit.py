"""Python functions that are traced and compiled: trees, errors, derivatives, traces."""

import dataclasses
import signal
import subprocess
import sys
import threading

import numpy
import pytest

import fulgurite
from fulgurite import ops


def array(*shape, seed=0):
    return fulgurite.from_dlpack(numpy.random.default_rng(seed).standard_normal(shape).astype("float32"))


@dataclasses.dataclass
class Layer:
    weight: object
    bias: object
    name: str = "layer"


def test_trees_come_and_go():
    def f(layers, x, scale=1.0, *, flag=True):
        for layer in layers:
            assert layer.name == "layer"
            x = ops.linear(x, layer.weight, layer.bias)
        return {"x": x * scale, "layers": [dataclasses.replace(layer, weight=layer.weight + 1) for layer in layers],
                "flag": flag, "pair": (x.sum(), None)}

    jitted = fulgurite.jit(f)
    layers = [Layer(array(3, 3, seed=i), array(3, seed=i + 9)) for i in range(2)]
    x = array(2, 3)
    found = jitted(layers, x, scale=2.0)
    expected = x.numpy()
    for layer in layers:
        expected = expected @ layer.weight.numpy().T + layer.bias.numpy()
    assert numpy.allclose(found["x"].numpy(), expected * 2, atol=1e-5)
    assert found["flag"] is True and found["pair"][1] is None and isinstance(found["pair"], tuple)
    assert isinstance(found["layers"][1], Layer)
    assert numpy.array_equal(found["layers"][1].weight.numpy(), layers[1].weight.numpy() + 1)
    text = str(fulgurite.last_traces(jitted)["acquire"])
    assert "trace f for cpu (layers.0.weight: f32[3, 3], .bias: f32[3], layers.1.weight" in text, text
    assert "result.x" in text and "result.pair.0" in text or ".pair.0" in text


def test_compiled_once_for_each_form():
    f = fulgurite.jit(lambda x, n: x * n)
    x, y = array(2), array(3)
    f(x, 2), f(x, 2), f(x, 3), f(y, 2), f(x, 2)
    assert f.compiles == 3
    square = numpy.ones((4, 4), dtype="float32")
    f(square, 2), f(square.T, 2), f(square[:, ::-1], 2)
    assert f.compiles == 6
    assert f(x, 2.0).tolist() == f(x, 2).tolist() and f.compiles == 7
    # Equal in Python, and not the same: these compile apart.
    assert f(x, True).tolist() == x.tolist() and f.compiles == 8
    assert (1 / f(fulgurite.array([1.0]), -0.0)).item() == -numpy.inf
    assert (1 / f(fulgurite.array([1.0]), 0.0)).item() == numpy.inf


def test_other_libraries_arrays_are_arguments():
    x = numpy.ones(3, dtype="float32")
    assert fulgurite.jit(lambda x: x + 1)(x).tolist() == [2.0] * 3


def test_an_exception_of_the_function_is_that_exception():
    class Own(Exception):
        pass

    def f(x):
        ops.exp(x)
        raise Own("mine")

    with pytest.raises(Own, match="mine"):
        fulgurite.jit(f)(array(2))
    # Nothing is left behind.
    assert fulgurite.jit(lambda x: x + 1)(fulgurite.array([1.0])).tolist() == [2.0]


def test_an_operators_error_has_the_line_in_the_function():
    def f(x):
        y = x * 2
        return ops.rms_norm(y, [7])

    with pytest.raises(fulgurite.Error) as caught:
        fulgurite.jit(f)(array(2, 4))
    line = f.__code__.co_firstlineno + 2
    assert str(caught.value).endswith(f"at {__file__}:{line}") and caught.value.operator == "rms_norm"


def test_a_handled_error_leaves_the_trace_as_it_was():
    def f(x):
        try:
            x = ops.reshape(x, [5])
        except fulgurite.Error:
            x = x + 1
        try:
            x = ops.split(x, -3, 0)[0]
        except fulgurite.Error:
            x = x * 2
        return x

    assert fulgurite.jit(f)(fulgurite.array([1.0, 2.0])).tolist() == [4.0, 6.0]


def test_what_cannot_be_traced_is_refused_by_name():
    outside = array(2)
    with pytest.raises(fulgurite.ArgumentError, match="add: argument 'other' is an array.*pass the array"):
        fulgurite.jit(lambda x: x + outside)(array(2))
    with pytest.raises(TypeError, match="truth of a traced value"):
        fulgurite.jit(lambda x: x if x.sum() > 0 else -x)(array(2))
    with pytest.raises(fulgurite.Error, match="returns an array at 'result.1'"):
        fulgurite.jit(lambda x: (x, outside))(array(2))
    with pytest.raises(fulgurite.ArgumentError, match="'x.a b' is a set|'x.a_b' is a set"):
        fulgurite.jit(lambda x: x)({"a b": {1}})
    kept = []
    fulgurite.jit(lambda x: kept.append(x) or x)(array(2))
    with pytest.raises(fulgurite.Error, match="trace"):
        ops.exp(kept[0])
    with pytest.raises(fulgurite.Error, match="another trace"):
        fulgurite.jit(lambda x: x + kept[0])(array(2))


def test_operators_without_tensors_are_lines_of_the_trace():
    f = fulgurite.jit(lambda x: x + ops.arange(0, 3))
    assert f(fulgurite.array([1.0, 1.0, 1.0])).tolist() == [1.0, 2.0, 3.0]
    assert any(name == "arange" for name, _ in fulgurite.last_traces(f)["acquire"].symbols)


def test_a_compiled_function_in_a_traced_one_is_a_part_of_it():
    inner = fulgurite.jit(lambda x: x * 3)
    outer = fulgurite.jit(lambda x: inner(x) + 1)
    assert outer(fulgurite.array([1.0])).tolist() == [4.0] and inner.compiles == 0


def test_gradients_are_those_of_the_formula():
    def loss(params, x):
        hidden = ops.tanh(x @ params["w"])
        return (hidden * hidden).sum(), {"hidden": hidden}

    params, x = {"w": array(3, 2)}, array(4, 3, seed=1)
    (value, aux), grads = fulgurite.value_and_grad(loss, has_aux=True)(params, x)
    w, v = params["w"].numpy().astype("float64"), x.numpy().astype("float64")
    hidden = numpy.tanh(v @ w)
    expected = v.T @ (2 * hidden * (1 - hidden**2))
    assert numpy.allclose(grads["w"].numpy(), expected, atol=1e-5)
    assert numpy.allclose(aux["hidden"].numpy(), hidden, atol=1e-6)
    assert numpy.isclose(value.item(), (hidden**2).sum(), atol=1e-5)
    grads, aux = fulgurite.grad(loss, has_aux=True)(params, x)
    assert numpy.allclose(grads["w"].numpy(), expected, atol=1e-5)
    by_x = fulgurite.grad(lambda p, x: loss(p, x)[0], argnums=(0, 1))(params, x)
    assert numpy.allclose(by_x[1].numpy(), 2 * hidden * (1 - hidden**2) @ w.T, atol=1e-5)


def test_derivatives_nest_and_are_parts_of_compiled_functions():
    cube = lambda x: (x * x * x).sum()  # noqa: E731
    x = fulgurite.array([2.0, -1.0])
    assert fulgurite.grad(cube)(x).tolist() == [12.0, 3.0]
    assert fulgurite.grad(lambda x: fulgurite.grad(cube)(x).sum())(x).tolist() == [12.0, -6.0]
    step = fulgurite.jit(lambda x: x - 0.5 * fulgurite.grad(cube)(x))
    assert step(x).tolist() == [-4.0, -2.5]


def test_wrong_derivatives_are_refused():
    x = array(3)
    with pytest.raises(fulgurite.Error, match="zero-dimensional"):
        fulgurite.grad(lambda x: x * 2)(x)
    with pytest.raises(fulgurite.ArgumentError, match="argnums has 1"):
        fulgurite.grad(lambda x: x.sum(), argnums=1)(x)
    with pytest.raises(fulgurite.ArgumentError, match="expected \\(loss, aux\\)"):
        fulgurite.grad(lambda x: x.sum(), has_aux=True)(x)
    with pytest.raises(ZeroDivisionError):
        fulgurite.grad(lambda x: 1 / 0)(x)


def test_forward_and_backward_are_two_programs():
    def f(x, w):
        y = ops.tanh(x @ w)
        return {"y": y, "n": y.sum()}

    f = fulgurite.jit(f)
    x, w = array(2, 3), array(3, 4)
    value, pullback = fulgurite.vjp(f, x, w)
    y = numpy.tanh(x.numpy() @ w.numpy())
    cotangent = array(2, 4, seed=5)
    dx, dw = pullback({"y": cotangent, "n": None})
    inner = cotangent.numpy() * (1 - y * y)
    assert numpy.allclose(dx.numpy(), inner @ w.numpy().T, atol=1e-5)
    assert numpy.allclose(dw.numpy(), x.numpy().T @ inner, atol=1e-5)
    dx, _ = pullback({"y": None, "n": fulgurite.array(2.0)})
    assert numpy.allclose(dx.numpy(), (2 * (1 - y * y)) @ w.numpy().T, atol=1e-5)
    assert "cotangent" in str(fulgurite.last_backward_traces(f)[0]) and value["y"].shape == (2, 4)
    with pytest.raises(fulgurite.Error, match="expected f32\\[2, 4\\]"):
        pullback({"y": array(3), "n": None})
    with pytest.raises(fulgurite.ArgumentError, match="no cotangent 'result.n'"):
        pullback({"y": None})


def test_explain_says_what_to_call_where_nothing_was_compiled():
    @fulgurite.jit
    def loss(x):
        return (x * x).sum()

    for function, call in ((loss, r"loss\(\.\.\.\)"), (fulgurite.jit(lambda x: x), r"function\("),
                           (fulgurite.value_and_grad(loss), "loss")):
        with pytest.raises(fulgurite.Error, match=f"nothing was compiled of .* yet; call .* first, {call}") as raised:
            fulgurite.explain(function)
        assert raised.value.code == "NotCalled"


def test_traces_are_text_html_and_names():
    f = fulgurite.jit(lambda x: ops.softmax(x, -1))
    f(array(2, 3))
    traces = fulgurite.last_traces(f)
    assert traces[0].stage == "acquire" and traces["claim"].target == "cpu"
    text = str(traces[-1])
    assert str(fulgurite.Trace(text)) == text
    assert any(executor == "cpu" for _, executor in traces[-1].symbols)
    assert "<iframe" in traces._repr_html_() and "<iframe" in traces[0]._repr_html_()
    assert "by cpu" in fulgurite.explain(f)
    with pytest.raises(KeyError, match="there are: acquire"):
        traces["claimed"]
    with pytest.raises(fulgurite.ArgumentError, match="expected what jit returned"):
        fulgurite.last_traces(len)
    with pytest.raises(fulgurite.Error, match="trace text"):
        fulgurite.Trace("no trace")


def test_executors_are_named_in_order():
    x = array(4)
    assert fulgurite.executors("cpu")[0] and "liger" in sum(fulgurite.executors("cuda"), [])
    f = fulgurite.jit(lambda x: x * 2 + 1, executors=["cpu"])
    assert numpy.allclose(f(x).numpy(), x.numpy() * 2 + 1)
    assert {executor for _, executor in fulgurite.last_traces(f)[-1].symbols} <= {"cpu", None}
    with pytest.raises(fulgurite.Error, match="no executor is called 'cup'.*did you mean 'cpu'"):
        fulgurite.jit(lambda x: x, executors=["cup"])


def test_transforms_in_python():
    seen = []

    def twice(trace):
        seen.append(trace.stage)
        return fulgurite.Trace(str(trace).replace("exp(", "sqrt("))

    f = fulgurite.jit(lambda x: ops.prims.exp(x), transforms=[twice])
    assert f(fulgurite.array([4.0])).tolist() == [2.0] and seen
    assert "twice" in [trace.stage for trace in fulgurite.last_traces(f)]
    failing = fulgurite.transforms.at("before_claim", lambda trace: 1 / 0, "failing")
    with pytest.raises(ZeroDivisionError):
        fulgurite.jit(lambda x: x + 1, transforms=[failing])(array(2))
    with pytest.raises(TypeError):
        fulgurite.jit(lambda x: x + 1, transforms=[lambda trace: "text"])(array(2))
    with pytest.raises(ValueError, match="expected one of start"):
        fulgurite.transforms.at("end", twice)


def test_autocast():
    f = fulgurite.jit(lambda x, w: x @ w, autocast="bfloat16")
    f(array(2, 2), array(2, 2))
    assert "bf16[2, 2]" in str(fulgurite.last_traces(f)["autocast"])
    assert "bf16" not in str(fulgurite.last_traces(f)["acquire"])


def test_threads_compile_and_call_at_the_same_time():
    calls = []

    def f(x):
        calls.append(threading.get_ident())
        return ops.softmax(x * 2, -1)

    jitted, x = fulgurite.jit(f), array(8, 8)
    expected, failed = ops.softmax(x * 2, -1).numpy(), []

    def work():
        for _ in range(20):
            if not numpy.allclose(jitted(x).numpy(), expected, atol=1e-6):
                failed.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(calls) == 1


def test_ctrl_c_ends_a_loop_of_calls():
    program = (
        "import fulgurite, numpy, signal\n"
        # Jobs in the background of a shell ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "x = fulgurite.from_dlpack(numpy.ones((64, 64)))\n"
        "fulgurite.ops.matmul(x, x)\n"
        "try:\n"
        "    print('ready', flush=True)\n"
        "    while True: fulgurite.ops.matmul(x, x)\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "stopped\n"


def test_a_transform_that_returns_another_program_is_refused():
    other = fulgurite.jit(lambda x, y: x + y)
    other(array(2), array(2))
    foreign = fulgurite.last_traces(other)["acquire"]
    with pytest.raises(fulgurite.Error):
        fulgurite.jit(lambda x: x * 2, transforms=[lambda trace: foreign])(array(3))


def test_numbers_of_a_traced_value_are_asked_for_outside():
    for name in ("item", "tolist", "numpy"):
        with pytest.raises(TypeError, match=f"{name} of a traced value is not known before it is computed"):
            fulgurite.jit(lambda x: getattr(x, name)())(array(3))


def test_one_name_of_an_executor_is_no_list_of_letters():
    f = fulgurite.jit(lambda x: x * 2.0, executors="default")
    assert f(array(3)).shape == (3,)


def test_stages_where_nothing_was_compiled():
    with pytest.raises(KeyError, match="there is no program"):
        fulgurite.Traces()["claim"]


def test_a_function_of_pytorch_says_what_computes_traced_values():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for f, expected in ((lambda x: torch.sin(x), "use fulgurite.ops.sin,"),
                        (lambda x: torch.nn.functional.gelu(x), "use fulgurite.ops.gelu,"),
                        (lambda x: torch.cat([x, x]), "use fulgurite.ops.cat,"),
                        (lambda x: torch.fft.fft(x), "use operators of fulgurite.ops,")):
        with pytest.raises(fulgurite.ArgumentError, match=f"a function that fulgurite.jit traces: {expected}"):
            fulgurite.jit(f)(array(3))
    for f in (lambda x: torch.ones(3) + x, lambda x: x + torch.ones(3)):
        with pytest.raises(fulgurite.ArgumentError, match="pass the array to that function as an argument"):
            fulgurite.jit(f)(array(3))
    import fulgurite.torch as of_torch

    found = of_torch.jit(lambda x: torch.sin(x))(torch.ones(3))
    torch.testing.assert_close(found, torch.ones(3).sin())
