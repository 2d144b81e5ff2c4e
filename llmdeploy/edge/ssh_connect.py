"""One SSH connection: TCP with short deadlines, the host's key, the login."""

import errno
import socket
from dataclasses import dataclass

import paramiko
from paramiko.ssh_exception import ChannelException, IncompatiblePeer, SSHException

from llmdeploy.edge import ssh_known
from llmdeploy.edge.ssh_config import Route
from llmdeploy.edge.ssh_keys import KeyRing
from llmdeploy.errors import InputError, LlmDeployError, Unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Deadlines of a connection, and how long its peer may be silent before it counts as gone."""

    connect_timeout_s: float = 8.0
    banner_timeout_s: float = 8.0
    """For the peer's first line: a frozen host's kernel accepts, but nothing speaks."""
    negotiation_timeout_s: float = 15.0
    login_timeout_s: float = 15.0
    channel_timeout_s: float = 8.0
    silence_s: float = 6.0
    """A cut link is noticed after this while a command runs. paramiko's keepalive alone does not
    notice it (measured: blocked past 25 s), since nothing waits for its answer; TCP's own
    keepalive under TCP_USER_TIMEOUT does."""


LIMITS = Limits()


def open_transport(
    name: str, route: Route, *, keys: KeyRing, jump: paramiko.Transport | None, limits: Limits
) -> paramiko.Transport:
    """A logged-in connection; over `jump`'s channel where one is given."""
    plug = _through(name, route, jump, limits) if jump else _dial(name, route, limits)
    try:
        transport = paramiko.Transport(plug)
    except (SSHException, OSError, EOFError) as error:
        plug.close()
        raise _no_ssh(name, route, error, limits) from error
    try:
        transport.daemon = True
        transport.banner_timeout = limits.banner_timeout_s
        transport.handshake_timeout = limits.negotiation_timeout_s
        transport.auth_timeout = limits.login_timeout_s
        transport.channel_timeout = limits.channel_timeout_s
        _negotiate(name, route, transport, limits)
        keys.authenticate(name, transport, route=route)
    except BaseException:
        transport.close()
        raise
    return transport


def _dial(name: str, route: Route, limits: Limits) -> socket.socket:
    try:
        plug = socket.create_connection(
            (route.address, route.port), timeout=limits.connect_timeout_s
        )
    except OSError as error:
        raise _no_tcp(name, route, error, limits) from error
    plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    beats = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
    beats["TCP_USER_TIMEOUT"] = int(limits.silence_s * 1000)
    for option, value in beats.items():
        if hasattr(socket, option):  # macOS has no TCP_USER_TIMEOUT: there keepalive decides
            plug.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plug


def _through(name: str, route: Route, jump: paramiko.Transport, limits: Limits) -> paramiko.Channel:
    try:
        return jump.open_channel(
            "direct-tcpip",
            (route.address, route.port),
            ("127.0.0.1", 0),
            timeout=limits.connect_timeout_s + 2,
        )
    except ChannelException as error:
        via = route.via.place if route.via else "the jump host"
        by_hand = f"{route.via.user}@{route.via.address}" if route.via else "it"
        raise Unreachable(
            f"{name}: {route.address}:{route.port}: {via} cannot reach it: {error.text}",
            fix=f"try it there: ssh {by_hand} nc -vz {route.address} {route.port}; "
            "or see AllowTcpForwarding in its sshd_config",
        ) from error
    except (SSHException, EOFError, OSError) as error:
        raise Unreachable(
            f"{name}: {route.shown}: the jump host did not open a way in "
            f"{limits.connect_timeout_s + 2:g} s: {error or 'it closed the connection'}",
            fix=f"try it by hand: ssh -J {route.via.address if route.via else '?'} {route.address}",
        ) from error


def _negotiate(name: str, route: Route, transport: paramiko.Transport, limits: Limits) -> None:
    options = transport.get_security_options()
    wanted = [kind for kind in ssh_known.preferred(route) if kind in options.key_types]
    options.key_types = [*wanted, *(kind for kind in options.key_types if kind not in wanted)]
    try:
        transport.start_client(timeout=limits.negotiation_timeout_s)
        key = transport.get_remote_server_key()
    except IncompatiblePeer as error:
        raise InputError(
            f"{name}: {route.shown}: its sshd and paramiko share no algorithm: {error}",
            fix=f"update openssh-server on {name}, or allow a current algorithm in its sshd_config",
        ) from error
    except (SSHException, EOFError, OSError) as error:
        raise _no_ssh(name, route, error, limits) from error
    ssh_known.check(name, key.get_name(), key.asbytes(), route=route)


def _no_tcp(name: str, route: Route, error: OSError, limits: Limits) -> LlmDeployError:
    place = f"{name}: {route.shown}"
    if isinstance(error, socket.gaierror):
        return InputError(
            f"{place}: the name {route.address} cannot be resolved: {error.strerror}",
            fix="correct `address` in cluster.yaml, or give it a HostName in ~/.ssh/config",
        )
    if isinstance(error, TimeoutError):
        return Unreachable(
            f"{place}: no answer in {limits.connect_timeout_s:g} s: it is off, its link is cut, "
            "or a firewall drops the packets",
            fix=f"ping {route.address}; see the host's power and link, and the firewall's rule for "
            f"TCP port {route.port}",
        )
    if error.errno == errno.ECONNREFUSED:
        return Unreachable(
            f"{place}: the host is there, but nothing listens on TCP port {route.port}",
            fix=f"start sshd there (systemctl start ssh), or correct the port of {name}",
        )
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return Unreachable(
            f"{place}: no route: {error.strerror}",
            fix=f"ip route get {route.address}; see that the host is on and in that network",
        )
    return Unreachable(
        f"{place}: {error.strerror or error}", fix=f"try it by hand: ssh {route.address} true"
    )


def _no_ssh(name: str, route: Route, error: Exception, limits: Limits) -> Unreachable:
    if "banner" in str(error).lower():
        return Unreachable(
            f"{name}: {route.shown}: accepts TCP but sent no SSH banner in "
            f"{limits.banner_timeout_s:g} s: the host is frozen or overloaded, or port "
            f"{route.port} is not SSH's",
            fix=f"look at {name} on its console; ssh -v {route.address} shows what the port says",
        )
    return Unreachable(
        f"{name}: {route.shown}: the SSH negotiation did not end in "
        f"{limits.negotiation_timeout_s:g} s: {error or 'the peer closed the connection'}",
        fix=f"see sshd's log there (journalctl -u ssh), and by hand: ssh -v {route.address} true",
    )
