"""What analysis/ says of a linear head on a stream of tasks, after each of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastlayer.analysis import causes_of_loss, class_norms, data_angles
from lastlayer.training.pool import Vectors


def insight(
    vectors: Vectors, z: NDArray[Any], y: NDArray[Any], learned: NDArray[Any], *, whole: bool
) -> dict[str, NDArray[Any]]:
    """Give norm and bias (T, N) and causes of loss (T, N, 4), and with ``whole`` what maps need.

    Args:
        vectors: of the head after each of T tasks.
        z: (m, h) test features.
        y: (m,) their classes.
        learned: (N,) the task in which each class first came, or −1.
        whole: give the rows (T, N, h) and the mean angles of data to rows (T, N, N) too.
    """
    weight, gain, bias = vectors.weight.numpy(), vectors.gain.numpy(), vectors.bias.numpy()
    found = {
        "norm": class_norms(weight),
        "bias": bias,
        "causes": causes_of_loss(weight * gain[..., None], bias, z, y, learned),
    }
    if whole:
        found |= {"weight": weight, "data_angles": data_angles(z, y, weight)}
    return {name: _narrow(array) for name, array in found.items()}


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Halve what is stored: pictures need no more."""
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
