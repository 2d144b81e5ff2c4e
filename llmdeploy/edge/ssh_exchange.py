"""One command over one channel: feeds its input, gathers both outputs, ends at a deadline."""

import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import paramiko
from paramiko.ssh_exception import SSHException

CHUNK_BYTES = 1 << 16
_LOOK_S = 0.5
"""Longest wait before looking at the deadline and the peer again."""


@dataclass(slots=True, kw_only=True)
class Heard:
    """What has come until now."""

    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)


class Lost(Exception):
    """The connection ended while the command ran."""


class Expired(Exception):
    """The deadline passed before the command ended."""


def exchange(
    channel: paramiko.Channel,
    command: str,
    stdin: bytes,
    *,
    heard: Heard,
    deadline_s: float,
    alive: Callable[[], bool],
) -> int | None:
    """The command's exit code, None where a signal ended it; its outputs are added to `heard`.

    Lost when the connection ends, or `alive` says that its peer has; Expired past `deadline_s`
    (monotonic clock). stdin is closed once it is sent.
    """
    _start(channel, command, deadline_s)
    channel.settimeout(_LOOK_S)
    ready = select.poll()
    ready.register(channel.fileno(), select.POLLIN)
    sent, closed_stdin = 0, False
    while True:
        was_closed = channel.closed  # before draining: what came until then is in the buffers
        moved = _drain(channel, heard)
        if not (closed_stdin or was_closed) and channel.send_ready():
            sent, closed_stdin = _feed(channel, stdin, sent)
            moved = True
        if was_closed and not moved:
            return _code(channel)
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise Expired
        if not alive():
            raise Lost("its sshd answers no more")
        if not moved:
            # a full window is no event: while input waits, look at it often
            wait_s = min(left_s, _LOOK_S if closed_stdin else 0.02)
            ready.poll(wait_s * 1000)


def _start(channel: paramiko.Channel, command: str, deadline_s: float) -> None:
    """paramiko waits for the answer to `exec` without any limit: closing the channel ends it."""
    limit = threading.Timer(max(0.1, deadline_s - time.monotonic()), channel.close)
    limit.daemon = True
    limit.start()
    try:
        channel.exec_command(command)
    except (SSHException, EOFError, OSError) as error:
        if time.monotonic() >= deadline_s:
            raise Expired from error
        raise Lost(str(error) or "it closed the connection") from error
    finally:
        limit.cancel()


def _drain(channel: paramiko.Channel, heard: Heard) -> bool:
    moved = False
    while channel.recv_ready():
        heard.stdout += channel.recv(CHUNK_BYTES)
        moved = True
    while channel.recv_stderr_ready():
        heard.stderr += channel.recv_stderr(CHUNK_BYTES)
        moved = True
    return moved


def _feed(channel: paramiko.Channel, stdin: bytes, sent: int) -> tuple[int, bool]:
    """How much of the input is sent now, and whether it is closed; a command that ended reads
    no more, which is no error."""
    try:
        if sent < len(stdin):
            sent += channel.send(stdin[sent : sent + CHUNK_BYTES])
        if sent >= len(stdin):
            channel.shutdown_write()
            return sent, True
    except TimeoutError:
        return sent, False
    except (OSError, EOFError, SSHException):
        return sent, True
    return sent, False


def _code(channel: paramiko.Channel) -> int | None:
    transport = channel.get_transport()
    if channel.exit_status < 0 and not transport.is_active():
        error = transport.get_exception()
        raise Lost(str(error or "") or "the connection ended")
    return channel.exit_status if channel.exit_status >= 0 else None
