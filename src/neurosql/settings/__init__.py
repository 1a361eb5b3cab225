"""Every setting, once: its default, its check and its help text.

Each field becomes a flag of the command line and an argument of the estimator's constructor. `config.json` keeps the
resolved values. The settings that a method or a backbone adds are in its record. Nothing here imports torch.
"""

from neurosql.settings.backbones import BACKBONES, BackboneRecord
from neurosql.settings.methods import METHODS, MethodRecord
from neurosql.settings.quantile import QuantileSettings
from neurosql.settings.reading import DataSettings
from neurosql.settings.samplers import Sampling
from neurosql.settings.sections import GeneratorSettings, LatentSettings, TrainingSettings
from neurosql.settings.whole import SECTIONS, Settings, section_classes
from neurosql.settings.written import as_flags

__all__ = [
    "BACKBONES",
    "METHODS",
    "SECTIONS",
    "BackboneRecord",
    "DataSettings",
    "GeneratorSettings",
    "LatentSettings",
    "MethodRecord",
    "QuantileSettings",
    "Sampling",
    "Settings",
    "TrainingSettings",
    "as_flags",
    "section_classes",
]
