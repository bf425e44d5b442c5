"""Keeps a lease while a piece of work is done. Copy it into your application; it needs Python's own library only.

The application asks held() right before each step, and puts token() on every call to a gateway, as Fence-Token. When the lease
is lost, or a call is answered `fenced`, it stops: another holder goes on with the work. It undoes nothing and repeats nothing.
"""

import http.client
import json
import re
import threading
import time


class Refused(Exception):
    """The sidecar's no. slug: held, fenced, scope-finished, calls-in-flight …; after: seconds until a repeat makes sense."""

    def __init__(self, slug, after):
        super().__init__(slug)
        self.slug, self.after = slug, after


class Keeper:
    """A lease on a scope. A thread renews it, sets lost and calls on_lost, at once, when it is lost."""

    def __init__(self, scope, address="127.0.0.1:8182", on_lost=lambda: None, **options):  # holder="…", tenant="…"
        self._address, self._token, self._on_lost = address, None, on_lost
        self.lost, self._ended = threading.Event(), threading.Event()
        self._one = threading.RLock()  # one request at a time, so that a renewal never meets its own release
        self._note(*self._ask("acquire", 10, {"id": scope, **options}))
        threading.Thread(target=self._renew, daemon=True).start()

    def token(self):
        return self._token

    def trusted_for(self):  # seconds in which nobody else can have the scope; once 0, always 0
        return 0 if self.lost.is_set() or self._ended.is_set() else max(0, self._until - time.monotonic())

    def held(self):
        return self.trusted_for() > 0

    def release(self):
        """Gives the scope back. Refused with calls-in-flight while a call's outcome is open: the lease goes on, ask again."""
        self._end("release")

    def finish(self):
        """Like release, and the scope is never granted again: the work is done."""
        self._end("finish")

    def _ask(self, what, timeout, body=None):
        """One request, sent once; the clock is read before it leaves, because its answer may take long."""
        headers = ({"Fence-Token": self._token} if self._token else {}) | ({"Content-Type": "application/json"} if body else {})
        sent, connection = time.monotonic(), http.client.HTTPConnection(self._address, timeout=timeout)
        try:
            connection.request("POST", "/v1/leases/" + what, body and json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != 200:
            slug = re.search("/problems/([a-z-]+)|$", text)[1] or f"{answer.status} {text}"
            if slug in ("fenced", "scope-finished") and self._token:
                self._lose()
            raise Refused(slug, float(answer.getheader("Retry-After") or 0))
        return sent, answer.headers

    def _note(self, sent, facts):
        self._token, self.cancelled = facts["Fence-Token"], facts["Fence-Cancelled"] == "true"
        self._granted = int(facts["Fence-Trusted-For-Ms"]) / 1000
        self._until = sent + self._granted

    def _end(self, how):
        with self._one:
            self._ask(how, 10)
            self._ended.set()

    def _renew(self):
        pause = self._granted / 3
        while not self._ended.wait(min(pause, self.trusted_for())) and self.held():
            try:
                self._extend("confirm")
                pause = self._granted / 3
            except (Refused, OSError, http.client.HTTPException):
                pause = self._granted / 10  # if it is not lost, it is trusted for as long as was granted
        self._lose()

    def _extend(self, what, body=None):
        with self._one:
            if self.held():
                answer = self._ask(what, min(self._granted / 3, self.trusted_for()), body)
                if self.held():  # else it came too late
                    self._note(*answer)

    def _lose(self):
        if not self.lost.is_set() and not self._ended.is_set():
            self.lost.set()
            self._on_lost()
