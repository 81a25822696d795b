"""Features of a data set on a backbone, both by their names: what the command line computes."""

import os
from typing import Any

from lastlayer.core.names import look_up
from lastlayer.data.features import Features, Origin
from lastlayer.extraction.backbones.by_name import load_backbone
from lastlayer.extraction.datasets.readers import read_images
from lastlayer.extraction.from_images import extract

Path = str | os.PathLike[str]


def extract_named(
    dataset: str,
    root: Path,
    backbone: str,
    out: Path,
    *,
    weights: Path | None = None,
    normalisation: str | None = None,
    test: float | None = None,
    thin: int = 1,
    seed: int = 0,
    dtype: str = "float16",
    precision: str = "full",
    **how: Any,
) -> Features:
    """Read a data set's images and push them through a backbone.

    Args:
        dataset: A name of ``DATASETS``.
        root: Where its files are.
        backbone: A name of ``BACKBONES``, or ``timm:NAME``.
        out: The features file to write.
        weights: The file of the backbone's weights; downloaded if not given.
        normalisation: ``authors`` as in the study, ``trained`` as the backbone was trained with;
            the former where there is one if not given.
        test: For a folder that is not split: the part of each class to draw as test.
        thin: Keep one in this many training images.
        seed: Decides what is drawn.
        dtype: As ``extract`` takes it, and so the rest.
        precision: As ``extract`` takes it.
        **how: ``batch_size``, ``workers``, ``device``, ``broken``, ``ray`` and ``progress``.
    """
    images = read_images(dataset, root, test=test, seed=seed, thin=thin)
    network, preparations = load_backbone(backbone, weights, dataset)
    normalisation = normalisation or next(iter(preparations))
    transform = look_up(normalisation, preparations, f"normalisation for {dataset} on {backbone}")
    # The command that makes these features again, with no path of this machine in it.
    options = {
        "--root": "ROOT", "--backbone": backbone, "--weights": weights and "WEIGHTS",
        "--normalisation": normalisation, "--test": test, "--thin": thin if thin > 1 else None,
        "--seed": seed or None, "--dtype": dtype,
        "--precision": precision if precision != "full" else None, "--out": "FILE",
    }  # fmt: skip
    words = (f"{name} {value}" for name, value in options.items() if value is not None)
    origin = Origin(
        dataset=dataset,
        backbone=backbone,
        normalisation=normalisation,
        made=" ".join(["lastlayer extract", dataset, *words]),
    )
    return extract(
        images, network, transform, out, origin=origin, dtype=dtype, precision=precision, **how
    )
