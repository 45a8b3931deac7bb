"""Names of companies and people."""

from random import Random

from automation_pipeline.simulator.registries.companies import (
    SA,
    SAS,
    TRADER_FORM,
    Kind,
    draw_names,
    draw_officers,
    draw_person,
    is_siren,
)


def test_names_are_in_capitals_without_accents() -> None:
    for seed in range(50):
        rng = Random(seed)
        person = draw_person(rng)
        names = draw_names(Kind.COMPANY, None, "LYON", rng)
        assert all(
            name.isascii() and name.isupper() for name in (*person.first_names, person.last_name)
        )
        assert names.name
        assert names.name.isupper()
        assert names.acronym in {None, "".join(word[0] for word in names.name.split())}


def test_a_sole_trader_has_the_owners_name_and_is_the_only_officer() -> None:
    rng = Random(1)
    owner = draw_person(rng)
    assert (
        draw_names(Kind.SOLE_TRADER, owner, "LYON", rng).name
        == f"{owner.first_names[0]} {owner.last_name}"
    )
    assert [officer.person for officer in draw_officers(TRADER_FORM, owner, rng)] == [owner]


def test_officers_are_people_and_companies() -> None:
    officers = draw_officers(SA, None, Random(1))
    assert [officer.person is None for officer in officers] == [False, False, True]
    assert is_siren(officers[-1].siren)
    assert draw_officers(SAS, None, Random(1))[0].role.label == "Président de SAS"
