"""Files for `fuzz_readers.py`: small whole ones of every format, odd ones made by grammar, and how to damage them."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import wave
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from neurosql.bench import rows

Chance = np.random.Generator
NUMBERS = (
    0,
    1,
    2,
    3,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
)
WORDS = (
    *(
        "",
        " ",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "-1e308",
        "1e-320",
        "0x10",
        "1_0",
        "1,5",
        '"',
        "'",
        '""',
        "a",
        "label",
        "y",
    ),
    *(
        "subject",
        "\0",
        "\x1b[2J",
        "\r",
        "\n",
        "\ufeff",
        "é",
        "\ud7ff",
        "9" * 40,
        "9" * 5000,
        "true",
        "None",
        "../x",
        "/etc/x",
    ),
    *("$\\frac{$", "<b>", "-1", "+1", "٣", "1e5", "0", "1", "2.5", "-7", "x" * 300),
)
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")


def pick(chance: Chance, some: Any) -> Any:
    """One of a sequence."""
    return some[int(chance.integers(len(some)))]


def damaged(content: bytes, chance: Chance, tokens: tuple[bytes, ...] = ()) -> bytes:
    """The content with one to four of: bits flipped, bytes cut, moved, doubled, or replaced by numbers and tokens."""
    data = bytearray(content)
    for _ in range(int(chance.integers(1, 5))):
        size = len(data)
        place = int(chance.integers(size + 1))
        # Headers are at the ends.
        place = min(place, int(chance.integers(1, 128))) if chance.random() < 0.5 else place
        length = int(min(chance.geometric(0.1), max(1, size)))
        way = int(chance.integers(9))
        if way == 0 and size:
            data[min(place, size - 1)] ^= 1 << int(chance.integers(8))
        elif way == 1:
            del data[place:]
        elif way == 2:
            del data[place : place + length]
        elif way == 3:
            data[place:place] = chance.bytes(length)
        elif way == 4:
            data[place : place + length] = chance.bytes(length)
        elif way == 5:
            data[place:place] = data[place : place + length]
        elif way == 6:
            kind = pick(chance, ("<B", "<H", ">H", "<I", ">I", "<Q", ">Q"))
            width = struct.calcsize(kind)
            data[place : place + width] = struct.pack(kind, pick(chance, NUMBERS) & (256**width - 1))
        elif way == 7 and tokens:
            token = pick(chance, tokens)
            data[place : place + (len(token) if chance.random() < 0.5 else 0)] = token
        elif way == 8 and size:
            other = int(chance.integers(size))
            data[place : place + length] = data[other : other + length]
    return bytes(data)


def picture(chance: Chance) -> bytes:
    """A picture of any format, mode and small size; PNG chunks are damaged under right checksums."""
    kind = pick(chance, FORMATS)
    modes = {"JPEG": ("L", "RGB", "CMYK"), "PPM": ("L", "RGB", "1"), "WEBP": ("RGB", "RGBA"), "GIF": ("P", "L")}
    mode = pick(chance, modes.get(kind, ("L", "RGB", "P", "1")))
    size = tuple(int(side) for side in chance.integers(1, 20, 2))
    pixels = chance.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = Image.fromarray(pixels).convert(mode)
    options: dict[str, Any] = {}
    if kind == "TIFF":
        options["compression"] = pick(chance, ("raw", "tiff_lzw", "packbits", "tiff_adobe_deflate"))
    if kind in ("GIF", "TIFF", "PNG", "WEBP") and chance.random() < 0.2:
        options |= {"save_all": True, "append_images": [image, image]}
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    content = buffer.getvalue()
    if kind == "PNG" and chance.random() < 0.5:
        return _png(content, chance)
    return content


def _png(content: bytes, chance: Chance) -> bytes:
    """The chunks of a PNG, some of them damaged, doubled or moved, with checksums that are right."""
    chunks, place = [], 8
    while place + 12 <= len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + length]))
        place += 12 + length
    at = int(chance.integers(len(chunks)))
    name, inner = chunks[at]
    chunks[at] = (
        pick(chance, (name, name, b"tEXt", b"zTXt", b"iTXt", b"iCCP", b"tRNS", b"eXIf")),
        damaged(inner, chance),
    )
    if chance.random() < 0.2:
        chunks.insert(int(chance.integers(len(chunks))), pick(chance, chunks))
    out = content[:8]
    for name, inner in chunks:
        out += struct.pack(">I", len(inner)) + name + inner + struct.pack(">I", zlib.crc32(name + inner))
    return out


def array(chance: Chance) -> np.ndarray:
    """An array of any type and small shape."""
    if chance.random() < 0.5:
        rank = int(chance.integers(1, 4))
        return chance.integers(0, 256, (4, *chance.integers(1, 9, rank)), dtype=np.uint8)
    shape = tuple(int(side) for side in chance.choice([0, 1, 2, 3, 5, 8], int(chance.integers(0, 6))))
    kinds = (
        "u1",
        "i1",
        ">u2",
        "<i4",
        "<i8",
        "<u8",
        "<f2",
        "<f4",
        ">f8",
        "<f16",
        "?",
        "<c8",
        "S3",
        "<U2",
        "V3",
        "<M8[s]",
    )
    kind = pick(chance, (*kinds, "u1", "u1", "<f4", "<f8", [("a", "<f4"), ("b", "u1")]))
    values = np.zeros(shape, kind)
    if values.dtype.kind in "fiu":
        with np.errstate(all="ignore"):
            values = (chance.random(shape) * pick(chance, (1, 1, 1, 255, 1e9, np.nan))).astype(kind)
    return np.asfortranarray(values) if chance.random() < 0.2 else values


def npy(chance: Chance) -> bytes:
    """A `.npy` file, or one whose header is made up."""
    buffer = io.BytesIO()
    if chance.random() < 0.6:
        np.save(buffer, array(chance), allow_pickle=False)
        return buffer.getvalue()
    side = [str(pick(chance, (*NUMBERS, -1, "None", "1.5", "'a'", "[]"))) for _ in range(int(chance.integers(0, 5)))]
    descr = pick(chance, ("'<f4'", "'|u1'", "'|O'", "'|V0'", "'<U0'", "[('a','<f4')]", "'<f3'", "3", "'|S99999999999'"))
    order = pick(chance, ("True", "False", "2"))
    head = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': ({', '.join(side)},), }}"
    head = pick(chance, (head, head, "(" * 500, head[:-1], "{}", "__import__('os')")) + "\n"
    version = pick(chance, (b"\x01\0", b"\x02\0", b"\x03\0", b"\x09\0"))
    length = struct.pack("<H" if version[0] == 1 else "<I", pick(chance, (len(head), len(head), 3, 65535)))
    return b"\x93NUMPY" + version + length + head.encode() + chance.bytes(int(chance.integers(0, 300)))


def npz(
    chance: Chance, names: tuple[str, ...] = ("images", "labels", "x", "y", "subjects", "arr_0", "../x", "e")
) -> bytes:
    """A `.npz` file of some arrays."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED if chance.random() < 0.5 else zipfile.ZIP_STORED) as archive:
        for name in dict.fromkeys(pick(chance, names) for _ in range(int(chance.integers(1, 5)))):
            archive.writestr(name + pick(chance, (".npy", ".npy", ".npy", "")), npy(chance))
    return buffer.getvalue()


def medmnist(chance: Chance) -> bytes:
    """A `.npz` file with the names of MedMNIST, half of the time as it should be."""
    if chance.random() < 0.5:
        return npz(
            chance, tuple(f"{part}_{what}" for part in ("train", "val", "test") for what in ("images", "labels"))
        )
    shape = pick(chance, ((8, 8), (8, 8, 3), (4, 4, 4)))
    buffer = io.BytesIO()
    arrays = {}
    for part in ("train", "val", "test"):
        n = int(chance.integers(1, 5))
        arrays[f"{part}_images"] = chance.integers(0, 256, (n, *shape), dtype=np.uint8)
        arrays[f"{part}_labels"] = chance.integers(0, 3, (n + int(chance.random() < 0.1), 1), dtype=np.uint8)
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def idx(chance: Chance) -> bytes:
    """An idx file, packed or not."""
    rank = int(chance.integers(0, 5))
    shape = [
        int(chance.integers(0, 9)) if chance.random() < 0.8 else pick(chance, NUMBERS) % 2**32 for _ in range(rank)
    ]
    head = b"\0\0" + pick(chance, (b"\x08", b"\x08", b"\x08", b"\x0d")) + bytes([pick(chance, (rank, rank, 3))])
    content = head + b"".join(struct.pack(">I", side) for side in shape) + chance.bytes(int(chance.integers(0, 800)))
    return packed(content, chance)


def packed(content: bytes, chance: Chance) -> bytes:
    """The content, packed by gzip half of the time; damaged before that now and then."""
    content = damaged(content, chance) if chance.random() < 0.5 else content
    return gzip.compress(content, 1) if chance.random() < 0.5 else content


def table(chance: Chance) -> bytes:
    """A CSV or TSV file of numbers and odd words."""
    rows_, columns = int(chance.integers(0, 8)), int(chance.integers(1, 6))
    cell = lambda: pick(chance, WORDS) if chance.random() < 0.05 else f"{chance.normal():.3g}"  # noqa: E731
    lines = [[pick(chance, WORDS) if chance.random() < 0.2 else f"c{i}" for i in range(columns)]]
    lines += [[cell() for _ in range(columns + int(chance.random() < 0.03))] for _ in range(rows_)]
    text = pick(chance, ("\n", "\n", "\r\n")).join(map(pick(chance, ",,,;\t").join, lines))
    return text.encode(pick(chance, ("utf-8", "utf-8", "utf-8", "utf-16")), "surrogatepass")


def parquet(chance: Chance) -> bytes:
    """A parquet table of columns of any type."""
    import pyarrow as arrow
    from pyarrow import parquet as files

    n = int(chance.integers(0, 6))
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: chance.normal(size=n),
        lambda: chance.integers(0, 3, n),
        lambda: arrow.array([None] * n, arrow.float64()),
        lambda: arrow.array([pick(chance, WORDS) for _ in range(n)]),
        lambda: arrow.array([[1, 2]] * n),
        lambda: arrow.array([{"a": 1}] * n),
        lambda: arrow.array([b"x"] * n),
        lambda: arrow.array([10**9] * n, arrow.timestamp("s")),
        lambda: arrow.array(["a", "b", "a", None, "c", "a"][:n]).dictionary_encode(),
        lambda: arrow.array([True, None, False, True, True, None][:n]),
    )
    names = [
        pick(chance, ("label", "y", "subject", "a", "b", "", "a\0")) + "_" * i
        for i in range(int(chance.integers(0, 5)))
    ]
    buffer = io.BytesIO()
    files.write_table(arrow.table([pick(chance, kinds)() for _ in names], names=names), buffer)
    return buffer.getvalue()


def volume(chance: Chance) -> bytes:
    """A NIfTI volume, packed or not, with odd values in its header now and then."""
    import nibabel

    kind = pick(chance, (nibabel.Nifti1Image, nibabel.Nifti2Image))
    shape = tuple(int(side) for side in chance.integers(1, 6, int(chance.integers(2, 5))))
    values = (chance.random(shape) * 100).astype(pick(chance, ("u1", "<i2", "<f4", ">f8")))
    content = bytearray(kind(values, np.diag([*chance.normal(size=3), 1.0])).to_bytes())
    if chance.random() < 0.5:
        # Shape, type, bits, offset and scale of either version.
        place = pick(
            chance, (40, 42, 44, 46, 48, 70, 72, 108, 112, 116, 12, 14, 16, 24, 32, 168, 176, 184, 252, 254, 280)
        )
        odd = (
            struct.pack("<h", pick(chance, (-1, 0, 32767))),
            struct.pack("<f", pick(chance, (np.nan, np.inf, 1e30, -1e30))),
        )
        content[place : place + 4] = pick(chance, (*odd, struct.pack("<q", pick(chance, (-1, 2**62)))))
    return packed(bytes(content), chance)


def sound(chance: Chance) -> bytes:
    """A WAV file of any width, with odd numbers in its header now and then."""
    buffer = io.BytesIO()
    width = int(chance.integers(1, 5))
    with wave.open(buffer, "wb") as file:
        file.setnchannels(int(chance.integers(1, 4)))
        file.setsampwidth(width)
        file.setframerate(int(pick(chance, (1, 100, 8000, 44100, 10**6, 2**28))))
        file.writeframes(chance.bytes(width * int(chance.integers(0, 400)) * 6))
    content = bytearray(buffer.getvalue())
    if chance.random() < 0.5:
        place = pick(chance, (4, 16, 20, 22, 24, 28, 32, 34, 40))
        content[place : place + 4] = struct.pack("<I", pick(chance, NUMBERS) % 2**32)
    return bytes(content)


NAMES = (
    "a.png",
    "b/a.png",
    "../a.png",
    "/etc/a.png",
    "C:/a.png",
    "a\\..\\b.png",
    ".",
    "",
    "b/",
    "\x1b[2J.png",
    "a\0.png",
)


def zipped(chance: Chance) -> bytes:
    """A zip archive with odd names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in dict.fromkeys(pick(chance, NAMES) for _ in range(int(chance.integers(0, 5)))):
            info = zipfile.ZipInfo(name)
            info.compress_type = pick(
                chance, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)
            )
            info.external_attr = pick(chance, (0, 0o120777 << 16, 0o10644 << 16, 0o644 << 16))
            archive.writestr(info, bytes(int(chance.integers(0, 400))))
    return buffer.getvalue()


def tarred(chance: Chance) -> bytes:
    """A tar archive with members of all types, packed or not."""
    buffer = io.BytesIO()
    form = pick(chance, (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT))
    for _ in range(int(chance.integers(0, 5))):
        member = tarfile.TarInfo(pick(chance, NAMES) * int(chance.choice([1, 1, 1, 30])))
        if chance.random() < 0.3:
            member.type = bytes([pick(chance, b"0123456LKSxgX")])
        content = bytes(int(chance.integers(0, 400)))
        member.size = len(content) if chance.random() < 0.8 else pick(chance, NUMBERS) % 2**33
        if form == tarfile.PAX_FORMAT and chance.random() < 0.3:
            member.pax_headers = {
                pick(chance, ("size", "path", "GNU.sparse.map", "hdrcharset")): pick(chance, ("-1", "9" * 30, "é"))
            }
        try:
            buffer.write(member.tobuf(form, "utf-8", "surrogateescape"))
        except ValueError:
            continue
        buffer.write(content + bytes(-len(content) % 512))
    return packed(buffer.getvalue() + bytes(1024), chance)


def split(chance: Chance) -> bytes:
    """A split file."""
    order = chance.permutation(20).tolist()

    def positions() -> Any:
        usual = [order.pop() for _ in range(int(chance.integers(0, 7)))]
        if chance.random() < 0.8:
            return usual
        return pick(chance, ([*usual, pick(chance, (*NUMBERS, -1, 1.5, None, "a", True, []))], {}, "abc", 3))

    made = {name: positions() for name in ("train", "validation", "test") if chance.random() < 0.8}
    made |= {"count": pick(chance, (20, 20, 19, "20", None, [], 20.0))} if chance.random() < 0.3 else {}
    return json.dumps(pick(chance, (*[made] * 9, [made], None, "train"))).encode()


def results(chance: Chance) -> bytes:
    """A table of a bench."""
    heads = list(rows.FIELDS)
    if chance.random() < 0.2:
        heads[int(chance.integers(len(heads)))] = pick(chance, WORDS)
    usual = {
        "data": "mnist",
        "images": "40",
        "pixels": "8",
        "backbone": "mlp",
        "latent_dim": "2",
        "batch": "16",
        "seed": "0",
    }
    usual |= {
        "arm": "a",
        "preset": "plain",
        "config": "0123456789ab",
        "status": "done",
        "seconds": "1.5",
        "threads": "1",
    }
    buffer = io.StringIO()
    rows_ = []
    for i in range(int(chance.integers(0, 6))):
        line = usual | {"seed": str(i % 3), "arm": pick(chance, "ab"), "config": f"c{i % 2}"}
        for _ in range(int(chance.choice([0, 0, 1, 3]))):
            line[pick(chance, list(usual))] = pick(chance, (*WORDS, *map(str, NUMBERS)))
        rows_.append([line.get(head, "") for head in heads])
    buffer.write(",".join(heads) + "\n")
    for row in rows_:
        buffer.write(
            ",".join(f'"{cell}"' if '"' not in cell and chance.random() < 0.5 else cell for cell in row) + "\n"
        )
    return buffer.getvalue().encode("utf-8", "surrogatepass")
