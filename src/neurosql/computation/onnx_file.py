"""A recorded computation as an ONNX model.

Only operations of opset 18 are used, which ONNX runtimes of 2023 know. The batch size is free.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from neurosql.computation.recording import Unknown
from neurosql.computation.steps import BINARY, UNARY, Computation, Step
from neurosql.errors import InputError

OPSET, FORMAT = 18, 9
PLAIN = {
    **dict(relu="Relu", sigmoid="Sigmoid", tanh="Tanh", sin="Sin", cos="Cos", exp="Exp"),
    **dict(add="Add", sub="Sub", mul="Mul", div="Div", minimum="Min", maximum="Max"),
}
"""Steps that are one node."""


def model(computation: Computation, about: Mapping[str, str]) -> bytes:
    """The file's content, with entries that say what the inputs and the output are.

    Its inputs are `codes` (n, d) and, for a conditional generator, `labels` (n,), int64. Its output is `samples`.
    """
    return Writer(computation).written(about)


class Writer:
    """Nodes and constants of a model under construction."""

    def __init__(self, computation: Computation) -> None:
        try:
            import onnx
        except ImportError:
            raise InputError("ONNX files need the package onnx: pip install 'neurosql-torch[onnx]'") from None
        self.onnx = onnx
        self.computation = computation
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names = {number: f"v{number}" for number in (*computation.constants, *computation.shapes)}
        self.names |= {computation.codes: "codes", computation.output: "samples"}
        if computation.labels is not None:
            self.names[computation.labels] = "labels"
        self.batch: str | None = None

    def written(self, about: Mapping[str, str]) -> bytes:
        """The content of the file."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        done = self.computation
        for number, array in done.constants.items():
            self._keep(self.names[number], array)
        for step in done.steps:
            WRITTEN[step.op](self, step, [self.names[value] for value in step.inputs], self.names[step.output])
        free = [["n" if size == -1 else size for size in done.shapes[value]] for value in (done.codes, done.output)]
        inputs = [helper.make_tensor_value_info("codes", types.FLOAT, free[0])]
        if done.labels is not None:
            inputs.append(helper.make_tensor_value_info("labels", types.INT64, ["n"]))
        outputs = [helper.make_tensor_value_info("samples", types.FLOAT, free[1])]
        used = {name for node in self.nodes for name in node.input}
        constants = [constant for constant in self.constants if constant.name in used]
        graph = helper.make_graph(self.nodes, "generator", inputs, outputs, constants)
        opset = helper.make_opsetid("", OPSET)
        made = helper.make_model(graph, opset_imports=[opset], ir_version=FORMAT, producer_name="neurosql")
        helper.set_model_props(made, dict(about))
        self.onnx.checker.check_model(made)
        return made.SerializeToString()

    def node(self, kind: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        """Add a node; returns the name of its output, by default one of its own."""
        output = output or f"n{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(self, values: Any, kind: Any = np.float32) -> str:
        """Add a constant; returns its name."""
        name = f"c{len(self.constants)}"
        self._keep(name, np.asarray(values, kind))
        return name

    def sizes(self, values: list[int]) -> str:
        """Add whole numbers as a constant."""
        return self.constant(values, np.int64)

    def _keep(self, name: str, array: np.ndarray) -> None:
        # A constant without axes stays one; `ascontiguousarray` would give it an axis.
        self.constants.append(self.onnx.numpy_helper.from_array(np.array(array, order="C"), name))

    def shape(self, number: int) -> tuple[int, ...]:
        """The shape of a value."""
        array = self.computation.constants.get(number)
        return self.computation.shapes[number] if array is None else array.shape

    def full_shape(self, shape: list[int]) -> str:
        """The name of a shape whose sizes are those of the batch at hand."""
        if min(shape) >= 0:
            return self.sizes(shape)
        if self.batch is None:
            self.batch = self.node("Shape", ["codes"], start=0, end=1)
        parts = []
        for size in shape:
            if size >= 0:
                parts.append(self.sizes([size]))
            else:
                parts.append(self.batch if size == -1 else self.node("Mul", [self.batch, self.sizes([-size])]))
        return self.node("Concat", parts, axis=0)


def _plain(writer: Writer, step: Step, given: list[str], made: str) -> None:
    writer.node(PLAIN[step.op], given, made)


def _linear(writer: Writer, step: Step, given: list[str], made: str) -> None:
    writer.node("Gemm", given, made, transB=1)


def _conv(writer: Writer, step: Step, given: list[str], made: str) -> None:
    known = dict(step.attributes)
    layout = {"strides": known["stride"], "dilations": known["dilation"], "group": known["groups"]}
    layout["pads"] = known["padding"] * 2
    if step.op == "deconv":
        layout["output_padding"] = known["output_padding"]
    writer.node("Conv" if step.op == "conv" else "ConvTranspose", given, made, **layout)


def _affine(writer: Writer, step: Step, given: list[str], made: str) -> None:
    axes = len(writer.shape(step.inputs[0])) - 2
    scale, shift = (
        writer.constant(writer.computation.constants[value].reshape(-1, *[1] * axes)) for value in step.inputs[1:]
    )
    writer.node("Add", [writer.node("Mul", [given[0], scale]), shift], made)


def _group_norm(writer: Writer, step: Step, given: list[str], made: str) -> None:
    groups, shape = step.attributes["groups"], writer.shape(step.inputs[0])
    grouped = writer.node("Reshape", [given[0], writer.sizes([0, groups, -1])])
    scale, shift = writer.constant(np.ones(groups)), writer.constant(np.zeros(groups))
    normal = writer.node("InstanceNormalization", [grouped, scale, shift], epsilon=step.attributes["eps"])
    writer.node("Reshape", [normal, writer.sizes([0, *shape[1:]])], made)


def _layer_norm(writer: Writer, step: Step, given: list[str], made: str) -> None:
    writer.node("LayerNormalization", given, made, axis=-1, epsilon=step.attributes["eps"])


def _silu(writer: Writer, step: Step, given: list[str], made: str) -> None:
    writer.node("Mul", [given[0], writer.node("Sigmoid", given)], made)


def _gelu(writer: Writer, step: Step, given: list[str], made: str) -> None:
    bent = writer.node("Erf", [writer.node("Mul", [given[0], writer.constant(math.sqrt(0.5))])])
    share = writer.node("Mul", [writer.node("Add", [bent, writer.constant(1.0)]), writer.constant(0.5)])
    writer.node("Mul", [given[0], share], made)


def _reshape(writer: Writer, step: Step, given: list[str], made: str) -> None:
    shape = step.attributes["shape"]
    if sum(size < 0 for size in shape) > 1:
        raise Unknown("the generator has a value with the batch size in two axes")
    writer.node("Reshape", [given[0], writer.sizes([max(size, -1) for size in shape])], made)


def _expand(writer: Writer, step: Step, given: list[str], made: str) -> None:
    writer.node("Expand", [given[0], writer.full_shape(step.attributes["shape"])], made)


def _permute(writer: Writer, step: Step, given: list[str], made: str) -> None:
    writer.node("Transpose", given, made, perm=step.attributes["axes"])


def _slice(writer: Writer, step: Step, given: list[str], made: str) -> None:
    places = [writer.sizes([step.attributes[name]]) for name in ("start", "stop", "axis")]
    writer.node("Slice", [given[0], *places], made)


def _concat(writer: Writer, step: Step, given: list[str], made: str) -> None:
    writer.node("Concat", given, made, axis=step.attributes["axis"])


def _repeat(writer: Writer, step: Step, given: list[str], made: str) -> None:
    factors = writer.constant([1, 1, step.attributes["rows"], step.attributes["columns"]])
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    writer.node("Resize", [given[0], "", factors], made, **how)


def _attention(writer: Writer, step: Step, given: list[str], made: str) -> None:
    q, k, v = given
    products = writer.node("MatMul", [q, writer.node("Transpose", [k], perm=[0, 1, 3, 2])])
    scaled = writer.node("Mul", [products, writer.constant(step.attributes["scale"])])
    writer.node("MatMul", [writer.node("Softmax", [scaled], axis=-1), v], made)


def _lookup(writer: Writer, step: Step, given: list[str], made: str) -> None:
    writer.node("Gather", given, made, axis=0)


def _whole(writer: Writer, step: Step, given: list[str], made: str) -> None:
    where = writer.constant(writer.computation.constants[step.inputs[1]] > 0, np.bool_)
    writer.node("Where", [where, writer.node("Round", given[:1]), given[0]], made)


WRITTEN: dict[str, Callable[[Writer, Step, list[str], str], None]] = {
    **{name: _plain for name in (*UNARY, *BINARY) if name in PLAIN},
    **dict(linear=_linear, conv=_conv, deconv=_conv, affine=_affine, group_norm=_group_norm, layer_norm=_layer_norm),
    **dict(silu=_silu, gelu=_gelu, reshape=_reshape, expand=_expand, permute=_permute, slice=_slice, concat=_concat),
    **dict(repeat=_repeat, attention=_attention, lookup=_lookup, whole=_whole),
}
"""How each step becomes nodes."""
