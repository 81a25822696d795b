"""What the paper's figures show about a head, why it forgets, and continual measures, in NumPy."""

from lastlayer.analysis.drift import Drift, projection_drift
from lastlayer.analysis.loss_parts import LOSS_PARTS, loss_parts, shapley_shares, shapley_values
from lastlayer.analysis.measures import (
    average_accuracy,
    average_forgetting,
    average_incremental_accuracy,
    backward_transfer,
    final_accuracy,
    forward_transfer,
)
from lastlayer.analysis.repairs import (
    FATES,
    INTERFERENCE,
    REPAIRS,
    Losses,
    repair_shares,
    trace_losses,
)
from lastlayer.analysis.timeline import (
    accuracy_since_learned,
    after_each_task,
    before_training,
    first_seen,
    forgotten,
    share,
    share_of_all,
)
from lastlayer.analysis.vectors import (
    angles_between,
    bias_change,
    class_norms,
    data_angles,
    interference_risk,
    largest_risk,
    norm_change,
    riskiest_pairs,
    weight_change,
)
from lastlayer.analysis.verdict import (
    Difference,
    Verdict,
    all_hold,
    any_holds,
    opposite,
    paired_difference,
)

__all__ = [
    "class_norms", "norm_change", "bias_change", "weight_change", "angles_between", "data_angles",
    "interference_risk", "largest_risk", "riskiest_pairs",
    "REPAIRS", "FATES", "INTERFERENCE", "Losses", "trace_losses", "repair_shares", "first_seen",
    "shapley_values", "shapley_shares", "LOSS_PARTS", "loss_parts", "Drift", "projection_drift",
    "share", "share_of_all", "after_each_task", "before_training", "accuracy_since_learned",
    "forgotten",
    "final_accuracy", "average_accuracy", "average_incremental_accuracy", "average_forgetting",
    "backward_transfer", "forward_transfer",
    "Difference", "Verdict", "paired_difference", "all_hold", "any_holds", "opposite",
]  # fmt: skip
