"""The settings of the company registries: invalid values, and no secrets in the output."""

from collections.abc import Iterator

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    load_settings.cache_clear()
    yield
    load_settings.cache_clear()


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        (
            "RECHERCHE_ENTREPRISES_BASE_URL",
            "search.test",
            "it must be an http:// or https:// address",
        ),
        ("RECHERCHE_ENTREPRISES_PER_SECOND", "0", "it should be greater than or equal to 1"),
        ("INPI_RNE_CALLS_PER_DAY", "0", "it should be greater than or equal to 1"),
        ("API_ENTREPRISE_TOKEN", "s3cret\nX-Admin: 1", "it holds characters that cannot be sent"),
        ("API_ENTREPRISE_RECIPIENT", "1300252650001", "string should match pattern '^[0-9]{14}$'"),
        ("API_ENTREPRISE_OBJECT", "o" * 50, "string should have at most 49 characters"),
        ("ENRICHMENT_FRESHNESS_DAYS", "0", "it should be greater than or equal to 1"),
        ("ENRICHMENT_OPTIONAL_NOT_FOUND", "ignored", "it should be 'failed' or 'not_applicable'"),
        ("ENRICHMENT_TIMEOUT_SECONDS", "0", "it should be greater than 0"),
    ],
)
def test_an_invalid_value_is_reported_in_one_sentence_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, why: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInputError) as caught:
        load_settings()
    assert str(caught.value).startswith(f"{variable} cannot be used: {why}")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("heartbeat", "lock", "fits"), [("40", "120", True), ("41", "120", False), ("30", "60", False)]
)
def test_three_heartbeats_must_fit_into_the_lock_of_a_company(
    monkeypatch: pytest.MonkeyPatch, heartbeat: str, lock: str, fits: bool
) -> None:
    monkeypatch.setenv("ENRICHMENT_HEARTBEAT_SECONDS", heartbeat)
    monkeypatch.setenv("ENRICHMENT_LOCK_SECONDS", lock)
    if fits:
        assert load_settings().enrichment_lock_seconds == float(lock)
        return
    sentence = "^ENRICHMENT_HEARTBEAT_SECONDS must be at most a third of ENRICHMENT_LOCK_SECONDS.$"
    with pytest.raises(InvalidInputError, match=sentence):
        load_settings()


def test_the_repr_of_the_settings_contains_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INPI_RNE_PASSWORD", "s3crét à moi")
    monkeypatch.setenv("API_ENTREPRISE_TOKEN", "s3crettoken")
    settings = load_settings()
    assert settings.inpi_rne_password is not None
    assert settings.inpi_rne_password.get_secret_value() == "s3crét à moi"
    assert "s3cr" not in f"{settings!r} {settings!s}"
