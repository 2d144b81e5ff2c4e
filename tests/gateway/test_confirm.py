import pytest

from llmdeploy.edge import Response
from llmdeploy.errors import Refused, Unreachable
from llmdeploy.gateway.apply import accepted_state, apply, read_state
from llmdeploy.gateway.change import with_weights
from llmdeploy.gateway.confirm import confirm, envoy_log, parse_stats, refusal
from llmdeploy.gateway.render import render
from llmdeploy.gateway.xds import version
from tests.fakes import FakeClock, FakeHttp, FakeShell

from .test_render import LAYOUT, NEW, OLD, gray

SOURCES = {
    "cds.json": "cluster_manager.cds", "lds.json": "listener_manager.lds",
    "rds.json": "http.public.rds.public", "rds-dark.json": "http.dark.rds.dark",
    "ecds-jwt.json": "extension_config_discovery.http_filter.jwt",
    "ecds-limits.json": "extension_config_discovery.http_filter.limits",
    f"eds-{OLD}.json": f"cluster.{OLD}", f"eds-{NEW}.json": f"cluster.{NEW}",
}  # fmt: skip


class EnvoyHost(FakeShell):
    """A host whose Envoy takes files as they are renamed into place, but for those it refuses
    and those it does not notice."""

    def __init__(self):
        super().__init__()
        self.refuses, self.overlooks, self.warming = (), (), 0
        self.refusals = dict.fromkeys(SOURCES, 0)
        self.taken = dict.fromkeys(SOURCES, "")

    def write(self, path, content, *, mode=0o644):
        super().write(path, content, mode=mode)
        name = path.rpartition("/")[2]
        if name in self.refuses:
            self.refusals[name] += 1
        elif name in SOURCES and name not in self.overlooks:
            self.taken[name] = version(content.decode())

    def stats(self, method, url, body):
        lines = [f"cluster_manager.warming_clusters: {self.warming}"]
        for name, source in SOURCES.items():
            lines.append(f"{source}.update_failure: 0")
            lines.append(f"{source}.update_rejected: {self.refusals[name]}")
            lines.append(f'{source}.version_text: "{self.taken[name]}"')
        return Response(status=200, headers={}, body="\n".join(lines).encode())


def made():
    host = EnvoyHost()
    return host, {"shell": host, "http": FakeHttp(on_request=host.stats), "clock": FakeClock()}


def test_the_state_is_confirmed_once_every_version_is_in_effect():
    shell, edges = made()
    apply(gray(), layout=LAYOUT, shell=shell)
    assert confirm(LAYOUT, **edges) == gray()
    assert accepted_state(LAYOUT, shell) == gray()


def test_files_that_differ_from_the_state_are_written_again():
    shell, edges = made()
    apply(gray(), layout=LAYOUT, shell=shell)
    shell.write(f"{LAYOUT.gateway}/rds.json", b'{"version_info": "other", "resources": []}')
    confirm(LAYOUT, **edges)
    assert shell.read(f"{LAYOUT.gateway}/rds.json").decode() == render(gray(), LAYOUT)["rds.json"]


def test_a_refused_file_brings_the_accepted_state_back_with_envoys_reason():
    shell, edges = made()
    apply(gray(), layout=LAYOUT, shell=shell)
    confirm(LAYOUT, **edges)
    shell.append(envoy_log(LAYOUT), b"[1][warning] Filesystem config update rejected: too heavy\n")
    shell.refuses = ("rds.json",)
    apply(with_weights(gray(), {OLD: 0.5, NEW: 0.5}), layout=LAYOUT, shell=shell)
    with pytest.raises(Refused, match=r"rds.json: Envoy refused it: too heavy; the last accepted"):
        confirm(LAYOUT, **edges)
    assert read_state(LAYOUT, shell) == gray()
    assert shell.read(f"{LAYOUT.gateway}/rds.json").decode() == render(gray(), LAYOUT)["rds.json"]


def test_a_refusal_of_long_ago_is_not_taken_for_one_now():
    shell, edges = made()
    shell.refusals["rds.json"] = 3
    apply(gray(), layout=LAYOUT, shell=shell)
    assert confirm(LAYOUT, **edges) == gray()


def test_a_file_that_envoy_overlooked_is_put_before_it_again():
    shell, edges = made()
    shell.overlooks = ("rds.json",)
    apply(gray(), layout=LAYOUT, shell=shell)
    shell.overlooks = ()
    assert confirm(LAYOUT, **edges) == gray()
    assert edges["clock"].monotonic_s() > 1_800_000_000.5


def test_an_envoy_that_does_not_react_is_unreachable_and_keeps_the_state():
    shell, edges = made()
    shell.overlooks = ("rds.json",)
    apply(gray(), layout=LAYOUT, shell=shell)
    with pytest.raises(Unreachable, match=r"not in effect after 15 s: rds.json"):
        confirm(LAYOUT, **edges)
    assert read_state(LAYOUT, shell) == gray()


def test_a_change_made_meanwhile_is_kept_and_confirmed():
    shell, edges = made()
    apply(gray(), layout=LAYOUT, shell=shell)
    confirm(LAYOUT, **edges)
    shell.overlooks = ("rds.json",)
    apply(with_weights(gray(), {OLD: 0.5, NEW: 0.5}), layout=LAYOUT, shell=shell)
    last = with_weights(gray(), {OLD: 0.25, NEW: 0.75})

    def another_command(duration_s):
        edges["clock"].on_sleep = None
        shell.overlooks = ()
        apply(last, layout=LAYOUT, shell=shell)

    edges["clock"].on_sleep = another_command
    assert confirm(LAYOUT, **edges) == last == read_state(LAYOUT, shell)


def test_taking_back_never_makes_a_revoked_key_valid_again():
    shell, edges = made()
    apply(gray(), layout=LAYOUT, shell=shell)
    confirm(LAYOUT, **edges)
    shell.refuses = ("lds.json",)
    changed = gray().model_copy(update={"revoked": ("9",), "host": "192.0.2.1"})
    apply(changed, layout=LAYOUT, shell=shell)
    with pytest.raises(Refused, match=r"lds.json: Envoy refused it"):
        confirm(LAYOUT, **edges)
    found = read_state(LAYOUT, shell)
    assert (found.host, found.revoked) == ("127.0.0.1", ("9",))


def test_new_clusters_must_be_warm():
    shell, edges = made()
    apply(gray(), layout=LAYOUT, shell=shell)
    shell.warming = 1
    with pytest.raises(Unreachable, match="still being checked"):
        confirm(LAYOUT, **edges)


def test_without_a_gateway_there_is_nothing_to_confirm():
    with pytest.raises(Refused, match="has no gateway"):
        confirm(LAYOUT, shell=FakeShell(), http=FakeHttp(), clock=FakeClock())


def test_the_reason_is_the_last_one_in_one_line_without_the_file():
    log = (
        "[a][warning] Filesystem config update rejected: old\n"
        "[b][warning][config] [x.cc:1] Filesystem config update failure: in /g/rds.json, Unable "
        'to parse JSON as proto (unexpected EOF): {"version_info": "x"\n'
        "[c][info] something else\n"
    )
    assert refusal(log) == "Unable to parse JSON as proto (unexpected EOF)"
    many = (
        "[b] Filesystem config update rejected: Invalid duration: goo.gle/debugonly \nseconds: -1\n"
    )
    assert refusal(many) == "Invalid duration: seconds: -1"
    assert refusal("[a] started\n") == "no reason in its log"


def test_refusals_are_counted_per_source():
    seen = parse_stats(
        'http.public.rds.public.version_text: "ab"\nhttp.public.rds.public.update_rejected: 2\n'
        "http.public.rds.public.update_failure: 1\ncluster_manager.warming_clusters: 1\n"
        "listener_manager.total_listeners_warming: 1\n"
    )
    assert seen.versions == {"http.public.rds.public": "ab"}
    assert seen.refusals == {"http.public.rds.public": 3}
    assert seen.warming == 2
