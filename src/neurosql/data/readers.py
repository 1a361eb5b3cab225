"""The readers by name: what each recognises, how it reads, and its own settings.

A reader is one file: what it recognises, how it scans, its own settings and, unless it shares one, its decoder. Its
`ReaderRecord` says where they are. The records of this package are below. Other packages offer theirs as entry points
of the group `neurosql.readers`; such a reader is used if a source names it, `NAME:PATH`. Nothing here imports a reader.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from neurosql.errors import InputError
from neurosql.registry import Registry, imported
from neurosql.settings import DataSettings

if TYPE_CHECKING:
    from neurosql.data.listing import Arrays, Listing
    from neurosql.data.tree import Tree

IMAGES = "neurosql.data.picture:DECODER"
"""The decoder of picture files."""


@dataclass(frozen=True)
class NoSettings:
    """The settings of a reader that has none."""

    def check(self) -> None:
        """There is nothing to refuse."""


@dataclass(frozen=True)
class ReaderRecord:
    """A kind of data on disk: what is known about it before its module is imported."""

    name: str
    implementation: str
    """Its module. There, `recognises(tree)` says whether it can read what is at a path, and `scan(tree, settings)`
    returns what there is to read: a `Listing` of files to be decoded, or whole `Arrays`."""
    other_names: tuple[str, ...] = ()
    """Other names that a source may use for it."""
    decoder: str | None = None
    """For files that are decoded one by one: a `Decoder`, as `module:name`."""
    settings: str | None = None
    """Its own settings, as `module:name`: a frozen dataclass with a docstring per field and a `check`. Each field is a
    flag; `scan` gets them by `settings.of(cls)`, and a decoder finds them in `Prep.own`."""
    apart: bool = False
    """Whether `scan` parses whole files into `Arrays`, and does so in a process of its own. For readers of this package
    only: that process knows no others."""

    def recognises(self, tree: Tree) -> bool:
        """Whether it can read what is there. Only built-in readers are asked, and only if the source names none."""
        return bool(import_module(self.implementation).recognises(tree))

    def scan(self, tree: Tree, settings: DataSettings) -> Listing | Arrays:
        """What there is to read; whole files of strangers are parsed in a process of their own."""
        from neurosql.data import apart

        if self.apart and not apart.here:
            return apart.scan(self.name, tree.path, settings)
        return self.parse(tree, settings)

    def parse(self, tree: Tree, settings: DataSettings) -> Listing | Arrays:
        """What there is to read, parsed in this process."""
        found: Listing | Arrays = import_module(self.implementation).scan(tree, settings)
        return found

    @property
    def own(self) -> type[Any]:
        """The class of its own settings."""
        kind: type[Any] = NoSettings if self.settings is None else imported(self.settings)
        return kind


MNIST = ReaderRecord("mnist", "neurosql.data.idx", ("fashion-mnist", "kmnist", "emnist", "idx"), apart=True)
MEDMNIST = ReaderRecord("medmnist", "neurosql.data.medmnist", apart=True)
CELEBA = ReaderRecord("celeba", "neurosql.data.celeba", decoder=IMAGES)
AFHQ = ReaderRecord("afhq", "neurosql.data.afhq", decoder=IMAGES)
OASIS = ReaderRecord("oasis", "neurosql.data.oasis", decoder=IMAGES)
NIFTI = ReaderRecord(
    "nifti",
    "neurosql.data.nifti",
    decoder="neurosql.data.volume:DECODER",
    settings="neurosql.data.nifti:NiftiSettings",
)
AUDIO = ReaderRecord(
    "audio",
    "neurosql.data.audio",
    ("wav",),
    decoder="neurosql.data.sound:DECODER",
    settings="neurosql.data.audio:AudioSettings",
)
TABLE = ReaderRecord("table", "neurosql.data.tables", ("csv", "parquet"), apart=True)
ARRAY = ReaderRecord("array", "neurosql.data.arrays", ("npz", "npy"), apart=True)
FOLDER = ReaderRecord("folder", "neurosql.data.folder", decoder=IMAGES)

# If no reader is named, the first of these that recognises a path reads it.
BUILT_IN = {
    "mnist": "MNIST",
    "medmnist": "MEDMNIST",
    "celeba": "CELEBA",
    "afhq": "AFHQ",
    "oasis": "OASIS",
    "nifti": "NIFTI",
    "audio": "AUDIO",
    "table": "TABLE",
    "array": "ARRAY",
    "folder": "FOLDER",
}
READERS: Registry[ReaderRecord] = Registry("reader", ReaderRecord, "neurosql.readers", BUILT_IN, home=__name__)


def built_in() -> list[ReaderRecord]:
    """The readers of this package, in the order in which they are asked."""
    return [READERS[name] for name in READERS.built_in]


def names() -> list[str]:
    """Every name that a source may have before its colon, sorted."""
    return sorted({*READERS, *(name for record in built_in() for name in record.other_names)})


def named(name: str) -> ReaderRecord | None:
    """The reader of that name, if there is one. The other names of built-in readers can't be taken either."""
    if name not in READERS.built_in:
        for record in built_in():
            if name in record.other_names:
                return record
        if name not in READERS:
            return None
    return READERS[name]


def with_settings(reader: ReaderRecord | None = None) -> list[ReaderRecord]:
    """The readers whose settings may be given: the named one, and the built-in ones.

    A setting belongs to one reader. If a setting of the named reader has the same name as one of a built-in reader,
    the settings of that built-in reader are left out.
    """
    found = [] if reader is None or reader in built_in() else [reader]
    taken = {field.name for record in found for field in dataclasses.fields(record.own)}
    for record in built_in():
        own = {field.name for field in dataclasses.fields(record.own)}
        if not own & taken:
            found.append(record)
    return [record for record in found if dataclasses.fields(record.own)]


def settings_of(options: Mapping[str, Any], reader: ReaderRecord | None = None) -> DataSettings:
    """Checked settings from options by name: those that all readers share, and those of single readers."""
    settings = DataSettings.from_record(options)
    kinds = [record.own for record in with_settings(reader)]
    known = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    if unknown := sorted(settings.own.keys() - known):
        raise InputError(f"unknown setting(s) of data: {', '.join(unknown)}")
    settings.check()
    for kind in kinds:
        settings.of(kind).check()
    return settings


def changed(record: Mapping[str, Any], reader: str) -> dict[str, Any]:
    """The data settings in a run's `config.json` that aren't the defaults, by field name."""
    settings = DataSettings.from_record(record)
    usual = DataSettings().flat()
    for one in with_settings(named(reader)):
        usual |= dataclasses.asdict(one.own())
    return {name: value for name, value in settings.flat().items() if name not in usual or value != usual[name]}
