"""The one exception of this folder."""


class CaptureError(RuntimeError):
    """What could not be captured, why, and what to do; the cause, if any, is chained."""
