"""Published numbers of layers that the authors started in two ways, beside ours from either start.

Preset `paper` starts linear, linear_no_bias and original_weight_norm uniformly, or kaiming normal
under single masking (docs/decisions/9). Here each starts in the other way.

    python -m benchmarks.other_start
"""

from unittest.mock import patch

import polars as pl

from lastlayer import load_features
from lastlayer.heads.gradient import initial
from lastlayer.report.published import KEY, beside, published
from lastlayer.study import Result, Run, ScenarioSpec, execute
from lastlayer.training import fleet

FEATURES = ("cifar10/resnet20-cifar100", "cifar100/resnet20-cifar100")
OTHER = {"none": "single", "group": "single", "single": "none"}
PLAIN = initial.initial_parameters


def other_start(layer, n_classes, in_features, preset, seed, mask="none"):
    return PLAIN(layer, n_classes, in_features, preset, seed, OTHER[mask])


def finals(runs: list[Run]) -> pl.DataFrame:
    data = {name: load_features(name) for name in FEATURES}
    rows = [
        {name: getattr(done.run, name) for name in KEY if name != "label"}
        | {"label": done.run.scenario.label, "final": 100 * done.final}
        for done in execute(runs, data)
        if isinstance(done, Result)
    ]
    table = pl.DataFrame(rows, infer_schema_length=None)
    final = pl.col("final")
    return table.group_by(KEY).agg(final.mean().alias("mean"), final.std(ddof=0).alias("std"))


def main() -> None:
    known = published().filter(
        pl.col("features").is_in(FEATURES), pl.col("head").is_in(initial.UNIFORM_ROWS)
    )
    runs = [
        Run(features, ScenarioSpec("iid", label=label), head, mask, "paper", lr, 0, seed, subset)
        for features, label, head, mask, lr, subset in known.select(KEY).unique().rows()
        for seed in range(8)
    ]
    ours = beside(finals(runs))
    with patch.object(fleet, "initial_parameters", other_start):
        other = beside(finals(runs))
    numbers = ("mean", "std", "verdict")
    table = ours.join(other.select(*KEY, *numbers), on=KEY, suffix="_other", nulls_equal=True)
    for start, found in (("preset paper", ours), ("the other start", other)):
        counts = [found.filter(verdict=verdict).height for verdict in ("agrees", "differs")]
        print(f"{start}: {counts[0]} of {sum(counts)} agree")
    differing = table.filter(verdict="differs").sort(KEY)
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=220, float_precision=2):
        print(differing.drop("lr", "features"))


if __name__ == "__main__":
    main()
