"""Two commands at one release: the later one notices that it no longer sees the whole."""

from llmdeploy.errors import Refused
from llmdeploy.release import journal
from llmdeploy.release.site import Site
from llmdeploy.release.state import Standing
from llmdeploy.rollout.position import Position, position


def check_unmoved(release_id: str, seen: Position, *, site: Site) -> None:
    """Refused where another command moved or decided about the release since `seen`."""
    entries = journal.read(site.layout, site.shell)
    release = journal.fold(site.service, entries).release(release_id)
    standing = release.standing.value if release else "unknown"
    if standing == Standing.CANDIDATE and position(entries, release_id) == seen:
        return
    raise Refused(
        f"release {release_id}: another command moved it meanwhile, it is {standing} now, "
        "needed it as this command saw it last",
        fix=f"llmdeploy status {site.service}, then verify again if it is still wanted",
    )
