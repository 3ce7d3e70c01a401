"""Messages to people who write Python have no words of Rust."""

import numpy as np
import pytest

import fulgurite
from fulgurite import Executor, Floating, Tensor

#: What only an author in Rust would write.
RUST = ("with(", "fn ", "crate", "use ", "::<", "waive(", "`trace(", "#[", "--no-graph")


def in_python(text: str) -> str:
    assert not any(word in text for word in RUST), text
    return text


def told(declaration, template: str = "samples") -> str:
    """What a generated test says of a declaration."""
    try:
        failed = [each.run() for each in fulgurite.testing.tests(declaration)
                  if each.template == template and each.skip is None]
    finally:
        declaration.withdraw()
    return in_python(next(each for each in failed if each is not None))


def declared(**parts):
    def signature(input: Tensor[Floating], b: float = 4.0) -> Tensor: ...

    return fulgurite.operator(lambda input, b: input * b, name="words::scaled", signature=signature, **parts)


def test_samples_that_are_missing():
    assert "write `s.case(s.normal([4, 8]))` in `samples(s)`" in told(declared())
    empty = declared(samples=lambda s: None, reference=lambda input, b: input)
    assert "write `s.case(s.normal([4, 8]))`" in told(empty)


def test_an_argument_that_decides_about_nothing():
    def decomposition(input, b):
        return input * 2.0

    parts = dict(name="words::twice", signature="(input: tensor<floating>, b: float = 4.0) -> tensor",
                 samples=lambda s: s.case(s.normal([4, 8]), b=2.0), reference=lambda input: input * 2)
    assert '`waive = {"b": "reason"}`' in told(fulgurite.operator(decomposition, **parts))
    text = told(declared(samples=parts["samples"], reference=lambda input, b: input * b, waive={"b": "no reason"}))
    assert "'b' is waived, but it decides about a result; remove it from `waive`" in text


def test_a_reference_that_is_missing():
    class no_reference:
        name = "words::no_reference"

        def signature(input: Tensor[Floating]) -> Tensor: ...

        def meta(input):
            return input

        def samples(s):
            s.case(s.normal([4, 8]))

    assert "has neither a `reference` nor a decomposition" in told(fulgurite.operator(no_reference))


def test_executors_that_are_not_there():
    with pytest.raises(fulgurite.Error) as raised:
        fulgurite.jit(lambda x: x + 1, executors=["lieger"])(np.ones(2, "float32"))
    assert "no executor is called 'lieger', did you mean 'liger'? There are: " in in_python(str(raised.value))
    with pytest.raises(fulgurite.Error) as raised:
        fulgurite.jit(lambda x: x + 1, executors=["zzzzzzzz"])(np.ones(2, "float32"))
    assert "no executor is called 'zzzzzzzz'. There are: " in in_python(str(raised.value))


def test_an_implementation_without_a_gradient():
    executor, operator = Executor("words", arrays="numpy", devices="cpu"), declared()
    try:
        executor.register_implementation(operator, lambda input, b: input * b)
        slope = fulgurite.grad(lambda x: operator(x).sum())
        f = fulgurite.jit(lambda x: slope(x), executors=[executor, "default"])
        f(np.ones((2, 3), "float32"))
        assert "its implementation has no `grad_transform`, so it takes no part" in in_python(fulgurite.explain(f))
    finally:
        executor.withdraw()
        operator.withdraw()
