"""What a task changes about the weight, class by dimension (Fig. 2)."""

from lastlayer.analysis.arrays import Floats, check_same_shape, takes_arrays


@takes_arrays
def weight_change(before: Floats, after: Floats) -> Floats:
    """Return A after − A before a task: (…, C, h).

    Rows of classes absent from the task show what the paper calls modification of weights; its
    figure draws the first 50 dimensions, ``[:, :50]``. ``class_norms`` of the result is how far
    each row moved.

    >>> import numpy as np
    >>> weight_change(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [2.5, 6.0]]))
    array([[ 0. ,  0. ],
           [-0.5,  2. ]])
    """
    check_same_shape(before, after)
    return after - before
