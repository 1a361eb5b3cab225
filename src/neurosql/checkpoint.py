"""The files of a run, safetensors and JSON, and how they are read; each is replaced as a whole or not at all.

Torch is imported when tensors are read or written, so that a run can be described without it.

A run folder may come from a stranger: nothing is read or written through a link that leads out of it, and what is read
has a limit.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors

from neurosql import files, intake, locks
from neurosql.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 2

CONFIG = "config.json"
MODEL = "model.safetensors"
CODES = "codes.safetensors"
HISTORY = "history.jsonl"
USED = "used.json"
SPLIT = "split.json"
SCORES = "scores.json"
CHECKPOINT = "checkpoints/last.safetensors"
LOCK = ".lock"
DIGEST = "digest"

SMALL, LARGE = 2**24, 2**28
"""Most bytes of a file that people may read, and of one that grows with the data or with the epochs."""
BEGINNING = {CONFIG, SPLIT, HISTORY, LOCK, "checkpoints"}
"""What the folder of a run that has nothing worth keeping may hold."""
SAVED = {MODEL, CODES, USED}
"""What a model that is saved from Python has before its config; only somebody who was killed leaves it so."""


class RunFolder:
    """A run's folder on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path) -> RunFolder:
        """A new folder, an existing empty one, or that of a run with nothing worth keeping. It is left as it is."""
        folder = cls(path)
        folder._must_be_free()
        try:
            os.makedirs(folder.path, exist_ok=True)
        except OSError as error:
            raise InputError(f"can't create {path}: {error.strerror}") from None
        files.sync_folder(folder.path.parent)
        return folder

    def _must_be_free(self) -> None:
        """Refuse a folder that holds anything worth keeping."""
        path = self.path
        if not os.path.lexists(path):
            return
        if not path.is_dir():
            raise InputError(f"{path} is a file: choose a folder for the run")
        names = {entry.name for entry in path.iterdir() if not entry.name.startswith(files.TEMPORARY)}
        is_run = CONFIG in names
        own = BEGINNING | SAVED if LOCK in names and not is_run else BEGINNING
        if names <= own and not (is_run and os.path.lexists(path / CHECKPOINT)):
            return
        if is_run:
            raise InputError(
                f"{path} holds another run: choose another folder, or continue it with `neurosql resume {path}`"
            )
        raise InputError(f"{path} is not empty and not a run: choose another folder")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only process that writes to the folder, within the context; or `locks.Held` says who does.

        What a killed process left unfinished is removed.
        """
        with locks.held(self.path / LOCK):
            files.clean(self.path)
            if not (self.path / "checkpoints").is_symlink():
                files.clean(self.path / "checkpoints")
            yield

    def begin(self) -> bool:
        """Empty the folder of a run that was killed before it had anything worth keeping; whether there was one."""
        self._must_be_free()
        # The config first: without it, there is no run.
        own = (CONFIG, CHECKPOINT, *sorted(SAVED), HISTORY, SPLIT)
        there = [name for name in own if os.path.lexists(self.path / name)]
        for name in there:
            os.unlink(self._parent(name) / Path(name).name)
        return bool(there)

    def holder(self) -> str | None:
        """Who writes to the folder, in words; None if nobody does."""
        return locks.holder(self.path / LOCK)

    def was_left(self) -> bool:
        """Whether the last process that wrote to the folder was killed."""
        return os.path.lexists(self.path / LOCK) and self.holder() is None

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """The folder of a run that was written in this format."""
        folder = cls(path)
        if not folder.has(CONFIG):
            if any(os.path.lexists(folder.path / name) for name in (SPLIT, LOCK)):
                raise InputError(
                    f"{path} was interrupted before its settings were written: repeat the command that began it, with "
                    f"--out {path}"
                )
            raise InputError(f"{path} is not a run: it has no {CONFIG}")
        found = folder.config().get("format")
        if not isinstance(found, int) or isinstance(found, bool):
            raise InputError(f"{path}/{CONFIG} does not say its format: is it a run of neurosql?")
        if found > FORMAT:
            raise InputError(
                f"{path} was written in format {found}, but this version reads {FORMAT}: upgrade neurosql-torch"
            )
        if found < FORMAT:
            raise InputError(f"{path} was written in format {found}, before the first release: train it again")
        return folder

    def config(self) -> dict[str, Any]:
        """What `config.json` holds."""
        config = self.read_json(CONFIG)
        if not isinstance(config, dict):
            raise InputError(f"{self.path / CONFIG} does not hold the settings of a run")
        return config

    def write_config(self, config: dict[str, Any]) -> None:
        """Write `config.json`, with the format of the folder."""
        self._replace(CONFIG, json.dumps({"format": FORMAT} | config, indent=2).encode() + b"\n")

    def write_json(self, name: str, value: Any) -> None:
        """Write plain values as JSON."""
        self._replace(name, json.dumps(value, indent=2 if name != SPLIT else None).encode() + b"\n")

    def read_json(self, name: str) -> Any:
        """The plain values in a JSON file."""
        try:
            return json.loads(self.read(name, LARGE if name == SPLIT else SMALL))
        except InputError:
            raise
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{self.path / name} can't be read: {_words(error)}") from None

    def read_object(self, name: str) -> dict[str, Any]:
        """The object in a JSON file; empty if there is no such file."""
        found = self.read_json(name) if self.has(name) else {}
        if not isinstance(found, dict):
            raise InputError(f"{self.path / name} is damaged: it holds no JSON object")
        return found

    def read(self, name: str, most: int = LARGE) -> bytes:
        """The content of a file in the folder."""
        return intake.content(intake.inside(self.path, self.path / name), most)

    def has(self, name: str) -> bool:
        """Whether the folder has a file of that name."""
        return (self.path / name).is_file()

    def write_tensors(self, name: str, tensors: dict[str, Tensor], plain: dict[str, Any] | None = None) -> None:
        """Write tensors by name, and plain values as JSON in the file's header, so that both are replaced together."""
        import safetensors.torch

        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        # One entry alone: safetensors writes several in any order, and equal runs have equal files.
        text = json.dumps((plain or {}) | {DIGEST: _digest(stored, plain or {})})
        self._replace(name, safetensors.torch.save(stored, {"plain": text}))

    def read_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors of a file by name, and its plain values."""
        with self._opened(name) as file:
            plain = _plain(file)
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            # Files of version 0.1.0 have no digest.
            if (digest := plain.pop(DIGEST, None)) not in (None, _digest(tensors, plain)):
                raise ValueError(f"its content is not what was written, which had the digest {digest}")
            return tensors, plain

    def read_plain(self, name: str) -> dict[str, Any]:
        """The plain values of a file of tensors, without reading the tensors."""
        with self._opened(name, "np") as file:
            return _plain(file)

    def shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors of a file, without reading them."""
        with self._opened(name, "np") as file:
            return {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118

    @contextmanager
    def _opened(self, name: str, framework: str = "pt") -> Iterator[Any]:
        """A file of tensors. What holds no tensors, such as its header, is read without torch as `np`."""
        path = self.path / name
        if not os.path.lexists(path):
            raise InputError(f"{self.path} has no {name}: the run was stopped before its first checkpoint")
        try:
            real = intake.inside(self.path, path)
            intake.must_be_regular(path, os.stat(real).st_mode)
            with safetensors.safe_open(real, framework) as file:
                yield file
        except InputError:
            raise
        except (OSError, ValueError, RecursionError, struct.error, safetensors.SafetensorError) as error:
            raise InputError(f"{path} can't be read: {_words(error)}") from None

    def append_history(self, figures: dict[str, Any]) -> None:
        """Append one line; if it can't be written in full, none of it stays."""
        files.append(self.path / HISTORY, _line(figures))

    def history(self) -> list[dict[str, Any]]:
        """The figures of each epoch, up to the first line that is damaged."""
        return whole_records(self.read(HISTORY)) if self.has(HISTORY) else []

    def write_history(self, records: list[dict[str, Any]]) -> None:
        """Write the figures of all epochs at once."""
        self._replace(HISTORY, b"".join(map(_line, records)))

    def _replace(self, name: str, content: bytes) -> None:
        # What the name itself may be a link to does not matter: a link is replaced.
        files.replace(self._parent(name) / Path(name).name, content)

    def _parent(self, name: str) -> Path:
        """The folder of a file; an InputError if a link leads out of the run's."""
        return intake.inside(self.path, (self.path / name).parent)


def whole_records(lines: bytes) -> list[dict[str, Any]]:
    """The figures of each epoch in JSON lines, up to the first line that is damaged."""
    records = []
    for line in lines.split(b"\n"):
        try:
            figures = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(figures, dict):
            break
        records.append(_figures(figures))
    return records


def _figures(given: dict[str, Any]) -> dict[str, Any]:
    """The figures of one epoch: numbers, the phase, and the seconds of each part; anything else is left out."""
    seconds = given.get("seconds")
    parts = seconds if isinstance(seconds, dict) else {}
    found = {name: value for name, value in given.items() if _is_number(value)}
    if isinstance(given.get("phase"), str):
        found["phase"] = given["phase"]
    return found | {"seconds": {part: value for part, value in parts.items() if _is_number(value)}}


def _is_number(value: Any) -> bool:
    # Not so large that drawing it fails; what is not a number can be drawn.
    return isinstance(value, (int, float)) and not abs(value) >= 1e300


def _line(figures: dict[str, Any]) -> bytes:
    return json.dumps(figures).encode() + b"\n"


def _digest(tensors: dict[str, Tensor], plain: dict[str, Any]) -> str:
    """A digest of tensors and plain values: a flipped bit does not go unnoticed."""
    import torch

    found = hashlib.blake2b(json.dumps(plain).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.flatten().view(torch.uint8).numpy().data if tensor.numel() else b"")
    return found.hexdigest()


def _plain(file: Any) -> dict[str, Any]:
    """The plain values in the header of a file of tensors."""
    found = json.loads((file.metadata() or {}).get("plain", "{}"))
    if not isinstance(found, dict):
        raise ValueError("its header holds no JSON object")
    return found


def _words(error: BaseException) -> str:
    """What an error says, in one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.splitlines()[0][:300] if text else type(error).__name__
