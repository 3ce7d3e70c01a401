"""Writes `vision.json`: five steps of small models of images in PyTorch, for the test `models -- vision_parity::`.

    python tests/golden/vision.py [--out FILE]        # needs torch and numpy; CPU only, seconds

The models are written here with torch.nn, under torchvision's names where torchvision has the model. Parameters, images and
targets are not stored: `values` makes them of a name and a position, and so does the test. For each model the file has

    config      the configuration as `fulgurite_models::vision::ImageConfig` reads it
    optimizer   the optimizer as `fulgurite_models::optimizer::OptimizerSettings` reads it, and the learning rate
    steps       of each step: the loss before its update, and of each parameter's gradient the 2-norm and the product with
                `values("direction NAME")`
    buffers     of each running statistic after the last step: the same two numbers
    evaluation  loss and share of right answers of the first batch after the last step, with running statistics
    rounding    the largest difference of PyTorch's own f32 from these numbers, as the test measures it

All of it is computed in f64, so that what differs is the rounding of f32 or a wrong formula.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS, ROWS = 5, 6


def values(name, count):
    """Numbers from -1 to below 1 with 24 bits: the finalizer of SplitMix64 over the position, from the name's FNV-1a."""
    start = 0xCBF29CE484222325
    for byte in name.encode():
        start = (start ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        h = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(start)) * np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h = h ^ (h >> np.uint64(31))
    return (h >> np.uint64(40)).astype(np.float64) / 2**23 - 1.0


def initial(name, shape):
    """A parameter in f32: larger than a real initialization, and no zeros or ones, so that what is ignored would show."""
    own = values(name, int(np.prod(shape))).astype(np.float32).reshape(shape)
    if name.endswith("weight") and len(shape) >= 2:
        return own * np.float32(np.sqrt(6.0 / np.prod(shape[1:])))
    if name.endswith("weight"):
        return own * np.float32(0.25) + np.float32(1.0)
    return own * np.float32(0.125)


def conv(inputs, outputs, kernel, stride=1, padding=0):
    return nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, inner, stride, bottleneck):
        super().__init__()
        outputs = inner * (4 if bottleneck else 1)
        if bottleneck:
            sizes = [(inputs, inner, 1, 1), (inner, inner, 3, stride), (inner, outputs, 1, 1)]
        else:
            sizes = [(inputs, inner, 3, stride), (inner, inner, 3, 1)]
        self.count = len(sizes)
        for i, (before, after, kernel, step) in enumerate(sizes, 1):
            setattr(self, f"conv{i}", conv(before, after, kernel, step, kernel // 2))
            setattr(self, f"bn{i}", nn.BatchNorm2d(after))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = F.relu(y) if i < self.count else y
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, image, channels, classes, small, bottleneck, blocks, width):
        super().__init__()
        self.conv1 = conv(channels, width, 3, 1, 1) if small else conv(channels, width, 7, 2, 3)
        self.bn1 = nn.BatchNorm2d(width)
        self.small, inputs = small, width
        for stage, count in enumerate(blocks):
            layers = []
            for i in range(count):
                layers.append(Block(inputs, width << stage, 2 if i == 0 and stage else 1, bottleneck))
                inputs = (width << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = x if self.small else F.max_pool2d(x, 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


class EncoderBlock(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        # As torchvision numbers them: a linear layer, GELU, dropout, a linear layer, dropout.
        self.mlp = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Identity(), nn.Linear(inner, width))

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class ViT(nn.Module):
    def __init__(self, image, channels, classes, patch, layers, heads, width, inner, dropout):
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.conv_proj = nn.Conv2d(channels, width, patch, patch)
        self.encoder = nn.Module()
        self.encoder.pos_embedding = nn.Parameter(torch.zeros(1, (image // patch) ** 2 + 1, width))
        self.encoder.layers = nn.Module()
        for i in range(layers):
            setattr(self.encoder.layers, f"encoder_layer_{i}", EncoderBlock(width, heads, inner))
        self.encoder.ln = nn.LayerNorm(width, eps=1e-6)
        self.heads = nn.Module()
        self.heads.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.encoder.pos_embedding
        for layer in self.encoder.layers.children():
            x = layer(x)
        return self.heads.head(self.encoder.ln(x)[:, 0])


class Pair(nn.Module):
    def __init__(self, inputs, outputs, groups):
        super().__init__()
        self.conv1, self.norm1 = conv(inputs, outputs, 3, 1, 1), nn.GroupNorm(groups, outputs)
        self.conv2, self.norm2 = conv(outputs, outputs, 3, 1, 1), nn.GroupNorm(groups, outputs)

    def forward(self, x):
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


class Up(Pair):
    def __init__(self, outputs, groups):
        super().__init__(2 * outputs, outputs, groups)
        self.enlarge = nn.ConvTranspose2d(2 * outputs, outputs, 2, 2)

    def forward(self, x, kept):
        return super().forward(torch.cat([kept, self.enlarge(x)], 1))


class UNet(nn.Module):
    def __init__(self, image, channels, classes, depth, width, groups):
        super().__init__()
        widths = [width << level for level in range(depth)]
        self.down = nn.ModuleList(Pair(inputs, outputs, groups) for inputs, outputs in zip([channels] + widths, widths))
        self.bottom = Pair(widths[-1], 2 * widths[-1], groups)
        self.up = nn.ModuleList(Up(outputs, groups) for outputs in widths)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        kept = []
        for pair in self.down:
            kept.append(pair(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.bottom(x)
        for up, whole in zip(reversed(self.up), reversed(kept)):
            x = up(x, whole)
        return self.head(x)


SGD = dict(kind="sgd", beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.01, clip=None, momentum=0.9)
ADAMW = dict(kind="adamw", beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.1, clip=None)
RESNET = dict(channels=3, classes=7, width=4)
MODELS = {
    "resnet_small": ("resnet", ResNet, RESNET | dict(image=16, small=True, bottleneck=False, blocks=[1, 2, 1, 1]), SGD, 0.01),
    "resnet_bottleneck": ("resnet", ResNet, RESNET | dict(image=40, small=False, bottleneck=True, blocks=[1, 1, 1, 1]), SGD, 0.005),
    "vit": ("vit", ViT, dict(image=16, channels=3, classes=7, patch=4, layers=2, heads=2, width=16, inner=32, dropout=0.0), ADAMW, 0.001),
    "unet": ("unet", UNet, dict(image=16, channels=3, classes=5, depth=2, width=4, groups=2), ADAMW, 0.001),
}


def optimizer_of(model, settings, rate):
    """Matrices and convolutions decay; gains, biases, the class token and positions do not."""
    decays = lambda name, own: own.ndim >= 2 and name.endswith("weight")
    named = list(model.named_parameters())
    groups = [
        dict(params=[own for name, own in named if decays(name, own)], weight_decay=settings["weight_decay"]),
        dict(params=[own for name, own in named if not decays(name, own)], weight_decay=0.0),
    ]
    if settings["kind"] == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=settings["momentum"])
    return torch.optim.AdamW(groups, lr=rate, betas=(settings["beta1"], settings["beta2"]), eps=settings["epsilon"])


def batch(kind, config, step, dtype):
    image, channels, classes = config["image"], config["channels"], config["classes"]
    shape = (ROWS, channels, image, image)
    images = torch.tensor(values(f"images {step}", int(np.prod(shape))).reshape(shape) * 2.0, dtype=dtype)
    shape = (ROWS, image, image) if kind == "unet" else (ROWS,)
    chosen = np.floor((values(f"targets {step}", int(np.prod(shape))) + 1.0) / 2.0 * classes)
    return images, torch.tensor(chosen.astype(np.int64).reshape(shape))


def two_numbers(name, tensor):
    own = tensor.detach().double().flatten().numpy()
    return [float(np.linalg.norm(own)), float(own @ values(f"direction {name}", own.size))]


def run(kind, make, config, settings, rate, dtype):
    model = make(**config).to(dtype)
    with torch.no_grad():
        for name, own in model.named_parameters():
            own.copy_(torch.tensor(initial(name, tuple(own.shape))))
    optimizer = optimizer_of(model, settings, rate)
    steps = []
    model.train()
    for step in range(STEPS):
        images, targets = batch(kind, config, step, dtype)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), targets)
        loss.backward()
        gradients = {name: two_numbers(name, own.grad) for name, own in model.named_parameters()}
        steps.append(dict(loss=loss.item(), gradients=gradients))
        optimizer.step()
    buffers = {name: two_numbers(name, own) for name, own in model.named_buffers() if not name.endswith("tracked")}
    model.eval()
    with torch.no_grad():
        images, targets = batch(kind, config, 0, dtype)
        logits = model(images)
        right = (logits.argmax(1) == targets).double().mean().item()
        evaluation = [F.cross_entropy(logits, targets).item(), right]
    return dict(steps=steps, buffers=buffers, evaluation=evaluation)


def rounding(found, expected):
    """The largest difference: of losses by themselves, of gradients by their norm."""
    largest = 0.0
    for a, b in zip(found["steps"], expected["steps"]):
        largest = max(largest, abs(a["loss"] / b["loss"] - 1.0))
        for name, (norm, product) in b["gradients"].items():
            of = [abs(x - y) / norm for x, y in zip(a["gradients"][name], (norm, product))]
            largest = max(largest, *of)
    return largest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("vision.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    written = {}
    for name, (kind, make, config, settings, rate) in MODELS.items():
        exact, single = (run(kind, make, config, settings, rate, dtype) for dtype in (torch.float64, torch.float32))
        own = rounding(single, exact)
        print(f"{name}: PyTorch's f32 differs by {own:.1e}; losses {[round(step['loss'], 4) for step in exact['steps']]}")
        written[name] = dict(config={kind: config}, optimizer=settings, learning_rate=rate, **exact, rounding=own)
    text = json.dumps(written, indent=None, separators=(",", ":"))
    # Ten digits are more than f32 has.
    short = json.loads(text, parse_float=lambda number: float(f"{float(number):.10g}"))
    lines = [f'"{name}":{json.dumps(own, separators=(",", ":"))}' for name, own in short.items()]
    arguments.out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
