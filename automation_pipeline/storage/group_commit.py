"""Short transactions of many tasks, committed as one: what comes while a group is being written
waits for the next.

None sees what another has loaded. When one of a group fails, nothing of the group was written, and
each is done again alone: an act changes rows and nothing else, since it may be called twice.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from sqlalchemy.orm import Session

# Enough to share a commit among, and few enough that nobody waits long for the others.
MOST_AT_ONCE = 64
LINGER_SECONDS = 0.003
GROUP = "group"

# Any: every act has a result of its own type, which its own caller knows.
UnitOfWork: TypeAlias = Callable[[Session], Any]


@dataclass
class Group:
    """What acts of one transaction share: what they know for its whole length, and rows to be
    written at its end."""

    known: dict[object, Any] = field(default_factory=dict[object, Any])
    last: dict[Callable[[Session, Sequence[Any]], None], list[Any]] = field(default_factory=dict)

    def write_last(self, session: Session) -> None:
        for write, rows in self.last.items():
            write(session, rows)


def group_of(session: Session) -> Group | None:
    """None in a transaction that is one task's alone."""
    return session.info.get(GROUP)


def once_per_group(session: Session, key: object, find: Callable[[Session], Any]) -> Any:  # noqa: ANN401  what it finds
    """What stays as it is to the end of the transaction: found once for all acts of a group."""
    group = group_of(session)
    if group is None:
        return find(session)
    if key not in group.known:
        group.known[key] = find(session)
    return group.known[key]


def write_before_commit(
    session: Session, write: Callable[[Session, Sequence[Any]], None], rows: Sequence[Any]
) -> None:
    """Now, where the transaction is one task's alone. In a group all rows of a kind go at once, in
    this order."""
    group = group_of(session)
    if group is None:
        write(session, rows)
    else:
        group.last.setdefault(write, []).extend(rows)


@dataclass(frozen=True)
class _UnitResult:
    """What became of an act: its result, or the error that it ended with."""

    result: Any = None
    error: BaseException | None = None

    def tell(self, future: Future[Any] | asyncio.Future[Any]) -> None:
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.result)


@dataclass(frozen=True)
class _SubmittedUnit:
    act: UnitOfWork
    context: Context
    future: Future[Any] | asyncio.Future[Any]

    def is_still_wanted(self) -> bool:
        if isinstance(self.future, Future):
            return self.future.set_running_or_notify_cancel()
        return not self.future.cancelled()


class GroupWriter:
    """`transaction` begins one that is committed at the end of the block."""

    def __init__(self, transaction: Callable[[], AbstractContextManager[Session]]) -> None:
        self._transaction = transaction
        self._door = threading.Lock()
        self._waiting: deque[_SubmittedUnit] = deque()
        self._is_writing = False
        self._nothing = threading.Event()  # never set: to wait on

    def submit(self, act: UnitOfWork) -> Future[Any]:
        """For a thread, which waits for it."""
        future = Future[Any]()
        self._enter(_SubmittedUnit(act, copy_context(), future))
        return future

    def soon(self, act: UnitOfWork) -> asyncio.Future[Any]:
        """For a task, which awaits it. The answers of a group reach its event loop together."""
        future = asyncio.get_running_loop().create_future()
        self._enter(_SubmittedUnit(act, copy_context(), future))
        return future

    def rest(self) -> None:
        """After what is waiting is written. Who submits again has another thread."""
        if "_thread" in vars(self):
            self._thread.shutdown()
            del self._thread

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="group-commit")

    def _enter(self, wish: _SubmittedUnit) -> None:
        with self._door:
            self._waiting.append(wish)
            begins, self._is_writing = not self._is_writing, True
        if begins:
            self._thread.submit(self._write_all)

    def _write_all(self) -> None:
        while group := self._next():
            wanted = [wish for wish in group if wish.is_still_wanted()]
            _answer(wanted, self._written(wanted) or [self._written_alone(wish) for wish in wanted])
            if (
                len(group) > 1
            ):  # who was answered asks again in a moment: a short wait makes few groups of many
                self._nothing.wait(LINGER_SECONDS)

    def _next(self) -> list[_SubmittedUnit]:
        with self._door:
            group = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
            self._is_writing = bool(group)
        return group

    def _written(self, wishes: Sequence[_SubmittedUnit]) -> list[_UnitResult]:
        """Empty when they have to be done alone."""
        if len(wishes) < 2:
            return []
        try:
            return self._as_one(wishes)
        except Exception:  # noqa: BLE001  whose error it is shows when each is done alone
            return []

    def _written_alone(self, wish: _SubmittedUnit) -> _UnitResult:
        try:
            [told] = self._as_one([wish])
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the caller's
            return _UnitResult(error=error)
        return told

    def _as_one(self, wishes: Sequence[_SubmittedUnit]) -> list[_UnitResult]:
        group = Group()
        with self._transaction() as session:
            session.info[GROUP] = group
            results = [wish.context.run(_done, session, wish.act) for wish in wishes]
            group.write_last(session)
        return [_UnitResult(result) for result in results]


def _answer(wishes: Sequence[_SubmittedUnit], told: Sequence[_UnitResult]) -> None:
    in_loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], _UnitResult]]] = {}
    for wish, said in zip(wishes, told, strict=True):
        if isinstance(wish.future, Future):
            said.tell(wish.future)
        else:
            in_loops.setdefault(wish.future.get_loop(), []).append((wish.future, said))
    for loop, answers in in_loops.items():
        with suppress(RuntimeError):  # it was closed meanwhile: nobody waits there any more
            loop.call_soon_threadsafe(_hear, answers)


def _hear(answers: Sequence[tuple[asyncio.Future[Any], _UnitResult]]) -> None:
    for future, said in answers:
        if not future.done():
            said.tell(future)


def _done(session: Session, act: UnitOfWork) -> Any:  # noqa: ANN401  the act's own
    result = act(session)
    session.flush()
    if session.identity_map:
        session.expunge_all()
    return result
