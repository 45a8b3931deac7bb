"""Audio addresses and words are left out of details, wherever they stand."""

from automation_pipeline.fiches.documents import without_mail_devis, without_recordings_audio

RECORDING = {
    "call_id": "7",
    "recording_url": "https://records.example.test/7.mp3",
    "transcription_text": "Bonjour",
}
DOCUMENT = {
    "fiche_id": "1",
    "recordings": [RECORDING],
    "raw_data": {
        "mail_devis": {"a": 1},
        "recordings": {"0": {"mp3": "https://records.example.test/7.mp3"}},
        "x": 1,
    },
}


def test_recordings_stay_without_their_audio_and_words() -> None:
    shown = without_recordings_audio(DOCUMENT)
    assert shown["recordings"] == [
        {"call_id": "7", "recording_url": None, "transcription_text": None}
    ]
    assert shown["raw_data"] == {"mail_devis": {"a": 1}, "x": 1}
    assert "records.example.test" not in str(shown)
    assert DOCUMENT["recordings"] == [RECORDING]


def test_the_offer_that_was_mailed_can_be_left_out() -> None:
    assert "mail_devis" not in str(without_mail_devis(DOCUMENT))
    assert without_mail_devis(DOCUMENT)["recordings"] == [RECORDING]
