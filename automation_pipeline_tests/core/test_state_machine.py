"""A state machine allows exactly the transitions that it declares."""

from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.state_machine import IllegalMoveError, StateMachine


class Light(StrEnum):
    RED = "red"
    GREEN = "green"
    AMBER = "amber"
    BROKEN = "broken"


MACHINE = StateMachine(
    name="light",
    moves={
        Light.RED: frozenset({Light.GREEN, Light.BROKEN}),
        Light.GREEN: frozenset({Light.AMBER, Light.BROKEN}),
        Light.AMBER: frozenset({Light.RED, Light.BROKEN}),
        Light.BROKEN: frozenset(),
    },
)

any_moves = st.fixed_dictionaries({state: st.frozensets(st.sampled_from(Light)) for state in Light})


def test_a_legal_transition_returns_the_new_state() -> None:
    assert MACHINE.move(Light.RED, Light.GREEN) is Light.GREEN


def test_an_illegal_transition_names_the_machine_and_both_states() -> None:
    with pytest.raises(
        IllegalMoveError, match=r"A light cannot move from red to amber\."
    ) as refused:
        MACHINE.move(Light.RED, Light.AMBER)
    assert (refused.value.machine, refused.value.frm, refused.value.to) == (
        "light",
        Light.RED,
        Light.AMBER,
    )
    assert isinstance(refused.value, PermanentError)


def test_a_state_without_transitions_is_terminal() -> None:
    assert MACHINE.terminal == {Light.BROKEN}


def test_a_transition_to_an_undeclared_state_is_rejected_at_construction() -> None:
    with pytest.raises(ValueError, match=r"light machine moves to undeclared states: amber, green"):
        StateMachine(
            name="light", moves={Light.RED: frozenset({Light.GREEN, Light.AMBER, Light.RED})}
        )


def test_a_state_outside_the_machine_has_no_transitions() -> None:
    machine = StateMachine(name="light", moves={Light.RED: frozenset({Light.RED})})
    assert not machine.can_move(Light.BROKEN, Light.RED)


def test_later_changes_of_the_table_do_not_affect_the_machine() -> None:
    table = {Light.RED: frozenset[Light]()}
    machine = StateMachine(name="light", moves=table)
    table[Light.RED] = frozenset({Light.RED})
    assert not machine.can_move(Light.RED, Light.RED)


@given(any_moves)
def test_every_illegal_transition_of_any_machine_is_rejected(
    moves: dict[Light, frozenset[Light]],
) -> None:
    machine = StateMachine(name="light", moves=moves)
    for frm in Light:
        for to in Light:
            assert machine.can_move(frm, to) == (to in moves[frm])
            if to in moves[frm]:
                assert machine.move(frm, to) is to
            else:
                with pytest.raises(IllegalMoveError):
                    machine.move(frm, to)
