"""What a launch will do on each host of a cluster, in words and commands; changes nothing."""

import shlex

from llmdeploy import backends
from llmdeploy.plan.document import Plan
from llmdeploy.release import aboard, checks, group_proof, groups, hop, host_environment, opened
from llmdeploy.release.groups import Rank, Start
from llmdeploy.release.site import Site
from llmdeploy.units import show_bytes

TOKEN = "(made at launch)"


def preview(plan: Plan, *, block: int, site: Site) -> tuple[str, ...]:
    """Lines for people: every command, host by host, heads first."""
    ranks = groups.ranks(plan, port_block=block, site=site)
    there = host_environment.check(ranks)
    model = checks.model_of(plan, shell=site.shell)
    stations = tuple({rank.station.name: rank.station for rank in ranks}.values())
    content = aboard.archive()
    lines, folders = group_proof.preview(ranks, there), {}
    for station in stations:
        part = hop.hop(station)
        folder = hop.there_already(model.manifest, part)
        folders[station.name] = folder or part.folder(model.manifest)
        size = show_bytes(sum(file.size_bytes for file in model.manifest.stored))
        if folder is None:
            rate = station.staging_bytes_per_s
            most = f", at most {show_bytes(rate)}/s" if rate is not None else ""
            lines.append(f"# {station.name}: copy {plan.model.id} ({size}{most}) to {part.objects}")
        if model.manifest.sealed is not None:
            memory = opened.folder(plan.id)
            lines.append(f"# {station.name}: open the sealed files into {memory}, in memory")
            folders[station.name] = f"{memory}/{model.manifest.id}"
    start = Start(
        token=TOKEN,
        keeper_paths=tuple((one.name, aboard.path(one, content)) for one in stations),
        model_folders=tuple(folders.items()),
        interfaces=tuple((host, one.interface) for host, one in there.items()),
    )
    for rank in sorted(ranks, key=lambda one: one.member.position):
        lines += _rank_lines(rank, plan, start)
    return tuple(lines)


def _rank_lines(rank: Rank, plan: Plan, start: Start) -> list[str]:
    serve = rank.replica.serve
    command = backends.command(serve, groups.place(rank, start))
    keeper = groups.program(rank, plan, start)
    env = [f"{name}={value}" for name, value in command.env]
    return [
        f"# {rank.station.name}: write {rank.spec_path}, then supervise {rank.program}:",
        f"{rank.station.name}: {shlex.join(keeper.argv)}",
        "# which runs, once every rank of its group is there:",
        f"{rank.station.name}: {shlex.join(('env', *env, *command.argv))}",
    ]
