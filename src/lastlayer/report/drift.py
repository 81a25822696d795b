"""How the data of a scenario change, read from its name."""

KINDS = ("incremental", "mixed", "lifelong")  # in the order of the page
MEANING = {
    "incremental": "new classes in every task",
    "mixed": "new classes, and known ones in new surroundings",
    "lifelong": "known classes in new surroundings",
}
_NAMED = {
    "cifar10": "incremental",
    "cifar100": "incremental",
    "core50": "incremental",
    "cub200": "incremental",
    "cifar100_lifelong": "lifelong",
    "core10_lifelong": "lifelong",
    "nested": "lifelong",
    "cifar100_mix": "mixed",
    "core10_mix": "mixed",
}


def kind_of(scenario: str) -> str:
    """Give the kind of drift: "incremental", "lifelong", "mixed", or "iid" where there is none.

    >>> kind_of("cifar100_mix"), kind_of("nested:fine/coarse"), kind_of("iid/class")
    ('mixed', 'lifelong', 'iid')
    """
    name = scenario.partition("/")[0].partition(":")[0]
    return _NAMED.get(name, name)


def title_of(features: str, scenario: str) -> str:
    """Name a scenario on its data, as briefly as can be.

    >>> title_of("cifar10/resnet20-cifar100", "cifar10"), title_of("mine", "incremental:5")
    ('cifar10, resnet20-cifar100', 'mine, incremental:5')
    """
    data, _, backbone = features.partition("/")
    named = scenario in _NAMED and scenario.partition("_")[0] in (data, "core10")
    return f"{scenario}, {backbone}" if named and backbone else f"{features}, {scenario}"
