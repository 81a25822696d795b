"""The catalogue: a card for each head and each named scenario, read by the whole program.

Nothing else lists heads or scenarios: commands, plans, costs, colours, docs and tests read the
cards when they are called, so a head that gets a card is known everywhere. No torch here.
"""

from lastlayer.catalogue.head_cards import HEADS, MASKS, PAPER_HEADS, all_heads, split_name
from lastlayer.catalogue.scenario_cards import KINDS, SCENARIOS

__all__ = ["HEADS", "KINDS", "MASKS", "PAPER_HEADS", "SCENARIOS", "all_heads", "split_name"]
