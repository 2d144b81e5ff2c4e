"""Reads service.yaml and the cluster.yaml it names, with every path made absolute."""

import os
import pathlib
import sys
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

from llmdeploy.document import parse
from llmdeploy.errors import InputError, Refused
from llmdeploy.facts.collect import Paths
from llmdeploy.inventory import Inventory
from llmdeploy.service import Service

D = TypeVar("D", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the user wants and where, as read from disk."""

    service: Service
    inventory: Inventory
    python: str
    """The gateway host's Python; the CLI's own where cluster.yaml names none."""

    @property
    def paths(self) -> Paths:
        """What preflight asks the host about."""
        return Paths(
            state_root=self.inventory.state_root,
            model_store=self.inventory.model_store,
            service=self.service.name,
            model=self.service.model.id,
            tls_certificate=self.service.gateway.tls_certificate,
            tls_key=self.service.gateway.tls_key,
        )


def load(path: str, *, state_root: str | None = None) -> Loaded:
    """Both documents, for one host; `state_root` (an option or LLMDEPLOY_STATE_ROOT) wins over
    cluster.yaml.

    Paths in a file are relative to that file, `~` is the user's home. InputError names the
    file, the key, what was found and what was needed.
    """
    service_path = _absolute(path, pathlib.Path.cwd())
    service = read(service_path, Service, example="service.yaml")
    cluster_path = _absolute(service.cluster, service_path.parent)
    inventory = read(cluster_path, Inventory, example="cluster.yaml", named_by=str(service_path))
    _check_one_host(inventory, place=str(cluster_path))
    _check_embedded(service, place=str(service_path))
    return _loaded(service, service_path, inventory, cluster_path, state_root)


def load_for_cluster(path: str, cluster: str, *, state_root: str | None = None) -> Loaded:
    """service.yaml with another inventory than it names: as many hosts as that has."""
    service_path = _absolute(path, pathlib.Path.cwd())
    service = read(service_path, Service, example="service.yaml")
    cluster_path = _absolute(cluster, pathlib.Path.cwd())
    inventory = read(cluster_path, Inventory, example="cluster.yaml")
    return _loaded(service, service_path, inventory, cluster_path, state_root)


def load_hosts(path: str, *, state_root: str | None = None) -> Loaded:
    """service.yaml and the cluster.yaml it names, for any number of hosts, local or by SSH.

    Where one is reached by SSH, `~` in paths stays: it is the home on each host.
    """
    service_path = _absolute(path, pathlib.Path.cwd())
    service = read(service_path, Service, example="service.yaml")
    cluster_path = _absolute(service.cluster, service_path.parent)
    inventory = read(cluster_path, Inventory, example="cluster.yaml", named_by=str(service_path))
    if all(host.address == "local" for host in inventory.hosts):
        _check_one_host(inventory, place=str(cluster_path))
        return _loaded(service, service_path, inventory, cluster_path, state_root)
    if state_root:
        inventory = inventory.model_copy(update={"state_root": state_root})
    _check_reachable(inventory, place=str(cluster_path))
    return Loaded(
        service=_with_whole_tls(service, service_path.parent),
        inventory=inventory,
        python=inventory.python_of(inventory.gateway_host) or sys.executable,
    )


def _check_reachable(inventory: Inventory, *, place: str) -> None:
    local = [name for host in inventory.hosts if host.address == "local" for name in host.names]
    if len(local) > 1:
        raise InputError(
            f"{place}: hosts: found {', '.join(local[:8])} with address local, needed at most one: "
            "that is the machine llmdeploy runs on",
            fix="give each host its `address`: an alias of ~/.ssh/config, a name or an IP address",
        )
    for key, path in inventory.places:
        if not path.startswith(("/", "~")):
            raise InputError(
                f"{place}: {key}: found {path}, needed a path that begins with / or ~: the hosts "
                "reached by SSH do not know the folder of this file",
                fix=f"write {key} as ~/{path}",
            )


def _loaded(
    service: Service,
    service_path: pathlib.Path,
    inventory: Inventory,
    cluster_path: pathlib.Path,
    state_root: str | None,
) -> Loaded:
    places = {key: str(_absolute(path, cluster_path.parent)) for key, path in inventory.places}
    if state_root:
        places["state_root"] = str(_absolute(state_root, pathlib.Path.cwd()))
    inventory = inventory.model_copy(update=places)
    python = inventory.python_of(inventory.gateway_host)
    return Loaded(
        service=_with_whole_tls(service, service_path.parent),
        inventory=inventory,
        python=str(pathlib.Path(python).expanduser()) if python else sys.executable,
    )


def _check_one_host(inventory: Inventory, *, place: str) -> None:
    names = [name for host in inventory.hosts for name in host.names]
    if len(names) > 1 or inventory.gateway_host.address != "local":
        raise Refused(
            f"{place}: hosts: found {len(names)}, the first at {inventory.gateway_host.address};"
            " this release asks and launches one host, the one llmdeploy runs on",
            fix=f"plan for them without asking: llmdeploy plan service.yaml --inventory {place}",
        )


def _check_embedded(service: Service, *, place: str) -> None:
    if service.engine.kind in ("vllm", "sglang"):
        raise Refused(
            f"{place}: engine/kind: found {service.engine.kind}; this release launches the embedded"
            " engine alone",
            fix="set engine.kind to auto, or plan for a cluster with `llmdeploy plan --inventory`",
        )


def read(path: pathlib.Path, kind: type[D], *, example: str, named_by: str | None = None) -> D:
    """The document in a file; InputError where it cannot be read or is not that document."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is no UTF-8 text: {error}"
        where = f" (named by `cluster` in {named_by})" if named_by else ""
        raise InputError(
            f"{path}: found no readable file: {reason}{where}, needed {example}",
            fix=f"correct the path, or write a starter: llmdeploy init --dir {path.parent}",
        ) from error
    return parse(text, kind, place=str(path))


def _with_whole_tls(service: Service, folder: pathlib.Path) -> Service:
    gateway = service.gateway
    files = {"tls_certificate": gateway.tls_certificate, "tls_key": gateway.tls_key}
    whole = {name: str(_absolute(path, folder)) for name, path in files.items() if path}
    return service.model_copy(update={"gateway": gateway.model_copy(update=whole)})


def _absolute(path: str, folder: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(os.path.abspath(folder / pathlib.Path(path).expanduser()))
