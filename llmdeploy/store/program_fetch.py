"""Run by the host's Python: fetches a model's files from a Hugging Face hub into a folder.

Arguments: repository, revision, folder, the commit that is there already (or -), then the patterns
of the files that count. Prints one JSON line: the commit, where the files lie (null: that commit is
there already), and each file's size and SHA-256 as the hub states them.
HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE mean what they mean to every hub client. What an
earlier run began goes on where it was.
"""

import fnmatch
import json
import os
import shutil
import sys
from typing import Any


def main(
    repository: str, revision: str, folder: str, known: str, patterns: list[str]
) -> dict[str, Any]:
    """The answer that is printed."""
    from huggingface_hub import HfApi, constants, snapshot_download

    if constants.HF_HUB_OFFLINE:
        there = snapshot_download(repository, revision=revision, allow_patterns=patterns)
        return {"commit": there.rstrip("/").rpartition("/")[2], "folder": there, "files": {}}
    info = HfApi().model_info(repository, revision=revision, files_metadata=True)
    if info.sha == known:
        return {"commit": info.sha, "folder": None, "files": {}}
    files = {
        one.rfilename: {"size": one.size, "sha256": one.lfs.sha256 if one.lfs else None}
        for one in info.siblings or ()
    }
    sizes = {one.rfilename: one.size or 0 for one in info.siblings or ()}
    check_room(folder, sizes, patterns)
    snapshot_download(repository, revision=info.sha, allow_patterns=patterns, local_dir=folder)
    return {"commit": info.sha, "folder": folder, "files": files}


def check_room(folder: str, sizes: dict[str, int], patterns: list[str]) -> None:
    """Raises where the disk has less than what is still to come, before anything is fetched."""
    wanted = [name for name in sizes if any(fnmatch.fnmatch(name, one) for one in patterns)]
    there = [name for name in wanted if os.path.exists(os.path.join(folder, name))]
    needed = sum(sizes[name] for name in wanted) - sum(sizes[name] for name in there)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f"NoRoom: {folder}: {free} bytes free, needed {needed}")


if __name__ == "__main__":
    try:
        answer = main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
    except ImportError as error:
        sys.stderr.write(f"missing: {error}\n")
        sys.exit(9)
    except Exception as error:  # noqa: BLE001  # its caller shows this line
        sys.stderr.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")
        sys.exit(3)
    sys.stdout.write(json.dumps(answer) + "\n")
