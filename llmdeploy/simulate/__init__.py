"""The engine model over time: requests in, latencies out; a queue for the peak hour."""

from llmdeploy.simulate.lengths import Lengths, as_listed, by_bins, by_mean
from llmdeploy.simulate.limits import Limits
from llmdeploy.simulate.pace import Pace
from llmdeploy.simulate.queue import Peak, peak

__all__ = ["Lengths", "Limits", "Pace", "Peak", "as_listed", "by_bins", "by_mean", "peak"]
