"""Plans and model stores made for tests: small, valid, and right for this host."""

import hashlib
import json
import os
import pathlib
import socket
import stat
import sys

from llmdeploy.backends.spec import ServeSpec
from llmdeploy.document import dump
from llmdeploy.inventory import Ports
from llmdeploy.model import ModelShape
from llmdeploy.plan.document import Figure, Origin, Plan, PlannedModel, Promises, Replica
from llmdeploy.service import Gateway, Objectives, ReleasePolicy, Workload
from llmdeploy.store import Manifest, ModelFile, Source

SHAPE = ModelShape(
    architecture="LlamaForCausalLM", layers=2, hidden_size=8, intermediate_size=16,
    attention_heads=2, kv_heads=1, head_dim=4, vocabulary_size=64, max_positions=128,
    tied_embeddings=True, dtype="bfloat16",
)  # fmt: skip
FAKE_ENGINE = pathlib.Path(__file__).parent / "fake_engine.py"


def manifest() -> Manifest:
    """The manifest of a model of two small files."""
    files = tuple(
        ModelFile(name=name, size_bytes=len(text), sha256=hashlib.sha256(text).hexdigest())
        for name, text in (("config.json", b"{}"), ("model.safetensors", b"weights"))
    )
    return Manifest(
        schema=1, id="tiny", source=Source(kind="folder", name="made"), created_s=0.0, files=files,
        architecture="LlamaForCausalLM", dtype="bfloat16", parameters=4, embedding_parameters=2,
        matrix_parameters=2, weights_bytes=8, shape=SHAPE,
    )  # fmt: skip


def serve(**changes: object) -> ServeSpec:
    """What one replica serves."""
    values = {
        "engine": "embedded", "served_name": "tiny", "device": "cpu", "dtype": "bfloat16",
        "quantization": "none", "tensor_parallel": 1, "data_parallel": 2, "threads_per_worker": 1,
        "max_model_len": 128, "max_num_seqs": 8, "max_num_batched_tokens": 64, "max_queue": 8,
        "kv_cache_tokens": 1024, "batch_window_s": 0.0, "request_timeout_s": 20.0,
        "drain_timeout_s": 2.0, "log_level": "info",
    }  # fmt: skip
    return ServeSpec(**(values | changes))


def plan(**changes: object) -> Plan:
    """A plan of one replica; `changes` are its fields."""
    needed = Figure(
        name="memory_needed", value=1e6, unit="bytes", origin=Origin.DERIVED, formula="made"
    )
    values = {
        "schema": 1,
        "service": "chat",
        "model": PlannedModel(id="tiny", manifest_sha256=manifest().digest, shape=SHAPE),
        "replicas": (Replica(name="r1", host="local", serve=serve()),),
        "core_slots": ((0,), (1,)),
        "ports": Ports(),
        "state_root": "/state",
        "model_store": "/store",
        "data_address": "127.0.0.1",
        "python": None,
        "workload": Workload(),
        "objectives": Objectives(),
        "gateway": Gateway(),
        "release": ReleasePolicy(),
        "promises": Promises(kv_cache_tokens=1024, max_concurrency=8, output_tokens_per_s=10.0),
        "figures": (needed,),
        "notes": (),
    }
    return Plan(**(values | changes))


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Bench:
    """A state root, a model store and a Python whose engine is the fake one, in one folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.state_root = folder / "s"
        self.store = folder / "models"
        (self.store / "tiny").mkdir(parents=True)
        (self.store / "tiny" / "config.json").write_bytes(b"{}")
        (self.store / "tiny" / "model.safetensors").write_bytes(b"weights")
        text = manifest().model_dump_json(by_alias=True)
        (self.store / "tiny" / "manifest.json").write_text(text)
        self.python = folder / "python"
        self.python.write_text(
            '#!/bin/sh\n[ "$2" = llmdeploy.engine ] || exec "$REAL" "$@"\n'.replace(
                "$REAL", sys.executable
            )
            + f'shift 2; exec "{sys.executable}" "{FAKE_ENGINE}" "{folder}/behaviour.json" "$@"\n'
        )
        self.python.chmod(self.python.stat().st_mode | stat.S_IXUSR)
        self.behave()
        self.ports = Ports(first=_first_port(), block_size=4, blocks=4)
        self.gateway = Gateway(port=free_port())

    def behave(self, **behaviour: object) -> None:
        """How engines started from now on behave."""
        (self.folder / "behaviour.json").write_text(json.dumps(behaviour))

    def plan(self, **changes: object) -> Plan:
        """A plan for this bench."""
        cores = tuple(sorted(os.sched_getaffinity(0)))
        values = {
            "core_slots": ((cores[0],), (cores[-1],)) if len(cores) > 1 else (cores,),
            "ports": self.ports,
            "state_root": str(self.state_root),
            "model_store": str(self.store),
            "python": str(self.python),
            "gateway": self.gateway,
        }
        return plan(**(values | changes))

    def write(self, wanted: Plan) -> pathlib.Path:
        """The folder that holds the plan's plan.yaml."""
        folder = self.folder / "plans" / wanted.id
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.yaml").write_text(dump(wanted))
        return folder


def _first_port() -> int:
    """The first of sixteen ports in a row that are free now."""
    for _ in range(100):
        first = free_port()
        if first + 16 < 65000 and all(_is_free(first + offset) for offset in range(16)):
            return first
    raise OSError("no sixteen free ports in a row")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
