"""A generator is watched at work, and every operation of torch that its output depends on becomes a step.

It works on batches of two and of three codes: sizes that differ are those that depend on the batch. Backbones need
nothing for that, those of other packages included, as long as `LOWERED` knows the operations that they use.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from neurosql.computation.steps import BINARY, UNARY, Computation, Step
from neurosql.errors import InputError
from neurosql.generators.base import Generator

FEW, MORE = 2, 3
"""The two batch sizes."""


class Unknown(InputError):
    """An operation that can't be written down."""


@torch.no_grad()
def record(generator: Generator) -> Computation:
    """The computation G(z, label), in evaluation mode and float32; `Unknown` says which operation is in the way."""
    network = copy.deepcopy(generator).to("cpu", torch.float32).eval()
    few, more = (_watched(network, n) for n in (FEW, MORE))
    if len(few.steps) != len(more.steps):
        raise Unknown("what the generator does depends on the batch size in a way that can't be written down")
    shapes = {number: _joined(shape, more.shapes.get(number, ())) for number, shape in few.shapes.items()}
    steps = []
    for one, other in zip(few.steps, more.steps):
        attributes = dict(one.attributes)
        if "shape" in attributes:
            attributes["shape"] = list(_joined(attributes["shape"], other.attributes["shape"]))
        if (one.op, one.inputs, attributes.keys()) != (other.op, other.inputs, other.attributes.keys()):
            raise Unknown("what the generator does depends on the batch size in a way that can't be written down")
        steps.append(Step(one.op, one.inputs, one.output, attributes))
    constants = dict(few.constants)
    free = 1 + max([*constants, *shapes])
    for number, array in few.constants.items():
        if more.constants[number].shape != array.shape:
            # What has one row for each code, all of them alike, is one row that is repeated.
            shapes[number] = _joined(array.shape, more.constants[number].shape)
            if shapes[number] != (-1, *array.shape[1:]) or not np.allclose(array[:1], array, rtol=1e-5, atol=1e-6):
                raise Unknown("the generator has a constant that depends on the batch size")
            constants[free] = constants.pop(number)[:1]
            steps.insert(0, Step("expand", (free,), number, {"shape": list(shapes[number])}))
            free += 1
    return Computation(few.codes, few.labels, few.output, steps, constants, shapes).needed()


def _joined(few: Any, more: Any) -> tuple[int, ...]:
    """A shape whose sizes are -k where they are k times the batch size, from those of both batches."""
    if len(few) != len(more):
        raise Unknown("the generator has values whose number of axes depends on the batch size")
    sizes = []
    for a, b in zip(few, more):
        if a != b and a * MORE != b * FEW:
            raise Unknown("the generator has sizes that depend on the batch size in a way that can't be written down")
        sizes.append(int(a) if a == b else -(int(a) // FEW))
    return tuple(sizes)


def _watched(network: Generator, n: int) -> Computation:
    codes = torch.linspace(-1, 1, n * network.latent_dim).reshape(n, network.latent_dim)
    labels = None if network.classes is None else torch.zeros(n, dtype=torch.int64)
    watch = Watch()
    given = watch.given(codes), None if labels is None else watch.given(labels)
    with watch:
        made = network(codes, labels)
    return Computation(*given, watch.number(made), watch.steps, watch.constants, watch.shapes).needed()


class Watch(TorchDispatchMode):
    """Writes down what torch does within the context with tensors that depend on the given ones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers: dict[int, int] = {}
        self.kept: list[Tensor] = []
        self.steps: list[Step] = []
        self.constants: dict[int, np.ndarray] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}

    def given(self, tensor: Tensor) -> int:
        """Take a tensor as one that values depend on."""
        return self._new(tensor)

    def _new(self, tensor: Tensor) -> int:
        number = len(self.kept)
        # A tensor that is kept can't give its identity to another one.
        self.kept.append(tensor)
        self.numbers[id(tensor)] = number
        self.shapes[number] = tuple(tensor.shape)
        return number

    def depends(self, tensor: Any) -> bool:
        """Whether a tensor depends on the given ones."""
        return isinstance(tensor, Tensor) and self.numbers.get(id(tensor), -1) in self.shapes

    def number(self, value: Tensor | float) -> int:
        """The number of a value: one that depends on the given tensors, or a constant."""
        tensor = value if isinstance(value, Tensor) else torch.tensor(float(value))
        if id(tensor) not in self.numbers:
            number = len(self.kept)
            self.kept.append(tensor)
            self.numbers[id(tensor)] = number
            self.constants[number] = tensor.detach().numpy().astype(np.float32, order="C")
        return self.numbers[id(tensor)]

    def add(self, op: str, inputs: list[Any], made: Tensor, **attributes: Any) -> None:
        """Write a step down."""
        numbers = tuple(self.number(value) for value in inputs)
        self.steps.append(Step(op, numbers, self._new(made), attributes))

    def same(self, made: Tensor, before: Tensor) -> None:
        """Take a tensor as another name of a value."""
        self.kept.append(made)
        self.numbers[id(made)] = self.number(before)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        tensors = [part for arg in args for part in (arg if isinstance(arg, list | tuple) else [arg])]
        if any(self.depends(part) for part in tensors):
            name = str(func.overloadpacket).removeprefix("aten.")
            if name in LOWERED:
                LOWERED[name](self, made, *args, **kwargs)
            elif isinstance(made, Tensor) and made.is_floating_point():
                raise Unknown(f"the generator uses an operation that can't be exported: {name}")
        return made


def _linear(watch: Watch, made: Tensor, bias: Tensor | None, x: Tensor, weight: Tensor, **other: Any) -> None:
    if watch.depends(weight) or watch.depends(bias) or any(value != 1 for value in other.values()):
        raise Unknown("the generator uses an operation that can't be exported: a product of two of its values")
    rest = [] if bias is None else [bias.detach().expand(weight.shape[1]).contiguous()]
    watch.add("linear", [x, weight.detach().t().contiguous(), *rest], made)


def _conv(
    watch: Watch,
    made: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> None:
    inputs = [x, weight.detach().contiguous(), *([] if bias is None else [bias])]
    known = {"stride": list(stride), "padding": list(padding), "dilation": list(dilation), "groups": groups}
    if watch.depends(weight) or watch.depends(bias):
        raise Unknown("the generator uses an operation that can't be exported: a convolution by one of its values")
    if transposed:
        watch.add("deconv", inputs, made, **known, output_padding=list(output_padding))
    else:
        watch.add("conv", inputs, made, **known)


def _batch_norm(
    watch: Watch, made: Any, x: Tensor, weight: Any, bias: Any, mean: Any, variance: Any, *rest: Any
) -> None:
    scale = (variance.double() + rest[-2 if isinstance(rest[-1], bool) else -1]).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -mean.double() * scale
    shift = shift if bias is None else shift + bias
    watch.add("affine", [x, scale.float(), shift.float()], made[0])


def _group_norm(
    watch: Watch, made: Any, x: Tensor, weight: Any, bias: Any, n: int, c: int, size: int, groups: int, eps: float
) -> None:
    if weight is None:
        watch.add("group_norm", [x], made[0], groups=groups, eps=eps)
        return
    plain = torch.empty_like(made[0])
    watch.add("group_norm", [x], plain, groups=groups, eps=eps)
    watch.add("affine", [plain, weight, torch.zeros(c) if bias is None else bias], made[0])


def _layer_norm(watch: Watch, made: Any, x: Tensor, over: list[int], weight: Any, bias: Any, eps: float) -> None:
    if len(over) != 1:
        raise Unknown("the generator uses an operation that can't be exported: a layer norm over several axes")
    weight = torch.ones(over) if weight is None else weight
    watch.add("layer_norm", [x, weight, torch.zeros(over) if bias is None else bias], made[0], eps=eps)


def _unary(op: str) -> Callable[..., None]:
    def lower(watch: Watch, made: Tensor, x: Tensor) -> None:
        watch.add(op, [x], made)

    return lower


def _gelu(watch: Watch, made: Tensor, x: Tensor, *, approximate: str = "none") -> None:
    if approximate != "none":
        raise Unknown("the generator uses an operation that can't be exported: an approximate gelu")
    watch.add("gelu", [x], made)


def _binary(op: str) -> Callable[..., None]:
    def lower(watch: Watch, made: Tensor, x: Any, y: Any, alpha: float = 1) -> None:
        if alpha != 1:
            raise Unknown(f"the generator uses an operation that can't be exported: {op} with a factor")
        watch.add(op, [x, y], made)

    return lower


def _minus(watch: Watch, made: Tensor, x: Tensor) -> None:
    watch.add("mul", [x, -1.0], made)


def _addcmul(watch: Watch, made: Tensor, x: Any, y: Any, z: Any, *, value: float = 1) -> None:
    product = y * z
    watch.add("mul", [y, z], product)
    if value != 1:
        scaled = product * value
        watch.add("mul", [product, value], scaled)
        product = scaled
    watch.add("add", [x, product], made)


def _reshape(watch: Watch, made: Tensor, x: Tensor, *_: Any, **__: Any) -> None:
    watch.add("reshape", [x], made, shape=list(made.shape))


def _expand(watch: Watch, made: Tensor, x: Tensor, *_: Any, **__: Any) -> None:
    watch.add("expand", [x], made, shape=list(made.shape))


def _same(watch: Watch, made: Tensor, x: Tensor, *_: Any, **__: Any) -> None:
    if made.dtype != x.dtype:
        raise Unknown(f"the generator uses an operation that can't be exported: a change to {made.dtype}")
    watch.same(made, x)


def _permute(watch: Watch, made: Tensor, x: Tensor, axes: list[int]) -> None:
    watch.add("permute", [x], made, axes=[axis % x.ndim for axis in axes])


def _transpose(watch: Watch, made: Tensor, x: Tensor, a: int = 0, b: int = 1) -> None:
    axes = list(range(x.ndim))
    axes[a], axes[b] = axes[b], axes[a]
    watch.add("permute", [x], made, axes=axes)


def _slice(
    watch: Watch, made: Tensor, x: Tensor, axis: int = 0, start: int | None = None, stop: Any = None, step: int = 1
) -> None:
    if step != 1:
        raise Unknown("the generator uses an operation that can't be exported: a slice with steps")
    if made.shape == x.shape:
        watch.same(made, x)
        return
    axis, size = axis % x.ndim, x.shape[axis]
    first = min((start or 0) + (size if (start or 0) < 0 else 0), size)
    watch.add("slice", [x], made, axis=axis, start=first, stop=first + made.shape[axis])


def _split(watch: Watch, made: Any, x: Tensor, _: Any, axis: int = 0) -> None:
    first = 0
    for part in made:
        size = part.shape[axis]
        watch.add("slice", [x], part, axis=axis % x.ndim, start=first, stop=first + size)
        first += size


def _select(watch: Watch, made: Tensor, x: Tensor, axis: int, place: int) -> None:
    axis, place = axis % x.ndim, place % x.shape[axis]
    part = x.narrow(axis, place, 1)
    watch.add("slice", [x], part, axis=axis, start=place, stop=place + 1)
    watch.add("reshape", [part], made, shape=list(made.shape))


def _unbind(watch: Watch, made: Any, x: Tensor, axis: int = 0) -> None:
    for place, part in enumerate(made):
        _select(watch, part, x, axis, place)


def _concat(watch: Watch, made: Tensor, parts: list[Tensor], axis: int = 0) -> None:
    watch.add("concat", list(parts), made, axis=axis % made.ndim)


def _repeat(watch: Watch, made: Tensor, x: Tensor, size: list[int], *_: Any) -> None:
    (rows, row_rest), (columns, column_rest) = (divmod(a, b) for a, b in zip(size, x.shape[-2:]))
    if row_rest or column_rest:
        raise Unknown("the generator uses an operation that can't be exported: images grown by no whole factor")
    watch.add("repeat", [x], made, rows=rows, columns=columns)


def _attention(
    watch: Watch,
    made: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: float | None = None,
) -> None:
    if causal or attn_mask is not None:
        raise Unknown("the generator uses an operation that can't be exported: attention with a mask")
    watch.add("attention", [q, k, v], made[0], scale=scale or 1 / math.sqrt(q.shape[-1]))


def _lookup(watch: Watch, made: Tensor, table: Tensor, index: Tensor, *_: Any) -> None:
    watch.add("lookup", [table, index], made)


LOWERED: dict[str, Callable[..., None]] = {
    **{name: _unary(name) for name in UNARY if name != "gelu"},
    **{name: _binary(name) for name in BINARY},
    **dict.fromkeys(("view", "_unsafe_view", "unsqueeze", "squeeze", "_reshape_alias"), _reshape),
    **dict.fromkeys(("clone", "alias", "detach", "contiguous", "_to_copy"), _same),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm),
    **dict.fromkeys(("split", "split_with_sizes"), _split),
    "neg": _minus,
    "addmm": _linear,
    "mm": lambda watch, made, x, weight: _linear(watch, made, None, x, weight),
    "convolution": _conv,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "gelu": _gelu,
    "addcmul": _addcmul,
    "expand": _expand,
    "permute": _permute,
    "transpose": _transpose,
    "t": _transpose,
    "slice": _slice,
    "select": _select,
    "unbind": _unbind,
    "cat": _concat,
    "upsample_nearest2d": _repeat,
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "embedding": _lookup,
}
"""How operations of torch become steps: each adds to what was written down, given what torch made of its arguments."""
