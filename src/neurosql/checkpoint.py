"""The files of a run, safetensors and JSON, and how they are read; each is replaced as a whole or not at all."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from neurosql import files
from neurosql.errors import InputError

FORMAT = 2

CONFIG = "config.json"
MODEL = "model.safetensors"
CODES = "codes.safetensors"
HISTORY = "history.jsonl"
USED = "used.json"
SPLIT = "split.json"
SCORES = "scores.json"
CHECKPOINT = "checkpoints/last.safetensors"


class RunFolder:
    """A run's folder on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path) -> RunFolder:
        """A new folder, or an existing empty one. Existing files are never touched."""
        folder = cls(path)
        if folder.path.is_dir() and any(folder.path.iterdir()):
            if (folder.path / CONFIG).exists():
                raise InputError(
                    f"{path} holds another run: choose another folder, or continue it with `neurosql resume {path}`"
                )
            raise InputError(f"{path} is not empty and not a run: choose another folder")
        if folder.path.exists() and not folder.path.is_dir():
            raise InputError(f"{path} is a file: choose a folder for the run")
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"can't create {path}: {error.strerror}") from None
        return folder

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """The folder of a run that was written in this format."""
        folder = cls(path)
        if not (folder.path / CONFIG).is_file():
            raise InputError(f"{path} is not a run: it has no {CONFIG}")
        found = folder.config().get("format")
        if not isinstance(found, int):
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
        try:
            config = json.loads((self.path / CONFIG).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path / CONFIG} can't be read: {error}") from None
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
        return json.loads((self.path / name).read_text("utf-8"))

    def has(self, name: str) -> bool:
        """Whether the folder has a file of that name."""
        return (self.path / name).is_file()

    def write_tensors(self, name: str, tensors: dict[str, Tensor], plain: dict[str, Any] | None = None) -> None:
        """Write tensors by name, and plain values as JSON in the file's header, so that both are replaced together."""
        metadata = None if plain is None else {"plain": json.dumps(plain)}
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        self._replace(name, safetensors.torch.save(stored, metadata))

    def read_tensors(self, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors of a file by name, and its plain values."""
        path = self.path / name
        if not path.is_file():
            raise InputError(f"{self.path} has no {name}: the run was stopped before its first checkpoint")
        try:
            with safetensors.safe_open(path, "pt") as file:
                plain = json.loads((file.metadata() or {}).get("plain", "{}"))
                return {key: file.get_tensor(key) for key in file.keys()}, plain  # noqa: SIM118
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            raise InputError(f"{path} can't be read: {error}") from None

    def read_plain(self, name: str) -> dict[str, Any]:
        """The plain values of a file of tensors, without reading the tensors."""
        try:
            with safetensors.safe_open(self.path / name, "pt") as file:
                return json.loads((file.metadata() or {}).get("plain", "{}"))
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            raise InputError(f"{self.path / name} can't be read: {error}") from None

    def append_history(self, figures: dict[str, Any]) -> None:
        """Append one line; if it can't be written in full, none of it stays."""
        rest = memoryview(json.dumps(figures).encode() + b"\n")
        # Unbuffered: a buffer would be written once more when the file is closed.
        with open(self.path / HISTORY, "ab", buffering=0) as file:
            size = file.tell()
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                file.truncate(size)
                raise

    def history(self) -> list[dict[str, Any]]:
        """The figures of each epoch. An incomplete last line does not count."""
        if not self.has(HISTORY):
            return []
        records = []
        *lines, last = (self.path / HISTORY).read_bytes().rstrip(b"\n").split(b"\n")
        try:
            records = [json.loads(line) for line in lines]
        except ValueError as error:
            raise InputError(f"{self.path / HISTORY} is damaged: {error}") from None
        with suppress(ValueError):
            records.append(json.loads(last))
        return records

    def keep_history(self, epochs: int) -> None:
        """Keep the records of the first `epochs` epochs; a resumed run writes the later ones again."""
        lines = [json.dumps(figures) + "\n" for figures in self.history()[:epochs]]
        self._replace(HISTORY, "".join(lines).encode())

    def _replace(self, name: str, content: bytes) -> None:
        files.replace(self.path / name, content)
