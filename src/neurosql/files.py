"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace(target: Path, content: bytes) -> None:
    """Write a file beside the target and rename it: a crash or a full disk leaves the old file as it was."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
