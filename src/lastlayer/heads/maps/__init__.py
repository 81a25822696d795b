"""Random feature maps, and heads behind them: wide and fixed, read linearly, so not linear."""

from lastlayer.catalogue.map_widths import all_products
from lastlayer.heads.maps.feature_map import (
    MAPS,
    ROWS,
    FeatureMap,
    Fourier,
    Quadratic,
    Relu,
    make_map,
)

__all__ = ["MAPS", "ROWS", "FeatureMap", "Fourier", "Quadratic", "Relu", "all_products", "make_map"]
