"""What `automation enrich` asks for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from automation_pipeline.enrichment.domain.vocabulary import Asked
from automation_pipeline.enrichment.store.followed import Standing


@dataclass(frozen=True, kw_only=True)
class AskedCompany:
    """`job_id` of the job that is waited for; None: the answer is there."""

    request_id: int
    outcome: Asked
    job_id: int | None
    warnings: tuple[str, ...] = ()


class CompanyDesk(Protocol):
    """`width`: how many are asked for at once."""

    width: int

    def request(self, given: Mapping[str, object], *, force: bool) -> AskedCompany:
        """With `force`, also what is known and fresh is asked for anew."""
        ...

    def work(self, job_ids: Sequence[int], on_end: Callable[[], object]) -> None:
        """Do the jobs here; told of each that is over. One that somebody is at is left to them."""
        ...

    def followed(self, request_ids: Sequence[int]) -> Sequence[Standing]: ...
