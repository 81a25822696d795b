"""What a head looks like everywhere: colour and marker are its layer, the dash is its mask.

The colours are those of Okabe and Ito, for every kind of colour vision; yellow is too pale on white
and became brown. Markers and dashes tell heads apart in black and white.
"""

LAYERS = {  # layer → colour, marker as a path in the square from −1 to 1
    "linear": ("#000000", "M-1,0A1,1,0,1,0,1,0A1,1,0,1,0,-1,0Z"),
    "linear_no_bias": ("#707070", "M-.85,-.85H.85V.85H-.85Z"),
    "weight_norm": ("#0072b2", "M0,-1L1,.8H-1Z"),
    "original_weight_norm": ("#56b4e9", "M0,1L1,-.8H-1Z"),
    "cosine": ("#d55e00", "M0,-1.1L1.1,0L0,1.1L-1.1,0Z"),
    "knn": ("#e69f00", "M1,0L-.8,1V-1Z"),
    "mean": ("#009e73", "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z"),
    "median": ("#6b3d0c", "M-1,0L.8,1V-1Z"),
    "slda": (
        "#cc79a7",
        "M0,-1.2L.35,-.42L1.2,-.37L.55,.18L.75,1L0,.54L-.75,1L-.55,.18L-1.2,-.37L-.35,-.42Z",
    ),
}
ALL_LAYERS = "all layers"  # their average
MASKS: dict[str, list[int]] = {"none": [1, 0], "group": [7, 3], "single": [2, 2]}  # mask → dash
GRADIENT = ("linear", "linear_no_bias", "weight_norm", "original_weight_norm", "cosine")
SIMILARITY = ("knn", "mean", "median", "slda")
FIRST = (  # what is seen at first where a chart holds many heads
    "linear",
    "linear+single",
    "weight_norm",
    "weight_norm+single",
    "cosine",
    "cosine+single",
    "knn",
    "mean",
    "slda",
)


def name_of(head: str, mask: str) -> str:
    """Write a head with its mask, as it is typed.

    >>> name_of("cosine", "single"), name_of("slda", "none")
    ('cosine+single', 'slda')
    """
    return head if mask == "none" else f"{head}+{mask}"


def place_of(name: str) -> tuple[int, int]:
    """Give the place of a head among all; unknown ones come last.

    >>> sorted(["slda", "cosine+single", "cosine", "new"], key=place_of)
    ['cosine', 'cosine+single', 'slda', 'new']
    """
    head, _, mask = name.partition("+")
    layers, masks = list(LAYERS), list(MASKS)
    place = layers.index(head) if head in layers else len(layers)
    return place, masks.index(mask) if mask in masks else 0
