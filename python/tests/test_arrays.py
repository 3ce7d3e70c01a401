"""Arrays: exchange with NumPy without a copy, values, indices, arithmetic."""

import gc
import weakref

import numpy
import pytest

import fulgurite

TYPES = [
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "float32", "float64",
    "complex64", "complex128",
]


@pytest.mark.parametrize("name", TYPES)
def test_every_element_type_and_layout_comes_and_goes_without_a_copy(name):
    whole = (numpy.arange(24).reshape(2, 3, 4) % 5).astype(name)
    layouts = [whole, whole.transpose(2, 0, 1), whole[1:, :, 1::2], whole[::-1], numpy.asarray(whole[1, 2, 3]),
               whole[:, :0], numpy.broadcast_to(whole[:, :1], (2, 5, 4))]
    for given in layouts:
        array = fulgurite.from_dlpack(given)
        back = array.numpy()
        assert back.dtype == given.dtype and back.shape == given.shape and numpy.array_equal(back, given)
        assert array.dtype == fulgurite.dtype(name) and array.shape == given.shape and array.device == "cpu"
        assert given.size == 0 or numpy.shares_memory(back, given)
        assert array.tolist() == given.tolist()


def test_what_numpy_has_and_we_have_not_is_refused():
    with pytest.raises(fulgurite.Error, match="type"):
        fulgurite.from_dlpack(numpy.zeros(3, dtype="uint64"))


def test_memory_is_given_back_when_the_last_user_is_gone():
    class Memory(numpy.ndarray):
        """An array whose end can be seen."""

    memory = numpy.ones(1000, dtype="float32").view(Memory)
    gone = weakref.ref(memory)
    array = fulgurite.from_dlpack(memory)
    view = array.numpy()[10:20]
    del memory, array
    gc.collect()
    assert gone() is not None and view.sum() == 10
    del view
    gc.collect()
    assert gone() is None


def test_results_stay_when_arrays_are_gone():
    view = (fulgurite.array([1.0, 2.0]) * 2.0).numpy()
    gc.collect()
    for _ in range(100):
        fulgurite.array([9.0, 9.0]) * 3.0
    assert view.tolist() == [2.0, 4.0] and not view.flags.writeable


def test_exports_are_read_only_and_copies_are_not():
    array = fulgurite.array([1.0, 2.0])
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__()
    copy = numpy.from_dlpack(array, copy=True)
    copy[0] = 5.0
    assert array.tolist() == [1.0, 2.0]


def test_a_capsule_that_nobody_took_is_freed():
    memory = numpy.ones(8)
    gone = weakref.ref(memory)
    capsule = fulgurite.from_dlpack(memory).__dlpack__(max_version=(1, 0))
    del memory
    gc.collect()
    assert gone() is not None
    del capsule
    gc.collect()
    assert gone() is None


def test_numbers_and_lists_have_the_types_of_pytorch():
    made = fulgurite.array
    assert [made(value).dtype.name for value in (True, 1, 1.0, [1, 2.0], [[True]])] == [
        "bool", "int64", "float32", "float32", "bool"]
    assert made([]).shape == (0,) and made([[], []]).shape == (2, 0) and made(2.5).item() == 2.5
    assert made(numpy.float64(2.5)).dtype == fulgurite.float64
    assert made([2**53 + 1]).tolist() == [2**53 + 1]
    assert made([1.0, 2.5], dtype="bfloat16").tolist() == [1.0, 2.5]
    assert made([1.7], dtype=fulgurite.int32).tolist() == [1]
    for wrong in ([[1], [1, 2]], [1, [2]], ["a"], [300.0, None]):
        with pytest.raises(TypeError, match="array: "):
            made(wrong)
    with pytest.raises(fulgurite.Error, match="range"):
        made([300], dtype="uint8")


def test_element_types_have_names():
    assert fulgurite.dtype(numpy.float32) == fulgurite.dtype(numpy.dtype("float32")) == fulgurite.float32
    assert fulgurite.dtype("torch.bfloat16") is not None and repr(fulgurite.bfloat16) == "fulgurite.bfloat16"
    assert len({fulgurite.float32, fulgurite.dtype("f32")}) == 1
    with pytest.raises(ValueError, match="unknown dtype 'float31'"):
        fulgurite.dtype("float31")
    with pytest.raises(TypeError, match="expected an element type"):
        fulgurite.dtype(3)


@pytest.mark.parametrize("index", [
    0, -1, slice(1, None), slice(None, None, 2), (0, 1), (slice(None), -1), (Ellipsis, 0), None, (None, 0),
    (slice(1, 1),), (0, slice(None), slice(1, 3)), (slice(None), None, 0), (), Ellipsis, (1, 2, 3), slice(-2, -1)])
def test_indices_are_those_of_numpy(index):
    given = numpy.arange(24.0).reshape(2, 3, 4)
    found = fulgurite.from_dlpack(given)[index]
    assert found.shape == given[index].shape and found.tolist() == given[index].tolist()


def test_an_array_of_integers_is_an_index():
    given = numpy.arange(12.0).reshape(3, 4)
    rows = numpy.array([2, 0, 2])
    array = fulgurite.from_dlpack(given)
    assert array[fulgurite.from_dlpack(rows)].tolist() == given[rows].tolist()
    assert array[:, fulgurite.array([1, 3])].tolist() == given[:, [1, 3]].tolist()


def test_wrong_indices_are_refused():
    array = fulgurite.array([[1.0, 2.0]])
    for wrong in (1, (0, 2), (0, 0, 0), "a", 1.0, slice(None, None, -1), (Ellipsis, Ellipsis)):
        with pytest.raises(IndexError):
            array[wrong]
    with pytest.raises(TypeError, match="do not change"):
        array[0] = 1.0


def test_arithmetic_is_that_of_numpy():
    x, y = numpy.array([[1.5, -2.0], [3.0, 4.0]], dtype="float32"), numpy.array([2.0, -0.5], dtype="float32")
    a, b = fulgurite.from_dlpack(x), fulgurite.from_dlpack(y)
    for ours, theirs in [
        (a + b, x + y), (a - 1, x - 1), (2 - a, 2 - x), (a * b, x * y), (1 / a, 1 / x), (a // b, x // y),
        (a % b, x % y), (a ** 2, x ** 2), (a @ b, x @ y), (-a, -x), (abs(a), abs(x)), (a < b, x < y), (a == b, x == y),
        (a != 1.5, x != 1.5),
        (a.T, x.T), (a.sum(), x.sum()), (a.reshape(4), x.reshape(4)), (a.permute(1, 0), x.transpose(1, 0)),
        (y + a, y + x), (numpy.float32(2) * a, 2 * x),
    ]:
        assert isinstance(ours, fulgurite.Array)
        assert ours.shape == theirs.shape and numpy.allclose(ours.numpy(), theirs), (ours, theirs)
    n = fulgurite.array([6, 3])
    assert (n & 2).tolist() == [2, 2] and (n | 1).tolist() == [7, 3]
    assert (n ^ 1).tolist() == [7, 2] and (~n).tolist() == [-7, -4]
    with pytest.raises(TypeError):
        a + "text"
    with pytest.raises(TypeError):
        a + None


def test_truth_and_numbers():
    assert bool(fulgurite.array([3.0])) and not bool(fulgurite.array(0)) and float(fulgurite.array(2)) == 2.0
    with pytest.raises(ValueError, match="ambiguous"):
        bool(fulgurite.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="one element"):
        fulgurite.array([1.0, 2.0]).item()
    assert len(fulgurite.array([[1.0], [2.0]])) == 2
    assert [row.tolist() for row in fulgurite.array([[1], [2]])] == [[1], [2]]
    assert numpy.asarray(fulgurite.array([1, 2])).tolist() == [1, 2]


def test_conversions():
    x = fulgurite.array([1.0, 2.5])
    assert x.to("bfloat16").dtype == fulgurite.bfloat16 and x.to(dtype="int64").tolist() == [1, 2]
    assert x.to("cpu").device == "cpu" and x.to(fulgurite.float32) is x
    with pytest.raises(TypeError, match="bfloat16"):
        x.to("bfloat16").numpy()


def test_shown():
    shown = repr(fulgurite.array([[1.0, 2.0]]))
    assert shown.startswith("Array(f32[1, 2] on cpu") and "1  2" in shown
    assert "<table>" in fulgurite.array([[1.0, 2.0]])._repr_html_()


def test_another_device_is_named():
    with pytest.raises((fulgurite.Error, ValueError), match="(?i)cuda|device"):
        fulgurite.array([1.0]).to_device("cuda:99")
    with pytest.raises(ValueError, match="is not a device"):
        fulgurite.array([1.0]).to_device("no device")
