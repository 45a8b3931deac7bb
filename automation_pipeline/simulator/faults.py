"""The fault script: which rule, if any, strikes a call. `fault_rules.py` has the rules, `gate.py`
carries them out."""

import asyncio
from dataclasses import dataclass
from random import Random

from automation_pipeline.simulator.fault_rules import FaultRule


@dataclass
class _Entry:
    rule: FaultRule
    place: int
    reached: int = 0

    def strikes(self, seed: int, item: str, call_number: int) -> bool:
        rule = self.rule
        self.reached += 1
        if self.reached % rule.every or (rule.first is not None and self.reached > rule.first):
            return False
        return (
            rule.probability == 1
            or Random(f"{seed}/{self.place}/{item}/{call_number}").random() < rule.probability
        )


class Faults:
    """The rules in the order they were posted; the first that strikes wins. A rule's probability is
    decided by the seed, its place, the item and the number of the item's call, so the order of
    concurrent calls changes nothing."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._entries: list[_Entry] = []
        self.cleared = (
            asyncio.Event()
        )  # set for the calls that hang on the rules of before a clear()

    def add(self, rules: list[FaultRule]) -> int:
        """How many rules there are now."""
        for rule in rules:
            self._entries.append(_Entry(rule, len(self._entries)))
        return len(self._entries)

    def clear(self) -> None:
        """No rules any more; hanging calls are let go, without an answer."""
        self._entries.clear()
        self.cleared.set()
        self.cleared = asyncio.Event()

    def striking(self, route: str, item: str, call_number: int) -> FaultRule | None:
        for entry in self._entries:
            if (
                entry.rule.route == route
                and entry.rule.item in {None, item}
                and entry.strikes(self._seed, item, call_number)
            ):
                return entry.rule
        return None
