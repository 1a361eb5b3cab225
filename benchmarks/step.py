"""Race one training step of a generator in variants, and say what each variant does to the loss.

    python benchmarks/step.py [--out docs/step-results.md]

A step is forward, SSIM + L1, backward, clipping and the optimiser's update, on a batch of 64 with d = 2. The variants
take their steps in turn, round after round, and the figure is the median of the ratios within a round: on a shared
machine nothing else is meaningful. The loss is from a separate run with one seed, on the embedded digits, with the
codes of the PCA start kept fixed. "As it was" is SSIM of five stacked maps with the plain AdamW.
"""

from __future__ import annotations

import argparse
import logging
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, relu

from neurosql import data, generators, prior
from neurosql.assign.start import pca_permutation
from neurosql.cost import Cost
from neurosql.generators import initial
from neurosql.generators.base import Generator
from neurosql.generators.convnet import ConvNet
from neurosql.generators.grid import base_grid, crop, grow
from neurosql.generators.resnet import ResNet
from neurosql.generators.unet import Level
from neurosql.settings import TrainingSettings
from neurosql.similarity import C1, C2, _bands, _smooth

BATCH = 64
LATENT = 2
SHAPES = ((1, 28, 28), (3, 64, 64))
DEFAULTS = TrainingSettings()

Loss = Callable[[Tensor, Tensor], Tensor]
PAIRED: Loss = Cost().paired


class ContiguousConvNet(ConvNet):
    def decode(self, code: Tensor) -> Tensor:
        h = relu(self.norms[0](self.entry(code).reshape(-1, self.widths[0], *self.sizes[0])))
        for size, stage, norm in zip(self.sizes[1:], self.stages, list(self.norms)[1:]):
            h = relu(norm(crop(stage(h), size)))
        return self.head(h)


class UpsamplingConvNet(ConvNet):
    def decode(self, code: Tensor) -> Tensor:
        h = relu(self.norms[0](base_grid(self.entry(code), self.widths[0], self.sizes[0])))
        for size, stage, norm in zip(self.sizes[1:], self.stages, list(self.norms)[1:]):
            h = relu(norm(stage(grow(h, size))))
        return self.head(h).contiguous()


class ContiguousResNet(ResNet):
    def decode(self, code: Tensor) -> Tensor:
        h = relu(self.norm(self.entry(code).reshape(-1, self.widths[0], *self.sizes[0])))
        for block in self.blocks:
            h = block(h)
        return self.head(h)


class ChannelsLast(nn.Module):
    """A layer whose input is laid out with the channels last."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, h: Tensor, *rest: Tensor) -> Tensor:
        return self.layer(h.contiguous(memory_format=torch.channels_last), *rest)


def other_layout(net: Generator) -> Generator:
    """Contiguous where the net has its channels last; channels last in the U-Net, which is contiguous."""
    kinds: dict[str, type[Generator]] = {"convnet": ContiguousConvNet, "resnet": ContiguousResNet}
    if net.name in kinds:
        net.__class__ = kinds[net.name]
    else:
        for module in net.modules():
            if isinstance(module, Level):
                module.film1, module.shortcut = ChannelsLast(module.film1), ChannelsLast(module.shortcut)
    return net


def upsampling(net: Generator) -> Generator:
    """Nearest-neighbour doubling and a 3x3 convolution in place of each transposed convolution."""
    net.stages = nn.ModuleList(
        nn.Conv2d(before, after, kernel_size=3, padding=1, bias=False)
        for before, after in zip(net.widths, net.widths[1:])
    )
    net.__class__ = UpsamplingConvNet
    initial.fill(net, torch.Generator().manual_seed(0))
    return net


def five_maps(x: Tensor, y: Tensor) -> Tensor:
    """SSIM + L1 with one stack of all five windowed maps, target and generated alike."""
    mx, my, xx, yy, xy = _smooth(torch.stack([x, y, x * x, y * y, x * y]), _bands(x.shape[2:], x)).unbind()
    mm, m2 = mx * my, mx * mx + my * my
    quotient = (2 * mm + C1) * (2 * (xy - mm) + C2) / ((m2 + C1) * (xx + yy - m2 + C2))
    return 0.5 * (1 - quotient.flatten(1).mean(1)) + 0.5 * (x - y).abs().flatten(1).mean(1)


class Step:
    """One variant: its net, its optimiser and how they are called."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        change: Callable[[Generator], Generator] = lambda net: net,
        paired: Loss = PAIRED,
        compiled: str = "",
        bfloat16: bool = False,
        **optimizer: bool,
    ) -> None:
        self.net = change(generators.make(name, shape, LATENT))
        self.parameters = list(self.net.parameters())
        rates = {"lr": DEFAULTS.learning_rate, "weight_decay": DEFAULTS.weight_decay}
        self.optimizer = torch.optim.AdamW(self.parameters, **rates, **optimizer)
        self.bfloat16 = bfloat16
        decode = torch.compile(self.net) if compiled == "net" else self.net

        def loss(x: Tensor, z: Tensor) -> Tensor:
            # Only the net is cast: SSIM subtracts squares of means from means of squares.
            with torch.autocast("cpu", torch.bfloat16) if bfloat16 else nullcontext():
                y = decode(z)
            return paired(x, y.float()).mean()

        self.loss = torch.compile(loss) if compiled == "all" else loss

    def __call__(self, x: Tensor, z: Tensor) -> float:
        loss = self.loss(x, z)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, DEFAULTS.clip)
        self.optimizer.step()
        return loss.item()


def variants(name: str, shape: tuple[int, ...]) -> dict[str, Callable[[], Step]]:
    """Every variant of a net, by what the table calls it; the reference comes first."""

    def make(**options) -> Callable[[], Step]:
        return lambda: Step(name, shape, **options)

    fused = {"fused": True}
    found = {
        "as now": make(**fused),
        "as it was": make(paired=five_maps, foreach=False),
        "the other layout": make(change=other_layout, **fused),
        "SSIM of five stacked maps": make(paired=five_maps, **fused),
        "AdamW, plain": make(foreach=False),
        "AdamW, foreach": make(foreach=True),
        "compile, net and loss": make(compiled="all", **fused),
    }
    if name == "convnet":
        found["compile, net"] = make(compiled="net", **fused)
        found["upsampling + 3x3"] = make(change=upsampling, **fused)
    if bfloat16_runs():
        found["bfloat16"] = make(bfloat16=True, **fused)
        found["bfloat16, compile, net and loss"] = make(bfloat16=True, compiled="all", **fused)
    return found


def bfloat16_runs() -> bool:
    """Whether bfloat16 runs here: if the system withholds the tile registers, it ends the process."""
    trial = "import torch; m = torch.ones(64, 64, dtype=torch.bfloat16); m @ m"
    return subprocess.run([sys.executable, "-c", trial], stderr=subprocess.DEVNULL).returncode == 0


def problem(shape: tuple[int, ...], n: int) -> tuple[Tensor, Tensor]:
    """n digits, enlarged and tinted if the shape asks for it, and the codes that the PCA start gives them."""
    x = torch.from_numpy(data.load("mnist-sample", limit=n).x)
    if shape[1:] != x.shape[2:]:
        x = interpolate(x, shape[1:], mode="bilinear")
    if shape[0] != 1:
        x = x * torch.linspace(1.0, 0.5, shape[0]).view(1, -1, 1, 1)
    lattice = prior.make("normal", LATENT).lattice(n, 0).float()
    return x, lattice[pca_permutation(x, lattice, torch.Generator().manual_seed(0))]


def batches(n: int) -> Iterator[Tensor]:
    random = torch.Generator().manual_seed(0)
    while True:
        yield from torch.randperm(n, generator=random).split(BATCH)[: n // BATCH]


def race(steps: dict[str, Step], x: Tensor, z: Tensor, rounds: int) -> dict[str, list[float]]:
    """Seconds of every step of each variant, in turn; the first three rounds only warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn, index in zip(range(rounds + 3), batches(len(x))):
        for name, step in steps.items():
            began = time.perf_counter()
            step(x[index], z[index])
            if turn >= 3:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def final_loss(step: Step, x: Tensor, z: Tensor, count: int) -> float:
    """Mean loss over all images after `count` steps from the initial weights, in float32."""
    for _, index in zip(range(count), batches(len(x))):
        step(x[index], z[index])
    step.net.eval()
    with torch.no_grad():
        return float(torch.cat([PAIRED(a, step.net(b)) for a, b in zip(x.split(256), z.split(256))]).mean())


def table(name: str, shape: tuple[int, ...], rounds: int, count: int) -> list[str]:
    x, z = problem(shape, 2000 if shape == SHAPES[0] else 512)
    made = variants(name, shape)
    steps, first = {}, {}
    for title, make in made.items():
        began = time.perf_counter()
        step = make()
        try:
            step(x[:BATCH], z[:BATCH])
        except RuntimeError as error:
            print(f"{title}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        steps[title], first[title] = step, time.perf_counter() - began
    times = race(steps, x, z, rounds)
    lines = [
        f"| variant | step, ratio to as now | first step, s | loss after {count} steps |",
        "| --- |" + " ---: |" * 3,
    ]
    now = times["as now"]
    for title, seconds in times.items():
        ratio = statistics.median(own / reference for own, reference in zip(seconds, now))
        loss = f"{final_loss(made[title](), x, z, count):.4f}" if count else "-"
        shown = f"1 ({1e3 * statistics.median(now):.0f} ms)" if title == "as now" else f"{ratio:.2f}"
        lines.append(f"| {title} | {shown} | {first[title]:.1f} | {loss} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generators", nargs="*", default=["convnet", "resnet", "unet"])
    parser.add_argument("--rounds", type=int, default=15, help="steps of each variant that are timed")
    parser.add_argument("--steps", type=int, default=300, help="steps before the loss is taken (28 x 28 only)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the tables to this page")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    logging.getLogger("torch").setLevel(logging.ERROR)
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        named = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = named[0].partition(":")[2].strip() if named else cpu
    lines = ["# The training step's races", "", f"{cpu}, threads: {chosen.threads}, torch {torch.__version__}."]
    if not bfloat16_runs():
        lines += ["", "bfloat16 is left out: it ends the process here."]
    for shape in SHAPES:
        for name in chosen.generators:
            lines += ["", f"{name}, {'x'.join(map(str, shape[1:] + shape[:1]))}, batch {BATCH}:", ""]
            print(lines[-2], flush=True)
            lines += table(name, shape, chosen.rounds, chosen.steps if shape == SHAPES[0] else 0)
    if chosen.out:
        lines += ["", f"Made by `python benchmarks/step.py --out {chosen.out.as_posix()}`."]
        chosen.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
