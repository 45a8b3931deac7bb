"""`make golden`: accepts the present descriptions."""

from automation_pipeline_tests.golden.documents import DOCUMENTS, FOLDER

if __name__ == "__main__":
    for name, describe in DOCUMENTS.items():
        (FOLDER / name).write_text(describe(), encoding="utf-8")
