"""Five steps of PyTorch's optimizers in f64, for tests/tests/programs/optimizers.rs: `python tests/golden/optimizers.py` writes
optimizers.json beside itself. The gradient of step t is sin(3 i + t) + p / 2 for the element i of the parameter p."""

import json
from pathlib import Path

import torch

LR = 0.125
optim = torch.optim
CASES = {
    "sgd": ([12], lambda p: optim.SGD(p, LR)),
    "sgd, momentum": ([12], lambda p: optim.SGD(p, LR, momentum=0.9, dampening=0.25, weight_decay=0.1)),
    "sgd, nesterov": ([12], lambda p: optim.SGD(p, LR, momentum=0.9, nesterov=True, maximize=True)),
    "adam": ([12], lambda p: optim.Adam(p, LR, betas=(0.8, 0.95), weight_decay=0.1)),
    "adamw": ([12], lambda p: optim.AdamW(p, LR, betas=(0.8, 0.95), weight_decay=0.1)),
    "adamax": ([12], lambda p: optim.Adamax(p, LR, weight_decay=0.1)),
    "rmsprop": ([12], lambda p: optim.RMSprop(p, LR, weight_decay=0.1)),
    "rmsprop, centered": ([12], lambda p: optim.RMSprop(p, LR, alpha=0.9, centered=True, momentum=0.5)),
    "adagrad": ([12], lambda p: optim.Adagrad(p, LR, lr_decay=0.1, weight_decay=0.1)),
    "adadelta": ([12], lambda p: optim.Adadelta(p, LR, weight_decay=0.1)),
    "adafactor": ([12], lambda p: optim.Adafactor(p, LR, weight_decay=0.1)),
    "adafactor of a matrix": ([3, 4], lambda p: optim.Adafactor(p, LR, weight_decay=0.1)),
}


def steps(shape, make):
    """The parameter after each of five steps."""
    place = torch.arange(12, dtype=torch.float64).reshape(shape)
    param = torch.nn.Parameter(torch.cos(place))
    optimizer = make([param])
    after = []
    for step in range(1, 6):
        param.grad = torch.sin(3 * place + step) + param.detach() / 2
        optimizer.step()
        after.append(param.detach().flatten().tolist())
    return after


if __name__ == "__main__":
    torch.set_num_threads(1)
    vectors = {name: steps(*case) for name, case in CASES.items()}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(after)}" for name, after in vectors.items())
    (Path(__file__).parent / "optimizers.json").write_text(f"{{\n{lines}\n}}\n")
