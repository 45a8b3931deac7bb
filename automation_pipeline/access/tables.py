"""Tables of access. The secret of a token is not stored, only its hash."""

from datetime import datetime

from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.types import BigId, Table, TextList, UtcDateTime


class ApiTokenRow(Table):
    __tablename__ = "api_tokens"

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    name: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    # The first characters of the token, which identify it for people.
    prefix: Mapped[str]
    permissions: Mapped[list[str]] = mapped_column(TextList)
    scope: Mapped[str]
    groupes: Mapped[list[str]] = mapped_column(TextList)
    crm_user_id: Mapped[str | None]
    # A token of an organisation reaches only that organisation.
    org_id: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
