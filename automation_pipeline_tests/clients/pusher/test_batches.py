"""Batches of Pusher entries: whole events, in order, within the size limit."""

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.clients.pusher import MAX_ENTRIES, Entry, entries_of, in_batches
from automation_pipeline.core.errors import PermanentError
from automation_pipeline_tests.storage.processes import event


def test_an_event_has_one_entry_per_channel() -> None:
    one_event = event("k", audit_id="a", fiche_id="1")
    entries = entries_of(one_event, private=True, max_bytes=1000)
    data = '{"key":"k","audit_id":"a","fiche_id":"1"}'
    assert entries == (
        Entry("private-audit-a", "run.completed", data),
        Entry("private-fiche-1", "run.completed", data),
    )
    assert isinstance(
        entries_of(event("k", bad=object()), private=True, max_bytes=1000), PermanentError
    )


@given(st.lists(st.integers(0, MAX_ENTRIES)))
def test_batches_never_split_an_event_and_keep_the_order(sizes: list[int]) -> None:
    events = [
        tuple(Entry("c", str(number), "") for _ in range(size)) for number, size in enumerate(sizes)
    ]
    batches = list(in_batches(events))
    assert [entries for batch in batches for entries in batch] == events
    assert all(sum(map(len, batch)) <= MAX_ENTRIES for batch in batches)


def test_a_batch_is_filled_up_to_the_limit() -> None:
    half = (Entry("c", "e", ""),) * (MAX_ENTRIES // 2)
    assert list(in_batches([half, half, half])) == [[half, half], [half]]
