"""What a head becomes for others to run: a module that only answers, or an ordinary nn.Linear."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lastlayer.catalogue.head_cards import able
from lastlayer.core.checks import short
from lastlayer.core.tensors import check_float_type
from lastlayer.errors import ArgumentError, UnsupportedError
from lastlayer.heads.answering import make_ready
from lastlayer.heads.calibration import up_to_date
from lastlayer.heads.graph import Graph, Inference, Value
from lastlayer.heads.undo import GradientsAsBefore, learning

if TYPE_CHECKING:
    from lastlayer.heads.head import Head


def linear_layer(weight: Tensor, bias: Tensor, dtype: torch.dtype | None) -> nn.Linear:
    """Return an ordinary layer of a weight (n_classes, h) and a bias (n_classes,).

    A class that must not win has the bias −∞.
    """
    check_float_type(dtype)
    linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=dtype)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    return linear.to(weight.device)


def as_linear(head: "Head", dtype: torch.dtype | None) -> nn.Linear:
    """Return an ordinary layer that predicts the same class as a head."""
    if not head.abilities.linear:
        raise UnsupportedError(
            f"a '{head.name}' head cannot become an nn.Linear: its largest logit is not that of "
            f"one; these heads can: {', '.join(able('linear'))}"
        )
    with head.lock, GradientsAsBefore():
        make_ready(head)
        return head._as_linear(dtype)


def as_module(
    head: "Head", unknown: float | None, dtype: torch.dtype | None, divide_by: float = 1.0
) -> Inference:
    """Return a head in its present state as a module, for features to be divided by a number.

    >>> import torch, lastlayer as ll
    >>> head = ll.make_head("mean", in_features=1)
    >>> head.observe(torch.tensor([[0.0], [1.0], [8.0], [9.0]]), torch.tensor([0, 0, 1, 1]))
    >>> label, probabilities, novelty = head.as_module()(torch.tensor([[2.0]]))
    >>> label.tolist(), novelty.tolist()
    ([0], [1.5])
    """
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in (torch.float32, torch.float64):
        raise ArgumentError(f"dtype must be torch.float32 or float64, got {short(dtype)}")
    with head.lock:
        make_ready(head)
        if head.calibration is not None:
            up_to_date(head)  # a file lasts: no probabilities that are out of date
        limit = None if unknown is None else head.limit(unknown)
        with learning(head):
            graph = Graph(dtype, head.seen.device)
            outputs = _outputs(head, Value(graph, "z"), limit, divide_by)
        calibration = head.calibration
        about = {
            "head": head.name,
            "in_features": head.in_features,
            "class_names": head.class_names or [str(c) for c in range(head.n_classes)],
            # Classes that were only declared, or that were forgotten.
            "not_learned": (~head.seen).nonzero().flatten().tolist(),
            "calibrated": calibration is not None,
            "temperature": head.temperature,
            "unknown": unknown,
            "limit": limit,
            "limits": {} if calibration is None else calibration.usual_limits(),
        }
        return Inference(graph, outputs, about)


def _outputs(
    head: "Head", z: Value, limit: float | None, divide_by: float
) -> tuple[Value, Value, Value]:
    """Write down the class, the probabilities and the novelty of features."""
    graph = z.graph
    if divide_by != 1:
        z = z / torch.full((head.in_features,), divide_by, dtype=torch.float64)
    logits, novelty = head._answer_graph(z)
    evidence = logits if head.calibration is None else head._evidence_graph(logits)
    probabilities = graph.add("Softmax", evidence / head.temperature, axis=1)
    label = graph.add("ArgMax", logits, axis=1, keepdims=0)
    if limit is not None:
        # The row that set the limit must not be turned away for a digit that is rounded.
        slack = 1e-5 if graph.dtype == torch.float32 else 1e-10
        strange = graph.add("Greater", novelty, limit + slack * abs(limit))
        label = graph.add("Where", strange, torch.tensor([-1]), label)
    return label, probabilities, novelty
