"""What decides the bits of a run besides settings, data and seed: versions, threads, engine, processor, ranks.

`config.json` records them. They may differ when a run is resumed or trained again: the results then differ too, by
rounding at first, which later assignments and steps may enlarge.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch

from neurosql import engine, ranks


def here() -> dict[str, Any]:
    """The circumstances of this process, as `config.json` records them."""
    return {
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        "threads": torch.get_num_threads(),
        "engine": engine.describe(),
        "processor": processor(),
        **({"ranks": ranks.here().size} if ranks.here().several else {}),
    }


def processor() -> str:
    """The processor and the instructions that torch uses on it."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{model} ({torch.backends.cpu.get_cpu_capability()})"


def differences(config: dict[str, Any]) -> list[str]:
    """What differs here from a run's record, a few words each; what the record does not say is left out."""
    now = here()
    # A new Python alone changes no bits.
    pairs = [(name, config.get("versions"), now["versions"], name) for name in ("torch", "numpy", "scipy")]
    pairs += [("cost matrix", config.get("engine"), now["engine"], "cost")]
    pairs += [("assignment", config.get("engine"), now["engine"], "assignment")]
    pairs += [(name, config, now, name) for name in ("threads", "processor")]
    found = []
    for name, then, today, key in pairs:
        before = then.get(key) if isinstance(then, dict) else None
        if before is not None and before != today[key]:
            found.append(f"{name} {before} then, {today[key]} now")
    before, size = config.get("ranks", 1), ranks.here().size
    return found if before == size else [*found, f"ranks {before} then, {size} now"]


def note(config: dict[str, Any]) -> list[str]:
    """What the user should know who resumes a run: nothing, or one sentence."""
    found = differences(config)
    if not found:
        return []
    return [f"other circumstances than at the start ({'; '.join(found)}): the result may differ in more than rounding"]


@contextmanager
def as_recorded(config: dict[str, Any]) -> Iterator[None]:
    """As many threads as a run's record says and, if it had no compiled engine, none here, within the context."""
    threads, native = torch.get_num_threads(), os.environ.get("NEUROSQL_NATIVE")
    recorded = config.get("threads")
    if isinstance(recorded, int) and 1 <= recorded <= (os.cpu_count() or 1):
        torch.set_num_threads(recorded)
    engines = config.get("engine")
    if isinstance(engines, dict) and engines.get("cost") == "torch":
        os.environ["NEUROSQL_NATIVE"] = "0"
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if native is None:
            os.environ.pop("NEUROSQL_NATIVE", None)
        else:
            os.environ["NEUROSQL_NATIVE"] = native
