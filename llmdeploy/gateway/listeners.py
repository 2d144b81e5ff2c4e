"""Envoy listeners: the public one, and the dark one on a unix socket for probes."""

import posixpath

from llmdeploy.gateway.access_log import access_logs
from llmdeploy.gateway.filters import CLIENT_HEADER, dark_filters, public_filters
from llmdeploy.gateway.replies import replies
from llmdeploy.gateway.routes import RELEASE_HEADER
from llmdeploy.gateway.state import GatewayState
from llmdeploy.gateway.xds import Tree, extension, file_source, typed

BUFFER_BYTES = 8 * 2**20
"""Most of one connection that is held in memory; whole answers with log-probabilities of
thousands of tokens must fit, because their token counts are read from them."""

NOBODY = {"address_prefix": "255.255.255.255", "prefix_len": 32}


def public_listener(state: GatewayState, *, folder: str, access_log: str) -> Tree:
    """The listener clients reach: keys, limits, weights; TLS where there is a certificate."""
    connections = _connections(
        "public",
        filters=public_filters(state, folder=folder),
        logs=access_logs(access_log, probe=False),
        routes=f"{folder}/rds.json",
        forged=(CLIENT_HEADER, RELEASE_HEADER),
    )
    chain: Tree = {"filters": [connections]}
    if state.tls_certificate:
        chain["transport_socket"] = _tls(f"{folder}/sds.json")
    address: Tree = {"socket_address": {"address": state.host, "port_value": state.port}}
    return _listener("public", address, chain)


def dark_listener(state: GatewayState, *, folder: str, socket: str, access_log: str) -> Tree:
    """The listener only the service's owner can reach (mode 0600): no key, no limit, no weight."""
    connections = _connections(
        "dark",
        filters=dark_filters(state),
        logs=access_logs(access_log, probe=True),
        routes=f"{folder}/rds-dark.json",
        forged=(CLIENT_HEADER,),
    )
    address: Tree = {"pipe": {"path": socket, "mode": 0o600}}
    return _listener("dark", address, {"filters": [connections]})


def certificate(state: GatewayState) -> Tree | None:
    """The TLS certificate and key as files Envoy reads again when they are renewed."""
    if not state.tls_certificate or not state.tls_key:
        return None
    return typed(
        "extensions.transport_sockets.tls.v3.Secret",
        name="server",
        tls_certificate={
            "certificate_chain": {"filename": state.tls_certificate},
            "private_key": {"filename": state.tls_key},
            "watched_directory": {"path": posixpath.dirname(state.tls_certificate)},
        },
    )


def _listener(name: str, address: Tree, chain: Tree) -> Tree:
    return typed(
        "config.listener.v3.Listener",
        name=name,
        address=address,
        per_connection_buffer_limit_bytes=BUFFER_BYTES,
        filter_chains=[chain],
    )


def _connections(
    name: str, *, filters: list[Tree], logs: list[Tree], routes: str, forged: tuple[str, ...]
) -> Tree:
    return extension(
        "envoy.filters.network.http_connection_manager",
        "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=name,
        codec_type="AUTO",
        use_remote_address=True,
        # nobody is internal (an empty list would mean loopback and private networks): x-envoy-*
        # headers of clients are stripped, wherever they are
        internal_address_config={"cidr_ranges": [NOBODY]},
        generate_request_id=True,
        always_set_request_id_in_response=True,
        request_headers_timeout="10s",
        request_timeout="60s",
        stream_idle_timeout="300s",
        drain_timeout="30s",
        normalize_path=True,
        merge_slashes=True,
        path_with_escaped_slashes_action="REJECT_REQUEST",
        common_http_protocol_options={
            "idle_timeout": "300s",
            "headers_with_underscores_action": "REJECT_REQUEST",
        },
        early_header_mutation_extensions=[
            extension(
                "envoy.http.early_header_mutation.header_mutation",
                "extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                mutations=[{"remove": header} for header in forged],
            )
        ],
        rds={"route_config_name": name, "config_source": file_source(routes)},
        access_log=logs,
        http_filters=filters,
        local_reply_config=replies(),
    )


def _tls(secret_path: str) -> Tree:
    secret = {"name": "server", "sds_config": file_source(secret_path)}
    return extension(
        "envoy.transport_sockets.tls",
        "extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        common_tls_context={
            "alpn_protocols": ["h2", "http/1.1"],
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
            "tls_certificate_sds_secret_configs": [secret],
        },
    )
