"""What an engine says when it refuses a launch, and what would help."""

from llmdeploy.units import show_bytes


def no_cache_memory(engine: str, *, available_bytes: float, knob: str) -> str:
    return (
        f"{engine}: no available memory for the cache blocks: the share holds weights and"
        f" activations with {show_bytes(-available_bytes)} missing; raise {knob}, use more devices,"
        " smaller weights or fewer max_num_seqs"
    )


def weights_do_not_fit(engine: str, *, weights_bytes: float, total_bytes: float) -> str:
    return (
        f"{engine}: out of memory while loading: weights of {show_bytes(weights_bytes)} a device,"
        f" {show_bytes(total_bytes)} are there; use more devices or smaller weights"
    )


def too_long(
    engine: str, *, length_tokens: int, needed_bytes: float, available_bytes: float, longest: int
) -> str:
    return (
        f"{engine}: max_model_len {length_tokens} needs {show_bytes(needed_bytes)} of KV cache,"
        f" {show_bytes(max(0.0, available_bytes))} are there; the longest that fits is {longest}"
    )


def free_below_share(engine: str, *, free_bytes: float, asked_bytes: float, knob: str) -> str:
    return (
        f"{engine}: free memory {show_bytes(free_bytes)} is less than the share of"
        f" {show_bytes(asked_bytes)}; lower {knob} or free the device"
    )


def graphs_overrun(engine: str, *, rest_bytes: float, graph_bytes: float) -> str:
    return (
        f"{engine}: capturing graphs may run out of memory: {show_bytes(graph_bytes)} are needed,"
        f" {show_bytes(max(0.0, rest_bytes))} are left; lower the share or set enforce_eager"
    )
