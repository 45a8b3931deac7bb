"""The model's answers: parsed, and matched with the configured control points."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automation_pipeline.audits.models.audits import (
    Citation,
    Conforme,
    GatingOptions,
    Niveau,
    Statut,
    StepFinding,
    Timeline,
)
from automation_pipeline.audits.models.chat import ModelOutputError
from automation_pipeline.audits.rules.answers import ANSWER_SCHEMA, parse_answer, reconcile
from automation_pipeline.audits.rules.tools import search_terms
from automation_pipeline.audits.rules.verdicts import gate
from automation_pipeline_tests.audits.rules.strategies import (
    control_point,
    finding,
    findings,
    texts,
)
from automation_pipeline_tests.cases import every_case

CITATION = {
    "texte": "cet appel est enregistré",
    "minutage": "00:12",
    "minutage_secondes": 12.4,
    "speaker": "speaker_0",
    "recording_index": 0,
    "chunk_index": 2,
    "recording_date": "03/02/2026",
    "recording_time": "10:14",
    "recording_url": "N/A",
}
POINT = {
    "point": "Enregistrement annoncé",
    "statut": "PRESENT",
    "commentaire": "Dit d'emblée.",
    "citations": [CITATION],
    "minutages": ["00:12"],
    "erreur_transcription_notee": False,
    "variation_phonetique_utilisee": None,
}
GOOD = {
    "traite": True,
    "conforme": "CONFORME",
    "minutages": ["00:12"],
    "score": 9,
    "points_controle": [POINT],
    "mots_cles_trouves": ["enregistré"],
    "commentaire_global": "Bien.",
    "niveau_conformite": "BON",
    "erreurs_transcription_tolerees": 0,
}


def written(**other: object) -> str:
    return json.dumps(GOOD | other)


def with_point(**other: object) -> str:
    return written(points_controle=[POINT | other])


def with_citation(**other: object) -> str:
    return with_point(citations=[CITATION | other])


def without(whole: Mapping[str, object], field: str) -> dict[str, object]:
    return {name: value for name, value in whole.items() if name != field}


FOUND = StepFinding(
    traite=True,
    conforme=Conforme.CONFORME,
    score=9,
    niveau_conformite=Niveau.BON,
    points=(
        control_point(
            Statut.PRESENT,
            "Enregistrement annoncé",
            commentaire="Dit d'emblée.",
            citations=(Citation(**CITATION),),
            minutages=("00:12",),
        ),
    ),
    commentaire_global="Bien.",
    minutages=("00:12",),
    mots_cles_trouves=("enregistré",),
    erreurs_transcription_tolerees=0,
)


WRAPPED = {
    "reasoning in tags": f"<think>\nThe advisor says {{hello}}.\n</think>\n\n{written()}",
    "reasoning with a draft": f"<think>First {written(score=1)}, then better.</think>{written()}",
    "reasoning without its opening tag": f"Let me look at the call.\n</think>\n{written()}",
    "reasoning in capital tags": f"<THINKING>{{}}</THINKING>{written()}",
    "prose before": f"Voici mon analyse :\n\n{written()}",
    "prose after": f"{written()}\n\nJ'espère que cela aide {{vraiment}}.",
    "prose and a fence": f"Voici :\n```json\n{json.dumps(GOOD, indent=2)}\n```\nBonne journée.",
    "braces in prose": f"L'étape {{1}} et {{ceci}} : {written()}",
    "a small object in prose": f'Format {{"a": 1}} : {written()}',
    "a small object after": f'{written()} Note : {{"a": 1}}',
    "a corrected draft": f"{written(score=1)}\nCorrection :\n{written()}",
    "twice": written() + written(),
    "a fence and no last brace": f"```json\n{written()[:-1]}\n```",
    "a tag inside a text": written().replace("Bien.", "Bien.</think>"),
}


def test_an_answer_is_found_inside_surrounding_text() -> None:
    def read(content: str) -> object:
        try:
            return parse_answer(content)
        except ModelOutputError as bad:
            return bad.problem

    expected = dict.fromkeys(WRAPPED, FOUND)
    expected["a tag inside a text"] = replace(FOUND, commentaire_global="Bien.</think>")
    assert {
        name: found
        for name, content in WRAPPED.items()
        if (found := read(content)) != expected[name]
    } == {}


def test_parsing_a_text_of_many_braces_stops_early() -> None:
    started = time.perf_counter()
    for content in ("{" * 200_000, "{x} " * 50_000 + written(), '{"a": ' * 50_000):
        with pytest.raises(ModelOutputError, match="JSON valide"):
            parse_answer(content)
    assert time.perf_counter() - started < 5


@every_case(
    "content",
    [
        written(),
        json.dumps(GOOD, indent=2),
        written()[:-1],
        f"```json\n{written()}\n```",
        f"```\n{written()}```",
        f"  {written()}\n\n",
        written(commentaire_global="Bi\0en."),
        written().replace("Bien", "B\0ien"),
        written(score=9.0),
        written(thoughts="hm", points_controle=[POINT | {"index": 1}]),
    ],
)
def test_an_answer_with_extra_formatting_is_parsed(content: str) -> None:
    assert parse_answer(content) == FOUND


@every_case(
    ("content", "problem"),
    [
        ("", "JSON valide"),
        ("Je ne peux pas répondre.", "JSON valide"),
        (written()[:-40], "JSON valide"),
        (written(score=1).replace("1", "9" * 5000), "JSON valide"),
        ("[" * 100_000, "JSON valide"),
        ("[]", "objet JSON"),
        ("3", "objet JSON"),
        ("{}", "traite est obligatoire"),
        (json.dumps(without(GOOD, "points_controle")), "points_controle est obligatoire"),
        (written(traite="oui"), "traite doit être true ou false"),
        (
            written(conforme="OUI"),
            "conforme doit être une des valeurs permises : 'CONFORME', 'PARTIEL' ou 'NON_CONF",
        ),
        (written(conforme=["CONFORME"]), "conforme doit"),
        (
            written(niveau_conformite="PENDING"),
            "niveau_conformite doit être une des valeurs permises : 'EXCELLENT',",
        ),
        (written(score=-1), "score doit être au moins 0"),
        (written(score="9"), "score doit être un nombre entier"),
        (written(score=9.5), "score doit être un nombre entier"),
        (written(score=True), "score doit être un nombre entier"),
        (written(score=None), "score doit être un nombre entier"),
        (written(score=10**30), "score doit être au plus"),
        (
            written(erreurs_transcription_tolerees=-1),
            "erreurs_transcription_tolerees doit être au moins 0",
        ),
        (written(minutages="00:12"), "minutages doit être une liste"),
        (written(minutages=[12]), "minutages[0] doit être un texte"),
        (written(points_controle=["a"]), "points_controle[0] doit être un objet"),
        (with_point(statut="VU"), "points_controle[0].statut doit être une des valeurs permises"),
        (
            with_point(variation_phonetique_utilisee=3),
            "points_controle[0].variation_phonetique_utilisee doit",
        ),
        (
            json.dumps(GOOD | {"points_controle": [without(POINT, "citations")]}),
            "points_controle[0].citations est obl",
        ),
        (
            with_citation(minutage_secondes=-1),
            "citations[0].minutage_secondes doit être au moins 0",
        ),
        (
            with_citation(minutage_secondes="12"),
            "citations[0].minutage_secondes doit être un nombre",
        ),
        (
            with_citation(minutage_secondes=True),
            "citations[0].minutage_secondes doit être un nombre",
        ),
        (with_citation(minutage_secondes=float("inf")), "citations[0].minutage_secondes doit être"),
        (with_citation(minutage_secondes=float("nan")), "citations[0].minutage_secondes doit être"),
        (with_citation(minutage_secondes=10**400), "citations[0].minutage_secondes doit"),
        (
            with_citation(recording_index="0"),
            "citations[0].recording_index doit être un nombre entier",
        ),
        (with_citation(chunk_index=1.5), "citations[0].chunk_index doit être un nombre entier"),
        (with_citation(chunk_index=10**12), "citations[0].chunk_index doit être au plus"),
        (with_citation(texte=None), "points_controle[0].citations[0].texte doit être un texte"),
    ],
)
def test_the_problem_names_the_invalid_field(content: str, problem: str) -> None:
    with pytest.raises(ModelOutputError) as bad:
        parse_answer(content)
    assert problem in bad.value.problem


def test_many_problems_are_summarised() -> None:
    def problem(minutages: int) -> str:
        with pytest.raises(ModelOutputError) as bad:
            parse_answer(written(minutages=[12] * minutages))
        return bad.value.problem

    named = [f"minutages[{number}] doit être un texte" for number in range(8)]
    assert problem(1) == "minutages[0] doit être un texte."
    assert problem(8) == f"{'; '.join(named)}."
    assert problem(200) == f"{'; '.join(named)}; et 192 autre(s) faute(s)."


def test_numbers_are_bounded_by_the_columns() -> None:
    largest = 2**31 - 1
    found = parse_answer(
        with_citation(recording_index=-largest, chunk_index=largest, minutage_secondes=largest)
    )
    [citation] = found.points[0].citations
    assert (citation.recording_index, citation.chunk_index) == (-largest, largest)
    assert (citation.minutage_secondes, type(citation.minutage_secondes)) == (largest, float)
    assert parse_answer(written(score=largest, erreurs_transcription_tolerees=0)).score == largest
    for content in (
        with_citation(recording_index=-largest - 1),
        with_citation(chunk_index=largest + 1),
        with_citation(minutage_secondes=largest + 1),
        with_citation(minutage_secondes=largest + 0.5),
        written(score=largest + 1),
    ):
        with pytest.raises(ModelOutputError, match="doit être"):
            parse_answer(content)


def test_an_answer_is_found_after_up_to_sixty_three_braces_of_prose() -> None:
    assert parse_answer("{x} " * 63 + written()) == FOUND
    with pytest.raises(ModelOutputError, match="JSON valide"):
        parse_answer("{x} " * 64 + written())


def test_the_last_of_several_valid_objects_counts() -> None:
    assert parse_answer(f"{written(score=1)} {written(score=2)} {written(score='x')}").score == 2
    with pytest.raises(ModelOutputError, match="score doit être un nombre entier"):
        parse_answer(f"{written(traite=3)} {written(score='x')}")


def test_a_negative_index_is_accepted() -> None:
    assert (
        parse_answer(with_citation(recording_index=-1)).points[0].citations[0].recording_index == -1
    )


def test_the_recording_of_a_citation_is_not_taken_from_the_model() -> None:
    for invented in ("call_7", 7):
        assert parse_answer(with_citation(call_id=invented)).points[0].citations[0].call_id is None


def test_recording_facts_of_a_citation_may_be_omitted() -> None:
    bare = {
        name: value
        for name, value in CITATION.items()
        if not name.startswith("recording_") or "index" in name
    }
    citation = parse_answer(with_point(citations=[bare])).points[0].citations[0]
    assert (citation.recording_date, citation.recording_time, citation.recording_url) == (
        "N/A",
        "N/A",
        "N/A",
    )


def test_long_texts_are_truncated_and_lone_surrogates_replaced() -> None:
    found = parse_answer(written(commentaire_global="x" * 30_000, mots_cles_trouves=["a\ud800b"]))
    assert found.commentaire_global == "x" * 20_000
    assert found.mots_cles_trouves == ("a?b",)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_answers = st.fixed_dictionaries(
    {}, optional={name: st.just(value) | _json for name, value in GOOD.items()}
)


@given(st.text() | _json.map(json.dumps) | _answers.map(json.dumps))
@example("{" * 990)
@example('{"points_controle": ' + "[" * 900 + "]" * 900 + "}")
def test_any_text_raises_only_model_output_errors(content: str) -> None:
    with suppress(ModelOutputError):
        parse_answer(content)


@given(st.data())
def test_any_broken_field_raises_only_model_output_errors(data: st.DataObject) -> None:
    point = POINT | {data.draw(st.sampled_from(list(POINT))): data.draw(_json)}
    citation = CITATION | {data.draw(st.sampled_from(list(CITATION))): data.draw(_json)}
    with suppress(ModelOutputError):
        parse_answer(written(points_controle=[point, POINT | {"citations": [citation]}]))


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for inner in schema.values():
            yield from _schemas(inner)


def test_the_schema_is_valid_in_strict_mode() -> None:
    allowed = {
        "type",
        "enum",
        "items",
        "properties",
        "required",
        "additionalProperties",
        "description",
    }
    schemas = [
        schema
        for schema in _schemas(ANSWER_SCHEMA.schema)
        if isinstance(schema.get("type"), str | list)
    ]
    for schema in schemas:
        assert set(schema) <= allowed
        if schema["type"] == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])
    assert len(schemas) > 25


def test_the_schema_has_every_parsed_field() -> None:
    properties: Any = ANSWER_SCHEMA.schema["properties"]
    point = properties["points_controle"]["items"]["properties"]
    assert set(properties) == set(GOOD)
    assert set(point) == set(POINT)
    assert set(point["citations"]["items"]["properties"]) == set(CITATION)
    assert "PENDING" not in properties["niveau_conformite"]["enum"]
    assert set(properties["niveau_conformite"]["enum"]) == set(Niveau) - {Niveau.PENDING}
    assert set(point["statut"]["enum"]) == set(Statut)
    assert set(properties["conforme"]["enum"]) == set(Conforme)


P, H, A, N = Statut.PRESENT, Statut.PARTIEL, Statut.ABSENT, Statut.NON_APPLICABLE
NAME, RECORDED = "Le conseiller donne son nom", "L'enregistrement est annoncé"
OBJECT = "Le droit d'opposition au démarchage est mentionné"
LONG = (
    "Le conseiller rappelle les garanties principales du contrat, les délais de carence et les exclusions, vérifie "
    "que le client a compris le montant de la cotisation, la date d'effet, et comment exercer son droit de renonciation"
)


def answers(*returned: tuple[str, Statut]) -> StepFinding:
    return finding(*(
        control_point(statut, text, commentaire=f"réponse {number}")
        for number, (text, statut) in enumerate(returned)
    ))  # fmt: skip


def matched(configured: tuple[str, ...], *returned: tuple[str, Statut]) -> list[int | None]:
    """The index of the answer that each configured point got."""
    points = reconcile(answers(*returned), configured).finding.points
    assert [point.point for point in points] == list(configured)
    numbers = [point.commentaire.removeprefix("réponse ") for point in points]
    return [int(number) if number.isdigit() else None for number in numbers]


@pytest.mark.parametrize(
    "text",
    [
        NAME,
        f"  {NAME}\n",
        "LE CONSEILLER DONNE SON NOM.",
        f"1. {NAME}",
        f"1) {NAME}",
        f"(1) {NAME}",
        f"12 - {NAME}",
        f"1.2. {NAME}",
        f"Point 1 : {NAME}",
        f"- {NAME}",
        f"Point de contrôle 1 : {NAME}",
        f"{NAME} et son prénom, clairement",
        "donne son nom",
        "Le conseiler donne son noms",
    ],
)
def test_a_point_is_matched_despite_numbering_case_and_typos(text: str) -> None:
    assert matched((RECORDED, NAME), (text, P)) == [None, 0]


@pytest.mark.parametrize(
    "text",
    ["", "…", "1.", "nom", "le", "son nomade", "Le client donne son accord", RECORDED[:3], "2"],
)
def test_a_point_without_a_clear_match_is_unknown(text: str) -> None:
    result = reconcile(answers((text, P)), (NAME, OBJECT))
    assert (result.missing, result.unknown) == (2, 1)
    assert [point.statut for point in result.finding.points] == [A, A]


@pytest.mark.parametrize(
    ("configured", "returned"),
    [
        (
            "Le délai de renonciation de 14 jours est annoncé",
            "Le délai de renonciation de 30 jours est annoncé",
        ),
        (
            "Le délai de renonciation de trente jours est dit",
            "Le délai de renonciation de trois jours est dit",
        ),
        (
            "Un appel de 10 à 20 minutes est proposé au client",
            "Un appel de 20 à 10 minutes est proposé au client",
        ),
        (
            "Le conseiller coupe la parole du client",
            "Le conseiller ne coupe pas la parole du client",
        ),
        (
            "Le client n'a aucun crédit en cours chez nous",
            "Le client a un crédit en cours chez nous",
        ),
        (
            "Contrat signé avec délai de carence annoncé",
            "Contrat signé avec délai de carence jamais annoncé",
        ),
        (
            "Le conseiller conclut sans frais de dossier",
            "Le conseiller conclut avec frais de dossier",
        ),
        ("Accord du client", "Non accord du client"),
        ("Enregistrement", "Enregistrement annoncé au début de l'appel"),
        ("Nom", "Nom annoncé"),
        ("Le conseiller donne son nom, celui de sa société et son numéro ORIAS", "donne son nom"),
        ("son nom", "Le conseiller donne son nom"),
        ("abcdefghijklmnopqrst", "tsrqponmlkjihgfedcba"),
    ],
)
def test_similar_points_with_different_meanings_do_not_match(
    configured: str, returned: str
) -> None:
    assert matched((configured,), (returned, P)) == [None]
    assert matched((returned,), (configured, P)) == [None]


@pytest.mark.parametrize(
    ("configured", "returned"),
    [
        (
            "Le délai de 14 jours est annoncé au client",
            "Le delai de 14 jours est annoncer au client",
        ),
        (
            "Le conseiller n'a coupé aucune parole",
            "Le conseiller n'a coupé aucune parole du client",
        ),
        ("Le client ne paie pas de frais de dossier", "Le client ne paye pas de frais de dossier"),
        ("donne son nom", "Le conseiller donne son nom"),
        ("son nom", "donne son nom complet"),  # two of four words
        ("abcdefghijklmnopqrst", "abcdefghijklmnopquvw"),  # a similarity of 0.85
    ],
)
def test_points_with_the_same_meaning_match(configured: str, returned: str) -> None:
    assert matched((configured,), (returned, P)) == [0]
    assert matched((returned,), (configured, P)) == [0]


def test_long_points_with_typos_match() -> None:
    assert len(LONG) > 200
    assert matched(
        (LONG, NAME), (LONG.replace("rappelle", "rapelle").replace("exercer", "utiliser"), P)
    ) == [0, None]


@pytest.mark.parametrize(
    ("configured", "returned", "expected"),
    [
        ((NAME, RECORDED), [(RECORDED, P), (NAME, P)], [1, 0]),
        ((NAME, RECORDED), [(f"2. {RECORDED}", P), (f"1. {NAME}", P)], [1, 0]),
        (("Nom", "Nom et prénom"), [("Nom et prénom", P), ("Nom", P)], [1, 0]),
        (
            ("Nom du client", "Nom du conseiller"),
            [("Nom du conseillé", P), ("Nom du clients", P)],
            [1, 0],
        ),
        (
            ("Montant < 100 €", "Montant > 100 €"),
            [("Montant > 100 €", P), ("Montant < 100 €", P)],
            [1, 0],
        ),
        # A point in other words is better than a part of it, and a part better than many typos.
        ((NAME,), [("donne son nom", P), ("Le conseiler donne son nom", P)], [1]),
        ((NAME,), [("Le conseler done son nm", P), (f"{NAME} ici", P)], [1]),
        (("Nom du client", "Nom du clients"), [("Nom du clientt", P)], [0, None]),
        (("Nom du client",), [("Nom du clienta", P), ("Nom du clientb", A)], [1]),
        (("Étape 2. nom",), [("1. Étape 2. nom", P)], [0]),
        ((NAME, NAME), [(NAME, P), (NAME, A)], [0, 1]),
        ((NAME, NAME), [(NAME, P)], [0, None]),
        ((), [(NAME, P)], []),
        (("!!!",), [("???", P)], [None]),
    ],
)
def test_points_are_matched_in_the_best_pairs(
    configured: tuple[str, ...], returned: list[tuple[str, Statut]], expected: list[int | None]
) -> None:
    assert matched(configured, *returned) == expected


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ([(NAME, P), (NAME, A)], 1),
        ([(NAME, A), (NAME, P)], 0),
        ([(NAME, P), (NAME, H)], 1),
        ([(NAME, N), (NAME, P)], 1),
        ([(NAME, H), (NAME, A), (NAME, A)], 1),
        ([(f"1. {NAME}", P), (f"1. {NAME}", A)], 1),
        ([(f"{NAME} !", A), (NAME, P)], 1),  # an exact match takes precedence
        ([(f"1. {NAME}", A), (NAME, P)], 1),
    ],
)
def test_the_strictest_of_duplicate_points_is_kept(
    returned: list[tuple[str, Statut]], expected: int
) -> None:
    assert matched((NAME, RECORDED), *returned) == [expected, None]
    assert reconcile(answers(*returned), (NAME, RECORDED)).unknown == len(returned) - 1


def test_a_duplicate_does_not_match_a_similar_point() -> None:
    assert matched(
        ("Nom du client", "Nom du client vérifié"), ("Nom du client", P), ("Nom du client", P)
    ) == [0, None]


def test_a_matched_point_gets_the_configured_text_and_keeps_other_fields() -> None:
    before = control_point(
        H,
        f"1. {NAME}",
        commentaire="À moitié.",
        minutages=("00:12",),
        erreur_transcription_notee=True,
        variation_phonetique_utilisee="nomme",
    )
    after = reconcile(finding(before, score=7), (NAME,))
    assert after.finding.points == (
        control_point(
            H,
            NAME,
            commentaire="À moitié.",
            minutages=("00:12",),
            erreur_transcription_notee=True,
            variation_phonetique_utilisee="nomme",
        ),
    )
    assert (after.finding.score, after.missing, after.unknown) == (7, 0, 0)


def test_a_point_missing_from_the_answer_is_not_dealt_with() -> None:
    result = reconcile(answers((NAME, P), ("Autre chose", P)), (NAME, RECORDED))
    assert result.finding.points[1] == control_point(
        A, RECORDED, commentaire="Non traité par le modèle."
    )
    assert (result.missing, result.unknown) == (1, 1)


def test_a_step_returned_without_control_points_keeps_no_score() -> None:
    result = reconcile(finding(score=10), (NAME, RECORDED))
    after = gate(result.finding, 10, Timeline(()), GatingOptions()).finding
    assert result.missing == 2
    assert (after.score, after.conforme, after.niveau_conformite) == (
        0,
        Conforme.NON_CONFORME,
        Niveau.INSUFFISANT,
    )


@given(findings, st.lists(texts, max_size=5).map(tuple))
def test_the_result_has_exactly_the_configured_points(
    step: StepFinding, configured: tuple[str, ...]
) -> None:
    result = reconcile(step, configured)
    assert tuple(point.point for point in result.finding.points) == configured
    assert len(configured) - result.missing == len(step.points) - result.unknown >= 0
    assert result.missing >= 0
    again = reconcile(result.finding, configured)
    assert [point.statut for point in again.finding.points] == [
        point.statut for point in result.finding.points
    ]


@every_case(
    ("texts", "min_length", "terms"),
    [
        ((), 3, ()),
        (("", " ?! "), 2, ()),
        (("Délai de rétractation", "DELAI !"), 4, ("delai", "retractation")),
        (("l'appel est enregistré",), 3, ("appel", "est", "enregistre")),
        (("ORIAS n°12",), 2, ("orias", "12")),
    ],
)
def test_terms_are_distinct_words_of_minimum_length(
    texts: tuple[str, ...], min_length: int, terms: tuple[str, ...]
) -> None:
    assert search_terms(texts, min_length) == terms


def test_at_most_forty_terms_are_used() -> None:
    assert search_terms((" ".join(f"mot{at}" for at in range(100)),), 3) == tuple(
        f"mot{at}" for at in range(40)
    )
