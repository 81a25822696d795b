"""What the service counts, in Prometheus' format; no body and no label of a row is in it."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lastlayer.live.live_head import LiveHead
from lastlayer.live.service.about import status_of

VERBS = (
    "predict",
    "invocations",
    "learn",
    "forget",
    "relabel",
    "infer",
    "state",
    "delta",
    "reload",
    "metrics",
    "watch",
)
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class Metrics:
    """Counts requests, and tells how the heads are."""

    def __init__(self, heads: Mapping[str, LiveHead]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("lastlayer_requests", "Requests answered.", ["verb", "status"],
                                registry=self.registry)  # fmt: skip
        self.seconds = Histogram("lastlayer_request_seconds", "Time until the answer.", ["verb"],
                                 buckets=BUCKETS, registry=self.registry)  # fmt: skip
        self.registry.register(_Heads(heads))

    async def __call__(self, _: Request) -> Response:
        """Give the metrics."""
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)

    def totals(self) -> dict[str, int]:
        """Return how many requests there were, and how many of them were refused or failed."""
        found = {"requests": 0, "refused": 0, "failed": 0}
        for metric in self.requests.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    status, count = sample.labels["status"], int(sample.value)
                    found["requests"] += count
                    found["refused"] += count if status.startswith("4") else 0
                    found["failed"] += count if status.startswith("5") else 0
        return found


class Counted:
    """Middleware that counts and times requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, and note what became of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        last = scope["path"].rsplit("/", 1)[-1]
        verb, begin, status = last if last in VERBS else "other", time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:  # it was answered; uvicorn would log its words, which may be a body's
            return
        finally:
            self._metrics.requests.labels(verb, status).inc()
            self._metrics.seconds.labels(verb).observe(time.perf_counter() - begin)


class _Heads(Collector):
    """Reads how the heads are when somebody asks."""

    def __init__(self, heads: Mapping[str, LiveHead]) -> None:
        self._heads = heads

    def collect(self) -> Iterator[Metric]:
        status = {name: status_of(head) for name, head in self._heads.items()}
        values = {
            "rows": ("Rows learned.", lambda s: s["rows"]),
            "classes": ("Classes known.", lambda s: s["classes"]),
            "change": ("The last change on the disk.", lambda s: s["change"]),
            "through": ("The change through which answers go.", lambda s: s["through"]),
            "saved": ("The change through which the head's file goes.", lambda s: s["saved"]),
            "queued": ("Changes that wait for the writer.", lambda s: s["queued"]),
            "waiting": ("Inputs that wait for a label.", lambda s: s["waiting"]),
            "read_only": ("Whether nothing can be changed.", lambda s: int(bool(s["read_only"]))),
            "store_bytes": ("What the store takes.", lambda s: s["disk"]["store"]),
            "disk_free_bytes": ("What the disk has left.", lambda s: s["disk"]["free"]),
        }
        yield from _of_watches(status)
        for name, (about, value) in values.items():
            family = GaugeMetricFamily(f"lastlayer_{name}", about, labels=["head"])
            for head, one in status.items():
                if (found := value(one)) is not None:
                    family.add_metric([head], found)
            yield family
        for name, about in (("answers", "Answers whose label came."), ("right", "Of them right.")):
            total = CounterMetricFamily(f"lastlayer_labelled_{name}", about, labels=["head"])
            for head, one in status.items():
                total.add_metric([head], (one["score"] or {}).get(name, 0))
            yield total


def _of_watches(status: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    """Give what the watches of the heads have seen, by question."""
    watches = {name: one["watch"] for name, one in status.items() if one["watch"] is not None}
    alarms = CounterMetricFamily("lastlayer_watch_alarms", "Alarms.", labels=["head", "question"])
    rows = CounterMetricFamily("lastlayer_watch_rows", "Rows watched.", labels=["head", "question"])
    alarm = GaugeMetricFamily(
        "lastlayer_watch_alarm", "Whether there was an alarm.", labels=["head", "question"]
    )
    left_out = CounterMetricFamily(
        "lastlayer_watch_left_out", "Rows that came too fast to be watched.", labels=["head"]
    )
    for name, one in watches.items():
        left_out.add_metric([name], one["left_out"])
        for question in one["questions"]:
            labels = [name, question["question"]]
            alarms.add_metric(labels, question["alarms"])
            rows.add_metric(labels, question["rows"])
            alarm.add_metric(labels, int(question["alarm"]))
    yield from (alarms, rows, alarm, left_out)
