"""`fulgurite.array_api` beside NumPy, which has the same standard: promotion, values, indices, refusals."""

import itertools
import math

import numpy
import pytest

import fulgurite
from fulgurite import array_api as xp

TYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float32", "float64"]
KINDS = [["bool"], ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"], ["float32", "float64"]]
nan, inf = math.nan, math.inf


def same(ours, theirs, tolerance=0.0):
    """Whether an array is that of NumPy: type, shape, values with the signs of zeros."""
    theirs = numpy.asarray(theirs)
    assert isinstance(ours, xp.Array)
    found = numpy.asarray(ours)
    assert found.dtype == theirs.dtype and found.shape == theirs.shape, (found, theirs)
    numpy.testing.assert_allclose(found, theirs, rtol=tolerance, atol=tolerance)
    if theirs.dtype.kind == "f" and not tolerance:
        assert numpy.array_equal(numpy.signbit(found), numpy.signbit(theirs)), (found, theirs)


def both(values, dtype=None):
    """An array of ours and the one of NumPy. Both have their own memory."""
    theirs = numpy.array(values, dtype=dtype)
    return xp.asarray(theirs, copy=True), theirs


def test_types_of_one_kind_promote_and_others_are_refused():
    for kind, (a, b) in itertools.product(KINDS, itertools.product(TYPES, TYPES)):
        first, second = getattr(xp, a), getattr(xp, b)
        together = any(a in kind and b in kind for kind in KINDS)
        if together:
            expected = numpy.result_type(a, b).name
            assert xp.result_type(first, second).name == expected
            assert xp.can_cast(first, second) == (expected == b)
        else:
            with pytest.raises(fulgurite.ArgumentError, match=f"{a} and {b} meet"):
                xp.result_type(first, second)
            assert not xp.can_cast(first, second)
        # Dimensions say nothing of promotion, as they do in PyTorch.
        if together and a != "bool":
            assert (xp.ones((2,), dtype=first) + xp.ones((), dtype=second)).dtype.name == expected
    assert xp.result_type(xp.bfloat16, xp.float32) == xp.float32
    with pytest.raises(TypeError, match="float16 and bfloat16 meet"):
        xp.result_type(xp.float16, xp.bfloat16)


def test_python_numbers_take_the_type_of_the_array():
    for name in TYPES[1:]:
        x = xp.ones((2,), dtype=getattr(xp, name))
        assert (x + 1).dtype == (2 - x).dtype == x.dtype
        with pytest.raises(TypeError, match="argument 'x2' is bool True"):
            x + True
        if name.startswith("float"):
            assert (x * 1.5).dtype == x.dtype and (x < 2).dtype == xp.bool
        else:
            with pytest.raises(TypeError, match=f"argument 'x2' is float 1.5, expected .* {name}"):
                x * 1.5
    with pytest.raises(ValueError, match="int 256, expected a whole number from 0 to 255"):
        xp.asarray([1], dtype=xp.uint8) + 256
    assert numpy.asarray(xp.asarray([1.0]) * 1e300).tolist() == [inf]
    with pytest.raises(TypeError, match="at least one argument is one"):
        xp.add(1, 2)


def test_arithmetic_has_the_values_of_numpy():
    random = numpy.random.default_rng(7)
    for name in TYPES[1:]:
        low, high = (1, 9) if name.startswith("uint") else (-9, 9)
        a = random.integers(low, high, (3, 1, 4)).astype(name)
        b = random.integers(low, high, (2, 4)).astype(name)
        b[b == 0] = 3
        x, y = xp.asarray(a), xp.asarray(b)
        for ours, theirs in [
            (x + y, a + b), (x - y, a - b), (x * y, a * b), (x // y, a // b), (x % y, a % b), (-x, -a),
            (abs(x), abs(a)),
            (x < y, a < b), (x == y, a == b), (x != y, a != b), (+x, +a), (x >= y, a >= b), (x ** 2, a ** 2),
            (xp.maximum(x, y), numpy.maximum(a, b)), (xp.sign(x), numpy.sign(a)), (xp.square(x), a * a),
            (xp.clip(x, 2, 5), numpy.clip(a, 2, 5)),
        ]:
            same(ours, theirs)
        if name.startswith("float"):
            same(x / y, a / b)
            same(xp.hypot(x, y), numpy.hypot(a, b), 1e-6)
            same(xp.exp(x), numpy.exp(a), 1e-5)
        else:
            shifts = abs(b) % 7
            for ours, theirs in [(x & y, a & b), (x | y, a | b), (x ^ y, a ^ b), (~x, ~a),
                                 (x << xp.asarray(shifts), a << shifts), (x >> xp.asarray(shifts), a >> shifts)]:
                same(ours, theirs)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_special_cases_are_those_of_the_standard():
    values = [nan, inf, -inf, 0.0, -0.0, 1.5, -2.0, 1e30]
    a, b = (numpy.array(each) for each in zip(*itertools.product(values, values)))
    x, y = xp.asarray(a), xp.asarray(b)
    quotient = numpy.floor(a / b)
    same(x // y, quotient)
    remainder = a % b
    # The standard: finite by infinite is the dividend, or the infinity where the signs differ.
    same(x % y, remainder)
    same(xp.sign(xp.asarray([nan, -0.0, 3.0])), numpy.array([nan, 0.0, 1.0], dtype="float32"), 1e-9)
    same(xp.atan2(x, y), numpy.atan2(a, b), 1e-12)
    same(x ** y, a ** b, 1e-12)
    same(xp.logaddexp(x, y), numpy.logaddexp(a, b), 1e-12)
    same(xp.clip(x, y, None), numpy.maximum(a, b), 1e-12)


def test_types_of_16_bits():
    for kind in (xp.float16, xp.bfloat16):
        x = xp.asarray([1.0, 2.5, -3.0], dtype=kind)
        assert (x + 1).dtype == (x * x).dtype == xp.sum(x).dtype == kind and (x + xp.ones((3,))).dtype == xp.float32
        same(xp.astype(xp.sort(x) * 2, xp.float32), numpy.array([-6.0, 2.0, 5.0], dtype="float32"))
        same(x == xp.asarray([1, 2, -3], dtype=kind), numpy.array([True, False, True]))


def test_in_place_operations_keep_type_and_shape():
    x = xp.asarray([1.0, 2.0])
    y = x
    x += 1
    assert x is y and numpy.asarray(x).tolist() == [2.0, 3.0]
    with pytest.raises(TypeError, match="which an operation in place keeps"):
        x += xp.ones((2,), dtype=xp.float64)
    with pytest.raises(TypeError, match="which an operation in place keeps"):
        x *= xp.ones((2, 2))


KEYS = [
    0, -1, slice(None), slice(None, None, -1), slice(2, None, -2), slice(1, 1), ..., None, (0, 1), (..., 0), (None, 1),
    (slice(None), slice(None, None, -1)), (slice(1, 3), 0, ..., None), (0, 1, 2), (1, slice(3, 0, -2), -1),
    numpy.array([2, 0, -1]), (numpy.array([[0], [1]]), numpy.array([2, 0])), (slice(None), numpy.array([1, 0, 1])),
    (numpy.array([0, 1]), slice(None), numpy.array([3, -1])),
    (slice(0, 2), numpy.array([[1, 0]]), numpy.array([[1], [2]])),
    (0, numpy.array([1, 2])), (numpy.array([1, 2]), numpy.array([0, 1]), numpy.array([2, 3])),
    numpy.array([], dtype="int64"),
    (numpy.array(1), 2), (slice(None), 0, numpy.array([1, 1])), (),
]


@pytest.mark.parametrize("key", KEYS, ids=repr)
def test_indices_are_those_of_numpy(key):
    given = numpy.arange(36.0).reshape(3, 3, 4)
    x = xp.asarray(given, copy=True)
    mine = tuple(xp.asarray(part) if isinstance(part, numpy.ndarray) else part for part in key) if isinstance(
        key, tuple) else xp.asarray(key) if isinstance(key, numpy.ndarray) else key
    same(x[mine], given[key])
    changed = given.copy()
    changed[key] = -1.0
    x[mine] = -1.0
    same(x, changed)
    values = numpy.arange(float(changed[key].size)).reshape(changed[key].shape)
    changed[key] = values
    x[mine] = xp.asarray(values)
    if not any(isinstance(part, numpy.ndarray) for part in (key if isinstance(key, tuple) else (key,))):
        same(x, changed)


def test_masks_and_changed_elements():
    given = numpy.arange(12.0).reshape(3, 4)
    x = xp.asarray(given, copy=True)
    same(x[x > 4.0], given[given > 4.0])
    rows = numpy.array([True, False, True])
    same(x[xp.asarray(rows)], given[rows])
    same(x[xp.asarray(True)], given[numpy.array(True)])
    same(xp.zeros((0, 2))[xp.zeros((0,), dtype=xp.bool)], numpy.zeros((0, 2), dtype="float32"))
    view, before = x[0, :], numpy.asarray(x).copy()
    x[x > 4.0] = 0.0
    x[xp.asarray(rows)] = xp.asarray([[7.0], [8.0]])
    expected = before.copy()
    expected[expected > 4.0] = 0.0
    expected[rows] = [[7.0], [8.0]]
    same(x, expected.astype("float64"))
    # What was taken before is as it was.
    same(view, given[0])
    assert given[2, 3] == 11.0
    n = xp.asarray([1, 2])
    for value, error in ((1.5, TypeError), (True, TypeError), (xp.asarray([1.0]), TypeError), ([1], TypeError),
                         (xp.asarray([1, 2, 3]), ValueError)):
        with pytest.raises(error, match="Array.__setitem__"):
            n[:] = value


@pytest.mark.parametrize("key", [3, (0, 0, 0), (..., ...), "a", 1.5, True, [0], slice(0, 1.5), (0, -5)], ids=repr)
def test_wrong_indices_are_refused(key):
    with pytest.raises(IndexError, match="Array.__getitem__: argument 'key' is "):
        xp.zeros((3, 4))[key]


def test_arrays_of_indices_out_of_range_are_refused():
    x = xp.zeros((3, 4))
    for key in (xp.asarray([3]), (xp.asarray([0]), xp.asarray([-5]))):
        with pytest.raises(IndexError, match="the index"):
            x[key]
    with pytest.raises(IndexError, match="array_api.take: argument 'indices' is the index 4, expected .* -4 to 3"):
        xp.take(x, xp.asarray([0, 4]), axis=1)
    with pytest.raises(IndexError, match="sizes of x"):
        x[xp.asarray([True, False])]


def test_shapes_and_order_are_those_of_numpy():
    x, a = both(numpy.arange(24).reshape(2, 3, 4), "int32")
    for ours, theirs in [
        (xp.roll(x, 7), numpy.roll(a, 7)), (xp.roll(x, (1, -2), axis=(0, 2)), numpy.roll(a, (1, -2), (0, 2))),
        (xp.tile(x, (2, 1)), numpy.tile(a, (2, 1))), (xp.tile(x, (2, 1, 1, 2)), numpy.tile(a, (2, 1, 1, 2))),
        (xp.repeat(x, 2), numpy.repeat(a, 2)),
        (xp.repeat(x, xp.asarray([1, 0, 2]), axis=1), numpy.repeat(a, [1, 0, 2], 1)),
        (xp.moveaxis(x, (0, 1), (-1, 0)), numpy.moveaxis(a, (0, 1), (-1, 0))),
        (xp.flip(x, axis=(0, -1)), a[::-1, :, ::-1]),
        (xp.concat([x, x], axis=None), numpy.concatenate([a, a], None)),
        (xp.stack([x, x], axis=-1), numpy.stack([a, a], -1)),
        (xp.expand_dims(x, (0, -1)), numpy.expand_dims(a, (0, -1))), (xp.reshape(x, (4, -1)), a.reshape(4, -1)),
        (xp.sort(x, axis=1, descending=True), -numpy.sort(-a, 1)), (xp.argmax(x, axis=1), a.argmax(1)),
        (xp.sum(x, axis=(0, 2)), a.sum((0, 2), dtype="int64")), (xp.sum(x, axis=()), a.astype("int64")),
        (xp.prod(x, axis=0, dtype=xp.int32), a.prod(0, dtype="int32")), (xp.max(x, axis=(0, 1)), a.max((0, 1))),
        (xp.cumulative_sum(x, axis=2, include_initial=True, dtype=xp.int32),
         numpy.cumulative_sum(a, axis=2, include_initial=True, dtype="int32")),
        (xp.take_along_axis(x, xp.asarray([[[1], [0], [-1]]]), axis=2),
         numpy.take_along_axis(a, numpy.array([[[1], [0], [3]]]), 2)),
        (xp.eye(3, 4, k=1), numpy.eye(3, 4, 1, dtype="float32")), (xp.arange(5, 0, -2), numpy.arange(5, 0, -2)),
        (xp.arange(3, 1), numpy.arange(3, 1)), (xp.diff(x, n=2), numpy.diff(a, 2)),
        (xp.tril(x, k=-1), numpy.tril(a, -1)),
        (xp.where(x > 5, x, 0), numpy.where(a > 5, a, 0).astype("int32")),
        (xp.count_nonzero(x, axis=0), numpy.count_nonzero(a, 0)),
        (xp.all(x, axis=(1, 2)), a.all((1, 2))), (xp.any(x, axis=()), a != 0),
        (x.mT, a.transpose(0, 2, 1)),
        (xp.searchsorted(xp.asarray([1, 3, 3]), x, side="right"), numpy.searchsorted([1, 3, 3], a, "right")),
    ]:
        same(ours, theirs)


def test_elements_that_differ():
    values = numpy.array([[2.0, nan, -0.0], [0.0, 2.0, nan]])
    found = xp.unique_all(xp.asarray(values))
    expected = numpy.unique_all(values)
    for ours, theirs in zip(found, expected):
        assert numpy.array_equal(numpy.asarray(ours), theirs, equal_nan=ours.dtype == xp.float64)
    flags = xp.unique_counts(xp.asarray([True, False, True]))
    assert numpy.asarray(flags.values).tolist() == [False, True] and numpy.asarray(flags.counts).tolist() == [1, 2]
    assert xp.unique_values(xp.zeros((0,))).shape == (0,)
    x, a = both([3, 1, 4, 1])
    same(xp.isin(x, xp.asarray([1, 9])), numpy.isin(a, [1, 9]))
    same(xp.isin(x, 4, invert=True), numpy.isin(a, 4, invert=True))
    same(xp.isin(xp.asarray([nan, 1.0]), xp.asarray([nan, 1.0])), numpy.array([False, True]))
    line = numpy.array([1.0, 2.0, inf, nan, nan])
    for side in ("left", "right"):
        same(xp.searchsorted(xp.asarray(line), xp.asarray([0.0, 1.0, 3.0, inf, nan], dtype=xp.float64), side=side),
             numpy.searchsorted(line, [0.0, 1.0, 3.0, inf, nan], side))
    odd = xp.asarray([1.0, nan, 3.0, nan])
    assert int(xp.argmax(odd)) == int(xp.argmin(odd)) == 1
    assert numpy.asarray(xp.argsort(odd, descending=True)).tolist() == [1, 3, 2, 0]
    for ours, theirs in zip(xp.nonzero(x > 1), numpy.nonzero(a > 1)):
        same(ours, theirs)


def test_statistics_and_matrices():
    random = numpy.random.default_rng(3)
    x, a = both(random.normal(size=(4, 3, 3)))
    for ours, theirs in [
        (xp.mean(x, axis=(0, 1)), a.mean((0, 1))), (xp.var(x, correction=1.5), a.var(ddof=1.5)),
        (xp.std(x, axis=()), numpy.zeros_like(a)), (xp.matmul(x, x), a @ a), (x @ x[0, 0, :], a @ a[0, 0]),
        (xp.linalg.inv(x), numpy.linalg.inv(a)), (xp.linalg.det(x), numpy.linalg.det(a)),
        (xp.linalg.pinv(x[:, :2, :]), numpy.linalg.pinv(a[:, :2])), (xp.linalg.svdvals(x), numpy.linalg.svdvals(a)),
        (xp.linalg.matrix_norm(x, ord="nuc"), numpy.linalg.matrix_norm(a, ord="nuc")),
        (xp.linalg.vector_norm(x, axis=(0, 2), ord=3), numpy.linalg.vector_norm(a, axis=(0, 2), ord=3)),
        (xp.linalg.solve(x, x[0, :, 0]), numpy.linalg.solve(a, a[0, :, 0])),
        (xp.linalg.trace(x, offset=1), numpy.linalg.trace(a, offset=1)),
        (xp.linalg.cross(x, x[0, ...], axis=-2), numpy.linalg.cross(a, a[:1], axis=-2)),
        (xp.linspace(0, 1, 5, endpoint=False, dtype=xp.float64), numpy.linspace(0, 1, 5, endpoint=False)),
        (xp.vecdot(x, x[0, 0, :]), numpy.vecdot(a, a[0, 0])),
        (xp.tensordot(x, x, axes=((1, 2), (2, 1))), numpy.tensordot(a, a, ((1, 2), (2, 1)))),
        (xp.linalg.matrix_power(x, -2), numpy.linalg.matrix_power(a, -2)),
        (xp.linalg.outer(x[0, 0, :], x[1, 1, :]), numpy.outer(a[0, 0], a[1, 1])),
    ]:
        same(ours, theirs, 1e-9)
    same(xp.linalg.matrix_rank(xp.ones((2, 3, 3))), numpy.array([1, 1]))
    same(xp.std(xp.ones((2,)), correction=2), numpy.array(nan, dtype="float32"), 1e-9)
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    same((u * s[:, None, :]) @ vh, a, 1e-9)
    n, m = both([[2, 1], [1, 3]], "int32")
    same(n @ n, m @ m)
    same(xp.vecdot(n, n), numpy.vecdot(m, m))


def test_limits_and_kinds():
    for name in TYPES:
        kind = getattr(xp, name)
        if name == "bool":
            continue
        info = (numpy.finfo if name.startswith("float") else numpy.iinfo)(name)
        ours = (xp.finfo if name.startswith("float") else xp.iinfo)(kind)
        assert (ours.bits, ours.max, ours.min, ours.dtype) == (info.bits, info.max, info.min, kind)
        if name.startswith("float"):
            assert ours.eps == info.eps and ours.smallest_normal == info.smallest_normal
    assert xp.isdtype(xp.uint8, ("unsigned integer", xp.float32)) and not xp.isdtype(xp.bool, "numeric")
    assert xp.finfo(xp.bfloat16).eps == 2.0**-7 and xp.isdtype(xp.bfloat16, "real floating")
    info = xp.__array_namespace_info__()
    assert list(info.dtypes(kind="integral")) == [
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    ] and info.devices()[0] == "cpu"
    assert xp.asarray([]).dtype == info.default_dtypes()["real floating"]


def test_arrays_come_from_and_go_to_others():
    given = numpy.arange(6.0).reshape(2, 3)
    x = xp.asarray(given)
    assert numpy.shares_memory(numpy.from_dlpack(x), given) and x.native.is_external
    assert xp.asarray(x) is x and not xp.asarray(x, copy=True).native.is_external
    assert xp.from_dlpack(x.native).shape == (2, 3) and x.__array_namespace__() is xp
    same(xp.asarray(bytearray(b"\x01\x02")), numpy.array([1, 2], dtype="uint8"))
    same(xp.asarray([[1, 2.5], (3, True)]), numpy.array([[1, 2.5], [3, 1]], dtype="float32"))
    same(xp.asarray(numpy.int64(3)), numpy.array(3))
    same(xp.asarray(numpy.array([1, 2]), dtype=xp.float32), numpy.array([1, 2], dtype="float32"))
    same(xp.astype(xp.asarray([1.9, -1.9, 0.0]), xp.int32), numpy.array([1, -1, 0], dtype="int32"))
    assert int(xp.asarray(2**53 + 1)) == 2**53 + 1 and [1, 2, 3][xp.asarray(1)] == 2
    same(xp.full((2,), 2**63 - 1), numpy.full((2,), 2**63 - 1))


def test_functions_run_in_a_traced_function():
    def norm(x):
        x = xp.asarray(x)
        return ((x - xp.mean(x, axis=-1, keepdims=True)) / (xp.std(x, axis=-1, keepdims=True) + 1e-3)).native

    a = numpy.arange(6.0).reshape(2, 3)
    found = fulgurite.jit(norm)(fulgurite.from_dlpack(a)).numpy()
    expected = (a - a.mean(-1, keepdims=True)) / (a.std(-1, keepdims=True) + 1e-3)
    numpy.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(fulgurite.Error, match="the shape of the result depends on its data"):
        fulgurite.jit(lambda x: xp.nonzero(xp.asarray(x))[0].native)(fulgurite.from_dlpack(a))


def test_arrays_of_a_device_stay_there():
    devices = list(xp.__array_namespace_info__().devices())
    if len(devices) == 1:
        pytest.skip("there is no device beside the host")
    values = [[3.0, 1.0, 3.0], [nan, -2.0, 0.0]]

    def results(device):
        x = xp.asarray(values, device=device)
        y = x + 1
        y[y > 3.0] = 0.0
        y[0, :] = xp.asarray([7.0, 8.0, 9.0], device=device)
        index = xp.asarray([-1, 0], device=device)
        return [x, y, x * 2.0, x[x > 0], x[:, ::-1], x[index, index], xp.sort(x, axis=1), xp.unique_values(x),
                xp.take(x, index, axis=1), xp.repeat(x, index + 1, axis=0), *xp.nonzero(x), xp.sum(x, axis=()),
                xp.zeros_like(x), xp.full((2,), 3, device=device), xp.eye(2, 3, k=1, device=device), x @ x.mT,
                xp.arange(3, device=device), xp.where(x > 0, x, 1.0), xp.clip(x, 0, 2), x // 2, x % 2, xp.sign(x)]

    for ours, theirs in zip(results(devices[1]), results("cpu")):
        assert ours.device == devices[1]
        same(ours, numpy.asarray(theirs), 1e-6)


REFUSED = [
    (lambda: xp.acos(xp.asarray([1])), "acos", "x", "an array of dtype int64, expected a floating-point dtype"),
    (lambda: xp.asarray([1j]), "asarray", "obj", "there are no complex numbers"),
    (lambda: xp.asarray(numpy.ones(2, dtype="uint64")), "asarray", "obj", "uint64"),
    (lambda: xp.asarray([1], dtype=numpy.dtype("uint64")), "asarray", "dtype", "there is no uint64"),
    (lambda: xp.asarray([300], dtype=xp.uint8), "asarray", "obj", "expected a whole number from 0 to 255"),
    (lambda: xp.asarray([1.5], dtype=xp.int32), "asarray", "obj", "float 1.5, expected a whole number"),
    (lambda: xp.full((2,), nan, dtype=xp.int64), "full", "fill_value", "float nan, expected a whole number"),
    (lambda: xp.asarray(numpy.array([2**40]), dtype=xp.int32), "asarray", "dtype", "a dtype that int64 promotes to"),
    (lambda: xp.asarray([[1], [1, 2]]), "asarray", "obj", "ragged"),
    (lambda: xp.asarray(numpy.ones(2), dtype=xp.float32, copy=False), "asarray", "copy", "needs a copy"),
    (lambda: xp.imag(xp.ones((2,))), "imag", "x", "there are no complex numbers"),
    (lambda: xp.ones((2,)) + numpy.ones(2), "add", "other", "asarray makes one"),
    (lambda: numpy.ones(2) * xp.ones((2,)), "multiply", "other", "asarray makes one"),
    (lambda: xp.ones((2,)) @ 2.0, "matmul", "x2", "an array"),
    (lambda: xp.asarray([2]) ** xp.asarray([-1]), "pow", "x2", "an integer below 0"),
    (lambda: xp.asarray([2]) / xp.asarray([1]), "divide", "x1", "an array of dtype int64, expected a floating-point"),
    (lambda: xp.ones((2, 3)) + xp.ones((2,)), "add", None, "shapes that broadcast"),
    (lambda: xp.sum(xp.ones((2,)), axis=1), "sum", "axis", "1, expected an axis from -1 to 0"),
    (lambda: xp.max(xp.ones((0,))), "max", "x", "at least one element"),
    (lambda: xp.reshape(xp.ones((6,)), (4, -1)), "reshape", "shape", "a shape of 6 elements"),
    (lambda: xp.squeeze(xp.ones((2,)), 0), "squeeze", "axis", "0, which has size 2, expected axes of size 1"),
    (lambda: xp.take(xp.ones((2, 2)), xp.asarray([0])), "take", "axis", "x has 2 dimensions"),
    (lambda: xp.clip(xp.ones((2,)), xp.ones((2,), dtype=xp.float64)), "clip", "min", "promotes to that of x"),
    (lambda: xp.where(xp.asarray([1]), 1.0, xp.ones((1,))), "where", "condition", "expected the dtype bool"),
    (lambda: xp.linalg.eigh(xp.ones((2, 3))), "eigh", "x", "square matrices"),
    (lambda: xp.ones((2,)).T, "Array.T", "self", "two dimensions"),
    (lambda: xp.ones((2,)).__array_namespace__(api_version="2030.12"), "Array.__array_namespace__", "api_version",
     "one of"),
]


@pytest.mark.parametrize("call, function, argument, text", REFUSED, ids=[f"{each[1]}-{each[2]}" for each in REFUSED])
def test_refusals_name_function_argument_and_both_sides(call, function, argument, text):
    with pytest.raises(fulgurite.Error) as raised:
        call()
    assert raised.value.operator == f"array_api.{function}" and raised.value.argument == argument
    assert str(raised.value).startswith(f"array_api.{function}: ") and ", expected " in str(raised.value)
    assert text in str(raised.value)


def test_what_is_missing_says_why():
    for name in ("complex64", "uint64", "fft"):
        assert not hasattr(xp, name)
        with pytest.raises(AttributeError, match=f"has no '{name}': "):
            getattr(xp, name)
    with pytest.raises(AttributeError, match="has no 'eig': eigenvalues"):
        xp.linalg.eig
    with pytest.raises(AttributeError, match="has no 'foo'$"):
        xp.foo
    assert set(xp.__all__) <= set(dir(xp))
