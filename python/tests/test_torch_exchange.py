"""Tensors of PyTorch one by one, and operators called by its dispatcher: whose memory it is, and what is refused."""

import gc
import threading
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402
from fulgurite import ops  # noqa: E402

REGISTERED = torch.ops.fulgurite


def test_a_tensor_is_an_array_over_its_memory_and_back():
    for tensor in (torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3).t(), torch.arange(8)[::3],
                   torch.tensor(2.5), torch.empty(0, 3), torch.nn.Parameter(torch.ones(3), requires_grad=False)):
        array = fulgurite.from_dlpack(tensor)
        assert array.shape == tuple(tensor.shape) and array.tolist() == tensor.tolist() and array.is_external
        assert array.data_address == tensor.data_ptr() or not tensor.numel()
        back = fulgurite.torch.as_tensor(array)
        assert torch.equal(back, tensor) and back.stride() == tensor.stride()
        assert back.data_ptr() == tensor.data_ptr()
    assert fulgurite.from_dlpack(array) is array


def test_memory_is_kept_as_long_as_it_is_used():
    tensor = torch.ones(1000)
    gone = weakref.ref(tensor.untyped_storage())
    array = fulgurite.from_dlpack(tensor)
    del tensor
    back = fulgurite.torch.as_tensor(array)
    del array
    gc.collect()
    assert back.sum().item() == 1000
    del back
    gc.collect()
    assert gone() is None
    result = fulgurite.torch.as_tensor(ops.exp(torch.zeros(1000)))
    gc.collect()
    assert result.sum().item() == 1000


class Logged(torch.Tensor):
    """A subclass whose functions are seen by Python."""

    seen: list = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.seen.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


def test_what_a_tensor_refuses_to_export_is_refused():
    with pytest.raises(BufferError, match="require gradient"):
        fulgurite.from_dlpack(torch.ones(3, requires_grad=True))
    with pytest.raises(BufferError, match="require gradient"):
        ops.exp(torch.nn.Parameter(torch.ones(3)))
    with pytest.raises(BufferError, match="layout"):
        fulgurite.from_dlpack(torch.eye(3).to_sparse())
    with pytest.raises(fulgurite.Error, match="expected an array of a library with DLPack, got 'text'") as caught:
        fulgurite.from_dlpack("text")
    assert isinstance(caught.value, TypeError) and caught.value.argument == "producer"
    assert f"at {__file__}" in str(caught.value)
    for wrong in (torch.zeros(3, dtype=torch.uint64), torch.zeros(3, dtype=torch.complex32)):
        with pytest.raises(fulgurite.Error, match="type code"):
            fulgurite.from_dlpack(wrong)
    with pytest.raises(Exception, match="(?i)meta"):
        fulgurite.from_dlpack(torch.empty(3, device="meta"))


def test_a_subclass_is_asked_by_its_own_methods():
    tensor = torch.ones(3).as_subclass(Logged)
    Logged.seen.clear()
    assert fulgurite.from_dlpack(tensor).tolist() == [1.0, 1.0, 1.0]
    assert "__dlpack__" in Logged.seen
    assert ops.exp(tensor).shape == (3,)


def test_negative_and_conjugate_views():
    negative = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert negative.is_neg() and negative.tolist() == [-2.0, 4.0]
    assert fulgurite.from_dlpack(negative).tolist() == [-2.0, 4.0]
    assert ops.neg(negative).tolist() == [2.0, -4.0]
    assert REGISTERED.neg(negative).tolist() == [2.0, -4.0]
    conjugate = torch.tensor([1 + 2j, 3 - 4j]).conj()
    assert conjugate.is_conj() and ops.neg(conjugate).tolist() == [-1 + 2j, -3 - 4j]
    assert REGISTERED.neg(conjugate).tolist() == [-1 + 2j, -3 - 4j]


def test_calls_of_many_forms():
    x = torch.randn(4, 6)
    array = fulgurite.from_dlpack(x)
    for _ in range(3):
        for start in range(6):
            found = ops.prims.slice(array, [0, start], [4, 6], [1, 1])
            assert found.tolist() == x[:, start:].tolist()
        for shape in ((4, 6), (6, 4), (24,), (2, 12)):
            assert ops.neg(x.reshape(shape)).tolist() == (-x.reshape(shape)).tolist()
        assert ops.sum(array, 0).tolist() == pytest.approx(x.sum(0).tolist(), abs=1e-5)
        assert ops.rms_norm(x, [6]).shape == ops.rms_norm(x, [6], torch.ones(6)).shape == (4, 6)
        assert ops.cat([x, x], 0).shape == (8, 6) and ops.cat([x, x, x], 0).shape == (12, 6)


def test_threads_call_one_operator():
    x = torch.randn(8)
    wrong = []

    def run(factor):
        given = x * factor
        for _ in range(200):
            if ops.mul(given, 2.0).tolist() != (given * 2).tolist():
                wrong.append(factor)
            if not torch.equal(REGISTERED.add(given, x), given + x):
                wrong.append(factor)

    threads = [threading.Thread(target=run, args=(float(i),)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_gradients_are_made_where_they_are_asked_for():
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4)
    assert REGISTERED.rms_norm(x, [4], w).grad_fn is not None
    with torch.no_grad():
        assert REGISTERED.rms_norm(x, [4], w).grad_fn is None
    with torch.inference_mode():
        assert REGISTERED.rms_norm(x, [4], w).is_inference()
    assert not REGISTERED.rms_norm(x.detach(), [4], w).requires_grad
    parts = REGISTERED.split(x, 2)
    assert isinstance(parts, (list, tuple)) and all(part.requires_grad for part in parts)
    a, b = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    REGISTERED.cat([a, w[:3].reshape(1, 3), b], 0).square().sum().backward()
    assert torch.allclose(a.grad, 2 * a) and torch.allclose(b.grad, 2 * b)
    values, places = REGISTERED.topk(x, 2)
    assert values.requires_grad and not places.requires_grad
    values.sum().backward()
    expected = torch.zeros(3, 4).scatter(1, places, 1.0)
    assert torch.equal(x.grad, expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert REGISTERED.neg(w).dtype == torch.float32


def test_modes_and_transforms_see_the_call():
    seen = []

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x = torch.randn(3, 4)
    with Mode():
        assert torch.equal(REGISTERED.neg(x), -x)
        x.requires_grad_()
        REGISTERED.exp(x).sum().backward()
    assert "fulgurite.neg.default" in seen and "fulgurite.exp.default" in seen
    assert "fulgurite.exp_vjp.default" in seen
    from torch._subclasses.fake_tensor import FakeTensorMode

    plain = x.detach()
    with FakeTensorMode() as mode:
        fake = REGISTERED.neg(mode.from_tensor(plain))
    assert type(fake).__name__ == "FakeTensor" and fake.shape == (3, 4)
