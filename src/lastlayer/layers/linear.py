"""Linear: logits z·A_i + b_i, and without the bias."""

from torch import Tensor

from lastlayer.layers.form import Form, Parameters


def _rows(p: Parameters) -> Tensor:
    return p["weight"]


def _pull_back(p: Parameters, d: Tensor) -> dict[str, Tensor]:
    return {"weight": d}


LINEAR = Form(("weight", "bias"), _rows, _pull_back)
LINEAR_NO_BIAS = Form(("weight",), _rows, _pull_back)
