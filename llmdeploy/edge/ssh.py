"""A host reached by SSH: the same interface as the local one, over one kept connection."""

import contextlib
import copy
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import paramiko
from paramiko.ssh_exception import ChannelException, SSHException

from llmdeploy.edge import Completed, ssh_script
from llmdeploy.edge.ssh_config import Target
from llmdeploy.edge.ssh_exchange import Expired, Heard, Lost, exchange
from llmdeploy.edge.ssh_pool import Connections
from llmdeploy.edge.ssh_pulse import Pulse, answers
from llmdeploy.errors import InputError, Unreachable

FILE_TIMEOUT_S = 120.0
"""For one file action; a file goes whole through memory, so none is large."""
KILL_TIMEOUT_S = 4.0


class SshShell:
    """Implements Shell for one host of the inventory."""

    def __init__(self, target: Target, connections: Connections) -> None:
        self._name = target.name
        self._connections = connections
        self._route = connections.route(target)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        given = ssh_script.environment(env) + stdin.encode()
        line = ssh_script.command(argv, env=env)
        words = f"`{' '.join(argv[:4])}`"
        code, stdout, stderr = self._ask(line, given, timeout_s=timeout_s, words=words)
        if code == 127 and stderr.strip() == b"@llmdeploy missing":
            raise Unreachable(
                f"{self._name}: {argv[0]} cannot be started: there is no such program",
                fix=f"install {argv[0]} on {self._name}, or correct its path",
            )
        text = stderr.decode(errors="replace")
        if argv[0].rpartition("/")[2] == "sudo" and code == 1 and _asks(text):
            raise InputError(
                f"{self._name}: {words} asks for a password, and nobody is there to type it",
                fix=f"allow it without one in /etc/sudoers.d on {self._name} "
                f"(USER ALL=(root) NOPASSWD: {' '.join(argv[1:2])}), or reach the host as root",
            )
        output = stdout.decode(errors="replace")
        return Completed(argv=tuple(argv), exit_code=code, stdout=output, stderr=text)

    def read(self, path: str) -> bytes | None:
        code, content = self._on_file(ssh_script.READ, path, may=(ssh_script.NOT_THERE,))
        return None if code else content

    def read_from(self, path: str, *, offset_bytes: int, limit_bytes: int | None = None) -> bytes:
        limit = "" if limit_bytes is None else str(limit_bytes)
        first = str(offset_bytes + 1)
        script, absent = ssh_script.READ_FROM, (ssh_script.NOT_THERE,)
        return self._on_file(script, path, first, limit, may=absent)[1]

    def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        self._put(ssh_script.WRITE, path, content, mode=mode)

    def create(self, path: str, content: bytes, *, mode: int = 0o644) -> bool:
        code = self._put(ssh_script.CREATE, path, content, mode=mode, may=(ssh_script.EXISTS,))
        return code == 0

    def append(self, path: str, content: bytes) -> None:
        """Over a connection of its own: models come this way, and behind their bytes other commands
        would wait so long that a busy host counts as lost."""
        self._apart()._put(ssh_script.APPEND, path, content, mode=0o600)

    def remove(self, path: str) -> None:
        self._on_file(ssh_script.REMOVE, path)

    def entries(self, path: str) -> tuple[str, ...]:
        listed = self._on_file(ssh_script.ENTRIES, path)[1]
        return tuple(sorted(listed.decode(errors="surrogateescape").splitlines()))

    def _apart(self) -> Self:
        other = copy.copy(self)
        other._route = dataclasses.replace(self._route, bulk=True)
        return other

    def _put(
        self, script: str, path: str, content: bytes, *, mode: int, may: tuple[int, ...] = ()
    ) -> int:
        arguments = (path, str(len(content)), f"{mode:o}")
        return self._on_file(script, *arguments, stdin=content, may=may)[0]

    def _on_file(
        self, script: str, *arguments: str, stdin: bytes = b"", may: tuple[int, ...] = ()
    ) -> tuple[int, bytes]:
        path = arguments[0]
        code, stdout, stderr = self._ask(
            ssh_script.on_file(script, *arguments),
            stdin,
            timeout_s=FILE_TIMEOUT_S,
            words=f"the access to {path}",
        )
        if code in (0, *may):
            return code, stdout
        said = stderr.decode(errors="replace").strip().splitlines()
        cut = "its content did not arrive whole" if code == ssh_script.CUT_SHORT else ""
        raise InputError(
            f"{self._name}: {path}: {cut or (said[-1] if said else f'exit code {code}')}",
            fix=f"check that {path} exists on {self._name}, is writable by this user and that its "
            "disk has room",
        )

    def _ask(
        self, line: str, stdin: bytes, *, timeout_s: float, words: str
    ) -> tuple[int, bytes, bytes]:
        """Exit code and both outputs. A connection that must be opened first has deadlines of its
        own and takes from this one."""
        heard = Heard()
        deadline_s = time.monotonic() + timeout_s
        with self._session() as (transport, channel):
            try:
                code = self._run(transport, channel, line, stdin, heard, deadline_s)
            except Lost as lost:
                raise self._lost(words, lost) from lost
            except Expired as expired:
                group = ssh_script.said(bytes(heard.stderr)).group
                did = "begin" if group is None else "end"
                what = f"{self._name}: {words} did not {did} in {timeout_s:g} s"
                raise self._expired(transport, group, what) from expired
            except BaseException:  # Ctrl-C included: nothing may be left running
                self._kill(transport, ssh_script.said(bytes(heard.stderr)).group)
                raise
            finally:
                channel.close()
        return self._told(code, heard, words)

    def _run(
        self,
        transport: paramiko.Transport,
        channel: paramiko.Channel,
        line: str,
        stdin: bytes,
        heard: Heard,
        deadline_s: float,
    ) -> int | None:
        if self._route.via is None:  # the kernel watches the link itself
            return exchange(
                channel, line, stdin, heard=heard, deadline_s=deadline_s, alive=lambda: True
            )
        with Pulse(transport, silence_s=self._connections.limits.silence_s) as pulse:
            return exchange(
                channel, line, stdin, heard=heard, deadline_s=deadline_s, alive=pulse.alive
            )

    @contextlib.contextmanager
    def _session(self) -> Iterator[tuple[paramiko.Transport, paramiko.Channel]]:
        """A channel to run one thing on. A connection that ended since its last use is opened
        anew, which is safe: nothing was sent on it."""
        with self._connections.use(self._name, self._route) as transport:
            channel = self._channel(transport)
            if channel:
                yield transport, channel
                return
        with self._connections.use(self._name, self._route) as transport:
            channel = self._channel(transport)
            if channel is None:
                raise Unreachable(
                    f"{self._name}: {self._route.shown}: sshd closed two connections in a row "
                    "before a session began",
                    fix=f"see sshd's log on {self._name}: journalctl -u ssh",
                )
            yield transport, channel

    def _channel(self, transport: paramiko.Transport) -> paramiko.Channel | None:
        """A new channel; None where the connection had ended."""
        limit_s = self._connections.limits.channel_timeout_s
        try:
            return transport.open_session(timeout=limit_s)
        except ChannelException as error:
            raise Unreachable(
                f"{self._name}: {self._route.shown}: sshd opens no more sessions: {error.text}",
                fix=f"raise MaxSessions in {self._name}'s sshd_config, or ask again",
            ) from error
        except (SSHException, EOFError, OSError) as error:
            silent = transport.is_active()
            self._connections.drop(self._route)
            if not silent:
                return None
            raise Unreachable(
                f"{self._name}: {self._route.shown}: sshd opened no session in {limit_s:g} s: "
                "the host is frozen or its link was cut",
                fix=f"look at {self._name} on its console, then ask again",
            ) from error

    def _lost(self, words: str, lost: Lost) -> Unreachable:
        self._connections.drop(self._route)
        return Unreachable(
            f"{self._name}: {self._route.shown}: the connection was lost during {words}: {lost}; "
            "the command may still run there",
            fix=f"see the link and the power of {self._name}, then ask again",
        )

    def _expired(self, transport: paramiko.Transport, group: int | None, what: str) -> Unreachable:
        if not answers(transport, timeout_s=KILL_TIMEOUT_S):
            self._connections.drop(self._route)
            return Unreachable(
                f"{what} and sshd there answers no more: the host is frozen; the command may "
                "still be there when it wakes up",
                fix=f"look at {self._name} on its console: load, memory, disk; or restart it",
            )
        if group is None:
            self._connections.drop(self._route)
            return Unreachable(
                f"{what}: the login there is slow, its shell did not come to it",
                fix=f"time it: ssh {self._route.user}@{self._route.address} true; see the start "
                f"files of that shell, home folders on a network, and the load of {self._name}",
            )
        if not self._kill(transport, group):
            self._connections.drop(self._route)
            return Unreachable(
                f"{what} and could not be killed",
                fix=f"end it by hand on {self._name}: see `ps -ef`",
            )
        return Unreachable(
            f"{what} and was killed", fix=f"run it by hand on {self._name} to see where it hangs"
        )

    def _kill(self, transport: paramiko.Transport, group: int | None) -> bool:
        """Whether the command and its children were told to end."""
        if group is None:
            return False
        try:
            channel = transport.open_session(timeout=KILL_TIMEOUT_S)
            limit_s = time.monotonic() + KILL_TIMEOUT_S
            code = exchange(
                channel,
                ssh_script.kill(group),
                b"",
                heard=Heard(),
                deadline_s=limit_s,
                alive=lambda: True,
            )
        except (Lost, Expired, SSHException, EOFError, OSError):
            return False
        channel.close()
        return code == 0

    def _told(self, code: int | None, heard: Heard, words: str) -> tuple[int, bytes, bytes]:
        stdout, stderr = (ssh_script.said(bytes(o)) for o in (heard.stdout, heard.stderr))
        if stderr.group is None:
            noise = (stderr.noise or heard.stdout).decode(errors="replace").strip()[:200]
            raise Unreachable(
                f"{self._name}: {self._route.shown}: the login runs no command: it said "
                f"{noise or 'nothing'!r}, needed a POSIX shell",
                fix=f"give the user another login shell there (chsh -s /bin/sh {self._route.user})",
            )
        if code is None:
            raise Unreachable(
                f"{self._name}: {words} was killed there by a signal",
                fix=f"see the kernel's log on {self._name} for a lack of memory: dmesg",
            )
        return code, stdout.text, stderr.text


def _asks(stderr: str) -> bool:
    return any(
        words in stderr
        for words in ("a password is required", "a terminal is required", "no askpass program")
    )
