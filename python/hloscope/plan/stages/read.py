"""``hs.read_stage_log``: a log of Alpa's stage construction → StageLog."""

from __future__ import annotations

from ...readers import ReadError
from ...readers.alpa_log import StageLogError
from ...readers.files.decode import to_text
from ...readers.files.sources import Source, load
from . import log
from .log import StageLog


def read_stage_log(source: Source) -> StageLog:
    """Reads the log of Alpa's automatic stage construction, with any text around it.

    ``source``: a path, bytes or text. Raises ``ReadError``.

        >>> read_stage_log("train.log").plan()
    """
    data, origin, _ = load(source)
    text = to_text(data)[0] if isinstance(data, bytes) else data
    try:
        return log.read_stage_log(text, origin)
    except StageLogError as error:
        raise ReadError(f"{origin or 'the text'}: {error}") from None
