"""Contenders and columns that several experiments share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from neurosql.bench.declare import Arm
from neurosql.metrics.column import of_codes, paired_heldout, paired_train, resource, sampled
from neurosql.settings import Sampling


def plain(name: str, own: Mapping[str, Any] = MappingProxyType({}), printed: str | None = None) -> Arm:
    """A contender without what goes beyond the paper: where its settings are studied, and where it stands for it."""
    return Arm(name, preset="plain", own=own, printed=printed)


NEUROSQL = plain("NeuroSQL", printed="NeuroSQL")
AS_PAPER = Arm("NeuroSQL, paper", preset="paper", printed="NeuroSQL")
VAE = Arm("VAE", "vae", printed="VAE")
GAN = Arm("GAN", "gan", printed="GAN")
DDPM = Arm("DDPM", "ddpm", printed="Diffusion")
OT_CFM = Arm("OT-CFM", "ot-cfm")
IMLE = Arm("IMLE", "imle")
RS_IMLE = Arm("RS-IMLE", "rs-imle")
GLO = Arm("GLO", "glo")
RAE = Arm("RAE", "rae")
# Beyond the plain method, and rivals with the same network in front and as good a density after training.
PLAIN = plain("NeuroSQL, plain")
MAP = Arm("NeuroSQL, map", preset="map")
SAMPLES = Arm("NeuroSQL, samples", preset="samples")
PHOTOGRAPHS = Arm("NeuroSQL, photographs", preset="photographs")
# On photographs RAE, too, is much better at a higher rate.
RAE_FASTER = Arm("RAE, faster", "rae", own={"learning_rate": 5e-3})
MAPPED = {"mapping": 2, "mapping_width": 256}
RAE_MAPPED = Arm("RAE, mapping", "rae", own={**MAPPED, "components": 20})
GLO_MAPPED = Arm("GLO, mapping, mixture", "glo", own=MAPPED, sampling=Sampling("mixture", components=20))
VAE_MIXTURE = Arm("VAE, mixture", "vae", sampling=Sampling("mixture", components=20))

# The paper's three scores on samples, and those on pairs, which the paper does not tell apart.
SAMPLED = (sampled("proxy-fid", "random net"), sampled("lpips"), sampled("ssim"))
PAIRED = (paired_train("lpips"), paired_train("ssim"), paired_heldout("ssim"))
RECALL, COPIES = sampled("recall", "random net"), sampled("suspiciously close")
SETS = (sampled("kid", "random net"), RECALL, COPIES)
OF_DIGITS = (sampled("frechet", "classifier"), sampled("recall", "classifier"))
OF_PICTURES = (sampled("kid", "vgg"), sampled("frechet", "vgg"), sampled("recall", "vgg"))
OF_COLOURS = (sampled("chroma spread", "mean chroma"), sampled("colour frechet", "colour histogram"))
OF_SAMPLES = (
    *(sampled(name, "classifier") for name in ("frechet", "kid", "precision", "recall", "coverage")),
    COPIES,
    sampled("kid", "random net"),
)
TIME, MEMORY = resource("epoch seconds"), resource("peak megabytes")
RESOURCES = (TIME, MEMORY, resource("parameters trained"), resource("parameters sampling"))
RATIOS = (resource("epoch seconds", over="VAE"), resource("peak megabytes", over="VAE"))
IN_USE, DRIFT = of_codes("codes in use"), of_codes("drift")
CODES = (of_codes("10-nn purity"), of_codes("silhouette"), of_codes("trustworthiness"), IN_USE, DRIFT)
