"""Reads what a plan for a cluster is made of: documents, model, past requests, pools of devices."""

import pathlib

from llmdeploy.cli.loading import Loaded, load_for_cluster, read
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError
from llmdeploy.estimate import memory
from llmdeploy.estimate.calibration import Forecast
from llmdeploy.estimate.parse import CaseLine
from llmdeploy.estimate.parse_model import Models
from llmdeploy.facts.bundle import Bundle
from llmdeploy.model import ModelShape
from llmdeploy.plan import pool
from llmdeploy.plan.calibrated_pace import calibrated_pace
from llmdeploy.plan.cluster_make import PlannableModel, make_for_cluster
from llmdeploy.plan.document import Plan
from llmdeploy.plan.engine_pace import engine_pace
from llmdeploy.plan.pool import Pool
from llmdeploy.plan.recorded import with_recorded
from llmdeploy.plan.size import Estimators
from llmdeploy.service import Service
from llmdeploy.simulate.replay import requests_of
from llmdeploy.store.read import find


def plan_cluster(
    service: str,
    inventory: str,
    *,
    facts: str | None,
    state_root: str | None,
    records: tuple[Forecast, ...] = (),
) -> Plan:
    """The plan of service.yaml on the cluster of that inventory; asks no host."""
    loaded = load_for_cluster(service, inventory, state_root=state_root)
    folder = pathlib.Path(service).expanduser().absolute().parent
    pools = _pools(loaded, facts)
    pace = calibrated_pace(engine_pace, records, model=loaded.service.model.id)
    return make_for_cluster(
        _with_requests(loaded.service, folder),
        loaded.inventory,
        pools,
        _model(loaded, folder),
        using=Estimators(memory=memory.estimate, pace=pace),
    )


def _pools(loaded: Loaded, facts: str | None) -> tuple[Pool, ...]:
    if facts is None:
        return pool.declared(loaded.inventory)
    path = pathlib.Path(facts).expanduser()
    bundle = read(path, Bundle, example="a bundle of `preflight --out`")
    return pool.from_facts(loaded.inventory, bundle)


def _model(loaded: Loaded, folder: pathlib.Path) -> PlannableModel:
    """The store's model where it is there, else the shape by its config or Hugging Face id."""
    name, root, shell = loaded.service.model.id, loaded.inventory.model_store, LocalShell()
    if name.startswith(("/", "./", "../", "~")) or name.endswith(".json"):
        path = str(folder / pathlib.Path(name).expanduser())
        return PlannableModel(id=_named_by(path), shape=_shape(path, root))
    stored = find(f"{root}/{name}", shell=shell)
    digest = stored.manifest.digest if stored is not None else None
    return PlannableModel(id=name, shape=_shape(name, root), manifest_sha256=digest)


def _shape(name: str, store: str) -> ModelShape:
    found = Models(store=store, shell=LocalShell()).find(CaseLine(model=name), place="service.yaml")
    if found.quantization is not None:
        raise InputError(
            f"{found.source}: a GGUF file in {found.quantization}, needed a model that vLLM,"
            " SGLang or the embedded engine load: safetensors with a config.json",
            fix="name the original model by its Hugging Face id, and set model.quantization",
        )
    return found.shape


def _named_by(path: str) -> str:
    """The id of a model that a path names: its folder's name."""
    whole = pathlib.Path(path)
    return (whole.parent if whole.suffix == ".json" else whole).name


def _with_requests(service: Service, folder: pathlib.Path) -> Service:
    named = service.workload.requests_csv
    if named is None:
        return service
    path = folder / pathlib.Path(named).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: found no readable file (named by workload.requests_csv), needed a CSV of"
            " requests",
            fix="correct the path; columns are arrival_s,input_tokens,output_tokens",
        ) from error
    return with_recorded(service, requests_of(text, place=str(path)))
