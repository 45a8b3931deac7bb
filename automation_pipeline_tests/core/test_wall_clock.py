"""Time zones by name: geographic zones, but no other files of the zone database."""

import zoneinfo

import pytest

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.core.scheduling import zones as wall_clock
from automation_pipeline.core.scheduling.zones import zone
from automation_pipeline_tests.cases import every_case


@every_case(
    "name", ["Europe/Paris", "America/Argentina/Ushuaia", "Asia/Kathmandu", "UTC", "Etc/GMT-3"]
)
def test_a_zone_of_the_database_is_accepted(name: str) -> None:
    assert zone(name).key == name


@every_case(
    "name",
    [
        "localtime", "posixrules", "Factory", "posix/UTC", "right/UTC", "Europe", "Mars/Olympus", "", " ", "\0",
        "\ud800", "../UTC", "/etc/localtime", "tzdata.zi",
    ],
)  # fmt: skip
def test_a_name_that_is_not_a_geographic_zone_is_rejected(name: str) -> None:
    with pytest.raises(InvalidInputError):
        zone(name)


def test_the_zone_database_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    zone("UTC")
    monkeypatch.setattr(
        wall_clock, "available_timezones", lambda: pytest.fail("The database was listed again.")
    )
    assert zone("Europe/Paris") is zoneinfo.ZoneInfo("Europe/Paris")
