"""The authenticated routes.

==============================================================================  ====================
``GET hloscope/api/(view|analyses|chip|text|stages|list|html)?path=…&hardware=…``  one file
``GET hloscope/api/(passes|pass_costs)?path=…``                                the passes beside it
``GET hloscope/api/diff?path=…&other=…``, also ``module``, ``other_module``     two files
``GET hloscope/api/folder?path=…``                                             a dump folder, JSON
==============================================================================  ====================

All but the last answer with a stream of frames (frames.py). ``ETag`` is the digest of the
content, so that a viewer which asks again after a file was touched learns in one round trip
that nothing changed.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import aclosing
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, authenticated

from .. import __version__
from .files import OpenFile, open_file
from .folders import OpenDump, list_folder, open_dump
from .jobs import Pool
from .limits import HloscopeLimits

# the name of a request → the frame that answers it, and all that the child makes for it
_KINDS = {
    "view": (b"V", "view,analyses,text,stages,list"),
    "analyses": (b"A", "view,analyses,text,stages,list"),
    "chip": (b"F", "chip"),
    "stages": (b"S", "view,analyses,text,stages,list"),
    "text": (b"T", "view,analyses,text,stages,list"),
    "list": (b"I", "view,analyses,text,stages,list"),
    "html": (b"H", "html"),
    "diff": (b"H", "diff"),
    "passes": (b"K", "passes"),
    "pass_costs": (b"C", "passes"),
}
# query arguments that name a module of the file, one of the second file, the chip to model
_CHOICES = ("module", "other_module", "hardware")


class _Handler(APIHandler):
    """Query arguments as they were sent, and names in errors unchanged."""

    auth_resource = "contents"

    def argument(self, name: str) -> str:
        """The argument with the spaces around it, which are part of a file's name."""
        return str(self.get_query_argument(name, strip=False))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = (kwargs.get("exc_info") or (None, None))[1]
        if isinstance(error, HTTPError) and not error.args:
            kwargs["exc_info"] = (_Said, _Said(status_code, error.get_message()), None)
        super().write_error(status_code, **kwargs)


class _Said(HTTPError):
    """An error whose message is for the user: tornado doubles each % of it for its log."""

    @property
    def log_message(self) -> str | None:
        return self.get_message()


class ReadHandler(_Handler):
    """Streams one reading of one file (two for ``diff``)."""

    def initialize(self, pool: Pool) -> None:
        self.pool = pool
        self._task: asyncio.Task[Any] | None = None
        self._gone = False

    def on_connection_close(self) -> None:
        """Cancel pressed, tab closed: stop waiting; the job ends with its last user."""
        self._gone = True
        if self._task is not None:
            self._task.cancel()

    @authenticated
    @authorized
    async def get(self, what: str) -> None:
        kind, wants = _KINDS[what]
        limit = self.pool.limits.max_file_bytes
        paths = [self.argument("path")]
        if what == "diff":
            paths.append(self.argument("other"))
        choices = self._choices()
        files: list[OpenFile] = []
        dump: OpenDump | None = None
        try:
            for path in paths:
                files.append(await open_file(self.contents_manager, path, limit))
            if wants == "passes":
                limit = self.pool.limits.max_passes_bytes
                dump = await asyncio.to_thread(open_dump, self.contents_manager, paths[0], limit)
            # the name is part of the key: the view shows it
            key = (__version__, wants, *choices.items(), *((f.name, f.digest) for f in files))
            if dump is not None:
                key = (*key, dump.state)
            tag = hashlib.blake2b(repr(key).encode(), digest_size=20).hexdigest()
            self.set_header("ETag", f'"{tag}"')
            self.set_header("Cache-Control", "no-cache")
            self.set_header("Content-Type", "application/octet-stream")
            if self.check_etag_header():
                self.set_status(304)
                return
            self._task = asyncio.current_task()
            async with aclosing(self.pool.frames(key, kind, wants, files, choices, dump)) as stream:
                async for frame in stream:
                    self.write(frame)
                    await self.flush()
        except StreamClosedError:
            return
        except asyncio.CancelledError:
            if not self._gone:
                raise
        finally:
            self._task = None
            for file in files:
                file.stream.close()
            if dump is not None:
                dump.close()

    def _choices(self) -> dict[str, str]:
        """The choices in the query, as options of child.py."""
        found = {}
        for name in _CHOICES:
            value = self.get_query_argument(name, None, strip=False)
            if value is not None and len(value) > 1000:
                raise HTTPError(400, f"this is not a {name.replace('_', ' ')}: {value[:50]!r}")
            if value is not None:
                found[name.replace("_", "-")] = value
        return found

    def compute_etag(self) -> None:
        """None: the handler sets its own."""
        return None


class FolderHandler(_Handler):
    """``{"files": [{"file", "name", "index", "stage", "bytes"}], "chosen": index}``."""

    @authenticated
    @authorized
    async def get(self) -> None:
        path = self.argument("path")
        found = await asyncio.to_thread(list_folder, self.contents_manager, path)
        self.finish(found)


def add_routes(server_app: Any) -> None:
    web_app = server_app.web_app
    pool = Pool(HloscopeLimits(parent=server_app))
    what = f"({'|'.join(_KINDS)})"
    pattern = url_path_join(web_app.settings["base_url"], "hloscope", "api", what)
    folder = url_path_join(web_app.settings["base_url"], "hloscope", "api", "folder")
    handlers = [(pattern, ReadHandler, {"pool": pool}), (folder, FolderHandler)]
    web_app.add_handlers(".*$", handlers)
    server_app.log.info(f"hloscope {__version__}: reads files in processes of their own")
