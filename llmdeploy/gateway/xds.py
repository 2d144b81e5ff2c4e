"""Building blocks of Envoy's files: typed messages, and resource files with their version."""

import hashlib
import json
from collections.abc import Sequence

Tree = dict[str, object]
"""A JSON object as Envoy's protobuf messages are written."""


def typed(message: str, **fields: object) -> Tree:
    """An `Any` message: `message` is its name below `envoy.`."""
    return {"@type": f"type.googleapis.com/envoy.{message}", **fields}


def extension(name: str, message: str, **fields: object) -> Tree:
    """A named extension and its configuration."""
    return {"name": name, "typed_config": typed(message, **fields)}


def file_source(path: str) -> Tree:
    """Where Envoy reads resources from; it looks again when a file is renamed to `path`."""
    return {"path_config_source": {"path": path}, "resource_api_version": "V3"}


def resource_file(resources: Sequence[Tree]) -> str:
    """Text of a resource file; its version is the digest of what is in it, so that Envoy's
    answer "I run version X" can be compared with the file."""
    digest = hashlib.sha256(json.dumps(list(resources), sort_keys=True).encode()).hexdigest()
    return _text({"version_info": digest[:16], "resources": list(resources)})


def version(text: str) -> str | None:
    """The version written in a resource file; None where the text is no resource file."""
    try:
        found = json.loads(text)["version_info"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _text(tree: Tree) -> str:
    return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"
