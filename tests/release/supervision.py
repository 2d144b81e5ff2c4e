"""A supervisor in memory: what it was told to run, and states that a test sets."""

from dataclasses import dataclass, field

from llmdeploy.release.supervise import ProcessState, Program

RUNS = ProcessState(running=True, pid=7, restarts=0, exit=None)
NONE = ProcessState(running=False, pid=None, restarts=0, exit=None)


@dataclass
class FakeSupervisor:
    """Implements Supervisor without processes."""

    states: dict[str, ProcessState] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)

    def start(self, program: Program) -> None:
        self.programs[program.name] = program
        self.states[program.name] = RUNS

    def stop(self, name: str) -> None:
        self.programs.pop(name, None)
        self.states.pop(name, None)

    def state(self, name: str) -> ProcessState:
        return self.states.get(name, NONE)

    def list(self) -> tuple[str, ...]:
        return tuple(sorted(self.programs))

    def shutdown(self) -> None:
        self.programs.clear()
        self.states.clear()
