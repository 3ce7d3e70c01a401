"""Operators from the registry: binding of arguments, results, errors, documentation."""

import inspect
import threading
import time

import numpy
import pytest

import fulgurite
from fulgurite import ops


def array(*shape, dtype="float32"):
    return numpy.random.default_rng(0).standard_normal(shape).astype(dtype)


def test_every_operator_has_a_function_with_signature_and_documentation():
    count = 0
    for name, operator in ops.OPERATORS.items():
        place = ops
        for part in name.split("::"):
            place = getattr(place, part)
        assert place.operator is operator and place.__name__ == name.rsplit("::", 1)[-1]
        parameters = inspect.signature(place).parameters
        assert list(parameters) == [param[0] for param in operator.params]
        text = inspect.getdoc(place)
        assert operator.docs.strip().splitlines()[0] in text and "Returns\n-------" in text
        for parameter in parameters:
            assert f"\n{parameter} : " in text
        count += 1
    assert count > 500


def test_arguments_by_position_name_and_default():
    x, w = array(3, 4), array(4)
    expected = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w
    for result in (ops.rms_norm(x, [4], w, 1e-5), ops.rms_norm(x, (4,), weight=w, eps=1e-5),
                   ops.rms_norm(input=x, normalized_shape=4, eps=1e-5, weight=w)):
        assert numpy.allclose(result.numpy(), expected, atol=1e-5)
    without = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + numpy.finfo("float32").eps)
    assert numpy.allclose(ops.rms_norm(x, [4], None).numpy(), without, atol=1e-5)


def test_kinds_of_arguments():
    x = array(2, 3)
    assert ops.sum(x, dim=[0]).shape == (3,) and ops.sum(x, dim=0).shape == (3,) and ops.sum(x).shape == ()
    assert ops.to(x, dtype=numpy.float64).dtype == fulgurite.float64
    assert ops.zeros([2, 3], dtype="int32").tolist() == [[0] * 3] * 2
    assert ops.cat([x, x], 1).shape == (2, 6)
    assert numpy.allclose(ops.gelu(x, approximate="tanh").numpy(), ops.gelu(x).numpy(), atol=1e-2)
    assert ops.add(x, 1).dtype == fulgurite.float32 and ops.add(fulgurite.array([1]), 1.5).dtype == fulgurite.float32
    assert ops.mul(x, numpy.float32(2)).tolist() == (x * 2).tolist()


def test_several_results_are_a_tuple_and_lists_are_lists():
    x = array(4, 6)
    values, indices = ops.topk(x, 2)
    assert values.shape == indices.shape == (4, 2) and indices.dtype == fulgurite.int64
    parts = ops.split(x, 4, 1)
    assert isinstance(parts, list) and [part.shape for part in parts] == [(4, 4), (4, 2)]


def test_prims_and_kernel_symbols_have_their_names():
    x = array(3)
    assert numpy.allclose(ops.prims.exp(x).numpy(), numpy.exp(x), rtol=1e-6)
    assert ops.liger.rope.operator.kind == "liger"
    with pytest.raises(AttributeError, match="did you mean 'softmax'"):
        ops.sofmax
    assert "rms_norm" in dir(ops) and "exp" in dir(ops.prims)


@pytest.mark.parametrize("call, argument, expected", [
    (lambda x: ops.rms_norm(x), "normalized_shape", "needs the argument 'normalized_shape'"),
    (lambda x: ops.rms_norm(x, [4], wieght=x), "wieght", "did you mean 'weight'"),
    (lambda x: ops.rms_norm(x, [4], x, weight=x), "weight", "given twice"),
    (lambda x: ops.rms_norm(x, ["a"]), "normalized_shape", "is list ['a'], expected size[]"),
    (lambda x: ops.rms_norm(x, [4], "w"), "weight", "is str 'w', expected tensor?"),
    (lambda x: ops.rms_norm(2.0, [4]), "input", "is float 2.0, expected tensor"),
    (lambda x: ops.softmax(x, 0, "float31"), None, "float31"),
    (lambda x: ops.gelu(x, "tan"), "approximate", "expected"),
    (lambda x: ops.cat(x), "tensors", "expected tensor[]"),
    (lambda x: ops.cat([x, None]), "tensors", "expected tensor[]"),
    (lambda x: ops.exp(x, x), None, "takes 1 arguments, got 2"),
    (lambda x: ops.sum(x, dim=1.5), "dim", "is float 1.5"),
])
def test_a_wrong_argument_names_operator_argument_expected_and_actual(call, argument, expected):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(array(2, 4))
    assert expected in str(caught.value)
    if isinstance(caught.value, fulgurite.Error):
        assert caught.value.operator and caught.value.argument == argument
        assert f"{__file__}:" in str(caught.value)


def test_a_failing_precondition_names_operator_argument_code_and_line():
    x = fulgurite.from_dlpack(array(2, 4))
    with pytest.raises(fulgurite.Error) as caught:
        ops.rms_norm(x, [5]); line = inspect.currentframe().f_lineno  # noqa: E702
    line = caught.tb.tb_lineno
    error = caught.value
    assert not isinstance(error, TypeError)
    assert (error.operator, error.argument, error.code) == ("rms_norm", "input", "TrailingShape")
    assert "input has shape [2, 4], expected it to end with [5]" in str(error)
    assert str(error).endswith(f"at {__file__}:{line}") and "python/src" not in str(error)


def test_an_error_of_data_is_raised_by_the_call():
    table = fulgurite.from_dlpack(array(4, 2))
    with pytest.raises(fulgurite.Error, match="embedding") as caught:
        ops.embedding(fulgurite.array([1, 9]), table)
    assert caught.value.operator.startswith("embedding") and "9" in str(caught.value)


def test_other_threads_run_while_a_program_does():
    x = fulgurite.from_dlpack(array(700, 700, dtype="float64"))
    ops.matrix_exp(x)
    ticks, stop = [], threading.Event()

    def count():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    began = time.perf_counter()
    ops.matrix_exp(x)
    ended = time.perf_counter()
    stop.set()
    thread.join()
    within = [tick for tick in ticks if began < tick < ended]
    assert ended - began < 0.02 or len(within) >= 3, (ended - began, len(within))


def test_threads_call_the_same_operators():
    x = array(64, 64)
    expected = [ops.softmax(ops.mul(x, float(i)), -1).numpy().copy() for i in range(4)]
    failed = []

    def work(number):
        for _ in range(50):
            found = ops.softmax(ops.mul(x, float(number)), -1).numpy()
            if not numpy.array_equal(found, expected[number]):
                failed.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
