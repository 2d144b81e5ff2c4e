"""Run by the host's Python: seals a model's files, opens them, or checks that they open.

Arguments: `seal`, `open` or `check`, the folder to read, the folder to write (or -), then names
without `.sealed`; the key comes on stdin as 64 hex digits and is never in an argument or a
variable. Prints one JSON line a file: name, size and SHA-256 of what was written (`check`: of what
would be). Needs only the package `cryptography`.

A sealed file is MAGIC, a random salt, then pieces of 1 MiB, each with its own tag; a piece's nonce
is its number and whether it is the last, so that none can be moved, doubled or cut off.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from typing import IO

MAGIC, SALT_BYTES, PIECE_BYTES, TAG_BYTES = b"LDSEAL01", 16, 2**20, 16


def main(mode: str, source: str, target: str, names: list[str], key: bytes) -> None:
    """Does all files of the list."""
    for name in names:
        path = os.path.join(source, name if mode == "seal" else f"{name}.sealed")
        with open(path, "rb") as reading:
            pieces = _sealed(reading, name, key) if mode == "seal" else _opened(reading, name, key)
            written = _write(pieces, _target(mode, target, name))
        sys.stdout.write(json.dumps({"name": name, **written}) + "\n")


def _target(mode: str, target: str, name: str) -> str:
    if mode == "check":
        return os.devnull
    return os.path.join(target, f"{name}.sealed" if mode == "seal" else name)


def _write(pieces: Iterator[bytes], path: str) -> dict[str, object]:
    digest, size = hashlib.sha256(), 0
    with open(path, "wb") as writing:
        for piece in pieces:
            writing.write(piece)
            digest.update(piece)
            size += len(piece)
        writing.flush()
        if path != os.devnull:
            os.fsync(writing.fileno())
    return {"size": size, "sha256": digest.hexdigest()}


def _sealed(reading: IO[bytes], name: str, key: bytes) -> Iterator[bytes]:
    salt = os.urandom(SALT_BYTES)
    cipher = _cipher(key, salt)
    yield MAGIC + salt
    for number, piece, last in _pieces(reading, PIECE_BYTES):
        yield cipher.encrypt(_nonce(number, last=last), piece, name.encode())


def _opened(reading: IO[bytes], name: str, key: bytes) -> Iterator[bytes]:
    start = reading.read(len(MAGIC) + SALT_BYTES)
    if start[: len(MAGIC)] != MAGIC or len(start) < len(MAGIC) + SALT_BYTES:
        raise ValueError(f"{name}: no sealed file, or cut off")
    cipher = _cipher(key, start[len(MAGIC) :])
    for number, piece, last in _pieces(reading, PIECE_BYTES + TAG_BYTES):
        yield cipher.decrypt(_nonce(number, last=last), piece, name.encode())


def _pieces(reading: IO[bytes], size: int) -> Iterator[tuple[int, bytes, bool]]:
    """Pieces with their number and whether they are the last; an empty file is one empty piece."""
    number, piece = 0, reading.read(size)
    while True:
        following = reading.read(size)
        yield number, piece, not following
        if not following:
            return
        number, piece = number + 1, following


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


def _cipher(key: bytes, salt: bytes):  # type: ignore[no-untyped-def]  # its package is the host's
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    own = HKDF(algorithm=SHA256(), length=32, salt=salt, info=b"llmdeploy model file")
    return AESGCM(own.derive(key))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:], bytes.fromhex(sys.stdin.read()))
    except ImportError as missing:
        sys.stderr.write(f"missing: {missing}\n")
        sys.exit(9)
    except Exception as error:  # noqa: BLE001  # its caller shows this line
        said = str(error) or "it does not open with this key, or was changed"
        sys.stderr.write(f"{type(error).__name__}: {said}\n")
        sys.exit(3)
