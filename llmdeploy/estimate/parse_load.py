"""What a case leaves open of its load, in words."""

from llmdeploy.estimate.answer import LoadKind, SpeedEstimate
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.speed.benchmark import batch_requests, benchmarked
from llmdeploy.estimate.speed.estimate import INPUT_TOKENS, OUTPUT_TOKENS

_WORDS: dict[LoadKind, str] = {
    "concurrency": "concurrency (so many clients take no higher rate)",
    "request rate": "request_rate_per_s (so many requests do not come at once)",
    "saturation": "a saturated server",
}


def load_words(case: Case, speed: SpeedEstimate) -> list[str]:
    """What speed is answered for where the case leaves its load open, or says it twice."""
    said = [
        f"{key} is not given: speed for {default:g}"
        for key, given, default in (
            ("input_tokens", case.input_tokens, INPUT_TOKENS),
            ("output_tokens", case.output_tokens, OUTPUT_TOKENS),
        )
        if given is None
    ]
    if case.concurrency is not None and case.request_rate_per_s is not None:
        said.append(
            "concurrency and request_rate_per_s are both given: the smaller load holds,"
            f" {_WORDS[speed.load]}"
        )
    elif case.concurrency is None and case.request_rate_per_s is None:
        said.append(f"concurrency and request_rate_per_s are not given: {_full(case)}")
    return said


def _full(case: Case) -> str:
    """What a saturated server means for the case's engine."""
    requests = batch_requests(case)
    if requests is None:
        return "a saturated server"
    workers = "" if benchmarked(case) == case else ", attention data parallel over the devices"
    return f"{requests:g} requests at once, as trtllm-bench sends them{workers}"
