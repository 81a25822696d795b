"""What a task changes about the weight, class by dimension (Fig. 2)."""

from lastlayer.analysis.arrays import Floats, check_same_shape, takes_arrays


@takes_arrays
def weight_change(before: Floats, after: Floats) -> Floats:
    """Give A after − A before a task: (…, C, h).

    Rows of classes that the task does not hold show the modification of weights that the paper
    means; its figure draws the first 50 dimensions, ``[:, :50]``. The length of a row's change
    is ``class_norms`` of this.

    >>> import numpy as np
    >>> weight_change(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [2.5, 6.0]]))
    array([[ 0. ,  0. ],
           [-0.5,  2. ]])
    """
    check_same_shape(before, after)
    return after - before
