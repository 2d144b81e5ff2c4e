import json

import pytest

from llmdeploy.errors import InputError, Refused
from llmdeploy.gateway.apply import apply, read_state, state_path, update
from llmdeploy.gateway.change import with_release, with_weights, without_release
from llmdeploy.gateway.render import render
from tests.fakes import FakeClock, FakeShell

from .test_render import LAYOUT, NEW, OLD, gray, release, state


class WritingOrder(FakeShell):
    """A host that remembers the order of writes."""

    def write(self, path, content, *, mode=0o644):
        self.__dict__.setdefault("written", []).append((path.rpartition("/")[2], content, mode))
        super().write(path, content, mode=mode)


def names(shell):
    return [name for name, _, _ in shell.written]


def test_the_state_is_written_first_and_clusters_before_the_routes_that_name_them():
    shell = WritingOrder()
    apply(gray(), layout=LAYOUT, shell=shell)
    order = names(shell)
    assert order[0] == "state.json"
    assert order.index(f"eds-{NEW}.json") < order.index("cds.json") < order.index("rds.json")
    assert order.index("ecds-jwt.json") < order.index("lds.json")
    assert {mode for _, _, mode in shell.written} == {0o600}


def test_only_what_differs_is_written():
    shell = WritingOrder()
    apply(gray(), layout=LAYOUT, shell=shell)
    shell.written.clear()
    apply(with_weights(gray(), {OLD: 0.5, NEW: 0.5}), layout=LAYOUT, shell=shell)
    assert names(shell) == ["state.json", "rds.json"]


def test_a_release_that_goes_leaves_the_routes_before_its_cluster_goes():
    shell = WritingOrder()
    apply(gray(), layout=LAYOUT, shell=shell)
    shell.written.clear()
    back = with_weights(gray(), {OLD: 1.0})
    apply(without_release(back, NEW), layout=LAYOUT, shell=shell)
    assert names(shell) == ["state.json", "cds.json", "rds.json", "rds-dark.json", "cds.json"]
    first, last = (json.loads(c)["resources"] for n, c, _ in shell.written if n == "cds.json")
    assert {c["name"] for c in first} == {OLD, f"{OLD}-first", NEW, f"{NEW}-first"}
    assert {c["name"] for c in last} == {OLD, f"{OLD}-first"}
    assert f"{LAYOUT.gateway}/eds-{NEW}.json" not in shell.files


def test_what_was_applied_is_what_is_read():
    shell = FakeShell()
    assert read_state(LAYOUT, shell) is None
    apply(gray(), layout=LAYOUT, shell=shell)
    assert read_state(LAYOUT, shell) == gray()
    written = {n.rpartition("/")[2]: t.decode() for n, t in shell.files.items()}
    assert render(gray(), LAYOUT).items() <= written.items()


def test_a_state_that_cannot_be_rendered_changes_nothing():
    shell = FakeShell()
    with pytest.raises(InputError):
        apply(state(allow=("nowhere",)), layout=LAYOUT, shell=shell)
    assert shell.files == {}


def test_an_update_sees_what_others_wrote_and_leaves_no_writer_behind():
    shell, clock = FakeShell(), FakeClock()
    apply(state(), layout=LAYOUT, shell=shell)
    edges = {"layout": LAYOUT, "shell": shell, "clock": clock}
    update(lambda now: with_release(now, release(NEW, 21008)), **edges)
    after = update(lambda now: with_weights(now, {NEW: 1.0}), **edges)
    assert [r.id for r in after.releases] == [OLD, NEW]
    assert read_state(LAYOUT, shell) == after
    assert not [name for name in shell.files if name.endswith(".writer")]


def test_an_update_of_a_service_without_a_gateway_is_refused():
    with pytest.raises(Refused, match="no gateway yet"):
        update(lambda now: now, layout=LAYOUT, shell=FakeShell(), clock=FakeClock())


def test_clusters_broken_by_hand_are_written_whole():
    shell = FakeShell()
    apply(gray(), layout=LAYOUT, shell=shell)
    shell.files[f"{LAYOUT.gateway}/cds.json"] = b'{"resources": 7}'
    apply(gray(), layout=LAYOUT, shell=shell)
    assert shell.files[f"{LAYOUT.gateway}/cds.json"].decode() == render(gray(), LAYOUT)["cds.json"]
    assert state_path(LAYOUT) in shell.files
