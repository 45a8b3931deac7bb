"""Counters and histograms of a process."""

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from automation_pipeline.core.metrics import BOUNDS_MS, BUCKETS, Meter, bucket_of, observe
from automation_pipeline_tests.cases import every_case


def test_counters_add_up_by_name_and_labels_until_drained() -> None:
    meter = Meter()
    meter.count("calls_total", provider="crm", status="200")
    meter.count("calls_total", status="200", provider="crm")
    meter.count("calls_total", provider="crm", status="503")
    meter.count("seconds_total", 0.25)
    assert meter.drain() == {
        ("calls_total", 'provider="crm",status="200"'): 2,
        ("calls_total", 'provider="crm",status="503"'): 1,
        ("seconds_total", ""): 0.25,
    }
    assert meter.drain() == {}


def test_counts_that_are_put_back_are_added_to_newer_ones() -> None:
    meter = Meter()
    meter.count("a", 2)
    drained = meter.drain()
    meter.count("a", 3)
    meter.put_back(drained)
    assert meter.drain() == {("a", ""): 5}


@every_case(
    ("value", "escaped"), [('a"b', 'a\\"b'), ("a\\b", "a\\\\b"), ("a\nb", "a\\nb"), ("é", "é")]
)
def test_label_values_are_escaped_for_prometheus(value: str, escaped: str) -> None:
    meter = Meter()
    meter.count("a", label=value)
    assert list(meter.drain()) == [("a", f'label="{escaped}"')]


def test_no_count_is_lost_between_threads() -> None:
    meter, drained = Meter(), 0.0
    with ThreadPoolExecutor(8) as pool:
        for _ in range(4000):
            pool.submit(meter.count, "a")
        for _ in range(50):
            drained += sum(meter.drain().values())
    assert drained + sum(meter.drain().values()) == 4000


@every_case(
    ("milliseconds", "bucket"),
    [
        (0, "1000.0"),
        (1000, "1000.0"),
        (1000.5, "5000.0"),
        (14_400_000, "14400000.0"),
        (14_400_001, "+Inf"),
    ],
)
def test_bucket_bounds_are_inclusive(milliseconds: float, bucket: str) -> None:
    assert bucket_of(milliseconds) == bucket
    meter = Meter()
    observe(meter, "wait_ms", milliseconds)
    assert meter.drain() == {
        ("wait_ms_bucket", f'le="{bucket}"'): 1,
        ("wait_ms_sum", ""): milliseconds,
    }


@given(milliseconds=st.floats(0, 1e9))
def test_a_duration_is_in_the_smallest_matching_bucket(milliseconds: float) -> None:
    index = BUCKETS.index(bucket_of(milliseconds))
    assert index == sum(bound < milliseconds for bound in BOUNDS_MS)
