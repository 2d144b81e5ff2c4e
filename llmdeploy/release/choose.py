"""Which supervisor a service has: the one it already runs under, else what the host offers."""

from llmdeploy.edge import Clock, Shell
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.supervise import Supervisor
from llmdeploy.release.supervisord import Supervisord
from llmdeploy.release.systemd import Systemd

_ASK = (
    'systemctl --user is-system-running; loginctl show-user "$(id -un)" --property=Linger --value'
)
_ASK_ROOT = "id -u; [ -d /run/systemd/system ] && echo systemd"


def choose(layout: ServiceLayout, *, python: str, shell: Shell, clock: Clock) -> Supervisor:
    """systemd where the user's manager runs and lingers after logout, else supervisord.

    `python` is the host's Python with the package `supervisor`.
    """
    systemd = Systemd(layout=layout, shell=shell)
    supervisord = Supervisord(layout=layout, python=python, shell=shell, clock=clock)
    if supervisord.list():
        return supervisord
    if systemd.list():
        return systemd
    words = shell.run(("sh", "-c", _ASK), timeout_s=15).stdout.split()
    usable = words[:1] in (["running"], ["degraded"]) and words[1:] == ["yes"]
    return systemd if usable else supervisord


def choose_on_cluster(
    layout: ServiceLayout, *, python: str, shell: Shell, clock: Clock
) -> Supervisor:
    """The host's own systemd where the shell is root there, else as on one host.

    It needs no login and no lingering, and starts a rank again after the host was off.
    """
    words = shell.run(("sh", "-c", _ASK_ROOT), timeout_s=15).stdout.split()
    if words == ["0", "systemd"]:
        return Systemd(layout=layout, shell=shell, system=True)
    return choose(layout, python=python, shell=shell, clock=clock)
