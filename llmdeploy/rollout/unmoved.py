"""Two commands at one release: the later one notices that it no longer sees the whole."""

from collections.abc import Sequence

from llmdeploy.errors import Refused
from llmdeploy.release import journal
from llmdeploy.release.entry import Entry
from llmdeploy.release.site import Site
from llmdeploy.release.state import Standing
from llmdeploy.rollout.position import Position, position


def check_unmoved(release_id: str, seen: Position, *, site: Site) -> None:
    """Refused where another command moved or decided about the release since `seen`."""
    entries = journal.read(site.layout, site.shell)
    undecided = _standing(release_id, entries, site) == Standing.CANDIDATE
    if not undecided or position(entries, release_id) != seen:
        raise _moved(release_id, entries, site)


def check_undecided(release_id: str, *, site: Site) -> None:
    """Refused where another command promoted the release or rolled it back."""
    entries = journal.read(site.layout, site.shell)
    if _standing(release_id, entries, site) != Standing.CANDIDATE:
        raise _moved(release_id, entries, site)


def _standing(release_id: str, entries: Sequence[Entry], site: Site) -> str:
    release = journal.fold(site.service, entries).release(release_id)
    return release.standing.value if release else "unknown"


def _moved(release_id: str, entries: Sequence[Entry], site: Site) -> Refused:
    last = next((e for e in reversed(entries) if e.release == release_id), None)
    who = f"a command of {last.actor}" if last else "another command"
    standing = _standing(release_id, entries, site)
    return Refused(
        f"release {release_id}: {who} moved it meanwhile, it is {standing} now, "
        "needed it as this command saw it last",
        fix=f"llmdeploy status {site.service}, then verify again if it is still wanted",
    )
