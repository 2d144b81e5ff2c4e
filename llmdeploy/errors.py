"""The errors a user can meet: each says where, what was found, what was needed, and the fix."""


class LlmDeployError(Exception):
    """An expected failure: `what` names place and both values, `fix` is what to do now."""

    exit_code = 1

    def __init__(self, what: str, *, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


class InputError(LlmDeployError):
    """What the user gave cannot be used: exit code 2."""

    exit_code = 2


class Refused(LlmDeployError):
    """The answer is no (blocked, infeasible, failed start, rolled back): exit code 3."""

    exit_code = 3


class Busy(Refused):
    """Another living command holds what is needed; the message names its owner: exit code 3."""


class Unreachable(LlmDeployError):
    """A host, gateway or endpoint did not answer: exit code 4."""

    exit_code = 4


class Held(LlmDeployError):
    """Not decided yet; the message says what is missing and until when: exit code 5."""

    exit_code = 5
