"""WeightNorm: logits z·A_i/‖A_i‖, so that only the direction of a row counts."""

from torch import Tensor

from lastlayer.layers.form import Form, Parameters, across, unit


def unit_rows(p: Parameters) -> Tensor:
    """Give u_i = A_i/‖A_i‖."""
    return unit(p["weight"])[0]


def pull_back_unit(p: Parameters, d: Tensor) -> dict[str, Tensor]:
    """∂A_i = (d_i − (d_i·u_i) u_i)/‖A_i‖."""
    u, inverse = unit(p["weight"])
    return {"weight": across(d, u, (d * u).sum(dim=-1, keepdim=True)) * inverse}


WEIGHT_NORM = Form(("weight",), unit_rows, pull_back_unit)
