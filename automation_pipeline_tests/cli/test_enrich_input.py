"""Which companies are meant: by words, by named columns, by the first column; each once."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.errors import InvalidInputError
from automation_pipeline.enrichment.commands import read_wanted

DANONE, OFFICE = "552032534", "73282932000074"


def read(path: Path, text: str) -> list[tuple[str | None, str | None]]:
    file = path / "companies.csv"
    file.write_bytes(text.encode("utf-8-sig"))
    return [(one.siren, one.siret) for one in read_wanted([], file, strict=False)]


@pytest.mark.parametrize(
    "text",
    [
        f"{DANONE}\n{OFFICE}\n",
        f"number,name\n{DANONE},Danone\n{OFFICE},Other\n",
        f"name;siren;siret\nDanone;{DANONE};\nOther;;{OFFICE}\n",
        f"SIRET\tSIREN\n\t552 032 534\n{OFFICE}\t732829320\n",
    ],
)
def test_a_file_is_read_as_people_write_them(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == [(DANONE, None), ("732829320", OFFICE)]


def test_the_same_number_twice_is_one_company() -> None:
    assert len(read_wanted([DANONE, DANONE, OFFICE], None, strict=False)) == 2


def test_numbers_that_contradict_each_other_are_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "companies.csv"
    file.write_text(f"siren,siret\n{DANONE},{OFFICE}\n", encoding="utf-8")
    [wanted] = read_wanted([], file, strict=False)
    assert wanted.fault == "Invalid company identifier: siret: must begin with the SIREN"


def test_a_file_that_is_no_csv_is_refused_by_the_line(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInputError, match=r"companies\.csv cannot be read: line 3: field larger than"
    ):
        read(
            tmp_path,
            f"siren,name\n{DANONE},Danone\n{DANONE},{'x' * (csv.field_size_limit() + 1)}\n",
        )


@given(st.text(max_size=20))
def test_whatever_is_typed_is_a_company_or_a_fault(text: str) -> None:
    [wanted] = read_wanted([text], None, strict=False)
    assert (wanted.siren is None) is (wanted.fault is not None)
