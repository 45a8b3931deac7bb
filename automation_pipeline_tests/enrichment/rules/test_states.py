"""The legal moves of an enrichment, and no others."""

from itertools import product

from automation_pipeline.enrichment.models import ENRICHMENT, EnrichmentStatus

OF_THE_CONTRACT = {
    ("PENDING", "RUNNING"), ("RUNNING", "SUCCESS"), ("RUNNING", "PARTIAL"), ("RUNNING", "FAILED"),
    ("SUCCESS", "STALE"), ("PARTIAL", "STALE"), ("STALE", "RUNNING"), ("FAILED", "RUNNING"), ("PARTIAL", "RUNNING"),
}  # fmt: skip
# A required register asks to wait.
PUT_OFF = {("RUNNING", "PENDING"), ("RUNNING", "STALE")}


def test_the_legal_moves_are_those_of_the_contract_and_the_wait_for_a_register() -> None:
    legal = {
        (a.value, b.value)
        for a, b in product(EnrichmentStatus, EnrichmentStatus)
        if b in ENRICHMENT.moves[a]
    }
    assert legal == OF_THE_CONTRACT | PUT_OFF
