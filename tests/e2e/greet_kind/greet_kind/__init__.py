"""A kind of programs from a package of its own: a job file with `greet:` prints greetings."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from vastrun.contract.limits import Count
from vastrun.contract.outcome import Outcome
from vastrun.contract.program import ProgramSpec, StageSpan, spans_of
from vastrun.contract.program_kind import JobContext, Program, ProgramFault, Proof


@dataclass(frozen=True, kw_only=True)
class GreetConfig:
    """Options of the greetings."""

    whom: str = "world"
    steps: Count = 3


@dataclass(frozen=True)
class Greet(Program[GreetConfig]):
    """Greets."""

    key = "greet"
    config_type = GreetConfig
    title = "greetings"
    package = "greet_kind"

    def validate(self, context: JobContext) -> Iterator[ProgramFault]:
        """Yield a fault for somebody who is to be greeted by several ranks."""
        if context.world_size > 1:
            yield ProgramFault(key="whom", text=f"expected one rank, got {context.world_size}")

    def spec(self, context: JobContext) -> ProgramSpec:
        """Return the module that greets."""
        return ProgramSpec(
            kind=self.key,
            module="greet_kind.ranks",
            package=self.package,
            config=asdict(self.config),
            stages=self.stages,
        )

    @property
    def stages(self) -> tuple[StageSpan, ...]:
        """Return its only stage."""
        return spans_of([("greet", self.config.steps)])

    def proofs(self, outcome: Outcome) -> Iterator[Proof]:
        """Yield the proof that everybody was greeted."""
        holds = outcome.steps_done == self.config.steps
        yield Proof(name="greetings", holds=holds, text=f"{outcome.steps_done} greetings")
