"""What a case leaves open of its load, in words."""

from llmdeploy.estimate.answer import LoadKind, SpeedEstimate
from llmdeploy.estimate.case import Case
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
        said.append("concurrency and request_rate_per_s are not given: a saturated server")
    return said
