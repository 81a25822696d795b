"""Output layers for frozen networks whose data keep changing."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lastlayer.core.version import __version__ as __version__

# After a product the threads of SciPy's BLAS would spin for 25 ms and keep cores from PyTorch's.
# BLAS reads this when it is loaded, in processor cycles, as a power of two.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

if TYPE_CHECKING:
    from lastlayer import advice as advice
    from lastlayer import analysis as analysis
    from lastlayer import evaluate as evaluate
    from lastlayer import report as report
    from lastlayer import results as results
    from lastlayer import scenarios as scenarios
    from lastlayer import study as study
    from lastlayer.advice import Advice as Advice
    from lastlayer.advice import advise as advise
    from lastlayer.data import Features as Features
    from lastlayer.data import FeatureSet as FeatureSet
    from lastlayer.data import load_features as load_features
    from lastlayer.estimator import HeadClassifier as HeadClassifier
    from lastlayer.estimator.fitting import fit as fit
    from lastlayer.estimator.fitting import merge as merge
    from lastlayer.extraction import extract as extract
    from lastlayer.extraction import read_images as read_images
    from lastlayer.heads import load_head as load_head
    from lastlayer.heads import make_head as make_head
    from lastlayer.labels import Audit as Audit
    from lastlayer.labels import audit as audit
    from lastlayer.labels import next_rows as next_rows
    from lastlayer.layers import Cosine as Cosine
    from lastlayer.layers import Linear as Linear
    from lastlayer.layers import LinearNoBias as LinearNoBias
    from lastlayer.layers import OriginalWeightNorm as OriginalWeightNorm
    from lastlayer.layers import WeightNorm as WeightNorm
    from lastlayer.layers import masked_cross_entropy as masked_cross_entropy
    from lastlayer.live.watch.watch import Watch as Watch
    from lastlayer.results import load_study as load_study
    from lastlayer.scenarios import make_scenario as make_scenario
    from lastlayer.study import compare as compare

_HOME = {
    "Features": "lastlayer.data",
    "FeatureSet": "lastlayer.data",
    "load_features": "lastlayer.data",
    "read_images": "lastlayer.extraction",
    "extract": "lastlayer.extraction",
    "make_scenario": "lastlayer.scenarios",
    "make_head": "lastlayer.heads",
    "load_head": "lastlayer.heads",
    "compare": "lastlayer.study",
    "load_study": "lastlayer.results",
    "advise": "lastlayer.advice",
    "Advice": "lastlayer.advice",
    "HeadClassifier": "lastlayer.estimator",
    "audit": "lastlayer.labels",
    "Audit": "lastlayer.labels",
    "next_rows": "lastlayer.labels",
    "fit": "lastlayer.estimator.fitting",
    "merge": "lastlayer.estimator.fitting",
    "Watch": "lastlayer.live.watch.watch",
    "Linear": "lastlayer.layers",
    "LinearNoBias": "lastlayer.layers",
    "WeightNorm": "lastlayer.layers",
    "OriginalWeightNorm": "lastlayer.layers",
    "Cosine": "lastlayer.layers",
    "masked_cross_entropy": "lastlayer.layers",
}
_PACKAGES = (
    "advice", "analysis", "data", "errors", "evaluate", "extraction", "heads", "labels", "layers",
    "paper", "replay", "report", "results", "scenarios", "study",
)  # fmt: skip

__all__ = [*_HOME, *_PACKAGES]  # noqa: PLE0604  (names loaded on first use)


def __getattr__(name: str) -> Any:
    """Load a public name on its first use (PEP 562), so that importing is quick."""
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    elif name in _PACKAGES:
        value = import_module(f"lastlayer.{name}")
    else:
        raise AttributeError(f"module 'lastlayer' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
