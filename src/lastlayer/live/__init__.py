"""Heads in use: what lives, and what watches over it."""

from lastlayer.live.client import Client
from lastlayer.live.live_head import LiveHead
from lastlayer.live.replica import Replica
from lastlayer.live.snapshot import Answer

__all__ = ["Answer", "Client", "LiveHead", "Replica"]
