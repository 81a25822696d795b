"""Cosine: logits cos(z, A_i); optionally times a scale s, fixed or learned (the paper has none)."""

from torch import Tensor

from lastlayer.layers.form import Form, Parameters, across, unit
from lastlayer.layers.weight_norm import pull_back_unit, unit_rows


def _scaled_rows(p: Parameters) -> Tensor:
    return unit_rows(p) * p["scale"][..., None, None]


def _pull_back_scaled(p: Parameters, d: Tensor) -> dict[str, Tensor]:
    u, inverse = unit(p["weight"])
    along = (d * u).sum(dim=-1, keepdim=True)
    weight = across(d, u, along) * inverse * p["scale"][..., None, None]
    return {"weight": weight, "scale": along.sum(dim=(-2, -1))}


def _pull_back_fixed(p: Parameters, d: Tensor) -> dict[str, Tensor]:
    return {"weight": _pull_back_scaled(p, d)["weight"]}


COSINE = Form(("weight",), unit_rows, pull_back_unit, unit_input=True)
COSINE_LEARNED_SCALE = Form(("weight", "scale"), _scaled_rows, _pull_back_scaled, unit_input=True)
COSINE_FIXED_SCALE = Form(
    ("weight", "scale"), _scaled_rows, _pull_back_fixed, unit_input=True, fixed=("scale",)
)
