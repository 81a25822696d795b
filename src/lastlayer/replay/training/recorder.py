"""Steps recorded as CUDA graphs, on a stream of their own; on a CPU they are taken directly."""

from collections.abc import Callable

import torch


class Recorder:
    """Takes the same step again and again: runs it once, records it, and then launches it whole."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def begin(self) -> None:
        """Let the stream wait for what was launched before."""
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream())

    def end(self) -> None:
        """Let what is launched from now on wait for the stream."""
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)

    def take(self, step: Callable[[], None], which: int = 0) -> None:
        """Take a step; steps that launch the same work are told apart by ``which``."""
        if which in self.graphs:
            with torch.cuda.stream(self.stream):
                self.graphs[which].replay()
            return
        self.directly(step)
        if self.stream is not None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(self.stream), torch.cuda.graph(graph, stream=self.stream):
                step()  # recorded, not run
            self.graphs[which] = graph

    def directly(self, step: Callable[[], None]) -> None:
        """Take a step without recording it."""
        with torch.cuda.stream(self.stream):
            step()

    def forget(self) -> None:
        """Drop what was recorded."""
        if self.stream is not None:
            self.stream.synchronize()
        self.graphs.clear()
