"""Counting by threads side by side, and what is written of labels."""

from concurrent.futures import ThreadPoolExecutor

from automation_pipeline.core.metrics import Meter
from automation_pipeline_tests.tables import every_case


def test_amounts_add_up_by_name_and_labels_and_begin_again_once_they_are_drained() -> None:
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


def test_what_is_put_back_is_added_to_what_came_meanwhile() -> None:
    meter = Meter()
    meter.count("a", 2)
    drained = meter.drain()
    meter.count("a", 3)
    meter.put_back(drained)
    assert meter.drain() == {("a", ""): 5}


@every_case(
    ("value", "written"), [('a"b', 'a\\"b'), ("a\\b", "a\\\\b"), ("a\nb", "a\\nb"), ("é", "é")]
)
def test_labels_are_written_as_prometheus_reads_them(value: str, written: str) -> None:
    meter = Meter()
    meter.count("a", label=value)
    assert list(meter.drain()) == [("a", f'label="{written}"')]


def test_no_count_is_lost_between_threads() -> None:
    meter, drained = Meter(), 0.0
    with ThreadPoolExecutor(8) as pool:
        for _ in range(4000):
            pool.submit(meter.count, "a")
        for _ in range(50):
            drained += sum(meter.drain().values())
    assert drained + sum(meter.drain().values()) == 4000
