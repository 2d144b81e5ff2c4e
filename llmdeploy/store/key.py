"""The key of sealed models, from where the user's secrets are: a variable, a file or a command."""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field

from llmdeploy.edge import Shell
from llmdeploy.errors import InputError, Refused

KEY_BYTES = 32
_MAKE = (
    "make one: (umask 077; head -c 32 /dev/urandom | base64 > model.key), then --key file:model.key"
)
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key that no message shows."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Tells keys apart without telling the key: half of a hash of it."""
        return hashlib.sha256(b"llmdeploy key id" + self.secret).hexdigest()[:32]


def read_key(source: str, *, shell: Shell) -> Key:
    """The key that `env:NAME`, `file:PATH` or `command:WORDS` gives on that host.

    InputError where there is none; Refused where others may read its file.
    """
    kind, _, place = source.partition(":")
    if kind not in ("env", "file", "command") or not place:
        raise InputError(
            f"--key: found {source.split(':')[0]!r}, needed env:NAME, file:PATH or command:WORDS",
            fix=_MAKE,
        )
    text = {"env": _variable, "file": _file, "command": _command}[kind](place, shell)
    return Key(secret=_bytes(text.strip(), source))


def _variable(name: str, shell: Shell) -> str:
    return shell.run(["printenv", name], timeout_s=_TIMEOUT_S).stdout


def _file(path: str, shell: Shell) -> str:
    content = shell.read(path)
    if content is None:
        raise InputError(f"--key: {path}: no such file", fix=_MAKE)
    mode = shell.run(["stat", "-L", "-c", "%a", "--", path], timeout_s=_TIMEOUT_S).stdout.strip()
    if not mode.endswith("00"):
        raise Refused(
            f"--key: {path}: found mode {mode}, needed one that nobody else reads",
            fix=f"chmod 600 {path}",
        )
    return content.decode(errors="replace")


def _command(words: str, shell: Shell) -> str:
    ended = shell.run(["sh", "-c", words], timeout_s=_TIMEOUT_S)
    if ended.exit_code:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(
            f"--key: the command ended with exit code {ended.exit_code}: {last}",
            fix="run it by hand; it must print the key alone",
        )
    return ended.stdout


def _bytes(text: str, source: str) -> bytes:
    """The 32 bytes that 64 hex digits or base64 write."""
    if re.fullmatch(r"[0-9a-fA-F]{64}", text):
        return bytes.fromhex(text)
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) == KEY_BYTES:
        return key
    kind = source.partition(":")[0]
    raise InputError(
        f"--key {kind}: found {len(text)} characters, needed {KEY_BYTES} bytes as 64 hex digits"
        " or base64",
        fix=_MAKE,
    )
