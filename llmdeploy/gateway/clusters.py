"""Envoy clusters and endpoints: one per release, and who answers where a release fails."""

from llmdeploy.gateway.state import GatewayRelease, GatewayState
from llmdeploy.gateway.xds import Tree, extension, file_source, typed

FIRST = "-first"
"""`<id>-first` tries release `<id>`, then the fallback; traffic is routed to these names."""
METADATA = "gw"
"""Namespace of the endpoint metadata that says which release an endpoint belongs to."""
ENGINE_KEEPALIVE_S = 4
"""Idle connections are closed before an engine closes them (uvicorn: after 5 s), so that no
request meets a connection that is just going away."""


def clusters(state: GatewayState, *, folder: str) -> list[Tree]:
    """All clusters. A release and its `-first` come and go together and keep their names while
    weights move, so that a route never names a cluster that Envoy does not have."""
    single = [_release(release, state, folder) for release in state.releases]
    ordered = [_first(release, state) for release in state.releases]
    return single + ordered


def endpoints(release: GatewayRelease) -> Tree:
    """The addresses of a release's replicas, each marked with the release."""
    return typed(
        "config.endpoint.v3.ClusterLoadAssignment",
        cluster_name=release.id,
        # one healthy replica keeps the traffic: the fallback is for a release that is gone
        policy={"overprovisioning_factor": 100000},
        endpoints=[
            {
                "locality": {"zone": endpoint.host},
                "lb_endpoints": [
                    {
                        "endpoint": {
                            "address": {
                                "socket_address": {
                                    "address": endpoint.address,
                                    "port_value": endpoint.port,
                                }
                            },
                            "hostname": f"{release.id}-{endpoint.replica}",
                        },
                        "metadata": {"filter_metadata": {METADATA: {"release": release.id}}},
                    }
                ],
            }
            for endpoint in release.endpoints
        ],
    )


def bound(release: GatewayRelease, state: GatewayState) -> int:
    """Requests of a release in the gateway at one time; more are answered 429."""
    return release.max_concurrency + state.max_queue


def _release(release: GatewayRelease, state: GatewayState, folder: str) -> Tree:
    most = bound(release, state)
    return typed(
        "config.cluster.v3.Cluster",
        name=release.id,
        type="EDS",
        connect_timeout="1s",
        eds_cluster_config={"eds_config": file_source(f"{folder}/eds-{release.id}.json")},
        lb_policy="LEAST_REQUEST",
        least_request_lb_config={"choice_count": 4},
        common_lb_config={
            "healthy_panic_threshold": {"value": 0},
            # by default a health change reaches the workers up to 1 s after the one before it:
            # long enough for requests to fail beside a fallback that has just become healthy
            "update_merge_window": "0s",
        },
        ignore_health_on_host_removal=True,
        health_checks=[_health_check()],
        outlier_detection=_outliers(),
        circuit_breakers={
            "thresholds": [
                {
                    # twice: connections that are just closing count too
                    "max_connections": 2 * most + 16,
                    "max_pending_requests": most,
                    "max_requests": most,
                    "max_retries": most,
                    "track_remaining": True,
                }
            ]
        },
        typed_extension_protocol_options=_http1(),
    )


def _first(release: GatewayRelease, state: GatewayState) -> Tree:
    order = [release.id]
    if state.fallback and state.fallback != release.id:
        order.append(state.fallback)
    return typed(
        "config.cluster.v3.Cluster",
        name=f"{release.id}{FIRST}",
        connect_timeout="1s",
        lb_policy="CLUSTER_PROVIDED",
        circuit_breakers={"thresholds": [{"max_retries": bound(release, state)}]},
        cluster_type=extension(
            "envoy.clusters.aggregate",
            "extensions.clusters.aggregate.v3.ClusterConfig",
            clusters=order,
        ),
    )


def _health_check() -> Tree:
    """Slow to condemn: an engine on busy cores may take a second to answer; refused
    connections are retried elsewhere long before."""
    return {
        "timeout": "2s",
        "interval": "1s",
        "no_traffic_interval": "1s",
        "unhealthy_interval": "1s",
        "unhealthy_threshold": 3,
        "healthy_threshold": 1,
        "http_health_check": {"path": "/health"},
    }


def _outliers() -> Tree:
    """At most half of the replicas are put aside, never the only one."""
    return {
        "split_external_local_origin_errors": True,
        "consecutive_local_origin_failure": 2,
        "consecutive_gateway_failure": 5,
        "enforcing_consecutive_gateway_failure": 100,
        "enforcing_consecutive_5xx": 0,
        "enforcing_success_rate": 0,
        "enforcing_local_origin_success_rate": 0,
        "base_ejection_time": "5s",
        "interval": "2s",
        "max_ejection_percent": 50,
    }


def _http1() -> Tree:
    return {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": typed(
            "extensions.upstreams.http.v3.HttpProtocolOptions",
            common_http_protocol_options={"idle_timeout": f"{ENGINE_KEEPALIVE_S}s"},
            explicit_http_config={"http_protocol_options": {}},
        )
    }
