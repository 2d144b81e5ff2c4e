"""Releases as targets of probes, behind the gateway's dark listener; and their engines' pages."""

from llmdeploy.gateway.routes import RELEASE_HEADER
from llmdeploy.plan.document import Plan
from llmdeploy.release.site import Site
from llmdeploy.release.stage import staged
from llmdeploy.release.state import ReleaseState
from llmdeploy.verdict.target import Target


def plan_of(release_id: str, *, site: Site) -> Plan:
    """The plan a release was launched from; InputError where it is gone."""
    return staged(release_id, layout=site.layout, shell=site.shell)


def target_of(release: ReleaseState, plan: Plan, *, site: Site) -> Target:
    """The release behind the dark listener."""
    serve = plan.replicas[0].serve
    return Target(
        release=release.id,
        url="http://gateway",
        socket_path=site.layout.dark_socket,
        headers=((RELEASE_HEADER, release.id),),
        served_name=serve.served_name,
        max_model_len=serve.max_model_len,
        model_key=f"{plan.model.manifest_sha256} {serve.dtype} {serve.quantization}",
        promises=plan.promises,
        metrics_urls=tuple(f"{url}/metrics" for url in engine_urls(release)),
        log_paths=engine_logs(release, site=site),
    )


def engine_urls(release: ReleaseState) -> tuple[str, ...]:
    """Where the release's engines answer themselves, without the gateway."""
    return tuple(f"http://{e.address}:{e.port}" for e in release.endpoints)


def engine_logs(release: ReleaseState, *, site: Site) -> tuple[str, ...]:
    """Where the release's engines write their logs."""
    return tuple(site.layout.engine_log(release.id, e.replica) for e in release.endpoints)
