"""Proves to a host who we are: agent and key files, and says why where none is taken."""

import threading

import paramiko
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import (
    AuthenticationException,
    BadAuthenticationType,
    SSHException,
)

from llmdeploy.edge.ssh_config import Route
from llmdeploy.errors import InputError, Unreachable


class KeyRing:
    """The operator's private keys; each file is read once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[str, paramiko.PKey | str] = {}

    def authenticate(self, name: str, transport: paramiko.Transport, *, route: Route) -> None:
        """The transport is the user's; InputError that says what the host would take instead."""
        refused: list[str] = []
        allowed: tuple[str, ...] | None = None
        agent = paramiko.Agent()
        try:
            for label, key in self._offered(agent, route):
                if isinstance(key, str):
                    refused.append(f"{label} {key}")
                    continue
                allowed = self._try(name, transport, key, route=route)
                if allowed == ():
                    return
                refused.append(f"{label} refused")
                if "publickey" not in (allowed or ("publickey",)):
                    break
            if allowed is None:
                allowed = _allowed(name, transport, route)
                if allowed == ():
                    return
        finally:
            agent.close()
        raise _no_key(name, route, refused=refused, allowed=allowed)

    def _offered(
        self, agent: paramiko.Agent, route: Route
    ) -> list[tuple[str, "paramiko.PKey | str"]]:
        """Keys in ssh's order: the agent's that are also named, the agent's others, the files."""
        in_agent = {key.asbytes(): key for key in agent.get_keys()}
        files = [(path, self._file(path)) for path in route.keys]
        named = {k.asbytes() for _, k in files if isinstance(k, paramiko.PKey)}
        held = [
            ("the agent's key", key)
            for blob, key in in_agent.items()
            if blob in named or not route.only_these_keys
        ]
        held.sort(key=lambda entry: entry[1].asbytes() not in named)
        rest = [
            (path, key)
            for path, key in files
            if isinstance(key, str) or key.asbytes() not in in_agent
        ]
        return [*held, *rest]

    def _file(self, path: str) -> "paramiko.PKey | str":
        """The key in a file, or why it cannot be used; never anything of its content."""
        with self._lock:
            if path not in self._read:
                self._read[path] = _load(path)
            return self._read[path]

    @staticmethod
    def _try(
        name: str, transport: paramiko.Transport, key: paramiko.PKey, *, route: Route
    ) -> tuple[str, ...]:
        """What the host still wants: nothing when it takes the key."""
        try:
            return tuple(transport.auth_publickey(route.user, key))
        except BadAuthenticationType as error:
            return tuple(error.allowed_types)
        except AuthenticationException as error:
            if "timeout" in str(error).lower():
                raise _silent(name, route, transport) from error
            if not transport.is_active():
                raise _closed(name, route) from error
            return ("publickey",)
        except (SSHException, EOFError, OSError) as error:
            raise _closed(name, route) from error


def _allowed(name: str, transport: paramiko.Transport, route: Route) -> tuple[str, ...]:
    """What the host takes from a user without keys; nothing when it asks for nothing."""
    try:
        return tuple(transport.auth_none(route.user))
    except BadAuthenticationType as error:
        return tuple(error.allowed_types)
    except AuthenticationException as error:
        if "timeout" in str(error).lower():
            raise _silent(name, route, transport) from error
        raise _closed(name, route) from error
    except (SSHException, EOFError, OSError) as error:
        raise _closed(name, route) from error


def _load(path: str) -> "paramiko.PKey | str":
    try:
        return paramiko.PKey.from_path(path)
    except TypeError:  # what cryptography says of a passphrase
        return "needs its passphrase"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except (ValueError, UnknownKeyType, SSHException):
        return "is no private key that can be read"


def _no_key(name: str, route: Route, *, refused: list[str], allowed: tuple[str, ...]) -> InputError:
    tried = "; ".join(refused) or "no key in ~/.ssh, none in the agent"
    public = "publickey" in allowed
    locked = [entry.split()[0] for entry in refused if entry.endswith("passphrase")]
    copy = f"ssh-copy-id -p {route.port} {route.user}@{route.address}"
    if not public and {"password", "keyboard-interactive"} & set(allowed):
        return InputError(
            f"{name}: {route.shown}: takes only a password ({', '.join(allowed)}), needed a key",
            fix=f"set `PubkeyAuthentication yes` in its sshd_config and copy a key: {copy}",
        )
    if locked:
        return InputError(
            f"{name}: {route.shown}: took no key: {tried}",
            fix=f"put it into the agent, which asks for the passphrase: ssh-add {locked[0]}",
        )
    return InputError(
        f"{name}: {route.shown}: took no key: {tried} (it takes {', '.join(allowed) or 'nothing'})",
        fix=f"copy a key: {copy}; or correct `user` and `key` in cluster.yaml or ~/.ssh/config",
    )


def _silent(name: str, route: Route, transport: paramiko.Transport) -> Unreachable:
    return Unreachable(
        f"{name}: {route.shown}: no answer to the login in {transport.auth_timeout:g} s: the host "
        "is frozen or too busy",
        fix=f"look at {name} on its console: load, memory, disk; then ask again",
    )


def _closed(name: str, route: Route) -> Unreachable:
    return Unreachable(
        f"{name}: {route.shown}: it closed the connection during the login",
        fix=f"see sshd's log there (journalctl -u ssh): too many keys (set IdentitiesOnly and "
        f"IdentityFile for {route.address}), MaxStartups, AllowUsers or a full disk",
    )
