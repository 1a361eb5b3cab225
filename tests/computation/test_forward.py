"""The forward pass in plain JavaScript makes what torch makes. It needs node."""

import base64
import json
import shutil
import subprocess

import numpy as np
import pytest
import torch
from small_generators import BACKBONES, Odd, made

from neurosql.app.portable.bundle import STATIC
from neurosql.computation.packed import pack
from neurosql.computation.recording import record
from neurosql.computation.steps import BINARY, UNARY

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node, to run JavaScript without a browser")
RUNS = """
import fs from "fs";
import { forwardOf } from "./unpacked.js";
const found = JSON.parse(fs.readFileSync(0)).map(({ plan, content, codes, labels }) => {
  const bytes = Uint8Array.from(Buffer.from(content, "base64"));
  const model = forwardOf(plan, bytes.buffer);
  return codes.map((code, i) => Array.from(model.run(Float32Array.from(code), labels[i])));
});
console.log(JSON.stringify(found));
"""


@pytest.fixture(scope="module")
def models():
    """Generators by name: each backbone, with and without classes and a mapping network, and odd operations."""
    torch.manual_seed(0)
    found = {f"{name}-{kind}": made(name, **options) for name in BACKBONES for kind, options in OPTIONS.items()}
    found["odd"] = Odd(lambda h: torch.tanh(h.sin() - 2 * h.cos()) / (1.5 + torch.cat([h, -h], 1)[:, -8:].exp()))
    found["grouped"] = Odd(Grouped())
    return found


OPTIONS = {"plain": {}, "mapped": {"classes": 3, "mapping": 2, "mapping_width": 16}}


class Grouped(torch.nn.Module):
    """Convolutions whose every setting is an unusual one."""

    def __init__(self):
        super().__init__()
        self.up = torch.nn.ConvTranspose2d(4, 6, 3, stride=(3, 2), padding=1, output_padding=1, groups=2)
        self.down = torch.nn.Conv2d(6, 8, (3, 2), stride=(2, 1), padding=(2, 1), dilation=2, groups=2)
        self.norm = torch.nn.GroupNorm(2, 6)

    def forward(self, h):
        return self.down(self.norm(self.up(h.reshape(-1, 4, 2, 1))))[:, :, 0, 0]


@pytest.fixture(scope="module")
def results(models, tmp_path_factory):
    """For each generator, and constants in full and compact: what torch makes, and what JavaScript makes."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "run.js").write_text(RUNS)
    for name in ("forward.js", "unpacked.js"):
        shutil.copy(STATIC / name, folder)
    asked, expected = [], []
    for network in models.values():
        codes = torch.randn(3, network.latent_dim, generator=torch.Generator().manual_seed(1))
        labels = torch.arange(3) if network.classes else None
        with torch.no_grad():
            expected.append(network.eval()(codes, labels).reshape(3, -1).numpy())
        computation = record(network)
        for compact in (False, True):
            packed = pack(computation, compact)
            content = base64.b64encode(packed.content).decode()
            given = {"codes": codes.tolist(), "labels": [0, 0, 0] if labels is None else labels.tolist()}
            asked.append({"plan": packed.plan, "content": content} | given)
    done = subprocess.run(["node", "run.js"], cwd=folder, input=json.dumps(asked), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [np.array(values) for values in json.loads(done.stdout)]
    return {name: (expected[i], found[2 * i], found[2 * i + 1]) for i, name in enumerate(models)}


@pytest.mark.parametrize("name", [*(f"{name}-{kind}" for name in BACKBONES for kind in OPTIONS), "odd", "grouped"])
def test_javascript_makes_what_torch_makes(name, results):
    expected, full, compact = results[name]
    assert expected.std() > 0.01
    np.testing.assert_allclose(full, expected, atol=1e-5)
    np.testing.assert_allclose(compact, expected, atol=1e-3)


def test_compact_constants_take_half_the_room():
    computation = record(made("mlp", width=128))
    assert len(pack(computation).content) < 0.55 * len(pack(computation, compact=False).content)


def test_every_step_is_known_to_the_page():
    known = (STATIC / "forward.js").read_text("utf-8").partition("const STEPS = {")[2]
    for name in (*UNARY, *BINARY):
        assert f"\n  {name}: " in known, name
