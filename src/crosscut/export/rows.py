"""int8 for ONNX Runtime, in which every row of a product has a range of its own.

The runtime's own quantiser takes one range for all that runs together, so that a text's result would depend on
its company. Here a token's vector is scaled by its own largest number: texts may share a batch, and lose less.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Older processors add two products of int8 in 16 bits, which weights of 7 bits never overflow.
WEIGHT_STEPS = 63
STEPS = 127  # of activations and tables, to either side of zero
ZERO = 128  # what stands for zero where numbers have no sign
RUNTIME = "com.microsoft"  # the domain of operations that ONNX Runtime has beside the standard's
LEAST = 16  # products with fewer columns than this, and tables with fewer rows, are not worth it


def to_int8(model: onnx.ModelProto) -> None:
    """Make int8 of the layers' products with fixed weights, and of the tables that rows are taken from.

    >>> weights = numpy_helper.from_array(np.eye(32, dtype=np.float32), "weights")
    >>> values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 32]) for name in "xy"]
    >>> product = helper.make_node("MatMul", ["x", "weights"], ["y"])
    >>> model = helper.make_model(helper.make_graph([product], "product", values[:1], values[1:], [weights]))
    >>> to_int8(model)
    >>> "MatMulIntegerToFloat" in [node.op_type for node in model.graph.node]
    True
    """
    graph = _Graph(model.graph)
    changes = {"MatMul": graph.product, "Gemm": graph.head, "Gather": graph.rows_of, "Slice": graph.rows_of}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        change = changes.get(node.op_type)
        nodes.extend(change(node) if change else [node])
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    graph.keep_constants()
    model.opset_import.append(helper.make_opsetid(RUNTIME, 1))


class _Graph:
    """The constants of a graph, and what takes the place of its nodes."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.scaled: set[str] = set()  # values whose rows are int8 already

    def product(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """x @ weights, the rows of x and the columns of the weights each with their own scale."""
        (x, weights), (y,) = node.input, node.output
        matrix = self._matrix(weights)
        if matrix is None or matrix.shape[1] < LEAST:
            yield node
            return
        if x not in self.scaled:
            self.scaled.add(x)
            yield from self._scale_rows(x, matrix.shape[0])
        steps, scale = _steps(matrix, axis=0, most=WEIGHT_STEPS)
        whole, columns = self._constant(f"{weights}.int8", steps), self._constant(f"{weights}.scale", scale[0])
        one, zero = self._shared("one", np.float32(1)), self._shared("zero", np.uint8(ZERO))
        inputs = [f"{x}.int8", whole, one, columns, zero]
        yield _node("MatMulIntegerToFloat", inputs, f"{y}.columns", domain=RUNTIME)
        yield _node("Mul", [f"{y}.columns", f"{x}.scale"], f"{y}.flat")
        width = self._shared(f"width{matrix.shape[1]}", np.array([matrix.shape[1]]))
        yield _node("Shape", [x], f"{y}.rows", end=-1)
        yield _node("Concat", [f"{y}.rows", width], f"{y}.shape", axis=0)
        yield _node("Reshape", [f"{y}.flat", f"{y}.shape"], y)

    def _scale_rows(self, x: str, width: int) -> Iterator[onnx.NodeProto]:
        """The rows of x as a table of unsigned int8, and their scales."""
        flat, last = self._shared(f"flat{width}", np.array([-1, width])), self._shared("last", np.array([1]))
        step = self._shared("step", np.float32(1 / STEPS))
        least = self._shared("least", np.float32(1e-10))  # a row of zeros has some scale, too
        yield _node("Reshape", [x, flat], f"{x}.table")
        yield _node("Abs", [f"{x}.table"], f"{x}.abs")
        yield _node("ReduceMax", [f"{x}.abs", last], f"{x}.largest", keepdims=1)
        yield _node("Mul", [f"{x}.largest", step], f"{x}.step")
        yield _node("Max", [f"{x}.step", least], f"{x}.scale")
        yield _node("Reshape", [f"{x}.scale", self._shared("list", np.array([-1]))], f"{x}.scales")
        yield _node("Shape", [f"{x}.scales"], f"{x}.count")
        zero = numpy_helper.from_array(np.array([ZERO], np.uint8))
        yield _node("ConstantOfShape", [f"{x}.count"], f"{x}.zeros", value=zero)
        yield _node("QuantizeLinear", [f"{x}.table", f"{x}.scales", f"{x}.zeros"], f"{x}.int8", axis=0)

    def head(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """One row a text, next to the score: it takes no time, so it stays exact, but for half of its bytes."""
        matrix = self._matrix(node.input[1])
        if matrix is not None and np.abs(matrix).max(initial=0) < np.finfo(np.float16).max:
            name = node.input[1]
            node.input[1] = f"{node.output[0]}.{name}"
            half = self._constant(f"{name}.half", matrix.astype(np.float16))
            yield _node("Cast", [half], node.input[1], to=TensorProto.FLOAT)
        yield node

    def rows_of(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Rows of a table by number, or the first of them: each row of the table has its own scale."""
        (name, *which), (y,) = node.input, node.output
        table = self._matrix(name)
        if table is None or len(table) < LEAST or not self._of_rows(node):
            yield node
            return
        if node.op_type == "Gather" and (halves := _halves(table)):
            yield from self._packed_rows(name, *halves, which, y)
            return
        steps, scale = _steps(table, axis=1, most=STEPS)
        for part, content in (("int8", steps), ("scale", scale)):
            yield _node(node.op_type, [self._constant(f"{name}.{part}", content), *which], f"{y}.{part}")
        yield _node("Cast", [f"{y}.int8"], f"{y}.whole", to=TensorProto.FLOAT)
        yield _node("Mul", [f"{y}.whole", f"{y}.scale"], y)

    def _packed_rows(
        self, name: str, steps: np.ndarray, scale: np.ndarray, which: list[str], y: str
    ) -> Iterator[onnx.NodeProto]:
        """Rows of numbers of 4 bits: one of the left half and one of the right share a byte."""
        left, right = np.split(steps, 2, axis=1)
        for part, content in (("int4", left | right << 4), ("scale", scale)):
            yield _node("Gather", [self._constant(f"{name}.{part}", content), *which], f"{y}.{part}")
        yield _node("BitwiseAnd", [f"{y}.int4", self._shared("low", np.uint8(15))], f"{y}.left")
        yield _node("BitShift", [f"{y}.int4", self._shared("high", np.uint8(4))], f"{y}.right", direction="RIGHT")
        yield _node("Concat", [f"{y}.left", f"{y}.right"], f"{y}.steps", axis=-1)
        yield _node("Cast", [f"{y}.steps"], f"{y}.float", to=TensorProto.FLOAT)
        yield _node("Sub", [f"{y}.float", self._shared("middle", np.float32(7.5))], f"{y}.whole")
        yield _node("Mul", [f"{y}.whole", f"{y}.scale"], y)

    def _of_rows(self, node: onnx.NodeProto) -> bool:
        if node.op_type == "Gather":
            return not any(attribute.name == "axis" and attribute.i != 0 for attribute in node.attribute)
        axes = self.constants.get(node.input[3]) if len(node.input) > 3 else None
        return axes is not None and numpy_helper.to_array(axes).tolist() == [0]

    def _matrix(self, name: str) -> np.ndarray | None:
        tensor = self.constants.get(name)
        is_matrix = tensor is not None and len(tensor.dims) == 2 and tensor.data_type == TensorProto.FLOAT
        return numpy_helper.to_array(tensor) if is_matrix else None

    def _constant(self, name: str, value: Any) -> str:
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def _shared(self, name: str, value: Any) -> str:
        return self._constant(f"int8.{name}", value)

    def keep_constants(self) -> None:
        """Those that some node reads still."""
        read = {name for node in self.graph.node for name in node.input}
        del self.graph.initializer[:]
        self.graph.initializer.extend(tensor for name, tensor in self.constants.items() if name in read)


def _node(kind: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], **attributes)


def _steps(matrix: np.ndarray, axis: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers from -most to most, and the scales that make the matrix of them again."""
    scale = np.abs(matrix).max(axis, keepdims=True) / most
    scale[scale == 0] = 1.0
    return np.rint(matrix / scale).astype(np.int8), scale.astype(np.float32)


def _halves(table: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Numbers n of 4 bits and scales, where every row of the table is a scale times (n - 7.5).

    >>> steps, scale = _halves(np.array([[0.3, -4.5], [1.5, 0.3], [0.0, 0.0]], np.float32))
    >>> steps.tolist(), [f"{one:.1f}" for one in scale.ravel()]
    ([[8, 0], [10, 8], [8, 8]], ['0.6', '0.6', '0.0'])
    >>> _halves(np.array([[1.0, 2.0]], np.float32))
    """
    if table.shape[1] % 2:
        return None
    scale = 2 * np.abs(table).min(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = np.where(scale > 0, table / scale, 0.5) + 7.5
    steps = np.rint(whole)
    is_exact = (
        np.abs(whole - steps).max(initial=0) < 1e-3 and steps.min(initial=0) >= 0 and steps.max(initial=0) <= 15
    )
    if not is_exact or table[scale[:, 0] == 0].any():
        return None
    return steps.astype(np.uint8), scale.astype(np.float32)
