"""The memory estimate of a case, by its engine's own account."""

from llmdeploy.estimate.answer import MemoryEstimate
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory import others, sglang, vllm
from llmdeploy.estimate.memory.account import Account, answer


def estimate(case: Case) -> MemoryEstimate:
    """Bytes a device of the fullest rank, tokens as that engine's version prints them."""
    return answer(account(case))


def account(case: Case) -> Account:
    """The engine's account of the case's device."""
    name = case.engine.name
    if name == "vllm":
        return vllm.account(case)
    if name == "sglang":
        return sglang.account(case)
    return others.account(case)
