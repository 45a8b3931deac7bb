"""Without the required register nobody need be asked."""

import pytest

from automation_pipeline.core.errors import PermanentError
from automation_pipeline.enrichment.models import SourceApi, check_configured, is_configured
from automation_pipeline_tests.tables import every_case


@every_case(
    ("sources", "expected"), [((), False), (tuple(SourceApi), True), ((SourceApi.INPI,), False)]
)
def test_the_required_register_must_be_among_them(
    sources: tuple[SourceApi, ...], expected: bool
) -> None:
    assert is_configured(sources) is expected
    if not expected:
        with pytest.raises(PermanentError, match="RECHERCHE_ENTREPRISES_BASE_URL is not set"):
            check_configured(sources)
