"""The plan: what runs where and why, as a file (plan.yaml). Machine-written, immutable, hashed."""

import hashlib
from enum import StrEnum
from typing import Literal

from pydantic import Field

from llmdeploy.backends.spec import ServeSpec
from llmdeploy.document import Document, dump
from llmdeploy.inventory import Ports
from llmdeploy.model import ModelShape
from llmdeploy.plan.cluster import Cluster, Member
from llmdeploy.service import Gateway, Objectives, ReleasePolicy, Workload


class Origin(StrEnum):
    """Where a number comes from."""

    MEASURED = "measured"
    ENGINE_REPORTED = "engine-reported"
    TABLE = "table"
    DERIVED = "derived"
    ASSUMED = "assumed"


class Figure(Document):
    """One number of the plan, with how it came about."""

    name: str
    value: float
    unit: str
    """`bytes`, `tokens`, `s`, `requests/s`, `tokens/s`, `ratio`, `count`, `W`, `kWh`, or money."""
    origin: Origin
    formula: str
    """Words and the numbers put in: `3 KV heads x 64 x 2 (K, V) x 30 layers x 2 B = 23040`."""


class PlannedModel(Document):
    """The exact model: the store's id and the digest of its manifest."""

    id: str
    manifest_sha256: str
    """Of the shape where the model is only declared."""
    shape: ModelShape
    weights_bytes: int | None = None
    """Of the checkpoint's files; computed from the shape where the model is only declared."""
    declared: bool | None = None
    """True where the model is in no store: known by its config alone."""


class Replica(Document):
    """One engine endpoint on one host."""

    name: str
    host: str
    """The head's where it has several."""
    serve: ServeSpec
    members: tuple[Member, ...] | None = None
    """Its hosts and devices, the head first; None for the embedded engine on one host."""
    part: int | None = None
    """Which of the cluster's parts it belongs to."""
    spare: bool | None = None
    """True where the peak is carried without it."""


class Promises(Document):
    """What `verify` holds the release to."""

    kv_cache_tokens: int
    """Per replica."""
    max_concurrency: int
    """Requests decoded together over all replicas."""
    output_tokens_per_s: float
    """Predicted, saturated, over all replicas."""


class Plan(Document):
    """Everything launch needs; the same input gives the same bytes."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    service: str
    model: PlannedModel
    replicas: tuple[Replica, ...]
    core_slots: tuple[tuple[int, ...], ...]
    """Sets of CPU cores; a release takes a set no running release has. Empty: not pinned."""
    ports: Ports
    state_root: str
    model_store: str
    data_address: str
    python: str | None = None
    """The host's Python with llmdeploy[host,engine]; the CLI's own where None."""
    workload: Workload
    objectives: Objectives
    gateway: Gateway
    release: ReleasePolicy
    promises: Promises
    figures: tuple[Figure, ...]
    notes: tuple[str, ...]
    """Decisions in words, such as why one device is enough."""
    cluster: Cluster | None = None
    """None for the embedded engine on the one host that was asked."""

    @property
    def id(self) -> str:
        """Twelve hex digits of the SHA-256 of the plan's YAML: also the release's id."""
        return hashlib.sha256(dump(self).encode()).hexdigest()[:12]
