"""Where the files of a service lie on its gateway host."""

import hashlib
from dataclasses import dataclass

_SOCKET_PATH_BYTES = 95
"""A unix socket's path has at most 107 bytes, and supervisord first binds `<path>.<pid>`.

Source: unix(7), sun_path; supervisor 4.3, supervisor/http.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLayout:
    """Paths under one service's state directory; `root` is absolute (no `~`)."""

    root: str

    @property
    def journal(self) -> str:
        return f"{self.root}/journal.jsonl"

    @property
    def lock(self) -> str:
        return f"{self.root}/lock.json"

    @property
    def verify_lock(self) -> str:
        """Who verifies a release of the service: a second `verify` beside it is refused."""
        return f"{self.root}/verify_lock.json"

    @property
    def gateway(self) -> str:
        """Envoy's files, the gateway's state, access log and sockets."""
        return f"{self.root}/gateway"

    @property
    def access_log(self) -> str:
        return f"{self.gateway}/access.jsonl"

    @property
    def admin_socket(self) -> str:
        """Envoy's admin interface, mode 0600."""
        return f"{self.short_folder or self.gateway}/admin.sock"

    @property
    def dark_socket(self) -> str:
        """Listener (mode 0600) where `x-llmdeploy-release` picks the release: probes go here."""
        return f"{self.short_folder or self.gateway}/dark.sock"

    @property
    def keys(self) -> str:
        """Signing key (0600) and the list of issued keys, never the keys themselves."""
        return f"{self.root}/keys"

    @property
    def supervisor(self) -> str:
        """supervisord's configuration, socket, pid and log, where there is no systemd."""
        return f"{self.root}/supervisor"

    @property
    def supervisor_socket(self) -> str:
        """Where supervisord is asked and told, mode 0700."""
        return f"{self.short_folder or self.supervisor}/s.sock"

    @property
    def short_folder(self) -> str | None:
        """Folder of the sockets where the state lies too deep for their paths, else None."""
        if len(f"{self.supervisor}/s.sock".encode()) <= _SOCKET_PATH_BYTES:
            return None
        return f"/tmp/llmdeploy-{hashlib.sha256(self.root.encode()).hexdigest()[:16]}"

    def release(self, release_id: str) -> str:
        """The staged plan of a release: immutable."""
        return f"{self.root}/releases/{release_id}"

    def run(self, release_id: str) -> str:
        """What a release writes while it runs: logs, evidence, decision records."""
        return f"{self.root}/runs/{release_id}"

    def engine_log(self, release_id: str, replica: str) -> str:
        return f"{self.run(release_id)}/{replica}.log"
