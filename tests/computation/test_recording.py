"""What a generator computes is written down: ONNX runtimes make the same samples of it, in batches of any size."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from small_generators import BACKBONES, Odd, made

from neurosql.computation import onnx_file
from neurosql.computation.recording import Unknown, record
from neurosql.computation.steps import sized


def ran(content, codes, labels=None):
    """What onnxruntime makes of codes."""
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    given = {"codes": codes.numpy()} | ({} if labels is None else {"labels": labels.numpy()})
    return session.run(["samples"], given)[0]


@pytest.mark.parametrize("options", [{}, {"classes": 3, "mapping": 2, "mapping_width": 16}], ids=["plain", "mapped"])
@pytest.mark.parametrize("name", BACKBONES)
def test_onnxruntime_makes_what_torch_makes_whatever_the_batch_size(name, options):
    network = made(name, **options)
    content = onnx_file.model(record(network), {"kind": "image"})
    random = torch.Generator().manual_seed(0)
    for n in (1, 2, 7):
        codes = torch.randn(n, 3, generator=random)
        labels = torch.randint(0, 3, (n,), generator=random) if options else None
        with torch.no_grad():
            expected = network(codes, labels).numpy()
        assert expected.std() > 0.05
        np.testing.assert_allclose(ran(content, codes, labels), expected, atol=1e-5)
    parsed = onnx.load_model_from_string(content)
    assert {entry.key: entry.value for entry in parsed.metadata_props} == {"kind": "image"}
    assert [given.name for given in parsed.graph.input] == (["codes", "labels"] if options else ["codes"])


def test_operations_that_no_backbone_here_uses():
    torch.manual_seed(0)
    network = Odd(lambda h: torch.tanh(h.sin() - 2 * h.cos()) / (1.5 + torch.cat([h, -h], 1)[:, -8:].exp()))
    codes = torch.randn(4, 2)
    with torch.no_grad():
        expected = network(codes).numpy()
    np.testing.assert_allclose(ran(onnx_file.model(record(network), {}), codes), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("twist", "word"),
    [
        (lambda h: h.cumsum(1), "cumsum"),
        (lambda h: h @ h.T @ h, "product of two of its values"),
        (lambda h: h * torch.arange(float(len(h)))[:, None], "depends on the batch size"),
    ],
)
def test_what_can_not_be_written_down_is_refused_by_name(twist, word):
    with pytest.raises(Unknown, match=word):
        record(Odd(twist))


def test_the_generator_stays_as_it_was():
    network = made("convnet").train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    record(network)
    assert network.training and all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_sizes_follow_the_batch():
    done = record(made("transformer"))
    assert done.shapes[done.output] == (-1, 1, 10, 13) and sized((-4, 3), 5) == [20, 3]
    assert any(min(step.attributes.get("shape", [0])) < -1 for step in done.steps), "tokens of a batch are rows"
