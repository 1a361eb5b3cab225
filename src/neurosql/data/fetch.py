"""Download public data sets on request: over https, verified by published checksums, resumed where they broke off."""

from __future__ import annotations

import hashlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

import neurosql
from neurosql.errors import InputError

TIMEOUT = 30
TRIES = 3
BLOCK = 2**18
LARGEST = 2**35


@dataclass(frozen=True)
class Remote:
    """A public data set: where its files are, and their published MD5 sums."""

    folder: str
    mirrors: tuple[str, ...]
    files: dict[str, str]
    suffix: str = ""
    """What follows the file's name in the address."""


_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_MNIST = (
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
_FASHION = (
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)
# 28 pixels per side, then 64.
_MEDMNIST = {
    "pathmnist": ("a8b06965200029087d5bd730944a56c1", "55aa9c1e0525abe5a6b9d8343a507616"),
    "chestmnist": ("02c8a6516a18b556561a56cbdd36c4a8", "9de6cd0b934ebb5b7426cfba5efbae16"),
    "dermamnist": ("0744692d530f8e62ec473284d019b0c7", "b70a2f5635c6199aeaa28c31d7202e1f"),
    "octmnist": ("c68d92d5b585d8d81f7112f81e2d0842", "e229e9440236b774d9f0dfef9d07bdaf"),
    "pneumoniamnist": ("28209eda62fecd6e6a2d98b1501bb15f", "8f4eceb4ccffa70c672198ea285246c6"),
    "retinamnist": ("bd4c0672f1bba3e3a89f0e4e876791e4", "afda852cc34dcda56f86ad2b2457dbcc"),
    "breastmnist": ("750601b1f35ba3300ea97c75c52ff8f6", "742edef2a1fd1524b2efff4bd7ba9364"),
    "bloodmnist": ("7053d0359d879ad8a5505303e11de1dc", "2b94928a2ae4916078ca51e05b6b800b"),
    "tissuemnist": ("ebe78ee8b05294063de985d821c1c34b", "123ece2eba09d0aa5d698fda57103344"),
    "organamnist": ("68e3f8846a6bd62f0c9bf841c0d9eacc", "2dcccc29b88e6da5a01161ef20cda288"),
    "organcmnist": ("b9ceb9546e10131b32923c5bbeaea2b1", "3ce34a8724ea6f548e6db4744d03b6a9"),
    "organsmnist": ("9ab87b696fb54e2a387ebe992d6ed5f1", "53a6d115339d874c25e309a994ff46d3"),
    "organmnist3d": ("a0c5a1ff56af4f155c46d46fbb45a2fe", "58a2205adf14a9d0a189cb06dc78bf10"),
    "nodulemnist3d": ("8755a7e9e05a4d9ce80a24c3e7a256f3", "c47c5b7d457bf6332200d2ea6d64ecd8"),
    "adrenalmnist3d": ("bbd3c5a5576322bc4cdfea780653b1ce", "17721accfe9fb005146a47d33bc54b2f"),
    "fracturemnist3d": ("6aa7b0143a6b42da40027a9dda61302f", "f01d7e6316aedf4210da0da5b7437b42"),
    "vesselmnist3d": ("b41fd4f7e7e2feedddb201585ecafa1b", "6bb274a8846e1097066dcd64e2c4520f"),
    "synapsemnist3d": ("1235b78a3cd6280881dd7850a78eadb6", "43bd14ebf3af9d3dd072446fedc14d5e"),
}

SETS = {
    "mnist": Remote(
        "MNIST/raw",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        dict(zip(_IDX, _MNIST)),
    ),
    "fashion-mnist": Remote(
        "FashionMNIST/raw",
        (
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        ),
        dict(zip(_IDX, _FASHION)),
    ),
    **{
        f"{name}{size}": Remote(
            "medmnist", ("https://zenodo.org/records/10519652/files/",), {f"{name}{size}.npz": md5}, "?download=1"
        )
        for name, sums in _MEDMNIST.items()
        for size, md5 in zip(("", "_64"), sums)
    },
}


def fetch(name: str, out: Path, say: Callable[[str], None] = lambda line: None) -> Path:
    """Download a set to a folder below `out`; returns the path to train on. Existing files are only checked."""
    if name.lower() not in SETS:
        raise InputError(f"no set is called {name!r}: the sets are {', '.join(SETS)}")
    remote = SETS[name.lower()]
    folder = out / remote.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"can't create {folder}: {error.strerror}") from None
    for file, md5 in remote.files.items():
        target = folder / file
        if target.exists() and _md5(target) == md5:
            say(f"have       {target}")
            continue
        _from_any(remote, file, md5, target)
        say(f"fetched    {target}")
    return folder if len(remote.files) > 1 else folder / next(iter(remote.files))


def _from_any(remote: Remote, file: str, md5: str, target: Path) -> None:
    """Download one file from the first mirror that delivers all of it."""
    part = target.with_name(target.name + ".part")
    reasons = []
    for mirror in remote.mirrors:
        address = f"{mirror}{file}{remote.suffix}"
        host = urllib.parse.urlsplit(address).hostname
        for _ in range(TRIES):
            before = part.stat().st_size if part.exists() else 0
            try:
                _download(address, part)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reasons.append(f"{host}: {_reason(error)}")
                if part.exists() and part.stat().st_size > before:
                    # The connection broke: continue from there.
                    continue
                break
            if _md5(part) == md5:
                part.replace(target)
                return
            part.unlink(missing_ok=True)
            reasons.append(f"{host}: the checksum is wrong")
            break
    raise InputError(
        f"can't fetch {file} ({'; '.join(dict.fromkeys(reasons))}): if this network does not allow it, download it "
        f"elsewhere and put it into {target.parent}"
    )


def _download(address: str, part: Path) -> None:
    """Download an address to a file, continuing where an earlier attempt ended."""
    _only_https(address)
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": f"neurosql/{neurosql.__version__}"} | ({"Range": f"bytes={have}-"} if have else {})
    request = urllib.request.Request(address, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            # Nothing is left to send: the checksum says whether the file is complete.
            return
        raise
    with response:
        _only_https(response.url)
        if response.status != 206:
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        if total is not None and total > LARGEST:
            raise ValueError(f"the file has {total:,} bytes, more than {LARGEST:,} allowed")
        with (
            open(part, "ab" if have else "wb") as file,
            tqdm(
                total=total, initial=have, desc=part.stem, unit="B", unit_scale=True, leave=False, disable=None
            ) as bar,
        ):
            while block := response.read(BLOCK):
                file.write(block)
                bar.update(len(block))
                if file.tell() > LARGEST:
                    raise ValueError(f"the file has more than {LARGEST:,} bytes")
    if total is not None and part.stat().st_size < total:
        raise ConnectionError("the connection was lost")


def _only_https(address: str) -> None:
    parts = urllib.parse.urlsplit(address)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise ValueError(f"{parts.scheme} is not https")


def _reason(error: BaseException) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered {error.code}"
    cause = getattr(error, "reason", None) or error
    return str(cause).splitlines()[0] if str(cause) else type(cause).__name__


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
