"""Race the training loss, forward and backward, against the usual five filters left to autograd.

    python benchmarks/loss.py [--batch 64] [--rounds 15] [--out docs/loss-results.md]

SSIM + L1 of a batch of fixed images and images that require a gradient. All contenders run in turn with one number of
threads. Times are medians; on a shared machine only their ratio is meaningful. One thread is measured in processor
time, several in wall-clock time. pytorch-msssim is left out if it is not installed.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from neurosql.cost import Cost
from neurosql.data import load
from neurosql.similarity import C1, C2, gaussian_window

SHAPES = ((1, 28, 28), (3, 64, 64), (1, 128, 128))


def five_convolutions(x: Tensor, y: Tensor) -> Tensor:
    """SSIM from five depthwise convolutions over both axes, as it is usually written."""
    channels = x.shape[1]
    taps = gaussian_window(11, torch.float32)
    across, down = taps.view(1, 1, 1, -1), taps.view(1, 1, -1, 1)

    def smooth(t: Tensor) -> Tensor:
        t = F.conv2d(t, across.expand(channels, 1, 1, -1), groups=channels)
        return F.conv2d(t, down.expand(channels, 1, -1, 1), groups=channels)

    mx, my = smooth(x), smooth(y)
    vx, vy, covariance = smooth(x * x) - mx * mx, smooth(y * y) - my * my, smooth(x * y) - mx * my
    quotient = (2 * mx * my + C1) / (mx * mx + my * my + C1) * ((2 * covariance + C2) / (vx + vy + C2))
    return quotient.flatten(1).mean(1)


def contenders() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    def with_l1(similar: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda x, y: 0.5 * (1 - similar(x, y)) + 0.5 * (x - y).abs().flatten(1).mean(1)

    found = {"neurosql": Cost().paired, "five convolutions": with_l1(five_convolutions)}
    try:
        package = importlib.import_module("pytorch_msssim")
    except ImportError:
        return found
    return found | {"pytorch-msssim": with_l1(lambda x, y: package.ssim(x, y, data_range=1.0, size_average=False))}


def images(shape: tuple[int, ...], batch: int) -> tuple[Tensor, Tensor]:
    """Digits of the wanted size, and the same digits with noise."""
    digits = torch.from_numpy(load("mnist-sample", limit=batch).x)
    x = F.interpolate(digits, shape[1:], mode="bilinear").expand(-1, shape[0], -1, -1).contiguous()
    y = (0.7 * x + 0.3 * torch.rand(x.shape, generator=torch.Generator().manual_seed(0))).requires_grad_()
    return x, y


def row(shape: tuple[int, ...], batch: int, threads: int, rounds: int) -> str:
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    x, y = images(shape, batch)
    seconds: dict[str, list[float]] = {}
    gradients: dict[str, Tensor] = {}
    for turn in range(rounds + 1):
        for name, loss in contenders().items():
            y.grad = None
            began = clock()
            loss(x, y).mean().backward()
            if turn:
                seconds.setdefault(name, []).append(clock() - began)
            assert y.grad is not None
            gradients[name] = y.grad
    for gradient in gradients.values():
        assert torch.allclose(gradient, gradients["neurosql"], rtol=1e-3, atol=1e-3 * float(gradient.abs().max()))
    median = {name: statistics.median(times) for name, times in seconds.items()}
    ours = median.pop("neurosql")
    size = "x".join(map(str, shape[1:] + shape[:1]))
    ratios = " | ".join(f"{other / ours:.1f}x" for other in median.values())
    return f"| {size} | {threads} | {1e3 * ours:.2f} | {ratios} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--out", type=Path, help="write the table to this page")
    chosen = parser.parse_args()
    names = [name for name in contenders() if name != "neurosql"]
    lines = [f"SSIM + L1, forward and backward, of {chosen.batch} images; neurosql's speed over the others'.", ""]
    lines += [
        "| images | threads | neurosql, ms | " + " | ".join(names) + " |",
        "| --- |" + " ---: |" * (2 + len(names)),
    ]
    print("\n".join(lines), flush=True)
    for threads in chosen.threads:
        for shape in SHAPES:
            lines.append(row(shape, chosen.batch, threads, chosen.rounds))
            print(lines[-1], flush=True)
    if chosen.out:
        text = [
            "# The training loss",
            "",
            *lines,
            "",
            f"Made by `python benchmarks/loss.py --out {chosen.out.as_posix()}`.",
        ]
        chosen.out.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
