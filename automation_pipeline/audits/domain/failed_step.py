"""What is stored of a step about which nothing could be found."""

from automation_pipeline.audits.domain.findings import Conforme, ControlPoint, Niveau, Statut, StepFinding


def failed_step(control_points: tuple[str, ...], reason: str) -> StepFinding:
    comment = f"Step failed: {reason}"
    return StepFinding(
        traite=False,
        conforme=Conforme.NON_CONFORME,
        score=0,
        niveau_conformite=Niveau.INSUFFISANT,
        points=tuple(ControlPoint(point=text, statut=Statut.ABSENT, commentaire=comment) for text in control_points),
        error=reason,
    )
