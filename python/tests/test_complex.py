"""Complex numbers: made, taken apart, computed with, and refused."""

import numpy
import pytest

import fulgurite
from fulgurite import ops

NUMBERS = numpy.array([[1 + 2j, -3j, 0.5], [2, -1 - 1j, 0.25 + 4j]])


def test_numbers_come_and_go():
    made = fulgurite.array(NUMBERS.tolist())
    assert made.dtype == fulgurite.dtype("complex64") and made.shape == (2, 3)
    assert made.dtype.is_complex and not made.dtype.is_floating_point
    assert made.tolist() == NUMBERS.tolist() and numpy.array_equal(made.numpy(), NUMBERS.astype("complex64"))
    wide = fulgurite.from_dlpack(NUMBERS)
    assert wide.dtype.name == "complex128" and numpy.shares_memory(wide.numpy(), NUMBERS)
    assert fulgurite.array([1, 2j], dtype="complex128").tolist() == [1, 2j]
    assert fulgurite.array([1.5]).to("complex64").tolist() == [1.5 + 0j]
    with pytest.raises(fulgurite.Error, match="a complex number, which"):
        fulgurite.array([1j], dtype="float32")


@pytest.mark.parametrize("name, of", [
    ("conj", numpy.conj), ("real", numpy.real), ("imag", numpy.imag), ("angle", numpy.angle), ("abs", numpy.abs),
    ("neg", numpy.negative), ("exp", numpy.exp), ("sqrt", numpy.sqrt), ("log", numpy.log), ("acos", numpy.arccos),
    ("sin", numpy.sin), ("tanh", numpy.tanh), ("sum", numpy.sum), ("mean", numpy.mean), ("t", numpy.transpose),
    ("isfinite", numpy.isfinite), ("square", numpy.square),
])
def test_functions_are_numpys(name, of):
    found = getattr(ops, name)(fulgurite.from_dlpack(NUMBERS)).numpy()
    expected = of(NUMBERS)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert numpy.allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_arithmetic_is_numpys():
    x, other = fulgurite.from_dlpack(NUMBERS), numpy.linspace(-1, 2, 6).reshape(2, 3)
    y = fulgurite.from_dlpack(other)
    for found, expected in [
        (x + y, NUMBERS + other), (y - x, other - NUMBERS), (x * x, NUMBERS * NUMBERS), (y / x, other / NUMBERS),
        (x * 2, NUMBERS * 2), (x * 2j, NUMBERS * 2j), (1j - y, 1j - other), (1.5 - x, 1.5 - NUMBERS),
        (fulgurite.jit(lambda x: x / 4j)(x), NUMBERS / 4j), (x @ ops.t(x), NUMBERS @ NUMBERS.T),
        (x == x, NUMBERS == NUMBERS), (x[1, 1:], NUMBERS[1, 1:]), (ops.complex(y, y), other + 1j * other),
        (ops.polar(y, y), other * numpy.exp(1j * other)), (ops.pow(x, 3), NUMBERS**3),
        (ops.pow(x, x), NUMBERS**NUMBERS), (ops.pow(x, y), NUMBERS**other), (ops.pow(2.5, x), 2.5**NUMBERS),
        (ops.prod(x, 1), NUMBERS.prod(1)),
        (ops.einsum("ij,kj->ik", [x, x]), NUMBERS @ NUMBERS.T), (ops.diagonal(x), numpy.diagonal(NUMBERS)),
        (ops.gather(x, 1, fulgurite.array([[2, 0], [1, 1]])), NUMBERS[[[0], [1]], [[2, 0], [1, 1]]]),
        (ops.take(x, fulgurite.array([5, -6])), NUMBERS.ravel()[[5, 0]]),
    ]:
        assert found.numpy().dtype == expected.dtype and numpy.allclose(found.numpy(), expected, rtol=1e-12)


def test_the_gradient_of_a_real_loss():
    loss = fulgurite.grad(lambda x: ops.sum(ops.real(x * ops.conj(x))))
    assert numpy.allclose(loss(fulgurite.from_dlpack(NUMBERS)).numpy(), 2 * NUMBERS)


@pytest.mark.parametrize("name, at, derivative", [
    # On cuts and beside them, where the parts of roots are magnitudes that have no slope at zero.
    ("sqrt", -4 + 0j, -0.25j), ("sqrt", complex(-4, -0.0), 0.25j), ("sqrt", 2j, 0.25 - 0.25j),
    ("rsqrt", -4 + 0j, -0.0625j), ("acos", 2 + 0j, -0.5773502691896258j), ("acosh", 0.5 + 0j, -1.1547005383792515j),
    ("asin", 1 + 1j, 0.5688644810057831 + 0.3515775842541429j), ("sgn", 0j, 0), ("cos", 1e-25j, -1e-25j),
])
def test_the_derivative_on_the_axes(name, at, derivative):
    x = fulgurite.from_dlpack(numpy.array([at]))
    for part, factor in [(ops.real, 1), (ops.imag, 1j)]:
        found = fulgurite.grad(lambda x: ops.sum(part(getattr(ops, name)(x))))(x).numpy()
        assert numpy.allclose(found, numpy.conj(derivative) * factor, rtol=1e-12, atol=0), (part, found)


@pytest.mark.parametrize("name, of", [
    ("exp", numpy.exp), ("sqrt", numpy.sqrt), ("sin", numpy.sin), ("cos", numpy.cos), ("sinh", numpy.sinh),
    ("cosh", numpy.cosh), ("asin", numpy.arcsin), ("acos", numpy.arccos), ("atan", numpy.arctan),
    ("asinh", numpy.arcsinh), ("acosh", numpy.arccosh), ("atanh", numpy.arctanh), ("reciprocal", numpy.reciprocal),
])
def test_large_numbers_and_signs_of_zeros(name, of):
    parts = [0.0, -0.0, 0.5, -2.0, 100.0, -100.0, 1e20, -2e38]
    numbers = numpy.array([complex(a, b) for a in parts for b in parts if a or b], dtype="complex64")
    with numpy.errstate(all="ignore"):
        expected = of(numbers)
    found = getattr(ops, name)(fulgurite.from_dlpack(numbers)).numpy()
    for one, got, want in zip(numbers, found, expected):
        size = max((abs(part) for part in (want.real, want.imag) if numpy.isfinite(part)), default=0)
        for a, b in [(got.real, want.real), (got.imag, want.imag)]:
            assert (a == b or abs(a - b) <= 1e-5 * size) and numpy.signbit(a) == numpy.signbit(b) or abs(b) < 1e-38, \
                (one, got, want)


def test_divided_by_zero_and_by_infinity():
    infinity, nan = numpy.inf, numpy.nan
    for a, b, expected in [
        (1 + 1j, 0j, (infinity, infinity)), (1 + 0j, 0j, (infinity, nan)), (-1 + 1j, -0.0, (-infinity, infinity)),
        (1 + 1j, complex(infinity, 0), (0, 0)), (1 + 0j, complex(1, infinity), (0, 0)),
    ]:
        found = (fulgurite.array([a]) / fulgurite.array([b], dtype="complex64")).tolist()[0]
        assert numpy.array_equal((found.real, found.imag), expected, equal_nan=True), (a, b, found)


def test_what_takes_none_says_so():
    x = fulgurite.from_dlpack(NUMBERS)
    with pytest.raises(fulgurite.Error, match="erf: input has dtype c128, .* takes no complex numbers"):
        ops.erf(x)
    with pytest.raises(fulgurite.Error, match="input is c128, which becomes no f32"):
        x.to("float32")
    with pytest.raises(fulgurite.Error, match="complex64"):
        x * numpy.complex64(2j)
