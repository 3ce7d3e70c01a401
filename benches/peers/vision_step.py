"""Times a training step of the models of `train resnet|vit|unet` in PyTorch, beside `train KIND --bench STEPS`.

    python benches/peers/vision_step.py KIND SIZE [--batch 32] [--steps 20] [--threads 2] [--compile]
        [--device cuda] [--bf16] [--channels-last]

The models are those of `tests/golden/vision.py`; a step is forward, loss, backward, clipping and AdamW, in f32 or by
autocast in bf16, as the command takes it. On a device the parameters are updated by one kernel. Prints the median of the
steps after three that are not counted, and the quartiles.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))
import vision

SMALL = dict(channels=3, classes=6, image=32, small=True, bottleneck=False)
VIT, UNET = dict(channels=3, classes=6, image=32, dropout=0.0), dict(channels=3, classes=7)
SIZES = {
    ("resnet", "nano"): SMALL | dict(blocks=[1] * 4, width=8),
    ("resnet", "18-small"): SMALL | dict(blocks=[2] * 4, width=64),
    ("resnet", "50"): dict(
        channels=3, classes=1000, image=224, small=False, bottleneck=True, blocks=[3, 4, 6, 3], width=64
    ),
    ("vit", "nano"): VIT | dict(patch=8, layers=2, heads=2, width=64, inner=256),
    ("vit", "micro"): VIT | dict(patch=4, layers=6, heads=4, width=128, inner=512),
    ("unet", "nano"): UNET | dict(image=32, depth=2, width=8, groups=4),
    ("unet", "micro"): UNET | dict(image=64, depth=3, width=16, groups=8),
}
MAKE = {"resnet": vision.ResNet, "vit": vision.ViT, "unet": vision.UNet}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(MAKE))
    parser.add_argument("size")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    arguments = parser.parse_args()
    if (arguments.kind, arguments.size) not in SIZES:
        parser.error(f"there are {', '.join(' '.join(pair) for pair in SIZES)}")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    config = SIZES[arguments.kind, arguments.size]
    device = arguments.device
    layout = torch.channels_last if arguments.channels_last else torch.contiguous_format
    model = MAKE[arguments.kind](**config).to(device, memory_format=layout)
    forward = torch.compile(model) if arguments.compile else model
    fused = device != "cpu"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=fused)
    images = torch.randn(arguments.batch, config["channels"], config["image"], config["image"], device=device)
    images = images.to(memory_format=layout)
    shape = (arguments.batch,) + ((config["image"],) * 2 if arguments.kind == "unet" else ())
    targets = torch.randint(config["classes"], shape, device=device)
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    times = []
    for _ in range(arguments.steps + 3):
        wait()
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=arguments.bf16):
            loss = F.cross_entropy(forward(images), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        wait()
        times.append((time.perf_counter() - start) * 1e3)
    own = times[3:]
    quartiles = statistics.quantiles(own, n=4)
    how = "torch.compile" if arguments.compile else "eager"
    what = f"{arguments.kind} {arguments.size}, batch {arguments.batch}, {how} {torch.__version__}"
    print(f"{what}: {statistics.median(own):.2f} ms, "
          f"half of {len(own)} steps {quartiles[0]:.2f} to {quartiles[2]:.2f}")


if __name__ == "__main__":
    main()
