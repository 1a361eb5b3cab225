"""The one training loop: budget, schedule, clipping, early stop, resume, progress. Every method runs in it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from neurosql import precision, signals
from neurosql.errors import InputError, NotFinite
from neurosql.methods.average import Average
from neurosql.methods.base import Batch, Method, must_be_finite
from neurosql.settings import TrainingSettings
from neurosql.together import Together

CLOSING_RATE = 0.3
SHOWN = {"loss": "loss", "heldout_loss": "held out"}
"""The figures beside the progress bar, with the words for them."""
LARGEST_WEIGHT = 1e18
"""Weights beyond this have diverged, finite or not: their squares overflow."""
USUAL_RATE = TrainingSettings().learning_rate

Record = dict[str, Any]


class Stopped(Exception):
    """The run was asked to stop; its state was handed to `save` first."""

    path: Path | None = None
    """The run folder that holds the state, if there is one."""


class Diverged(InputError):
    """A loss, a gradient, a weight, a cost or an image is not finite.

    The step in which this was seen was not taken: the weights are those from before it. The last checkpoint is older.
    """


@dataclass(frozen=True)
class Used:
    """What a run actually used, for comparison with other runs."""

    steps: int
    """Steps of the loop; a GAN's generator and discriminator both learn in one."""
    images: int
    """Training images seen, counted again each time."""
    seconds: float
    """Seconds of training in total, resumes included: with assignment and validation, without pictures and scores."""
    peak_memory: int
    """Peak bytes of the process, data and program included; on a GPU, those of the device; 0 if unknown."""
    parameters_trained: int
    parameters_sampling: int
    """Parameters that sampling needs."""


class Trainer:
    """Trains a method on images (n, ...) for a budget.

    `save(trainer)` is called for each checkpoint and `record(figures)` once per epoch; if that returns True, training
    ends as if its budget were spent. `state` and `load_state` carry everything that decides what comes next, so that a
    resumed run takes the same steps as one that was not stopped.

    If several ranks train together, each takes its part of every batch. All hold the same state and decide the same
    things at the same places, so that none waits for another that has left.
    """

    def __init__(
        self,
        method: Method,
        x: Tensor,
        labels: Tensor | None,
        settings: TrainingSettings,
        heldout: tuple[Tensor, Tensor | None] | None = None,
        save: Callable[[Trainer], None] | None = None,
        record: Callable[[Record], bool | None] | None = None,
        progress: bool = False,
    ) -> None:
        self.method, self.x, self.labels, self.settings, self.heldout = method, x, labels, settings, heldout
        self.save, self.record, self.progress = save, record, progress
        self.together = Together(method, self.elapsed)
        self.optimizers = {name: _optimizer(params, settings) for name, params in method.optimizers().items()}
        self.random = torch.Generator().manual_seed(settings.seed)
        self.average = Average(method, settings.ema) if settings.ema else None

        self.batches = batches_of(len(x), settings)
        self.budget = settings.epochs * self.batches
        if settings.steps is not None:
            self.budget = min(self.budget, settings.steps)
        self.epochs = math.ceil(self.budget / self.batches)

        self.phase = "main"
        self.closing_epochs = 0
        self.epoch = 0
        self.step = 0
        self.batch = 0
        self.order = torch.empty(0, dtype=torch.int64)
        self.losses: dict[str, float] = {}
        self.best: dict[str, Tensor] | None = None
        self.best_loss: float | None = None
        self.best_epoch = 0
        self.shown: dict[str, float] = {}
        self.images = 0
        self.saved = False
        self.at = "before its first step"
        self.seconds = 0.0
        self.began = time.perf_counter()
        self.asked: Callable[[], bool] = bool

    def run(self) -> None:
        """Train to the end of the budget, or until `Stopped` or `Diverged`."""
        try:
            lower = precision.casting(self.method.networks.values(), self.settings.precision)
            with signals.asked_to_stop() as self.asked, self._bar() as bar, lower:
                while not self._finished():
                    for batch in self._epoch_batches():
                        stop = self._take_step(batch)
                        bar.update()
                        if stop:
                            self._checkpoint()
                            raise Stopped
                    self._end_epoch(bar)
                    if self.together.any(self.asked()) and not self._finished():
                        self._checkpoint()
                        raise Stopped
            self._check_model()
        except NotFinite as error:
            raise Diverged(f"training diverged {self.at}: {error}. {self._advice()}") from None

    def _advice(self) -> str:
        """What to try if training has diverged."""
        rate = self.settings.learning_rate
        lower = USUAL_RATE if rate > 2 * USUAL_RATE else rate / 10
        clip = "" if self.settings.clip else ", and clip 1"
        return f"Try a learning_rate below {rate:g}, such as {lower:g}{clip}"

    def _take_step(self, batch: Batch) -> bool:
        """One step; if anything in it is not finite, the networks are left as they were before it.

        Returns whether the run was asked to stop.
        """
        self.at = f"in epoch {self.epoch + 1}, step {self.step + 1}"
        self.method.pace = self.learning_rate() / self.settings.learning_rate
        # Running statistics change in the forward pass, and a GAN has two updates: keep all, not what one update has.
        before = [tensor.detach().clone() for tensor in self._network_tensors()]
        try:
            figures = self.method.training_step(batch, self._update)
            figures, stop = self.together.after_step(figures, self.asked())
            for name, value in figures.items():
                if not math.isfinite(value):
                    raise NotFinite(f"{name} is not finite")
            self._check_sizes()
        except NotFinite:
            with torch.no_grad():
                for tensor, kept in zip(self._network_tensors(), before):
                    tensor.copy_(kept)
            raise
        if self.average is not None:
            self.average.update(self.step)
        for name, value in figures.items():
            self.losses[name] = self.losses.get(name, 0.0) + value * batch.part.whole
        self.step += 1
        self.batch += 1
        self.images += batch.part.whole
        return stop

    def _epoch_batches(self) -> Iterator[Batch]:
        """The remaining batches of this epoch: all of them, unless the run was resumed in mid-epoch."""
        if self.batch == 0:
            self.order = torch.randperm(len(self.x), generator=self.random)
        for index in self.order.tensor_split(self.batches)[self.batch :]:
            if self.phase == "main" and (self.step >= self.budget or self._time_is_up()):
                return
            yield self.together.batch(index.to(self.x.device), self.x, self.labels)

    def elapsed(self) -> float:
        """Seconds of training so far, including those before a resume."""
        return self.seconds + time.perf_counter() - self.began

    def _time_is_up(self) -> bool:
        limit = self.settings.seconds
        return limit is not None and self.batch > 0 and self.together.time() >= limit

    def used(self) -> Used:
        """What the run has used so far."""
        return Used(
            steps=self.step,
            images=self.images,
            seconds=self.elapsed(),
            peak_memory=_peak_memory(self.x.device),
            parameters_trained=sum(p.numel() for params in self.method.optimizers().values() for p in params),
            parameters_sampling=self.method.parameters(*self.method.sampling),
        )

    def _update(self, name: str, loss: Tensor) -> None:
        """One clipped step of an optimiser down the gradient of the joint batch, at the schedule's learning rate."""
        optimizer = self.optimizers[name]
        parameters = optimizer.param_groups[0]["params"]
        rate = self.learning_rate()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        several = self.together.ranks.several
        if several:
            loss = self.together.backward(loss, parameters)
        if not loss.isfinite():
            wrong = [term for term, value in self.method.terms.items() if not value.isfinite().all()]
            raise NotFinite(f"the loss of the {name} is not finite{f' ({wrong[0]})' if wrong else ''}")
        if not several:
            loss.backward()
        if self.settings.clip:
            norm = torch.nn.utils.clip_grad_norm_(parameters, self.settings.clip)
        else:
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
        must_be_finite(f"the gradient of the {name}", norm)
        optimizer.step()

    def _network_tensors(self) -> list[Tensor]:
        """The weights and running statistics of all networks: the tensors themselves."""
        networks = self.method.networks.values()
        return [tensor for network in networks for tensor in (*network.parameters(), *network.buffers())]

    def _check_sizes(self) -> None:
        """Refuse weights and running statistics that are not finite, or so large that what follows can't be."""
        tensors = [tensor.detach() for tensor in self._network_tensors() if tensor.is_floating_point()]
        # The largest weight takes twenty times as long to find as the norm, which is no smaller.
        norms = torch.stack([torch.linalg.vector_norm(tensor) for tensor in tensors])
        if bool((norms <= LARGEST_WEIGHT).all()):
            return
        largest = float(torch.stack([tensor.abs().max() for tensor in tensors if tensor.numel()]).max())
        if not largest <= LARGEST_WEIGHT:
            raise NotFinite("a weight is not finite" if not math.isfinite(largest) else f"a weight is {largest:.1g}")

    def _check_model(self) -> None:
        """Refuse a model that is not worth keeping: weights, their average, codes or images that are not finite."""
        self._check_sizes()
        must_be_finite("the average of the weights", *(self.average.tensors.values() if self.average else ()))
        must_be_finite("what the model makes", *self.method.probe())

    def learning_rate(self) -> float:
        """The learning rate of the next step."""
        start = self.settings.learning_rate
        if self.phase == "closing":
            done = self.epoch * self.batches + self.batch
            return CLOSING_RATE * start * _cosine(done / (self.closing_epochs * self.batches))
        if self.settings.schedule == "constant":
            return start
        if self.settings.schedule == "cosine":
            return start * _cosine(self._done())
        cycle, at = self.settings.cycle * self.batches, self.step
        while at >= cycle:
            at, cycle = at - cycle, 2 * cycle
        return start * _cosine(at / cycle)

    def _done(self) -> float:
        """Share of the budget that is spent: of the steps, or of the seconds if that is more."""
        share = self.step / self.budget
        return share if self.settings.seconds is None else max(share, self.together.time() / self.settings.seconds)

    def _end_epoch(self, bar: tqdm) -> None:
        seen = sum(len(index) for index in self.order.tensor_split(self.batches)[: self.batch])
        figures: Record = {"epoch": self.epoch + 1, "phase": self.phase, "step": self.step}
        figures |= {name: total / seen for name, total in self.losses.items()}
        figures["learning_rate"] = self.learning_rate()
        if self.phase == "main":
            figures |= self.method.end_epoch(self.epoch, self.epochs)
        figures |= self.together.align(self.method, self.average)
        self.epoch, self.batch, self.losses = self.epoch + 1, 0, {}
        figures |= self._validate()
        figures["seconds"] = {part: round(seconds, 4) for part, seconds in self.method.clock.read().items()}
        figures |= self.together.exchanged()
        enough = bool(self.record(figures)) if self.record is not None else False
        enough = bool(self.together.decide(enough))
        self.shown |= {word: figures[name] for name, word in SHOWN.items() if name in figures}
        self._describe(bar)
        if self.phase == "main" and (enough or self._main_is_over()):
            self._close()
        elif enough:
            self.closing_epochs = self.epoch
        elif self.epoch % self.settings.checkpoint_every == 0 or (self.best is not None and not self.saved):
            # A run that keeps its best model has a checkpoint too: without one it would count as finished.
            self._checkpoint()

    def _validate(self) -> Record:
        """Every few epochs, and at the end of the main budget: the held-out loss, and the best model so far."""
        due = self.epoch % self.settings.validate_every == 0 or self.epoch == self.epochs
        if self.phase != "main" or self.heldout is None or not self.method.validates or not due:
            return {}
        with self.method.clock("validation"), self._averaged():
            loss = self.together.decide(self.method.heldout_loss(*self.heldout))
            if not math.isfinite(loss):
                raise NotFinite("the held-out loss is not finite")
            if self.best_loss is None or loss < self.best_loss:
                self.best_loss, self.best_epoch = loss, self.epoch
                if self.settings.patience:
                    self.best = self.method.state()
        return {"heldout_loss": loss}

    def _main_is_over(self) -> bool:
        impatient = self.settings.patience and self.heldout is not None and self.method.validates
        waited = self.epoch - self.best_epoch
        late = self.settings.seconds is not None and self.together.time() >= self.settings.seconds
        return late or self.epoch >= self.epochs or bool(impatient and waited >= self.settings.patience)

    def _close(self) -> None:
        """End the main budget: keep the best model, then begin the closing epochs that the method asks for."""
        if self.best is not None:
            self.method.load_state(self.best)
        elif self.average is not None:
            self.average.install()
        self.average = None
        self.best = None
        self.phase, self.epoch, self.batch = "closing", 0, 0
        self.closing_epochs = self.method.closing()
        self.optimizers = {name: _optimizer(params, self.settings) for name, params in self.method.optimizers().items()}
        self._checkpoint()

    def _finished(self) -> bool:
        return self.phase == "closing" and self.epoch >= self.closing_epochs

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Use the averaged weights in place of the current ones, within the context."""
        if self.average is None:
            yield
            return
        with self.average.installed():
            yield

    def _checkpoint(self) -> None:
        self._check_model()
        if self.save is not None:
            self.save(self)
            self.saved = True

    def _bar(self) -> tqdm:
        # disable=None is silent if there is no terminal.
        bar = tqdm(
            total=self.budget,
            initial=min(self.step, self.budget),
            disable=None if self.progress and self.together.ranks.first else True,
            dynamic_ncols=True,
            bar_format="{desc} {percentage:3.0f}% |{bar:20}| {remaining} left{postfix}",
        )
        self._describe(bar)
        return bar

    def _describe(self, bar: tqdm) -> None:
        """What stands before and after the bar: all of it fits on a line of 80 characters."""
        closing = self.phase != "main"
        now, last = self.epoch, self.closing_epochs if closing else self.epochs
        bar.set_description_str(f"{'closing' if closing else 'epoch'} {min(now + 1, last)}/{last}", refresh=False)
        bar.set_postfix_str(", ".join(f"{word} {value:.3f}" for word, value in self.shown.items()), refresh=False)

    def state(self) -> tuple[dict[str, Tensor], Record]:
        """Everything that decides what comes next: tensors by name, and plain values."""
        tensors = {f"method.{name}": tensor for name, tensor in self.method.state().items()}
        tensors |= {"random": self.random.get_state(), "order": self.order}
        for name, optimizer in self.optimizers.items():
            for number, moments in optimizer.state_dict()["state"].items():
                for key, value in moments.items():
                    if value is not None:
                        tensors[f"optimizer.{name}.{number}.{key}"] = torch.as_tensor(value)
        if self.average is not None:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.tensors.items()}
        if self.best is not None:
            tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        return tensors, {name: getattr(self, name) for name in _PLAIN} | {"seconds": self.elapsed()}

    def load_state(self, tensors: dict[str, Tensor], plain: Record) -> None:
        """Continue from what `state` returned."""
        groups: dict[str, dict[str, Tensor]] = {"method": {}, "optimizer": {}, "average": {}, "best": {}}
        for name, tensor in tensors.items():
            group, _, rest = name.partition(".")
            if rest:
                groups[group][rest] = tensor
        for name in _PLAIN:
            setattr(self, name, plain[name])
        self.seconds, self.began = plain["seconds"], time.perf_counter()
        self.together.agreed = self.seconds
        self.method.load_state(groups["method"])
        self.random.set_state(tensors["random"])
        self.order = tensors["order"]
        for name, optimizer in self.optimizers.items():
            full = optimizer.state_dict()
            for key, tensor in groups["optimizer"].items():
                owner, number, moment = key.split(".")
                if owner == name:
                    full["state"].setdefault(int(number), {})[moment] = tensor
            optimizer.load_state_dict(full)
        self.best = groups["best"] or None
        self.saved = True
        if self.phase == "closing":
            self.average = None
        elif self.average is not None:
            self.average.tensors = {k: v.to(self.x.device) for k, v in groups["average"].items()}


_PLAIN = (
    *("phase", "closing_epochs", "epoch", "step", "batch", "images", "losses"),
    *("best_loss", "best_epoch"),
)


def batches_of(n: int, settings: TrainingSettings) -> int:
    """How many batches n images are divided into."""
    # At least two images per batch: batch normalisation can't learn from one.
    return max(1, min(math.ceil(n / settings.batch_size), n // 2))


def _optimizer(parameters: list[torch.nn.Parameter], settings: TrainingSettings) -> torch.optim.Optimizer:
    kinds: dict[str, Any] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}
    # A fused optimiser takes one pass over each parameter instead of a dozen; torch has it for these devices.
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in parameters)
    common: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay, "fused": fused}
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=settings.beta1, **common)
    return kinds[settings.optimizer](parameters, betas=(settings.beta1, settings.beta2), **common)


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return 0
    import resource

    # Kilobytes on Linux, bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _cosine(done: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
