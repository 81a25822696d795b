"""A head as a graph of a few operations, named as ONNX names them.

A head writes down once how it answers (``Head._answer_graph``), in the manner of arithmetic. The
graph is then run by PyTorch (``Inference``, which ``head.as_module()`` gives) or written to a file
(``onnx_file``): two readers of one text, so they cannot disagree but by rounding.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Step(NamedTuple):
    """One operation: its inputs and its output by name."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass
class Graph:
    """Operations in the order in which they are done, and the constants that they read."""

    dtype: torch.dtype
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    steps: list[Step] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)

    def value(self, given: "Value | Tensor | float") -> "Value":
        """Return a constant its name; floating-point ones take the type of the graph."""
        if isinstance(given, Value):
            return given
        number = torch.as_tensor(given, dtype=None if isinstance(given, Tensor) else self.dtype)
        number = number.to(self.device, self.dtype if number.is_floating_point() else None)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = number.detach().clone().contiguous()
        return Value(self, name)

    def add(self, op: str, *inputs: "Value | Tensor | float", **attributes: Any) -> "Value":
        """Do an operation that gives one value."""
        return self.add_several(op, 1, *inputs, **attributes)[0]

    def add_several(
        self, op: str, count: int, *inputs: "Value | Tensor | float", **attributes: Any
    ) -> tuple["Value", ...]:
        """Do an operation that gives several values."""
        names = tuple(self.value(one).name for one in inputs)
        outputs = tuple(f"{op}_{len(self.steps)}_{i}" for i in range(count))
        self.steps.append(Step(op, names, outputs, attributes))
        return tuple(Value(self, name) for name in outputs)


@dataclass(frozen=True)
class Value:
    """A value of a graph: constant, input or result."""

    graph: Graph
    name: str

    def __add__(self, other: "Value | Tensor | float") -> "Value":
        return self.graph.add("Add", self, other)

    def __sub__(self, other: "Value | Tensor | float") -> "Value":
        return self.graph.add("Sub", self, other)

    def __mul__(self, other: "Value | Tensor | float") -> "Value":
        return self.graph.add("Mul", self, other)

    def __truediv__(self, other: "Value | Tensor | float") -> "Value":
        return self.graph.add("Div", self, other)

    def __matmul__(self, other: "Value | Tensor") -> "Value":
        return self.graph.add("MatMul", self, other)

    def __neg__(self) -> "Value":
        return self.graph.add("Neg", self)

    def square(self) -> "Value":
        """Square each number."""
        return self * self

    def at_least(self, other: float) -> "Value":
        """Raise each number to a least one."""
        return self.graph.add("Max", self, other)

    def unary(self, op: str) -> "Value":
        """Apply "Abs", "Exp", "Log", "Relu", "Sin" or "Sqrt" to each number."""
        return self.graph.add(op, self)

    def reduce(self, op: str, axis: int = 1, *, keep: bool = False) -> "Value":
        """Apply "Sum", "Max", "Min" or "LogSumExp" along an axis."""
        return self.graph.add(f"Reduce{op}", self, axis=axis, keepdims=int(keep))

    def column(self, j: int) -> "Value":
        """Return one column (n, 1)."""
        return self.graph.add("Gather", self, torch.tensor([j]), axis=1)


def squared_distances(z: Value, points: Tensor, known: Tensor) -> tuple[Value, float]:
    """Write ‖z − p‖² (n, k) by one product, divided by a unit² that is given beside it.

    All is measured from the middle of the points that are known, in the unit of the farthest: so
    features far from zero lose few digits, and huge ones do not leave float32.
    """
    middle = points[known].mean(dim=0)
    apart = torch.where(known[:, None], points - middle, 0)
    unit = power_of_two(float(apart.abs().max()))
    apart = apart / unit
    d = (z - middle) / unit
    own = d.square().reduce("Sum", keep=True)
    squared = d @ (-2 * apart.mT) + apart.square().sum(dim=1) + own
    return squared.at_least(0.0), unit


def unit_graph(z: Value) -> Value:
    """Scale rows to length 1, by their largest entry first; a row of zeros stays as it is."""
    largest = z.unary("Abs").reduce("Max", keep=True)
    z = z / z.graph.add("Where", z.graph.add("Greater", largest, 0.0), largest, 1.0)
    length = z.square().reduce("Sum", keep=True).unary("Sqrt")
    return z / z.graph.add("Where", z.graph.add("Greater", length, 0.0), length, 1.0)


def power_of_two(size: float) -> float:
    """Return a unit in which numbers of a size are about 1, and by which to divide rounds nothing.

    Runtimes fuse a product with a number into an operation that takes it in float32.
    """
    return math.ldexp(1.0, math.frexp(size)[1]) if size > 0 else 1.0


def masked(logits: Value, known: Tensor) -> Value:
    """Let classes that are not known never win."""
    if bool(known.all()):
        return logits
    never = torch.zeros(len(known), dtype=torch.float64, device=known.device)
    return logits + never.masked_fill(~known, -torch.inf)


def is_traced() -> bool:
    """Return whether the current computation is being traced, to be repeated with other inputs."""
    exporting = getattr(torch.compiler, "is_exporting", None)  # PyTorch 2.7 and later
    return torch._C._get_tracing_state() is not None or bool(exporting and exporting())


class Inference(nn.Module):
    """A head that only answers: no checks, no learning, any number of inputs; to be exported.

    ``forward(z)`` gives the class (n,) of each input, −1 if it is too strange; how probable each
    class is (n, n_classes); and the novelty (n,).
    """

    OUTPUTS = ("label", "probabilities", "novelty")

    def __init__(
        self, graph: Graph, outputs: tuple[Value, Value, Value], about: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.steps = tuple(graph.steps)
        self.outputs = tuple(value.name for value in outputs)
        self.dtype = graph.dtype
        self.about = dict(about)
        self.constants = tuple(graph.constants)
        for name, tensor in graph.constants.items():
            self.register_buffer(name, tensor)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Answer features (n, h)."""
        values: dict[str, Tensor] = {name: self.get_buffer(name) for name in self.constants}
        values["z"] = z.to(self.dtype)
        for op, inputs, outputs, attributes in self.steps:
            given = [values[name] for name in inputs]
            found = _RUN[op](*given, **attributes)
            results = found if isinstance(found, tuple) else (found,)
            values.update(zip(outputs, results, strict=True))
        label, probabilities, novelty = (values[name] for name in self.outputs)
        return label, probabilities, novelty


def _reduce(function: Callable[..., Tensor], x: Tensor, axis: int, keepdims: int) -> Tensor:
    return function(x, dim=axis, keepdim=bool(keepdims))


def _top(x: Tensor, k: int, axis: int, largest: int) -> tuple[Tensor, Tensor]:
    values, places = torch.topk(x, k, dim=axis, largest=bool(largest))
    return values, places


# What each operation is in PyTorch.
_RUN: Mapping[str, Callable[..., Any]] = {
    "Abs": torch.abs,
    "Add": torch.add,
    "ArgMax": lambda x, axis, keepdims: x.argmax(dim=axis),
    "Concat": lambda *parts, axis: torch.cat(parts, dim=axis),
    "Div": torch.div,
    "Equal": torch.eq,
    "Exp": torch.exp,
    "Gather": lambda x, places, axis: x[places] if axis == 0 else x.index_select(axis, places),
    "GatherElements": lambda x, places, axis: x.gather(axis, places),
    "Greater": torch.gt,
    "Log": torch.log,
    "MatMul": torch.matmul,
    "Max": torch.maximum,
    "Mul": torch.mul,
    "Neg": torch.neg,
    "ReduceLogSumExp": partial(_reduce, torch.logsumexp),
    "ReduceMax": partial(_reduce, torch.amax),
    "ReduceMin": partial(_reduce, torch.amin),
    "ReduceSum": partial(_reduce, torch.sum),
    "Relu": torch.relu,
    "Sin": torch.sin,
    "Softmax": lambda x, axis: torch.softmax(x, dim=axis),
    "Slice": lambda x, start, end: x[start:end],
    "Sqrt": torch.sqrt,
    "Sub": torch.sub,
    "TopK": _top,
    "Transpose": lambda x: x.transpose(0, 1),
    "Unsqueeze": lambda x, axis: x.unsqueeze(axis),
    "Where": torch.where,
}
