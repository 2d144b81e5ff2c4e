"""The pace of one worker of a one-host plan, read back from the plan's own figures."""

from dataclasses import dataclass

from llmdeploy.estimate.speed.processors import STEP_OVERHEAD_S
from llmdeploy.plan.document import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class FigurePace:
    """A step linear in its requests, as the plan's figures `step_time` and `tpot` have it."""

    fixed_s: float
    request_s: float
    """At the workload's mean context."""
    prefill_s_per_token: float

    def decode_step_s(self, batch: float, context_tokens: float) -> float:
        """Seconds of a step; the context counts at its mean."""
        return self.fixed_s + batch * self.request_s

    def prefill_s(self, tokens: float, context_tokens: float = 0) -> float:
        """Seconds of a pass over that many prompt tokens."""
        return tokens * self.prefill_s_per_token


def figure_pace(plan: Plan) -> FigurePace | None:
    """The pace of one worker; None where the plan is a cluster's or lacks a figure.

    `step_time` is fixed + requests x each, with fixed = overhead + weights / read rate; `tpot` is
    step + requests x input / output x prefill per token.
    """
    values = {figure.name: figure.value for figure in plan.figures}
    needed = ("step_time", "tpot", "weights", "memory_read_rate")
    if plan.cluster is not None or not all(values.get(name) for name in needed):
        return None
    serve = plan.replicas[0].serve
    requests = serve.max_num_seqs / serve.data_parallel
    cores = serve.threads_per_worker if serve.device == "cpu" else serve.tensor_parallel
    read_s = values["weights"] / serve.data_parallel / (values["memory_read_rate"] * cores)
    fixed_s = STEP_OVERHEAD_S + read_s
    fixed_s = min(fixed_s, values["step_time"])
    prompts = requests * plan.workload.input_tokens.mean / plan.workload.output_tokens.mean
    return FigurePace(
        fixed_s=fixed_s,
        request_s=(values["step_time"] - fixed_s) / requests,
        prefill_s_per_token=max(0.0, values["tpot"] - values["step_time"]) / prompts,
    )
