"""Takes a model's files from the host before and passes them on while they still come.

A file is known by its SHA-256. What lies in the store under it is not copied again; what came in
part goes on where it stopped; nothing gets its name before its content was checked. The port is
open for this transfer alone, for those that know its token, and closes with it.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llmdeploy.onhost import wire

CHUNK_BYTES = 2**20
IDLE_S = 60.0
"""Without a byte or a guest for so long, whoever ordered the transfer is gone.

Source: own choice: longer than a link takes to heal in the lab."""
LEAST_BYTES = 2**18
"""What comes is taken in pieces of at least so many bytes, so that not each packet of a slow link
wakes the program. Source: own choice; its gain was not measured by itself."""
LOOK_S = 0.05
"""Between two looks for new bytes to pass on. Source: own choice."""
STATE_S = 0.5
"""Between two writes of the state that the controller reads. Source: own choice."""


@dataclass(frozen=True)
class File:
    """One file of the model."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Spec:
    """One host's part in the transfer."""

    owner: str
    """The service whose launch ordered this: its state's folder."""
    objects: str
    """Folder of the store where content lies under its hash."""
    folder: str
    """The model's, made of links into it."""
    manifest: str
    files: tuple[File, ...]
    token: str
    address: str
    """Where the next host reaches this one."""
    guests: int
    """How many hosts take from this one."""
    source: tuple[str, int] | None
    """The host before; None: the files are written here by whoever ordered the transfer."""
    state: str
    bytes_per_s: float | None
    """Most that this host sends a second."""


class Failed(Exception):
    """The transfer cannot go on here."""


class Damaged(Failed):
    """What came is not what was promised."""


class Store:
    """Content by its hash, whole or in part."""

    def __init__(self, spec: Spec) -> None:
        self._objects = pathlib.Path(spec.objects)
        self._objects.mkdir(parents=True, exist_ok=True)
        self.copied_bytes = 0
        for file in spec.files:
            whole = self.whole(file)
            if whole.exists() and whole.stat().st_size != file.size_bytes:
                whole.unlink()  # cut short after it had come

    def whole(self, file: File) -> pathlib.Path:
        return self._objects / file.sha256

    def part(self, file: File) -> pathlib.Path:
        return self._objects / f"{file.sha256}.part"

    def size_bytes(self, file: File) -> int:
        """What there is of the file."""
        if self.whole(file).exists():
            return file.size_bytes
        try:
            return self.part(file).stat().st_size
        except OSError:
            return 0

    def finish(self, file: File, seen: "Seen") -> None:
        """The part gets its name; Damaged, and removed, where its content is another."""
        part = self.part(file)
        part.touch()
        seen.read(part)
        with part.open("rb") as content:
            os.fsync(content.fileno())
        found = seen.digest.hexdigest()
        if found != file.sha256:
            part.unlink()
            raise Damaged(f"{file.name}: came with sha256 {found[:12]}, needed {file.sha256[:12]}")
        part.rename(self.whole(file))

    def open(self, file: File) -> Any:
        """The content, whole or in part, for reading."""
        try:
            return self.part(file).open("rb")
        except OSError:
            return self.whole(file).open("rb")


class Seen:
    """The hash of a part as far as it is there: reckoned while more comes, not after it."""

    def __init__(self) -> None:
        self.digest, self._bytes = hashlib.sha256(), 0

    def read(self, part: pathlib.Path) -> None:
        """What is there by now."""
        with part.open("rb") as content:
            content.seek(self._bytes)
            while block := content.read(CHUNK_BYTES):
                self.digest.update(block)
                self._bytes += len(block)


class State:
    """What launch reads of this host's part."""

    def __init__(self, spec: Spec) -> None:
        self._path = pathlib.Path(spec.state)
        self._fields: dict[str, Any] = {}

    def set(self, **fields: Any) -> None:
        self._fields |= fields
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(self._fields))
        draft.rename(self._path)


class Guests:
    """The hosts that take from this one."""

    def __init__(self, spec: Spec, store: Store) -> None:
        self._spec, self._store = spec, store
        self._server = wire.listen(spec.address, 0) if spec.guests else None
        self.done = 0
        self.moved_s = time.monotonic()
        if self._server:
            threading.Thread(target=self._welcome, daemon=True).start()

    @property
    def port(self) -> int | None:
        return self._server.getsockname()[1] if self._server else None

    def close(self) -> None:
        if self._server:
            self._server.close()

    def _welcome(self) -> None:
        assert self._server is not None, "started with one"
        while True:
            try:
                plug, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plug,), daemon=True).start()

    def _serve(self, plug: socket.socket) -> None:
        files = {file.sha256: file for file in self._spec.files}
        try:
            line, _ = wire.admit(plug, self._spec.token)
            while True:
                asked = line.receive(IDLE_S)
                if asked is None or asked.get("done"):
                    self.done += bool(asked)
                    break
                for block in self._blocks(files[asked["get"]], int(asked["offset"])):
                    line.plug.settimeout(IDLE_S)
                    line.plug.sendall(block)
                    self.moved_s = time.monotonic()
        except (OSError, wire.Gone, KeyError):
            pass
        finally:
            plug.close()

    def _blocks(self, file: File, offset: int) -> Iterator[bytes]:
        """The file from there on, as it comes; at most so many bytes a second."""
        begun_s, sent = time.monotonic(), 0
        with self._opened(file) as content:
            content.seek(offset)
            while offset < file.size_bytes:
                block = content.read(min(CHUNK_BYTES, file.size_bytes - offset))
                if not block:
                    time.sleep(LOOK_S)
                    continue
                offset += len(block)
                sent += len(block)
                yield block
                if self._spec.bytes_per_s:
                    ahead_s = sent / self._spec.bytes_per_s - (time.monotonic() - begun_s)
                    time.sleep(max(0.0, ahead_s))

    def _opened(self, file: File) -> Any:
        while True:
            try:
                return self._store.open(file)
            except OSError:
                time.sleep(LOOK_S)


def main(path: str) -> int:
    """Does this host's part: 0 when its files are whole and every guest has them too."""
    text = pathlib.Path(path).read_text()
    os.unlink(path)  # the token is in it
    spec = load(text)
    state = State(spec)
    try:
        _pass(spec, state)
    except (Failed, wire.Gone, OSError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full:
            _make_room(spec)
        state.set(error=str(error), full=full, damaged=isinstance(error, Damaged))
        return 1
    state.set(done=True)
    return 0


def _make_room(spec: Spec) -> None:
    """Room on a full disk for this host's last words: the end of what came, to be copied again.

    Where another machine appends to the parts it sees the full disk itself.
    """
    if spec.source is None:
        return
    for file in spec.files:
        with contextlib.suppress(OSError):
            part = pathlib.Path(spec.objects, f"{file.sha256}.part")
            os.truncate(part, max(0, part.stat().st_size - CHUNK_BYTES))


def load(text: str) -> Spec:
    """The spec in a JSON text."""
    fields = json.loads(text)
    fields["files"] = tuple(File(**file) for file in fields["files"])
    fields["source"] = tuple(fields["source"]) if fields["source"] else None
    return Spec(**fields)


def _pass(spec: Spec, state: State) -> None:
    store = Store(spec)
    had = {file.sha256: store.size_bytes(file) for file in spec.files}
    guests = Guests(spec, store)
    state.set(
        pid=os.getpid(),
        owner=spec.owner,
        port=guests.port,
        there_bytes=sum(had.values()),
        copied_bytes=0,
        whole=False,
    )
    try:
        missing = [file for file in spec.files if not store.whole(file).exists()]
        if missing and spec.source is not None:
            _take(spec, store, missing, state)
        else:
            for file in missing:
                _await(store, file, state, had_bytes=had[file.sha256])
        _link(spec, store)
        state.set(whole=True)
        while guests.done < spec.guests:
            if time.monotonic() - guests.moved_s > IDLE_S:
                raise Failed(f"{spec.guests - guests.done} hosts no longer take from this one")
            time.sleep(LOOK_S)
    finally:
        guests.close()


def _take(spec: Spec, store: Store, missing: list[File], state: State) -> None:
    """The missing files from the host before."""
    assert spec.source is not None, "asked before"
    line = wire.join(spec.source[0], spec.source[1], spec.token)
    line.plug.settimeout(IDLE_S)
    told_s = 0.0
    for file in missing:
        offset, seen = store.size_bytes(file), Seen()
        line.send(get=file.sha256, offset=offset)
        with store.part(file).open("ab") as part:
            while offset < file.size_bytes:
                left_bytes = file.size_bytes - offset
                least_bytes = min(LEAST_BYTES, left_bytes)
                line.plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least_bytes)
                block = line.plug.recv(min(CHUNK_BYTES, left_bytes))
                if not block:
                    raise Failed(f"{file.name}: the host before broke off at byte {offset}")
                part.write(block)
                part.flush()
                offset += len(block)
                store.copied_bytes += len(block)
                if time.monotonic() - told_s > STATE_S:
                    told_s = time.monotonic()
                    state.set(copied_bytes=store.copied_bytes)
                    seen.read(store.part(file))
        store.finish(file, seen)
    line.send(done=True)
    line.close()
    state.set(copied_bytes=store.copied_bytes)


def _await(store: Store, file: File, state: State, *, had_bytes: int) -> None:
    """The file, once it was written here whole."""
    size, moved_s, told_s, seen = store.size_bytes(file), time.monotonic(), 0.0, Seen()
    while size < file.size_bytes:
        time.sleep(LOOK_S)
        now = store.size_bytes(file)
        if now != size:
            size, moved_s = now, time.monotonic()
            if moved_s - told_s > STATE_S:
                told_s = moved_s
                state.set(copied_bytes=store.copied_bytes + size - had_bytes)
                seen.read(store.part(file))
        elif time.monotonic() - moved_s > IDLE_S:
            raise Failed(f"{file.name}: stopped coming at byte {size}")
    store.finish(file, seen)
    store.copied_bytes += file.size_bytes - had_bytes
    state.set(copied_bytes=store.copied_bytes)


def _link(spec: Spec, store: Store) -> None:
    """The model's folder: links to its content, and last its manifest."""
    folder = pathlib.Path(spec.folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file in spec.files:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or not target.samefile(store.whole(file)):
            target.unlink(missing_ok=True)
            os.link(store.whole(file), target)
    draft = folder / ".manifest.json"
    draft.write_text(spec.manifest)
    draft.rename(folder / "manifest.json")
