"""The ONNX file of a head: its graph, written operation by operation; no exporter is involved."""

import json
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lastlayer.core.atomic_write import in_place_of
from lastlayer.core.checks import a_path
from lastlayer.core.extras import extra
from lastlayer.core.version import __version__
from lastlayer.errors import UnsupportedError
from lastlayer.heads.graph import Inference, Step

OPSET, IR = 18, 8  # of December 2022: any onnxruntime from 1.14 on runs it
_LARGEST = (1 << 31) - (1 << 20)  # bytes of a protobuf message


def write_onnx(module: Inference, path: str | os.PathLike[str]) -> None:
    """Write the result of ``head.as_module()``; the file is written completely or not at all."""
    path = a_path(path)
    model = onnx_model(module)
    with in_place_of(path) as part:
        part.write_bytes(model.SerializeToString())


def onnx_model(module: Inference) -> Any:
    """Return what ``head.as_module()`` gave as an ``onnx.ModelProto``.

    Its input is ``z`` (n, h); its outputs are ``label`` (n,), ``probabilities`` (n, n_classes) and
    ``novelty`` (n,), for any n.
    """
    onnx = _onnx()
    buffers = {name: module.get_buffer(name) for name in module.constants}
    size = sum(tensor.nbytes for tensor in buffers.values())
    if size > _LARGEST:
        raise UnsupportedError(
            f"an ONNX file holds at most 2 GB, and this '{module.about['head']}' head has {size:,} "
            "bytes: export it in float32, or a head that keeps less (knn: budget=)"
        )
    kind = onnx.TensorProto.DOUBLE if module.dtype == torch.float64 else onnx.TensorProto.FLOAT
    about = module.about
    make = onnx.helper.make_tensor_value_info
    z = make("z", kind, ["n", about["in_features"]])
    sizes = {"label": ["n"], "probabilities": ["n", len(about["class_names"])], "novelty": ["n"]}
    outputs = [
        make(name, onnx.TensorProto.INT64 if name == "label" else kind, sizes[name])
        for name in module.OUTPUTS
    ]
    constants = [_constant(onnx, name, tensor) for name, tensor in buffers.items()]
    nodes = []
    for step in module.steps:
        node, more = _node(onnx, step)
        nodes.append(node)
        constants += more
    nodes += [
        onnx.helper.make_node("Identity", [inside], [name])
        for inside, name in zip(module.outputs, module.OUTPUTS, strict=True)
    ]
    graph = onnx.helper.make_graph(nodes, f"lastlayer_{about['head']}", [z], outputs, constants)
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(graph, opset_imports=[opset], producer_name="lastlayer")
    model.ir_version = IR
    onnx.helper.set_model_props(model, dict(_metadata(about)))
    onnx.checker.check_model(model)
    return model


def _node(onnx: Any, step: Step) -> tuple[Any, list[Any]]:
    """Return a step as a node; what this opset takes as an input is made a constant."""
    attributes = dict(step.attributes)
    inputs: dict[str, Tensor] = {}
    if step.op.startswith("Reduce") or step.op == "Unsqueeze":
        inputs["axes"] = torch.tensor([attributes.pop("axis")])
    elif step.op == "TopK":
        inputs["k"] = torch.tensor([attributes.pop("k")])
    elif step.op == "Slice":
        inputs = {name: torch.tensor([attributes.pop(name)]) for name in ("start", "end")}
    elif step.op == "Transpose":
        attributes["perm"] = [1, 0]
    names = {name: f"{step.outputs[0]}_{name}" for name in inputs}
    node = onnx.helper.make_node(
        step.op, [*step.inputs, *names.values()], list(step.outputs), **attributes
    )
    return node, [_constant(onnx, names[name], tensor) for name, tensor in inputs.items()]


def _constant(onnx: Any, name: str, tensor: Tensor) -> Any:
    return onnx.numpy_helper.from_array(tensor.detach().cpu().numpy(), name)


def _metadata(about: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return what a service reads beside the graph, as JSON where it is not text."""
    yield "lastlayer", __version__
    for name, value in about.items():
        yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _onnx() -> Any:
    with extra("onnx", "an ONNX file"):
        import onnx  # noqa: PLC0415  (an extra)
        import onnx.numpy_helper  # noqa: PLC0415
    return onnx
