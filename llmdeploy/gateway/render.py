"""All of Envoy's files as text, from the gateway's state alone: same state, same bytes."""

import yaml

from llmdeploy.gateway.clusters import clusters, endpoints
from llmdeploy.gateway.filters import jwt, limits
from llmdeploy.gateway.listeners import certificate, dark_listener, public_listener
from llmdeploy.gateway.routes import dark_routes, public_routes
from llmdeploy.gateway.state import GatewayState
from llmdeploy.gateway.xds import Tree, file_source, resource_file
from llmdeploy.release.layout import ServiceLayout

MAX_CONNECTIONS = 20_000
HISTOGRAM_FIRST_MS = 1.0
HISTOGRAM_LAST_MS = 200_000.0
HISTOGRAM_STEP_RATIO = 1.2
"""Each bucket ends 20 % above the one before, so that a quantile read from them is a few per
cent off at most (with the usual 1-2.5-5 steps 259 ms read as 248)."""


def render(state: GatewayState, layout: ServiceLayout) -> dict[str, str]:
    """File name -> text of every file Envoy reads, all of them in the gateway's folder."""
    folder = layout.gateway
    public = public_listener(state, folder=folder, access_log=layout.access_log)
    dark = dark_listener(
        state, folder=folder, socket=layout.dark_socket, access_log=layout.access_log
    )
    files = {
        "bootstrap.yaml": _bootstrap(state.service, layout),
        "lds.json": resource_file([public, dark]),
        "cds.json": resource_file(clusters(state, folder=folder)),
        "rds.json": resource_file([public_routes(state)]),
        "rds-dark.json": resource_file([dark_routes(state)]),
        "ecds-jwt.json": resource_file([jwt(state)]),
        "ecds-limits.json": resource_file([limits(state)]),
    }
    for release in state.releases:
        files[f"eds-{release.id}.json"] = resource_file([endpoints(release)])
    secret = certificate(state)
    if secret:
        files["sds.json"] = resource_file([secret])
    return files


def _bootstrap(service: str, layout: ServiceLayout) -> str:
    tree: Tree = {
        "node": {"id": service, "cluster": "llmdeploy"},
        "admin": {"address": {"pipe": {"path": layout.admin_socket, "mode": 0o600}}},
        "dynamic_resources": {
            "lds_config": file_source(f"{layout.gateway}/lds.json"),
            "cds_config": file_source(f"{layout.gateway}/cds.json"),
        },
        "stats_flush_interval": "1s",  # histograms are as old as the last flush
        "stats_config": {
            "histogram_bucket_settings": [
                {"match": {"prefix": "llmdeploy"}, "buckets": list(_buckets_ms())}
            ]
        },
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.resource_monitors"
                        ".downstream_connections.v3.DownstreamConnectionsConfig",
                        "max_active_downstream_connections": MAX_CONNECTIONS,
                    },
                }
            ]
        },
    }
    return yaml.safe_dump(tree, sort_keys=False, width=100)


def _buckets_ms() -> tuple[float, ...]:
    edges = []
    edge = HISTOGRAM_FIRST_MS
    while edge < HISTOGRAM_LAST_MS:
        edges.append(float(f"{edge:.3g}"))
        edge *= HISTOGRAM_STEP_RATIO
    return (*edges, HISTOGRAM_LAST_MS)
