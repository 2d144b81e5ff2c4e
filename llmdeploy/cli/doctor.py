"""`llmdeploy doctor`: from a symptom, logs, facts or a running service to causes and fixes."""

import datetime
from typing import Annotated

import typer

from llmdeploy import doctor as doctors
from llmdeploy.cli.context import STATE_ROOT, Json, StateRoot
from llmdeploy.cli.doctor_sources import asked_for, facts_of, service_of
from llmdeploy.doctor.report import overview, table
from llmdeploy.edge.clock import SystemClock
from llmdeploy.errors import Held

app = typer.Typer()


@app.command()
def doctor(
    asked: Annotated[
        list[str] | None,
        typer.Argument(help="symptom in words, log files or folders of logs, or - for stdin"),
    ] = None,
    service: Annotated[
        str | None, typer.Option(help="running service by name, or its service.yaml")
    ] = None,
    release: Annotated[str | None, typer.Option(help="its id; the newest where left out")] = None,
    replay: Annotated[
        str | None, typer.Option("--from", help="facts bundle of preflight; ask no host")
    ] = None,
    as_json: Json = False,
    state_root: StateRoot = STATE_ROOT,
) -> None:
    """Name the cause of a symptom or a failed log, how to be sure, and the fix.

    Exits 0 with an answer, 5 where a log holds an error that is not known.
    """
    if not (asked or service or replay):
        typer.echo(overview(), nl=False)
        return
    symptoms, logs = asked_for(asked or [])
    facts = facts_of(replay) if replay else None
    seen = service_of(service, release, ask=facts is None, root=state_root) if service else None
    question = doctors.Question(
        asked=symptoms,
        logs=tuple(
            facts.timed(log) if facts else log for log in (*logs, *(seen.logs if seen else ()))
        ),
        findings=(*(facts.findings if facts else ()), *(seen.findings if seen else ())),
        looked_at=(*(facts.names if facts else ()), *(seen.names if seen else ())),
        notes=seen.notes if seen else (),
        year=datetime.datetime.fromtimestamp(SystemClock().now_s(), tz=datetime.UTC).year,
    )
    found = doctors.diagnose(question)
    typer.echo(found.model_dump_json() if as_json else table(found), nl=as_json)
    if not found.decided:
        block = found.unknown[-1]
        raise Held(
            f"{block.source}: its last error (line {block.first_line}) is no known failure",
            fix="give the logs of all ranks, or ask by symptom: llmdeploy doctor start_fails",
        )
