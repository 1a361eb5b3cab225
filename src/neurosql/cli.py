"""The command line: neurosql train | resume | sample | encode | info. It parses, calls, and says what was written."""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass, field
from typing import Annotated, Union

import tyro

from neurosql.errors import InputError
from neurosql.settings import GeneratorSettings, QuantileSettings, Settings, TrainingSettings

STOPPED = 130


@dataclass(frozen=True)
class Train:
    """Train a model and leave a run folder with the model, its codes, pictures and a page."""

    data: tyro.conf.Positional[str] = "mnist-sample"
    """mnist-sample (embedded), a folder of images (a folder a class gives labels), a .npy or a .npz file."""
    out: str | None = None
    """Run folder to create; by default the next free one under runs/."""
    limit: int | None = None
    """Use at most so many images."""
    generator: GeneratorSettings = field(default_factory=GeneratorSettings)
    quantile: QuantileSettings = field(default_factory=QuantileSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def __call__(self) -> None:
        from neurosql import commands

        settings = Settings(self.generator, self.quantile, self.training)
        commands.train(self.data, settings, self.out, self.limit)


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was stopped, to the same bits as if it had not been."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    data: str | None = None
    """Where the training images are, if they have moved."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.resume(self.run, self.data)


@dataclass(frozen=True)
class Sample:
    """Draw new images from a trained model."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 64
    """Number of images."""
    label: str | None = None
    """Class to draw from (class-conditional models)."""
    seed: int = 0
    """Seed of the draw."""
    out: str | None = None
    """A .png sheet (the default, in the run folder), a .npy or .npz array, or a folder for single .png files."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.sample(self.run, self.n, self.label, self.seed, self.out)


@dataclass(frozen=True)
class Encode:
    """Find the latent codes of images, seen or unseen."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    data: tyro.conf.Positional[str]
    """mnist-sample, a folder of images, a .npy or a .npz file."""
    limit: int | None = None
    """Use at most so many images."""
    out: str | None = None
    """A .npz (the default, in the run folder) or a .csv file."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.encode(self.run, self.data, self.limit, self.out)


@dataclass(frozen=True)
class Info:
    """Say what a run is, or, without one, what this installation uses."""

    run: tyro.conf.Positional[str | None] = None
    """Run folder."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.info(self.run)


Command = Union[Train, Resume, Sample, Encode, Info]  # noqa: UP007


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    try:
        command = tyro.cli(
            Command,
            args=arguments,
            prog="neurosql",
            description="Generative modelling by quantile assignment: a generator, a lattice, an assignment.",
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
        )
        command()
    except InputError as error:
        return _fail(str(error))
    except KeyboardInterrupt as stop:
        print(f"\n{stop}" if str(stop) else "\nstopped", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:
        return 1
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return _fail("the disk is full: free some space and run the command again; files already written are whole")
        return _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
    return 0


def _fail(sentence: str) -> int:
    print(f"neurosql: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
