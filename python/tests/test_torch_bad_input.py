"""What modules, tensors and programs get that are not as compiled code expects them: an exception that names it, or
eager PyTorch with a reason; never a wrong number."""

import copy
import gc
import os
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import models  # noqa: E402
from beside import compare, near  # noqa: E402
from models import Calls  # noqa: E402
from torch import nn  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.uint64, torch.float8_e4m3fn])
def test_a_type_that_is_none_here_is_left_to_pytorch_with_the_reason(dtype):
    compiled = fulgurite.jit(Calls(lambda x: x.to(torch.float32).abs()))
    x = torch.tensor([1, -2, 3]).to(dtype)
    assert torch.equal(compiled(x), compiled.module(x))
    assert any(str(dtype) in each.reason for each in compiled.breaks), compiled.breaks
    with pytest.raises(Exception, match=str(dtype).split(".")[1]):
        torch._dynamo.reset()
        fulgurite.jit(compiled.module, strict=True)(x)


def test_a_layout_without_strides_is_an_error_or_pytorchs():
    dense = torch.eye(3)
    for x in (dense.to_sparse(), dense.to_sparse_csr()):
        torch._dynamo.reset()
        compiled = fulgurite.jit(Calls(lambda x, y: (x @ y) * 2))
        try:
            found = compiled(x, dense)
        except Exception as error:
            assert "layout" in str(error).lower() or "sparse" in str(error).lower(), error
        else:
            assert torch.equal(found.to_dense() if found.layout != torch.strided else found, dense * 2)
    compiled = fulgurite.jit(Calls(lambda x: torch.zeros(2, 2, layout=torch.sparse_coo).to_dense() + x))
    assert torch.equal(compiled(torch.ones(2, 2)), torch.ones(2, 2))


def test_a_tensor_of_another_device_is_an_error():
    compiled = fulgurite.jit(models.Mlp())
    with pytest.raises(Exception, match="meta|device"):
        compiled(torch.randn(2, 8, device="meta"))
    with pytest.raises(fulgurite.Error, match="meta|device"):
        torch.ops.fulgurite.add(torch.ones(2), torch.ones(2, device="meta"))
    near(compiled(torch.ones(2, 8)), compiled.module(torch.ones(2, 8)))


def test_side_effects_happen_as_often_as_the_module_is_called(capsys):
    seen = []

    def f(x):
        y = torch.tanh(x)
        seen.append(len(seen))
        print("here")
        return y * 2

    compiled = fulgurite.jit(Calls(f))
    for i in range(3):
        x = torch.randn(3)
        near(compiled(x), torch.tanh(x) * 2)
        assert seen == list(range(i + 1))
    assert capsys.readouterr().out.count("here") == 3
    assert compiled.breaks


def test_weights_that_were_replaced_are_read():
    model = models.Mlp()
    compiled, x = fulgurite.jit(model), torch.randn(2, 8)
    compiled(x)
    other = models.Mlp()
    changes = [
        lambda: setattr(model.layers[0], "weight", nn.Parameter(torch.randn(16, 8))),
        lambda: setattr(model.layers[0].bias, "data", torch.randn(16)),
        lambda: model.load_state_dict(other.state_dict()),
        lambda: model.load_state_dict({name: each * 2 for name, each in other.state_dict().items()}, assign=True),
        lambda: model.layers.__setitem__(1, nn.Tanh()),
        lambda: model.layers.__setitem__(2, nn.Linear(16, 16, bias=False)),
        lambda: model.double(),
    ]
    for change in changes:
        change()
        x = x.to(model.layers[0].weight.dtype)
        model.zero_grad()
        compiled(x).sum().backward()
        found = [each.grad for each in model.parameters()]
        near(compiled(x), model(x))
        model.zero_grad()
        model(x).sum().backward()
        for ours, theirs in zip(found, [each.grad for each in model.parameters()]):
            near(ours, theirs, 1e-4)


def test_a_buffer_that_is_written_after_it_was_read_is_right_or_an_error():
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x):
            y = x * self.scale
            self.scale.mul_(2)
            return y

    compiled, x = fulgurite.jit(Reads()), torch.ones(3, requires_grad=True)
    for expected in (1.0, 2.0):
        try:
            compiled(x).sum().backward()
        except RuntimeError as error:
            assert "changed in place" in str(error) or "inplace" in str(error)
        else:
            assert x.grad.tolist() == [expected] * 3
        x.grad = None


def test_two_models_at_once():
    a, b = models.Mlp(), models.Mlp()
    ours, theirs = [fulgurite.jit(each) for each in (a, b)], [copy.deepcopy(each) for each in (a, b)]
    x = torch.randn(3, 8)
    first, second = ours[0](x), ours[1](x)
    (first.square().sum() + second.square().sum()).backward()
    (theirs[0](x).square().sum() + theirs[1](x).square().sum()).backward()
    for model, reference in zip((a, b), theirs):
        for own, other in zip(model.parameters(), reference.parameters()):
            near(own.grad, other.grad, 1e-4)


def test_threads_that_call_one_module():
    model = models.Mlp()
    compiled, failures = fulgurite.jit(model), []
    compiled(torch.randn(2, 8))

    def work(seed):
        generator = torch.Generator().manual_seed(seed)
        try:
            for _ in range(20):
                x = torch.randn(2, 8, generator=generator)
                with torch.no_grad():
                    near(compiled(x), model(x))
                y = x.clone().requires_grad_()
                gradient, = torch.autograd.grad(compiled(y).sum(), y)
                z = x.clone().requires_grad_()
                near(gradient, torch.autograd.grad(model(z).sum(), z)[0], 1e-4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures, failures


def test_arrays_that_are_forgotten_while_a_program_reads_them():
    f = fulgurite.jit(lambda x, y: (x @ y).sum())
    size, failures = 256, []
    f(fulgurite.from_dlpack(torch.ones(size, size)), fulgurite.from_dlpack(torch.ones(size, size)))

    def work():
        for i in range(10):
            value = f(fulgurite.from_dlpack(torch.full((size, size), float(i))),
                      fulgurite.from_dlpack(torch.ones(size, size)))
            gc.collect()
            torch.full((size, size), -1.0)
            if value.item() != i * size**3:
                failures.append((i, value.item()))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    part = fulgurite.from_dlpack(torch.arange(6.0))[2:4]
    gc.collect()
    assert part.tolist() == [2.0, 3.0] and torch.from_dlpack(part * 1).tolist() == [2.0, 3.0]


def test_an_exception_in_the_middle_of_a_step_leaves_the_module_as_it_was():
    model, reference = models.Mlp(), None
    reference = copy.deepcopy(model)
    compiled = fulgurite.jit(model)

    def fails(gradient):
        raise ValueError("in the middle")

    loss = compiled(torch.randn(3, 8)).square().sum()
    loss.register_hook(fails)
    with pytest.raises(ValueError, match="in the middle"):
        loss.backward()
    assert all(each.grad is None for each in model.parameters())
    compare(model, (torch.randn(3, 8),), compiled, reference)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = copy.deepcopy(model.state_dict())

    def broken(module, x):
        raise ValueError("in the loss")

    with pytest.raises(Exception, match="does not capture it as one graph"):
        fulgurite.train_step(model, broken, optimizer)(torch.randn(3, 8))
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    step = fulgurite.train_step(model, lambda module, x: module(x).square().sum(), optimizer)
    expected = reference(torch.ones(3, 8)).square().sum()
    near(step(torch.ones(3, 8)).detach(), expected.detach())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_process_computes_after_a_program_ran():
    model = models.Mlp()
    compiled, x = fulgurite.jit(model), torch.randn(2, 8)
    with torch.no_grad():
        expected = compiled(x)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, b"1" if torch.equal(compiled(x), expected) else b"0")
            finally:
                os._exit(0)
        os.close(writing)
        assert os.read(reading, 1) == b"1"
        os.waitpid(child, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_child_process_after_cuda_started_says_so():
    x = torch.ones(2, device="cuda")
    torch.ops.fulgurite.add(x, x)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.ops.fulgurite.add(x, x)
            os.write(writing, b"no error")
        except Exception as error:
            os.write(writing, str(error).encode()[:200])
        finally:
            os._exit(0)
    os.close(writing)
    assert b"no error" not in os.read(reading, 200)
    os.waitpid(child, 0)


def test_errors_of_registered_operators_name_the_operator_and_the_callers_line():
    with pytest.raises(fulgurite.Error, match=r"rms_norm: input has shape \[2, 3\]") as caught:
        torch.ops.fulgurite.rms_norm(torch.randn(2, 3), [4])
    assert "test_torch_bad_input.py:" in str(caught.value) and caught.value.operator == "rms_norm"
    with pytest.raises(fulgurite.Error, match="^exp: called in forward-mode differentiation") as caught:
        torch.func.jvp(torch.ops.fulgurite.exp, (torch.randn(3),), (torch.randn(3),))
    assert caught.value.operator == "exp" and caught.value.code == "ForwardMode"
