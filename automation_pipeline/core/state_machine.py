"""State machines as tables of legal moves. `storage.transitions` logs the moves."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from automation_pipeline.core.errors import ConflictError

State = TypeVar("State", bound=StrEnum)


class IllegalMoveError(ConflictError):
    """The state does not permit this move."""

    def __init__(self, machine: str, frm: str, to: str, message: str | None = None) -> None:
        super().__init__(message or f"A {machine} cannot move from {frm} to {to}.")
        self.machine = machine
        self.frm = frm
        self.to = to


@dataclass(frozen=True, eq=False)
class StateMachine(Generic[State]):
    """Every state is a key of `moves`; a state with no moves is terminal."""

    name: str
    moves: Mapping[State, frozenset[State]]

    def __post_init__(self) -> None:
        undeclared = frozenset[State]().union(*self.moves.values()) - self.moves.keys()
        if undeclared:
            raise ValueError(
                f"The {self.name} machine moves to undeclared states: {', '.join(sorted(undeclared))}."
            )
        object.__setattr__(self, "moves", MappingProxyType(dict(self.moves)))

    @property
    def terminal(self) -> frozenset[State]:
        return frozenset(state for state, targets in self.moves.items() if not targets)

    def can_move(self, frm: State, to: State) -> bool:
        return to in self.moves.get(frm, frozenset())

    def move(self, frm: State, to: State) -> State:
        if not self.can_move(frm, to):
            raise IllegalMoveError(self.name, frm, to)
        return to
