"""What was predicted of a release beside what acceptance measured, kept when it goes live."""

from llmdeploy.errors import LlmDeployError
from llmdeploy.estimate.calibration import FILE, Compared, Forecast, line
from llmdeploy.plan.document import Plan
from llmdeploy.plan.figure_pace import figure_pace
from llmdeploy.release.site import Site
from llmdeploy.rollout.candidate import read_record
from llmdeploy.verdict.acceptance import AcceptanceRecord

PROMPT_TOKENS = 40
"""Of one request of acceptance's burst, with its chat template. Source: own count, SmolLM2."""


def keep_forecast(plan: Plan, release_id: str, *, site: Site) -> str | None:
    """Adds the release's record to the service's file; what kept it from being written, or None.

    The release is live already: nothing here may fail its promotion.
    """
    try:
        record = read_record(release_id, site=site)
        made = forecast(plan, record) if record else None
        if made is not None:
            site.shell.append(f"{site.layout.root}/{FILE}", line(made))
    except LlmDeployError as error:
        return f"the forecast was not kept: {error}"
    return None


def forecast(plan: Plan, record: AcceptanceRecord) -> Forecast | None:
    """The burst of acceptance against the plan's own pace at that load; None where the plan has
    no such pace, or acceptance measured nothing."""
    pace, speed = figure_pace(plan), record.speed
    if pace is None or speed is None or not speed.output_tokens:
        return None
    workers = sum(replica.serve.data_parallel for replica in plan.replicas)
    together = -(-speed.requests // workers)
    each = speed.output_tokens / speed.requests
    prefill_s = together * pace.prefill_s(PROMPT_TOKENS)
    predicted_s = prefill_s + each * pace.decode_step_s(together, PROMPT_TOKENS + each / 2)
    serve = plan.replicas[0].serve
    return Forecast(
        schema=1,
        at_s=record.at_s,
        service=plan.service,
        release=record.release,
        model=plan.model.id,
        device=serve.device,
        engine=serve.engine,
        requests=speed.requests,
        compared=(
            Compared(
                name="output_tokens_per_s",
                predicted=float(f"{speed.output_tokens / predicted_s:.4g}"),
                measured=float(f"{speed.output_tokens_per_s:.4g}"),
            ),
        ),
    )
