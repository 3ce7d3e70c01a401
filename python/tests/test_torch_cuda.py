"""Modules and operators on tensors of CUDA: results are those of eager PyTorch, and no memory is read or written at the
wrong time. Skipped without a GPU."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import beside  # noqa: E402
import models  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from beside import MODELS, compare, near, trained  # noqa: E402
from torch import nn  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def ids(*shape, most=32):
    return beside.ids(*shape, most=most).cuda()


def randn(*shape, **options):
    return torch.randn(*shape, device="cuda", **options)


@pytest.mark.parametrize("name", MODELS)
def test_outputs_gradients_and_buffers_are_those_of_pytorch(name):
    make, arguments = MODELS[name]
    model = make().cuda()
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model)
    for _ in range(3):
        compare(model, [each.cuda() for each in arguments()], compiled, reference, 5e-5, 5e-4)
    assert compiled.breaks == []


def test_operators_have_gradients():
    x, w, cotangent = randn(8, 64, requires_grad=True), randn(64), randn(8, 64)
    ours = torch.ops.fulgurite
    for of, reference in (
        (lambda: ours.rms_norm(x, [64], w, 1e-6), lambda: F.rms_norm(x, (64,), w, 1e-6)),
        (lambda: ours.softmax(x, 1), lambda: x.softmax(1)),
        (lambda: ours.gelu(x.t()).t(), lambda: F.gelu(x)),
    ):
        near(of(), reference())
        near(torch.autograd.grad(of(), x, cotangent)[0], torch.autograd.grad(reference(), x, cotangent)[0], 1e-4)


def test_work_is_ordered_with_the_current_stream():
    model = models.Gpt().cuda()
    compiled, stream = fulgurite.jit(model), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    big = randn(2048, 2048)
    for _ in range(5):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            # The indices are there when the products are done.
            for _ in range(20):
                big = (big @ big).clamp(-1, 1)
            given = (ids(2, 8).float() + big[:2, :8] * 0).long()
            out = compiled(given) * 1.0
            out.sum().backward()
            gradient = model.lm_head.weight.grad.clone()
            model.zero_grad()
        torch.cuda.synchronize()
        expected = model(given)
        expected.sum().backward()
        near(out, expected)
        near(gradient, model.lm_head.weight.grad, 1e-3)
        model.zero_grad()


def test_memory_is_used_again_by_nobody_too_early():
    model = models.Gpt(width=256, layers=3, vocabulary=4096).cuda()
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model)
    for _ in range(20):
        given = ids(8, 16, most=4096)
        expected = reference(given)
        expected.square().mean().backward()
        # The input is gone at once, and others take its memory, and then that of the result.
        out = compiled(given.clone())
        others = [torch.full_like(given, 7) for _ in range(4)]
        near(out, expected, 1e-4)
        out.square().mean().backward()
        del out
        others = [torch.full_like(expected, 9.0) for _ in range(4)]
        for ours, theirs in zip(model.parameters(), reference.parameters()):
            near(ours.grad, theirs.grad, 1e-3)
        model.zero_grad()
        reference.zero_grad()
        del others


def test_an_index_out_of_range_is_told_by_a_later_call():
    model = nn.Embedding(4, 8).cuda()
    compiled, good = fulgurite.jit(model), torch.tensor([1, 2], device="cuda")
    compiled(good)
    fulgurite.torch.synchronize()
    compiled(torch.tensor([1, 9], device="cuda"))
    torch.cuda.synchronize()
    with pytest.raises(fulgurite.Error, match="index holds 9"):
        compiled(good)
    compiled(torch.tensor([-7, 1], device="cuda"))
    with pytest.raises(fulgurite.Error, match="index holds -7"):
        fulgurite.torch.synchronize()
    near(compiled(good), model(good))


def test_a_call_while_pytorch_captures_a_graph_is_an_error():
    x = randn(8, 64)
    torch.ops.fulgurite.gelu(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(fulgurite.Error, match="captures a CUDA graph"):
            torch.ops.fulgurite.gelu(x)
        y = x + 1
    graph.replay()
    torch.cuda.synchronize()
    near(y, x + 1)


def test_an_optimizer_trains_as_eager():
    model = models.Gpt().cuda()
    reference = copy.deepcopy(model)
    losses = [trained(run, each.parameters(), lambda: ids(2, 9), 20, fused=True)
              for each, run in ((model, fulgurite.jit(model)), (reference, reference))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_a_training_step_is_that_of_eager():
    model = models.Gpt().cuda()
    reference = copy.deepcopy(model)
    optimizers = [torch.optim.AdamW(each.parameters(), lr=1e-3, eps=1e-5) for each in (model, reference)]
    step = fulgurite.train_step(model, lambda model, x: model(x, x)[1], optimizers[0], max_norm=1.0)

    def eager(x):
        optimizers[1].zero_grad()
        loss = reference(x, x)[1]
        loss.backward()
        nn.utils.clip_grad_norm_(reference.parameters(), 1.0)
        optimizers[1].step()
        return loss

    memory = [each.data_ptr() for each in model.parameters()]
    batches = [ids(2, 12) for _ in range(8)]
    losses = [step(each).item() for each in batches]
    assert losses == pytest.approx([eager(each).item() for each in batches], rel=1e-5)
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        near(ours, theirs, 1e-4)
    assert memory == [each.data_ptr() for each in model.parameters()] and step.compiles == 1


def test_a_training_step_with_wrong_data_is_lost_at_a_later_call():
    def loss(model, x):
        return model(x).square().mean()

    for behind in (0, 3):
        model = nn.Sequential(nn.Embedding(4, 8), nn.Linear(8, 4)).cuda()
        step = fulgurite.train_step(model, loss, torch.optim.AdamW(model.parameters(), 0.1))
        good = torch.tensor([1, 2], device="cuda")
        step(good)
        step(torch.tensor([1, 9], device="cuda"))
        with pytest.raises(fulgurite.Error, match="index holds 9") as raised:
            for _ in range(behind):
                step(good)
            torch.cuda.synchronize()
            step(good)
        assert raised.value.code == "Lost"
        with pytest.raises(fulgurite.Error, match="Load both"):
            step(good)
        with torch.no_grad():
            for each in model.parameters():
                each.copy_(randn(*each.shape))
        step.reset()
        assert step(good).isfinite()


def test_wrong_data_of_a_call_that_accumulates_begins_the_step_again():
    model = nn.Sequential(nn.Embedding(4, 8), nn.Linear(8, 4)).cuda()
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = fulgurite.train_step(model, lambda model, x: model(x).square().mean(), optimizer, accumulate=3)
    step(torch.tensor([-5, 1], device="cuda"))
    torch.cuda.synchronize()
    good = torch.tensor([1, 2], device="cuda")
    with pytest.raises(fulgurite.Error, match="begins again") as raised:
        step(good)
    assert raised.value.code != "Lost"
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for _ in range(3):
        step(good)
    assert not torch.equal(model[1].weight, before["1.weight"])


def test_an_update_of_gradients_of_wrong_data_is_lost():
    model = nn.Sequential(nn.Embedding(4, 8), nn.Linear(8, 4)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = fulgurite.train_step(model, lambda model, x: model(x).square().mean(), optimizer, accumulate=2)
    good = torch.tensor([1, 2], device="cuda")
    for _ in range(2):
        step(good)
    # The device is busy: nobody knows of the wrong index when the update is enqueued.
    torch.cuda._sleep(1_000_000_000)
    step(torch.tensor([1, 9], device="cuda"))
    step(good)
    torch.cuda.synchronize()
    with pytest.raises(fulgurite.Error, match="index holds 9") as raised:
        step(good)
    assert raised.value.code == "Lost"


def test_steps_are_enqueued_while_the_device_works():
    model = models.Gpt(width=512, layers=6, vocabulary=4096).cuda()
    step = fulgurite.train_step(model, lambda model, x: model(x, x)[1], torch.optim.AdamW(model.parameters()))
    batch = ids(8, 12, most=4096)
    for _ in range(3):
        step(batch)
    torch.cuda.synchronize()
    # For about a second: a host that waited for the step would record the event when it has ended.
    torch.cuda._sleep(2_000_000_000)
    step(batch)
    behind = torch.cuda.Event()
    behind.record()
    assert not behind.query()
    torch.cuda.synchronize()


def test_a_training_step_draws_by_pytorchs_seed():
    def losses():
        torch.manual_seed(5)
        model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 1)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = fulgurite.train_step(model, lambda model, x: model(x).square().mean(), optimizer)
        return [step(randn(4, 8)).item() for _ in range(4)]

    first = losses()
    assert first == losses() and len(set(first)) == 4
