"""Models and comparisons that tests of modules share, on the CPU and on CUDA."""

import models
import torch


def ids(*shape, most=32):
    return torch.randint(0, most, shape)


MODELS = {
    "mlp": (models.Mlp, lambda: (torch.randn(3, 8),)),
    "gpt": (models.Gpt, lambda: (ids(2, 8), ids(2, 8))),
    "gpt with a mask": (lambda: models.Gpt(fused=False), lambda: (ids(2, 8),)),
    "llama": (models.Llama, lambda: (ids(2, 8),)),
    "resnet": (models.ResNet, lambda: (torch.randn(2, 3, 32, 32),)),
    "resnet, evaluated": (lambda: models.ResNet().eval(), lambda: (torch.randn(2, 3, 32, 32),)),
    "vit": (models.Vit, lambda: (torch.randn(2, 3, 16, 16),)),
}


def tensors(value):
    return value if isinstance(value, tuple) else (value,)


def near(ours, theirs, tolerance=2e-5):
    """Whether no element differs by more than a part of the largest one."""
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype and ours.device == theirs.device
    scale = theirs.abs().max().item() + 1e-6
    assert (ours - theirs).abs().max().item() <= tolerance * scale, (ours - theirs).abs().max()


def compare(model, arguments, compiled, reference, tolerance=2e-5, of_gradients=1e-4):
    """Compares results, gradients and buffers of a compiled module with those of its copy in eager PyTorch."""
    out, expected = tensors(compiled(*arguments)), tensors(reference(*arguments))
    for ours, theirs in zip(out, expected):
        near(ours, theirs, tolerance)
    out[-1].square().sum().backward()
    expected[-1].square().sum().backward()
    theirs = dict(reference.named_parameters())
    for name, parameter in model.named_parameters():
        near(parameter.grad, theirs[name].grad, of_gradients)
    others = dict(reference.named_buffers())
    for name, value in model.named_buffers():
        near(value.float(), others[name].float())


def trained(run, parameters, batch, steps, **options):
    """The losses of steps of AdamW; `batch` makes tokens of one more position than the model reads."""
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, **options)
    losses = []
    for _ in range(steps):
        tokens = batch()
        _, loss = run(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
