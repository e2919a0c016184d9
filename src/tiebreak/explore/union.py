"""What follows from the shards of an exploration together.

Shards divide the search of one plan: what lies above the split is walked
through by all of them, and what begins there is dealt out in turn.  So the
union of the shards is the whole search if all had the same plan, if each one
is there once, and if all dealt out the same, which the fingerprints tell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

import msgspec

from tiebreak.errors import InputError, ReplayError
from tiebreak.sim.explorer.refinement import Refinement
from tiebreak.sim.explorer.verdicts import Conclusion, Counts, Verdict

from .pictures import Pictures
from .shards import Part, Plan, Subject, Task, identify


class Saved(msgspec.Struct, frozen=True):
    """A union in a file."""

    plan: Plan
    parts: list[Part]
    seconds: float


@dataclass
class Union:
    """The shards of a plan that were explored, in full or in part.

    Attributes:
        plan: What they are shards of.
        parts: How far each has come.
        lost: Why some do not come.
        seconds: Time it took so far.
        rounds: How often all began anew.
    """

    plan: Plan
    parts: dict[int, Part] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    rounds: int = 0

    def add(self, part: Part) -> None:
        """Take over how far a shard has come.

        Raises:
            InputError: It is of another plan, or was there to its end already.
        """
        if part.plan != self.plan.digest:
            raise InputError("part", value=part.plan, limit=f"of the plan {self.plan.digest}")
        if not 0 <= part.shard < self.plan.shards:
            raise InputError("shard", value=part.shard, limit=f"from 0 to {self.plan.shards - 1}")
        before = self.parts.get(part.shard)
        if before is not None and not before.state:
            raise InputError("shard", value=part.shard, limit="one that has not come to its end before")
        self.parts[part.shard] = part
        self.lost.pop(part.shard, None)

    def list_tasks(self, seconds: float) -> Iterable[Task]:
        """What there is left to do."""
        for shard in range(self.plan.shards):
            part = self.parts.get(shard)
            if part is None or part.state:
                yield Task(self.plan, shard, seconds, b"" if part is None else part.state)

    @property
    def found(self) -> Refinement:
        """What is known of the program now."""
        found = self.plan.refinement
        for part in self.parts.values():
            found |= part.found
        return found

    @property
    def is_outdated(self) -> bool:
        """Whether all shards have to begin anew, and would know more then."""
        return any(part.refined for part in self.parts.values()) and self.found != self.plan.refinement

    @property
    def is_decided(self) -> bool:
        """Whether other shards do not matter."""
        parts = self.parts.values()
        return any(part.failure for part in parts) or (any(part.unsupported for part in parts) and not self.is_outdated)

    def begin_anew(self) -> None:
        """Forget the shards, but not what they found out about the program."""
        self.plan = msgspec.structs.replace(self.plan, refinement=self.found)
        self.parts.clear()
        self.lost.clear()
        self.rounds += 1

    @property
    def counts(self) -> Counts:
        """What all shards counted together."""
        added = {
            entry.name: sum(getattr(part.counts, entry.name) for part in self.parts.values())
            for entry in fields(Counts)
        }
        return Counts(**{**added, "seconds": self.seconds})

    @property
    def finished(self) -> int:
        """Shards that have come to their end."""
        return sum(not part.state for part in self.parts.values())

    @property
    def progress(self) -> float:
        """Part of the search that is done, every shard taken to be of the same size."""
        return sum(part.progress if part.state else 1.0 for part in self.parts.values()) / self.plan.shards

    @property
    def pictures(self) -> Pictures | None:
        """Of the failure, if there is one."""
        return next((part.pictures for _, part in sorted(self.parts.items()) if part.failure), None)

    @property
    def conclusion(self) -> Conclusion:
        """What follows; ``PROVED`` only if the union is the whole search."""
        parts = [part for _, part in sorted(self.parts.items())]
        for part in parts:
            if part.failure:
                return Conclusion(Verdict.FAILED, part.failure)
        for part in parts:
            if part.unsupported:
                return Conclusion(Verdict.UNSUPPORTED, part.unsupported)
        if missing := self._find_missing():
            return Conclusion(Verdict.UNKNOWN, missing)
        if len({part.dealt for part in parts}) > 1 or _differ(part.found for part in parts):
            return Conclusion(Verdict.UNKNOWN, "shards did not divide the search alike")
        if self.counts.cut:
            return Conclusion(Verdict.BOUNDED, str(self.plan.subject.steps))
        return Conclusion(Verdict.PROVED)

    def _find_missing(self) -> str:
        """Which shards did not come to their end, and why; empty if all did."""
        missing = [shard for shard in range(self.plan.shards) if shard not in self.parts or self.parts[shard].state]
        if not missing:
            return ""
        why = next((f": {self.lost[shard]}" for shard in missing if shard in self.lost), "")
        return f"{len(missing)} of {self.plan.shards} shards are missing, {missing[0]} the first{why}"

    def save(self, path: Path) -> None:
        """Write a file to go on from; it is replaced at once or not at all."""
        saved = Saved(self.plan, list(self.parts.values()), self.seconds)
        temporary = path.with_suffix(".part")
        temporary.write_bytes(msgspec.json.encode(saved))
        temporary.replace(path)

    @classmethod
    def resume(cls, path: Path, subject: Subject, shards: int = 0) -> Union:
        """The union of a file, of so many shards unless that is 0.

        Raises:
            ReplayError: It is of another program or number of shards, or these are other sources.
        """
        try:
            saved = msgspec.json.decode(path.read_bytes(), type=Saved)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ReplayError("checkpoint", value=str(path), limit="one of several shards") from None
        plan = saved.plan
        if plan.subject != subject or shards not in (0, plan.shards):
            raise ReplayError("checkpoint", value=str(plan.subject), limit=f"{shards or 'any'} shards of {subject}")
        if plan.identity != identify():
            raise ReplayError("checkpoint", value=plan.identity, limit=f"of the same versions, {identify()}")
        union = cls(plan, seconds=saved.seconds)
        for part in saved.parts:
            union.add(part)
        return union


def _differ(found: Iterable[Refinement]) -> bool:
    """Whether shards know different things about the program."""
    return len(set(found)) > 1
