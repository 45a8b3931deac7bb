"""The shop as it stands: its catalogue, its bucket, and how often it was asked for what."""

from collections import Counter

from automation_pipeline.simulator.shop.bucket import Bucket
from automation_pipeline.simulator.shop.catalogue import Sizes
from automation_pipeline.simulator.shop.shelves import Shelves


class ShopState:
    """`calls` counts what the shop itself was asked, throttled calls included; faults keep calls
    from it."""

    def __init__(self, seed: int, sizes: Sizes, bucket: Bucket | None = None) -> None:
        self._seed = seed
        self.bucket = bucket or Bucket()
        self.shelves = Shelves(seed, sizes)
        self.calls: Counter[str] = Counter()

    @property
    def sizes(self) -> Sizes:
        return self.shelves.sizes

    def resize(self, sizes: Sizes) -> None:
        """Another catalogue begins anew; the same one keeps its prices."""
        if sizes != self.sizes:
            self.shelves = Shelves(self._seed, sizes)

    def forget(self) -> None:
        """Writes, edits, counts and spent points; sizes, maximum and rate stay."""
        self.shelves = Shelves(self._seed, self.sizes)
        self.bucket.forget()
        self.calls.clear()
