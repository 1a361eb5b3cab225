"""All settings of a run, and how to read them back from `config.json`."""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any

from neurosql.errors import InputError
from neurosql.modality import MODALITIES, Modality
from neurosql.settings import former
from neurosql.settings.backbones import BACKBONES, NoSettings
from neurosql.settings.checks import check_types
from neurosql.settings.methods import METHODS
from neurosql.settings.quantile import QuantileSettings
from neurosql.settings.sections import AS_PAPER, AUTO, GeneratorSettings, LatentSettings, TrainingSettings

SECTIONS = ("generator", "backbone", "latent", "own", "training")


@dataclass(frozen=True)
class Settings:
    """All settings of a run: a method, its own choices, and what it shares with all others."""

    method: str = "neurosql"
    generator: GeneratorSettings = dataclasses.field(default_factory=GeneratorSettings)
    backbone: Any = None
    """The settings of the generator's architecture; None means the defaults."""
    latent: LatentSettings = dataclasses.field(default_factory=LatentSettings)
    own: Any = None
    """The method's own settings; None means the defaults."""
    training: TrainingSettings = dataclasses.field(default_factory=TrainingSettings)

    def __post_init__(self) -> None:
        check_types(self.generator)
        self.generator.check()
        kinds = section_classes(self.method, self.generator.generator)
        for section, whose in (("backbone", self.generator.generator), ("own", self.method)):
            kind, given = kinds[section], getattr(self, section)
            if given is None:
                object.__setattr__(self, section, kind())
            elif not isinstance(given, kind):
                raise InputError(f"the settings of {whose} must be {kind.__name__}, got {type(given).__name__}")
        for section in SECTIONS:
            check_types(getattr(self, section))
            getattr(self, section).check()

    @property
    def quantile(self) -> QuantileSettings:
        """The method's own settings, where the method is quantile assignment."""
        assert isinstance(self.own, QuantileSettings)
        return self.own

    @classmethod
    def from_flat(cls, values: dict[str, Any]) -> Settings:
        """Settings from one dictionary of field names, whichever section they belong to, and the method's name."""
        for name in former.RENAMED.keys() & values.keys():
            warnings.warn(former.notice(name, values[name]), FutureWarning, stacklevel=2)
        rest = former.with_new_names(values)
        method = rest.pop("method", cls.method)
        sections: dict[str, Any] = {}
        for section, kind in section_classes(method, rest.get("generator", AUTO)).items():
            names = {f.name for f in dataclasses.fields(kind)} & rest.keys()
            sections[section] = kind(**{name: rest.pop(name) for name in names})
        if rest:
            raise InputError(f"unknown setting(s) of {method}: {', '.join(sorted(rest))}")
        return cls(method, **sections)

    @classmethod
    def from_sections(cls, method: str, sections: dict[str, dict[str, Any]]) -> Settings:
        """Settings from the dictionary that `sections` returned."""
        given = former.sections(sections)
        kinds = section_classes(method, given["generator"]["generator"])
        return cls(method, **{name: kind(**given[name]) for name, kind in kinds.items()})

    def sections(self) -> dict[str, dict[str, Any]]:
        """All settings but the method's name, section by section."""
        return {section: dataclasses.asdict(getattr(self, section)) for section in SECTIONS}

    def flat(self) -> dict[str, Any]:
        """All settings as one dictionary of field names, and the method's name."""
        return {"method": self.method} | {k: v for fields in self.sections().values() for k, v in fields.items()}

    def resolve(self, kind: str | Modality) -> Settings:
        """Replace `auto` by what fits the data: a modality, or the name of one: image, signal, volume or vector.

        The latent dimension stays as it is: it takes the samples themselves to choose one (`dimension.resolved`).
        """
        modality = MODALITIES[kind] if isinstance(kind, str) else kind
        generator = self.generator.generator
        if generator == AUTO:
            generator = modality.generator
        elif modality.axes not in BACKBONES[generator].axes:
            raise InputError(f"generator {generator!r} does not make {modality.plural}: use {modality.generator}")
        cost: Any = self.latent.cost
        if cost in (AUTO, AS_PAPER):
            cost = modality.cost if cost == AUTO else modality.paper_cost
        elif cost == "colour" and cost not in modality.costs:
            raise InputError(f"cost 'colour' is for images of three channels: use {' or '.join(modality.costs)}")
        elif cost not in modality.costs:
            raise InputError(f"cost {cost!r} can't compare {modality.plural}: use {' or '.join(modality.costs)}")
        return dataclasses.replace(
            self,
            generator=dataclasses.replace(self.generator, generator=generator),
            backbone=self.backbone if generator == self.generator.generator else None,
            latent=dataclasses.replace(self.latent, cost=cost),
        )


def section_classes(method: str, generator: str = AUTO) -> dict[str, Any]:
    """The class of each section, for a method and a generator."""
    backbone = NoSettings if generator == AUTO else BACKBONES[generator].settings
    return {
        "generator": GeneratorSettings,
        "backbone": backbone,
        "latent": LatentSettings,
        "own": METHODS[method].settings,
        "training": TrainingSettings,
    }
