"""Operators declared in Python: calls, derivatives, errors, and their generated tests."""

import inspect

import numpy as np
import pytest

import fulgurite
from fulgurite import ArgumentError, Error, Floating, Meta, Tensor, ops, require
from fulgurite.testing import tests as generated

from declared import activations
from declared.activations import cube, gated_silu, mean_and_rstd, squareplus

test_operators = fulgurite.testing.generate(activations)


def array(*shape, dtype="float32"):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def failing(operator, template=None):
    """The templates of the generated tests that fail, with the messages."""
    found = {}
    for each in generated(operator):
        if template is None or each.template == template:
            message = each.run()
            if message is not None:
                found.setdefault(each.template, message)
    return found


@pytest.fixture
def declare():
    """Declares operators that are withdrawn at the end."""
    made = []

    def declare(declaration=None, /, **parts):
        made.append(fulgurite.operator(**parts)(declaration))
        return made[-1]

    yield declare
    for each in reversed(made):
        each.withdraw()


def test_a_declared_operator_is_called_traced_and_differentiated():
    x = array(3, 4)
    expected = (x + np.sqrt(x * x + 2)) / 2
    assert np.allclose(squareplus(x, b=2.0).numpy(), expected, atol=1e-6)
    assert np.allclose(squareplus(x, 2).numpy(), expected, atol=1e-6)

    @fulgurite.jit
    def f(x):
        return squareplus(x, 2.0).sum()

    assert np.isclose(f(x).item(), expected.sum(), rtol=1e-5)
    assert ("activations::squareplus", None) in fulgurite.last_traces(f)["acquire"].symbols
    slope = (1 + x / np.sqrt(x * x + 2)) / 2
    assert np.allclose(fulgurite.grad(f)(x).numpy(), slope, atol=1e-5)
    # Its own gradient, not that of its kernel, which has none.
    assert np.allclose(fulgurite.grad(lambda x: cube(x).sum())(x).numpy(), 3 * x * x, atol=1e-4)


def test_several_results_are_a_tuple_with_names():
    mean, rstd = mean_and_rstd(array(2, 8))
    assert mean.shape == rstd.shape == (2, 1)
    assert mean_and_rstd.signature.endswith("-> (mean: tensor, rstd: tensor)")
    metas = mean_and_rstd.infer(Meta([2, 8], "bfloat16", "cpu"))
    assert [meta.dtype.name for meta in metas] == ["bfloat16"] * 2


def test_it_is_found_as_the_operators_of_the_library_are():
    function = ops.activations.squareplus
    assert function.operator is squareplus.operator is ops.OPERATORS["activations::squareplus"]
    assert squareplus.signature == "activations::squareplus(input: tensor, b: float = 4.0) -> tensor"
    assert list(inspect.signature(squareplus).parameters) == ["input", "b"]
    assert "A smooth relu" in squareplus.__doc__ and "input : Array" in squareplus.__doc__
    assert squareplus.operator.kind == gated_silu.operator.kind == "composite" and cube.operator.kind == "prim"
    line = inspect.getsourcelines(activations)[0].index("class squareplus:\n")
    file, _, at = squareplus.operator.declared.rpartition(":")
    assert file == activations.__file__ and int(at) in (line, line + 1)


def test_errors_are_those_of_declared_operators():
    with pytest.raises(ArgumentError, match="argument 'b' is str 'two', expected float") as caught:
        squareplus(array(2), "two")
    assert (caught.value.operator, caught.value.argument) == ("activations::squareplus", "b")
    with pytest.raises(Error, match=r"b is -1.0, expected more than 0") as caught:
        squareplus(array(2), b=-1.0)
    error = caught.value
    assert (error.operator, error.argument, error.code) == ("activations::squareplus", "b", "PositiveB")
    assert str(error).endswith(f"at {__file__}:{caught.tb.tb_lineno}")
    with pytest.raises(Error, match="input has dtype i64, expected a floating-point dtype"):
        squareplus(np.arange(3))


def test_a_name_is_declared_once_and_free_again_when_it_is_withdrawn(declare):
    def doubled(input: Tensor) -> Tensor:
        return input + input

    first = declare(doubled, name="declared::doubled"); line = inspect.currentframe().f_lineno  # noqa: E702
    with pytest.raises(Error) as caught:
        fulgurite.operator(name="declared::doubled")(doubled)
    second = caught.tb.tb_lineno
    # The places are those of the two declarations.
    assert f"test_declared.py:{second}" in str(caught.value) and "declared::doubled" in str(caught.value)
    assert f"registered at {first.operator.declared}" in str(caught.value) and line
    with pytest.raises(Error, match="it is declared at"):
        fulgurite.operator(name="softmax")(doubled)
    other = fulgurite.operator(name="declared::passing")(doubled)
    x = array(2)
    f = fulgurite.jit(lambda x: other(x))
    assert np.allclose(f(x).numpy(), 2 * x)
    other.withdraw()
    assert "declared::passing" not in ops.OPERATORS and not hasattr(ops.declared, "passing")
    again = declare(lambda input: input * 3.0, name="declared::passing", signature="(input: tensor) -> tensor")
    assert np.allclose(again(x).numpy(), 3 * x)


@pytest.mark.parametrize("parts, expected", [
    (dict(decomposition=lambda input: input), "the parameter 'input' has no annotation"),
    (dict(signature="(input: tensr) -> tensor", decomposition=lambda input: input), "'tensr' is no type"),
    (dict(signature="(input: tensor) -> tensor", decomposition=lambda inptu: inptu), "did you mean 'input'"),
    (dict(signature="(input: tensor, b: float) -> tensor", decomposition=lambda input: input), "does not take 'b'"),
    (dict(signature="(input: tensor) -> tensor", refernce=lambda input: input), "did you mean 'reference'"),
    (dict(signature="(input: tensor) -> tensor"), "has neither a decomposition nor a meta"),
    (dict(signature="(input: tensor) -> tensor", fn=lambda input: input), "its kernel needs a meta"),
    (dict(signature="(input: tensor) -> tensor", meta=3), "meta is 3, expected a function"),
    (dict(signature="(input: tensor) -> tensor", decomposition=lambda input: input,
          tolerances=[{"factor": 2.0}]), "'templates' and 'reason'"),
])
def test_a_declaration_that_cannot_be_read_says_what_is_wrong(parts, expected):
    with pytest.raises((Error, ValueError)) as caught:
        fulgurite.operator(type("wrong", (), parts))
    assert expected in str(caught.value)
    assert not any(name.endswith("::wrong") for name in ops.OPERATORS)


def test_annotations_are_the_types_of_the_registry(declare):
    from typing import Literal

    def many(
        input: Tensor[Floating], mask: "Tensor | None", others: list[Tensor], scale: fulgurite.Operand,
        dims: list[int] = [0, -1], mode: Literal["none", "mean"] = "none", to: fulgurite.dtype | None = None,
        factor: float | int = 2, count: fulgurite.Size = 1, eps: "float | None" = None,
    ) -> list[Tensor]:
        return [input]

    assert declare(many, name="declared::many").signature == (
        "declared::many(input: tensor, mask: tensor?, others: tensor[], scale: tensor|number, dims: int[] = [0, -1], "
        'mode: "none"|"mean" = "none", to: dtype? = none, factor: number = 2, count: size = 1, eps: float? = none) '
        "-> tensor[]")


def raising(where):
    class wrong:
        def signature(input: Tensor[Floating]) -> Tensor: ...

        def meta(input):
            if where == "meta":
                raise KeyError("in the meta")
            return input

        def decomposition(input):
            if where == "decomposition":
                raise KeyError("in the decomposition")
            return input * 2.0

        def grad(input):
            if where == "grad":
                raise KeyError("in the grad")

            def pullback(d_out):
                if where == "pullback":
                    raise KeyError("in the pullback")
                return {"shape": (1, 2), "name": {"inptu": d_out}, "none": {}}.get(where, d_out * 2.0)

            return input * 2.0, pullback

    return wrong


@pytest.mark.parametrize("where", ["meta", "decomposition", "grad", "pullback"])
def test_what_a_rule_raises_is_an_error_with_its_cause(declare, where):
    wrong = declare(raising(where), name="declared::raising")
    f = fulgurite.value_and_grad(lambda x: wrong(x).sum())
    with pytest.raises(Error) as caught:
        f(array(3))
    causes, error = [], caught.value
    while error is not None:
        causes.append(error)
        error = error.__cause__
    assert isinstance(causes[-1], KeyError) and f"in the {where}" in str(causes[-1])
    assert "declared::raising" in str(caught.value) and f"raised KeyError: 'in the {where}'" in str(caught.value)
    assert caught.value.code == "PythonException"


@pytest.mark.parametrize("where, expected", [
    ("shape", "2 gradients for the tensors input"), ("name", "a gradient of 'inptu'"),
    ("none", "no gradient of 'input'"),
])
def test_a_pullback_that_gives_something_else_is_an_error(declare, where, expected):
    wrong = declare(raising(where), name="declared::raising")
    with pytest.raises(Error, match=expected):
        fulgurite.grad(lambda x: wrong(x).sum())(array(3))


def test_preconditions_are_those_of_a_meta_beside_them(declare):
    def samples(s):
        s.case(s.normal([4, 8]), s.normal([8]))

    def errors(e):
        e.case("SameType", "expected one type", e.normal([2]), e.of("float64", [2]))

    def requires(a, b):
        require(a.dtype == b.dtype, "SameType", f"a is {a.dtype}, b is {b.dtype}, expected one type")

    def decomposition(a: Tensor[Floating], b: Tensor[Floating]) -> Tensor:
        return a * b

    operator = declare(decomposition, name="tests::both", requires=requires, meta=lambda a: a.like(),
                       reference=lambda a, b: a * b, samples=samples, errors=errors)
    assert failing(operator) == {}


def test_messages_of_generated_tests_have_no_places_of_this_package(declare):
    def double(input: Tensor[Floating]) -> Tensor:
        return input * 2.0

    operator = declare(double, name="tests::two_gradients", grad=lambda input: (input * 2.0, lambda d: (d, d)),
                       reference=lambda input: input * 2.0, samples=lambda s: s.elementwise_unary((-3.0, 3.0)))
    with pytest.raises(AssertionError, match="there are 2 gradients for the tensors input") as raised:
        fulgurite.testing.check(operator)
    assert "python/src" not in str(raised.value)


def test_a_meta_that_the_decomposition_contradicts_is_an_error(declare):
    class wrong:
        def signature(input: Tensor) -> Tensor: ...

        def meta(input):
            return input.like(shape=[7])

        def decomposition(input):
            return input * 2.0

    with pytest.raises(Error, match="declared::wrong"):
        declare(wrong, name="declared::wrong")(array(3))


class right:
    """Twice the input."""

    dtypes = ("float32", "float64")

    def signature(input: Tensor[Floating], factor: float = 2.0) -> Tensor: ...

    def meta(input):
        return input

    def decomposition(input, factor):
        return input * factor

    def grad(input, factor):
        return input * factor, lambda d_out: d_out * factor

    def reference(input, factor):
        return input * factor

    def samples(s):
        s.case(s.normal([4, 8]))
        s.case(s.normal([0, 3]))
        s.case(s.normal([]), factor=0.5)


def changed(**parts):
    return type("right", (), {**vars(right), **parts})


def test_the_declaration_that_is_right_passes(declare):
    assert failing(declare(right, name="declared::right")) == {}


def test_samples_are_asked_for(declare):
    without = {name: value for name, value in vars(right).items() if name != "samples"}
    assert "has no samples" in failing(declare(type("right", (), without), name="declared::right"))["samples"]


@pytest.mark.parametrize("parts, template", [
    (dict(reference=lambda input, factor: input * factor * 1.01), "consistency"),
    (dict(grad=lambda input, factor: (input * factor, lambda d_out: d_out * 2.5)), "gradient"),
    (dict(grad=lambda input, factor: (input * (factor + 0.5), lambda d_out: d_out * factor)), "gradient"),
    (dict(decomposition=lambda input, factor: input * 2.0), "samples"),
    (dict(requires=lambda factor: require(factor < 9, "Factor", "factor is large")), "errors"),
    (dict(errors=lambda e: e.case("Factor", "large", e.normal([2]))), "errors"),
])
def test_a_wrong_rule_makes_a_generated_test_fail(declare, parts, template):
    parts = {"errors": lambda e: None, **parts}
    if template == "samples":
        parts["reference"] = lambda input, factor: input * 2.0
        parts["grad"] = None
    found = failing(declare(changed(**parts), name="declared::right"))
    assert template in found, found
    assert "declared::right" in found[template] and "test_declared.py:" in found[template]


def test_a_wrong_meta_makes_a_generated_test_fail(declare):
    wrong = changed(meta=lambda input: input.like(dtype="float64"))
    found = failing(declare(wrong, name="declared::right"))
    assert {"meta", "decomposition"} & set(found), found


@pytest.mark.parametrize("fn, template", [
    (lambda input, factor: input * (factor + 1e-2), "consistency"),
    (lambda input, factor: np.abs(input) * factor, "consistency"),
    (lambda input, factor: input * factor + np.random.random() * 1e-4, "determinism"),
    (lambda input, factor: input[:1] * factor, "consistency"),
])
def test_a_wrong_kernel_makes_a_generated_test_fail(declare, fn, template):
    executor = fulgurite.Executor("wrong_kernel", priority=3, devices="cpu", arrays="numpy")
    try:
        operator = declare(right, name="declared::right")
        executor.register_implementation(operator, fn)
        found = [each.name for each in generated(operator, executor)
                 if each.executor == "wrong_kernel" and each.run() is not None]
        assert any(f"::{template}::" in name for name in found), found
    finally:
        executor.withdraw()


def test_an_operator_that_is_declared_again_is_tested_again():
    for factor, fails in ((1.0, False), (1.5, True), (1.0, False)):
        operator = fulgurite.operator(name="declared::again")(changed(reference=scaled(factor)))
        assert bool(failing(operator, "consistency")) == fails
        operator.withdraw()


def scaled(by):
    return lambda input, factor: input * factor * by


def test_generate_makes_tests_of_pytest():
    function = fulgurite.testing.generate(squareplus)
    (mark,) = function.pytestmark
    names = [parameter.id for parameter in mark.args[1]]
    assert "activations::squareplus::consistency::cpu::f32" in names and len(names) > 20
    assert any("::gradient::" in name for name in names) and any("::layout::" in name for name in names)
    with pytest.raises(Error, match="no test is generated"):
        fulgurite.testing.generate(np)
    assert fulgurite.testing.check(gated_silu) > 20
