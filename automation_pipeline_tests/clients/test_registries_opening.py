"""From settings to registries: which of them are called, at which pace, and what is said of half a
configuration."""

import pytest
from pydantic import SecretStr

from automation_pipeline.bootstrap import Services
from automation_pipeline.clients.factories import registry_options
from automation_pipeline.core.coordination import Rate
from automation_pipeline.core.errors import PermanentError
from automation_pipeline.core.settings import Settings
from automation_pipeline.enrichment.models import EnrichmentOptions, SourceApi
from automation_pipeline.enrichment.ports import Registries
from automation_pipeline_tests.tables import every_case

SEARCH = {"recherche_entreprises_base_url": "http://127.0.0.1:9/search"}
INPI = {
    "inpi_rne_base_url": "http://127.0.0.1:9/inpi",
    "inpi_rne_username": "anna",
    "inpi_rne_password": SecretStr("s3cret"),
}
RCS = {
    "api_entreprise_base_url": "http://127.0.0.1:9/entreprise",
    "api_entreprise_token": SecretStr("s3cret"),
    "api_entreprise_recipient": "13002526500013",
}
NONE = dict.fromkeys((*SEARCH, *INPI, *RCS), None)


def services(**settings: object) -> Services:
    in_memory = {"database_url": "sqlite://", "redis_url": None}
    return Services(Settings().model_copy(update={**NONE, **in_memory, **settings}))


def opened(**settings: object) -> Registries:
    return services(**settings).registries


@every_case(
    ("settings", "called"),
    [
        ({}, []),
        (SEARCH, [SourceApi.SEARCH]),
        (RCS | SEARCH, [SourceApi.SEARCH, SourceApi.RCS]),
        (RCS | INPI | SEARCH, [SourceApi.SEARCH, SourceApi.INPI, SourceApi.RCS]),
    ],
)
def test_those_that_are_configured_are_called_in_their_order(
    settings: dict[str, object], called: list[SourceApi]
) -> None:
    assert list(opened(**settings).sources) == called


def test_each_has_its_pace_and_inpi_its_day() -> None:
    sources = opened(**SEARCH, **INPI, **RCS).sources
    assert [(one.rate, one.calls_a_day) for one in sources.values()] == [
        (Rate(6, 1.0), None),
        (Rate(170, 60.0), 9_500),
        (Rate(4, 1.0), None),
    ]


@every_case(
    ("whole", "missing"),
    [(whole, name) for whole in (INPI, RCS) for name in whole],
)
def test_half_a_configuration_is_one_sentence_that_names_what_is_missing(
    whole: dict[str, object], missing: str
) -> None:
    half = {name: value for name, value in whole.items() if name != missing}
    with pytest.raises(PermanentError, match=f"^{missing.upper()} is not set, though ") as caught:
        opened(**SEARCH, **half)
    assert "s3cret" not in str(caught.value)


def test_an_empty_secret_is_none() -> None:
    with pytest.raises(
        PermanentError, match=r"^INPI_RNE_PASSWORD is not set, though INPI_RNE_BASE_URL is"
    ):
        opened(**INPI | {"inpi_rne_password": SecretStr("")})


def test_one_may_be_opened_though_another_is_half_configured() -> None:
    both = services(**SEARCH, inpi_rne_username="anna")
    assert both.registry(SourceApi.SEARCH) is not None
    assert both.registry(SourceApi.RCS) is None
    with pytest.raises(PermanentError, match="INPI_RNE_BASE_URL"):
        both.registry(SourceApi.INPI)


def test_the_knobs_are_those_of_the_settings() -> None:
    assert registry_options(Settings().model_copy(update=NONE)) == EnrichmentOptions()
    options = registry_options(
        Settings().model_copy(update={"enrichment_optional_not_found": "not_applicable"})
    )
    assert options.optional_not_found_counts is False
