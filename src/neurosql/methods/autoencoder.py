"""What autoencoders share: an encoder beside the generator, both trained by one optimiser, and codes from one pass."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neurosql.cost import Cost
from neurosql.encode import decode
from neurosql.errors import InputError
from neurosql.generators.base import Generator
from neurosql.methods.base import PROBED, Method
from neurosql.methods.encoders import CHUNK, Encoder, outputs

OPTIMIZER = "autoencoder"


class Autoencoder(Method):
    """A generator and an encoder whose first d outputs are the code of an image."""

    averaged = ("generator", "encoder")

    def __init__(self, generator: Generator, encoder: Encoder, cost: Cost) -> None:
        super().__init__({"generator": generator, "encoder": encoder}, generator.classes)
        self.generator, self.encoder, self.cost = generator, encoder, cost

    def optimizers(self) -> dict[str, list[nn.Parameter]]:
        return {OPTIMIZER: [*self.generator.parameters(), *self.encoder.parameters()]}

    def finish(self) -> None:
        """Compute the codes of the training images."""
        self.codes = self.code(self.x, self.labels)

    @torch.no_grad()
    def probe(self) -> tuple[Tensor, ...]:
        """A few codes of training images, and their images."""
        label = None if self.labels is None else self.labels[:PROBED]
        codes = self.code(self.x[:PROBED], label)
        return codes, self.decode(codes, label)

    def code(self, x: Tensor, label: Tensor | None) -> Tensor:
        """The encoder's codes (n, d) of images (n, ...), in evaluation mode."""
        return outputs(self.encoder, x, label)[:, : self.generator.latent_dim]

    def known_labels(self, x: Tensor, label: Tensor | None) -> Tensor | None:
        """The labels to encode images with: the given ones, or else a class-conditional model's best guess."""
        if not self.classes:
            return None
        return self.encode(x)[1] if label is None else label

    def encode(
        self, x: Tensor, label: Tensor | None = None, progress: bool = False
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Codes (m, d), labels (m,) and reconstruction losses (m,) of images (m, ...), seen or unseen.

        Without labels, a class-conditional model takes the class with the smallest loss.
        """
        if not self.classes:
            codes, losses = self._code_and_loss(x, None)
            return codes, None, losses
        known = torch.nonzero(self.class_counts).flatten().to(x.device)
        if label is not None:
            if not torch.isin(label, known).all():
                raise InputError("some of the labels are of classes that the model was not trained on")
            codes, losses = self._code_and_loss(x, label)
            return codes, label, losses
        tries = [self._code_and_loss(x, torch.full((len(x),), int(k), device=x.device)) for k in known]
        best = torch.stack([losses for _, losses in tries]).argmin(0)
        rows = torch.arange(len(x), device=x.device)
        codes, losses = (torch.stack(parts)[best, rows] for parts in zip(*tries))
        return codes, known[best], losses

    def _code_and_loss(self, x: Tensor, label: Tensor | None) -> tuple[Tensor, Tensor]:
        """Codes (m, d) of images and the losses l (m,) of their reconstructions, in chunks."""
        codes = self.code(x, label)
        losses = x.new_empty(len(x))
        for i in range(0, len(x), CHUNK):
            rows = slice(i, i + CHUNK)
            again = decode(self.generator, codes[rows], None if label is None else label[rows])
            losses[rows] = self.cost.paired(x[rows], again)
        return codes, losses

    def kept(self) -> dict[str, Tensor]:
        return super().kept() | ({} if self.labels is None else {"labels": self.labels})

    def restore(self, tensors: dict[str, Tensor]) -> None:
        super().restore(tensors)
        if self.classes:
            self.labels = tensors["labels"].to(self.device)
