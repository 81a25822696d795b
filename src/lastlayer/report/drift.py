"""How the data of a scenario change, and what a stream is called; read from the cards."""

from lastlayer.catalogue import SCENARIOS, drift_of

MEANING = {  # in the order of the page
    "incremental": "new classes in every task",
    "mixed": "new classes, and known ones in new surroundings",
    "lifelong": "known classes in new surroundings",
}


def kind_of(scenario: str) -> str:
    """Return the kind of drift; an unknown scenario is a kind of its own.

    >>> kind_of("cifar100_mix"), kind_of("nested:fine/coarse"), kind_of("weekly:7")
    ('mixed', 'lifelong', 'weekly')
    """
    return drift_of(scenario) or scenario.partition("/")[0].partition(":")[0]


def title_of(features: str, scenario: str) -> str:
    """Name a scenario on its data, as briefly as can be.

    >>> title_of("cifar10/resnet20-cifar100", "cifar10"), title_of("mine", "incremental:5")
    ('cifar10, resnet20-cifar100', 'mine, incremental:5')
    """
    data, _, backbone = features.partition("/")
    named = scenario in SCENARIOS and SCENARIOS[scenario].features == data
    return f"{scenario}, {backbone}" if named and backbone else f"{features}, {scenario}"
