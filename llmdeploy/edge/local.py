"""This machine as a host: commands in their own process group, files put in place whole."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence

from llmdeploy.edge import Completed
from llmdeploy.errors import InputError, Unreachable


class LocalShell:
    """Implements Shell for the machine the CLI runs on."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        except OSError as error:
            raise Unreachable(
                f"this host: {argv[0]} cannot be started: {error.strerror or error}",
                fix=f"install {argv[0]} or correct its path",
            ) from error
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            _kill_group(process)
            raise Unreachable(
                f"this host: `{' '.join(argv[:4])}` did not end in {timeout_s:g} s and was killed",
                fix="run it by hand to see where it hangs",
            ) from error
        except BaseException:  # Ctrl-C included: nothing may be left running
            _kill_group(process)
            raise
        return Completed(
            argv=tuple(argv), exit_code=process.returncode, stdout=stdout, stderr=stderr
        )

    def read(self, path: str) -> bytes | None:
        with _mapped(path):
            target = _path(path)
            return target.read_bytes() if target.is_file() else None

    def read_from(self, path: str, *, offset_bytes: int, limit_bytes: int | None = None) -> bytes:
        with _mapped(path):
            target = _path(path)
            if not target.is_file():
                return b""
            with target.open("rb") as file:
                file.seek(offset_bytes)
                return file.read(limit_bytes)

    def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        with _mapped(path):
            target = _path(path)
            draft = _draft(target, content, mode)
            os.replace(draft, target)
            _sync_folder(target.parent)

    def create(self, path: str, content: bytes, *, mode: int = 0o644) -> bool:
        with _mapped(path):
            target = _path(path)
            draft = _draft(target, content, mode)
            try:
                os.link(draft, target)  # fails if it exists: whole content or nothing
            except FileExistsError:
                return False
            finally:
                draft.unlink()
            _sync_folder(target.parent)
            return True

    def append(self, path: str, content: bytes) -> None:
        with _mapped(path):
            target = _path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

    def remove(self, path: str) -> None:
        with _mapped(path):
            target = _path(path)
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            else:
                target.unlink(missing_ok=True)

    def entries(self, path: str) -> tuple[str, ...]:
        with _mapped(path):
            target = _path(path)
            return tuple(sorted(os.listdir(target))) if target.is_dir() else ()


def _path(path: str) -> pathlib.Path:
    return pathlib.Path(path).expanduser()


def _draft(target: pathlib.Path, content: bytes, mode: int) -> pathlib.Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    draft = pathlib.Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft


def _sync_folder(folder: pathlib.Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _mapped(path: str):  # type: ignore[no-untyped-def]  # a generator of nothing
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror or error}",
            fix=f"check that {path} exists, is writable by this user and that its disk has room",
        ) from error


def _kill_group(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
