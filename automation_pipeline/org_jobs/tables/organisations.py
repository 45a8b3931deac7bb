"""Organisations, the hosts that their agents run on, and the servers on those hosts."""

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from automation_pipeline.storage.metadata import Table
from automation_pipeline.storage.types import BigId, UtcDateTime


class OrganisationRow(Table):
    """A tenant. `max_running` jobs of it are at work at the same time, at most."""

    __tablename__ = "organisations"
    __table_args__ = (CheckConstraint("max_running BETWEEN 1 AND 1000", name="max_running"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    max_running: Mapped[int]
    suspended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    suspend_reason: Mapped[str | None]
    maintenance_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class HostRow(Table):
    """A machine that an agent works on. `last_seen_at` is the agent's last call, by the database's clock."""

    __tablename__ = "org_hosts"
    __table_args__ = (UniqueConstraint("org_id", "name"),)

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    name: Mapped[str]
    maintenance_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_seen_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    agent_version: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)


class ServerRow(Table):
    """What an agent's jobs are about. Without a host its jobs wait until it has one."""

    __tablename__ = "server_instances"
    __table_args__ = (UniqueConstraint("org_id", "name"), Index(None, "host_id"))

    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    org_id: Mapped[str] = mapped_column(ForeignKey("organisations.id", ondelete="CASCADE"))
    host_id: Mapped[int | None] = mapped_column(ForeignKey("org_hosts.id"))
    name: Mapped[str]
    is_enabled: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime)
