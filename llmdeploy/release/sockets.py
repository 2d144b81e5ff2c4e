"""The folder of a service's unix sockets, where its state lies too deep for their paths."""

from llmdeploy.edge import Shell
from llmdeploy.errors import Refused
from llmdeploy.release.layout import ServiceLayout

_MAKE = 'mkdir -m 700 "$1" 2>/dev/null; [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]'
"""Anyone may write to /tmp: the folder must be a real one and this user's."""


def make_folder(layout: ServiceLayout, *, shell: Shell) -> None:
    """The folder is there and this user's; Refused where another one has the name."""
    folder = layout.short_folder
    if folder is None:
        return
    done = shell.run(("sh", "-c", _MAKE, "sh", folder), timeout_s=20)
    if done.exit_code != 0:
        raise Refused(
            f"{folder}: found another user's, or no folder, needed one of this user for sockets",
            fix=f"remove {folder}, or choose a shorter state_root in cluster.yaml",
        )


def remove_folder(layout: ServiceLayout, *, shell: Shell) -> None:
    """Nothing of the folder is left."""
    if layout.short_folder is not None:
        shell.remove(layout.short_folder)
