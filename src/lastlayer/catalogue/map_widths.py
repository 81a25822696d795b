"""The map that a head stands behind unless told otherwise: which kind, and how wide."""

# Of the random heads, unless told otherwise: the width of a map scaled to its first rows, and how
# many those are; or the features from which products of unit rows stand beside them, and how many.
WIDTH, MAP_ROWS = 2000, 1000
MANY, PRODUCTS = 64, 2080  # all products of 64 features
MOST_WIDTH = 1_000_000


def mapped_width(h: int) -> int:
    """Return the default width of a map of h features.

    >>> mapped_width(30), mapped_width(64), mapped_width(384)
    (2000, 2144, 2464)
    """
    return WIDTH if h < MANY else h + PRODUCTS


def all_products(h: int) -> int:
    """Return the width of a quadratic map with all products of h features.

    >>> all_products(64)
    2144
    """
    return h + h * (h + 1) // 2


def default_map(h: int, width: int) -> str | None:
    """Return the map of h features of that width that depends on no row; None: one of first rows.

    >>> default_map(64, 2144), default_map(64, 5000), default_map(30, 2000)
    ('quadratic', 'fourier', None)
    """
    if h < MANY or width <= h:
        return None
    return "quadratic" if width <= all_products(h) else "fourier"


def half(h: int) -> int:
    """Return how many numbers of a symmetric matrix (h, h) take memory: of a wide one, half.

    >>> half(2000), half(10_000)
    (4000000, 50640000)
    """
    return h * h if h < 2900 else h * (h + 128) // 2  # as core/packed.py, which needs torch
