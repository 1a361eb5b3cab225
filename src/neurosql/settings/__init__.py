"""Every setting, once: its default, its check and its help text.

The command line makes a flag of each field, the estimator a constructor argument, and `config.json` keeps the
resolved values. What a method or a backbone adds is in its record. Nothing here imports torch.
"""

from neurosql.settings.backbones import BACKBONES, BackboneRecord
from neurosql.settings.methods import METHODS, MethodRecord, QuantileSettings
from neurosql.settings.reading import DataSettings
from neurosql.settings.samplers import Sampling
from neurosql.settings.sections import GeneratorSettings, LatentSettings, TrainingSettings
from neurosql.settings.whole import SECTIONS, Settings, section_classes

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
    "section_classes",
]
