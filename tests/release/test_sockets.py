"""Where a service's sockets lie, and whose folder they may lie in."""

import pathlib

import pytest

from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import Refused
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.sockets import make_folder, remove_folder
from tests.fakes import FakeShell

SHELL = LocalShell()


def sockets(layout: ServiceLayout) -> tuple[str, ...]:
    return (layout.admin_socket, layout.dark_socket, layout.supervisor_socket)


def test_sockets_lie_beside_what_they_belong_to():
    layout = ServiceLayout(root="/state/chat")
    assert sockets(layout) == (
        "/state/chat/gateway/admin.sock",
        "/state/chat/gateway/dark.sock",
        "/state/chat/supervisor/s.sock",
    )


def test_a_state_too_deep_for_a_socket_has_its_own_short_folder():
    deep, other = (ServiceLayout(root=f"/{'d' * 90}/{name}") for name in ("chat", "code"))
    assert all(len(path) <= 95 for path in sockets(deep))  # 107, less what supervisord appends
    assert deep.short_folder != other.short_folder
    # "/" + 76 + "/" + "chat" and "/supervisor/s.sock" (18) are 100; 71 leave 95
    assert ServiceLayout(root=f"/{'d' * 71}/chat").short_folder is None
    assert ServiceLayout(root=f"/{'d' * 72}/chat").short_folder is not None


def test_the_short_folder_is_this_users_alone_and_goes_again(tmp_path: pathlib.Path):
    layout = ServiceLayout(root=str(tmp_path / ("d" * 90)))
    folder = pathlib.Path(layout.short_folder or "none")
    try:
        make_folder(layout, shell=SHELL)
        make_folder(layout, shell=SHELL)
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        remove_folder(layout, shell=SHELL)
    assert not folder.exists()


def test_a_link_in_its_place_is_refused(tmp_path: pathlib.Path):
    layout = ServiceLayout(root=str(tmp_path / ("d" * 90)))
    folder = pathlib.Path(layout.short_folder or "none")
    folder.symlink_to(tmp_path)
    try:
        with pytest.raises(Refused, match="needed one of this user for sockets"):
            make_folder(layout, shell=SHELL)
    finally:
        folder.unlink()


def test_a_short_state_makes_no_folder():
    shell = FakeShell()
    make_folder(ServiceLayout(root="/s"), shell=shell)
    remove_folder(ServiceLayout(root="/s"), shell=shell)
    assert shell.ran == []
