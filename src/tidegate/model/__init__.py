"""The reference model: the whole event-time semantics in plain Python, the oracle for Spark.

Everything Tidegate promises about time is here a second time, written for the reader and not for speed. The same
transcript runs on this model and on Spark, and both must agree with it; property tests compare the two.

The words, in the order in which a micro-batch meets them:

- The **watermark** `W` says how far event time has come (`watermark.py`). It moves only between micro-batches: a batch
  is judged by `W_in` and fires by `W_out`. With several sources it is the minimum over them.
- A **window** is a half-open piece of event time (`windows.py`): complete at ``end ≤ W``, closed at
  ``end + allowed_lateness ≤ W``.
- An event is **accepted** by its open windows, **late** when all are closed, **partially late** when some are; a
  **future** event is refused before anything looks at it, and a **duplicate** is one whose id and time an open window
  holds already (`stores.py`, `pipeline.py`).
- A **trigger** decides when a window speaks, never what is lost (`triggers.py`).
- A **pane** is what it says: everything so far (accumulating, retracting) or only the news (discarding). In retracting
  mode the pane it replaces is taken back first.
- The panes of one operator may be the events of another (`chain.py`).

>>> from tidegate.windows import Session
>>> model = Model(Session("10s"))
>>> step = model.batch([Event(time=0, value=1), Event(time=8_000_000, value=2)])
>>> [(pane.window, pane.values) for pane in model.drain().panes]
[((0, 18000000), (1, 2))]

The model holds everything in memory and keeps every element of every open window.
"""

from __future__ import annotations

from tidegate.model.chain import Chain
from tidegate.model.pipeline import Model
from tidegate.model.values import SOURCE, Event, Pane, Step

__all__ = ["SOURCE", "Chain", "Event", "Model", "Pane", "Step"]
