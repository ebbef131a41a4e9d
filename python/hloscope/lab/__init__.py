"""The Jupyter side: a server extension that reads files for the JupyterLab document viewer.

===============  ================================================================
``routes.py``    the authenticated routes under ``hloscope/api/``
``files.py``     API path → open file, confined to the contents root
``folders.py``   API path of a folder → its modules and stages
``jobs.py``      one child process per reading, shared by all requests for the same bytes
``child.py``     the child: limits itself, reads, writes frames
``frames.py``    the bytes between child, server and browser
``limits.py``    what a user may configure
===============  ================================================================

Nothing that is read is ever executed, and nothing is read inside the server process.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "hloscope.lab"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    from .routes import add_routes

    add_routes(server_app)
