"""Models of a Hugging Face hub: fetched where the store is, and held to the hub's hashes."""

import importlib.resources
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmdeploy.edge import Completed, Shell
from llmdeploy.errors import InputError, Refused, Unreachable
from llmdeploy.store.inspect import TAKEN, hashes

REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}(@[\w./-]{1,96})?")
FETCH_TIMEOUT_S = 48 * 3600.0
"""Longest fetch: 1 TB at 6 MB/s."""
_OFFLINE = ("LocalEntryNotFoundError", "OfflineModeIsEnabled")
_CLOSED = ("GatedRepoError", "401 Client Error", "403 Client Error", "403 Forbidden")
_NOT_THERE = ("RepositoryNotFoundError", "RevisionNotFoundError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A snapshot on the host."""

    commit: str
    folder: str
    sha256: tuple[tuple[str, str], ...]
    """Name and hash of each file whose hash the hub states: the large ones."""
    kept: bool
    """Whether the folder is the hub client's own cache and stays: then files are copied."""


def check_repository(name: str) -> None:
    """InputError for what is no `owner/name` or `owner/name@revision`."""
    if not REPOSITORY.fullmatch(name):
        raise InputError(
            f"--hub: found {name!r}, needed owner/name or owner/name@revision",
            fix="write it as on the hub, like --hub HuggingFaceTB/SmolLM2-135M-Instruct",
        )


def fetch(
    name: str,
    folder: str,
    *,
    known: str | None,
    python: str,
    report: Callable[[str], None],
    shell: Shell,
) -> Fetched | None:
    """The repository's files, in `folder` or in the client's cache where the hub is offline.

    None: the commit is `known`, so that nothing was fetched.

    The endpoint, the token and whether to be offline come from the host's environment (HF_ENDPOINT,
    HF_TOKEN, HF_HUB_OFFLINE); none of them is put into a command line.
    """
    repository, _, revision = name.partition("@")
    report(f"fetching {repository} at {revision or 'main'}")
    program = importlib.resources.files("llmdeploy.store").joinpath("program_fetch.py").read_text()
    argv = [python, "-", repository, revision or "main", folder, known or "-", *TAKEN]
    ended = shell.run(argv, timeout_s=FETCH_TIMEOUT_S, stdin=program)
    if ended.exit_code:
        raise _refused(ended, repository, python=python)
    told = json.loads(ended.stdout.splitlines()[-1])
    if told["folder"] is None:
        return None
    stated = {n: f["sha256"] for n, f in told["files"].items() if f["sha256"]}
    return Fetched(
        commit=told["commit"],
        folder=told["folder"],
        sha256=tuple(sorted(stated.items())),
        kept=told["folder"] != folder,
    )


def check_hashes(fetched: Fetched, names: Sequence[str], *, shell: Shell) -> None:
    """Refused, naming the file and both hashes, where a file is not what the hub states."""
    stated = {name: digest for name, digest in fetched.sha256 if name in names}
    found = hashes(fetched.folder, sorted(stated), shell=shell) if stated else {}
    for name, needed in sorted(stated.items()):
        if found[name] != needed:
            shell.remove(f"{fetched.folder}/{name}")
            raise Refused(
                f"{name}: found sha256 {found[name]}, the hub states {needed}",
                fix="add it again: that file was removed and is fetched anew, the others stay",
            )


def _refused(
    ended: Completed, repository: str, *, python: str
) -> InputError | Refused | Unreachable:
    """What the client said, as the error that fits."""
    said = (ended.stderr.strip().splitlines() or ["no message"])[-1][:400]
    if ended.exit_code == 9:
        fix = f"{python} -m pip install huggingface_hub"
        return InputError(f"{python}: found no huggingface_hub ({said}), needed it", fix=fix)
    if "NoRoom: " in said:
        fix = "free that much, or choose another disk with --store"
        return Refused(f"hub: {repository}: {said.partition('NoRoom: ')[2]}", fix=fix)
    if any(word in said for word in _CLOSED):
        fix = "accept the model's terms on the hub and set HF_TOKEN, or HF_TOKEN_PATH to its file"
        return Refused(f"hub: {repository}: not open to this account: {said}", fix=fix)
    if any(word in said for word in _NOT_THERE):
        return InputError(f"hub: {repository}: {said}", fix="correct the name or the revision")
    if any(word in said for word in _OFFLINE):
        fix = "unset HF_HUB_OFFLINE, set HF_ENDPOINT to a mirror, or bring a folder: --folder DIR"
        return Unreachable(f"hub: {repository} is not in the cache and offline: {said}", fix=fix)
    fix = "see whether the endpoint answers (HF_ENDPOINT); run it again: it goes on where it was"
    return Unreachable(f"hub: {repository}: {said}", fix=fix)
