"""Every move of the contract, and no other."""

from itertools import product

import pytest

from automation_pipeline.core.state_machine import IllegalMoveError
from automation_pipeline.enrichment.domain.states import ENRICHMENT, EnrichmentStatus

LEGAL = {
    ("PENDING", "RUNNING"), ("RUNNING", "SUCCESS"), ("RUNNING", "PARTIAL"), ("RUNNING", "FAILED"),
    ("SUCCESS", "STALE"), ("PARTIAL", "STALE"), ("STALE", "RUNNING"), ("FAILED", "RUNNING"), ("PARTIAL", "RUNNING"),
}  # fmt: skip


@pytest.mark.parametrize(("frm", "to"), list(product(EnrichmentStatus, EnrichmentStatus)))
def test_the_moves_are_those_of_the_contract(frm: EnrichmentStatus, to: EnrichmentStatus) -> None:
    if (frm, to) in LEGAL:
        assert ENRICHMENT.move(frm, to) is to
    else:
        with pytest.raises(IllegalMoveError):
            ENRICHMENT.move(frm, to)
