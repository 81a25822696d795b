"""What data and streams are called on the page, and which of them are the paper's."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import polars as pl

from lastlayer.catalogue.scenario_cards import SCENARIOS, drift_of

MEANING = {  # in the order of the page
    "incremental": "new classes in every task",
    "mixed": "new classes, and known ones in new surroundings",
    "lifelong": "known classes in new surroundings",
}
ENDINGS = (".safetensors",)  # of feature files
PAPER_DATA = {  # the paper's data set → ours, and the label column that is learned
    "CIFAR10": ("cifar10", "class"),
    "CIFAR100": ("cifar100", "fine"),
    "CIFAR100Lifelong": ("cifar100", "coarse"),
    "Core50": ("core50", "object"),
    "Core10Lifelong": ("core50", "category"),
    "CUB200": ("cub200", "class"),
}
PAPER_BACKBONES = {  # pretraining and architecture → ours
    "CIFAR10 resnet": "resnet20-cifar10",
    "CIFAR100 resnet": "resnet20-cifar100",
    "ImageNet resnet": "resnet18",
    "ImageNet vgg": "vgg16",
    "ImageNet googlenet": "googlenet",
}
NETWORK = ("epochs", "per_class", "batch_size", "optimizer", "lr", "clip", "start", "precision")
IMAGES = "images"  # what stands for a backbone where whole networks are trained


def drift_name(scenario: str) -> str:
    """Return how the data of a scenario change; of an unknown one, its own name.

    >>> drift_name("cifar100_mix"), drift_name("nested:fine/coarse"), drift_name("weekly:7")
    ('mixed', 'lifelong', 'weekly')
    """
    return drift_of(scenario) or scenario.partition("/")[0].partition(":")[0]


def data_name(features: str) -> str:
    """Return what people call some features: of a file, its name without folder and ending.

    >>> data_name("data/clips.safetensors"), data_name("clips.safetensors (0.2 held out)")
    ('clips', 'clips (0.2 held out)')
    >>> data_name("cifar10/resnet20-cifar100")
    'cifar10/resnet20-cifar100'
    """
    file, mark, rest = features.partition(" (")
    path = PurePath(file.replace("\\", "/"))
    return f"{path.stem}{mark}{rest}" if path.suffix in ENDINGS and path.stem else features


def title_of(features: str, scenario: str) -> str:
    """Name a scenario on its data, as briefly as can be.

    >>> title_of("cifar10/resnet20-cifar100", "cifar10")
    'cifar10, resnet20-cifar100'
    >>> title_of("data/clips.safetensors", "lifelong:month")
    'clips, month by month'
    """
    data, _, backbone = features.partition("/")
    named = scenario in SCENARIOS and SCENARIOS[scenario].features == data
    if named and backbone:
        return f"{scenario}, {backbone}"
    return f"{data_name(features)}, {in_words(scenario)}"


def titles_of(streams: Sequence[tuple[str, str]]) -> list[str]:
    """Name scenarios on their data; files that would be called alike keep their folders.

    >>> titles_of([("a/clips.safetensors", "iid"), ("b/clips.safetensors", "iid")])
    ['a/clips.safetensors, all data at once', 'b/clips.safetensors, all data at once']
    """
    files = dict.fromkeys(features for features, _ in streams)
    short = [data_name(features) for features in files]
    same = {f for f, name in zip(files, short, strict=True) if short.count(name) > 1}
    return [
        f"{features}, {in_words(scenario)}" if features in same else title_of(features, scenario)
        for features, scenario in streams
    ]


def in_words(scenario: str) -> str:
    """Say how the data of a scenario come; one that is not known keeps its name.

    >>> in_words("incremental:10"), in_words("incremental:4,3/species"), in_words("iid")
    ('new classes in 10 tasks', 'new species in 2 tasks', 'all data at once')
    >>> in_words("mixed:day/species"), in_words("nested:breed/species")
    ('species, day by day, new ones among them', 'species, one breed of each at a time')
    """
    what, _, label = scenario.partition("/")
    kind, _, by = what.partition(":")
    of = f"{label}, " if label else ""
    sizes = by.split(",")
    tasks = len(sizes) if len(sizes) > 1 else by
    known = {
        "incremental": by and f"new {label or 'classes'} in {tasks} task{'s' * (by != '1')}",
        "lifelong": by and f"{of}{by} by {by}",
        "mixed": by and f"{of or 'classes, '}{by} by {by}, new ones among them",
        "nested": by and f"{of or 'classes, '}one {by} of each at a time",
        "iid": f"{of}all data at once",
    }
    return known.get(kind) or scenario


def setting_in_words(about: Mapping[str, Any]) -> str:
    """Describe how a network was trained, by ``NETWORK``; what is PyTorch's own needs no word."""
    said = (
        f"{about['epochs']} epochs a task, {about['per_class']} remembered of a class, batch "
        f"{about['batch_size']}, {about['optimizer']} at {about['lr']:g}"
    )
    if about.get("clip") is not None:
        said += f", clipped at {about['clip']:g}"
    if about.get("start") not in (None, "pytorch"):
        said += f", the {about['start']}' starts"
    if about.get("precision") not in (None, "float32"):
        said += f", {about['precision']}"
    return said


def of_the_paper(features: str) -> bool:
    """Return whether features are the paper's: its data sets behind its backbones, or images.

    >>> of_the_paper("cifar10/resnet20-cifar100"), of_the_paper("cifar10.safetensors")
    (True, False)
    """
    data, _, backbone = features.partition(" (")[0].partition("/")
    return data in {name for name, _ in PAPER_DATA.values()} and backbone in {
        *PAPER_BACKBONES.values(),
        IMAGES,
    }


def cited(where: str, *tables: pl.DataFrame) -> str:
    """Return where the paper shows this ("Fig. 4"); nothing unless all features are the paper's."""
    shown = {str(name) for table in tables for name in table["features"].unique()}
    return f" ({where})" if shown and all(map(of_the_paper, shown)) else ""
