"""The two kinds of run: how runs of each are made, and how long that takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from lastlayer.results.columns import Kind
from lastlayer.study.heads.execute import make_heads
from lastlayer.study.heads.forecast import forecast_heads
from lastlayer.study.networks.forecast import forecast_networks
from lastlayer.study.networks.make import make_networks
from lastlayer.study.run import Forecast, Maker

Forecaster = Callable[
    [Mapping[str, Any], Mapping[str, Any], set[str], torch.device], list[Forecast]
]


@dataclass(frozen=True)
class Workshop:
    """The functions that make and forecast runs of one kind."""

    make: Maker
    forecast: Forecaster  # of runs by digest, data by name, digests of those that are there


WORKSHOPS: Mapping[Kind, Workshop] = {  # in the order in which a study makes them
    "head": Workshop(make_heads, forecast_heads),
    "network": Workshop(make_networks, forecast_networks),
}
