"""What is stored of a step that failed."""

from automation_pipeline.audits.domain.failed_step import failed_step
from automation_pipeline.audits.domain.findings import Conforme, ControlPoint, Niveau, Statut, StepFinding


def test_a_failed_step_has_dealt_with_nothing_and_says_why_at_every_point() -> None:
    absent = [
        ControlPoint(point=text, statut=Statut.ABSENT, commentaire="Step failed: The model is away.")
        for text in ("Nom donné", "Appel enregistré")
    ]
    assert failed_step(("Nom donné", "Appel enregistré"), "The model is away.") == StepFinding(
        traite=False,
        conforme=Conforme.NON_CONFORME,
        score=0,
        niveau_conformite=Niveau.INSUFFISANT,
        points=tuple(absent),
        error="The model is away.",
    )
