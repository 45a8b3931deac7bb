"""Group commit: short writes of many tasks share one transaction, and writes of one kind share their
statements.

Writes that arrive during a commit wait for the next group. If a write of a group fails, the group is
rolled back and each of its writes is repeated alone. A write may therefore run twice, and must only
change rows.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from sqlalchemy.orm import Session

# Enough writes to share a commit, and few enough that the first one does not wait long.
MOST_AT_ONCE = 64
LINGER_SECONDS = 0.003
GROUP = "group"

# Any: each operation has its own types of items and results.
Operation: TypeAlias = Callable[[Session, Sequence[Any]], Sequence[Any]]
UnitOfWork: TypeAlias = Callable[[Session], Any]
Answer: TypeAlias = Future[Any] | asyncio.Future[Any]


@dataclass
class Group:
    """What the writes of one transaction share: values that do not change within it, and rows that
    are written at its end."""

    known: dict[object, Any] = field(default_factory=dict[object, Any])
    last: dict[Callable[[Session, Sequence[Any]], None], list[Any]] = field(default_factory=dict)


def group_of(session: Session) -> Group | None:
    """None in a transaction that is not shared."""
    return session.info.get(GROUP)


def once_per_group(session: Session, key: object, find: Callable[[Session], Any]) -> Any:  # noqa: ANN401  the found value
    """Compute a value once for all writes of a group. It must stay the same until the transaction
    ends."""
    group = group_of(session)
    if group is None:
        return find(session)
    if key not in group.known:
        group.known[key] = find(session)
    return group.known[key]


def write_before_commit(
    session: Session, write: Callable[[Session, Sequence[Any]], None], rows: Sequence[Any]
) -> None:
    """Write the rows now, or in a group at its end together with all other rows of their kind, in
    this order."""
    group = group_of(session)
    if group is None:
        write(session, rows)
    else:
        group.last.setdefault(write, []).extend(rows)


def run_each(session: Session, works: Sequence[UnitOfWork]) -> list[Any]:
    """The operation of writes that share only a commit. No write sees objects that another has
    loaded."""
    results: list[Any] = []
    for work in works:
        results.append(work(session))
        session.flush()
        session.expunge_all()
    return results


@dataclass(frozen=True)
class _Write:
    operation: Operation
    item: object
    answer: Answer

    def is_wanted(self) -> bool:
        if isinstance(self.answer, Future):
            return self.answer.set_running_or_notify_cancel()
        return not self.answer.cancelled()


class GroupWriter:
    """`transaction` begins a transaction that is committed at the end of its block."""

    def __init__(self, transaction: Callable[[], AbstractContextManager[Session]]) -> None:
        self._transaction = transaction
        self._lock = threading.Lock()
        self._waiting: deque[_Write] = deque()
        self._is_writing = False
        self._never = threading.Event()  # never set: used to wait

    def submit(self, operation: Operation, item: object) -> Future[Any]:
        """For threads, which wait for the result."""
        answer = Future[Any]()
        self._enqueue(_Write(operation, item, answer))
        return answer

    def submit_soon(self, operation: Operation, item: object) -> asyncio.Future[Any]:
        """For tasks, which await the result. One call passes all results of a group to their loop."""
        answer = asyncio.get_running_loop().create_future()
        self._enqueue(_Write(operation, item, answer))
        return answer

    def close(self) -> None:
        """Execute the waiting writes and end the thread. A later write starts a new one."""
        if "_thread" in vars(self):
            self._thread.shutdown()
            del self._thread

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="group-commit")

    def _enqueue(self, write: _Write) -> None:
        with self._lock:
            self._waiting.append(write)
            starts, self._is_writing = not self._is_writing, True
        if starts:
            self._thread.submit(self._write_all)

    def _write_all(self) -> None:
        while group := self._next_group():
            if wanted := [write for write in group if write.is_wanted()]:
                _answer(wanted, self._write_group(wanted))
            if len(group) > 1:
                # Tasks that received a result soon write again, so a short wait makes larger groups.
                self._never.wait(LINGER_SECONDS)

    def _next_group(self) -> list[_Write]:
        with self._lock:
            group = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
            self._is_writing = bool(group)
        return group

    def _write_group(self, writes: Sequence[_Write]) -> list[Any]:
        """Return one result or error per write. If a group fails, each write is repeated alone to
        find the one that fails."""
        try:
            return self._commit(writes)
        except BaseException as error:  # a single write gets its error, of any kind
            if len(writes) == 1:
                return [error]
            if not isinstance(error, Exception):
                raise
        return [result for write in writes for result in self._write_group([write])]

    def _commit(self, writes: Sequence[_Write]) -> list[Any]:
        group, results = Group(), dict[int, Any]()
        with self._transaction() as session:
            session.info[GROUP] = group
            by_operation: dict[Operation, list[int]] = {}
            for number, write in enumerate(writes):
                by_operation.setdefault(write.operation, []).append(number)
            for operation, numbers in by_operation.items():
                found = operation(session, [writes[number].item for number in numbers])
                results.update(zip(numbers, found, strict=True))
            for write, rows in group.last.items():
                write(session, rows)
        return [results[number] for number in range(len(writes))]


def _answer(writes: Sequence[_Write], results: Sequence[object]) -> None:
    of_loops: dict[asyncio.AbstractEventLoop, list[tuple[Answer, object]]] = {}
    for write, result in zip(writes, results, strict=True):
        if isinstance(write.answer, Future):
            _settle([(write.answer, result)])
        else:
            of_loops.setdefault(write.answer.get_loop(), []).append((write.answer, result))
    for loop, answers in of_loops.items():
        with suppress(RuntimeError):  # the loop is closed, so no task waits
            loop.call_soon_threadsafe(_settle, answers)


def _settle(answers: Sequence[tuple[Answer, object]]) -> None:
    """An operation may return an error as the result of an item."""
    for answer, result in answers:
        if answer.done():
            continue
        if isinstance(result, BaseException):
            answer.set_exception(result)
        else:
            answer.set_result(result)
