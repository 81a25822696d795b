"""OriginalWeightNorm: logits γ_i · z·A_i/‖A_i‖, a learned length for each row."""

from torch import Tensor

from lastlayer.layers.form import Form, Parameters, across, unit


def _rows(p: Parameters) -> Tensor:
    return unit(p["weight"])[0] * p["gamma"].unsqueeze(-1)


def _pull_back(p: Parameters, d: Tensor) -> dict[str, Tensor]:
    u, inverse = unit(p["weight"])
    along = (d * u).sum(dim=-1, keepdim=True)
    weight = across(d, u, along) * (inverse * p["gamma"].unsqueeze(-1))
    return {"weight": weight, "gamma": along.squeeze(-1)}


ORIGINAL_WEIGHT_NORM = Form(("weight", "gamma"), _rows, _pull_back)
