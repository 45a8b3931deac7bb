"""A name that no project can have is refused: an empty list of it would look as if all were well."""

from automation_pipeline.pricing.domain.project import check_project


def refuse_strange_project(project_id: str | None) -> None:
    """In the words of the API; None is every project."""
    if project_id is not None:
        check_project(project_id, "Invalid request")
